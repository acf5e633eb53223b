/*
 * The marks of bpf/marks.h in user space: a thread waits in turn in two places, each for half of a cycle. For each
 * length of the cycle, and for many threads, each place must have about half of the marks. Prints the worst deviation,
 * in marks of 1,000, and the greatest variance of a cycle; independent marks have 250. Then the estimates of the number
 * of waits, each for WAITS waits of one length, or for more short ones: the worst one as a part of the number of waits, and
 * how many lengths were tried.
 */
#include <stdint.h>
#include <stdio.h>
#include "../../bpf/marks.h"

#define BLOCKS 1000
#define THREADS 64
#define PERIOD 10101010ULL

#define WAITS 200000

/* By how much the marks are wrong on how many waits of this length, one after the other, there were; as a part. */
static double wrong_by(uint64_t length)
{
	uint64_t sum = 0, each = WAITS / THREADS;

	/* As many waits with a mark as with a twentieth of the period. */
	if (length < PERIOD / 20)
		each = each * (PERIOD / 20) / length;
	for (uint64_t thread = 1; thread <= THREADS; thread++) {
		uint64_t seed = mix(mix(0x1234567, thread * 1000003), thread);

		for (uint64_t i = 0; i < each; i++)
			if (marks(seed, i * length, (i + 1) * length, PERIOD))
				sum += stands_for(length, PERIOD);
	}
	return (double)sum / JP_ESTIMATE_UNIT / (each * THREADS) - 1;
}

int main(void)
{
	double furthest = 0;
	int lengths = 0;
	double worst = 0, greatest = 0;

	for (uint64_t cycle = 1000000; cycle <= 20000000; cycle += 49999) {
		double squares = 0;

		for (uint64_t thread = 1; thread <= THREADS; thread++) {
			uint64_t seed = mix(mix(0x1234567, thread * 1000003), thread), first = 0, all = 0;

			for (uint64_t at = 0; at < BLOCKS * PERIOD; at += cycle) {
				first += marks(seed, at, at + cycle / 2, PERIOD);
				all += marks(seed, at, at + cycle, PERIOD);
			}
			double off = (double)first - (double)all / 2;

			squares += off * off;
			off = off < 0 ? -off : off;
			worst = off > worst ? off : worst;
		}
		greatest = squares / THREADS > greatest ? squares / THREADS : greatest;
	}
	for (uint64_t length = PERIOD / 1000; length < 5 * PERIOD; length = length * 5 / 4 + 1, lengths++) {
		double off = wrong_by(length);

		off = off < 0 ? -off : off;
		furthest = off > furthest ? off : furthest;
	}
	printf("%.0f %.0f %.3f %d\n", worst, greatest, furthest, lengths);
	return 0;
}
