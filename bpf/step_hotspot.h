/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * A step in a code heap of a JVM. HotSpot stores the frame size of each code blob, and interpreter frames have the
 * method in a fixed place. src/jvm/vm/ finds the offsets.
 *
 * x86-64 only. A frame of compiled code (and of stubs whose frames have one size) ends with the caller's fp and the
 * return address, in JDK 8 to 25, with or without -XX:+PreserveFramePointer: MacroAssembler::verified_entry and
 * C1_MacroAssembler::build_frame push fp, "so that on return to interpreter rbp will be restored correctly".
 */
#ifndef JP_STEP_HOTSPOT_H
#define JP_STEP_HOTSPOT_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "leaf_code.h"
#include "regs.h"
#include "scratch.h"
#include "step_again.h"
#include "step_fp.h"
#include "step_interpreter.h"
#include "step_table.h"

/* One step in the segment map goes back up to 254 segments: 32 steps reach 512 KiB, and the larger blobs are known. */
#define JP_SEGMENT_STEPS 32
/* In the segment map: no block has this segment. */
#define JP_SEGMENT_FREE 0xff

/*
 * For a leaf in code of a file without a table: if the code is mov r10, x; jmp r10 into a code heap, moves ip to the
 * jump's target. A class data archive has such jumps to interpreter entries and adapters, because its methods cannot
 * contain their addresses (SharedRuntime::generate_trampoline, JDK 9 to 15). A global function, see find_range.
 */
__attribute__((noinline)) int follow_jump(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	__u8 code[13];
	__u64 from;

	if (!s)
		return 0;
	from = s->walk.ip;
	if (read_user(&s->walk, code, sizeof(code), from))
		return 0;
	if (code[0] == 0x41 && read_user(&s->walk, code, sizeof(code), from - 10))
		return 0;
	if (code[0] != 0x49 || code[1] != 0xba || code[10] != 0x41 || code[11] != 0xff || code[12] != 0xe2)
		return 0;
	__builtin_memcpy(&s->walk.ip, code + 2, sizeof(s->walk.ip));
	find_range(slot);
	if (s->walk.code != JP_CODE_heap) {
		s->walk.ip = from;
		find_range(slot);
	}
	return 0;
}

/* Leaves a frame that has only the return address on the stack at `sp`, or the caller's fp and the return address. */
static __always_inline __u32 step_return(struct walk *w, __u64 sp, bool pushed_fp)
{
	__u64 frame[2];

	if (read_user(w, frame, sizeof(frame), sp))
		return JP_END_bad_read;
	w->sp = sp + (pushed_fp ? 16 : 8);
	w->ip = frame[pushed_fp];
	if (pushed_fp)
		w->fp = frame[0];
	return JP_WALKING;
}

/*
 * Reads the block around ip into the scratch; false if no block is in use there. A global function, see find_range.
 * VERIFIER(all): the first read of the segment map, of many bytes, stays outside of the loop. Inside, each step would
 * double the states. Noticed by: the load itself (1 M instructions).
 */
__attribute__((noinline)) int find_blob(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct jp_vm *vm;
	__u64 segment, before;
	__u8 back;

	if (!s)
		return false;
	vm = (struct jp_vm *)page_of(s->walk.table);
	if (!vm)
		return false;
	/* A call may be the code's last instruction; then its return address is outside of the code. */
	segment = (s->walk.ip - (s->walk.at_leaf ? 0 : 1) - s->walk.start) >> (vm->segment_shift & 63);
	before = segment < JP_SEGMENTS ? segment : JP_SEGMENTS - 1;
	/* The read stays within one page, because another page may not be mapped. */
	if (before > ((s->walk.bias + segment) & 4095))
		before = (s->walk.bias + segment) & 4095;
	/* VERIFIER(5.10): clang knows the bound and would omit the masks below. Noticed by: the load itself. */
	asm volatile("" : "+r"(before));
	if (read_user(&s->walk, s->segments, sizeof(s->segments), s->walk.bias + segment - before))
		return false;
	back = s->segments[before & (JP_SEGMENTS - 1)];
	if (back == JP_SEGMENT_FREE || back > segment)
		return false;
	segment -= back;
	if (back && back <= before)
		back = s->segments[(before - back) & (JP_SEGMENTS - 1)];
	#pragma clang loop unroll(disable)
	for (int i = 1; back && i < JP_SEGMENT_STEPS; i++) {
		if (read_user(&s->walk, &back, sizeof(back), s->walk.bias + segment) ||
		    back == JP_SEGMENT_FREE || back > segment)
			return false;
		segment -= back;
	}
	if (back)
		return false;
	segment = s->walk.start + (segment << (vm->segment_shift & 63));
	if (read_user(&s->walk, s->blob, sizeof(s->blob), segment))
		return false;
	s->walk.blob = segment + vm->blob;
	return s->blob[vm->used & (JP_BLOB_BYTES - 1)] == 1;
}

/* The s32 at offset `at` of the block that find_blob has read. */
static __always_inline __s32 blob_half(struct scratch *s, __u32 at)
{
	return *(__s32 *)(s->blob + (at & (JP_BLOB_BYTES - 1)));
}

/* The address of the code of the block that find_blob has read. */
static __always_inline __u64 blob_begin(struct scratch *s, struct jp_vm *vm)
{
	if (vm->begin_is_offset)
		return s->walk.blob + blob_half(s, vm->begin);
	return *(__u64 *)(s->blob + (vm->begin & (JP_BLOB_BYTES - 1)));
}

/* Whether the code begins with push fp; mov fp, sp. */
static __always_inline bool keeps_fp(struct scratch *s, struct jp_vm *vm)
{
	__u32 code;

	return !read_user(&s->walk, &code, sizeof(code), blob_begin(s, vm)) && code == 0xec8b4855;
}

/* enum frame_state: how much of its frame a leaf has. A global function, see find_range. */
__attribute__((noinline)) int leaf_state(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct instructions code_at_ip, *code = &code_at_ip;
	struct jp_vm *vm;
	enum frame_state state;
	__s64 complete;
	__u64 begin;

	if (!s)
		return FRAME_unknown;
	vm = (struct jp_vm *)page_of(s->walk.table);
	if (!vm || read_user(&s->walk, code, sizeof(*code), s->walk.ip - JP_CODE_BEFORE))
		return FRAME_unknown;
	state = state_by_ip(code);
	if (state != FRAME_unknown)
		return state;
	if (blob_half(s, vm->frame_size) <= 0)
		return has_pushed_fp(code) ? FRAME_pushed_fp : FRAME_unknown;
	if (is_return_poll(code) || is_native_poll(code))
		return FRAME_none;
	begin = blob_begin(s, vm);
	complete = blob_half(s, vm->frame_complete);
	if (vm->frame_complete_is_short)
		complete = (__s16)complete;
	if (complete < 0)
		return s->walk.ip == begin ? FRAME_none : FRAME_whole;
	if (s->walk.ip - begin < complete)
		return state_in_prologue(code, s->walk.ip - begin);
	return FRAME_whole;
}

static __always_inline bool is_stub(struct jp_vm *vm, __u64 ip)
{
	#pragma clang loop unroll(full)
	for (int i = 0; i < JP_VM_STUBS; i++)
		if (ip >= vm->stubs[i].start && ip < vm->stubs[i].end)
			return true;
	return false;
}

/* Whether `pc` is a return address in generated code: after a call, or anywhere in the interpreter. */
static __always_inline bool is_return(struct walk *w, struct jp_vm *vm, __u64 pc)
{
	if (!is_generated(vm, pc))
		return false;
	return is_interpreter(vm, pc) || follows_call(w, pc);
}

/*
 * Goes to the caller if word `i` of the slots is a return address in generated code. A global function: the verifier
 * checks it once, not once for each word.
 */
__attribute__((noinline)) int return_by(__u32 slot, __u32 i, __u32 saved_fp)
{
	struct scratch *s = scratch_at(slot);
	struct jp_vm *vm;
	__u64 pc, below;

	if (!s)
		return JP_END_no_frame;
	vm = (struct jp_vm *)page_of(s->walk.table);
	if (!vm)
		return JP_END_no_frame;
	pc = s->slots[i & (JP_SLOTS - 1)];
	below = s->slots[(i - 1) & (JP_SLOTS - 1)];
	if (!is_return(&s->walk, vm, pc))
		return JP_END_no_frame;
	/* The interpreter's return addresses do not follow a call, but fp must be valid for such a frame. */
	if (is_interpreter(vm, pc) && !is_above(saved_fp ? below : s->walk.fp, s->walk.sp + 8 * i))
		return JP_END_no_frame;
	if (saved_fp)
		s->walk.fp = below;
	s->walk.ip = pc;
	s->walk.sp += 8 * i;
	return JP_WALKING;
}

/*
 * Goes to the caller of generated code, which is generated code too, by the first return address from sp on. Where code
 * saves registers for a call that is not a Java call, the stack has more words than the code's frame. With `saved_fp`,
 * the word below the return address is the caller's fp. A global function, see find_range.
 */
__attribute__((noinline)) int find_return(__u32 slot, __u32 saved_fp)
{
	struct scratch *s = scratch_at(slot);
	struct jp_vm *vm;

	if (!s)
		return JP_END_no_user;
	vm = (struct jp_vm *)page_of(s->walk.table);
	if (!vm)
		return JP_END_no_table;
	if (read_user(&s->walk, s->slots, sizeof(s->slots), s->walk.sp - 8))
		return JP_END_bad_read;
	#pragma clang loop unroll(disable)
	for (__u32 i = 1; i < JP_SLOTS; i++)
		if (is_generated(vm, s->slots[i]) && return_by(slot, i, saved_fp) == JP_WALKING)
			return JP_WALKING;
	return JP_END_no_frame;
}

/*
 * Bytes on the stack beyond the frame of compiled code at ip. A collector's barrier has a stub behind the method's
 * code: sub sp, x; stores and a call into the JVM; loads; add sp, x; jmp (ZSaveLiveRegisters of JDK 15 to 21, later
 * SaveLiveRegisters, for ZGC, and for G1 since 24). A global function, see find_range.
 */
__attribute__((noinline)) int saved_registers(__u32 slot)
{
	struct scratch *s = scratch_at(slot);

	if (!s || read_user(&s->walk, s->code, JP_CODE_BYTES, s->walk.ip))
		return 0;
	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_CODE_BYTES - 8; i++) {
		__u64 code = *(__u64 *)(s->code + i);

		/* sub sp, x: another stub begins here, so ip is not in a stub. */
		if ((code & 0xfffdff) == 0xec8148)
			return 0;
		/* add sp, x of one byte, of four; jmp of either kind. */
		if ((code & 0xfd00ffffff) == 0xe900c48348)
			return code >> 24 & 0x78;
		if ((code & 0xfd00000000ffffff) == 0xe900000000c48148)
			return code >> 24 & 0xfff8;
	}
	return 0;
}

/* A step from code with frames of `size` words; `called`: the code has called code that is not generated. */
static __always_inline __u32 step_sized(struct walk *w, struct stack_part *part, struct jp_vm *vm, __u64 size,
					bool called)
{
	__u64 end = w->sp + 8 * size;
	__u64 frame[2];

	if (called)
		end += saved_registers(w->slot);
	if (read_stack(w, part, frame, end - sizeof(frame)))
		return JP_END_bad_read;
	if (!is_generated(vm, frame[1]) && w->at_leaf) {
		end += saved_registers(w->slot);
		if (read_stack(w, part, frame, end - sizeof(frame)))
			return JP_END_bad_read;
	}
	if (!is_generated(vm, frame[1])) {
		/* C1's runtime stubs keep fp while they build and remove the rest of their frame (enter, pusha). */
		w->sp = w->at_leaf && w->fp >= w->sp && w->fp < end ? w->fp : end;
		return find_return(w->slot, true);
	}
	/* Not cached: a step from a leaf uses registers too, a step after a native call the code behind the call. */
	if (!w->at_leaf && !called)
		note_step(w, end - w->sp, false, JP_SAVED_next, frame[1]);
	w->sp = end;
	w->fp = frame[0];
	w->ip = frame[1];
	return JP_WALKING;
}

/*
 * A step from a leaf without a frame. An adapter between compiled and interpreted code pops the return address while it
 * moves the arguments (SharedRuntime::gen_i2c_adapter and gen_c2i_adapter of x86_64): then rax has the return address,
 * and for a compiled caller r13 has the caller's stack pointer. Native code calls the other code without frames:
 * jni_fast_GetIntField, flush_icache_stub.
 */
static __always_inline __u32 step_adapter(struct walk *w, struct jp_vm *vm)
{
	__u64 top;

	if (read_user(w, &top, sizeof(top), w->sp))
		return JP_END_bad_read;
	if (is_return(w, vm, top))
		return find_return(w->slot, false);
	if (!is_return(w, vm, w->ax))
		return step_bare(w) ? JP_WALKING : find_return(w->slot, false);
	w->ip = w->ax;
	if (is_above(w->r13, w->sp))
		w->sp = w->r13;
	return JP_WALKING;
}

/*
 * A step from code without a frame size. All stubs keep fp but the smallest ones. Those are leaves, like the other code
 * without a frame size: stubs of virtual and interface calls, adapters, intrinsics of method handles.
 *
 * A resumed virtual thread has few of its frames on its carrier's stack. The last one seems to be called by a stub,
 * which would copy more frames to the stack when the frame returns. Above it lies a ContinuationEntry without pointers
 * to code, then the return address of the code that mounted the thread (thaw_fast in continuationFreezeThaw.cpp, JDK 21
 * and 25).
 */
static __always_inline __u32 step_unsized(struct scratch *s, struct jp_vm *vm, __s32 size)
{
	struct walk *w = &s->walk;
	struct stack_part *part = &s->part;
	__u32 end;

	/* C1: barriers build a frame (StubAssembler::prologue), Runtime1::generate_unwind_exception does not. */
	if (size < 0) {
		if (!keeps_fp(s, vm) || !is_above(w->fp, w->sp))
			return find_return(w->slot, false);
		end = step_fp(w, part);
		return end == JP_WALKING && !is_generated(vm, w->ip) ? JP_END_no_frame : end;
	}
	if (w->at_leaf && !((is_stub(vm, w->ip) || keeps_fp(s, vm)) && is_above(w->fp, w->sp)))
		return step_adapter(w, vm);
	if (w->ip >= vm->continuation && w->ip < vm->continuation_end)
		return find_return(w->slot, true);
	if (!is_above(w->fp, w->sp))
		return JP_END_no_frame;
	end = step_fp(w, part);
	/* Method entry barriers leave a word for an sp below the return address (generate_method_entry_barrier). */
	return end == JP_WALKING && w->ip == ~0ULL ? step_return(w, w->sp, false) : end;
}

/*
 * Goes to the caller of a leaf in a stub, by the rule for its instruction in vm->stub_rules: HotSpot's SHA-2 for AVX2 has
 * data in fp, and the caller's sp in a slot above an aligned sp. False, without a step, if there is no rule, or if it does
 * not lead to a return address in generated code. A global function, see find_range.
 */
__attribute__((noinline)) int step_stub(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct walk *w;
	struct jp_vm *vm;
	__u64 ip, sp, fp;

	if (!s)
		return false;
	w = &s->walk;
	vm = (struct jp_vm *)page_of(w->table);
	if (!vm)
		return false;
	ip = w->ip;
	sp = w->sp;
	fp = w->fp;
	w->rule.cfa_kind = JP_CFA_none;
	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_STUB_RULES; i++) {
		const struct jp_stub_rule *stub = &vm->stub_rules[i];

		if (ip < stub->start)
			break;
		if (ip < stub->end) {
			w->rule = stub->rule;
			break;
		}
	}
	if (w->rule.cfa_kind == JP_CFA_none)
		return false;
	if (step_table(w, &s->part) == JP_WALKING && is_return(w, vm, w->ip))
		return true;
	w->ip = ip;
	w->sp = sp;
	w->fp = fp;
	return false;
}

/*
 * A step by frame pointer from compiled code that has called generated code, in a JVM with -XX:+PreserveFramePointer.
 * This is cheaper than the code blob's description, which is not in the CPU's caches at 99 Hz. All other code with
 * frames keeps fp too, and fp of a resumed virtual thread leads up its stack (with the flag the JVM does not use
 * thaw_fast, JDK 21 to 25). Excluded is fp == sp: JDK 8 keeps sp in fp while it calls method handles (rbp_mh_SP_save).
 * False if fp does not lead to generated code; then the blob is looked up.
 */
static __always_inline bool step_kept_fp(struct walk *w, struct stack_part *part, struct jp_vm *vm)
{
	__u64 frame[2];

	if (w->fp == w->sp || !is_above(w->fp, w->sp) || is_stub(vm, w->ip))
		return false;
	if (read_stack(w, part, frame, w->fp) || !is_generated(vm, frame[1]))
		return false;
	w->sp = w->fp + sizeof(frame);
	w->fp = frame[0];
	w->ip = frame[1];
	return true;
}

/* Records a frame in a code heap and goes to its caller. A global function, see find_range. */
__attribute__((noinline)) int step_hotspot(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct walk *w;
	struct jp_vm *vm;
	__s64 size;
	int state = FRAME_whole;
	bool is_call, called;

	if (!s)
		return JP_END_no_user;
	w = &s->walk;
	called = !w->at_leaf && !w->generated;
	w->generated = true;
	vm = (struct jp_vm *)page_of(w->table);
	if (vm && is_interpreter(vm, w->ip))
		return step_interpreter(slot);
	/* A resumed frame returns to the first instruction of a stub, which does not follow a call. */
	is_call = vm && w->ip >= vm->continuation && w->ip < vm->continuation_end ? is_return(w, vm, w->ip) : !w->at_leaf;
	push(s, is_call ? JP_WORD_RETURN : JP_WORD_LEAF, w->ip);
	if (!vm)
		return JP_END_no_table;
	if (w->ip == vm->locks.call_stub && !w->entry) {
		w->entry = w->fp;
		w->entry_vm = w->table;
	}
	if (is_call && !called &&
	    ((vm->frame_pointers && step_kept_fp(w, &s->part, vm)) || step_again(w, &s->part)))
		return JP_WALKING;
	if (w->at_leaf && w->ip >= vm->stub_rules_start && w->ip < vm->stub_rules_end && step_stub(slot))
		return JP_WALKING;
	if (!find_blob(slot))
		return JP_END_no_blob;
	size = blob_half(s, vm->frame_size);
	if (w->at_leaf)
		state = leaf_state(slot);
	if (state == FRAME_none || state == FRAME_pushed_fp) {
		int end = step_return(w, w->sp, state == FRAME_pushed_fp);

		/* Only stubs have callers that are not generated code. */
		return end == JP_WALKING && size > 0 && !is_generated(vm, w->ip) ? JP_END_no_frame : end;
	}
	if (size <= 0)
		return step_unsized(s, vm, size);
	return size <= JP_MAX_JAVA_FRAME / 8 ? step_sized(w, &s->part, vm, size, called) : JP_END_no_frame;
}

#endif
