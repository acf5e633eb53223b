/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Allocations of Java objects by bytes. HotSpot calls one function when a thread takes a new TLAB (thread-local allocation
 * buffer) for an object, and another one when it allocates an object outside of TLABs. The first stands for the whole
 * buffer, which further objects fill without a call, the second for its object.
 */
#ifndef JP_EVENT_ALLOC_H
#define JP_EVENT_ALLOC_H

#include "allocation.h"
#include "own_stack.h"

static __attribute__((noinline)) int on_java(struct perf_context *ctx, __u64 class, __u64 bytes, __u64 object)
{
	return on_allocation(ctx, JP_EVENT_alloc, class, bytes, object);
}

/* The functions with the arguments class, object, bytes of the object. */
SEC("kprobe") int on_alloc(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_java(ctx, PERF_ARGUMENT_1(ctx), PERF_ARGUMENT_3(ctx), PERF_ARGUMENT_3(ctx));
}

/* The functions with the arguments class, object, bytes of the TLAB, bytes of the object. */
SEC("kprobe") int on_alloc_tlab(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_java(ctx, PERF_ARGUMENT_1(ctx), PERF_ARGUMENT_3(ctx), PERF_ARGUMENT_4(ctx));
}

/* The functions with the arguments class, bytes of the object. */
SEC("kprobe") int on_alloc_without_object(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_java(ctx, PERF_ARGUMENT_1(ctx), PERF_ARGUMENT_2(ctx), PERF_ARGUMENT_2(ctx));
}

/* The functions with the arguments class, bytes of the TLAB, bytes of the object. */
SEC("kprobe") int on_alloc_tlab_without_object(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_java(ctx, PERF_ARGUMENT_1(ctx), PERF_ARGUMENT_2(ctx), PERF_ARGUMENT_3(ctx));
}

#endif
