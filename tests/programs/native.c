/*
 * Truth: burn10, burn20, burn30 and burn40 take 10, 20, 30 and 40 %: they do 1, 2, 3 and 4 times the same work. No two
 * rounds take equally long: rounds of a millisecond keep step with a clock that ticks each one.
 */
#include "target.h"

#define NOINLINE __attribute__((noinline, noclone))

static NOINLINE unsigned long burn10(unsigned long x, unsigned long n) { BURN(x, n); return x; }
static NOINLINE unsigned long burn20(unsigned long x, unsigned long n) { BURN(x, 2 * n); return x; }
static NOINLINE unsigned long burn30(unsigned long x, unsigned long n) { BURN(x, 3 * n); return x; }
static NOINLINE unsigned long burn40(unsigned long x, unsigned long n) { BURN(x, 4 * n); return x; }

int main(void)
{
	unsigned long x = 88172645463325252ul;

	ready();
	while (x) {
		unsigned long n = 20000 + (x >> 48);

		x = burn40(burn30(burn20(burn10(x, n), n), n), n);
	}
	return 0;
}
