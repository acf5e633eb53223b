/*
 * A runtime that generates code, lists the code in its perf map, and then forks two workers. `same` runs the listed
 * code, before_fork. `other` has put other code at that address since, and updates no map. With an argument all of them
 * end after so many seconds.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "target.h"

/* push %rbp; mov %rsp,%rbp; mov $30000000,%eax; 1: dec %eax; jnz 1b; pop %rbp; ret */
static const unsigned char code[] = {
	0x55, 0x48, 0x89, 0xe5, 0xb8, 0x80, 0xc3, 0xc9, 0x01, 0xff, 0xc8, 0x75, 0xfc, 0x5d, 0xc3,
};

static void *generate(void *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);

	at = mmap(at, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
	if (at == MAP_FAILED)
		exit(1);
	memcpy(at, code, sizeof(code));
	return at;
}

static void work(const char *name, void *at)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, name);
	for (;;)
		((void (*)(void))at)();
}

int main(int argc, char **argv)
{
	void *at = generate(NULL);
	char path[64];
	FILE *map;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	map = fopen(path, "w");
	if (!map)
		return 1;
	fprintf(map, "%lx %zx before_fork\n", (unsigned long)at, sizeof(code));
	fclose(map);
	if (!fork())
		work("same", at);
	if (!fork())
		work("other", generate(at));
	ready();
	if (argc > 1)
		sleep(atoi(argv[1]));
	else
		pause();
	unlink(path);
	return 0;
}
