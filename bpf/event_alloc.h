/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Allocations of Java objects by bytes. HotSpot calls one function when a thread takes a new TLAB (thread-local allocation
 * buffer) for an object, and another one when it allocates an object outside of TLABs. The first stands for the whole
 * buffer, which further objects fill without a call, the second for its object.
 *
 * If these functions are not known, because libjvm.so has no symbols, or if the user wants so (--alloc-by object), the JVM
 * itself chooses objects, and the agent in it calls a function for each of them (jvm-symbols-agent/src/allocations.rs).
 */
#ifndef JP_EVENT_ALLOC_H
#define JP_EVENT_ALLOC_H

#include "allocation.h"
#include "own_stack.h"

static __attribute__((noinline)) int on_java(struct perf_context *ctx, __u64 class, __u64 bytes, __u64 object)
{
	return on_allocation(ctx, JP_EVENT_alloc, class, bytes, object, JP_SEEN_all);
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

/*
 * The class that a jclass means, the reference of a native function in the current thread: it points to a word with the
 * address of the mirror, the java.lang.Class object. HotSpot has there an address that can be read, whatever the collector
 * is. `at`: where the mirror has the address of the class. 0: not known.
 */
static __always_inline __u64 class_of_reference(__u64 reference, __u64 at)
{
	__u64 mirror, class;

	if (bpf_probe_read_user(&mirror, sizeof(mirror), (void *)reference) ||
	    bpf_probe_read_user(&class, sizeof(class), (void *)(mirror + at)))
		return 0;
	return class;
}

/* Not inlined: the words on its stack would add to that of the unwinder. */
static __attribute__((noinline)) __u64 sampled_class(struct perf_context *ctx)
{
	return class_of_reference(PERF_ARGUMENT_1(ctx), PERF_ARGUMENT_2(ctx));
}

static __attribute__((noinline)) int on_sampled(struct perf_context *ctx, __u64 class, __u64 bytes, __u64 object)
{
	return on_allocation(ctx, JP_EVENT_alloc, class, bytes, object, JP_SEEN_sampled);
}

/* The agent's function, with the arguments jclass, place in a mirror, bytes that the object stands for, bytes of the object. */
SEC("kprobe") int on_alloc_sampled(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_sampled(ctx, sampled_class(ctx), PERF_ARGUMENT_3(ctx), PERF_ARGUMENT_4(ctx));
}

#endif
