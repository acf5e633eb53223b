/* Burns CPU time in `work`, all of it in `rotate`, which is inlined into it. */
#include "target.h"

static inline __attribute__((always_inline)) unsigned long rotate(unsigned long x, unsigned long n)
{
	BURN(x, n);
	return x;
}

static __attribute__((noinline)) unsigned long work(unsigned long x, unsigned long n)
{
	return rotate(x, n) + 1;
}

int main(void)
{
	unsigned long x = 88172645463325252ul;

	ready();
	while (x)
		x = work(x, 20000 + (x >> 48));
	return 0;
}
