/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * A step from a frame of HotSpot's interpreter. The frame has the method and the caller's stack pointer. Also helpers
 * of all steps in generated code. x86-64 only.
 */
#ifndef JP_STEP_INTERPRETER_H
#define JP_STEP_INTERPRETER_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "regs.h"
#include "scratch.h"
#include "step_table.h"

/* A Java frame is smaller: the class file format allows at most 65,535 slots each for locals and operands. */
#define JP_MAX_JAVA_FRAME (2 << 20)
/* An interpreter frame (frame_x86.hpp, JDK 8 to 25): words from fp, and how many words below fp all versions have. */
#define JP_INTERPRETER_SENDER_SP -1
#define JP_INTERPRETER_LAST_SP -2
#define JP_INTERPRETER_METHOD -3
#define JP_INTERPRETER_FIXED 8

/* Whether `address` is aligned to words, and less than JP_MAX_JAVA_FRAME bytes above `low`. */
static __always_inline bool is_above(__u64 address, __u64 low)
{
	return !(address & 7) && address - low < JP_MAX_JAVA_FRAME;
}

static __always_inline bool is_generated(struct jp_vm *vm, __u64 pc)
{
	return pc >= vm->code_start && pc < vm->code_end;
}

static __always_inline bool is_interpreter(struct jp_vm *vm, __u64 pc)
{
	return pc >= vm->interpreter && pc < vm->interpreter_end;
}

/* Appends the two words of an interpreted method; invalid addresses become 0. */
static __always_inline bool push_interpreted(struct scratch *s, __u64 method, __u64 bcp)
{
	bool known = !out_of_user(method, JP_USER_MIN);

	return push(s, JP_WORD_INTERPRETED, known ? method : 0) &&
	       push(s, JP_WORD_RETURN, known && !out_of_user(bcp, JP_USER_MIN) ? bcp : 0);
}

/*
 * Goes to the caller of an interpreter entry without a frame (Math's, Thread.currentThread's) that is about to return:
 * pop reg; mov rsp, r13; jmp reg (TemplateInterpreterGenerator of x86, JDK 8 to 25). After the pop, the return address
 * is still below sp. `around`: 8 bytes of code before ip, and 8 from ip on. False at other code.
 */
static __always_inline bool is_entry_done(struct walk *w, const __u8 *around)
{
	const __u8 *code = around + 8;
	__u64 at = w->sp - 8;

	if ((code[0] & 0xf8) == 0x58 && code[1] == 0x49 && code[2] == 0x8b && code[3] == 0xe5 && code[4] == 0xff)
		at = w->sp;
	else if (!(code[0] == 0x49 && code[1] == 0x8b && code[2] == 0xe5 && code[3] == 0xff) &&
		 !(code[-3] == 0x49 && code[-2] == 0x8b && code[-1] == 0xe5 && code[0] == 0xff))
		return false;
	if (!is_above(w->r13, w->sp) || read_user(w, &w->ip, sizeof(w->ip), at))
		return false;
	w->sp = w->r13;
	return true;
}

/*
 * Goes to the caller where the interpreter has removed its frame and is about to return: pop r13; mov rsp, rbx; jmp r13
 * (the end of InterpreterMacroAssembler::remove_activation and of TemplateTable::_return, JDK 8 to 25). False at other
 * code.
 */
static __always_inline bool is_interpreter_gone(struct walk *w, const __u8 *code)
{
	if (code[0] == 0x41 && code[1] == 0xff && code[2] == 0xe5) {
		w->ip = w->r13;
		return true;
	}
	if (!is_above(w->bx, w->sp))
		return false;
	if (code[0] == 0x41 && code[1] == 0x5d && code[2] == 0x48 && code[3] == 0x8b && code[4] == 0xe3) {
		if (read_user(w, &w->ip, sizeof(w->ip), w->sp))
			return false;
		w->sp = w->bx;
		return true;
	}
	if (code[0] == 0x48 && code[1] == 0x8b && code[2] == 0xe3 && code[3] == 0x41 && code[4] == 0xff) {
		w->ip = w->r13;
		w->sp = w->bx;
		return true;
	}
	return false;
}

/* Leaves a leaf in the interpreter whose frame is already removed, or that never has one, and records it. */
static __always_inline bool step_frameless(struct scratch *s, struct walk *w, const __u8 *around)
{
	__u64 method = w->bx;

	if (is_interpreter_gone(w, around + 8))
		method = 0;
	else if (!is_entry_done(w, around))
		return false;
	push_interpreted(s, method, 0);
	return true;
}

/*
 * A step from a frame of the interpreter. A complete frame has the method, the bytecode pointer and the caller's stack
 * pointer. While the frame of a leaf is not complete, the registers have them: rbx the method, r13 the caller's stack
 * pointer. In a complete frame r13 is the bytecode pointer, which is not a stack address. A global function, see
 * find_range.
 */
__attribute__((noinline)) int step_interpreter(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct walk *w;
	struct jp_vm *vm;
	__u64 slots[JP_INTERPRETER_FIXED + 2], method, bcp, sender_sp;
	__u8 around[16] = {};
	bool built, calls;

	if (!s)
		return JP_END_no_user;
	w = &s->walk;
	vm = (struct jp_vm *)page_of(w->table);
	if (!vm)
		return JP_END_no_table;
	if (w->at_leaf && !read_user(w, around, sizeof(around), w->ip - 8) &&
	    step_frameless(s, w, around))
		return is_generated(vm, w->ip) ? JP_WALKING : JP_END_no_frame;
	built = w->fp - w->sp >= 8 * JP_INTERPRETER_FIXED;
	if (w->at_leaf && built && is_above(w->r13, w->sp)) {
		__u64 ip;

		/* The interpreter pops the return address while it makes room for the locals: then rax has it. */
		if (read_user(w, &ip, sizeof(ip), w->sp) || !is_generated(vm, ip))
			ip = w->ax;
		/* If neither has it, a callee has just returned, and r13 is left over from the callee. */
		if (is_generated(vm, ip)) {
			push_interpreted(s, w->bx, 0);
			w->ip = ip;
			w->sp = w->r13;
			return JP_WALKING;
		}
	}
	if (!is_above(w->fp, w->sp) || !(built || w->at_leaf) ||
	    read_user(w, slots, sizeof(slots), w->fp - 8 * JP_INTERPRETER_FIXED)) {
		push_interpreted(s, 0, 0);
		return JP_END_no_frame;
	}
	method = slots[JP_INTERPRETER_FIXED + JP_INTERPRETER_METHOD];
	sender_sp = slots[JP_INTERPRETER_FIXED + JP_INTERPRETER_SENDER_SP];
	bcp = slots[vm->bcp & 1];
	/* A call is running, or the callee has returned and r13 is not restored yet: mov r13, [fp + x]. */
	calls = slots[JP_INTERPRETER_FIXED + JP_INTERPRETER_LAST_SP] ||
		(around[8] == 0x4c && around[9] == 0x8b && around[10] == 0x6d);
	if (!built) {
		method = w->bx;
		bcp = 0;
		if (w->fp == w->sp)
			sender_sp = w->r13;
	} else if (w->at_leaf && !calls && w->r13 - bcp + 0xffff < 2 * 0xffff) {
		/* The stack has the bytecode of the last call; a leaf has moved on since, within the same method. */
		bcp = w->r13;
	}
	push_interpreted(s, method, bcp);
	w->sp = w->fp + 16;
	w->fp = slots[JP_INTERPRETER_FIXED];
	w->ip = slots[JP_INTERPRETER_FIXED + 1];
	/* Popping a method handle's last argument from the stack moves the return address up to its place. */
	if (sender_sp == w->sp - 8 && is_interpreter(vm, w->ip))
		return JP_WALKING;
	if (!is_above(sender_sp, w->sp))
		return JP_END_no_frame;
	w->sp = sender_sp;
	return is_generated(vm, w->ip) ? JP_WALKING : JP_END_no_frame;
}

#endif
