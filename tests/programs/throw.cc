// Exceptions through frames without frame pointers: main, deep x 20, thrower.
#include <stdexcept>
#include "target.h"

static volatile unsigned long sink;

__attribute__((noinline, noclone)) static void thrower(unsigned long x)
{
	BURN(x, 2000);
	sink = sink + x;
	if (x)
		throw std::runtime_error("no");
}

__attribute__((noinline, noclone)) static unsigned long deep(int depth, unsigned long x)
{
	if (depth)
		return x + deep(depth - 1, x) + sink;
	thrower(x);
	return x;
}

int main()
{
	ready();
	for (unsigned long x = 1;; x++) {
		try {
			sink = sink + deep(19, x);
		} catch (const std::exception &e) {
			sink = sink + (unsigned long)e.what()[0];
		}
	}
}
