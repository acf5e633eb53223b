/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* Time on a CPU: a tick of a cpu-clock perf event, which is on every CPU. Weighs the time since the tick before, ns. */
#ifndef JP_EVENT_CPU_CLOCK_H
#define JP_EVENT_CPU_CLOCK_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "regs.h"
#include "sample.h"

SEC("perf_event")
int on_cpu_clock(struct perf_context *ctx)
{
	struct taking t;

	if (!begin_sample(&t, PERF_IP(ctx)))
		return 0;
	load_perf_regs(&t.s->regs, ctx);
	return end_sample(&t, ctx, JP_EVENT_cpu, ctx->sample_period);
}

#endif
