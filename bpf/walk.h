/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * The walk of a user stack, leaf first. At each frame the pc decides how to go to the caller; each way of stepping is a
 * header of its own.
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

/* Chooses the way and goes it. */
static __always_inline __u32 step(struct walk *w, struct stack_part *part)
{
	__u32 end;

	switch (w->rule.cfa_kind) {
	case JP_CFA_bare:
		if (w->at_leaf && step_bare(w))
			return JP_WALKING;
		/* fall through */
	case JP_CFA_none:
		/* Code that keeps frame pointers is not looked at: what it calls is mostly its like. */
		if (w->space && w->code != JP_CODE_file && (w->at_leaf || w->from_file) && step_epilogue(w))
			return JP_WALKING;
		/* JIT code has frame pointers or not; a file's code would have been walked by its table, if that has it. */
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
 * From a frame of code that lies in no code heap: notes it and goes to its caller. A global function, see find_range.
 * VERIFIER(5.10): apart from walk_frame, or its stack adds to that of step_hotspot: 512 bytes are for a whole chain of
 * calls. Noticed by: the load itself.
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
	/* The kernel lets a signal handler return to the beginning of its trampoline, which has called nobody. */
	tag = w->at_leaf || w->rule.cfa_kind == JP_CFA_signal ? JP_WORD_LEAF : JP_WORD_RETURN;
	if (tag == JP_WORD_RETURN && w->followed)
		tag = JP_WORD_FOLLOWED;
	if (!push(s, tag, ip))
		return JP_END_depth;
	w->followed = false;
	return again ? JP_WALKING : step(w, &s->part);
}

/* Notes the frame at which the walk is and goes to its caller. A global function, see find_range. */
__attribute__((noinline)) int walk_frame(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct walk *w;
	__u32 untold;

	if (!s)
		return JP_END_no_user;
	w = &s->walk;
	if (out_of_user(w->ip, JP_USER_MIN))
		return w->ip ? JP_END_bad_pc : JP_END_root;
	w->from_file = w->code == JP_CODE_file;
	untold = w->untold;
	if (w->ranges && (w->ip < w->start || w->ip >= w->end))
		find_range(slot);
	if (w->code == JP_CODE_unknown && in_uprobes(w)) {
		__u32 end = leave_uprobes(slot, untold);

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

/* Where the walk of a task's stack begins: at `r`. */
static __always_inline void begin_walk(struct scratch *s, const struct regs *r, struct task_struct *task, __u32 tgid)
{
	s->walk.ip = r->ip;
	s->walk.sp = r->sp;
	s->walk.fp = r->fp;
	s->walk.ax = r->ax;
	s->walk.bx = r->bx;
	s->walk.r13 = r->r13;
	s->walk.leaf = !r->syscall;
	s->walk.i386 = r->i386;
	if (r->i386) {
		/* Nobody clears the halves that 32-bit code does not see. */
		s->walk.sp = (__u32)r->sp;
		s->walk.fp = (__u32)r->fp;
	}
	s->walk.followed = false;
	s->walk.generated = false;
	s->walk.uprobes = 0;
	s->walk.reads = JP_MAX_READS;
	s->part.n = 0;
	if (s->record.leaf == JP_LEAF_fault)
		leave_int3(&s->walk);
	find_space(&s->walk, task, tgid);
	/* A fork has its parent's space for a while, and a space may be another process's soon. */
	s->walk.seed = mix(s->walk.seed, (__u64)tgid << 32 | s->walk.space);
}

/*
 * Walks to the root.
 * VERIFIER(all): what happens at a frame is in global functions, which are verified by themselves; here only the loop
 * is. Noticed by: the load itself (1 M instructions, or 8,192 branches on a path).
 */
static __always_inline void walk_frames(struct scratch *s)
{
	__u32 end = JP_END_depth;

	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_MAX_USER_FRAMES; i++) {
		__u32 ended = walk_frame(s->walk.slot);

		/* Spent: what is not read any more says nothing of how the stack ends. */
		if (s->walk.reads <= 0)
			break;
		if (ended != JP_WALKING) {
			end = ended;
			break;
		}
	}
	s->end = end;
}

#endif
