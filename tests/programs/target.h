/* Common to all profiled C programs: they end with their parent, and print `ready` when they work. */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

static inline void ready(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	puts("ready");
	fflush(stdout);
}

static inline unsigned long us_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (unsigned long)t.tv_sec * 1000000 + (unsigned long)t.tv_nsec / 1000;
}

/* The unit of work: a chain of dependent operations that no compiler can shorten. */
#define BURN(x, rounds)                                  \
	for (unsigned long burn_i = 0; burn_i < (rounds); burn_i++) { \
		(x) ^= (x) << 13;                        \
		(x) ^= (x) >> 7;                         \
		(x) ^= (x) << 17;                        \
	}
