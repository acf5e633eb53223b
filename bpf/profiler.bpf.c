// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

SEC("perf_event")
int tick(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
