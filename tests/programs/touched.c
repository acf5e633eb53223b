/*
 * Truth: each round touches ten new pages in touch10 and thirty in touch30, without other faults. The rounds begin when
 * the file in the first argument exists; the second one is their number. With a third one the program then ends.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "target.h"

#define NOINLINE __attribute__((noinline, noclone))

static NOINLINE char *touch10(volatile char *at, long page)
{
	for (int i = 0; i < 10; i++, at += page)
		*at = 1;
	return (char *)at;
}

static NOINLINE char *touch30(volatile char *at, long page)
{
	for (int i = 0; i < 30; i++, at += page)
		*at = 1;
	return (char *)at;
}

int main(int argc, char **argv)
{
	long page = sysconf(_SC_PAGESIZE), rounds = argc > 2 ? atol(argv[2]) : 0;
	size_t size = (size_t)(40 * page * rounds);
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || madvise(at, size, MADV_NOHUGEPAGE))
		return 1;
	ready();
	while (access(argv[1], F_OK))
		usleep(1000);
	for (long round = 0; round < rounds; round++)
		at = touch30(touch10(at, page), page);
	puts("touched");
	fflush(stdout);
	if (argc < 4)
		pause();
	return 0;
}
