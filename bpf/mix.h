/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* The hash of this program. */
#ifndef JP_MIX_H
#define JP_MIX_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* Mixes a word into the hash. The seed is random, so that a tenant cannot construct collisions. */
static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash ^= word;
	hash *= 0x9fb21c651e98df25ULL;
	return hash ^ (hash >> 29);
}

#endif
