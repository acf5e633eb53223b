/*
 * Does one thing again and again, on demand: occur faults|syscalls|calls|steps|marks|allocs|spans CPU
 *
 * The program runs on the CPU. Each line of its input is a number of seconds; the program then works for this time, and
 * prints how often the thing occurred, and wall and CPU time in nanoseconds. Before and between, it waits without an
 * occurrence. So a profiler's samples can be compared with the printed number.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "../../tests/programs/marker.h"

#define NOINLINE __attribute__((noinline, noclone))
/* Keeps the compiler from a jump in place of the call before it, which would leave out a frame. */
#define NO_TAIL_CALL() __asm__ volatile("")
/* Reading the clock may be a system call, so the clock is read once for so many occurrences. */
#define BETWEEN_CLOCKS 1024
/* Frames below each occurrence: unwinding is the largest part of a sample. */
#define FRAMES 20
#define PAGE 4096
/* A power of two: blocks that are allocated at a time. */
#define BLOCKS 64
/* Sizes of blocks: SMALLEST, doubled so often and less. */
#define SMALLEST 64
#define SIZES 9

static volatile char *pages;
static void *blocks[BLOCKS];
static uint64_t random_state = 88172645463325252ULL;

/* The trace context of the thread, as OTEP 4947 has it. */
static struct {
	uint8_t trace[16];
	uint8_t span[8];
	uint8_t valid;
	uint8_t flags;
	uint16_t attributes_size;
} __attribute__((packed, aligned(2))) context = { { 1 }, { 2 }, 1, 0, 0 };
__attribute__((visibility("default"))) __thread void *volatile otel_thread_ctx_v1;

/* Touches pages that are not there. Gives them back at the end, so the memory does not grow. */
static NOINLINE void faults(void)
{
	for (int i = 0; i < BETWEEN_CLOCKS; i++)
		pages[(size_t)i * PAGE] = 1;
	if (madvise((void *)pages, (size_t)BETWEEN_CLOCKS * PAGE, MADV_DONTNEED))
		abort();
}

/* Begins with an instruction that the kernel must step through if a breakpoint replaces it: that takes longer. */
NOINLINE long stepped(long x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

/* Makes a call, so the function begins with a push, as most do. The kernel emulates a push. */
NOINLINE long called(long x)
{
	return stepped(x) + 1;
}

static NOINLINE void calls(void)
{
	for (int i = 0; i < BETWEEN_CLOCKS; i++)
		called(i);
}

static NOINLINE void steps(void)
{
	for (int i = 0; i < BETWEEN_CLOCKS; i++)
		stepped(i);
}

static NOINLINE void marks(void)
{
	for (int i = 0; i < BETWEEN_CLOCKS; i++)
		MARK("occur", "mark", "0");
}

static NOINLINE void syscalls(void)
{
	for (int i = 0; i < BETWEEN_CLOCKS; i++)
		syscall(SYS_getppid);
}

static NOINLINE void allocs(void)
{
	for (int i = 0; i < BETWEEN_CLOCKS; i++) {
		void **block = &blocks[i % BLOCKS];

		random_state ^= random_state << 13;
		random_state ^= random_state >> 7;
		random_state ^= random_state << 17;
		free(*block);
		*block = malloc((size_t)SMALLEST << random_state % SIZES);
		if (!*block)
			abort();
	}
}

static NOINLINE void spans(void)
{
	for (int i = 0; i < BETWEEN_CLOCKS; i++)
		for (int turn = 0; turn < 100; turn++)
			__asm__ volatile("");
}

static const struct mode {
	const char *name;
	void (*run)(void);
} modes[] = {
	{ "faults", faults }, { "syscalls", syscalls }, { "calls", calls }, { "steps", steps },
	{ "marks", marks },   { "allocs", allocs },     { "spans", spans },
};

static long long now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static NOINLINE void work(const struct mode *mode, double seconds)
{
	long long begin = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), count = 0, wall;

	do {
		mode->run();
		count += BETWEEN_CLOCKS;
		wall = now_ns(CLOCK_MONOTONIC) - begin;
	} while (wall < (long long)(seconds * 1e9));
	printf("%lld %lld %lld\n", count, wall, now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	fflush(stdout);
}

static NOINLINE void descend(const struct mode *mode, double seconds, int frames)
{
	if (frames)
		descend(mode, seconds, frames - 1);
	else
		work(mode, seconds);
	NO_TAIL_CALL();
}

static void prepare(const char *cpu)
{
	size_t size = (size_t)BETWEEN_CLOCKS * PAGE;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(cpu), &set);
	pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (sched_setaffinity(0, sizeof(set), &set) || pages == MAP_FAILED)
		abort();
	/* A large page would be one fault for 512 pages. A kernel without large pages refuses this. */
	madvise((void *)pages, size, MADV_NOHUGEPAGE);
	/* Without this, free() gives memory back to the kernel, and malloc() has page faults. */
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	otel_thread_ctx_v1 = &context;
}

int main(int argc, char **argv)
{
	const struct mode *mode = modes, *end = modes + sizeof(modes) / sizeof(*modes);
	char line[32];

	while (argc == 3 && mode < end && strcmp(mode->name, argv[1]))
		mode++;
	if (argc != 3 || mode == end)
		return 2;
	prepare(argv[2]);
	while (fgets(line, sizeof(line), stdin))
		descend(mode, atof(line), FRAMES);
	return 0;
}
