/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * The waits of threads, and which of them are sampled.
 *
 * All waits of a thread, one after the other, are its timeline. The timeline is cut into blocks of one period, and each
 * block has one mark at a random place. A wait that covers a mark is a sample, whose weight is the period. So
 *   - each nanosecond of waiting is sampled with the same probability, in waits of any length and order;
 *   - the samples of a thread add up to its waiting time, within one period;
 *   - a wait of any length costs the same: its first block, the number of whole blocks, and its last block.
 * A mark's place is a hash of the thread and the block's number, so that a thread has no state but its place.
 */
#ifndef JP_THREAD_WAIT_H
#define JP_THREAD_WAIT_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "atomic.h"
#include "kernel.h"
#include "marks.h"
#include "sample.h"

struct thread_wait {
	__u64 start;  /* start_boottime of the thread */
	__u64 since;  /* when the part of the wait began that has no samples yet; 0: the thread has a CPU */
	__u64 woken;  /* when the thread was woken since its last wait; 0: not seen */
	__u64 place;  /* on the timeline: nanoseconds of waiting that have been looked at */
	__u32 state;  /* enum jp_state before the wakeup */
	__u32 queued; /* enum jp_state after the wakeup */
	/*
	 * The futex of the system call of the thread that woke this one, and that thread's tid; 0: no futex, or a thread
	 * of another process. The thread was the waker, and not only interrupted by a timer, if both have the same futex.
	 */
	__u64 woken_at;
	__u32 waker;
	__u32 tgid; /* of the thread itself */
	__u64 waker_stack; /* the id of the stack that ended the wait (jp_record.waker); 0: not recorded */
};

/*
 * The address of a thread's task_struct -> its wait. All hooks have this address, while a read of the tid would cost as
 * much as the lookup; and an exec, which may change the tid, keeps it. Preallocated, since the programs run where the
 * kernel cannot allocate memory; not LRU, which would drop the longest waits first. The loader sets the size: twice the
 * threads of the host, in 16,384..262,144. Full: the wait is counted as jp_waited.untimed. A thread's end deletes its
 * entry, before the kernel can use the address again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct thread_wait);
} thread_waits SEC(".maps");

/* 0 -> the loader's control. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct jp_wait_control);
} wait_control SEC(".maps");

/* 0 -> 1 once `thread_waits` was full (E2BIG). From then on a thread without an entry may have had waits that were not seen. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} waits_unseen SEC(".maps");

/* 0 -> the switches of each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct jp_switches);
} switches SEC(".maps");

/* parity -> waiting time on each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, JP_PARITIES);
	__type(key, __u32);
	__type(value, struct jp_waited);
} waited SEC(".maps");

/* The control from the start of sampling on; NULL before. */
static __always_inline struct jp_wait_control *begun_control(void)
{
	__u32 zero = 0;
	struct jp_wait_control *control = bpf_map_lookup_elem(&wait_control, &zero);

	/* A period of 0 would divide by zero. */
	return control && control->begin && control->period ? control : NULL;
}

/* The control while sampling runs; NULL otherwise. */
static __always_inline struct jp_wait_control *running_control(void)
{
	struct jp_wait_control *control = begun_control();

	return control && !control->end ? control : NULL;
}

/* Notes that this CPU switches now; returns the time. */
static __always_inline __u64 note_switch(void)
{
	__u64 now = bpf_ktime_get_ns();
	struct jp_switches *own;
	__u32 zero = 0;

	own = bpf_map_lookup_elem(&switches, &zero);
	if (own) {
		own->last = now;
		own->number++;
	}
	return now;
}

/* When this CPU switched last. A read of the clock would cost as much as a lookup in `thread_waits`. */
static __always_inline __u64 last_switch(void)
{
	__u32 zero = 0;
	struct jp_switches *own = bpf_map_lookup_elem(&switches, &zero);

	return own ? own->last : 0;
}

static __always_inline struct jp_waited *waited_in(__u32 window)
{
	return bpf_map_lookup_elem(&waited, &window);
}

/* The seed of the marks of the thread with this entry. */
static __always_inline __u64 marks_seed(const struct thread_wait *w)
{
	return mix(config.seed, w->start);
}

/* The entry of a thread; NULL if it has none. */
static __always_inline struct thread_wait *wait_of(struct task_struct *task)
{
	__u64 key = (__u64)task;

	return bpf_map_lookup_elem(&thread_waits, &key);
}

/* A new entry of a thread, which does not wait. NULL if the map is full. */
static __always_inline struct thread_wait *add_wait(struct task_struct *task, __u32 tgid)
{
	struct thread_wait first = { .start = BPF_CORE_READ(task, start_boottime), .tgid = tgid };
	__u64 key = (__u64)task;
	__u32 zero = 0, *unseen = bpf_map_lookup_elem(&waits_unseen, &zero);

	if (bpf_map_update_elem(&thread_waits, &key, &first, BPF_ANY) == -E2BIG && unseen)
		*unseen = 1;
	return bpf_map_lookup_elem(&thread_waits, &key);
}

static __always_inline void forget_wait(struct task_struct *task)
{
	__u64 key = (__u64)task;

	bpf_map_delete_elem(&thread_waits, &key);
}

/* Whether the quota of the task's cgroup is used up. */
static __always_inline bool is_throttled(struct task_struct *task)
{
	if (bpf_core_field_exists(task->throttled))
		return BPF_CORE_READ_BITFIELD(task, throttled);
	if (bpf_core_field_exists(task->se.cfs_rq) && bpf_core_field_exists(((struct cfs_rq *)0)->throttle_count)) {
		struct cfs_rq *queue = BPF_CORE_READ(task, se.cfs_rq);

		return READ_NUMBER(queue, throttle_count);
	}
	return false;
}

/* The state of a task that can run and has no CPU. */
static __always_inline __u32 queued_state(struct task_struct *task)
{
	return is_throttled(task) ? JP_STATE_throttled : JP_STATE_runnable;
}

/* A wait, or the part of it that has no samples yet. Times in ns. */
struct wait_part {
	__u32 state;         /* before the wakeup */
	__u32 queued_state;  /* after it */
	__u64 since;
	__u64 woken;         /* 0: not yet */
	__u64 asleep;        /* before the wakeup */
	__u64 queued;        /* after it */
	__u64 asleep_samples;
	__u64 queued_samples;
};

/* Whether a thread in this state needs a wakeup. */
static __always_inline bool sleeps(__u32 state)
{
	return state == JP_STATE_sleeping || state == JP_STATE_blocked;
}

/* When the thread was woken in its present wait; 0: not seen, or it needs no wakeup. */
static __always_inline __u64 wakeup_of(const struct thread_wait *w)
{
	return sleeps(w->state) ? w->woken : 0;
}

/*
 * Copies the present wait of a thread. The iterator does so before it claims the wait by its `since`: a thread that runs
 * again and waits anew meanwhile has another one.
 *
 * A wakeup before the begin of the wait came on another CPU, while the thread was on its way to its switch: `advance` takes
 * the begin instead, and the thread was in a queue all the time. A wakeup that was not seen at all (the kernel does not run
 * the program in each interrupt) leaves the whole wait asleep.
 */
static __always_inline void copy_wait(struct wait_part *part, struct thread_wait *w)
{
	part->since = *(volatile __u64 *)&w->since;
	part->state = w->state;
	part->woken = wakeup_of(w);
	part->queued_state = w->queued;
}

/* Moves the thread along its timeline by its wait until `now`. `atomics`: the kernel has those of atomic.h. */
static __always_inline void advance(struct thread_wait *w, struct wait_part *part, __u64 now, __u64 period,
				    const bool atomics)
{
	__u64 seed = marks_seed(w), woken = part->woken, length = now - part->since, from;

	if (woken && woken < part->since)
		woken = part->since;
	part->queued = woken && woken < now ? now - woken : 0;
	part->asleep = length - part->queued;
	if (atomics) {
		from = fetch_add(&w->place, length);
	} else {
		from = w->place;
		w->place = from + length;
	}
	split_marks(seed, from, from + part->asleep, from + length, period, &part->asleep_samples, &part->queued_samples);
}

/* Atomic, because a switch on this CPU can run the program in the middle of the iterator. */
static __always_inline void add_time(struct jp_waited *sums, __u64 state, __u64 ns)
{
	/* VERIFIER(5.10): the compiler must check and use one register. Noticed by: vmtest's case `waits`. */
	asm volatile("" : "+r"(state));
	if (state < JP_STATE_COUNT)
		__sync_fetch_and_add(&sums->ns[state], ns);
}

/* Adds the part's times to the sums of this window. */
static __always_inline void add_waited(const struct wait_part *part)
{
	struct jp_waited *sums = waited_in(*(volatile __u32 *)&parity & 1);

	if (!sums)
		return;
	add_time(sums, part->state, part->asleep);
	add_time(sums, part->queued_state, part->queued);
}

/* Counts a wait whose time is not measured. */
static __always_inline void add_untimed(void)
{
	struct jp_waited *sums = waited_in(*(volatile __u32 *)&parity & 1);

	if (sums)
		__sync_fetch_and_add(&sums->untimed, 1);
}

/*
 * An entry for a thread that has none, and has been waiting since before the start; NULL if that is not certain. The
 * thread and the iterator may both come here: one of them inserts the entry, and `since` says whose the wait is.
 * VERIFIER(5.10): a function of its own, or its stack would add to that of the unwinder: a whole chain of calls has 512
 * bytes. Noticed by: vmtest's case `waits`.
 */
static __attribute__((noinline)) struct thread_wait *first_wait(struct task_struct *task, __u64 since, __u32 state)
{
	struct thread_wait first = { .since = since, .state = state, .queued = JP_STATE_runnable }, *w;
	__u32 zero = 0, *unseen = bpf_map_lookup_elem(&waits_unseen, &zero);
	__u64 key = (__u64)task;

	first.start = BPF_CORE_READ(task, start_boottime);
	first.tgid = BPF_CORE_READ(task, tgid);
	if (unseen && !*unseen && bpf_map_update_elem(&thread_waits, &key, &first, BPF_NOEXIST) == -E2BIG)
		*unseen = 1;
	w = bpf_map_lookup_elem(&thread_waits, &key);
	if (!w)
		add_untimed();
	return w;
}

/* Bits of a task's state (include/linux/sched.h), the same from 5.10 on. */
#define TASK_UNINTERRUPTIBLE 0x02
#define TASK_DEAD 0x80
#define TASK_WAKING 0x200
#define TASK_NOLOAD 0x400 /* with TASK_UNINTERRUPTIBLE: an idle kernel thread */

static __always_inline __u64 state_now(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ_BITFIELD(task, __state);
	return ((struct task_struct___state *)task)->state;
}

/* Whether a task with a wait that is not over has been woken, and queues for a CPU. */
static __always_inline bool is_awake(struct task_struct *task)
{
	__u64 bits = state_now(task);

	return !bits || (bits & TASK_WAKING);
}

/* Why a task with these bits has no CPU. */
static __always_inline __u32 wait_state(struct task_struct *task, __u64 bits)
{
	if (!bits)
		return queued_state(task);
	if ((bits & TASK_UNINTERRUPTIBLE) && !(bits & TASK_NOLOAD))
		return JP_STATE_blocked;
	return JP_STATE_sleeping;
}

#endif
