/* Lives as long as it takes to burn its first argument, in milliseconds of its own CPU time, in short_lived_work. */
#include <stdlib.h>
#include <time.h>

#include "target.h"

static unsigned long used_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (unsigned long)t.tv_sec * 1000 + (unsigned long)t.tv_nsec / 1000000;
}

static __attribute__((noinline)) unsigned long short_lived_work(unsigned long x)
{
	BURN(x, 20000);
	return x;
}

int main(int argc, char **argv)
{
	unsigned long x = 88172645463325252ul, ms = argc > 1 ? strtoul(argv[1], NULL, 10) : 5;

	while (x && used_ms() < ms)
		x = short_lived_work(x);
	return 0;
}
