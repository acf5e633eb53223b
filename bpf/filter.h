/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* Which samples are wanted. The filter runs before the unwinder, so that an unwanted sample costs almost nothing. */
#ifndef JP_FILTER_H
#define JP_FILTER_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "cgroup.h"
#include "kernel.h"

/* How many generations of ancestors are searched for a wanted process. */
#define JP_MAX_ANCESTORS 32

/*
 * tgid -> unused. The loader writes targets, the command that it started, and their descendants, as it finds them or
 * sees them begin; `descends` below writes too. The loader deletes every process that has ended. Full: each sample of a
 * descendant searches its ancestors until there is room.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u8);
} wanted_tgids SEC(".maps");

/* tid -> unused. The loader writes threads once and deletes ended ones. Full: the loader reports an error. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} wanted_tids SEC(".maps");

/*
 * CPU -> 1 if it is chosen. Of waits, probes, allocations and resident memory only: the other events are opened on chosen
 * CPUs. The loader sets the size.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} wanted_cpus SEC(".maps");

/* Whether a sample on this CPU is wanted; of a wait, the CPU where it ends. */
static __always_inline bool wanted_on(const volatile struct jp_config *config, __u32 cpu)
{
	__u32 *wanted;

	if (!config->by_cpu)
		return true;
	wanted = bpf_map_lookup_elem(&wanted_cpus, &cpu);
	return wanted && *wanted;
}

/* Whether an ancestor of `task` is wanted. If so, adds the process to the map: its next sample needs no search. */
static __always_inline bool descends(struct task_struct *task, __u32 tgid)
{
	__u8 one = 1;

	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_MAX_ANCESTORS; i++) {
		__u32 ancestor;

		task = BPF_CORE_READ(task, real_parent);
		ancestor = BPF_CORE_READ(task, tgid);
		if (ancestor <= 1)
			return false;
		if (bpf_map_lookup_elem(&wanted_tgids, &ancestor)) {
			bpf_map_update_elem(&wanted_tgids, &tgid, &one, BPF_ANY);
			return true;
		}
	}
	return false;
}

/* Whether `task` is the profiler itself, or a child that it did not start as the target. */
static __always_inline bool is_own(const volatile struct jp_config *config, struct task_struct *task, __u32 tgid)
{
	if (!config->own_tgid)
		return false;
	if (tgid == config->own_tgid)
		return true;
	return BPF_CORE_READ(task, real_parent, tgid) == config->own_tgid &&
	       !bpf_map_lookup_elem(&wanted_tgids, &tgid);
}

static __always_inline bool wanted(const volatile struct jp_config *config, struct task_struct *task, __u32 tgid,
				   __u32 tid)
{
	if (config->cgroups && !in_cgroups(config, task))
		return false;
	if (is_own(config, task, tgid))
		return false;
	if (config->by_tid)
		return bpf_map_lookup_elem(&wanted_tids, &tid);
	if (config->by_tgid) {
		if (bpf_map_lookup_elem(&wanted_tgids, &tgid))
			return true;
		return config->children && tgid && descends(task, tgid);
	}
	return true;
}

#endif
