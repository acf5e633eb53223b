/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * A step in 32-bit code on a 64-bit kernel: as in step_fp.h and step_table.h, with words of four bytes. Such programs
 * are rare, so the step cache does not keep their steps.
 */
#ifndef JP_STEP_I386_H
#define JP_STEP_I386_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "scratch.h"
#include "step_table.h"

/* From the saved esp of struct sigcontext_32 to its eip (arch/x86/include/uapi/asm/sigcontext.h). */
#define JP_I386_SAVED_IP 28

/* The address `n` bytes from `base`; addresses wrap at 4 GiB. */
static __always_inline __u64 i386_at(__u64 base, __s32 n)
{
	return (__u32)(base + n);
}

/* Each step moves up the stack by at least one word, the return address. */
static __always_inline bool is_i386_caller(struct walk *w, __u64 sp)
{
	return !(sp & 3) && sp >= w->sp + sizeof(__u32);
}

static __always_inline __u32 step_i386_fp(struct walk *w)
{
	__u32 frame[2];

	if (!w->fp)
		return JP_END_root;
	if ((w->fp & 3) || w->fp < w->sp)
		return JP_END_not_up;
	if (read_user(w, frame, sizeof(frame), w->fp))
		return JP_END_bad_read;
	w->sp = w->fp + sizeof(frame);
	w->fp = frame[0];
	w->ip = frame[1];
	return JP_WALKING;
}

static __always_inline __u32 step_i386_signal(struct walk *w)
{
	__u64 at = i386_at(w->sp, w->rule.cfa);
	__u32 fp, sp, ip;

	if (read_user(w, &fp, sizeof(fp), i386_at(w->sp, w->rule.fp_at)) || read_user(w, &sp, sizeof(sp), at) ||
	    read_user(w, &ip, sizeof(ip), at + JP_I386_SAVED_IP))
		return JP_END_bad_read;
	w->sp = sp;
	w->fp = fp;
	w->ip = ip;
	w->leaf = true;
	return JP_WALKING;
}

static __always_inline __u32 step_i386_table(struct walk *w)
{
	__u32 fp = w->fp, cfa, ip;
	__u64 at;

	switch (w->rule.cfa_kind) {
	case JP_CFA_plt:
		cfa = w->sp + w->rule.cfa + ((w->ip & 15) >= w->rule.fp_at ? sizeof(__u32) : 0);
		break;
	case JP_CFA_sp:
		cfa = w->sp + w->rule.cfa;
		break;
	case JP_CFA_at_sp:
	case JP_CFA_at_fp:
		at = i386_at(w->rule.cfa_kind == JP_CFA_at_sp ? w->sp : w->fp, (__s16)w->rule.cfa);
		if (read_user(w, &cfa, sizeof(cfa), at))
			return JP_END_bad_read;
		cfa += w->rule.cfa >> 16;
		break;
	default:
		cfa = w->fp + w->rule.cfa;
	}
	if (!is_i386_caller(w, cfa))
		return JP_END_not_up;
	if (w->rule.fp_kind == JP_FP_lost)
		fp = JP_NO_FP;
	else if (w->rule.fp_kind != JP_FP_same &&
		 read_user(w, &fp, sizeof(fp), i386_at(w->rule.fp_kind == JP_FP_at_cfa ? cfa : fp, w->rule.fp_at)))
		return JP_END_bad_read;
	if (read_user(w, &ip, sizeof(ip), cfa - sizeof(ip)))
		return JP_END_bad_read;
	w->sp = cfa;
	w->fp = fp;
	w->ip = ip;
	return JP_WALKING;
}

/* Leaves a leaf without a frame; false if the top of the stack is not a return address. */
static __always_inline bool step_i386_bare(struct walk *w)
{
	__u32 top;

	if (read_user(w, &top, sizeof(top), w->sp) || !follows_call(w, top))
		return false;
	w->sp += sizeof(top);
	w->ip = top;
	return true;
}

/* Records a frame of 32-bit code and goes to its caller. A global function, see find_range. */
__attribute__((noinline)) int step_i386(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct walk *w;
	__u32 end, tag;

	if (!s)
		return JP_END_no_user;
	w = &s->walk;
	*(__u64 *)&w->rule = JP_CFA_none;
	if (w->table)
		find_rule(slot);
	tag = w->at_leaf || w->rule.cfa_kind == JP_CFA_signal ? JP_WORD_LEAF : JP_WORD_RETURN;
	if (tag == JP_WORD_RETURN && w->followed)
		tag = JP_WORD_FOLLOWED;
	if (!push(s, tag, w->ip))
		return JP_END_depth;
	w->followed = false;
	switch (w->rule.cfa_kind) {
	case JP_CFA_bare:
		if (w->at_leaf && step_i386_bare(w))
			return JP_WALKING;
		/* fall through */
	case JP_CFA_none:
		w->followed = !w->space || (w->code == JP_CODE_file && !w->table);
		end = step_i386_fp(w);
		if (end == JP_WALKING || end == JP_END_root)
			return end;
		return w->followed || w->code == JP_CODE_file ? JP_END_no_table : end;
	case JP_CFA_end:
		return JP_END_root;
	case JP_CFA_signal:
		return step_i386_signal(w);
	case JP_CFA_other:
		return JP_END_no_rule;
	default:
		return step_i386_table(w);
	}
}

#endif
