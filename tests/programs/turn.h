/*
 * turn_a MS [N NEXT]: burns MS milliseconds of its own CPU time in work_of_a, then becomes the program NEXT for its turn,
 * N times in all. turn_b is the same, but its work is work_of_b at the same address of its file: without ASLR
 * (setarch -R), names and callers of addresses in one program are wrong in the other.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "target.h"

static __attribute__((noinline)) unsigned long WORK(unsigned long x)
{
	BURN(x, 20000);
	return x;
}

int main(int argc, char **argv)
{
	/* Exec does not reset the clock. */
	unsigned long begin = us_of(CLOCK_PROCESS_CPUTIME_ID), x = 88172645463325252ul;
	unsigned long ms = argc > 1 ? strtoul(argv[1], NULL, 10) : 5;
	unsigned long turns = argc > 3 ? strtoul(argv[2], NULL, 10) : 0;
	char left[24];

	while (x && us_of(CLOCK_PROCESS_CPUTIME_ID) - begin < ms * 1000)
		x = WORK(x);
	if (turns) {
		snprintf(left, sizeof(left), "%lu", turns - 1);
		execl(argv[3], argv[3], argv[1], left, argv[0], NULL);
		return 1;
	}
	return 0;
}
