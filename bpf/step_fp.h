/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* A step by frame pointer: [fp] is the caller's fp, [fp + 8] the return address, on both x86-64 and arm64. */
#ifndef JP_STEP_FP_H
#define JP_STEP_FP_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "scratch.h"

/* Goes to the caller: JP_WALKING, or the stop reason. */
static __always_inline __u32 step_fp(struct walk *w, struct stack_part *part)
{
	__u64 fp = w->fp;
	__u64 frame[2];

	if ((fp & 7) | out_of_user(fp, w->sp))
		return fp ? JP_END_not_up : JP_END_root;
	if (read_stack(w, part, frame, fp))
		return JP_END_bad_read;
	w->sp = fp + sizeof(frame);
	w->fp = frame[0];
	w->ip = frame[1];
	return JP_WALKING;
}

#endif
