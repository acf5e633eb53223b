/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* A stack under construction, and how far its walk has come. */
#ifndef JP_SCRATCH_H
#define JP_SCRATCH_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "regs.h"

/* Where the walk of a user stack is. */
struct walk {
	__u64 ip;
	__u64 sp;
	__u64 fp;
	/* Around the last ip: a range of a file's code (then with its table, or 0), or what lies between two such. */
	__u64 start;
	__u64 end;
	__u64 bias;
	__u32 table;
	__u32 file;
	/* The process's ranges: their first page (0: they are not known) and how many they are. */
	__u32 space;
	__u32 ranges;
	/* ip is an instruction that was about to run, not a return address. */
	__u32 leaf;
	struct jp_rule rule __attribute__((aligned(8))); /* set as one word */
};

struct scratch {
	struct jp_record record;
	__u64 words[JP_MAX_KERNEL_WORDS + JP_MAX_USER_WORDS];
	/* Outside of the record's bytes: */
	__u64 hash;
	__u32 n; /* words so far */
	__u32 end;
	struct walk walk;
};

/*
 * One per CPU, too large for the BPF stack. Programs do not nest: the kernel runs one BPF program of perf events per
 * CPU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline struct scratch *this_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

/* Mixes a word into the hash; the seed is random, so collisions cannot be made. */
static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash ^= word;
	hash *= 0x9fb21c651e98df25ULL;
	return hash ^ (hash >> 29);
}

/* Appends a word; false if there is no room (JP_MAX_USER_WORDS steps always have it). */
static __always_inline bool push(struct scratch *s, __u64 tag, __u64 pc)
{
	__u32 n = s->n;
	__u64 word = tag << JP_WORD_TAG_SHIFT | pc;

	if (n >= JP_MAX_KERNEL_WORDS + JP_MAX_USER_WORDS)
		return false;
	s->words[n] = word;
	s->n = n + 1;
	s->hash = mix(s->hash, word);
	return true;
}

/* Zero if `address` is one of user space, or within JP_USER_BITS bits above `low`. */
static __always_inline __u64 out_of_user(__u64 address, __u64 low)
{
	return (address - low) >> JP_USER_BITS;
}

#endif
