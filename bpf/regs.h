/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Registers: those of the event, and those with which a task last left user mode. Other code that depends on the
 * architecture is in step_table.h, in uprobes.h, and in the headers that are for x86-64 only (leaf_code.h,
 * step_epilogue.h, step_hotspot.h, step_i386.h, step_interpreter.h).
 */
#ifndef JP_REGS_H
#define JP_REGS_H

#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "kernel.h"

/* The context of raw tracepoints: a word for each argument of the tracepoint. */
struct raw_args {
	__u64 args[4];
};

/* The registers from which unwinding starts. */
struct regs {
	__u64 ip;
	__u64 sp;
	__u64 fp;
	bool syscall; /* the task left user mode by a system call: ip is a return address */
	bool i386;    /* the task ran 32-bit code */
	__u64 caller; /* the return address, if ip is known to be a function's first instruction; else 0 */
	/* x86-64, while HotSpot's interpreter enters a method: the return address, the method, the caller's sp. */
	__u64 ax, bx, r13;
};

#if defined(__TARGET_ARCH_x86)

/* The context of perf event programs (uapi): struct bpf_perf_event_data begins with x86's struct pt_regs. */
struct perf_context {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
	__u64 sample_period;
};

struct pt_regs {
	unsigned long r13;
	unsigned long bp;
	unsigned long bx;
	unsigned long ax;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned short cs; /* before 6.9: a long; FRED uses the bits above */
	unsigned long sp;
} __attribute__((preserve_access_index));

/* The segment of 32-bit code: __USER32_CS, or FLAT_USER_CS32 in Xen guests without hardware support. */
#define IS_I386(cs) (((cs) & 0xffff) == 0x23 || ((cs) & 0xffff) == 0xe023)
#define PERF_IP(ctx) ((ctx)->ip)
#define PERF_SP(ctx) ((ctx)->sp)
/* The arguments of a function at its first instruction. */
#define JP_RETURN_BYTES 8 /* a call puts its return address onto the stack */
#define PERF_ARGUMENT_1(ctx) ((ctx)->di)
#define PERF_ARGUMENT_2(ctx) ((ctx)->si)
#define PERF_ARGUMENT_3(ctx) ((ctx)->dx)
#define PERF_ARGUMENT_4(ctx) ((ctx)->cx)
/* Before 5.15 the stack size locates the registers: 16 KiB (KASAN kernels: 32 KiB, and user frames have no names). */
#define JP_THREAD_SIZE (16 * 1024)
/* sizeof(struct pt_regs) of kernels without FRED, i.e. before 6.9: 21 words. */
#define JP_PT_REGS_SIZE (21 * 8)
#define JP_USER_BITS 56 /* five-level page tables; addresses must fit below the tag of a word */

/*
 * Assigns member by member. clang would build a whole struct on the stack and copy it with its padding bytes, which are
 * not initialized. The verifier of 5.15 refuses to read such bytes.
 */
static __always_inline void load_perf_regs(struct regs *r, struct perf_context *ctx)
{
	r->ip = ctx->ip;
	r->sp = ctx->sp;
	r->fp = ctx->bp;
	r->syscall = false;
	r->i386 = IS_I386(ctx->cs);
	r->caller = 0;
	r->ax = ctx->ax;
	r->bx = ctx->bx;
	r->r13 = ctx->r13;
}

/* The return address of the function whose first instruction is about to run; 0: the stack cannot be read. */
static __always_inline __u64 return_address(struct perf_context *ctx)
{
	__u64 address = 0;

	bpf_probe_read_user(&address, sizeof(address), (void *)ctx->sp);
	return address;
}

/* Whether a function has not returned that began with the stack pointer `sp`, where its return address is `caller`. */
static __always_inline bool has_frame_of(struct perf_context *ctx, __u64 sp, __u64 caller)
{
	__u64 address = 0;

	(void)ctx;
	return !bpf_probe_read_user(&address, sizeof(address), (void *)sp) && address == caller;
}

static __always_inline void load_user_regs(struct regs *r, struct pt_regs *p)
{
	r->ip = BPF_CORE_READ(p, ip);
	r->sp = BPF_CORE_READ(p, sp);
	r->fp = BPF_CORE_READ(p, bp);
	r->ax = BPF_CORE_READ(p, ax);
	r->bx = BPF_CORE_READ(p, bx);
	r->r13 = BPF_CORE_READ(p, r13);
	r->i386 = IS_I386(BPF_CORE_READ(p, cs));
	r->caller = 0;
	/* The system call's number; every other entry stores -1 (since 5.8, arch/x86/include/asm/idtentry.h). */
	r->syscall = (long)BPF_CORE_READ(p, orig_ax) >= 0;
}

#define TS_COMPAT 2 /* in thread_info.status: a system call of 32-bit code, whose numbers are others */

/* The number of the current task's system call, if it is one of 64-bit code; else -1. */
static __always_inline long system_call_of(struct task_struct *task, struct pt_regs *p)
{
	return BPF_CORE_READ(task, thread_info.status) & TS_COMPAT ? -1 : (long)BPF_CORE_READ(p, orig_ax);
}

/* The number of the system call futex of 64-bit programs. */
#define JP_FUTEX 202

/* The futex with which a task with these registers entered the kernel; 0: it made another system call, or none. */
static __always_inline __u64 futex_of(struct pt_regs *p)
{
	return BPF_CORE_READ(p, orig_ax) == JP_FUTEX ? BPF_CORE_READ(p, di) : 0;
}

/* Where a task's thread-local storage lies. */
static __always_inline __u64 thread_pointer(struct task_struct *task)
{
	return BPF_CORE_READ(task, thread.fsbase);
}

#elif defined(__TARGET_ARCH_arm64)

/* uapi: arm64's bpf_user_pt_regs_t is struct user_pt_regs. */
struct perf_context {
	__u64 regs[31], sp, pc, pstate;
	__u64 sample_period;
};

struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
	int syscallno;
} __attribute__((preserve_access_index));

#define PERF_IP(ctx) ((ctx)->pc)
#define PERF_SP(ctx) ((ctx)->sp)
#define JP_RETURN_BYTES 0 /* a call puts its return address into a register */
#define PERF_ARGUMENT_1(ctx) ((ctx)->regs[0])
#define PERF_ARGUMENT_2(ctx) ((ctx)->regs[1])
#define PERF_ARGUMENT_3(ctx) ((ctx)->regs[2])
#define PERF_ARGUMENT_4(ctx) ((ctx)->regs[3])
#define JP_THREAD_SIZE (16 * 1024)
/* struct pt_regs of 5.10 to 5.14: user_pt_regs (34 words), orig_x0, syscallno, sdei_ttbr1, pmr_save, stackframe[2],
 * lockdep and exit state. */
#define JP_PT_REGS_SIZE (42 * 8)
#define JP_USER_BITS 52

static __always_inline void load_perf_regs(struct regs *r, struct perf_context *ctx)
{
	r->ip = ctx->pc;
	r->sp = ctx->sp;
	r->fp = ctx->regs[29];
	r->syscall = false;
	r->i386 = false;
	r->caller = 0;
}

/* The return address of the function whose first instruction is about to run. */
static __always_inline __u64 return_address(struct perf_context *ctx)
{
	return ctx->regs[30];
}

/*
 * Whether a function has not returned that began with the stack pointer `sp` and the return address `caller`. It has put
 * the address into a record of its frame, which a chain leads to.
 */
static __always_inline bool has_frame_of(struct perf_context *ctx, __u64 sp, __u64 caller)
{
	__u64 record[2], at = ctx->regs[29];

	#pragma unroll
	for (int i = 0; i < 3; i++) {
		if (at - ctx->sp >= sp - ctx->sp || bpf_probe_read_user(record, sizeof(record), (void *)at))
			return false;
		if (record[1] == caller)
			return true;
		at = record[0];
	}
	return false;
}

static __always_inline void load_user_regs(struct regs *r, struct pt_regs *p)
{
	r->ip = BPF_CORE_READ(p, pc);
	r->sp = BPF_CORE_READ(p, sp);
	r->fp = BPF_CORE_READ(p, regs[29]);
	r->syscall = BPF_CORE_READ(p, syscallno) >= 0; /* NO_SYSCALL is -1 */
	r->i386 = false;
	r->caller = 0;
}

#define PSR_MODE32_BIT 0x10 /* in pstate: 32-bit code, whose system calls have other numbers */

/* The number of the current task's system call, if it is one of 64-bit code; else -1. */
static __always_inline long system_call_of(struct task_struct *task, struct pt_regs *p)
{
	(void)task;
	return BPF_CORE_READ(p, pstate) & PSR_MODE32_BIT ? -1 : BPF_CORE_READ(p, syscallno);
}

/* Where a task's thread-local storage lies. */
static __always_inline __u64 thread_pointer(struct task_struct *task)
{
	return BPF_CORE_READ(task, thread.uw.tp_value);
}

/* Locks of Java are known on x86-64 only. */
static __always_inline __u64 futex_of(struct pt_regs *p)
{
	return 0;
}

#else
#error "no register layout for this architecture"
#endif

/* The zero page is never mapped. */
#define JP_USER_MIN 4096

/*
 * The address decides, not the code segment or pstate: with FRED (6.9) the upper bits of pt_regs.cs have another
 * meaning.
 */
static __always_inline bool in_kernel(__u64 ip)
{
	return (__s64)ip < 0;
}

/* The registers with which `task`, a pointer that the verifier trusts, left user mode. */
static __always_inline struct pt_regs *task_regs(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) /* 5.15 */
		return (struct pt_regs *)bpf_task_pt_regs(task);
	return BPF_CORE_READ(task, stack) + JP_THREAD_SIZE - JP_PT_REGS_SIZE;
}

/* The registers with which the current task left user mode. */
static __always_inline struct pt_regs *own_regs(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs)) /* 5.15 */
		task = (struct task_struct *)bpf_get_current_task_btf();
	return task_regs(task);
}

/* Loads the registers with which `task`, the current one, left user mode. */
static __always_inline void user_regs(struct regs *r, struct task_struct *task)
{
	load_user_regs(r, own_regs(task));
}

/* The futex with which the current task entered the kernel; 0: it made another system call, or none. */
static __always_inline __u64 futex_address(void)
{
	return futex_of(own_regs((struct task_struct *)bpf_get_current_task()));
}

#endif
