/*
 * A library that works until a time, in a frame whose WORDS words are all the same: where a frame of another size would
 * have its return address, there is that word.
 */
#include "target.h"

unsigned long enter(unsigned long until, unsigned long word)
{
	volatile unsigned long frame[WORDS];
	unsigned long x = word | 1;

	for (int i = 0; i < WORDS; i++)
		frame[i] = word;
	while (us_of(CLOCK_MONOTONIC) < until)
		BURN(x, 20000);
	return x + frame[x % WORDS];
}
