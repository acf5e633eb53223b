/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * A step by unwind table: the compiler's description of the frame at each instruction (.eh_frame), made compact by
 * src/unwind/. There are tables for x86 only: the return address lies below the CFA. step_i386.h has the 32-bit step.
 */
#ifndef JP_STEP_TABLE_H
#define JP_STEP_TABLE_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "kernel.h"
#include "scratch.h"
#include "step_again.h"

/* Steps of the binary searches. */
#define JP_ROW_STEPS 11       /* 1,024 rows in a step of code */
#define JP_RANGE_STEPS 8      /* JP_PAGE_RANGES */
#define JP_RANGE_PAGE_STEPS 3 /* the pages of JP_MAX_RANGES */

struct table_page {
	__u8 bytes[JP_PAGE_SIZE];
};

/*
 * chunk -> its pages. The loader writes the map, and creates the inner maps when it needs them. A step that needs a
 * missing page behaves as if there were no table.
 */
struct chunk_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, JP_CHUNK_PAGES);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, JP_PAGE_SIZE);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, JP_CHUNKS);
	__type(key, __u32);
	__array(values, struct chunk_map);
} chunks SEC(".maps");

/* tgid -> first page of its address space, written by the loader. Full: frame pointers unwind further processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u32);
} spaces SEC(".maps");

static __always_inline struct table_page *page_of(__u32 page)
{
	__u32 chunk = page / JP_CHUNK_PAGES;
	__u32 inside = page % JP_CHUNK_PAGES;
	void *pages = bpf_map_lookup_elem(&chunks, &chunk);

	return pages ? bpf_map_lookup_elem(pages, &inside) : NULL;
}

#define JP_PAGE_WORDS (JP_PAGE_SIZE / sizeof(__u32))
#define JP_PAGE_RANGES (JP_PAGE_SIZE / sizeof(struct jp_range))

/* The word at `at` of the table; 0 if the page is missing: then the search finds no rows. */
static __always_inline __u32 word_of(__u32 table, __u32 at)
{
	__u32 *page = (__u32 *)page_of(table + at / JP_PAGE_WORDS);

	return page ? page[at % JP_PAGE_WORDS] : 0;
}

static __always_inline struct jp_range *range_of(__u32 space, __u32 slot)
{
	struct jp_range *page = (struct jp_range *)page_of(space + slot / JP_PAGE_RANGES);

	return page ? &page[slot % JP_PAGE_RANGES] : NULL;
}

/*
 * The parent of a process that was just forked, 0 if there is none: both have the same layout of memory, as long as neither
 * has called exec since the fork.
 */
static __always_inline __u32 forked_from(struct task_struct *task)
{
	struct task_struct *parent = BPF_CORE_READ(task, real_parent);
	__u64 exec = BPF_CORE_READ(task, self_exec_id);

	if (exec != BPF_CORE_READ(task, parent_exec_id) || exec != BPF_CORE_READ(parent, self_exec_id))
		return 0;
	return BPF_CORE_READ(parent, tgid);
}

/* The first page of the process's address space. A process that was just forked uses its parent's, until it has its own. */
static __always_inline __u32 *space_of(struct task_struct *task, __u32 tgid)
{
	__u32 *page = bpf_map_lookup_elem(&spaces, &tgid);

	if (page)
		return page;
	tgid = forked_from(task);
	return tgid ? bpf_map_lookup_elem(&spaces, &tgid) : NULL;
}

/* Whether the program of this memory has these addresses, which exec changes. */
static __always_inline bool is_program(struct mm_struct *mm, __u64 start_code, __u64 end_code, __u64 start_stack)
{
	return start_stack == BPF_CORE_READ(mm, start_stack) && start_code == BPF_CORE_READ(mm, start_code) &&
	       end_code == BPF_CORE_READ(mm, end_code);
}

/* Finds the address space of the process, if it is loaded and the process has not called exec since. */
static __always_inline void find_space(struct walk *w, struct task_struct *task, __u32 tgid)
{
	__u32 *page = space_of(task, tgid);
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct jp_space *space;

	w->space = 0;
	w->ranges = 0;
	w->start = 0;
	w->end = 0;
	w->table = 0;
	w->code = JP_CODE_unknown;
	w->unknown_code = true;
	if (!page)
		return;
	space = (struct jp_space *)page_of(*page);
	if (!space || !is_program(mm, space->start_code, space->end_code, space->start_stack))
		return;
	w->space = *page;
	w->ranges = space->ranges;
	w->unknown_code = false;
}

/* Where a binary search still looks for the first entry above its key: from `low` up to `high`. */
struct search {
	__u32 low;
	__u32 high;
};

static __always_inline __u32 middle_of(const struct search *search)
{
	return (search->low + search->high) / 2;
}

/* 1 if the number is negative, else 0. */
static __always_inline __u64 sign(__u64 number)
{
#if defined(__bpf__)
	/* Clang would make branches of what it knows about the result. */
	asm volatile("%0 >>= 63" : "+r"(number));
	return number;
#else
	return number >> 63;
#endif
}

/*
 * Goes on in one half, by the key less the entry in the middle; nothing happens at the end of a search.
 * VERIFIER(all): factors choose the half. A branch would double the states at each step, and so would a mask of 0 or -1
 * (6.18). Noticed by: the load takes longer.
 */
static __always_inline void halve(struct search *search, __u64 difference)
{
	__u32 middle = middle_of(search);
	__u64 open = sign((__u64)search->low - search->high), above = sign(difference);

	search->low += (middle + 1 - search->low) * (open & (above ^ 1));
	search->high -= (search->high - middle) * (open & above);
}

/*
 * The last page of the space whose first range begins at or below ip; the first page if there is none. A global function:
 * the verifier checks it once, not once for each frame. Its argument is the scratch's slot, because 5.10 does not allow
 * a pointer.
 */
__attribute__((noinline)) int range_page(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	__u32 low = 0, high;

	if (!s)
		return 0;
	high = s->walk.ranges / JP_PAGE_RANGES;
	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_RANGE_PAGE_STEPS && low < high; i++) {
		__u32 middle = (low + high + 1) / 2;
		struct jp_range *range = range_of(s->walk.space, middle * JP_PAGE_RANGES);

		if (range && range->start <= s->walk.ip)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* The slot of the last range that begins at or below ip; 0 if there is none. */
static __always_inline __u32 range_below(struct walk *w)
{
	__u32 first = w->ranges < JP_PAGE_RANGES ? 0 : range_page(w->slot) * JP_PAGE_RANGES;
	struct search slots = { .low = first ? first : 1, .high = first + JP_PAGE_RANGES };
	struct jp_range *page = range_of(w->space, first);

	if (!page)
		return 0;
	if (slots.high > w->ranges + 1)
		slots.high = w->ranges + 1;
	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_RANGE_STEPS; i++)
		/* Without the lowest bit, which ranges do not use, the sign is right for all addresses. */
		halve(&slots, (w->ip >> 1) - (page[middle_of(&slots) % JP_PAGE_RANGES].start >> 1));
	return slots.low - 1;
}

/* Finds the range of ip. A global function, see range_page. */
__attribute__((noinline)) int find_range(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct jp_range *range;
	__u32 below;

	if (!s)
		return 0;
	below = range_below(&s->walk);
	s->walk.start = 0;
	s->walk.end = ~0ULL;
	s->walk.table = 0;
	s->walk.code = JP_CODE_unknown;
	range = below ? range_of(s->walk.space, below) : NULL;
	if (range) {
		if (s->walk.ip < range->end) {
			s->walk.start = range->start;
			s->walk.end = range->end;
			s->walk.bias = range->bias;
			s->walk.table = range->table;
			s->walk.code = range->code;
			return 0;
		}
		s->walk.start = range->end;
	}
	s->walk.unknown_code = true;
	range = below < s->walk.ranges ? range_of(s->walk.space, below + 1) : NULL;
	if (range)
		s->walk.end = range->start;
	return 0;
}

/* Finds the rule for ip in the table of its range. */
__attribute__((noinline)) int find_rule(__u32 slot)
{
	struct scratch *s = scratch_at(slot);
	struct jp_table *table;
	struct search at;
	__u32 next, rows, step, rule;
	__u32 *page;
	__u64 offset;

	if (!s)
		return 0;
	*(__u64 *)&s->walk.rule = JP_CFA_none;
	table = (struct jp_table *)page_of(s->walk.table);
	/* The two differ only if the process mapped a file that is built for the other mode. */
	if (!table || table->i386 != s->walk.i386)
		return 0;
	/* A call may be the function's last instruction; then its return address belongs to the next function. */
	offset = s->walk.ip - s->walk.bias - (s->walk.at_leaf ? 0 : 1);
	if ((offset >> JP_STEP_SHIFT) - table->first >= table->steps)
		return 0;
	step = (offset >> JP_STEP_SHIFT) - table->first;
	rows = sizeof(*table) / sizeof(__u32) + table->steps + 1;
	rule = table->rules;
	at.low = rows + word_of(s->walk.table, sizeof(*table) / sizeof(__u32) + step);
	at.high = rows + word_of(s->walk.table, sizeof(*table) / sizeof(__u32) + step + 1);
	/* The last row at or below the offset may belong to the step before. */
	page = (__u32 *)page_of(s->walk.table + at.low / JP_PAGE_WORDS);
	if (!page)
		return 0;
	offset &= JP_STEP_MASK;
	/* A step has at most one page of rows, so they lie on at most two pages. */
	next = at.high / JP_PAGE_WORDS * JP_PAGE_WORDS;
	if (at.low < next) {
		if ((page[JP_PAGE_WORDS - 1] & JP_STEP_MASK) > offset) {
			at.high = next;
		} else {
			at.low = next;
			page = (__u32 *)page_of(s->walk.table + next / JP_PAGE_WORDS);
			if (!page)
				return 0;
		}
	}
	#pragma clang loop unroll(disable)
	for (int i = 0; i < JP_ROW_STEPS; i++)
		halve(&at, offset - (page[middle_of(&at) % JP_PAGE_WORDS] & JP_STEP_MASK));
	if (at.low <= rows)
		return 0;
	rule += 2 * (word_of(s->walk.table, at.low - 1) >> JP_STEP_SHIFT);
	page = (__u32 *)page_of(s->walk.table + rule / JP_PAGE_WORDS);
	/* Rules begin at even words, so both words of a rule are on one page. */
	if (page)
		*(__u64 *)&s->walk.rule = *(__u64 *)&page[rule % JP_PAGE_WORDS & ~1];
	return 0;
}

/* Leaves a frame that the kernel built for a signal handler: goes to the interrupted code, on any stack. */
static __always_inline __u32 step_signal(struct walk *w)
{
	__u64 saved[2];
	__u64 fp;

	if (read_user(w, &fp, sizeof(fp), w->sp + w->rule.fp_at))
		return JP_END_bad_read;
	if (read_user(w, saved, sizeof(saved), w->sp + w->rule.cfa))
		return JP_END_bad_read;
	w->sp = saved[0];
	w->ip = saved[1];
	w->fp = fp;
	w->leaf = true;
	w->ax = 0;
	w->bx = 0;
	w->r13 = 0;
	return JP_WALKING;
}

/* Whether `pc` follows a call: call x; call reg; call [reg]; call [reg + byte]; call [reg + x]. */
static __always_inline bool follows_call(struct walk *w, __u64 pc)
{
	__u8 code[8];

	if (read_user(w, code, sizeof(code), pc - sizeof(code)))
		return false;
	return code[3] == 0xe8 || (code[6] == 0xff && (code[7] & 0x38) == 0x10) ||
	       (code[5] == 0xff && (code[6] & 0x38) == 0x10) || (code[2] == 0xff && (code[3] & 0x38) == 0x10);
}

/* Leaves a leaf without a frame; false if the top of the stack is not a return address. */
static __always_inline bool step_bare(struct walk *w)
{
	__u64 top;

	if (read_user(w, &top, sizeof(top), w->sp) || !follows_call(w, top))
		return false;
	w->sp += 8;
	w->ip = top;
	return true;
}

/* Where the caller's fp is by the rule, as a packed step has it; JP_SAVED_other: a packed step cannot hold it. */
#define JP_SAVED_other 0x80

static __always_inline __u32 saved_by(const struct jp_rule *rule)
{
	switch (rule->fp_kind) {
	case JP_FP_same:
		return JP_SAVED_same;
	case JP_FP_lost:
		return JP_SAVED_lost;
	case JP_FP_at_cfa:
		return rule->fp_at <= -16 && !(rule->fp_at & 7) ? (__u32)-rule->fp_at / 8 : JP_SAVED_other;
	default:
		return JP_SAVED_other;
	}
}

/* Goes to the caller by w->rule: JP_WALKING, or the stop reason. */
static __always_inline __u32 step_table(struct walk *w, struct stack_part *part)
{
	__u64 frame[2];
	__u64 cfa = w->rule.cfa;
	__u64 fp = w->fp;
	__u32 saved = saved_by(&w->rule);
	bool by_fp = false, by_memory = false;

	switch (w->rule.cfa_kind) {
	case JP_CFA_plt:
		cfa += (w->ip & 15) >= w->rule.fp_at ? 8 : 0;
		cfa += w->sp;
		break;
	case JP_CFA_sp:
		cfa += w->sp;
		break;
	case JP_CFA_at_sp:
	case JP_CFA_at_fp:
		cfa = (w->rule.cfa_kind == JP_CFA_at_sp ? w->sp : fp) + (__s16)w->rule.cfa;
		if (read_user(w, &cfa, sizeof(cfa), cfa))
			return JP_END_bad_read;
		cfa += w->rule.cfa >> 16;
		by_memory = true;
		break;
	default:
		cfa += fp;
		by_fp = true;
	}
	/* Each step moves up the stack by at least the return address. */
	if ((cfa & 7) | out_of_user(cfa, w->sp + 8))
		return JP_END_not_up;
	if (read_caller(w, part, frame, cfa, saved == JP_SAVED_other ? JP_SAVED_same : saved))
		return JP_END_bad_read;
	if (saved == JP_SAVED_other &&
	    read_user(w, frame, sizeof(*frame), (w->rule.fp_kind == JP_FP_at_cfa ? cfa : fp) + w->rule.fp_at))
		return JP_END_bad_read;
	/* Not cached: a step from a leaf uses registers too. */
	if (!w->at_leaf && !by_memory)
		note_step(w, cfa - w->sp, by_fp, saved, frame[1]);
	w->sp = cfa;
	w->fp = frame[0];
	w->ip = frame[1];
	return JP_WALKING;
}

#endif
