/* Threads and child processes that each wait for ever in one way, and are named after it. */
#ifndef REASONS_H
#define REASONS_H

#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "target.h"

static inline void name(const char *of) { prctl(PR_SET_NAME, of); }

/* This host does not have a way to wait. */
static inline void without(const char *of)
{
	printf("without %s\n", of);
	fflush(stdout);
	pause();
}

/*
 * Makes a page where each fault waits until a server of the returned descriptor ends it. The descriptor is negative if this
 * host has no such pages.
 */
static inline int catch_faults(char **page)
{
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, 0);

	*page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	range.range.start = (unsigned long)*page;
	range.range.len = 4096;
	return fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range) ? -1 : fd;
}

/* Starts a thread for each way, and waits for the end of the standard input. */
static inline void wait_in(void *(*const *ways)(void *), size_t number)
{
	pthread_t thread;

	for (size_t i = 0; i < number; i++)
		pthread_create(&thread, NULL, ways[i], NULL);
	ready();
	getchar();
}

#endif
