/*
 * Truth: memory of random sizes from each function of the C library that allocates, in a function of its own, and from a
 * library function that calls malloc. It begins with the end of a line of standard input. The first argument is the number
 * of rounds. The second one is a library, which is loaded first, or `alone`: the first thread ends before. At the end the
 * program prints how many bytes each function asked for, and how many calls there were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "target.h"

#define NOINLINE __attribute__((noinline, noclone, no_icf))
#define MOST 20000 /* bytes */
/* The compiler must keep this memory. */
#define KEEP(memory) __asm__ volatile("" : : "r"(memory) : "memory")
#define FUNCTIONS 10

static unsigned long bytes[FUNCTIONS], calls;
static char text[MOST + 1];
static void *volatile none;
static atomic_int go;

/* Frees memory so that no compiler can remove the allocation. */
static NOINLINE void drop(void *memory, size_t n)
{
	if (!memory)
		abort();
	*(volatile char *)memory = (char)n;
	free(memory);
}

static NOINLINE void by_malloc(size_t n)
{
	drop(malloc(n), n);
}

static NOINLINE void by_calloc(size_t n)
{
	drop(calloc(n, 3), n);
}

static NOINLINE void by_realloc(size_t n)
{
	void *memory = realloc(none, n);

	drop(realloc(memory, 2 * n), n);
}

static NOINLINE void by_reallocarray(size_t n)
{
	void *memory = reallocarray(none, 2, n);

	drop(reallocarray(memory, n, 4), n);
}

static NOINLINE void by_posix_memalign(size_t n)
{
	void *small = NULL, *large = NULL;

	if (posix_memalign(&small, 16, n) || posix_memalign(&large, 4096, n))
		abort();
	drop(small, n);
	drop(large, n);
}

static NOINLINE void by_aligned_alloc(size_t n)
{
	drop(aligned_alloc(8, n), n);
	drop(aligned_alloc(256, n), n);
}

static NOINLINE void by_memalign(size_t n)
{
	drop(memalign(16, n), n);
	drop(valloc(n), n);
}

/* The last string has n bytes with its end. */
static NOINLINE void by_library(size_t n)
{
	drop(strdup(text + MOST + 1 - n), n);
}

static NOINLINE void *below(size_t n)
{
	char unused[64];

	KEEP(unused);
	return calloc(1, n);
}

static NOINLINE void *above(size_t n)
{
	char unused[64];
	void *memory;

	KEEP(unused);
	memory = below(n);
	KEEP(unused);
	return memory;
}

static NOINLINE void *in_large_frame(size_t n)
{
	char unused[512];
	void *memory;

	KEEP(unused);
	memory = malloc(n);
	KEEP(unused);
	return memory;
}

/* The return address of calloc stays on the stack, within a frame that does not write to it. */
static NOINLINE void by_frame(size_t n)
{
	void *first = above(n), *second = in_large_frame(n);

	drop(first, n);
	drop(second, n);
}

static NOINLINE void by_thread(size_t n)
{
	drop(malloc(n), n);
}

static size_t next(unsigned long *random)
{
	BURN(*random, 1);
	return 1 + *random % MOST;
}

static void *thread(void *rounds)
{
	unsigned long random = 362436069362436069UL;

	while (!go)
		usleep(1000);
	for (long round = 0; round < (long)rounds; round++) {
		size_t n = next(&random);

		by_thread(n);
		bytes[FUNCTIONS - 1] += n;
	}
	return NULL;
}

/* Allocates after the end of a line of standard input, and prints the truth. */
static void *work(void *arg)
{
	static char out[4096];
	long rounds = (long)arg;
	unsigned long random = 88172645463325252UL;
	pthread_t other;
	char line;
	struct {
		void (*call)(size_t);
		unsigned times, calls;
	} functions[FUNCTIONS - 1] = {
		{ by_malloc, 1, 1 },	     { by_calloc, 3, 1 },	 { by_realloc, 3, 2 },	{ by_reallocarray, 6, 2 },
		{ by_posix_memalign, 2, 2 }, { by_aligned_alloc, 2, 2 }, { by_memalign, 2, 2 }, { by_library, 1, 1 },
		{ by_frame, 2, 2 },
	};

	setvbuf(stdout, out, _IOFBF, sizeof(out));
	if (pthread_create(&other, NULL, thread, (void *)rounds))
		abort();
	ready();
	if (read(0, &line, 1) < 0)
		abort();
	go = 1;
	for (long round = 0; round < rounds; round++) {
		for (int i = 0; i < FUNCTIONS - 1; i++) {
			size_t n = next(&random);

			functions[i].call(n);
			bytes[i] += functions[i].times * n;
			calls += functions[i].calls;
		}
	}
	pthread_join(other, NULL);
	calls += (unsigned long)rounds;
	printf("allocated");
	for (int i = 0; i < FUNCTIONS; i++)
		printf(" %lu", bytes[i]);
	printf(" %lu\n", calls);
	fflush(stdout);
	if (read(0, &line, 1) < 0)
		abort();
	exit(0);
}

/* The same, once the first thread of the process has ended. */
static void *work_alone(void *rounds)
{
	char path[64], state = 'R';

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", getpid());
	while (state != 'Z') {
		FILE *stat = fopen(path, "r");

		if (!stat || fscanf(stat, "%*d %*s %c", &state) != 1)
			abort();
		fclose(stat);
		usleep(1000);
	}
	return work(rounds);
}

int main(int argc, char **argv)
{
	void *rounds = (void *)(argc > 1 ? atol(argv[1]) : 0);
	pthread_t worker;

	memset(text, 'x', MOST);
	if (argc > 2 && !strcmp(argv[2], "alone")) {
		if (pthread_create(&worker, NULL, work_alone, rounds))
			return 1;
		pthread_exit(NULL);
	}
#ifndef STATIC
	if (argc > 2 && !dlopen(argv[2], RTLD_NOW | RTLD_LOCAL))
		return 1;
#endif
	work(rounds);
}
