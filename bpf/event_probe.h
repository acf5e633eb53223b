/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Probes: tracepoints, system calls, and functions of the kernel or of programs. The kernel runs a program at each
 * occurrence. A sample stands for a number of occurrences on its CPU. Each slot has a program for each kind of probe,
 * because a program cannot know before 5.15 at which probe it runs; the loader loads the ones that a run needs.
 *
 * Tracepoints are raw ones: the kernel counts the occurrences at which it did not run a program of them (from 6.1 on;
 * before, it runs the program at each). It skips a program of a classic tracepoint whenever another program runs.
 */
#ifndef JP_EVENT_PROBE_H
#define JP_EVENT_PROBE_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "filter.h"
#include "kernel.h"
#include "own_stack.h"
#include "regs.h"
#include "sample.h"

/*
 * Counts an occurrence. Returns how many occurrences a sample here stands for; 0: no sample is due. If another program
 * comes in between, both may find a sample due; the sum is then negative, and the next sample comes later.
 */
static __always_inline __u64 pass(struct jp_event_control *control, __u32 event)
{
	__u64 period = *(volatile __u64 *)&control->period;
	__s64 *n;

	if (!period || !wanted_on(&config, bpf_get_smp_processor_id()))
		return 0;
	if (period == 1)
		return 1;
	n = bpf_map_lookup_elem(&progress, &event);
	if (!n)
		return 0;
	__sync_fetch_and_add(n, 1);
	if (*(volatile __s64 *)n < (__s64)period)
		return 0;
	__sync_fetch_and_add(n, -(__s64)period);
	return period;
}

/* The registers of a task inside the kernel: an address of the kernel says that those of user mode are saved. */
static __always_inline int sample_kernel(struct raw_args *ctx, __u32 slot, __u64 weight)
{
	struct taking t;

	if (!begin_samples(&t, JP_EVENT_COUNT + slot, 0, 1))
		return 0;
	t.s->regs.ip = ~0ULL;
	return end_samples(&t, ctx, 1, weight);
}

static __attribute__((noinline)) int on_tracepoint(struct raw_args *ctx, __u32 slot)
{
	__u32 event = JP_EVENT_COUNT + slot;
	struct jp_event_control *control = bpf_map_lookup_elem(&event_controls, &event);
	__u64 weight = control ? pass(control, event) : 0;

	return weight ? sample_kernel(ctx, slot, weight) : 0;
}

/*
 * sys_enter(regs, number) and sys_exit(regs, result). Not in the program above: the kernel refuses a program that reads
 * more arguments than its tracepoint has.
 */
static __attribute__((noinline)) int on_system_call(struct raw_args *ctx, __u32 slot)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u32 event = JP_EVENT_COUNT + slot;
	struct jp_event_control *control = bpf_map_lookup_elem(&event_controls, &event);
	__u64 weight;

	if (!control || system_call_of(task, (struct pt_regs *)ctx->args[0]) != control->number)
		return 0;
	weight = pass(control, event);
	return weight ? sample_kernel(ctx, slot, weight) : 0;
}

static __attribute__((noinline)) int on_function(struct perf_context *ctx, __u32 slot)
{
	__u32 event = JP_EVENT_COUNT + slot;
	struct jp_event_control *control = bpf_map_lookup_elem(&event_controls, &event);
	__u64 weight = control ? pass(control, event) : 0;
	struct taking t;

	if (!weight || !begin_samples(&t, JP_EVENT_COUNT + slot, 0, 1))
		return 0;
	load_perf_regs(&t.s->regs, ctx);
	return end_samples(&t, ctx, 1, weight);
}

#define ON_PROBE(slot) \
	SEC("raw_tp") int on_tracepoint_##slot(struct raw_args *ctx) \
	{ \
		return on_tracepoint(ctx, slot); \
	} \
	SEC("raw_tp") int on_system_call_##slot(struct raw_args *ctx) \
	{ \
		return on_system_call(ctx, slot); \
	} \
	SEC("kprobe") int on_function_##slot(struct perf_context *ctx) \
	{ \
		use_own_stack(ctx); \
		return on_function(ctx, slot); \
	}

ON_PROBE(0)
ON_PROBE(1)
ON_PROBE(2)
ON_PROBE(3)
ON_PROBE(4)
ON_PROBE(5)
ON_PROBE(6)
ON_PROBE(7)

#endif
