/*
 * Threads and processes that come, go and change while they wait: many short ones, a tid that is used again and again,
 * an exec by a thread that is not the first one, and the end of a process whose threads wait. Begins when the file in the
 * first argument exists, and ends after the milliseconds in the second one. Then it prints a line for each function that
 * waited: its name and the nanoseconds; and `without reused` if this host lets no program choose a tid.
 */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "target.h"
#include "waiting.h"

#define ALIVE 6
#define KILLED 8

/* Shared with all children: nanoseconds of waiting. */
static struct sums {
	unsigned long child, thread, reused, killed;
	unsigned long children;
	/* By how much the wait of killed threads may be longer: they cannot read a clock at their end. */
	unsigned long late;
	/* When each of the threads to be killed began to wait, and when their process began to end. */
	unsigned long began[KILLED], ended;
} *sums;

static unsigned long end_us;

static int is_over(void) { return us_of(CLOCK_MONOTONIC) >= end_us; }

static void add(unsigned long *sum, unsigned long ns) { __atomic_fetch_add(sum, ns, __ATOMIC_RELAXED); }

static NOINLINE void nap_in_child(void) { nap(3000); STAYS; }
static NOINLINE void nap_in_thread(void) { nap(3000); STAYS; }
static NOINLINE void nap_reused(void) { nap(4000); STAYS; }
static NOINLINE void nap_before_exec(void) { nap(400000); STAYS; }
static NOINLINE void nap_after_exec(void) { nap(10000); STAYS; }
static NOINLINE void wait_beside_exec(void) { for (;;) nap(60000000); }
static NOINLINE void wait_for_end(void) { for (;;) pause(); }

static void *short_thread(void *unused)
{
	add(&sums->thread, waited(nap_in_thread).ns);
	return unused;
}

/* Children with a thread, some at a time, as fast as they come. */
static void storm(void)
{
	int alive = 0;

	while (!is_over()) {
		if (alive == ALIVE) {
			wait(NULL);
			alive--;
		}
		if (fork()) {
			alive++;
			continue;
		}
		pthread_t thread;

		add(&sums->children, 1);
		pthread_create(&thread, NULL, short_thread, NULL);
		add(&sums->child, waited(nap_in_child).ns);
		pthread_join(thread, NULL);
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
}

/* One tid for one child after the other. */
static void reuse(void)
{
	pid_t tid = fork();
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (unsigned long)&tid, .set_tid_size = 1 };

	if (!tid)
		_exit(0);
	waitpid(tid, NULL, 0);
	while (!is_over()) {
		pid_t child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

		if (!child) {
			add(&sums->reused, waited(nap_reused).ns);
			_exit(0);
		}
		if (child < 0)
			break;
		waitpid(child, NULL, 0);
	}
}

static void *replace_program(void *began)
{
	char before[32], beside[32], end[32];

	snprintf(before, sizeof(before), "%lu", waited(nap_before_exec).ns);
	snprintf(beside, sizeof(beside), "%lu", now_ns(CLOCK_MONOTONIC) - *(unsigned long *)began);
	snprintf(end, sizeof(end), "%lu", end_us);
	execl("/proc/self/exe", "upheaval", "after", before, beside, end, NULL);
	abort();
}

static void exec_by_thread(void)
{
	pthread_t thread;
	unsigned long began = now_ns(CLOCK_MONOTONIC);

	pthread_create(&thread, NULL, replace_program, &began);
	wait_beside_exec();
}

static int after_exec(char **argv)
{
	unsigned long after = 0;

	end_us = strtoul(argv[4], NULL, 10);
	while (!is_over())
		after += waited(nap_after_exec).ns;
	printf("nap_before_exec %s\nwait_beside_exec %s\nnap_after_exec %lu\n", argv[2], argv[3], after);
	fflush(stdout);
	return 0;
}

static void *be_killed(void *began)
{
	__atomic_store_n((unsigned long *)began, now_ns(CLOCK_MONOTONIC), __ATOMIC_RELAXED);
	wait_for_end();
	return NULL;
}

/* The time since each of the threads began; 0 for those that had not begun at the end. */
static unsigned long since_begin(unsigned long end)
{
	unsigned long sum = 0;

	for (int i = 0; i < KILLED; i++) {
		unsigned long began = __atomic_load_n(&sums->began[i], __ATOMIC_RELAXED);

		sum += began && began < end ? end - began : 0;
	}
	return sum;
}

/* Processes that end while their threads wait. */
static void end_with_threads(void)
{
	while (!is_over()) {
		memset(sums->began, 0, sizeof(sums->began));
		pid_t child = fork();

		if (!child) {
			pthread_t thread;

			for (int i = 0; i < KILLED; i++)
				pthread_create(&thread, NULL, be_killed, &sums->began[i]);
			nap(100000);
			sums->ended = now_ns(CLOCK_MONOTONIC);
			_exit(0);
		}
		waitpid(child, NULL, 0);
		unsigned long killed = since_begin(sums->ended);

		sums->killed += killed;
		sums->late += since_begin(now_ns(CLOCK_MONOTONIC)) - killed;
	}
}

int main(int argc, char **argv)
{
	void (*parts[])(void) = { storm, reuse, exec_by_thread, end_with_threads };

	if (argc > 4 && !strcmp(argv[1], "after"))
		return after_exec(argv);
	if (argc < 3)
		return 1;
	sums = mmap(NULL, sizeof(*sums), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sums == MAP_FAILED)
		return 1;
	ready();
	while (access(argv[1], F_OK))
		usleep(1000);
	end_us = us_of(CLOCK_MONOTONIC) + strtoul(argv[2], NULL, 10) * 1000;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (!fork()) {
			parts[i]();
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
	printf("nap_in_child %lu\nnap_in_thread %lu\nwait_for_end %lu\n", sums->child, sums->thread, sums->killed);
	if (sums->reused)
		printf("nap_reused %lu\n", sums->reused);
	else
		puts("without reused");
	printf("children %lu\nlate %lu\nover\n", sums->children, sums->late);
	fflush(stdout);
	for (;;)
		pause();
}
