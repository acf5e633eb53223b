/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* Marks: which places of a thread's timeline of waits are sampled. tests/programs/marks.c checks them in user space. */
#ifndef JP_MARKS_H
#define JP_MARKS_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "mix.h"

/*
 * The place of the mark in block number `block` of a thread. Mixed twice: after one round the places of neighbouring
 * blocks differ by nearly the same amount, and a program with a period of its own would always have its marks in the same waits.
 */
static __always_inline __u64 mark_of(__u64 thread, __u64 block, __u64 period)
{
	return ((mix(mix(thread, block), thread) >> 32) * period) >> 32;
}

/* How many marks lie in [from, to) of a thread's timeline. The period is below 2^32 ns. */
static __always_inline __u64 marks(__u64 thread, __u64 from, __u64 to, __u64 period)
{
	__u64 first = from / period, last = to / period;
	__u64 before = mark_of(thread, first, period) >= from - first * period;
	__u64 after = mark_of(thread, last, period) < to - last * period;

	return last - first + before + after - 1;
}

#endif
