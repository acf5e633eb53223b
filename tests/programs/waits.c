/*
 * Truth: each thread waits in one function, and measures how long. The threads begin when the file in the first
 * argument exists, and end after the milliseconds in the second one. Then the program prints a line for each function:
 * its name, the nanoseconds that it waited, its CPU time, and how long its thread waited in all. `share_cpu` waits for a
 * CPU only, and has what the kernel measured: no time in which a hypervisor stole the CPU from a running thread. A third
 * argument is a file that can be written with fsync; with a fourth one the program then ends.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>
#include "target.h"
#include "waiting.h"

static unsigned long end_us;
static int answers[2], never[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *synced;

static NOINLINE void sleep_100us(void) { nap(100); STAYS; }
static NOINLINE void sleep_1ms(void) { nap(1000); STAYS; }
static NOINLINE void sleep_10ms(void) { nap(10000); STAYS; }
static NOINLINE void sleep_100ms(void) { nap(100000); STAYS; }
static NOINLINE void sleep_1s(void) { nap(1000000); STAYS; }

static NOINLINE void read_answer(void)
{
	char c;

	if (read(answers[0], &c, 1) != 1)
		abort();
	STAYS;
}

static NOINLINE void take_mutex(void) { pthread_mutex_lock(&mutex); STAYS; }

static NOINLINE void sync_file(void)
{
	int fd = open(synced, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, "x", 1) != 1 || fsync(fd))
		abort();
	close(fd);
	STAYS;
}

/* Two waits in turn, each half a period of 999 Hz long. */
static NOINLINE void half_a(void) { nap(500); STAYS; }
static NOINLINE void half_b(void) { nap(500); STAYS; }

struct part {
	const char *name;
	void (*wait)(void);
	struct waited sum;
	unsigned long all; /* how long the thread waited in all, ns */
};

#define PART(function) { .name = #function, .wait = function }

/* How long this thread, which began at that time, has waited so far, ns. */
static unsigned long waited_since(unsigned long begin)
{
	return now_ns(CLOCK_MONOTONIC) - begin - now_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void measure(struct part *part)
{
	struct waited once = waited(part->wait);

	part->sum.ns += once.ns;
	part->sum.cpu += once.cpu;
}

static int is_over(void) { return us_of(CLOCK_MONOTONIC) >= end_us; }

static void *wait_always(void *of)
{
	struct part *part = of;
	unsigned long begin = now_ns(CLOCK_MONOTONIC);

	while (!is_over())
		measure(part);
	part->all = waited_since(begin);
	return NULL;
}

static void *alternate(void *of)
{
	struct part *parts = of;
	unsigned long begin = now_ns(CLOCK_MONOTONIC);

	while (!is_over()) {
		measure(&parts[0]);
		measure(&parts[1]);
	}
	parts[0].all = parts[1].all = waited_since(begin);
	return NULL;
}

static void *answer(void *unused)
{
	while (!is_over()) {
		nap(7000);
		if (write(answers[1], "x", 1) != 1)
			abort();
	}
	/* The reader's last wait. */
	return write(answers[1], "x", 1) == 1 ? NULL : unused;
}

static void *contend(void *of)
{
	struct part *part = of;
	unsigned long begin = now_ns(CLOCK_MONOTONIC);

	while (!is_over()) {
		measure(part);
		nap(3000);
		pthread_mutex_unlock(&mutex);
	}
	part->all = waited_since(begin);
	return NULL;
}

static NOINLINE void burn(void)
{
	unsigned long x = 1;

	/* Some ten milliseconds. */
	BURN(x, 5000000);
	STAYS;
	asm volatile("" : : "r"(x));
}

/* How long this thread could run and had no CPU so far, ns. */
static unsigned long queued(void)
{
	unsigned long ran, queued;
	FILE *schedstat = fopen("/proc/thread-self/schedstat", "r");

	if (!schedstat || fscanf(schedstat, "%lu %lu", &ran, &queued) != 2)
		abort();
	fclose(schedstat);
	return queued;
}

/* Three such threads share one CPU: each waits for it most of the time. */
static void *share_cpu(void *of)
{
	struct part *part = of;
	unsigned long begin = now_ns(CLOCK_MONOTONIC);
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	sched_setaffinity(0, sizeof(first), &first);
	part->sum.ns = queued();
	while (!is_over())
		burn();
	part->sum.ns = queued() - part->sum.ns;
	part->sum.cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
	part->all = waited_since(begin);
	return NULL;
}

static void *wait_for_ever(void *unused)
{
	char c;

	return read(never[0], &c, 1) == 1 ? NULL : unused;
}

int main(int argc, char **argv)
{
	struct part parts[] = {
		PART(sleep_100us), PART(sleep_1ms), PART(sleep_10ms), PART(sleep_100ms), PART(sleep_1s), PART(read_answer),
		PART(half_a), PART(half_b), PART(take_mutex), PART(take_mutex),
		{ .name = "share_cpu" }, { .name = "share_cpu" }, { .name = "share_cpu" }, PART(sync_file),
	};
	void *(*runs[])(void *) = {
		wait_always, wait_always, wait_always, wait_always, wait_always, wait_always, alternate, NULL, contend,
		contend, share_cpu, share_cpu, share_cpu, wait_always,
	};
	int n = argc > 3 && *argv[3] ? 14 : 13;
	pthread_t threads[16], hung;

	if (argc < 3 || pipe(answers) || pipe(never))
		return 1;
	synced = argv[3];
	ready();
	while (access(argv[1], F_OK))
		usleep(1000);
	/* A program that was started by the profiler gives it time to load the unwind table of libc. */
	for (int i = 0; argc > 4 && i < 3000; i++)
		nap(1000);
	end_us = us_of(CLOCK_MONOTONIC) + strtoul(argv[2], NULL, 10) * 1000;
	pthread_create(&hung, NULL, wait_for_ever, NULL);
	pthread_create(&threads[15], NULL, answer, NULL);
	for (int i = 0; i < n; i++)
		if (runs[i])
			pthread_create(&threads[i], NULL, runs[i], &parts[i]);
	for (int i = 0; i < n; i++)
		if (runs[i])
			pthread_join(threads[i], NULL);
	pthread_join(threads[15], NULL);
	for (int i = 0; i < n; i++)
		printf("%s %lu %lu %lu\n", parts[i].name, parts[i].sum.ns, parts[i].sum.cpu, parts[i].all);
	puts("over");
	fflush(stdout);
	if (argc > 4)
		return 0;
	for (;;)
		pause();
}
