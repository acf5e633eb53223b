/*
 * short MS [LIFE]: burns MS milliseconds of its own CPU time in short_lived_work. Then it sleeps until it is at least
 * LIFE milliseconds old.
 */
#include <stdlib.h>
#include <time.h>

#include "target.h"

static unsigned long ms_of(clockid_t clock)
{
	return us_of(clock) / 1000;
}

static __attribute__((noinline)) unsigned long short_lived_work(unsigned long x)
{
	BURN(x, 20000);
	return x;
}

int main(int argc, char **argv)
{
	unsigned long begin = ms_of(CLOCK_MONOTONIC);
	unsigned long x = 88172645463325252ul, ms = argc > 1 ? strtoul(argv[1], NULL, 10) : 5;
	unsigned long life = argc > 2 ? strtoul(argv[2], NULL, 10) : 0, lived;

	while (x && ms_of(CLOCK_PROCESS_CPUTIME_ID) < ms)
		x = short_lived_work(x);
	lived = ms_of(CLOCK_MONOTONIC) - begin;
	if (lived < life) {
		struct timespec rest = { .tv_nsec = (long)(life - lived) * 1000000 };

		nanosleep(&rest, NULL);
	}
	return 0;
}
