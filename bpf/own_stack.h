/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Programs of uprobes run on the stack of their thread.
 *
 * From 6.13 on the kernel gives a program one private stack for each CPU, because it does not run a program on a CPU on
 * which the program runs already (kernel/bpf/verifier.c: bpf_enable_priv_stack). But between programs of uprobes the kernel
 * may switch threads (kernel/trace/bpf_trace.h: bpf_prog_run_array_uprobe): two threads then write to one stack, also where
 * pointers are. A program with a tail call has no private stack.
 */
#ifndef JP_OWN_STACK_H
#define JP_OWN_STACK_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Empty. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} no_programs SEC(".maps");

/* 0: the verifier removes the call, after it has seen that there is one. */
const volatile __u32 calls_programs;

/* The first statement of each program of a uprobe. In other functions the kernel allows only 256 bytes of stack then. */
static __always_inline void use_own_stack(void *ctx)
{
	if (calls_programs)
		bpf_tail_call(ctx, &no_programs, 0);
}

#endif
