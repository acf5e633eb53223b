/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* Marks: which places of a timeline are sampled: of a thread's waits, or of the bytes allocated on a CPU. tests/programs/marks.c checks them in user space. */
#ifndef JP_MARKS_H
#define JP_MARKS_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "mix.h"

/*
 * The place of the mark in block number `block` of a thread. Mixed twice: after one round the places of neighbouring
 * blocks differ by nearly the same amount, and a program with a period of its own would always have its marks in the same waits.
 */
static __always_inline __u64 mark_of(__u64 thread, __u64 block, __u64 period)
{
	return ((mix(mix(thread, block), thread) >> 32) * period) >> 32;
}

/* How many marks lie in [from, to) of the timeline with the seed `thread`. The period is below 2^32. */
static __always_inline __u64 marks(__u64 thread, __u64 from, __u64 to, __u64 period)
{
	__u64 first = from / period, last = to / period;
	__u64 before = mark_of(thread, first, period) >= from - first * period;
	__u64 after = mark_of(thread, last, period) < to - last * period;

	return last - first + before + after - 1;
}

/*
 * How many marks lie in [from, middle), and how many in [middle, to). Nearly all waits lie within one block: they take one
 * division and one hash.
 */
static __always_inline void split_marks(__u64 thread, __u64 from, __u64 middle, __u64 to, __u64 period, __u64 *before,
					__u64 *after)
{
	__u64 block = from / period, start = block * period, mark;

	if (to - start >= period) {
		*before = marks(thread, from, middle, period);
		*after = marks(thread, middle, to, period);
		return;
	}
	mark = start + mark_of(thread, block, period);
	*before = mark >= from && mark < middle;
	*after = mark >= middle && mark < to;
}

#define JP_LENGTH_SHIFT 24

/*
 * How many waits or allocations of this length a sampled one stands for: 1 / the probability that one of this length has a
 * mark, in units of 1 / JP_ESTIMATE_UNIT. With u = length / period, and marks that are spread evenly over their blocks, the
 * probability is u - u^3 / 6 up to one period, 1 - (2 - u)^3 / 6 up to two, and then 1. The period is below 2^32.
 */
static __always_inline __u64 stands_for(__u64 length, __u64 period)
{
	const __u64 one = 1 << JP_LENGTH_SHIFT;
	__u64 u, rest, probability;

	if (length >= 2 * period)
		return JP_ESTIMATE_UNIT;
	/* u^3 / 6 is too small to matter, and u would have few digits. */
	if (length < period >> 8)
		return JP_ESTIMATE_UNIT * period / (length ? length : 1);
	u = (length << JP_LENGTH_SHIFT) / period;
	rest = u <= one ? u : 2 * one - u;
	rest = ((rest * rest >> JP_LENGTH_SHIFT) * rest >> JP_LENGTH_SHIFT) / 6;
	probability = u <= one ? u - rest : one - rest;
	return (JP_ESTIMATE_UNIT << JP_LENGTH_SHIFT) / probability;
}

/*
 * The same for an allocation of which the place on the timeline is known. Buffers as large as the period can have the same
 * place in their blocks again and again, so that the mean of all places would be wrong. One that covers no whole block has
 * no mark with the probability `before` / period in its first block, and `after` / period in its last one.
 */
static __always_inline __u64 stands_for_at(__u64 place, __u64 length, __u64 period)
{
	const __u64 one = 1 << JP_LENGTH_SHIFT;
	__u64 before = place % period, after = 2 * period - before - length, none;

	/* Within one block. Shorter ones are rarely in two, and there the difference is small. */
	if (before + length <= period || length < period >> 8)
		return JP_ESTIMATE_UNIT * period / (length ? length : 1);
	if (before + length >= 2 * period)
		return JP_ESTIMATE_UNIT;
	none = ((before << JP_LENGTH_SHIFT) / period) * ((after << JP_LENGTH_SHIFT) / period) >> JP_LENGTH_SHIFT;
	return (JP_ESTIMATE_UNIT << JP_LENGTH_SHIFT) / (one - none);
}

#endif
