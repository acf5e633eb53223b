/* Recursion of a given depth; at its end libc's qsort calls by_value, which each program defines itself. */
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))

static int by_value(const void *a, const void *b);

static NOINLINE unsigned long chain(unsigned long depth)
{
	unsigned long values[8] = { 5, 3, 8, 1, 7, 2, 6, 4 };

	if (!depth)
		qsort(values, 8, sizeof(values[0]), by_value);
	else
		values[0] = chain(depth - 1);
	return values[0] + depth;
}
