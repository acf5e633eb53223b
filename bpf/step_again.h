/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * The step cache: repeats a step of an earlier sample, from a frame of compiled Java code, or of code with an unwind
 * table, to its caller. A thread's outer frames are mostly those of the sample before, and the unwinder reads the stack
 * anyway. A code blob's description and the rows of a table lie far apart; at 99 Hz they are not in the CPU's caches.
 */
#ifndef JP_STEP_AGAIN_H
#define JP_STEP_AGAIN_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "scratch.h"

#define JP_STEPS (1 << 14)
#define JP_STEPS_AGE_SHIFT 30 /* of ns: a step is valid for 1.07 s at most */

struct jp_step {
	__u64 check; /* hash of the whole step: the step is valid if the hash matches */
	__u32 from;  /* hash of where the step begins */
	__u32 way;   /* JP_WAY */
};

/* A packed step: the frame's size in bytes, whether it was computed from fp, and where the caller's fp is. */
#define JP_WAY(size, by_fp, saved) ((__u32)(size) | (__u32)(by_fp) << 31 | (__u32)(saved) << 24)
#define JP_WAY_SIZE(way) ((way) & 0xffffff)
#define JP_WAY_BY_FP(way) ((way) >> 31)
#define JP_WAY_SAVED(way) ((way) >> 24 & 0x7f)
/* `saved` is the distance of the caller's fp below the frame's end, in words, or: */
#define JP_SAVED_same 0 /* fp is unchanged */
#define JP_SAVED_lost 1 /* the caller's fp is unknown */
#define JP_SAVED_next 2 /* the word below the return address */

/*
 * Steps by the address of the frame. Programs on all CPUs read and write without synchronization: `check` rejects a
 * step that two of them mixed, and a step that is a second old. The map is never emptied.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JP_STEPS);
	__type(key, __u32);
	__type(value, struct jp_step);
} steps SEC(".maps");

/*
 * The entry of a step from this sp. Steps of one stack are neighbours, stacks of different threads lie apart. Adjacent
 * frames of 16 bytes share an entry. A process with frames at the same addresses can evict the steps of another one,
 * which then needs the tables again.
 */
static __always_inline struct jp_step *step_at(__u64 sp)
{
	__u32 slot = ((sp >> 5) + (sp >> 20) * 0x9e3779b1) & (JP_STEPS - 1);

	return bpf_map_lookup_elem(&steps, &slot);
}

static __always_inline __u64 hash_from(struct walk *w)
{
	return mix(mix(w->seed, w->ip), w->sp);
}

static __always_inline __u64 check_of(struct walk *w, __u64 from, __u64 caller, __u32 way)
{
	__u64 check = mix(mix(from, caller), way);

	return JP_WAY_BY_FP(way) ? mix(check, w->fp) : check;
}

/*
 * Reads the caller's fp and the return address of the frame that ends at `end` into `frame`. The lower word is read
 * first: the part that this read copies then has the other word. Nonzero on failure.
 */
static __always_inline long read_caller(struct walk *w, struct stack_part *part, __u64 frame[2], __u64 end, __u32 saved)
{
	__u64 fp = saved == JP_SAVED_lost ? JP_NO_FP : w->fp;

	if (saved > JP_SAVED_next) {
		if (read_stack(w, part, frame, end - sizeof(__u64) * saved))
			return -1;
		fp = frame[0];
	}
	if (read_stack(w, part, frame, end - 2 * sizeof(__u64)))
		return -1;
	if (saved != JP_SAVED_next)
		frame[0] = fp;
	return 0;
}

/*
 * Repeats a step of the same second from the same ip and sp, if the return address is the same, and also fp if the step
 * was computed from fp. False if the cache has no such step. Not detected: within one second other code is placed at
 * ip, its frame at the same sp has another size, and the old return address is left on the stack.
 */
static __always_inline bool step_again(struct walk *w, struct stack_part *part)
{
	struct jp_step *step = step_at(w->sp);
	__u64 from = hash_from(w);
	__u64 frame[2];
	__u32 way;

	if (!step || step->from != (__u32)from)
		return false;
	way = *(volatile __u32 *)&step->way;
	if (read_caller(w, part, frame, w->sp + JP_WAY_SIZE(way), JP_WAY_SAVED(way)) ||
	    step->check != check_of(w, from, frame[1], way))
		return false;
	w->sp += JP_WAY_SIZE(way);
	w->fp = frame[0];
	w->ip = frame[1];
	return true;
}

/* Stores the step from the current frame to `caller` in the cache, if its size and `saved` fit into a packed step. */
static __always_inline void note_step(struct walk *w, __u64 size, bool by_fp, __u32 saved, __u64 caller)
{
	struct jp_step *step = step_at(w->sp);
	__u64 from = hash_from(w);
	__u32 way = JP_WAY(size, by_fp, saved);

	if (!step || size != JP_WAY_SIZE(way) || saved != JP_WAY_SAVED(way))
		return;
	step->from = (__u32)from;
	step->way = way;
	step->check = check_of(w, from, caller, way);
}

#endif
