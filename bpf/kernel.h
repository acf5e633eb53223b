/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* The few kernel fields used, declared by hand: CO-RE relocates them by name on the kernel that runs. */
#ifndef JP_KERNEL_H
#define JP_KERNEL_H

#include <linux/types.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id; /* one u64 since 5.5 */
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct mm_struct {
	unsigned long start_code;
	unsigned long end_code;
	unsigned long start_stack;
};

struct task_struct {
	void *stack;
	struct mm_struct *mm;
	int tgid;
	__u64 start_boottime; /* 5.5: was real_start_time */
	__u64 self_exec_id;   /* 5.7: was a u32 */
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct css_set *cgroups;
};

#pragma clang attribute pop

#endif
