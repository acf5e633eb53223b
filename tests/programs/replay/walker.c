/*
 * The unwinder of bpf/, compiled for user space, on a recording (recording.h):
 *   walker RECORDING PAGES SPACE
 * PAGES is a file with the pages of unwind tables as they would be loaded; SPACE is the number of the page where the
 * process's space begins. For each stack it prints the stop reason; in hexadecimal the number of memory reads, of
 * failed reads, of looks at memory or PAGES, of looks in a second walk with the steps that all walks before have noted
 * (it must give the same stack), and the words; a bar, the leaf's ip and its true callers.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../../bpf/walk.h"
#include "recording.h"

/* A file's content. */
struct content {
	uint8_t *bytes;
	size_t size;
};

static struct content pages;
static struct scratch the_scratch;
enum { SLOT = 1 }; /* of the_scratch; there is no other slot */
static __u32 the_space;
static struct jp_step the_steps[JP_STEPS];
static enum { STEPS_none, STEPS_own, STEPS_others } known_steps;
static unsigned long reads, failed; /* of the walk */
static unsigned long looks;         /* reads of memory, and of pages */
static unsigned long again;         /* looks of the second walk */

/* The recorded memory, by address: slots of a power of two, at most half of them full. */
static struct block {
	uint64_t address;
	const uint8_t *bytes;
} *blocks;
static size_t slots, used;

static struct block *slot_of(uint64_t address)
{
	size_t at = address / BLOCK_SIZE * 0x9e3779b97f4a7c15ULL >> 20;

	while (blocks[at & (slots - 1)].bytes && blocks[at & (slots - 1)].address != address)
		at++;
	return &blocks[at & (slots - 1)];
}

static void remember(uint64_t address, const uint8_t *bytes)
{
	struct block *slot = slot_of(address);

	used += !slot->bytes;
	if (used * 2 > slots) {
		fputs("too many blocks\n", stderr);
		exit(1);
	}
	*slot = (struct block){ address, bytes };
}

long bpf_probe_read_user(void *to, __u32 size, const void *from)
{
	uint64_t address = (uint64_t)from;
	uint8_t *out = to;

	reads++;
	looks++;
	for (__u32 done = 0; done < size;) {
		uint32_t inside = (address + done) % BLOCK_SIZE;
		uint32_t count = size - done < BLOCK_SIZE - inside ? size - done : BLOCK_SIZE - inside;
		struct block *block = slot_of(address + done - inside);

		if (!block->bytes) {
			failed++;
			memset(to, 0, size); /* as the kernel does */
			return -14;
		}
		memcpy(out + done, block->bytes + inside, count);
		done += count;
	}
	return 0;
}

void *bpf_map_lookup_elem(void *map, const void *key)
{
	size_t chunk = (size_t)JP_CHUNK_PAGES * JP_PAGE_SIZE;
	size_t at = *(const __u32 *)key;

	if (map == &scratch)
		return at == SLOT ? &the_scratch : NULL;
	if (map == &spaces)
		return &the_space;
	if (map == &steps) {
		static struct jp_step step;

		if (known_steps == STEPS_none || at >= JP_STEPS)
			return NULL;
		step = the_steps[at];
		return known_steps == STEPS_own ? &the_steps[at] : &step;
	}
	if (map == &chunks) {
		looks++;
		return at * chunk < pages.size ? pages.bytes + at * chunk : NULL;
	}
	return at < JP_CHUNK_PAGES && (uint8_t *)map + (at + 1) * JP_PAGE_SIZE <= pages.bytes + pages.size ?
		       (uint8_t *)map + at * JP_PAGE_SIZE :
		       NULL;
}

static struct content content_of(const char *path)
{
	struct content content = { NULL, 0 };
	struct stat stat;
	int fd = open(path, O_RDONLY);

	if (fd >= 0 && !fstat(fd, &stat) && stat.st_size) {
		content.size = (size_t)stat.st_size;
		content.bytes = mmap(NULL, content.size, PROT_READ, MAP_PRIVATE, fd, 0);
	}
	if (!content.size || content.bytes == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	return content;
}

static const char *const ends[] = {
#define X(name) #name,
	JP_ENDS(X)
#undef X
};

static void walk(const struct start *start, __u64 seed, __u32 tgid)
{
	struct jp_space *space = (struct jp_space *)page_of(the_space);
	struct mm_struct mm = { space->start_code, space->end_code, space->start_stack };
	struct task_struct task = { .mm = &mm };
	struct regs regs = {
		.ip = start->ip,
		.sp = start->sp,
		.fp = start->fp,
		.ax = start->ax,
		.bx = start->bx,
		.r13 = start->r13,
	};
	struct scratch *s = &the_scratch;

	/* Data of an earlier walk, perhaps of another process, must have no effect. */
	memset(s, 0x5a, sizeof(*s));
	s->walk.slot = SLOT;
	s->part.start = start->sp & ~7ULL;
	s->n = 0;
	s->walk.seed = seed;
	reads = failed = looks = 0;
	begin_walk(s, &regs, &task, tgid);
	walk_frames(s);
}

/* Walks again with the steps of all walks before; a walk that was cut off may get further. */
static void walk_again(const struct start *start)
{
	static struct scratch first;
	unsigned long first_reads = reads, first_failed = failed, first_looks = looks;
	const struct scratch *second = &the_scratch;
	bool is_cut;

	first = the_scratch;
	is_cut = first.end == JP_END_depth;
	known_steps = STEPS_own;
	walk(start, 1, 1);
	if ((!is_cut && (second->n != first.n || second->end != first.end)) || second->n < first.n ||
	    memcmp(second->words, first.words, first.n * sizeof(*first.words))) {
		fprintf(stderr, "another stack the second time, from %lx: %u words, %s; %u words, %s\n", start->ip, first.n,
			ends[first.end], second->n, ends[second->end]);
		exit(1);
	}
	again = looks;
	/* Steps of another second, and of another process, must not be used. */
	known_steps = STEPS_others;
	for (int other = 0; other < 2; other++) {
		walk(start, other ? 1 : 2, other ? 2 : 1);
		if (looks != first_looks) {
			fprintf(stderr, "%s steps are believed, from %lx: %lu looks, not %lu\n",
				other ? "another process's" : "another second's", start->ip, looks, first_looks);
			exit(1);
		}
	}
	known_steps = STEPS_none;
	the_scratch = first;
	reads = first_reads;
	failed = first_failed;
	looks = first_looks;
}

static void print(const struct start *start, const uint64_t *callers)
{
	const struct scratch *s = &the_scratch;

	printf("%s %lx %lx %lx %lx", ends[s->end], reads, failed, looks, again);
	for (__u32 i = 0; i < s->n; i++)
		printf(" %llx", s->words[i]);
	printf(" | %lx", start->ip);
	for (uint64_t i = 0; i < start->callers; i++)
		printf(" %lx", callers[i]);
	putchar('\n');
}

int main(int argc, char **argv)
{
	struct content recording;

	if (argc != 4)
		return 2;
	recording = content_of(argv[1]);
	pages = content_of(argv[2]);
	the_space = (__u32)atoi(argv[3]);
	for (slots = 1024; slots < recording.size / BLOCK_SIZE * 2;)
		slots *= 2;
	blocks = calloc(slots, sizeof(*blocks));
	for (size_t at = 0; at + sizeof(struct item) <= recording.size;) {
		const struct item *item = (const struct item *)(recording.bytes + at);
		const struct start *start = (const struct start *)(item + 1);

		at += sizeof(*item);
		if (item->kind == ITEM_block) {
			remember(item->address, recording.bytes + at);
			at += BLOCK_SIZE;
		} else {
			walk(start, 1, 1);
			walk_again(start);
			print(start, (const uint64_t *)(start + 1));
			at += sizeof(*start) + start->callers * sizeof(uint64_t);
		}
	}
	return 0;
}
