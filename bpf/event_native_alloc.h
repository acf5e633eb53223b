/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Allocations of native code by bytes: a program for each form of the arguments of malloc and its relatives. The size is
 * the one that the caller asks for, whether it gets the memory or not.
 *
 * Functions of one allocator call each other: glibc's realloc(NULL, n) jumps to malloc, its reallocarray jumps to realloc,
 * and musl's calloc calls malloc. Only the outermost call counts. A function that may have such inner calls notes where
 * its return address lies. While that word of the stack is unchanged, a call from below it and from the function's own
 * code is an inner one. The word alone proves nothing: it stays on the stack after the function has returned.
 */
#ifndef JP_EVENT_NATIVE_ALLOC_H
#define JP_EVENT_NATIVE_ALLOC_H

#include "allocation.h"
#include "own_stack.h"

/* How an allocator's function works. */
enum native_call {
	NATIVE_LEAF,    /* it calls no other function of the allocator that has a probe */
	NATIVE_OUTER,   /* it may call another one, or jump to it */
	NATIVE_RESIZES, /* it may call another one, but does not jump to it, because it has to copy the memory afterwards */
};

/* A call of a function that may call another function of the allocator. */
struct outer_call {
	__u64 ip;
	__u64 sp;
	__u64 caller; /* the return address */
	__u64 bytes;
	__u32 jumps; /* enum native_call is NATIVE_OUTER */
	__s32 inner; /* from `ip` to the function that was called last: 0, or an inner one of the same file */
};

/*
 * tid -> its last outer call. The loader sets the size if the event is sampled. Full: the entry that is oldest goes, and an
 * inner call of its thread would count, too.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct outer_call);
} outer_calls SEC(".maps");

/* No allocator can return as much: the lower half of the address space is smaller. The call fails. */
#define JP_IMPOSSIBLE (1ULL << 47)

/* The largest distance between the stack pointers of an outer call and an inner one, bytes. */
#define JP_OUTER_FRAMES 1024

/*
 * The largest distance between the begin of a function that calls another one and the place of the call, bytes. Allocators
 * that call themselves are small; between them and the code of a caller lie whole files.
 */
#define JP_OUTER_CODE 4096

/*
 * Whether this call is an inner one of `outer`. An inner call asks for as many bytes as the outer one, or for more to align
 * them. After a jump both calls have one stack pointer. Two calls that follow each other at one place of the caller are of
 * one function, unless it is called by a pointer.
 */
static __always_inline bool is_inner(struct perf_context *ctx, struct outer_call *outer, __u64 bytes)
{
	__u64 distance = outer->sp - PERF_SP(ctx);

	if (!outer->sp || outer->ip == PERF_IP(ctx) || bytes < outer->bytes || distance > JP_OUTER_FRAMES)
		return false;
	if (!distance)
		return outer->jumps && return_address(ctx) == outer->caller && bytes == outer->bytes;
	if (return_address(ctx) - (outer->ip + outer->inner) >= JP_OUTER_CODE ||
	    !has_frame_of(ctx, outer->sp, outer->caller))
		return false;
	outer->inner = PERF_IP(ctx) - outer->ip;
	return true;
}

static __attribute__((noinline)) int on_native(struct perf_context *ctx, __u64 bytes, __u32 call)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	struct outer_call *outer = bpf_map_lookup_elem(&outer_calls, &tid);

	if (outer) {
		if (is_inner(ctx, outer, bytes))
			return 0;
		outer->sp = 0;
	}
	if (call != NATIVE_LEAF) {
		struct outer_call own = {
			.ip = PERF_IP(ctx),
			.sp = PERF_SP(ctx),
			.caller = return_address(ctx),
			.bytes = bytes,
			.jumps = call == NATIVE_OUTER,
		};

		bpf_map_update_elem(&outer_calls, &tid, &own, BPF_ANY);
	}
	if (bytes >= JP_IMPOSSIBLE)
		bytes = 0;
	return on_allocation(ctx, JP_EVENT_native_alloc, 0, bytes, bytes, JP_SEEN_all);
}

/* The product, or a number that no memory has. */
static __always_inline __u64 times(__u64 number, __u64 size)
{
	if (number >= JP_IMPOSSIBLE || size >= JP_IMPOSSIBLE || (size && number > JP_IMPOSSIBLE / size))
		return JP_IMPOSSIBLE;
	return number * size;
}

/* malloc(bytes). */
SEC("kprobe") int on_malloc(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_native(ctx, PERF_ARGUMENT_1(ctx), NATIVE_LEAF);
}

/* calloc(number, bytes). */
SEC("kprobe") int on_calloc(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_native(ctx, times(PERF_ARGUMENT_1(ctx), PERF_ARGUMENT_2(ctx)), NATIVE_OUTER);
}

/* realloc(memory, bytes). */
SEC("kprobe") int on_realloc(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_native(ctx, PERF_ARGUMENT_2(ctx), PERF_ARGUMENT_1(ctx) ? NATIVE_RESIZES : NATIVE_OUTER);
}

/* reallocarray(memory, number, bytes). */
SEC("kprobe") int on_reallocarray(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_native(ctx, times(PERF_ARGUMENT_2(ctx), PERF_ARGUMENT_3(ctx)), NATIVE_OUTER);
}

/* posix_memalign(result, alignment, bytes). */
SEC("kprobe") int on_posix_memalign(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_native(ctx, PERF_ARGUMENT_3(ctx), NATIVE_OUTER);
}

/* memalign(alignment, bytes), aligned_alloc(alignment, bytes). */
SEC("kprobe") int on_memalign(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_native(ctx, PERF_ARGUMENT_2(ctx), NATIVE_OUTER);
}

/* valloc(bytes), pvalloc(bytes). */
SEC("kprobe") int on_valloc(struct perf_context *ctx)
{
	use_own_stack(ctx);
	return on_native(ctx, PERF_ARGUMENT_1(ctx), NATIVE_OUTER);
}

#endif
