/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * Samples of allocations by bytes, of any allocator: event_alloc.h (Java) and event_native_alloc.h.
 *
 * All allocations on a CPU, one after the other, are its timeline of bytes, one for each event. The timeline is cut into
 * blocks of one interval, each with one mark at a random place (marks.h). An allocation has a sample for each mark that it
 * covers, so that each byte is sampled with the same probability, in small and in large objects.
 */
#ifndef JP_ALLOCATION_H
#define JP_ALLOCATION_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "filter.h"
#include "marks.h"
#include "mix.h"
#include "regs.h"
#include "sample.h"

/* parity and event, as in `counters` -> bytes on each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, JP_PARITIES * JP_EVENT_NUMBERS);
	__type(key, __u32);
	__type(value, struct jp_allocated);
} allocated SEC(".maps");

/* More than any object or buffer has. A process may claim more. */
#define JP_MAX_ALLOCATION (1ULL << 40)

/* Where the timeline of a CPU begins again. */
#define JP_TIMELINE_END (1ULL << 62)

/*
 * How many samples the next `bytes` have. Another allocation may come in between on the same CPU. Both may then begin
 * at the same place: their marks are the same ones, but the expected number of samples is still right.
 */
static __always_inline __u64 samples_of(__u32 event, __u64 bytes, __u64 interval)
{
	__u64 *place = bpf_map_lookup_elem(&progress, &event), from;

	if (!place)
		return 0;
	from = *(volatile __u64 *)place & (JP_TIMELINE_END - 1);
	add(place, bytes);
	return marks(mix(config.seed + event, bpf_get_smp_processor_id()), from, from + bytes, interval);
}

/* How an allocation comes to the program. */
enum jp_seen {
	JP_SEEN_all, /* as all others do */
	JP_SEEN_sampled, /* the JVM chose it: its bytes are an estimate for all allocations */
};

/* Counts an allocation. If all are seen, they are counted exactly, whether they have a sample or not. */
static __always_inline void count_bytes(struct taking *t, __u64 bytes, bool is_wanted, enum jp_seen seen)
{
	__u32 place = t->window * JP_EVENT_NUMBERS + t->event;
	struct jp_allocated *sum = bpf_map_lookup_elem(&allocated, &place);

	if (!sum)
		return;
	if (seen == JP_SEEN_sampled) {
		if (is_wanted)
			add(&sum->estimated, bytes);
		return;
	}
	add(is_wanted ? &sum->wanted : &sum->filtered, bytes);
	add(is_wanted ? &sum->wanted_calls : &sum->filtered_calls, 1);
}

/* More than any buffer has room for, in units of 1 / JP_ESTIMATE_UNIT. */
#define JP_MAX_OBJECTS (JP_ESTIMATE_UNIT << 32)

/*
 * How many objects a sampled allocation stands for, in units of 1 / JP_ESTIMATE_UNIT: for as many allocations as its bytes
 * say, and for as many objects of its size as fit into them. `object`: the bytes of the object. The allocation is the last
 * one on the timeline of the CPU.
 * VERIFIER(5.10): not inlined, because its numbers would take room of the 512 bytes of stack of the unwinder's chain of
 * calls. Noticed by: vmtest's case `events`.
 */
static __attribute__((noinline)) __u64 objects_of(__u32 event, __u64 bytes, __u64 object, __u64 interval)
{
	__u64 *end = bpf_map_lookup_elem(&progress, &event), allocations, objects;

	if (!end || !interval)
		return 0;
	allocations = stands_for_at((*end - bytes) & (JP_TIMELINE_END - 1), bytes, interval);
	/* The JVM is not trusted, and its object is never larger than its buffer. */
	if (!object || object >= bytes)
		return allocations;
	objects = allocations * bytes / object;
	return objects < JP_MAX_OBJECTS ? objects : JP_MAX_OBJECTS;
}

/*
 * Takes the samples of an allocation of `bytes`, for an object of `object` bytes or for several. `class`: of a Java object,
 * an address in the JVM, or anything; else 0.
 */
static __always_inline int on_allocation(struct perf_context *ctx, __u32 event, __u64 class, __u64 bytes, __u64 object,
					 enum jp_seen seen)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid(), interval, samples;
	struct jp_event_control *control = bpf_map_lookup_elem(&event_controls, &event);
	bool is_wanted;
	struct taking t;

	interval = control ? *(volatile __u64 *)&control->period : 0;
	if (!interval || !wanted_on(&config, bpf_get_smp_processor_id()))
		return 0;
	if (bytes > JP_MAX_ALLOCATION)
		bytes = JP_MAX_ALLOCATION;
	samples = samples_of(event, bytes, interval);
	is_wanted = wanted(&config, task, id >> 32, (__u32)id);
	if (!find_counters(&t, event, samples))
		return 0;
	count_bytes(&t, bytes, is_wanted, seen);
	if (!samples)
		return 0;
	if (!is_wanted) {
		add(&t.c->filtered, samples);
		return 0;
	}
	if (!find_scratch(&t, samples))
		return 0;
	/* Before the stack is unwound: these numbers would take room of the chain's 512 bytes. */
	t.s->value.count = samples;
	t.s->value.weight = samples * interval;
	t.s->value.estimate = objects_of(event, bytes, object, interval);
	t.s->value.longest = 0;
	load_perf_regs(&t.s->regs, ctx);
	t.s->regs.caller = return_address(ctx);
	if (walk(ctx, t.s, task)) {
		t.s->record.object_class = class;
		t.s->hash = mix(t.s->hash, class);
		identify(t.s, task, t.event);
		note_context(t.s);
		count(t.s, t.c, t.window);
	} else {
		add(&t.c->filtered, t.s->value.count);
	}
	give_back(t.s);
	return 0;
}

#endif
