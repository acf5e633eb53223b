/*
 * Two threads pass a token back and forth, so each round trip has two waits: pingpong pipes|futexes CPU CPU SECONDS
 *
 * Each thread runs on one of the CPUs. The program prints round trips, wall and CPU time in nanoseconds, and context
 * switches of both threads, for the given seconds after a warm-up.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* A profiler loads the unwind tables of a new program in this time. */
#define WARM_UP_S 0.25
/* Reading the clock may be a system call, so the clock is read once for so many round trips. */
#define BETWEEN_CLOCKS 16

static int use_pipes, pipes[2][2], holder;
static atomic_int ended;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

static void give(int to)
{
	if (use_pipes) {
		if (write(pipes[to][1], "x", 1) != 1)
			abort();
		return;
	}
	pthread_mutex_lock(&mutex);
	holder = to;
	pthread_mutex_unlock(&mutex);
	pthread_cond_signal(&moved);
}

static void take(int self)
{
	char byte;

	if (use_pipes) {
		if (read(pipes[self][0], &byte, 1) != 1)
			abort();
		return;
	}
	pthread_mutex_lock(&mutex);
	while (holder != self)
		pthread_cond_wait(&moved, &mutex);
	pthread_mutex_unlock(&mutex);
}

static void pin(const char *cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(cpu), &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		abort();
}

static void *partner(void *cpu)
{
	pin(cpu);
	for (take(1); !ended; take(1))
		give(0);
	return NULL;
}

static long long now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void play(double seconds, int print)
{
	long long begin = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), rounds = 0, wall;
	struct rusage before, after;

	getrusage(RUSAGE_SELF, &before);
	do {
		for (int i = 0; i < BETWEEN_CLOCKS; i++, rounds++) {
			give(1);
			take(0);
		}
		wall = now_ns(CLOCK_MONOTONIC) - begin;
	} while (wall < (long long)(seconds * 1e9));
	cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	getrusage(RUSAGE_SELF, &after);
	if (print)
		printf("%lld %lld %lld %ld\n", rounds, wall, cpu,
		       after.ru_nvcsw + after.ru_nivcsw - before.ru_nvcsw - before.ru_nivcsw);
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc != 5 || pipe(pipes[0]) || pipe(pipes[1]))
		return 2;
	use_pipes = !strcmp(argv[1], "pipes");
	pin(argv[2]);
	if (pthread_create(&thread, NULL, partner, argv[3]))
		return 2;
	play(WARM_UP_S, 0);
	play(atof(argv[4]), 1);
	ended = 1;
	give(1);
	pthread_join(thread, NULL);
	return 0;
}
