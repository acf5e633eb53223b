/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * A step that a walk has gone before: from a frame of compiled Java code, or of code with an unwind table, to its caller. A
 * thread's outer frames are mostly those of the tick before, and its stack is read anyhow; what the JVM has noted of each
 * frame's code, and the rows of a table, lie far apart, and at 99 Hz they are out of the caches.
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
#define JP_STEPS_AGE_SHIFT 30 /* of ns: a step is believed for 1.07 s at most */

struct jp_step {
	__u64 check; /* all that the step is, hashed: it is believed if this fits */
	__u32 from;  /* where it begins, hashed */
	__u32 way;   /* JP_WAY */
};

/* How a step goes: the frame's bytes, whether they were reckoned from fp, and where the caller's fp is. */
#define JP_WAY(size, by_fp, saved) ((__u32)(size) | (__u32)(by_fp) << 31 | (__u32)(saved) << 24)
#define JP_WAY_SIZE(way) ((way) & 0xffffff)
#define JP_WAY_BY_FP(way) ((way) >> 31)
#define JP_WAY_SAVED(way) ((way) >> 24 & 0x7f)
/* The caller's fp is so many words below the frame's end, or: */
#define JP_SAVED_same 0 /* it is as it was */
#define JP_SAVED_lost 1 /* nobody knows */
#define JP_SAVED_next 2 /* next to the return address */

/*
 * By where a frame lies. Written and read by ticks, on all CPUs without order: what two have mixed does not fit. Nobody
 * empties it; what is a second old does not fit either.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JP_STEPS);
	__type(key, __u32);
	__type(value, struct jp_step);
} steps SEC(".maps");

/*
 * Where a step from this sp is noted: those of one stack one after the other, those of threads apart. Of frames of 16 bytes
 * every other is forgotten, and whoever has frames at the same addresses can push another's out; that costs those the way
 * through the tables.
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
 * Reads the caller's fp and the return address of the frame that ends at `end` into `frame`: what lies lower first, then
 * the rest is there already. Nonzero if they cannot be read.
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
 * Goes where a walk of the same second has gone from the same place, if the same return address stands there, and fp is
 * the same where the step was reckoned from that. False if none has. That other code came to ip within that second, of
 * which a frame at the same sp has another size, while the word that was the return address stays: that is what is not
 * proven.
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

/* Notes the step from where the walk is to `caller`, if it is one that can be noted. */
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
