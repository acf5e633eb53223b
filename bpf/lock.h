/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * The Java lock for which a thread waited: the lock's class, and the thread that had the lock. When a wait ends, the
 * program reads the lock in the waiting thread, which is still in its system call. While a wait lasts, the symbol worker
 * reads the lock from outside (src/outside/). The values are not trusted: the loader checks the class, and a wrong value
 * costs only a name.
 */
#ifndef JP_LOCK_H
#define JP_LOCK_H

#include <linux/types.h>
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "mix.h"
#include "scratch.h"
#include "step_table.h"

/* The call stub gets the JavaThread as its eighth argument: two words above the return address (StubGenerator of
 * x86-64, generate_call_stub, JDK 8 to 25). */
#define JP_ENTRY_THREAD 24

/* The low bits of a mark word (oops/markWord.hpp): the rest is the address of the monitor, or of the moved object. */
#define JP_MARK_BITS 3ULL
#define JP_MARK_MONITOR 2ULL
#define JP_MARK_FORWARDED 3ULL
/* -XX:+UseCompactObjectHeaders: the compressed class is above this bit (markWord::klass_shift). */
#define JP_MARK_CLASS_SHIFT 42

/* The word at an address of the process; 0 if it cannot be read. */
static __always_inline __u64 word_at(struct walk *w, __u64 at)
{
	__u64 word;

	return read_user(w, &word, sizeof(word), at) ? 0 : word;
}

static __always_inline __u32 half_at(struct walk *w, __u64 at)
{
	__u32 half;

	return read_user(w, &half, sizeof(half), at) ? 0 : half;
}

/* The id that the JVM has of a JavaThread; 0: not known. */
static __always_inline __u32 jvm_tid(struct walk *w, const struct jp_vm_locks *l, __u64 thread)
{
	return half_at(w, word_at(w, thread + l->os_thread) + l->thread_id);
}

/* Whether a collection has stopped the program and may be moving objects. */
static __always_inline bool is_heap_busy(struct walk *w, const struct jp_vm_locks *l)
{
	__u8 busy = 1;

	return read_user(w, &busy, sizeof(busy), l->heap_busy) || busy;
}

/*
 * The address of an object, from a word with a pointer to it. ZGC's pointers have a colour: `is_stale` if it is not the
 * present one, so that the object may have moved.
 */
static __always_inline __u64 object_of(struct walk *w, const struct jp_vm_locks *l, __u64 oop, bool *is_stale)
{
	__u64 good, bad, colour;

	*is_stale = false;
	if (!l->good_colour || !oop)
		return oop;
	good = word_at(w, l->good_colour);
	bad = word_at(w, l->bad_colour);
	*is_stale = !bad || (oop & bad);
	if (!(l->traits & JP_VM_SHIFTED))
		return oop;
	/* One of four bits is set. The address begins right above it; its low zero bits may lie at the places of the other
	 * bits (gc/z/zAddress.hpp, ZPointerLoadShift). */
	colour = oop & (good | bad);
	return colour && !(colour & (colour - 1)) ? oop / colour >> 1 : 0;
}

/* The object in a field of a JavaThread or of an ObjectMonitor. */
static __always_inline __u64 object_at(struct walk *w, const struct jp_vm_locks *l, __u64 at, bool *is_stale)
{
	__u64 oop = word_at(w, at);

	if (oop && l->traits & JP_VM_HANDLES)
		oop = word_at(w, oop);
	return object_of(w, l, oop, is_stale);
}

/* The object in a field of an object. */
static __always_inline __u64 object_in(struct walk *w, const struct jp_vm_locks *l, __u64 at, bool *is_stale)
{
	__u32 narrow;

	if (!(l->traits & JP_VM_NARROW_OOPS))
		return object_of(w, l, word_at(w, at), is_stale);
	*is_stale = false;
	narrow = half_at(w, at);
	return narrow ? l->oop_base + ((__u64)narrow << (l->oop_shift & 63)) : 0;
}

/* The address of an object's class; 0: not known. `mark`: its mark word. */
static __always_inline __u64 class_of(struct walk *w, const struct jp_vm_locks *l, __u64 object, __u64 mark)
{
	__u64 narrow;

	if (l->traits & JP_VM_COMPACT)
		narrow = mark >> JP_MARK_CLASS_SHIFT;
	else if (l->traits & JP_VM_NARROW_CLASSES)
		narrow = half_at(w, object + l->class);
	else
		return word_at(w, object + l->class);
	return narrow ? l->class_base + (narrow << (l->class_shift & 63)) : 0;
}

/* The class of a lock of the current thread, which is `thread` in the JVM; 0: none, or not certain. A global function,
 * see find_range. */
__attribute__((noinline)) __u64 find_class(__u32 slot, __u64 thread, __u64 monitor)
{
	struct scratch *s = scratch_at(slot);
	const struct jp_vm_locks *l;
	struct jp_vm *vm;
	__u64 object, mark;
	bool is_stale;

	if (!s)
		return 0;
	vm = (struct jp_vm *)page_of(s->walk.entry_vm);
	if (!vm)
		return 0;
	l = &vm->locks;
	if (monitor) {
		object = object_at(&s->walk, l, monitor + l->monitor_object, &is_stale);
	} else {
		object = object_at(&s->walk, l, thread + l->thread_object, &is_stale);
		if (!object || is_stale)
			return 0;
		object = object_in(&s->walk, l, object + l->park_blocker, &is_stale);
		if (is_stale)
			return 0;
	}
	if (!object)
		return 0;
	mark = word_at(&s->walk, object);
	/* Shenandoah has moved the object. */
	if ((mark & JP_MARK_BITS) == JP_MARK_FORWARDED) {
		object = mark & ~JP_MARK_BITS;
		mark = word_at(&s->walk, object);
	}
	/* The object of a monitor refers to the monitor: this proves the address, whatever its colour is. */
	if (monitor && ((mark & JP_MARK_BITS) != JP_MARK_MONITOR ||
			(!(l->traits & JP_VM_MONITOR_TABLE) && (mark & ~JP_MARK_BITS) != monitor)))
		return 0;
	if (monitor && is_stale && l->traits & JP_VM_MONITOR_TABLE)
		return 0;
	return class_of(&s->walk, l, object, mark);
}

/*
 * The thread that has a monitor, by its id in its own pid namespace; 0: not known. Up to JDK 23 the owner is a
 * JavaThread: its first word, the table of its C++ class, is the same as that of `thread`. It can be a place on the
 * owner's stack instead, and later it is a number.
 */
static __always_inline __u32 holder_of(struct walk *w, const struct jp_vm_locks *l, __u64 thread, __u64 monitor)
{
	__u64 owner = word_at(w, monitor + l->monitor_owner);

	if (owner < JP_USER_MIN || owner == thread || word_at(w, owner) != word_at(w, thread))
		return 0;
	return jvm_tid(w, l, owner);
}

/*
 * Writes the lock for which a thread waited, whose stack is in the scratch, into the record, and into the hash of the
 * stack. `tid` is the thread's id in its own pid namespace, `waker` the thread of the process that ended the wait, or 0.
 * Returns 1 if a collection hides the lock. A global function, see find_range.
 */
__attribute__((noinline)) int find_lock(__u32 slot, __u32 waker, __u32 tid)
{
	struct scratch *s = scratch_at(slot);
	const struct jp_vm_locks *l;
	struct jp_lock *lock;
	struct jp_vm *vm;
	__u64 thread, monitor;
	__u32 kind = JP_LOCK_monitor, holder = 0;

	if (!s || !s->walk.entry)
		return 0;
	vm = (struct jp_vm *)page_of(s->walk.entry_vm);
	if (!vm || !vm->locks.call_stub)
		return 0;
	l = &vm->locks;
	lock = &s->record.lock;
	thread = word_at(&s->walk, s->walk.entry + JP_ENTRY_THREAD);
	if (!thread || jvm_tid(&s->walk, l, thread) != tid)
		return 0;
	if (is_heap_busy(&s->walk, l))
		return 1;
	monitor = word_at(&s->walk, thread + l->pending);
	if (!monitor) {
		monitor = word_at(&s->walk, thread + l->waiting);
		kind = monitor ? JP_LOCK_wait : JP_LOCK_park;
	}
	lock->class = find_class(slot, thread, monitor);
	if (!lock->class)
		return 0;
	if (is_heap_busy(&s->walk, l)) {
		lock->class = 0;
		return 1;
	}
	if (kind == JP_LOCK_monitor && !waker)
		holder = holder_of(&s->walk, l, thread, monitor);
	lock->kind = kind;
	lock->owner = waker ? waker : holder;
	if (lock->owner)
		lock->owner_kind = waker ? JP_OWNER_waker : JP_OWNER_holder;
	s->hash = mix(s->hash, lock->class);
	s->hash = mix(s->hash, (__u64)lock->owner << 32 | lock->kind << 16 | lock->owner_kind);
	return 0;
}

#endif
