/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * The growth of resident memory: the pages that address spaces hold, in bytes. The kernel counts them for each address
 * space, and runs the tracepoint rss_stat after it changed a count. From 6.2 on each CPU collects changes, and adds 32
 * pages or more at a time; before, a thread collects those of 64 faults. The task that made the count grow has the sample,
 * which stands for the pages since the last one.
 *
 * Pages that an address space gives back are no samples: what grows again counts again.
 */
#ifndef JP_EVENT_RSS_H
#define JP_EVENT_RSS_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "atomic.h"
#include "filter.h"
#include "kernel.h"
#include "sample.h"

/* enum of the kernel's counts: pages of files, anonymous pages, entries in swap, pages of shared memory. */
#define MM_SWAPENTS 2
#define MM_COUNTS 4

/* The pages of an address space that samples stand for, or that were there at the start. */
struct resident {
	__u64 pages[MM_COUNTS];
};

/*
 * Address of the kernel's mm_struct -> its pages. Preallocated, because the kernel can change the counts where it cannot
 * allocate memory. The end of an address space deletes its entry. The loader sets the size. Full: the sample is lost as
 * spaces_full.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct resident);
} residents SEC(".maps");

/* The control while sampling goes on; NULL before and after. */
static __always_inline struct jp_event_control *present_rss_control(void)
{
	__u32 event = JP_EVENT_rss;
	struct jp_event_control *control = bpf_map_lookup_elem(&event_controls, &event);

	return control && control->period ? control : NULL;
}

/* The kernel's count of a kind, in the form that the kernel has. */
#define COUNT_OF(mm, kind) \
	(bpf_core_field_exists((mm)->rss_stat[kind].count) ? \
		 (__s64)BPF_CORE_READ(mm, rss_stat[kind].count) : \
		 (__s64)BPF_CORE_READ((struct mm_struct___plain *)(mm), rss_stat.count[kind].counter))

/*
 * How many pages the kernel counts now. A sum to which each CPU adds now and then can be negative for a while. A function of
 * its own: inside a loop the compiler would compute the addresses of both forms before, and one of them does not exist.
 */
static __attribute__((noinline)) __u64 pages_of(struct mm_struct *mm, __u32 kind)
{
	__s64 n;

	switch (kind) {
	case 0:
		n = COUNT_OF(mm, 0);
		break;
	case 1:
		n = COUNT_OF(mm, 1);
		break;
	default:
		n = COUNT_OF(mm, 3);
	}
	return n > 0 ? n : 0;
}

/* An address space that was there at the start: only later pages are growth. */
static __always_inline void note_resident(struct mm_struct *mm)
{
	struct resident present = {};
	__u64 key = (__u64)mm;

	present.pages[0] = pages_of(mm, 0);
	present.pages[1] = pages_of(mm, 1);
	present.pages[3] = pages_of(mm, 3);
	bpf_map_update_elem(&residents, &key, &present, BPF_NOEXIST);
}

/* Finds the pages of an address space, or adds it without any; NULL if there is no room. */
static __always_inline struct resident *resident_of(struct mm_struct *mm)
{
	struct resident none = {}, *r;
	__u64 key = (__u64)mm;

	r = bpf_map_lookup_elem(&residents, &key);
	if (r)
		return r;
	bpf_map_update_elem(&residents, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&residents, &key);
}

/* Takes what the kernel counts for what was counted. Returns the pages by which it grew. */
static __always_inline __u64 take_growth(struct resident *r, struct mm_struct *mm, __u32 kind, const bool atomics)
{
	__u64 *pages = &r->pages[kind & (MM_COUNTS - 1)];

	for (int i = 0; i < 4; i++) {
		/* In this order: of what another CPU takes meanwhile nothing may be taken twice. */
		__u64 old = *(volatile __u64 *)pages;
		__u64 now = pages_of(mm, kind);

		if (now == old)
			return 0;
		if (!atomics)
			*pages = now;
		else if (compare_exchange(pages, old, now) != old)
			continue;
		return now > old ? now - old : 0;
	}
	/* The next change takes this one, too. */
	return 0;
}

/* How many samples are due for the bytes until now. */
static __always_inline __u64 due_samples(__u64 bytes, __u64 period)
{
	__u32 event = JP_EVENT_rss;
	__s64 *n = bpf_map_lookup_elem(&progress, &event);
	__s64 sum;
	__u64 due;

	if (!n || !period)
		return 0;
	__sync_fetch_and_add(n, bytes);
	/* If a change of memory comes in between, both may find the samples due; the sum is then negative for a while. */
	sum = *(volatile __s64 *)n;
	if (sum < (__s64)period)
		return 0;
	due = (__u64)sum / period;
	__sync_fetch_and_add(n, -(__s64)(due * period));
	return due;
}

/* rss_stat(mm, member), in the task that changed the count; before 6.2 with the count as a third argument. */
static __always_inline int change_rss(struct raw_args *ctx, const bool atomics)
{
	struct jp_event_control *control = present_rss_control();
	struct mm_struct *mm = (struct mm_struct *)ctx->args[0];
	__u32 kind = (__u32)ctx->args[1];
	__u64 key = (__u64)mm, bytes, samples;
	struct resident *r;
	struct taking t;

	if (!control || kind == MM_SWAPENTS || kind >= MM_COUNTS)
		return 0;
	/* The kernel takes the address space down: no thread uses it any more. */
	if (!BPF_CORE_READ(mm, mm_users.counter)) {
		bpf_map_delete_elem(&residents, &key);
		return 0;
	}
	if (control->noting)
		note_resident(mm);
	r = resident_of(mm);
	if (!r) {
		if (find_counters(&t, JP_EVENT_rss, 1))
			add(&t.c->lost[JP_LOSS_spaces_full], 1);
		return 0;
	}
	bytes = take_growth(r, mm, kind, atomics) * control->number;
	if (!bytes || control->noting || !wanted_on(&config, bpf_get_smp_processor_id()))
		return 0;
	samples = due_samples(bytes, control->period);
	if (!samples || !begin_samples(&t, JP_EVENT_rss, 0, samples))
		return 0;
	/* An address in the kernel: the user registers are saved. */
	t.s->regs.ip = ~0ULL;
	return end_samples(&t, ctx, samples, samples * control->period);
}

SEC("raw_tp/rss_stat") int on_rss(struct raw_args *ctx)
{
	return change_rss(ctx, true);
}

/* Before 5.18. Two CPUs that change one count at the same moment may both have the sample. */
SEC("raw_tp/rss_stat") int on_rss_plain(struct raw_args *ctx)
{
	return change_rss(ctx, false);
}

/* The loader reads this iterator at the start, while `noting` is set. */
SEC("iter/task")
int note_residents(struct bpf_iter__task *ctx)
{
	struct jp_event_control *control = present_rss_control();
	struct task_struct *task = ctx->task;
	struct mm_struct *mm;

	if (!task || !control || !control->noting)
		return 0;
	mm = BPF_CORE_READ(task, mm);
	if (mm)
		note_resident(mm);
	return 0;
}

#endif
