/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * An iterator that lists the group of each process in each hierarchy with chosen groups, and whether the filter wants
 * that group.
 */
#ifndef JP_MEMBERS_H
#define JP_MEMBERS_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "cgroup.h"
#include "kernel.h"
#include "sample.h"

#define PF_EXITING 0x4 /* include/linux/sched.h */

/* The loader reads this iterator, to compare the filter's view with /proc. Events do not run it. */
SEC("iter/task")
int members(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct jp_member member = {};

	if (!task)
		return 0;
	member.tgid = BPF_CORE_READ(task, tgid);
	/*
	 * Exiting tasks are left out, because /proc can differ: v1 shows them in the root group. A first thread that
	 * ended before the others keeps its group when those are moved.
	 */
	if (BPF_CORE_READ(task, pid) != member.tgid || READ_NUMBER(task, flags) & PF_EXITING)
		return 0;
	for (int hierarchy = 0; hierarchy < JP_HIERARCHY_COUNT; hierarchy++) {
		struct cgroup *group;

		if (!(config.cgroups >> hierarchy & 1))
			continue;
		group = cgroup_in(BPF_CORE_READ(task, cgroups), hierarchy);
		member.hierarchy = hierarchy;
		member.id = BPF_CORE_READ(group, kn, id);
		member.wanted = lies_in_chosen(&config, group, hierarchy);
		bpf_seq_write(ctx->meta->seq, &member, sizeof(member));
	}
	return 0;
}

#endif
