/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Atomic operations that return the old value. clang has them for -mcpu=v3 only, whose 32-bit instructions the
 * verifier of 5.10 follows less well. So each is written as its instruction. Linux has them from 5.12 on, on arm64 from
 * 5.18 on. Older kernels refuse a program that has them anywhere: such programs come in two kinds, and the loader takes
 * the kind that the kernel can run.
 */
#ifndef JP_ATOMIC_H
#define JP_ATOMIC_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* BPF_STX | BPF_ATOMIC | BPF_DW, at r1 with r2; the operation is the immediate. */
#define JP_ATOMIC_R1_R2(op) ".8byte 0x" #op "000021db;"

/* A function that does the operation at `at` with `value`, and returns the old one. */
#define JP_ATOMIC(name, op) \
	static __always_inline __u64 name(__u64 *at, __u64 value) \
	{ \
		__u64 old; \
\
		asm volatile("r1 = %[at]; r2 = %[value];" JP_ATOMIC_R1_R2(op) "%[old] = r2;" \
			     : [old] "=r"(old) \
			     : [at] "r"(at), [value] "r"(value) \
			     : "r1", "r2", "memory"); \
		return old; \
	}

JP_ATOMIC(exchange, 000000e1)
JP_ATOMIC(fetch_add, 00000001)

/* Writes `value` if the old one is `expected`; returns the old one. */
static __always_inline __u64 compare_exchange(__u64 *at, __u64 expected, __u64 value)
{
	__u64 old;

	asm volatile("r0 = %[expected]; r1 = %[at]; r2 = %[value];" JP_ATOMIC_R1_R2(000000f1) "%[old] = r0;"
		     : [old] "=r"(old)
		     : [at] "r"(at), [expected] "r"(expected), [value] "r"(value)
		     : "r0", "r1", "r2", "memory");
	return old;
}

#endif
