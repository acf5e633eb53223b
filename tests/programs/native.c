/* Truth: burn10, burn20, burn30 and burn40 take 10, 20, 30 and 40 %: they do 1, 2, 3 and 4 times the same work. */
#include "target.h"

#define UNIT 50000ul
#define NOINLINE __attribute__((noinline, noclone))

static NOINLINE unsigned long burn10(unsigned long x) { BURN(x, UNIT); return x; }
static NOINLINE unsigned long burn20(unsigned long x) { BURN(x, 2 * UNIT); return x; }
static NOINLINE unsigned long burn30(unsigned long x) { BURN(x, 3 * UNIT); return x; }
static NOINLINE unsigned long burn40(unsigned long x) { BURN(x, 4 * UNIT); return x; }

int main(void)
{
	unsigned long x = 88172645463325252ul;

	ready();
	while (x)
		x = burn40(burn30(burn20(burn10(x))));
	return 0;
}
