/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* The cgroups of a task, v1 and v2, and whether the task lies in a chosen one. */
#ifndef JP_CGROUP_H
#define JP_CGROUP_H

#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "kernel.h"

/*
 * Chosen groups -> unused. The loader writes the map at the start, and when a container that was chosen by name begins
 * or ends. Full: the loader reports an error.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct jp_cgroup);
	__type(value, __u8);
} chosen_cgroups SEC(".maps");

/* The index of a v1 hierarchy's controller in css_set.subsys; -1 if this kernel does not have the controller. */
static __always_inline long subsys_of(__u32 hierarchy)
{
	switch (hierarchy) {
#define X(name)                                                                                                        \
	case JP_HIERARCHY_##name:                                                                                      \
		return bpf_core_enum_value_exists(enum cgroup_subsys_id, name##_cgrp_id) ?                             \
			       (long)bpf_core_enum_value(enum cgroup_subsys_id, name##_cgrp_id) :                      \
			       -1;
		JP_CONTROLLERS(X)
#undef X
	}
	return -1;
}

/* The group of `set` in a hierarchy; a controller of v1 stands for its hierarchy. */
static __always_inline struct cgroup *cgroup_in(struct css_set *set, __u32 hierarchy)
{
	struct cgroup_subsys_state *css = NULL;
	long subsys;

	if (hierarchy == JP_HIERARCHY_v2)
		return BPF_CORE_READ(set, dfl_cgrp);
	subsys = subsys_of(hierarchy);
	if (subsys < 0)
		return NULL;
	bpf_probe_read_kernel(&css, sizeof(css),
			      (void *)set + bpf_core_field_offset(struct css_set, subsys) + sizeof(css) * subsys);
	return BPF_CORE_READ(css, cgroup);
}

/* The id of a group's ancestor at `level`, which is at most the group's own level; there, the group's own id. */
static __always_inline __u64 ancestor_id(struct cgroup *group, int level)
{
	struct cgroup *ancestor = NULL;
	__u64 id = 0;

	if (bpf_core_field_exists(struct cgroup___ids, ancestor_ids)) {
		bpf_probe_read_kernel(&id, sizeof(id),
				      (void *)group + bpf_core_field_offset(struct cgroup___ids, ancestor_ids) +
					      sizeof(id) * level);
		return id;
	}
	bpf_probe_read_kernel(&ancestor, sizeof(ancestor),
			      (void *)group + bpf_core_field_offset(struct cgroup, ancestors) + sizeof(ancestor) * level);
	return BPF_CORE_READ(ancestor, kn, id);
}

/*
 * Compares the ancestors with the chosen groups, from the root down to JP_MAX_LEVEL. Deeper groups match by their
 * ancestors, so that nesting groups deeper does not raise the cost of a sample.
 */
static __always_inline bool lies_in_chosen(const volatile struct jp_config *config, struct cgroup *group,
					   __u32 hierarchy)
{
	int own = BPF_CORE_READ(group, level);

	#pragma clang loop unroll(disable)
	for (int level = 0; level <= JP_MAX_LEVEL; level++) {
		struct jp_cgroup key = { .hierarchy = hierarchy };

		if (level > own)
			break;
		if (!(config->cgroup_levels >> level & 1))
			continue;
		key.id = ancestor_id(group, level);
		if (bpf_map_lookup_elem(&chosen_cgroups, &key))
			return true;
	}
	return false;
}

static __always_inline bool in_cgroups(const volatile struct jp_config *config, struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);

	for (__u32 hierarchy = 0; hierarchy < JP_HIERARCHY_COUNT; hierarchy++)
		if (config->cgroups >> hierarchy & 1 &&
		    lies_in_chosen(config, cgroup_in(set, hierarchy), hierarchy))
			return true;
	return false;
}

#endif
