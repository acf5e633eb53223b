/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* The id of a thread in its own pid namespace, by which the thread's own process knows it. */
#ifndef JP_PID_NAMESPACE_H
#define JP_PID_NAMESPACE_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "kernel.h"

static __always_inline __u32 own_tid(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct pid *numbers = NULL;
	__u64 at = bpf_core_field_offset(numbers->numbers);
	__u32 number = 0;

	at += (__u64)BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid);
	bpf_probe_read_kernel(&number, sizeof(number), (void *)pid + at);
	return number;
}

#endif
