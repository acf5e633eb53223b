/*
 * The marks of bpf/marks.h in user space: a thread waits in turn in two places, each for half of a cycle. For each
 * length of the cycle, and for many threads, each place must have about half of the marks. Prints the worst deviation,
 * in marks of 1,000, and the greatest variance of a cycle; independent marks have 250. Then the estimates of the number
 * of waits, each for WAITS waits of one length, or for more short ones: the worst one as a part of the number of waits, and
 * how many lengths were tried. Last, in how many of SPLITS waits with two parts the marks of both parts are not those of
 * each part, and how many of these waits lie within one block. At the end the worst estimate of the number of allocations of
 * which the place is known, for the same lengths and for parts of a block.
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
		uint64_t seed = mix(0x1234567, thread * 50000);

		for (uint64_t i = 0; i < each; i++)
			if (marks(seed, i * length, (i + 1) * length, PERIOD))
				sum += stands_for(length, PERIOD);
	}
	return (double)sum / JP_ESTIMATE_UNIT / (each * THREADS) - 1;
}

/*
 * The same with the place of each allocation: `gap` lies between two of them, so that with none allocations as long as a
 * period always have the same place in their blocks.
 */
static double wrong_at(uint64_t length, uint64_t gap)
{
	uint64_t sum = 0, each = WAITS / THREADS;

	if (length < PERIOD / 20)
		each = each * (PERIOD / 20) / length;
	for (uint64_t thread = 1; thread <= THREADS; thread++) {
		uint64_t seed = mix(0x1234567, thread * 50000);

		for (uint64_t i = 0; i < each; i++) {
			uint64_t place = i * (length + gap);

			if (marks(seed, place, place + length, PERIOD))
				sum += stands_for_at(place, length, PERIOD);
		}
	}
	return (double)sum / JP_ESTIMATE_UNIT / (each * THREADS) - 1;
}

static double greater(double value, double than)
{
	value = value < 0 ? -value : value;
	return value > than ? value : than;
}

#define SPLITS 1000000

/* Compares the marks of both parts of a wait with those of each part. Returns how many differ; `within`: in one block. */
static int wrong_splits(int *within)
{
	uint64_t random = 1;
	int wrong = 0;

	for (int i = 0; i < SPLITS; i++) {
		uint64_t numbers[4], from, middle, to;
		__u64 before, after;

		for (int k = 0; k < 4; k++)
			numbers[k] = random = mix(random, k + 1);
		from = numbers[0] % (1000 * PERIOD);
		/* Lengths from 0 to about three periods, short ones more often. */
		middle = from + numbers[1] % (PERIOD >> numbers[3] % 12);
		to = middle + numbers[2] % (2 * PERIOD >> (numbers[3] >> 8) % 12);
		split_marks(numbers[3], from, middle, to, PERIOD, &before, &after);
		wrong += before != marks(numbers[3], from, middle, PERIOD) || after != marks(numbers[3], middle, to, PERIOD);
		*within += from / PERIOD == to / PERIOD;
	}
	return wrong;
}

int main(void)
{
	double furthest = 0, furthest_at = 0;
	int lengths = 0, within = 0;
	double worst = 0, greatest = 0;

	for (uint64_t cycle = 1000000; cycle <= 20000000; cycle += 49999) {
		double squares = 0;

		for (uint64_t thread = 1; thread <= THREADS; thread++) {
			uint64_t seed = mix(0x1234567, thread * 50000), first = 0, all = 0;

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
		furthest = greater(wrong_by(length), furthest);
		furthest_at = greater(wrong_at(length, 0), furthest_at);
		furthest_at = greater(wrong_at(length, PERIOD / 3), furthest_at);
	}
	/* As many bytes as a block, and parts of it. */
	for (uint64_t parts = 1; parts <= 4; parts++)
		furthest_at = greater(wrong_at(PERIOD / parts, 0), furthest_at);
	int wrong = wrong_splits(&within);

	printf("%.0f %.0f %.3f %d %d %d %.3f\n", worst, greatest, furthest, lengths, wrong, within, furthest_at);
	return 0;
}
