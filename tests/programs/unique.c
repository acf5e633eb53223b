/*
 * An endless stream of stacks that all differ: the path through sixteen functions spells a counter. This program is the
 * hostile neighbour in tests: it must neither fill the profiler's maps nor cost other processes their samples.
 */
#include "target.h"

static unsigned long count;
static unsigned long x = 88172645463325252ul;

static void next(unsigned long path, int depth);

#define STEP(n)                                                                     \
	static __attribute__((noinline, noclone)) void step##n(unsigned long path, int depth) \
	{                                                                           \
		next(path >> 4, depth - 1);                                         \
		__asm__ volatile("" ::: "memory"); /* no tail call */               \
	}
STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) STEP(13) STEP(14) STEP(15)

static void next(unsigned long path, int depth)
{
	static void (*const steps[16])(unsigned long, int) = {
		step0, step1, step2, step3, step4, step5, step6, step7,
		step8, step9, step10, step11, step12, step13, step14, step15,
	};

	if (depth)
		steps[path & 15](path, depth);
	else
		BURN(x, 2000);
	__asm__ volatile("" ::: "memory");
}

int main(void)
{
	ready();
	while (x)
		next(count++, 16);
	return 0;
}
