/*
 * A library that works until a given time, in a frame of WORDS words that are all the same: in a frame of another size,
 * this word would be the return address.
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
