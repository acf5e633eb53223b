/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * A step by the code itself, where generated code is about to remove its frame: the unwinder does what that code will
 * do. Python's trampolines (-X perf) need this step. They have neither frame pointers nor tables; each is a call, then
 * an epilogue.
 */
#ifndef JP_STEP_EPILOGUE_H
#define JP_STEP_EPILOGUE_H

#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "scratch.h"
#include "step_table.h"

#if defined(__TARGET_ARCH_x86)

/*
 * Goes to the caller from: add n, rsp; ret. False if ip is at other code, or if the address to return to does not
 * follow a call. The check is needed because a ret may be a jump, and because the code after a call that does not
 * return belongs to another function.
 */
static __always_inline bool step_epilogue(struct walk *w)
{
	__u64 sp = w->sp;
	__u64 back;
	__u8 code[5];

	if (read_user(w, code, sizeof(code), w->ip))
		return false;
	if (code[0] == 0x48 && code[1] == 0x83 && code[2] == 0xc4 && code[3] < 0x80 && code[4] == 0xc3)
		sp += code[3];
	else if (code[0] != 0xc3)
		return false;
	if (read_user(w, &back, sizeof(back), sp) || !follows_call(w, back))
		return false;
	w->sp = sp + sizeof(back);
	w->ip = back;
	return true;
}

#else

static __always_inline bool step_epilogue(struct walk *w)
{
	(void)w;
	return false;
}

#endif

#endif
