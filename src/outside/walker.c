/*
 * The unwinder of bpf/, compiled for user space. It unwinds a thread that is still waiting, from the registers with which
 * the thread left user mode. What are BPF maps in the kernel is memory here: the pages of one process's unwind tables and
 * address space. The caller reads the memory of the process.
 *
 * One walk at a time on a thread. Nothing here is allocated, and no walk reads more than JP_MAX_READS times.
 */
#include <stdint.h>
#include <string.h>
#include "../../bpf/walk.h"
#include "../../bpf/lock.h"

/* Pages of unwind tables, and how to read the memory of the process. src/outside/mod.rs has the same struct. */
struct jp_outside {
	const uint8_t *pages;
	uint64_t size; /* bytes */
	uint32_t space; /* the page where the address space begins; 0: the process has none */
	uint32_t pad;
	/* Reads `size` bytes at `address`; 0 if all could be read. */
	long (*read)(void *memory, uint64_t address, void *to, uint32_t size);
	void *memory;
};

enum { SLOT = 1 }; /* of the_scratch: no other slot exists */

static _Thread_local const struct jp_outside *outside;
static _Thread_local struct scratch the_scratch;

long bpf_probe_read_user(void *to, __u32 size, const void *from)
{
	long err;

	memset(to, 0, size); /* the reader expects initialized memory */
	err = outside->read(outside->memory, (uint64_t)from, to, size);
	if (err)
		memset(to, 0, size); /* as the kernel does */
	return err;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	const uint64_t chunk = (uint64_t)JP_CHUNK_PAGES * JP_PAGE_SIZE;
	const uint64_t at = *(const __u32 *)key;
	const uint8_t *end = outside->pages + outside->size;

	if (map == &scratch)
		return at == SLOT ? &the_scratch : NULL;
	if (map == &spaces)
		return outside->space ? (void *)&outside->space : NULL;
	if (map == &steps)
		return NULL; /* no step is looked at twice */
	if (map == &chunks)
		return at * chunk < outside->size ? (void *)(outside->pages + at * chunk) : NULL;
	/* A page of the chunk that the lookup before has returned. */
	return at < JP_CHUNK_PAGES && (uint64_t)(end - (const uint8_t *)map) >= (at + 1) * JP_PAGE_SIZE ?
		       (uint8_t *)map + at * JP_PAGE_SIZE :
		       NULL;
}

/*
 * Unwinds the user stack of a thread into `words`, which has room for JP_MAX_USER_WORDS. `leaf`: enum jp_leaf. Returns
 * the stop reason, and sets `count` to the number of words, `lock` to the Java lock of the wait, and `hidden` to 1 if a
 * collection hides the lock now.
 */
uint32_t jp_walk_outside(const struct jp_outside *from, const struct jp_waiting *start, uint32_t leaf, uint64_t *words,
			 uint32_t *count, struct jp_lock *lock, uint32_t *hidden)
{
	/* The unwinder compares these with the address space, which was made for this program. */
	static const struct jp_space none;
	const struct jp_space *space = &none;
	struct scratch *s = &the_scratch;
	struct mm_struct mm;
	/* No parent: it must not lend its address space. */
	struct task_struct task = { .mm = &mm, .real_parent = &task, .self_exec_id = 1 };
	struct regs regs = {
		.ip = start->ip,
		.sp = start->sp,
		.fp = start->fp,
		.ax = start->ax,
		.bx = start->bx,
		.r13 = start->r13,
		.i386 = start->i386,
		.syscall = leaf == JP_LEAF_syscall,
	};

	outside = from;
	if (from->space) {
		space = (const struct jp_space *)page_of(from->space);
		if (!space)
			space = &none;
	}
	mm = (struct mm_struct){
		.start_code = space->start_code,
		.end_code = space->end_code,
		.start_stack = space->start_stack,
	};
	memset(s, 0, sizeof(*s));
	s->walk.slot = SLOT;
	s->record.leaf = leaf;
	begin_walk(s, &regs, &task, 1);
	walk_frames(s);
	*hidden = find_lock(SLOT, 0, start->own_tid);
	*lock = s->record.lock;
	*count = s->n < JP_MAX_USER_WORDS ? s->n : JP_MAX_USER_WORDS;
	memcpy(words, s->words, *count * sizeof(*words));
	outside = NULL;
	return s->end;
}
