/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Perf events: each CPU has one of each kind, which runs a program at each overflow. A sample stands for its period:
 * nanoseconds of CPU time since the tick before, or a number of events. Each event has its own program.
 */
#ifndef JP_EVENT_PERF_H
#define JP_EVENT_PERF_H

#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "regs.h"
#include "sample.h"

static __always_inline int on_overflow(struct perf_context *ctx, __u32 event)
{
	struct taking t;

	if (!begin_samples(&t, event, PERF_IP(ctx), 1))
		return 0;
	load_perf_regs(&t.s->regs, ctx);
	return end_samples(&t, ctx, 1, ctx->sample_period);
}

#define ON_OVERFLOW(event) \
	SEC("perf_event") int on_##event(struct perf_context *ctx) \
	{ \
		return on_overflow(ctx, JP_EVENT_##event); \
	}

ON_OVERFLOW(cpu)
ON_OVERFLOW(page_faults)
ON_OVERFLOW(minor_faults)
ON_OVERFLOW(major_faults)
ON_OVERFLOW(context_switches)

/* A counter that the run chooses: static, so that the programs of all slots share the code. */
static __attribute__((noinline)) int on_counter(struct perf_context *ctx, __u32 slot)
{
	return on_overflow(ctx, JP_EVENT_COUNT + slot);
}

#define ON_COUNTER(slot) \
	SEC("perf_event") int on_counter_##slot(struct perf_context *ctx) \
	{ \
		return on_counter(ctx, slot); \
	}

ON_COUNTER(0)
ON_COUNTER(1)
ON_COUNTER(2)
ON_COUNTER(3)
ON_COUNTER(4)
ON_COUNTER(5)
ON_COUNTER(6)
ON_COUNTER(7)

#endif
