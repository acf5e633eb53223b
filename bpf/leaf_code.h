/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Finds out from the instructions around a leaf's ip whether its frame is complete, half pushed, or already removed.
 *
 * x86-64 only: the prologues, epilogues and safepoint polls that HotSpot's compilers emit, JDK 8 to 25.
 */
#ifndef JP_LEAF_CODE_H
#define JP_LEAF_CODE_H

#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

enum frame_state {
	FRAME_whole,
	FRAME_none,      /* the return address is at sp */
	FRAME_pushed_fp, /* fp is at sp, the return address above it */
	FRAME_unknown,
};

/* Bytes of code before ip, and from ip on. */
#define JP_CODE_BEFORE 32
#define JP_CODE_AFTER 16

struct instructions {
	__u8 bytes[JP_CODE_BEFORE + JP_CODE_AFTER];
};

#define JP_BYTE(i) code->bytes[JP_CODE_BEFORE + (i)]
#define JP_IS(at, a, b, c) (JP_BYTE(at) == (a) && JP_BYTE((at) + 1) == (b) && JP_BYTE((at) + 2) == (c))

/* A conditional jump right before `ret`: taken or not, the jump does not change the stack. */
#define JP_JUMP_AND_RETURN(at) (JP_BYTE(at) == 0x0f && (JP_BYTE((at) + 1) & 0xf0) == 0x80 && JP_BYTE((at) + 6) == 0xc3)

/*
 * Whether the last instruction was push fp (0x55). A mov reg, x is excluded: if classes lie at 0x55000000, x ends with
 * the same byte.
 */
static __always_inline bool has_pushed_fp(const struct instructions *code)
{
	return JP_BYTE(-1) == 0x55 && !(JP_BYTE(-6) == 0x41 && (JP_BYTE(-5) & 0xf8) == 0xb8);
}

/* push fp; mov fp, sp; ...; leave or pop fp; ret: these forms are the same in code of any kind. */
static __always_inline enum frame_state state_by_ip(const struct instructions *code)
{
	if (JP_BYTE(0) == 0xc3 || JP_BYTE(0) == 0x55)
		return FRAME_none;
	if (JP_BYTE(0) == 0x5d || (JP_BYTE(-1) == 0x55 && JP_IS(0, 0x48, 0x8b, 0xec)))
		return FRAME_pushed_fp;
	return FRAME_unknown;
}

/* Between `pop fp` and `ret`, a method polls for a safepoint or an exception. */
static __always_inline bool is_return_poll(const struct instructions *code)
{
	/* JDK 8: test [rip + x], eax, or for far pages mov r10, x; test [r10], eax. */
	if (JP_BYTE(0) == 0x85 && JP_BYTE(1) == 0x05)
		return JP_BYTE(6) == 0xc3;
	if (JP_BYTE(0) == 0x49 && JP_BYTE(1) == 0xba)
		return JP_IS(10, 0x41, 0x85, 0x02) && JP_BYTE(13) == 0xc3;
	/* JDK 11: mov r10, [r15 + x]; test [r10], eax. */
	if (JP_IS(0, 0x41, 0x85, 0x02))
		return JP_BYTE(3) == 0xc3;
	if (JP_IS(0, 0x4d, 0x8b, 0x97))
		return JP_IS(7, 0x41, 0x85, 0x02) && JP_BYTE(10) == 0xc3;
	if (JP_IS(0, 0x4d, 0x8b, 0x57))
		return JP_IS(4, 0x41, 0x85, 0x02) && JP_BYTE(7) == 0xc3;
	/* JDK 17 and later: cmp rsp, [r15 + x]; ja y. */
	if (JP_JUMP_AND_RETURN(0))
		return true;
	if (JP_IS(0, 0x49, 0x3b, 0xa7))
		return JP_JUMP_AND_RETURN(7);
	if (JP_IS(0, 0x49, 0x3b, 0x67))
		return JP_JUMP_AND_RETURN(4);
	/* Native methods, between `leave` and `ret`: cmp qword [r15 + x], 0; jne y. */
	if (JP_IS(0, 0x49, 0x81, 0x7f))
		return JP_JUMP_AND_RETURN(8);
	if (JP_IS(0, 0x49, 0x83, 0x7f))
		return JP_JUMP_AND_RETURN(5);
	return false;
}

/*
 * ip is at one of these instructions, which follow `leave` in native methods of JDK 25: test byte [r15 + x], 1; je y;
 * mov r10, z; mov [r15 + w], r10; jmp v.
 */
static __always_inline bool is_native_poll(const struct instructions *code)
{
	static const __u8 done[] = {1, 6, 8, 18, 25};

	#pragma clang loop unroll(full)
	for (int i = 0; i < 5; i++) {
		int leave = -done[i];

		if (JP_BYTE(leave) == 0xc9 && JP_IS(leave + 1, 0x41, 0xf6, 0x47) && JP_BYTE(leave + 5) == 1 &&
		    JP_BYTE(leave + 6) == 0x74)
			return true;
	}
	return false;
}

/* The state before the code's frame is complete; `done` bytes of the code lie before ip. */
static __always_inline enum frame_state state_in_prologue(const struct instructions *code, __u64 done)
{
	if (done >= 1 && has_pushed_fp(code))
		return FRAME_pushed_fp;
	if (done >= 4 && JP_BYTE(-4) == 0x55 && JP_IS(-3, 0x48, 0x8b, 0xec))
		return FRAME_pushed_fp;
	/* After sub rsp, x only a barrier follows: the frame is complete. */
	#pragma clang loop unroll(disable)
	for (int i = 4; i <= JP_CODE_BEFORE; i++) {
		if (i > done)
			break;
		if (JP_BYTE(-i) == 0x48 && (JP_BYTE(1 - i) & 0xfd) == 0x81 && JP_BYTE(2 - i) == 0xec)
			return FRAME_whole;
	}
	return FRAME_none;
}

#endif
