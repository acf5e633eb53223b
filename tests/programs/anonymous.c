/*
 * Truth: one part of the time in `burn`, three parts in a copy of it, in memory that no file and no map has a name for.
 */
#include <string.h>
#include <sys/mman.h>

#include "target.h"

/* More than the function's length, and less than the length of the program's code. */
#define LENGTH 256

typedef unsigned long work(unsigned long x, unsigned long rounds);

static __attribute__((noinline, noclone)) unsigned long burn(unsigned long x, unsigned long rounds)
{
	BURN(x, rounds);
	return x;
}

int main(void)
{
	work *volatile named = burn;
	char *copy = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long x = 88172645463325252ul;

	if (copy == MAP_FAILED)
		return 1;
	memcpy(copy, (const void *)named, LENGTH);
	if (mprotect(copy, LENGTH, PROT_READ | PROT_EXEC))
		return 1;
	ready();
	while (x)
		x = ((work *)copy)(named(x, 20000), 60000 + (x >> 48));
	return 0;
}
