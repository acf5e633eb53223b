/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Idle CPUs: process 0 waits for work at few addresses in the kernel. User space has the kernel's symbols and finds
 * the addresses. Stacks of process 0 with such a leaf would be hidden anyway: their ticks are only counted.
 */
#ifndef JP_IDLE_H
#define JP_IDLE_H

#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

/*
 * 0 -> the addresses. The loader adds addresses that it finds in samples; with --idle the map stays empty. Full: ticks
 * at other addresses still have stacks.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct jp_idle_addresses);
} idle_addresses SEC(".maps");

/* Whether process 0 waits for work at `ip`. */
static __always_inline bool is_idle_address(__u64 ip)
{
	__u32 zero = 0;
	struct jp_idle_addresses *known = bpf_map_lookup_elem(&idle_addresses, &zero);

	if (!known)
		return false;
	#pragma clang loop unroll(full)
	for (int i = 0; i < JP_IDLE_ADDRESSES; i++)
		if (known->ip[i] == ip)
			return true;
	return false;
}

#endif
