// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/*
 * A tick: count it, filter it, walk kernel and user stack, and add one to the stack's counter. Only a stack that is
 * new in its window leaves the kernel; of a CPU that waits for work there is only a number.
 */
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
#include "walk.h"

#define EEXIST 17
#define E2BIG 7
#define PF_EXITING 0x4 /* include/linux/sched.h */
#define JP_WAKE_EVERY 50000000 /* ns */

const volatile struct jp_config config;

/*
 * The window: which of the two of everything is written. The loader flips it and then waits, by an update of `counts`,
 * until no program runs any more that has read the old value.
 */
__u32 parity;

/*
 * 0 -> when the loader was woken the last time because a walk came to code that it had not told of: a process has begun,
 * or has mapped something. Written and read by ticks, without order: to be woken twice does no harm.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} woken SEC(".maps");

/* parity -> counters, per CPU. Written here, read by the loader after the flip (then final) and zeroed by it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, JP_PARITIES);
	__type(key, __u32);
	__type(value, struct jp_counters);
} counters SEC(".maps");

/*
 * parity -> (stack -> count). Written here, drained and emptied by the loader after the flip. The loader makes the
 * inner maps: entries >= 2 x rate x CPUs x window, since each tick makes at most one. Full: lost as counts_full.
 */
struct count_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	/* By size: clang leaves only a forward declaration of types that are named two pointers away. */
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
 * New stacks: struct jp_record and its words. Written here, consumed by the loader each window or at half full. Sized
 * by the loader: rate x CPUs x 1 KiB in 1..64 MiB. Full: the tick is lost as ring_full.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} stacks SEC(".maps");

/* Kernel and user words of `task`; false if nothing that is wanted ran. */
static __always_inline bool walk(struct tick_context *ctx, struct scratch *s, struct task_struct *task, __u32 tgid)
{
	struct regs r = TICK_REGS(ctx);
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	bool kernel = in_kernel(r.ip);
	__u32 kernel_words = 0;

	s->n = 0;
	s->end = JP_END_no_user;
	s->hash = config.seed;
	s->walk.seed = mix(config.seed, bpf_ktime_get_ns() >> JP_STEPS_AGE_SHIFT);
	s->record.leaf = JP_LEAF_none;
	s->walk.untold = false;
	if (kernel && config.kernel) {
		long bytes = bpf_get_stack(ctx, s->words, sizeof(__u64) * JP_MAX_KERNEL_WORDS, 0);

		if (bytes > 0 && bytes <= sizeof(__u64) * JP_MAX_KERNEL_WORDS)
			kernel_words = bytes / sizeof(__u64);
		#pragma clang loop unroll(disable)
		for (int i = 0; i < JP_MAX_KERNEL_WORDS; i++) {
			if (i >= kernel_words)
				break;
			s->hash = mix(s->hash, s->words[i]);
		}
		s->n = kernel_words;
	}
	/*
	 * Within an exec the new program has no code yet, and the registers are still those with which the old one made
	 * the system call. The kernel notes where code begins when all of it is mapped, just before it sets the registers.
	 */
	if (config.user && mm && BPF_CORE_READ(mm, start_code)) {
		s->record.leaf = JP_LEAF_user;
		if (kernel) {
			user_regs(&r, task);
			/* At the end of an exec: the first instruction is still to come. */
			if (r.sp == BPF_CORE_READ(mm, start_stack))
				r.syscall = false;
			s->record.leaf = r.syscall ? JP_LEAF_syscall : JP_LEAF_fault;
		}
		if (r.ip)
			walk_user(s, &r, task, tgid);
		else
			s->record.leaf = JP_LEAF_none; /* an io_uring worker: has memory but no user code */
	}
	s->record.kernel_words = kernel_words;
	s->record.user_words = s->n - kernel_words;
	s->record.end = s->end;
	s->hash = mix(s->hash, (__u64)s->record.leaf << 32 | s->end << 16 | kernel_words);
	return s->n;
}

static __always_inline void identify(struct scratch *s, struct task_struct *task, __u32 tgid, __u32 tid)
{
	struct jp_key *key = &s->record.key;
	__u64 *comm = (__u64 *)s->record.comm;
	struct cgroup *group = cgroup_in(BPF_CORE_READ(task, cgroups), config.naming);

	bpf_get_current_comm(s->record.comm, sizeof(s->record.comm));
	key->start = BPF_CORE_READ(task, group_leader, start_boottime);
	key->cgroup = BPF_CORE_READ(group, kn, id);
	key->stack = s->hash;
	key->comm = mix(mix(config.seed, comm[0]), comm[1]);
	key->tgid = tgid;
	key->tid = config.threads ? tid : 0;
	key->exec = (__u32)BPF_CORE_READ(task, self_exec_id);
	key->event = 0;
}

/* Whether the loader is to be woken, to look at what has happened to processes. */
static __always_inline bool has_news(struct scratch *s, __u64 now)
{
	__u32 zero = 0;
	__u64 *last = bpf_map_lookup_elem(&woken, &zero);

	if (!s->walk.untold || !last || now - *last < JP_WAKE_EVERY)
		return false;
	*last = now;
	return true;
}

/* Sends the stack to the loader; false if the ring is full. */
static __always_inline bool announce(struct scratch *s, __u32 window)
{
	struct jp_record *record = &s->record;
	__u64 size = sizeof(*record) + sizeof(__u64) * s->n;
	__u64 flags = BPF_RB_NO_WAKEUP;

	record->version = JP_ABI_VERSION;
	record->window = window;
	record->pad = 0;
	record->ktime = bpf_ktime_get_ns();
	if (bpf_ringbuf_query(&stacks, BPF_RB_AVAIL_DATA) > config.ring_half || has_news(s, record->ktime))
		flags = BPF_RB_FORCE_WAKEUP;
	/* VERIFIER(5.10): n came back from the map, its bound is gone; state it again. Noticed by: the load itself. */
	if (size > sizeof(*record) + sizeof(s->words))
		return false;
	return bpf_ringbuf_output(&stacks, record, size, flags) == 0;
}

static __always_inline void count(struct tick_context *ctx, struct scratch *s, struct jp_counters *c, __u32 window)
{
	struct jp_value first = { .count = 1, .weight = ctx->sample_period };
	struct jp_value *value;
	void *map = bpf_map_lookup_elem(&counts, &window);
	long err;

	if (!map) {
		c->lost[JP_LOSS_no_scratch]++;
		return;
	}
	value = bpf_map_lookup_elem(map, &s->record.key);
	if (!value) {
		if (!announce(s, window)) {
			c->lost[JP_LOSS_ring_full]++;
			return;
		}
		err = bpf_map_update_elem(map, &s->record.key, &first, BPF_NOEXIST);
		if (!err)
			return;
		if (err == -EEXIST) /* another CPU was first */
			value = bpf_map_lookup_elem(map, &s->record.key);
		if (!value) {
			c->lost[err == -E2BIG ? JP_LOSS_counts_full : JP_LOSS_counts_busy]++;
			return;
		}
	}
	__sync_fetch_and_add(&value->count, 1);
	__sync_fetch_and_add(&value->weight, first.weight);
}

SEC("perf_event")
int tick(struct tick_context *ctx)
{
	__u32 window = *(volatile __u32 *)&parity & 1;
	__u64 id = bpf_get_current_pid_tgid();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct jp_counters *c = bpf_map_lookup_elem(&counters, &window);
	struct scratch *s = this_scratch();

	if (!c)
		return 0;
	c->ticks++;
	if (!wanted(&config, task, id >> 32, (__u32)id)) {
		c->filtered++;
		return 0;
	}
	if (!(__u32)id && is_wait(TICK_IP(ctx))) {
		c->idle++;
		return 0;
	}
	if (!s) {
		c->lost[JP_LOSS_no_scratch]++;
		return 0;
	}
	if (!walk(ctx, s, task, id >> 32)) {
		c->filtered++;
		return 0;
	}
	identify(s, task, id >> 32, (__u32)id);
	count(ctx, s, c, window);
	return 0;
}

/* Not run by ticks: read by the loader, to compare with /proc what the filter sees. */
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

char LICENSE[] SEC("license") = "Dual MIT/GPL";
