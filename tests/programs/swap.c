/*
 * swap ONE OTHER: in turn loads one library, works in it for 300 ms, unloads it, and loads the other one, which gets
 * its place. An unwinder that uses the table of the wrong library finds `never` as the caller.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "target.h"

#define WORDS 512

static __attribute__((noinline, noclone)) unsigned long never(unsigned long x)
{
	BURN(x, 1000);
	return x;
}

int main(int argc, char **argv)
{
	unsigned long word = (unsigned long)never + 8, sum = argc < 3 ? never(1) : 0;
	unsigned long (*enter)(unsigned long, unsigned long), (*before)(unsigned long, unsigned long) = NULL;
	volatile unsigned long words[WORDS];

	for (int i = 0; i < WORDS; i++)
		words[i] = word;
	ready();
	for (int i = 0;; i++) {
		void *library = dlopen(argv[1 + i % 2], RTLD_NOW);

		*(void **)&enter = library ? dlsym(library, "enter") : NULL;
		if (!enter || (before && before != enter)) {
			fprintf(stderr, "%s does not lie where the other did: %s\n", argv[1 + i % 2], dlerror());
			return 1;
		}
		before = enter;
		sum += enter(us_of(CLOCK_MONOTONIC) + 300000, word);
		if (sum == words[sum % WORDS])
			return 2;
		dlclose(library);
	}
}
