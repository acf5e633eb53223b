/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * A step that a walk has gone before: from a frame of compiled Java code to its caller. A thread's outer frames are mostly
 * those of the tick before, and its stack is read anyhow; what the JVM has noted of each frame's code lies far apart, and
 * at 99 Hz it is out of the caches.
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
	__u32 size;  /* of the frame, bytes */
};

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
 * Where a step from this sp is noted: those of one stack one after the other, those of threads apart. Whoever has frames at
 * the same addresses can push another's out; that costs those the way through their JVM's tables.
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

static __always_inline __u64 check_of(__u64 from, __u64 caller, __u32 size)
{
	return mix(mix(from, caller), size);
}

/*
 * Goes where a walk of the same second has gone from the same place, if the same return address stands there. False if
 * none has. That other code came to ip within that second, of which a frame at the same sp has another size, while the
 * word that was the return address stays: that is what is not proven.
 */
static __always_inline bool step_again(struct walk *w, struct stack_part *part)
{
	struct jp_step *step = step_at(w->sp);
	__u64 from = hash_from(w);
	__u64 frame[2];
	__u32 size;

	if (!step || step->from != (__u32)from)
		return false;
	size = *(volatile __u32 *)&step->size;
	if (read_stack(w, part, frame, w->sp + size - sizeof(frame)) || step->check != check_of(from, frame[1], size))
		return false;
	w->sp += size;
	w->fp = frame[0];
	w->ip = frame[1];
	return true;
}

static __always_inline void note_step(struct walk *w, __u32 size, __u64 caller)
{
	struct jp_step *step = step_at(w->sp);
	__u64 from = hash_from(w);

	if (!step)
		return;
	step->from = (__u32)from;
	step->size = size;
	step->check = check_of(from, caller, size);
}

#endif
