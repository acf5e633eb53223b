/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* Unwinding by frame pointers: [fp] is the caller's fp, [fp + 8] the return address, on x86-64 and arm64 alike. */
#ifndef JP_WALK_FP_H
#define JP_WALK_FP_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "regs.h"

/* A stack under construction: one per CPU, too large for the BPF stack. */
struct scratch {
	struct jp_record record;
	__u64 words[JP_MAX_KERNEL_WORDS + JP_MAX_USER_WORDS];
	/* Outside of the record's bytes: */
	__u64 hash;
	__u32 n; /* words so far */
	__u32 end;
};

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

/*
 * Walks from `r` to the root. The number of words lives in the map value, not in a register:
 * VERIFIER(5.10): a count that is tracked exactly through the loop makes every iteration a state of its own, and the
 * code behind the loop is verified once for each. Noticed by: the load itself (1 M instructions).
 * VERIFIER(all): at most 8,192 branches may wait on a path, so a step may have no more than 7; hence the arithmetic
 * instead of conditions, and that why a step failed is asked behind the loop. Noticed by: the load itself.
 */
static __always_inline void walk_fp(struct scratch *s, const struct regs *r)
{
	__u64 fp = r->fp;
	__u64 below = r->sp;
	__u64 frame[2] = {};
	__u32 end = JP_END_depth;

	if (out_of_user(r->ip, JP_USER_MIN)) {
		s->end = JP_END_bad_pc;
		return;
	}
	push(s, r->syscall ? JP_WORD_RETURN : JP_WORD_LEAF, r->ip);

	#pragma clang loop unroll(disable)
	for (int i = 1; i < JP_MAX_USER_WORDS; i++) {
		if ((fp & 7) | out_of_user(fp, below)) {
			end = fp ? JP_END_not_up : JP_END_root;
			break;
		}
		if (bpf_probe_read_user(frame, sizeof(frame), (void *)fp)) {
			end = JP_END_bad_read;
			break;
		}
		if (out_of_user(frame[1], JP_USER_MIN)) {
			end = frame[1] ? JP_END_bad_pc : JP_END_root;
			break;
		}
		if (!push(s, JP_WORD_RETURN, frame[1]))
			break;
		below = fp + 16;
		fp = frame[0];
	}
	s->end = end;
}

#endif
