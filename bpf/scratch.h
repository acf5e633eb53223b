/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* The scratch: the stack that is being recorded, and the state of the unwinder. */
#ifndef JP_SCRATCH_H
#define JP_SCRATCH_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "mix.h"
#include "regs.h"

/*
 * The limit on reads of user memory for one sample: 8 reads a frame; ordinary frames need up to 5. A failed read counts
 * as JP_FAILED_READ, because the kernel handles a page fault for it. A tenant that lays out its memory so that
 * unwinding needs more gets a stack without its root, and does not delay anything else.
 */
#define JP_MAX_READS (8 * JP_MAX_USER_FRAMES)
#define JP_FAILED_READ 32

/* An unknown fp: not a valid frame pointer, and not the 0 that marks the root. */
#define JP_NO_FP 1

/*
 * How many programs can run on one CPU at a time and take a sample: the iterator of waits, one at a switch or a probe,
 * one at a probe in an interrupt, one at a tick. Probes of functions can be more: the sample is then lost as nested.
 */
#define JP_NESTING 4

/* The state of the unwinder in a user stack. */
struct walk {
	__u32 slot; /* of the scratch that has this struct */
	__u64 ip;
	__u64 sp;
	__u64 fp;
	/* The registers at the sample; 0 above a signal frame. */
	__u64 ax;
	__u64 bx;
	__u64 r13;
	__u64 caller; /* of a leaf at a function's first instruction: the return address; else 0 */
	/* Around the last ip: a range of the process, or the gap between two ranges. */
	__u64 start;
	__u64 end;
	__u64 bias;
	__u32 table;
	__u32 code; /* enum jp_code */
	__u64 blob; /* in a code heap: where the last CodeBlob begins */
	/* The frame of the stub that called the innermost Java code (0: none seen), and the page of its struct jp_vm. */
	__u64 entry;
	__u32 entry_vm;
	/* The address space of the process: its first page (0: not loaded), and the number of its ranges. */
	__u32 space;
	__u32 ranges;
	/* ip is an instruction that was about to run, not a return address. */
	__u32 leaf;
	/* `leaf` of the frame that the current step leaves. */
	__u32 at_leaf;
	/* ip is a return address that the unwinder found by frame pointer, see JP_WORD_FOLLOWED. */
	__u32 followed;
	/* The previous frame is in a code heap. */
	__u32 generated;
	/* The previous frame is in a file. */
	__u32 from_file;
	/* An ip was outside all loaded ranges of the process, or the process has no loaded ranges. */
	__u32 unknown_code;
	/* The page of uprobes.h: 0 until the first search, or JP_NO_UPROBES. Then the next entry in the list of
	 * return addresses, and how many entries may still be read. */
	__u64 uprobes;
	__u64 uretprobe;
	__s32 uretprobes;
	/* The stack is one of 32-bit code. */
	__u32 i386;
	/* How many reads are left; 0 or less: none. */
	__s32 reads;
	/* Seed of the step cache's hashes, see step_again.h: random, and different each second and for each process. */
	__u64 seed;
	struct jp_rule rule __attribute__((aligned(8))); /* written as one word */
};

/*
 * A part of the user stack, which one read copies, up to the end of its page. Frames lie close together, a read of 16
 * bytes costs as much as a read of some hundred, and memory outside the CPU's caches comes faster in one piece.
 */
#define JP_PART_WORDS 128 /* a power of two */
#define JP_USER_PAGE 4096 /* where pages are larger, parts are smaller than possible */

struct stack_part {
	__u64 start;
	__u64 words[JP_PART_WORDS];
	__u32 n; /* how many words are valid, from address `start` on */
};

/* How many words find_return searches for a return address: a call may save all registers. */
#define JP_SLOTS 64

/* Bytes of a segment map in one read. */
#define JP_SEGMENTS 64 /* a power of two */

/* How much code after a call saved_registers searches: a barrier's stub may restore all registers. */
#define JP_CODE_BYTES 256

#define JP_MAX_WORDS (JP_MAX_KERNEL_WORDS + JP_MAX_USER_WORDS + JP_CONTEXT_WORDS)

struct scratch {
	struct jp_record record;
	__u64 words[JP_MAX_WORDS];
	/* Not sent with the record: */
	__u32 busy; /* how many programs use this scratch, or look whether they can */
	struct jp_value value; /* what this sample adds to the stack's count */
	struct regs regs; /* where unwinding of the user stack begins */
	__u64 hash;
	__u32 n; /* words so far */
	__u32 end;
	struct walk walk;
	struct stack_part part;
	__u64 slots[JP_SLOTS]; /* words of the user stack */
	__u8 code[JP_CODE_BYTES + 8]; /* code that follows an instruction */
	__u8 segments[JP_SEGMENTS];
	__u8 blob[JP_BLOB_BYTES + 8] __attribute__((aligned(8))); /* the block that was read last */
	struct {
		__u64 ids[JP_CONTEXT_WORDS];
		__u64 valid; /* the lowest byte */
	} span; /* the beginning of a thread's trace context */
};

/*
 * One scratch for each CPU and slot, because it is too large for the BPF stack. A program of another event may
 * interrupt a program: `bpf_prog_active` keeps programs of perf events apart, but not those of raw tracepoints and (from
 * 6.0 on) of uprobes, between which another task can even take the CPU. Each program takes a free slot and gives it
 * back at its end. The loader creates as many slots as the events of a run need.
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
 * A free scratch of this CPU; NULL if all are in use. Each program adds itself before it looks, so that of two programs
 * at most one finds itself alone. An atomic exchange would be simpler, but kernels before 5.12 have none.
 */
static __always_inline struct scratch *take_scratch(void)
{
	#pragma clang loop unroll(full)
	for (__u32 slot = 0; slot < JP_NESTING; slot++) {
		struct scratch *s = scratch_at(slot);

		if (!s)
			continue;
		__sync_fetch_and_add(&s->busy, 1);
		if (*(volatile __u32 *)&s->busy == 1) {
			s->walk.slot = slot;
			return s;
		}
		__sync_fetch_and_add(&s->busy, -1);
	}
	return NULL;
}

static __always_inline void give_back(struct scratch *s)
{
	__sync_fetch_and_add(&s->busy, -1);
}

/*
 * Appends a word; false if there is no room. There is always room for the words of JP_MAX_USER_FRAMES steps, and for those of
 * a span.
 */
static __always_inline bool push_word(struct scratch *s, __u64 word)
{
	__u32 n = s->n;

	if (n >= JP_MAX_WORDS)
		return false;
	s->words[n] = word;
	s->n = n + 1;
	s->hash = mix(s->hash, word);
	return true;
}

/* Appends a user word, see JP_WORD_TAG_SHIFT. */
static __always_inline bool push(struct scratch *s, __u64 tag, __u64 pc)
{
	return push_word(s, tag << JP_WORD_TAG_SHIFT | pc);
}

/* Zero if `address` is a user address at or above `low`: less than 2^JP_USER_BITS bytes above it. */
static __always_inline __u64 out_of_user(__u64 address, __u64 low)
{
	return (address - low) >> JP_USER_BITS;
}

/* Reads user memory within the limit on reads; nonzero on failure. */
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
 * Reads the two words at `at` of the user stack: from the part that was read last, or with a new part that begins at
 * `at`, because the unwinder moves up the stack. Nonzero on failure.
 */
static __always_inline long read_stack(struct walk *w, struct stack_part *part, __u64 frame[2], __u64 at)
{
	__u64 word = (at - part->start) / sizeof(__u64);
	__u32 size = JP_USER_PAGE - (at & (JP_USER_PAGE - 1));

	/* A part lies within one page. */
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
