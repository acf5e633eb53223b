/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Takes a sample of any event: counts and filters it, unwinds the kernel stack and the user stack, and adds one to the
 * stack's counter. The program sends a stack to user space only if the stack is new in its window. Ticks of idle CPUs
 * are only counted.
 */
#ifndef JP_SAMPLE_H
#define JP_SAMPLE_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "cgroup.h"
#include "filter.h"
#include "idle.h"
#include "kernel.h"
#include "regs.h"
#include "scratch.h"
#include "trace_context.h"
#include "walk.h"

#define EEXIST 17
#define E2BIG 7
#define JP_WAKE_EVERY 50000000 /* ns */

const volatile struct jp_config config;

/*
 * The window's parity: which of the two count maps and sets of counters the program writes. The loader flips the
 * parity. Then it updates `counts`, which waits until every program has ended that read the old value.
 */
__u32 parity;

/*
 * 0 -> when the program last woke the loader because of code that the loader has not loaded: a process began, or mapped
 * a file. Programs read and write the time without synchronization, because waking the loader twice does no harm.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} woken SEC(".maps");

/* parity and event -> counters of each CPU. After the flip they are final: the loader reads them and sets them to 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, JP_PARITIES * JP_EVENT_NUMBERS);
	__type(key, __u32);
	__type(value, struct jp_counters);
} counters SEC(".maps");

/* number of an event -> how it is sampled, of events whose programs are attached for the whole run. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JP_EVENT_NUMBERS);
	__type(key, __u32);
	__type(value, struct jp_event_control);
} event_controls SEC(".maps");

/*
 * number of such an event -> its progress on each CPU: the occurrences or bytes that no sample stands for yet; of `alloc`
 * and `native-alloc`, the place on the timeline of their bytes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, JP_EVENT_NUMBERS);
	__type(key, __u32);
	__type(value, __s64);
} progress SEC(".maps");

/*
 * parity -> (stack -> count). The program writes the maps; the loader empties one after the flip. The loader creates
 * the inner maps with 2 x (rate x CPUs x window, with waits also the threads of the host) entries, in 1,024..1,048,576; a
 * sample adds at most one entry. Full: the sample is lost as counts_full.
 */
struct count_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	/* Sizes and not types, because clang emits only a forward declaration of types behind two pointers. */
	__uint(key_size, sizeof(struct jp_key));
	__uint(value_size, sizeof(struct jp_value));
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, JP_PARITIES);
	__type(key, __u32);
	__array(values, struct count_map);
} counts SEC(".maps");

/*
 * New stacks: struct jp_record and its words. The loader reads the ring at the end of each window, or when it is half
 * full. The loader sets its size: half of that number x 1 KiB, in 1..64 MiB. Full: the sample is lost as ring_full.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} stacks SEC(".maps");

/* A global function, so that its stack does not add to that of the unwinder. */
__attribute__((noinline)) int start_walk(__u32 slot)
{
	struct scratch *s = scratch_at(slot);

	if (s)
		begin_walk(s, &s->regs, (struct task_struct *)bpf_get_current_task(), bpf_get_current_pid_tgid() >> 32);
	return 0;
}

/* Unwinds the user stack from `regs` on. A global function: the verifier checks it once, not once for each event. */
__attribute__((noinline)) int walk_stack(__u32 slot)
{
	struct scratch *s = scratch_at(slot);

	if (!s)
		return 0;
	start_walk(slot);
	walk_frames(s);
	return 0;
}

/* Counts the kernel words, the first in the scratch, of which the kernel wrote this many bytes (negative: an error). */
static __always_inline __u32 take_kernel_words(struct scratch *s, long bytes)
{
	__u32 kernel_words = 0;

	if (bytes > 0 && bytes <= sizeof(__u64) * JP_MAX_KERNEL_WORDS)
		kernel_words = bytes / sizeof(__u64);
	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_MAX_KERNEL_WORDS; i++) {
		if (i >= kernel_words)
			break;
		s->hash = mix(s->hash, s->words[i]);
	}
	s->n = kernel_words;
	return kernel_words;
}

/* Writes the counts of words, of which the first are the kernel's, and the end of the hash. */
static __always_inline void finish_words(struct scratch *s, __u32 kernel_words)
{
	s->record.kernel_words = kernel_words;
	s->record.user_words = s->n - kernel_words;
	s->record.end = s->end;
	__builtin_memset(&s->record.lock, 0, sizeof(s->record.lock));
	s->record.waker = 0;
	s->record.object_class = 0;
	s->record.context = JP_CONTEXT_none;
	s->hash = mix(s->hash, (__u64)s->record.leaf << 32 | s->end << 16 | kernel_words);
}

/* Collects the kernel words and user words of `task` from `regs` on; false if there are no words. */
static __always_inline bool walk(void *ctx, struct scratch *s, struct task_struct *task)
{
	struct regs *r = &s->regs;
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	bool kernel = in_kernel(r->ip);
	__u32 kernel_words = 0;

	s->n = 0;
	s->end = JP_END_no_user;
	s->hash = config.seed;
	s->walk.seed = mix(config.seed, bpf_ktime_get_ns() >> JP_STEPS_AGE_SHIFT);
	s->record.leaf = JP_LEAF_none;
	s->walk.unknown_code = false;
	if (kernel && config.kernel) {
		long bytes = bpf_get_stack(ctx, s->words, sizeof(__u64) * JP_MAX_KERNEL_WORDS, 0);

		kernel_words = take_kernel_words(s, bytes);
	}
	/*
	 * During an exec the new program has no code yet, and the registers are those with which the old program made
	 * the system call. The kernel sets start_code when all code is mapped, just before it sets the registers.
	 */
	if (config.user && mm && BPF_CORE_READ(mm, start_code)) {
		s->record.leaf = JP_LEAF_user;
		if (kernel) {
			user_regs(r, task);
			/* At the end of an exec: ip is the first instruction, not a return address. */
			if (r->sp == BPF_CORE_READ(mm, start_stack))
				r->syscall = false;
			s->record.leaf = r->syscall ? JP_LEAF_syscall : JP_LEAF_fault;
		}
		if (r->ip)
			walk_stack(s->walk.slot);
		else
			s->record.leaf = JP_LEAF_none; /* an io_uring worker has user memory but no user code */
	}
	finish_words(s, kernel_words);
	return s->n;
}

/* Writes the key of a stack of `task`, whose comm is in the record. `id`: tgid and tid. */
static __always_inline void identify_task(struct scratch *s, struct task_struct *task, __u64 id, __u32 event)
{
	struct jp_key *key = &s->record.key;
	__u64 *comm = (__u64 *)s->record.comm;
	struct cgroup *group = cgroup_in(BPF_CORE_READ(task, cgroups), config.naming);

	key->start = BPF_CORE_READ(task, group_leader, start_boottime);
	key->cgroup = BPF_CORE_READ(group, kn, id);
	key->stack = s->hash;
	key->comm = mix(mix(config.seed, comm[0]), comm[1]);
	key->tgid = id >> 32;
	key->tid = config.threads ? (__u32)id : 0;
	key->exec = (__u32)BPF_CORE_READ(task, self_exec_id);
	key->event = event;
}

/* Writes the key of a stack of `task`, the current one. */
static __always_inline void identify(struct scratch *s, struct task_struct *task, __u32 event)
{
	bpf_get_current_comm(s->record.comm, sizeof(s->record.comm));
	identify_task(s, task, bpf_get_current_pid_tgid(), event);
}

/* Adds the trace context of the current task to the stack, whose key is complete. */
static __always_inline void note_context(struct scratch *s)
{
	/* A worker of io_uring has no user code, but the thread pointer of the thread that made it. */
	if (config.traces && !(config.user && s->record.leaf == JP_LEAF_none))
		read_context(s->walk.slot);
}

/* Whether to wake the loader so that it looks for new processes and mappings. */
static __always_inline bool needs_wakeup(struct scratch *s, __u64 now)
{
	__u32 zero = 0;
	__u64 *last = bpf_map_lookup_elem(&woken, &zero);

	if (!s->walk.unknown_code || !last || now - *last < JP_WAKE_EVERY)
		return false;
	*last = now;
	return true;
}

/* Sends the stack to the loader; false if the ring is full. */
static __always_inline bool send_stack(struct scratch *s, __u32 window)
{
	struct jp_record *record = &s->record;
	__u64 size = sizeof(*record) + sizeof(__u64) * s->n;
	__u64 flags = BPF_RB_NO_WAKEUP;

	record->version = JP_ABI_VERSION;
	record->window = window;
	record->ktime = bpf_ktime_get_ns();
	if (bpf_ringbuf_query(&stacks, BPF_RB_AVAIL_DATA) > config.ring_half || needs_wakeup(s, record->ktime))
		flags = BPF_RB_FORCE_WAKEUP;
	/*
	 * VERIFIER(5.10): n was read from the map, so its bound must be stated again, of the register that is passed on.
	 * Noticed by: the load itself.
	 */
	asm volatile("" : "+r"(size));
	if (size > sizeof(*record) + sizeof(s->words))
		return false;
	return bpf_ringbuf_output(&stacks, record, size, flags) == 0;
}

/*
 * Adds to a sum.
 * VERIFIER(5.10): the compiler makes another atomic operation of a constant 0, and 5.10 has none but this one. Noticed
 * by: vmtest's case `waits`.
 */
static __always_inline void add(__u64 *sum, __u64 n)
{
	if (n)
		__sync_fetch_and_add(sum, n);
}

/*
 * Adds the value in the scratch to the stack's count. Two CPUs may write `longest` at the same time; then the shorter of
 * both may stay.
 */
static __always_inline void count(struct scratch *s, struct jp_counters *c, __u32 window)
{
	struct jp_value *one = &s->value, *value;
	void *map = bpf_map_lookup_elem(&counts, &window);
	long err;

	if (!map) {
		add(&c->lost[JP_LOSS_no_scratch], one->count);
		return;
	}
	value = bpf_map_lookup_elem(map, &s->record.key);
	if (!value) {
		if (!send_stack(s, window)) {
			add(&c->lost[JP_LOSS_ring_full], one->count);
			return;
		}
		err = bpf_map_update_elem(map, &s->record.key, one, BPF_NOEXIST);
		if (!err)
			return;
		if (err == -EEXIST) /* another CPU inserted it first */
			value = bpf_map_lookup_elem(map, &s->record.key);
		if (!value) {
			add(&c->lost[err == -E2BIG ? JP_LOSS_counts_full : JP_LOSS_counts_busy], one->count);
			return;
		}
	}
	add(&value->count, one->count);
	add(&value->weight, one->weight);
	add(&value->estimate, one->estimate);
	if (value->longest < one->longest)
		value->longest = one->longest;
}

/* A sample in progress. */
struct taking {
	struct scratch *s;
	struct jp_counters *c;
	__u32 window;
	__u32 event;
};

/*
 * Finds the counters of `event` in this window, and counts `n` samples. Counters are added to atomically: a switch can
 * interrupt the iterator of waits on its CPU, and an interrupt or another task the program of a probe.
 */
static __always_inline bool find_counters(struct taking *t, __u32 event, __u64 n)
{
	__u32 place;

	t->window = *(volatile __u32 *)&parity & 1;
	place = t->window * JP_EVENT_NUMBERS + event;
	t->event = event;
	t->c = bpf_map_lookup_elem(&counters, &place);
	if (!t->c)
		return false;
	add(&t->c->ticks, n);
	return true;
}

/* Finds a free scratch; false if there is none: the `n` samples are lost. */
static __always_inline bool find_scratch(struct taking *t, __u64 n)
{
	t->s = take_scratch();
	if (!t->s)
		add(&t->c->lost[JP_LOSS_nested], n);
	return t->s;
}

/*
 * Begins `n` samples of the current task for `event`, which came at `ip`; false if they are not wanted or are lost.
 * The caller then loads the registers into the scratch and calls `end_samples`. Each event's program inlines both
 * functions, because the types of their contexts differ; the unwinder is not inlined.
 * VERIFIER(5.10): the registers go directly to the scratch. On the stack they would take 64 of the 512 bytes that a
 * whole chain of calls may use. Noticed by: the load itself.
 */
static __always_inline bool begin_samples(struct taking *t, __u32 event, __u64 ip, __u64 n)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (!find_counters(t, event, n))
		return false;
	if (!wanted(&config, task, id >> 32, (__u32)id)) {
		add(&t->c->filtered, n);
		return false;
	}
	if (event == JP_EVENT_cpu && !(__u32)id && is_idle_address(ip)) {
		t->c->idle++;
		return false;
	}
	return find_scratch(t, n);
}

/* Unwinds from the registers in the scratch, and counts the stack `n` times; `weight`: of all, in the unit of the event. */
static __always_inline int end_samples(struct taking *t, void *ctx, __u64 n, __u64 weight)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (walk(ctx, t->s, task)) {
		identify(t->s, task, t->event);
		note_context(t->s);
		t->s->value = (struct jp_value){ .count = n, .weight = weight };
		count(t->s, t->c, t->window);
	} else {
		add(&t->c->filtered, n);
	}
	give_back(t->s);
	return 0;
}

#endif
