/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/* An iterator over all threads, which takes the samples of waits that are not over. */
#ifndef JP_UNFINISHED_H
#define JP_UNFINISHED_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "atomic.h"
#include "event_wait.h"
#include "filter.h"
#include "kernel.h"
#include "members.h"
#include "pid_namespace.h"
#include "regs.h"
#include "sample.h"
#include "thread_wait.h"
#include "trace_context.h"
#include "waker.h"

/* The CPU on which a thread ran last, or for which it queues. */
static __always_inline __u32 cpu_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->thread_info.cpu))
		return READ_NUMBER(task, thread_info.cpu);
	return READ_NUMBER(task, cpu);
}

/* The wait of a thread; NULL if it has a CPU. A thread without an entry has been waiting since before the start. */
static __always_inline struct thread_wait *present_wait(struct task_struct *task, const struct jp_wait_control *control)
{
	struct thread_wait *w = wait_of(task);
	__u64 start = BPF_CORE_READ(task, start_time);

	if (w)
		return w->since ? w : NULL;
	if (READ_NUMBER(task, on_cpu) || READ_NUMBER(task, flags) & PF_EXITING)
		return NULL;
	return first_wait(task, start > control->begin ? start : control->begin, wait_state(task, state_now(task)));
}

/* Appends a struct jp_waiting, word by word. */
static __always_inline void push_waiting(struct scratch *s, struct task_struct *task, __u32 tid)
{
	struct regs *r = &s->regs;

	push_word(s, r->ip);
	push_word(s, r->sp);
	push_word(s, r->fp);
	push_word(s, r->ax);
	push_word(s, r->bx);
	push_word(s, r->r13);
	push_word(s, BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw));
	push_word(s, (__u64)own_tid(task) << 32 | tid);
	push_word(s, r->i386);
}

/* What is known of the stack of a thread that waits: its kernel stack, and the registers of its user stack. */
static __always_inline void record_waiting(struct scratch *s, struct task_struct *task, __u32 tid)
{
	__u32 kernel_words;
	long bytes = 0;

	s->hash = config.seed;
	s->end = JP_END_no_user;
	s->record.leaf = JP_LEAF_none;
	s->walk.unknown_code = false;
	__builtin_memset(&s->record.lock, 0, sizeof(s->record.lock));
	s->record.object_class = 0;
	if (config.kernel)
		bytes = bpf_get_task_stack(task, s->words, sizeof(__u64) * JP_MAX_KERNEL_WORDS, 0);
	kernel_words = take_kernel_words(s, bytes);
	if (config.user && BPF_CORE_READ(task, mm) && BPF_CORE_READ(task, mm, start_code)) {
		load_user_regs(&s->regs, task_regs(task));
		if (s->regs.ip && !in_kernel(s->regs.ip)) {
			s->record.leaf = s->regs.syscall ? JP_LEAF_syscall : JP_LEAF_fault;
			s->end = JP_END_unfinished;
			push_waiting(s, task, tid);
		}
	}
	finish_words(s, kernel_words);
	/* The memory of another task cannot be read here. */
	if (config.traces && find_place(task, BPF_CORE_READ(task, tgid))) {
		s->record.context = JP_CONTEXT_unread;
		s->hash = mix(s->hash, JP_CONTEXT_unread);
	}
}

/*
 * Takes the samples of a thread's present wait. At the start of sampling it notes the wait only: later nothing says in which
 * state a thread is that has waited since before.
 */
static __always_inline int sample_unfinished(struct task_struct *task, const bool atomics)
{
	struct jp_wait_control *control = begun_control();
	__u64 now, samples, waker_stack;
	struct wait_part part = {};
	struct thread_wait *w;
	struct taking t;
	__u32 tid, tgid;

	if (!task || !control)
		return 0;
	tid = BPF_CORE_READ(task, pid);
	tgid = BPF_CORE_READ(task, tgid);
	if (!tid || !wanted(&config, task, tgid, tid) || !wanted_on(&config, cpu_of(task)))
		return 0;
	w = present_wait(task, control);
	/* Without atomic operations only after the end, when no other program changes waits. */
	if (!w || control->noting || (!atomics && !control->end))
		return 0;
	now = control->end ? control->end : bpf_ktime_get_ns();
	copy_wait(&part, w);
	/* Before the begin of this part: the wakeup was for none, or it came before the iterator claimed the part before. */
	if (part.woken <= part.since && !is_awake(task))
		part.woken = 0;
	waker_stack = w->waker_stack;
	if (!part.since || now <= part.since)
		return 0;
	/* The part up to now is ours, unless the thread runs again meanwhile. */
	if (atomics) {
		if (compare_exchange(&w->since, part.since, now) != part.since)
			return 0;
	} else {
		w->since = now;
	}
	advance(w, &part, now, control->period, atomics);
	add_waited(&part);
	samples = part.asleep_samples + part.queued_samples;
	if (!samples || !find_counters(&t, JP_EVENT_wait, samples) || !find_scratch(&t, samples))
		return 0;
	record_waiting(t.s, task, tid);
	note_waker(t.s, part.woken, waker_stack);
	bpf_probe_read_kernel(t.s->record.comm, sizeof(t.s->record.comm), task->comm);
	identify_task(t.s, task, (__u64)tgid << 32 | tid, JP_EVENT_wait);
	count_part(&t, &part, t.s->n, control->period);
	give_back(t.s);
	return 0;
}

/* The loader reads this iterator at the end of a profile. */
SEC("iter/task")
int unfinished(struct bpf_iter__task *ctx)
{
	return sample_unfinished(ctx->task, true);
}

/* Before 5.18: the loader reads this one at the end of the run. */
SEC("iter/task")
int unfinished_plain(struct bpf_iter__task *ctx)
{
	return sample_unfinished(ctx->task, false);
}

#endif
