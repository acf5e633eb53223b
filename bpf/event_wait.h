/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Waiting: time in which a thread has no CPU. A switch notes when a thread loses its CPU and why. The waker notes when
 * the thread may run again. The end of a switch, in the thread that runs again, takes the samples. The loader reads an
 * iterator at the end of a profile, which takes the samples of waits that are not over.
 */
#ifndef JP_EVENT_WAIT_H
#define JP_EVENT_WAIT_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "atomic.h"
#include "filter.h"
#include "kernel.h"
#include "lock.h"
#include "pid_namespace.h"
#include "regs.h"
#include "sample.h"
#include "thread_wait.h"
#include "waker.h"

/*
 * Whether the waits of a thread are timed. A thread may move to a chosen cgroup, or its cgroup may become a chosen one:
 * then all threads are timed, and a wait counts if the thread is wanted at its end.
 */
static __always_inline bool is_timed(struct task_struct *task, __u32 tgid, __u32 tid)
{
	return config.cgroups || wanted(&config, task, tgid, tid);
}

/* A wakeup that was noted so long before a switch, in ns, was not for the wait that begins there. */
#define JP_WAKING_NS 5000

/*
 * The thread with this entry (NULL: there was no room for one) loses its CPU now. `waking`: another CPU is waking the thread
 * and waits for the end of the switch. Just before that the waker has noted the wakeup, but not yet marked the thread.
 */
static __always_inline void begin_wait(struct thread_wait *w, __u32 state, __u64 now, bool waking)
{
	if (!w) {
		add_untimed();
		return;
	}
	/* The end of the last wait was not seen: the kernel skipped the program there. */
	if (w->since)
		add_untimed();
	/* The clock of the waker's CPU may be ahead. */
	if (waking || w->woken > now)
		w->woken = now;
	else if (now - w->woken > JP_WAKING_NS)
		w->woken = 0;
	w->woken_at = 0;
	w->waker_stack = 0;
	w->state = state;
	w->queued = JP_STATE_runnable;
	*(volatile __u64 *)&w->since = now;
}

/* sched_switch(preempt, prev, next, prev_state), in `prev` before the switch. prev_state: from 5.18 on. */
SEC("tp_btf/sched_switch") int on_switch(struct raw_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[1];
	__u64 id = bpf_get_current_pid_tgid(), now = note_switch(), bits = 0;
	struct jp_wait_control *control = begun_control();
	struct thread_wait *w;
	__u32 tid = (__u32)id;
	bool waking;

	if (!tid || !control)
		return 0;
	/* Only threads that are timed have an entry. */
	w = wait_of(task);
	if (!w && !is_timed(task, id >> 32, tid))
		return 0;
	/*
	 * `prev_state` is what the task wanted. With a signal pending the task stays runnable, and only the task's own
	 * state says so. Another CPU that wakes the task meanwhile does not write 0 before the switch is over.
	 */
	if (!config.switch_state || (__u32)ctx->args[3])
		bits = state_now(task);
	waking = bits & TASK_WAKING;
	if (bits && config.switch_state)
		bits = (__u32)ctx->args[3];
	if (bits & TASK_DEAD) {
		forget_wait(task);
		return 0;
	}
	if (!w)
		w = add_wait(task, id >> 32);
	if (!control->end) /* else the entry says that the thread had a CPU until now */
		begin_wait(w, ctx->args[0] & 1 ? queued_state(task) : wait_state(task, bits),
			   now, waking);
	return 0;
}

/*
 * sched_waking(task), in the waker: sched_wakeup may come in an interrupt on the CPU on which the thread will run
 * (ttwu_queue_wakelist). The thread itself may still be on its way to its switch, on another CPU: see `copy_wait`.
 */
SEC("raw_tp/sched_waking") int on_waking(struct raw_args *ctx)
{
	struct thread_wait *w = wait_of((struct task_struct *)ctx->args[0]);
	__u64 now, since;

	if (!w)
		return 0;
	now = bpf_ktime_get_ns();
	since = w->since;
	if (since && w->woken > since)
		return 0;
	w->woken = now;
	if (has_sample(w, since, now))
		find_waker(ctx, w);
	return 0;
}

/*
 * sched_wakeup(task): the thread is in a queue now, which may be throttled. Before 6.18: from then on a thread is
 * throttled only on its way to user mode.
 */
SEC("tp_btf/sched_wakeup") int on_wakeup(struct raw_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];
	struct thread_wait *w = wait_of(task);

	if (w && w->since)
		w->queued = queued_state(task);
	return 0;
}

/* sched_wakeup_new(task), in the parent: a new thread waits for its first CPU. */
SEC("raw_tp/sched_wakeup_new") int on_wakeup_new(struct raw_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];
	__u32 tgid = BPF_CORE_READ(task, tgid);

	if (!running_control())
		return 0;
	if (is_timed(task, tgid, BPF_CORE_READ(task, pid)))
		begin_wait(add_wait(task, tgid), JP_STATE_runnable, bpf_ktime_get_ns(), false);
	else /* the iterator may have added an entry while the last thread at this address ended */
		forget_wait(task);
	return 0;
}

/* Counts the stack in the scratch for one state, in which the thread was for `length` ns. */
static __always_inline void count_wait(struct taking *t, __u32 state, __u64 length, __u64 samples, __u64 period)
{
	if (!samples)
		return;
	t->s->record.key.event = JP_EVENT_wait | state << JP_STATE_SHIFT;
	t->s->value.count = samples;
	t->s->value.weight = samples * period;
	t->s->value.estimate = stands_for(length, period);
	t->s->value.longest = length;
	count(t->s, t->c, t->window);
}

/* Counts the stack in the scratch, whose `words` are its words, for both states of a wait. */
static __always_inline void count_part(struct taking *t, const struct wait_part *part, bool words, __u64 period)
{
	if (words) {
		count_wait(t, part->state, part->asleep, part->asleep_samples, period);
		count_wait(t, part->queued_state, part->queued, part->queued_samples, period);
	} else {
		__sync_fetch_and_add(&t->c->filtered, part->asleep_samples + part->queued_samples);
	}
}

/*
 * Takes the samples of the current thread's wait.
 * VERIFIER(5.10): what woke the thread is read from its entry, which does not change before the next switch. In `part` it
 * would take too much of the 512 bytes of stack of a whole chain of calls. Noticed by: vmtest's case `waits`.
 */
static __always_inline void sample_wait(void *ctx, const struct wait_part *part, const struct thread_wait *w, __u64 period)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u64 samples = part->asleep_samples + part->queued_samples;
	struct taking t;

	if (!find_counters(&t, JP_EVENT_wait, samples) || !find_scratch(&t, samples))
		return;
	/* An address in the kernel: the thread is in the scheduler, and its user registers are saved. */
	t.s->regs.ip = ~0ULL;
	if (walk(ctx, t.s, task)) {
		if (part->asleep_samples)
			find_lock(t.s->walk.slot, w->woken_at && w->woken_at == futex_address() ? w->waker : 0,
				  own_tid(task));
		note_waker(t.s, wakeup_of(w), w->waker_stack);
		identify(t.s, task, JP_EVENT_wait);
		note_context(t.s);
	}
	count_part(&t, part, t.s->n, period);
	give_back(t.s);
}

/* Takes the wait of the current thread, which has had a CPU since `now`. */
static __always_inline void take_wait(void *ctx, struct task_struct *task, struct thread_wait *w, __u64 now, __u64 period,
				      const bool atomics)
{
	struct wait_part part = {};

	copy_wait(&part, w);
	/* The iterator may have claimed a part of the wait just now. */
	if (atomics)
		part.since = exchange(&w->since, 0);
	else
		w->since = 0;
	if (!part.since || now <= part.since)
		return;
	if (config.cgroups) {
		__u64 id = bpf_get_current_pid_tgid();

		if (!wanted(&config, task, id >> 32, (__u32)id))
			return;
	}
	/* A wait belongs to the CPU on which its thread runs again. */
	if (!wanted_on(&config, bpf_get_smp_processor_id()))
		return;
	advance(w, &part, now, period, atomics);
	add_waited(&part);
	if (part.asleep_samples || part.queued_samples)
		sample_wait(ctx, &part, w, period);
}

/* The current thread has a CPU again: its wait is over. */
static __always_inline int end_wait(void *ctx, const bool atomics)
{
	__u64 id = bpf_get_current_pid_tgid(), now = last_switch();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	/*
	 * After the end of sampling this takes the parts of waits up to the end, until the iterator has taken the others.
	 * Without atomic operations only the iterator may.
	 */
	struct jp_wait_control *control = atomics ? begun_control() : running_control();
	struct thread_wait *w;
	__u32 tid = (__u32)id;

	if (!tid || !control)
		return 0;
	if (control->end && control->end < now)
		now = control->end;
	w = wait_of(task);
	if (!w) {
		/* The thread has been waiting since before the start: no switch was seen. */
		if (BPF_CORE_READ(task, start_time) > control->begin || !is_timed(task, id >> 32, tid))
			return 0;
		w = first_wait(task, control->begin, JP_STATE_sleeping);
		if (!w)
			return 0;
	}
	take_wait(ctx, task, w, now, control->period, atomics);
	/* A wakeup that is seen from now on is for the next wait, or for none. */
	w->woken = 0;
	return 0;
}

/* sched_exit(is_switch), from 6.15 on: after the switch, without the lock of the run queue. */
SEC("raw_tp/sched_exit_tp") int on_sched_exit(struct raw_args *ctx)
{
	return ctx->args[0] & 1 ? end_wait(ctx, true) : 0;
}

/* Before 6.15. The loader attaches the program to the name that kallsyms has, with or without `.isra.0`. */
SEC("kprobe") int on_finish_switch(struct pt_regs *ctx)
{
	return end_wait(ctx, true);
}

/* Before 5.18. */
SEC("kprobe") int on_finish_switch_plain(struct pt_regs *ctx)
{
	return end_wait(ctx, false);
}

#endif
