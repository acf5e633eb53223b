/*
 * Runs a program one instruction at a time, and records (recording.h) the stack at each instruction, the first times
 * that the instruction runs:
 *   record DIR all|part PROGRAM [ARGUMENT...]
 * from the first instruction to the last, or from the first int3 until the function that contains it returns;
 *   record DIR thread PID TID STEPS [ADDRESS LENGTH]...
 * STEPS instructions of a thread while all others stand still, with this memory as it was before the first one. Callers
 * are not known then. The process does not survive: flags that were saved meanwhile say that it is traced.
 * Exit code 3: the thread waits for one that stands still, since the process was stopped in the middle of something.
 * Writes DIR/recording, and then DIR/maps (of /proc/PID).
 *
 * Callers are known without any description of frames: an instruction that pushes the address after itself is a call,
 * and the call has returned when the stack pointer is above that word. A signal handler returns to the address on its
 * stack, and that code returns to the interrupted instruction.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include "recording.h"

#define VISITS 2             /* recorded of each instruction */
#define MAX_CALLS 4096       /* deep */
#define MAX_STACK (64 << 10) /* bytes recorded of one stack */
#define RED_ZONE 256
#define SEEN (1 << 22)       /* slots */
#define MAX_STEPS 5000000
#define STEP_LIMIT 10 /* seconds */
#define WAITS 3

static pid_t child; /* the thread */
static int memory;
static FILE *recording;
static const char *directory;

/* Calls that have not returned: the place and value of the return address; interrupted code has no such word. */
static struct call {
	uint64_t slot, pc;
	bool interrupted;
} calls[MAX_CALLS];
static size_t depth;

/* A stack: the address from which its memory matters, and the content that was recorded last. */
struct stack {
	uint64_t low, end;
	uint8_t was[MAX_STACK], is[MAX_STACK];
	bool known[MAX_STACK / BLOCK_SIZE];
	uint64_t base;
};
static struct stack main_stack, signal_stack;

static void fail(const char *what)
{
	perror(what);
	if (child > 0)
		kill(child, SIGKILL);
	exit(1);
}

static uint64_t word_at(uint64_t address)
{
	uint64_t word = 0;

	if (pread(memory, &word, sizeof(word), (off_t)address) != sizeof(word))
		return 0;
	return word;
}

/* How often this instruction ran before, up to VISITS. */
static unsigned visits(uint64_t ip)
{
	static struct {
		uint64_t ip;
		unsigned times;
	} seen[SEEN];
	size_t at = ip * 0x9e3779b97f4a7c15ULL >> 42;

	while (seen[at].ip && seen[at].ip != ip)
		at = (at + 1) % SEEN;
	seen[at].ip = ip;
	return seen[at].times < VISITS ? seen[at].times++ : VISITS;
}

static void put(const void *bytes, size_t size)
{
	if (fwrite(bytes, size, 1, recording) != 1)
		fail("recording");
}

/* Records what has changed of the stack between `from` and its end. */
static void record_stack(struct stack *stack, uint64_t from)
{
	uint64_t first = (from < stack->base ? stack->base : from) / BLOCK_SIZE * BLOCK_SIZE;
	uint8_t *is = stack->is + (first - stack->base);

	if (pread(memory, is, stack->end - first, (off_t)first) != (ssize_t)(stack->end - first))
		fail("the stack");
	for (uint64_t at = first; at < stack->end; at += BLOCK_SIZE) {
		size_t i = at - stack->base;
		struct item item = { ITEM_block, at };

		if (stack->known[i / BLOCK_SIZE] && !memcmp(stack->is + i, stack->was + i, BLOCK_SIZE))
			continue;
		put(&item, sizeof(item));
		put(stack->is + i, BLOCK_SIZE);
		memcpy(stack->was + i, stack->is + i, BLOCK_SIZE);
		stack->known[i / BLOCK_SIZE] = true;
	}
}

static void lay_out(struct stack *stack, uint64_t end)
{
	stack->end = end / BLOCK_SIZE * BLOCK_SIZE;
	stack->base = stack->end - MAX_STACK;
}

static bool lies_in(const struct stack *stack, uint64_t sp)
{
	return sp >= stack->base + RED_ZONE && sp < stack->end;
}

/*
 * The unwinder of exceptions overwrites its own return address, to return to where the exception is caught. Until then
 * nothing on the stack says who called the unwinder.
 */
static bool is_written_over(void)
{
	for (size_t i = 0; i < depth; i++)
		if (!calls[i].interrupted && word_at(calls[i].slot) != calls[i].pc)
			return true;
	return false;
}

/* Records memory, as far as it is there. */
static void record_memory(uint64_t address, uint64_t length)
{
	uint8_t bytes[BLOCK_SIZE];

	for (uint64_t at = address / BLOCK_SIZE * BLOCK_SIZE; at < address + length; at += BLOCK_SIZE) {
		struct item item = { ITEM_block, at };

		if (pread(memory, bytes, BLOCK_SIZE, (off_t)at) != BLOCK_SIZE)
			continue;
		put(&item, sizeof(item));
		put(bytes, BLOCK_SIZE);
	}
}

/* Records the code around an instruction, once. */
static void record_code(uint64_t ip)
{
	for (uint64_t at = (ip - 16) / BLOCK_SIZE * BLOCK_SIZE; at <= ip; at += BLOCK_SIZE)
		if (!visits(~at))
			record_memory(at, BLOCK_SIZE);
}

/* Records the code at all addresses on the stack that may be return addresses of calls before the recording. */
static void record_callers(uint64_t sp, uint64_t end)
{
	static uint64_t words[MAX_STACK / sizeof(uint64_t)];
	char path[64], line[4096];
	uint64_t low, high;
	FILE *maps;

	if (pread(memory, words, end - sp, (off_t)sp) != (ssize_t)(end - sp))
		fail("the stack");
	snprintf(path, sizeof(path), "/proc/%d/maps", child);
	maps = fopen(path, "r");
	if (!maps)
		fail(path);
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &low, &high) != 2 || line[strcspn(line, " ") + 3] != 'x')
			continue;
		for (size_t i = 0; i < (end - sp) / sizeof(uint64_t); i++)
			if (words[i] >= low && words[i] < high)
				record_code(words[i]);
	}
	fclose(maps);
}

static void record(const struct user_regs_struct *r)
{
	struct item item = { ITEM_stack, 0 };
	struct start start = { r->rip, r->rsp, r->rbp, r->rax, r->rbx, r->r13, depth };

	record_code(r->rip);
	if (lies_in(&main_stack, r->rsp)) {
		main_stack.low = r->rsp;
	} else {
		if (!lies_in(&signal_stack, r->rsp)) {
			memset(signal_stack.known, 0, sizeof(signal_stack.known));
			lay_out(&signal_stack, r->rsp + 2 * 4096);
		}
		record_stack(&signal_stack, r->rsp - RED_ZONE);
	}
	record_stack(&main_stack, main_stack.low - RED_ZONE);
	put(&item, sizeof(item));
	put(&start, sizeof(start));
	for (size_t i = depth; i-- > 0;)
		put(&calls[i].pc, sizeof(uint64_t));
}

static void call(uint64_t slot, uint64_t pc, bool interrupted)
{
	if (depth == MAX_CALLS) {
		fputs("too deep\n", stderr);
		exit(1);
	}
	calls[depth++] = (struct call){ slot, pc, interrupted };
}

/* Updates the calls after the step from `before` to `now`. */
static void follow(const struct user_regs_struct *before, const struct user_regs_struct *now, bool signalled)
{
	uint64_t top;

	if (signalled) {
		call(now->rsp + 8, before->rip, true);
		call(now->rsp, word_at(now->rsp), false);
		return;
	}
	while (depth && calls[depth - 1].slot < now->rsp)
		depth--;
	if (now->rsp != before->rsp - 8 || now->rip - before->rip <= 15)
		return;
	top = word_at(now->rsp);
	if (top > before->rip && top - before->rip <= 15)
		call(now->rsp, top, false);
}

static void copy_maps(void)
{
	char path[4096], bytes[4096];
	FILE *in, *out;
	size_t got;

	snprintf(path, sizeof(path), "/proc/%d/maps", child);
	in = fopen(path, "r");
	snprintf(path, sizeof(path), "%s/maps", directory);
	out = fopen(path, "w");
	if (!in || !out)
		fail(path);
	while ((got = fread(bytes, 1, sizeof(bytes), in)))
		fwrite(bytes, 1, got, out);
	fclose(in);
	if (fclose(out))
		fail(path);
}

static void open_files(void)
{
	char path[4096];

	snprintf(path, sizeof(path), "/proc/%d/mem", child);
	memory = open(path, O_RDONLY);
	snprintf(path, sizeof(path), "%s/recording", directory);
	recording = fopen(path, "w");
	if (memory < 0 || !recording)
		fail(path);
}

static void start(char **argv)
{
	int status;

	child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		execv(argv[0], argv);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status))
		fail(argv[0]);
	ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_EXITKILL | PTRACE_O_TRACEEXIT);
	open_files();
}

/* The end of readable memory above the stack pointer, up to a limit: main's callers and the kernel's data are there. */
static uint64_t end_of_stack(uint64_t sp)
{
	uint64_t end = sp / BLOCK_SIZE * BLOCK_SIZE, word;

	while (end < sp + MAX_STACK / 2 && pread(memory, &word, sizeof(word), (off_t)end) == sizeof(word))
		end += BLOCK_SIZE;
	return end;
}

static void wake(int signal)
{
	(void)signal;
}

/* Runs one instruction; returns the wait status. */
static int step(int signal)
{
	struct sigaction action = { .sa_handler = wake };
	int status;

	sigaction(SIGALRM, &action, NULL);
	alarm(STEP_LIMIT);
	if (ptrace(PTRACE_SINGLESTEP, child, NULL, signal))
		fail("a step");
	if (waitpid(child, &status, __WALL) < 0) {
		if (errno != EINTR)
			fail("a step");
		kill(child, SIGKILL);
		exit(WAITS);
	}
	alarm(0);
	return status;
}

/* Runs instruction by instruction; delivers the signals that the program gets. */
static void run(int steps, uint64_t bottom, bool known)
{
	struct user_regs_struct before, now;
	int status, signal = 0;

	if (ptrace(PTRACE_GETREGS, child, NULL, &before))
		fail("registers");
	lay_out(&main_stack, end_of_stack(before.rsp));
	if (!bottom)
		bottom = before.rsp;
	if (!known)
		record_callers(before.rsp, main_stack.end);
	record(&before);
	for (; steps > 0; steps--) {
		status = step(signal);
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
			return;
		if (!WIFSTOPPED(status))
			fail("the program is gone");
		if (ptrace(PTRACE_GETREGS, child, NULL, &now))
			fail("registers");
		if (now.rsp > bottom)
			return;
		if (WSTOPSIG(status) != SIGTRAP) {
			signal = WSTOPSIG(status);
			continue;
		}
		if (known)
			follow(&before, &now, signal != 0);
		signal = 0;
		if (!known || (visits(now.rip) < VISITS && !is_written_over()))
			record(&now);
		before = now;
	}
	if (known)
		fail("it does not end");
}

/* Runs a program up to its first int3. */
static void continue_to_int3(void)
{
	int status;

	if (ptrace(PTRACE_CONT, child, NULL, 0) || waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status) ||
	    status >> 8 != SIGTRAP)
		fail("its int3");
}

/* Stops all threads of a process. */
static void stop_all(const char *pid)
{
	char path[64];
	struct dirent *entry;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	tasks = opendir(path);
	if (!tasks)
		fail(path);
	while ((entry = readdir(tasks))) {
		pid_t tid = atoi(entry->d_name);
		int status;

		if (tid && !ptrace(PTRACE_SEIZE, tid, NULL, NULL) &&
		    (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) || waitpid(tid, &status, __WALL) < 0))
			fail("a thread");
	}
	closedir(tasks);
}

static void run_thread(int argc, char **argv)
{
	stop_all(argv[0]);
	child = atoi(argv[1]);
	open_files();
	for (int i = 3; i + 1 < argc; i += 2)
		record_memory(strtoull(argv[i], NULL, 0), strtoull(argv[i + 1], NULL, 0));
	run(atoi(argv[2]), ~0ULL, false);
}

int main(int argc, char **argv)
{
	cpu_set_t cpu = {};

	if (argc < 4)
		return 2;
	/* Switching between the two processes is quickest on one CPU. */
	CPU_SET(sched_getcpu(), &cpu);
	sched_setaffinity(0, sizeof(cpu), &cpu);
	directory = argv[1];
	if (!strcmp(argv[2], "thread") && argc > 5) {
		run_thread(argc - 3, argv + 3);
	} else {
		bool all = !strcmp(argv[2], "all");

		start(argv + 3);
		if (!all)
			continue_to_int3();
		run(MAX_STEPS, all ? ~0ULL : 0, true);
	}
	copy_maps();
	if (fclose(recording))
		fail("recording");
	return 0;
}
