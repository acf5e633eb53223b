/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * The trace context of a thread: the ids of the trace and the span that the thread works for, which the program publishes in
 * a record (OTEP 4947, "Thread Context"). A thread-local variable points to the record; the loader finds the variable.
 */
#ifndef JP_TRACE_CONTEXT_H
#define JP_TRACE_CONTEXT_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "kernel.h"
#include "mix.h"
#include "regs.h"
#include "scratch.h"
#include "step_table.h"

/* The first bytes of a record: trace id, span id, and whether they are valid. Reserved bytes and attributes follow. */
#define JP_CONTEXT_BYTES (sizeof(__u64) * JP_CONTEXT_WORDS + 1)

/*
 * tgid -> where its threads have the variable. The loader writes programs that publish traces, and deletes those that have
 * ended. The loader sets the size: 1 without traces. Full: the loader counts programs without an entry.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct jp_context_place);
} context_places SEC(".maps");

/* Where the program of a task has the variable; NULL if the program publishes no traces. */
static __always_inline struct jp_context_place *find_place(struct task_struct *task, __u32 tgid)
{
	struct jp_context_place *place = bpf_map_lookup_elem(&context_places, &tgid);
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	if (!place) {
		tgid = forked_from(task);
		place = tgid ? bpf_map_lookup_elem(&context_places, &tgid) : NULL;
	}
	if (!place || !mm || !is_program(mm, place->start_code, place->end_code, place->start_stack))
		return NULL;
	return place;
}

/*
 * The address of a thread's variable; 0 if the thread has not used its block yet, and 1, where nothing can be read, if the
 * memory on the way cannot be read. The process may write anything there: a false address leads to a failed read, or to ids
 * that are false.
 */
static __always_inline __u64 variable_of(const struct jp_context_place *place, __u64 thread)
{
	__u64 dtv, length, block;

	if (!place->module)
		return thread + place->offset;
	if (bpf_probe_read_user(&dtv, sizeof(dtv), (void *)(thread + place->dtv)) ||
	    bpf_probe_read_user(&length, sizeof(length), (void *)(dtv + place->length)))
		return 1;
	/* A thread extends its DTV when it first uses a module that was loaded later. */
	if (length < place->module)
		return 0;
	if (bpf_probe_read_user(&block, sizeof(block), (void *)(dtv + (__u64)place->entry * place->module)))
		return 1;
	return block && block != ~0ULL ? block + place->offset : 0;
}

/* Reads the ids of the current task's span into the scratch. Returns an enum jp_context. */
static __always_inline __u32 read_span(struct scratch *s, struct task_struct *task)
{
	struct jp_context_place *place = find_place(task, bpf_get_current_pid_tgid() >> 32);
	__u64 variable, record;

	if (!place)
		return JP_CONTEXT_none;
	variable = variable_of(place, thread_pointer(task));
	if (!variable)
		return JP_CONTEXT_idle;
	if (bpf_probe_read_user(&record, sizeof(record), (void *)variable))
		return JP_CONTEXT_unread;
	if (!record)
		return JP_CONTEXT_idle;
	s->span.valid = 0;
	if (bpf_probe_read_user(&s->span, JP_CONTEXT_BYTES, (void *)record))
		return JP_CONTEXT_unread;
	/* A record that the thread is changing is not valid. */
	if (s->span.valid != 1 || !(s->span.ids[0] | s->span.ids[1]) || !s->span.ids[2])
		return JP_CONTEXT_idle;
	return JP_CONTEXT_span;
}

/*
 * Adds the trace context of the current task to the stack, whose key is complete. A global function: the verifier checks it
 * once, not once for each event.
 */
__attribute__((noinline)) int read_context(__u32 slot)
{
	struct scratch *s = scratch_at(slot);

	if (!s)
		return 0;
	s->record.context = read_span(s, (struct task_struct *)bpf_get_current_task());
	if (s->record.context == JP_CONTEXT_none)
		return 0;
	if (s->record.context == JP_CONTEXT_span) {
		push_word(s, s->span.ids[0]);
		push_word(s, s->span.ids[1]);
		push_word(s, s->span.ids[2]);
	}
	s->hash = mix(s->hash, s->record.context);
	s->record.key.stack = s->hash;
	return 0;
}

#endif
