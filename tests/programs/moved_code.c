/*
 * Code that can be moved: three functions that call each other, each in a page of its own, from `outer` up to `moved_end`.
 * Compiled into `moved.c`, and as a library for it.
 */
#include "target.h"

#define MOVED __attribute__((noinline, noclone, no_reorder, aligned(4096), section("moved")))

MOVED unsigned long outer(unsigned long x);
MOVED unsigned long middle(unsigned long x);
MOVED unsigned long work(unsigned long x);
MOVED void moved_end(void);

MOVED unsigned long outer(unsigned long x)
{
	return middle(x + 1) + 1;
}

MOVED unsigned long middle(unsigned long x)
{
	return work(x ^ 3) + 2;
}

MOVED unsigned long work(unsigned long x)
{
	BURN(x, 20000);
	return x;
}

MOVED void moved_end(void)
{
}
