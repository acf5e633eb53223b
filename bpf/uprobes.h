/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Handles what the probes of other tools do to user code. A uretprobe replaces a function's return address by that of
 * the kernel's trampoline, and the kernel keeps the true address in a list of the task (struct return_instance). A
 * uprobe replaces an instruction, and the kernel runs a copy of the instruction. Trampoline and copies lie in one page
 * of the process, [uprobes] in /proc/PID/maps, which the kernel creates when it first needs it
 * (kernel/events/uprobes.c).
 *
 * Only the task itself changes its list, and the sample has interrupted that task, so the list does not change.
 */
#ifndef JP_UPROBES_H
#define JP_UPROBES_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "kernel.h"
#include "scratch.h"
#include "step_table.h"

#define JP_UPROBES_SIZE 4096 /* of the page */
#define JP_UPROBES_SLOT 128  /* UPROBE_XOL_SLOT_BYTES; the first slot is the trampoline's */
#define JP_NO_UPROBES ~0ULL  /* instead of the page's address */
/* MAX_URETPROBE_DEPTH: the kernel does not replace the return addresses of deeper calls. */
#define JP_URETPROBE_DEPTH 64
#define JP_LONGEST_INSTRUCTION 15

/* Starts again at the first entry of the task's list of return addresses. */
static __always_inline void begin_uretprobes(struct walk *w)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	w->uretprobe = 0;
	w->uretprobes = JP_URETPROBE_DEPTH;
	if (bpf_core_field_exists(struct task_struct, utask) && bpf_core_field_exists(struct uprobe_task, return_instances))
		w->uretprobe = (__u64)BPF_CORE_READ(task, utask, return_instances);
}

/* Finds the [uprobes] page of this process. */
static __always_inline void find_uprobes(struct walk *w)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct xol_area *area;
	struct mm_struct *mm;

	w->uprobes = JP_NO_UPROBES;
	if (!bpf_core_field_exists(struct uprobes_state, xol_area) || !bpf_core_field_exists(struct xol_area, vaddr))
		return;
	mm = BPF_CORE_READ(task, mm);
	area = BPF_CORE_READ(mm, uprobes_state.xol_area);
	if (!area)
		return;
	w->uprobes = BPF_CORE_READ(area, vaddr);
	begin_uretprobes(w);
}

/* Whether ip, which lies outside all known code, lies in the [uprobes] page. The page is looked up once a sample. */
static __always_inline bool in_uprobes(struct walk *w)
{
	if (!w->uprobes)
		find_uprobes(w);
	return w->ip - w->uprobes < JP_UPROBES_SIZE;
}

/* Bytes of a word on the user stack. */
static __always_inline __u64 word_size(struct walk *w)
{
	return w->i386 ? sizeof(__u32) : sizeof(__u64);
}

/*
 * Goes to the caller of a function whose return address was at `slot` or `other_slot` of the stack. The list begins
 * with the innermost call, as the unwinder does, so each search continues after the last match. Tail calls share one
 * slot; the kernel stores the true address in each of their entries. A global function, see find_range.
 */
__attribute__((noinline)) int follow_uretprobe(__u32 scratch_slot, __u64 slot, __u64 other_slot)
{
	struct scratch *s = scratch_at(scratch_slot);
	struct walk *w;

	if (!s || !bpf_core_field_exists(struct return_instance, orig_ret_vaddr) ||
	    !bpf_core_field_exists(struct return_instance, stack) || !bpf_core_field_exists(struct return_instance, next))
		return JP_END_uretprobe;
	w = &s->walk;
	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_URETPROBE_DEPTH; i++) {
		struct return_instance *instance = (struct return_instance *)w->uretprobe;
		__u64 stack;

		if (!instance || w->uretprobes <= 0)
			break;
		w->uretprobes--;
		w->uretprobe = (__u64)BPF_CORE_READ(instance, next);
		stack = BPF_CORE_READ(instance, stack);
		if (stack != slot && stack != other_slot)
			continue;
		w->ip = BPF_CORE_READ(instance, orig_ret_vaddr);
		w->sp = stack + word_size(w);
		return JP_WALKING;
	}
	return JP_END_uretprobe;
}

#if defined(__TARGET_ARCH_x86)

#define JP_INT3 0xcc

/*
 * Leaves a leaf in the trampoline, whose function has returned. The trampoline is an int3, or in 64-bit code since
 * 6.11: push rax; push rcx; push r11; mov rax, x; syscall; pop r11; pop rcx; ret (arch/x86/kernel/uprobes.c). The
 * system call overwrites the pushed rax with the true address; during the call, the kernel's copy of sp is the one
 * before the pushes.
 */
static __always_inline __u32 leave_trampoline(struct walk *w)
{
	__u64 slot = w->sp - word_size(w), other_slot;
	__u8 first, code[2];
	bool may_be_done;

	if (read_user(w, &first, sizeof(first), w->uprobes) || read_user(w, code, sizeof(code), w->ip))
		return JP_END_uretprobe;
	if (first == JP_INT3 || code[0] == 0x50)
		return follow_uretprobe(w->slot, slot, slot);
	switch (code[0]) {
	case 0x51: /* push rcx */
	case 0xc3: /* ret */
		slot += 8;
		break;
	case 0x59: /* pop rcx */
		slot += 16;
		break;
	case 0x41: /* push r11; pop r11 */
		slot += code[1] == 0x53 ? 16 : 24;
		break;
	default: /* mov; syscall */
		slot += 24;
	}
	may_be_done = code[0] == 0x41 && code[1] == 0x5b;
	if (code[0] != 0x59 && code[0] != 0xc3) {
		other_slot = may_be_done ? w->sp - 8 : slot;
		if (follow_uretprobe(w->slot, slot, other_slot) == JP_WALKING)
			return JP_WALKING;
		if (!may_be_done)
			return JP_END_uretprobe;
		begin_uretprobes(w);
	}
	/* The system call has stored the true address there. If not yet, the word is rax and does not follow a call. */
	if (read_user(w, &w->ip, sizeof(w->ip), slot) || !follows_call(w, w->ip))
		return JP_END_uretprobe;
	w->sp = slot + 8;
	return JP_WALKING;
}

static __always_inline __u32 follow_return(struct walk *w)
{
	__u64 slot = w->sp - word_size(w);

	return follow_uretprobe(w->slot, slot, slot);
}

/*
 * Moves ip from behind a probe's int3 back to the int3, because the instruction that it replaces has not run. The
 * kernel does the same, but only after it enables interrupts (handle_swbp). An ip behind int3 that pad code up to its
 * alignment is even, so only an odd ip is moved.
 */
static __always_inline void leave_int3(struct walk *w)
{
	__u8 code;

	find_uprobes(w);
	if (w->uprobes != JP_NO_UPROBES && (w->ip & 1) && !read_user(w, &code, sizeof(code), w->ip - 1) &&
	    code == JP_INT3)
		w->ip--;
}

#else

/* On arm64 a uretprobe replaces the link register, so the list does not have the address's place on the stack. */
static __always_inline __u32 leave_trampoline(struct walk *w)
{
	(void)w;
	return JP_END_uretprobe;
}

static __always_inline __u32 follow_return(struct walk *w)
{
	(void)w;
	return JP_END_uretprobe;
}

/* brk does not move pc. */
static __always_inline void leave_int3(struct walk *w)
{
	(void)w;
}

#endif

/*
 * Leaves the [uprobes] page: goes from a copy to the instruction that the probe replaces, or from the trampoline to the
 * function's caller. `unknown_code`: the value before the search for this ip, which is restored. A global function, see
 * find_range.
 */
__attribute__((noinline)) int leave_uprobes(__u32 slot, __u32 unknown_code)
{
	struct scratch *s = scratch_at(slot);
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u32 end = JP_WALKING;
	struct walk *w;

	if (!s)
		return JP_END_no_user;
	w = &s->walk;
	if (w->ip - w->uprobes >= JP_UPROBES_SLOT) {
		__u64 done;

		if (!bpf_core_field_exists(struct uprobe_task, xol_vaddr) || !bpf_core_field_exists(struct uprobe_task, vaddr))
			return JP_WALKING;
		done = w->ip - BPF_CORE_READ(task, utask, xol_vaddr);
		if (done > JP_LONGEST_INSTRUCTION)
			return JP_WALKING;
		w->ip = BPF_CORE_READ(task, utask, vaddr) + done;
	} else if (w->ip == w->uprobes && !w->leaf) {
		end = follow_return(w);
	} else {
		/* The caller's next instruction is about to run, as in a leaf. */
		w->leaf = true;
		end = leave_trampoline(w);
	}
	if (!w->ranges)
		return end;
	w->unknown_code = unknown_code;
	find_range(slot);
	return end;
}

#endif
