/*
 * Truth: memory grows by pages of three kinds, each in a function of its own, in turn and by random amounts. A fourth
 * function takes many pages every hundred rounds, and they are given back each time. The growth begins when the file in
 * the first argument exists; the second argument is the number of rounds, the third one a file whose pages are mapped. At
 * the end the program prints how many pages each function added.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "target.h"

#define NOINLINE __attribute__((noinline, noclone))
#define MOST 100 /* pages at a time */
#define AGAIN 20000 /* pages that are taken again and again */

static long page;

/* Pages of one kind: the next one, and how many were touched. */
struct arena {
	volatile char *at;
	long pages;
};

static NOINLINE void grow_anonymous(struct arena *arena, long n)
{
	for (long i = 0; i < n; i++, arena->pages++, arena->at += page)
		*arena->at = 1;
}

static NOINLINE void grow_shared(struct arena *arena, long n)
{
	for (long i = 0; i < n; i++, arena->pages++, arena->at += page)
		*arena->at = 2;
}

static NOINLINE void grow_file(struct arena *arena, long n)
{
	for (long i = 0; i < n; i++, arena->pages++, arena->at += page)
		*arena->at = 3;
}

static NOINLINE void grow_again(struct arena *arena)
{
	for (long i = 0; i < AGAIN; i++)
		arena->at[i * page] = 4;
	arena->pages += AGAIN;
}

static struct arena arena_of(int fd, size_t size)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	char *at = fd < 0 || !ftruncate(fd, (off_t)size) ?
			   mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0) : MAP_FAILED;

	if (at == MAP_FAILED || madvise(at, size, MADV_NOHUGEPAGE) || madvise(at, size, MADV_RANDOM))
		exit(1);
	return (struct arena){ at, 0 };
}

int main(int argc, char **argv)
{
	long rounds = argc > 3 ? atol(argv[2]) : 0;
	unsigned long random = 88172645463325252UL;
	struct arena anonymous, shared, file, again;
	size_t size;

	page = sysconf(_SC_PAGESIZE);
	size = (size_t)(rounds * MOST * page);
	anonymous = arena_of(-1, size);
	shared = arena_of(memfd_create("grown", 0), size);
	file = arena_of(open(argv[3], O_RDWR | O_CREAT | O_TRUNC, 0600), size);
	again = arena_of(-1, (size_t)(AGAIN * page));
	ready();
	while (access(argv[1], F_OK))
		usleep(1000);
	for (long round = 0; round < rounds; round++) {
		BURN(random, 1);
		grow_anonymous(&anonymous, 1 + (long)(random % MOST));
		BURN(random, 1);
		grow_shared(&shared, 1 + (long)(random % MOST));
		BURN(random, 1);
		grow_file(&file, 1 + (long)(random % MOST));
		if (round % 100 == 0) {
			grow_again(&again);
			madvise((void *)again.at, (size_t)(AGAIN * page), MADV_DONTNEED);
		}
	}
	printf("grown %ld %ld %ld %ld\n", anonymous.pages, shared.pages, file.pages, again.pages);
	fflush(stdout);
	if (argc < 5)
		pause();
	return 0;
}
