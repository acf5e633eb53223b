/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* The kernel fields that the program uses. CO-RE relocates them by name on the running kernel. */
#ifndef JP_KERNEL_H
#define JP_KERNEL_H

#include <stdbool.h>
#include <linux/types.h>

/*
 * Reads a number of the kernel in the size that it has there. BPF_CORE_READ reads as many bytes as the type below has:
 * too many since the scheduler made `on_cpu` a byte (7.x).
 */
#define READ_NUMBER(from, field) ((__u64)BPF_CORE_READ_BITFIELD_PROBED(from, field))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id; /* one u64 since 5.5 */
};

struct cgroup {
	struct kernfs_node *kn;
	int level;                  /* the root of its hierarchy is 0 */
	struct cgroup *ancestors[]; /* by level, the group itself included; before 6.1: ancestor_ids */
};

struct cgroup___ids {
	int level;
	__u64 ancestor_ids[];
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

/* A kernel's build configuration decides which controllers it has, and so their numbers. */
enum cgroup_subsys_id {
	cpuset_cgrp_id,
	cpu_cgrp_id,
	cpuacct_cgrp_id,
	io_cgrp_id,
	memory_cgrp_id,
	devices_cgrp_id,
	freezer_cgrp_id,
	net_cls_cgrp_id,
	perf_event_cgrp_id,
	net_prio_cgrp_id,
	hugetlb_cgrp_id,
	pids_cgrp_id,
	rdma_cgrp_id,
	misc_cgrp_id,
};

struct css_set {
	struct cgroup_subsys_state *subsys[1]; /* by enum cgroup_subsys_id */
	struct cgroup *dfl_cgrp;               /* the v2 group */
};

/* Of uprobes: kernels without uprobes lack these types. */
struct xol_area {
	unsigned long vaddr;
};

struct uprobes_state {
	struct xol_area *xol_area;
};

struct return_instance {
	unsigned long stack; /* x86: the stack slot of the return address */
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};

struct uprobe_task {
	unsigned long vaddr;     /* the instruction whose copy runs at xol_vaddr */
	unsigned long xol_vaddr;
	struct return_instance *return_instances;
};

struct kernel_counter {
	int counter;
};

struct percpu_counter {
	__s64 count; /* without what each CPU has not added yet */
};

struct mm_struct {
	unsigned long start_code;
	unsigned long end_code;
	unsigned long start_stack;
	struct uprobes_state uprobes_state;
	struct kernel_counter mm_users;
	struct percpu_counter rss_stat[4]; /* before 6.2: see mm_struct___plain */
};

struct kernel_long_counter {
	__s64 counter;
};

struct mm_rss_stat {
	struct kernel_long_counter count[4];
};

struct mm_struct___plain {
	struct mm_rss_stat rss_stat;
};

struct pid_namespace;

struct upid {
	int nr;
	struct pid_namespace *ns;
};

/* A thread's ids, one for each level of pid namespaces that it is in. */
struct pid {
	unsigned int level;
	struct upid numbers[1];
};

/* A queue of runnable tasks. */
struct cfs_rq {
	int throttle_count; /* how many of its cgroup and the groups above are throttled */
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct thread_info {
	unsigned int cpu;    /* from 5.16 on; before: task_struct.cpu */
	unsigned int status; /* x86 */
};

/* The thread pointer of user code, as of the last switch to another task or the last system call that set it. */
struct thread_struct {
	unsigned long fsbase; /* x86 */
	struct {
		unsigned long tp_value;
	} uw; /* arm64 */
};

struct task_struct {
	struct thread_info thread_info;
	void *stack;
	unsigned int __state; /* before 5.14: see task_struct___state */
	unsigned int flags;
	struct mm_struct *mm;
	int pid;
	int tgid;
	__u64 start_time;     /* CLOCK_MONOTONIC */
	__u64 start_boottime; /* before 5.5: real_start_time */
	__u64 self_exec_id;   /* before 5.7: a u32 */
	__u64 parent_exec_id; /* self_exec_id of the parent at the fork */
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	struct pid *thread_pid;
	struct css_set *cgroups;
	struct uprobe_task *utask;
	int on_cpu;
	unsigned long nvcsw;  /* switches away from the task, voluntary and not */
	unsigned long nivcsw;
	unsigned int cpu;     /* before 5.16 */
	char comm[16];
	struct sched_entity se;
	bool throttled;       /* from 6.18 on: off its queue, because the quota is used up */
	struct thread_struct thread;
};

struct task_struct___state {
	long state;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
