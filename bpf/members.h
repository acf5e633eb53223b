/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* Which processes are in chosen cgroups, as the filter sees it. */
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

/* Run by no event: the loader reads it, to compare with /proc what the filter sees. */
SEC("iter/task")
int members(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct jp_member member = {};

	if (!task)
		return 0;
	member.tgid = BPF_CORE_READ(task, tgid);
	/*
	 * Of what has ended v1 shows the root to /proc, and a first thread that has ended before the others stays behind when
	 * they are moved: neither tells whether both see the same.
	 */
	if (BPF_CORE_READ(task, pid) != member.tgid || BPF_CORE_READ(task, flags) & PF_EXITING)
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
