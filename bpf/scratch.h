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

/*
 * What a walk may read of the user's memory: 8 reads a frame, of which honest frames need up to 5. One that fails counts
 * as more, since the kernel handles a page fault then. Whoever has laid out memory so that a walk needs more gets a stack
 * without its root, and nobody else waits meanwhile.
 */
#define JP_MAX_READS (8 * JP_MAX_USER_FRAMES)
#define JP_FAILED_READ 32

/* An fp that is not known: no frame pointer, and not the 0 of the root either. */
#define JP_NO_FP 1

/* How many programs can be at work on one CPU at a time. */
#define JP_NESTING 2

/* Where the walk of a user stack is. */
struct walk {
	__u32 slot; /* of the scratch that it is in */
	__u64 ip;
	__u64 sp;
	__u64 fp;
	/* Of the tick; a signal's frame and what lies above it has others. */
	__u64 ax;
	__u64 bx;
	__u64 r13;
	/* Around the last ip: one of the process's ranges, or what lies between two such. */
	__u64 start;
	__u64 end;
	__u64 bias;
	__u32 table;
	__u32 code; /* enum jp_code */
	__u64 blob; /* in a code heap: where the last CodeBlob begins */
	/* The process's ranges: their first page (0: they are not known) and how many they are. */
	__u32 space;
	__u32 ranges;
	/* ip is an instruction that was about to run, not a return address. */
	__u32 leaf;
	/* What `leaf` was for the frame that is being left. */
	__u32 at_leaf;
	/* It is a return address that a frame pointer led to, see JP_WORD_FOLLOWED. */
	__u32 followed;
	/* The frame that was left last is one of a code heap. */
	__u32 generated;
	/* It is one of a file. */
	__u32 from_file;
	/* It came to code that lies in no range of its process, or the process has none. */
	__u32 untold;
	/* The page of uprobes.h: 0 before it was looked for, JP_NO_UPROBES. Then the next of the return addresses, which are so
	 * many at most. */
	__u64 uprobes;
	__u64 uretprobe;
	__s32 uretprobes;
	/* It goes through 32-bit code. */
	__u32 i386;
	/* How much it may still read; nothing if it is not above 0. */
	__s32 reads;
	/* What the hashes of steps begin with, see step_again.h: random, another one each second and for each process. */
	__u64 seed;
	struct jp_rule rule __attribute__((aligned(8))); /* set as one word */
};

/*
 * A part of the user stack, read in one go up to the end of its page: frames lie close together, a read of 16 bytes costs
 * as much as one of some hundred, and what was not touched for a while comes from memory faster in one piece.
 */
#define JP_PART_WORDS 128 /* a power of two */
#define JP_USER_PAGE 4096 /* where pages are larger, parts are smaller than they could be */

struct stack_part {
	__u64 start;
	__u64 words[JP_PART_WORDS];
	__u32 n; /* so many of them are there, from `start` on; 0: none */
};

/* A return address is found among so many words: a call may save all registers. */
#define JP_SLOTS 64

/* Bytes of a segment map that are read in one go. */
#define JP_SEGMENTS 64 /* a power of two */

/* Code after a call that is gone through: a barrier's stub restores up to all registers. */
#define JP_CODE_BYTES 256

struct scratch {
	struct jp_record record;
	__u64 words[JP_MAX_KERNEL_WORDS + JP_MAX_USER_WORDS];
	/* Outside of the record's bytes: */
	__u32 busy; /* a program is at work on it */
	struct regs regs; /* where the walk of the user stack begins */
	__u64 hash;
	__u32 n; /* words so far */
	__u32 end;
	struct walk walk;
	struct stack_part part;
	__u64 slots[JP_SLOTS]; /* of the user's stack */
	__u8 code[JP_CODE_BYTES + 8]; /* what follows an instruction */
	__u8 segments[JP_SEGMENTS];
	__u8 blob[JP_BLOB_BYTES + 8] __attribute__((aligned(8))); /* the block that was read last */
};

/*
 * One per CPU and slot, too large for the BPF stack. A program may be interrupted by one of another event: raw tracepoints'
 * programs are not kept out by `bpf_prog_active`, as those of perf events are among themselves. Each takes a slot that is
 * free and gives it back when it ends. The loader makes as many as the events of a run can need; no more are there.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, JP_NESTING);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline struct scratch *scratch_at(__u32 slot)
{
	return bpf_map_lookup_elem(&scratch, &slot);
}

/*
 * A scratch that nobody uses on this CPU; NULL if there is none. Whoever interrupts between the look and the mark has ended
 * before the mark is made, and has given back what it took: programs run where no other task takes the CPU meanwhile.
 */
static __always_inline struct scratch *take_scratch(void)
{
	#pragma clang loop unroll(full)
	for (__u32 slot = 0; slot < JP_NESTING; slot++) {
		struct scratch *s = scratch_at(slot);

		if (s && !*(volatile __u32 *)&s->busy) {
			*(volatile __u32 *)&s->busy = 1;
			s->walk.slot = slot;
			return s;
		}
	}
	return NULL;
}

static __always_inline void give_back(struct scratch *s)
{
	*(volatile __u32 *)&s->busy = 0;
}

/* Mixes a word into the hash; the seed is random, so collisions cannot be made. */
static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash ^= word;
	hash *= 0x9fb21c651e98df25ULL;
	return hash ^ (hash >> 29);
}

/* Appends a word; false if there is no room (JP_MAX_USER_FRAMES steps always have it). */
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

/* Reads of the user's memory, as long as the walk may. Nonzero if it cannot be read. */
static __always_inline long read_user(struct walk *w, void *to, __u32 size, __u64 from)
{
	long err;

	if (w->reads <= 0)
		return -1;
	err = bpf_probe_read_user(to, size, (void *)from);
	w->reads -= err ? JP_FAILED_READ : 1;
	return err;
}

/*
 * Reads the two words at `at` of the user stack: from the part that is there already, else with what lies above them,
 * since the walk goes up. Nonzero if they cannot be read.
 */
static __always_inline long read_stack(struct walk *w, struct stack_part *part, __u64 frame[2], __u64 at)
{
	__u64 word = (at - part->start) / sizeof(__u64);
	__u32 size = JP_USER_PAGE - (at & (JP_USER_PAGE - 1));

	/* No part has words of two pages. */
	if ((at & 7) || size < 2 * sizeof(__u64))
		return read_user(w, frame, 2 * sizeof(__u64), at);
	if (word + 1 >= part->n) {
		if (size > sizeof(part->words))
			size = sizeof(part->words);
		part->n = 0;
		if (read_user(w, part->words, size, at))
			return -1;
		part->start = at;
		part->n = size / sizeof(__u64);
		word = 0;
	}
	frame[0] = part->words[word & (JP_PART_WORDS - 1)];
	frame[1] = part->words[(word + 1) & (JP_PART_WORDS - 1)];
	return 0;
}

#endif
