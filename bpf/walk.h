/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * The unwinder of user stacks, leaf first. At each frame the pc decides which kind of step leads to the caller; each
 * kind has its own header.
 */
#ifndef JP_WALK_H
#define JP_WALK_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "scratch.h"
#include "step_again.h"
#include "step_epilogue.h"
#include "step_fp.h"
#include "step_hotspot.h"
#include "step_i386.h"
#include "step_table.h"
#include "uprobes.h"

/* Frames of one call of walk_some. */
#define JP_SOME_FRAMES 8

/* Goes to the caller of a frame outside code heaps, by the kind of step that w->rule demands. */
static __always_inline __u32 step(struct walk *w, struct stack_part *part)
{
	__u64 caller = w->caller;
	__u32 end;

	w->caller = 0;
	switch (w->rule.cfa_kind) {
	case JP_CFA_bare:
		if (w->at_leaf && step_bare(w))
			return JP_WALKING;
		/* fall through */
	case JP_CFA_none:
		if (caller) {
			w->sp += JP_RETURN_BYTES;
			w->ip = caller;
			return JP_WALKING;
		}
		/* Callers of JIT code are not checked: code with frame pointers mostly calls code with them. */
		if (w->space && w->code != JP_CODE_file && (w->at_leaf || w->from_file) && step_epilogue(w))
			return JP_WALKING;
		/* Unconfirmed where a table may be missing. JIT code never has a table. */
		w->followed = !w->space || (w->code == JP_CODE_file && !w->table);
		end = step_fp(w, part);
		if (end == JP_WALKING || end == JP_END_root)
			return end;
		return w->followed || w->code == JP_CODE_file ? JP_END_no_table : end;
	case JP_CFA_end:
		return JP_END_root;
	case JP_CFA_signal:
		return step_signal(w);
	case JP_CFA_other:
		return JP_END_no_rule;
	default:
		return step_table(w, part);
	}
}

/*
 * Records a frame of code outside code heaps and goes to its caller. A global function, see find_range.
 * VERIFIER(5.10): separate from walk_some, or its stack would add to that of step_hotspot: a whole chain of calls has
 * 512 bytes. Noticed by: the load itself.
 */
__attribute__((noinline)) int step_code(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct walk *w;
	__u64 tag, ip;
	bool again;

	if (!s)
		return JP_END_no_user;
	w = &s->walk;
	ip = w->ip;
	w->generated = false;
	*(__u64 *)&w->rule = JP_CFA_none;
	again = w->table && !w->at_leaf && step_again(w, &s->part);
	if (w->table && !again)
		find_rule(slot);
	/* A signal handler returns to the start of its trampoline, which does not follow a call: the word is a leaf. */
	tag = w->at_leaf || w->rule.cfa_kind == JP_CFA_signal ? JP_WORD_LEAF : JP_WORD_RETURN;
	if (tag == JP_WORD_RETURN && w->followed)
		tag = JP_WORD_FOLLOWED;
	if (!push(s, tag, ip))
		return JP_END_depth;
	w->followed = false;
	return again ? JP_WALKING : step(w, &s->part);
}

/* Records the current frame and goes to its caller. */
static __always_inline __u32 walk_frame(struct walk *w, __u32 slot)
{
	__u32 unknown_code;

	if (out_of_user(w->ip, JP_USER_MIN))
		return w->ip ? JP_END_bad_pc : JP_END_root;
	w->from_file = w->code == JP_CODE_file;
	unknown_code = w->unknown_code;
	if (w->ranges && (w->ip < w->start || w->ip >= w->end))
		find_range(slot);
	if (w->code == JP_CODE_unknown && in_uprobes(w)) {
		__u32 end = leave_uprobes(slot, unknown_code);

		if (end != JP_WALKING)
			return end;
	}
	w->at_leaf = w->leaf;
	w->leaf = false;
	if (w->i386)
		return step_i386(slot);
	if (w->at_leaf && w->code == JP_CODE_file && !w->table)
		follow_jump(slot);
	if (w->code != JP_CODE_heap)
		return step_code(slot);
	w->followed = false;
	return step_hotspot(slot);
}

/* Prepares the unwinder to start at the registers `r` of a task. */
static __always_inline void begin_walk(struct scratch *s, const struct regs *r, struct task_struct *task, __u32 tgid)
{
	s->walk.ip = r->ip;
	s->walk.sp = r->sp;
	s->walk.fp = r->fp;
	s->walk.ax = r->ax;
	s->walk.bx = r->bx;
	s->walk.r13 = r->r13;
	s->walk.caller = r->caller;
	s->walk.leaf = !r->syscall;
	s->walk.i386 = r->i386;
	if (r->i386) {
		/* The upper halves, which 32-bit code does not see, may hold anything. */
		s->walk.sp = (__u32)r->sp;
		s->walk.fp = (__u32)r->fp;
	}
	s->walk.followed = false;
	s->walk.generated = false;
	s->walk.uprobes = 0;
	s->walk.entry = 0;
	s->walk.reads = JP_MAX_READS;
	s->part.n = 0;
	if (s->record.leaf == JP_LEAF_fault)
		leave_int3(&s->walk);
	find_space(&s->walk, task, tgid);
	/* The tgid is needed too: a fork uses its parent's space for a while, and pages of a space are reused. */
	s->walk.seed = mix(s->walk.seed, (__u64)tgid << 32 | s->walk.space);
}

/*
 * Unwinds some frames. VERIFIER(all): it follows a loop round by round, but a global function only once, so a loop in a
 * loop costs it the sum of their rounds, not the product. Noticed by: the time of a load.
 */
__attribute__((noinline)) int walk_some(__u32 slot)
{
	struct scratch *s = scratch_at(slot);

	if (!s)
		return JP_END_no_user;
	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_SOME_FRAMES; i++) {
		__u32 end = walk_frame(&s->walk, slot);

		/* The reads are used up: a read that failed for this reason is not the stop reason. */
		if (s->walk.reads <= 0)
			return JP_END_depth;
		if (end != JP_WALKING)
			return end;
	}
	return JP_WALKING;
}

/*
 * Unwinds up to the root.
 * VERIFIER(all): global functions, which are verified one by one, do the work of a frame; here is only the loop.
 * Noticed by: the load itself (1 M instructions, or 8,192 branches on a path).
 */
static __always_inline void walk_frames(struct scratch *s)
{
	__u32 end = JP_WALKING;

	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_MAX_USER_FRAMES / JP_SOME_FRAMES && end == JP_WALKING; i++)
		end = walk_some(s->walk.slot);
	if (end == JP_WALKING)
		end = JP_END_depth;
	/* A register that is no frame pointer may be 0, or point to a 0, anywhere. */
	if (end == JP_END_root && s->walk.followed)
		push(s, JP_WORD_FOLLOWED, 0);
	s->end = end;
}

#endif
