/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Who ended a wait: the stack of the thread, or of the interrupt, that woke the waiting thread. Only wakers of waits that
 * have a sample are recorded. Such a stack is a record without samples; records of waits refer to it.
 */
#ifndef JP_WAKER_H
#define JP_WAKER_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "marks.h"
#include "mix.h"
#include "regs.h"
#include "sample.h"
#include "thread_wait.h"

/* The id of a stack that was not recorded. */
#define JP_WAKER_UNSEEN 1

/* Whether the wait of a thread, which begins at `since` (0: the thread has a CPU), has a sample up to `now`. */
static __always_inline bool has_sample(const struct thread_wait *w, __u64 since, __u64 now)
{
	struct jp_wait_control *control = running_control();
	__u64 from = w->place;

	return control && since && since < now && sleeps(w->state) &&
	       marks(marks_seed(w), from, from + (now - since), control->period);
}

/* Records the stack of the current task, which wakes the thread of this entry. */
static __always_inline void record_waker(void *ctx, struct thread_wait *w)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct taking t;

	if (!find_counters(&t, JP_EVENT_wait, 0) || !find_scratch(&t, 0))
		return;
	/* An address in the kernel: the task is in a system call, or an interrupt came. */
	t.s->regs.ip = ~0ULL;
	if (walk(ctx, t.s, task)) {
		identify(t.s, task, JP_EVENT_wait);
		t.s->record.waker = mix(mix(t.s->hash, t.s->record.key.tgid), t.s->record.key.comm);
		w->waker_stack = t.s->record.waker;
		t.s->value = (struct jp_value){};
		count(t.s, t.c, t.window);
	}
	give_back(t.s);
}

/* Notes what the current task, which wakes the thread of this entry, says about the end of the wait. */
static __always_inline void find_waker(void *ctx, struct thread_wait *w)
{
	__u64 id = bpf_get_current_pid_tgid(), address = id >> 32 == w->tgid ? futex_address() : 0;

	if (address) {
		w->woken_at = address;
		w->waker = (__u32)id;
	}
	if (config.wakers)
		record_waker(ctx, w);
}

/* Writes the waker of a wait into the record, and into the hash of the stack. */
static __always_inline void note_waker(struct scratch *s, bool woken, __u64 waker_stack)
{
	if (!config.wakers || !woken)
		return;
	s->record.waker = waker_stack ? waker_stack : JP_WAKER_UNSEEN;
	s->hash = mix(s->hash, s->record.waker);
}

#endif
