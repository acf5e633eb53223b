/* Threads and child processes that each wait for ever in one way, and are named after it. */
#ifndef REASONS_H
#define REASONS_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
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
