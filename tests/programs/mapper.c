/*
 * Maps code, prints "READY <address>\n", and waits; ends when its standard input ends.
 *   mapper LIBRARY   the address of `work` in LIBRARY
 *   mapper           the address of its own main
 *   mapper leave     the same, from a second thread: the main thread has ended
 *   mapper memory    the address of code that it wrote into a memfd, as .NET does
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv);

static void say(void *address)
{
	char end;

	printf("READY %lx\n", (unsigned long)address);
	fflush(stdout);
	while (read(0, &end, 1) > 0)
		;
	_exit(0);
}

static void *second(void *main_thread)
{
	pthread_join(*(pthread_t *)main_thread, NULL);
	say((void *)main);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "leave")) {
		static pthread_t self;
		pthread_t other;

		self = pthread_self();
		pthread_create(&other, NULL, second, &self);
		pthread_exit(NULL);
	}
	if (argc > 1 && !strcmp(argv[1], "memory")) {
		int memory = memfd_create("doublemapper", MFD_CLOEXEC);

		if (ftruncate(memory, 4096))
			return 1;
		say(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, memory, 0));
	}
#ifndef STATIC
	if (argc > 1) {
		void *library = dlopen(argv[1], RTLD_NOW);

		if (!library) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		say(dlsym(library, "work"));
	}
#endif
	say((void *)main);
	return 0;
}
