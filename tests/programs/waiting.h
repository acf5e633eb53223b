/* Functions that wait, and measure how long. */
#ifndef WAITING_H
#define WAITING_H

#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))
/* Keeps a call from being the function's last instruction: the caller stays on the stack. */
#define STAYS asm volatile("" ::: "memory")

static inline unsigned long now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (unsigned long)t.tv_sec * 1000000000 + (unsigned long)t.tv_nsec;
}

static inline void nap(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

struct waited {
	unsigned long ns;  /* without CPU time */
	unsigned long cpu; /* CPU time, ns */
};

/*
 * How long a function does not run: by the clock, without the CPU's. A switch from one thread to another is CPU time by
 * the kernel's clock, and waiting time in a profile. So a profile of a function that does nothing but wait has between ns
 * and ns + cpu. CPU time is read outside of the other clock's two readings: it is a system call, at whose end a thread may
 * lose its CPU, outside of the function.
 */
static inline struct waited waited(void (*wait)(void))
{
	unsigned long cpu = now_ns(CLOCK_THREAD_CPUTIME_ID), wall = now_ns(CLOCK_MONOTONIC);

	wait();
	wall = now_ns(CLOCK_MONOTONIC) - wall;
	cpu = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	return (struct waited){ wall - cpu, cpu };
}

#endif
