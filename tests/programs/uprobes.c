/*
 * Calls of known shape under uprobes that the program puts on its own functions, as tracing tools do. The arguments are what
 * it does, and then the functions that have a uretprobe:
 *   chain N   main, run, chain x N, qsort, by_value, work
 *   often     main, run, often, tiny: no work but calls of tiny, which are mostly the probe's
 *   tail      main, run, first, work: first jumps to second, which has no frame any more when it jumps to work
 *   jump      main, run, lands, work, after jumps over frames of jumps and leaps that never return
 *   signal    main, run, spin, (the kernel's frame), on_alarm, work: the handler has a stack of its own
 *   copy      main, run, copied: without uretprobe; most of its time a copy of an instruction of copied is about to run
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include "chain.h"
#include "target.h"

static volatile unsigned long sink;
static unsigned long depth = 40;
static jmp_buf landing;
static volatile int jumps_away = 1;

NOINLINE unsigned long work(unsigned long x)
{
	BURN(x, 200000);
	return x;
}

static NOINLINE int by_value(const void *a, const void *b)
{
	unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;

	sink += work(x | 1);
	return x < y ? -1 : x > y;
}

static NOINLINE unsigned long tiny(unsigned long x)
{
	return x * 3;
}

static NOINLINE unsigned long often(unsigned long x)
{
	for (int i = 0; i < 1000; i++)
		x += tiny(x);
	return x;
}

static NOINLINE unsigned long second(unsigned long x)
{
	return work(x | 1);
}

static NOINLINE unsigned long first(unsigned long x)
{
	return second(x + 1);
}

static NOINLINE void leaps(int n)
{
	if (n)
		leaps(n - 1);
	else if (jumps_away)
		longjmp(landing, 1);
	asm volatile("");
}

static NOINLINE void jumps(void)
{
	leaps(3);
	asm volatile("");
}

static NOINLINE void lands(void)
{
	if (!setjmp(landing))
		jumps();
	sink += work(1);
}

static void on_alarm(int unused)
{
	sink += work((unsigned long)unused);
}

static NOINLINE void spin(void)
{
	for (unsigned long i = 1; i; i++)
		asm volatile("" : "+r"(i));
}

#ifdef __x86_64__
/* The kernel does not emulate lea, so its copy runs. */
unsigned long copied(unsigned long x);
extern const char copied_lea[];
asm("	.text\n"
    "	.type copied, @function\n"
    "copied:\n"
    "	.cfi_startproc\n"
    "	push %rbx\n"
    "	.cfi_def_cfa_offset 16\n"
    "	.cfi_offset %rbx, -16\n"
    "	mov $1000, %ebx\n"
    "copied_lea:\n"
    "	lea 1(%rdi, %rdi, 2), %rdi\n"
    "	dec %ebx\n"
    "	jnz copied_lea\n"
    "	mov %rdi, %rax\n"
    "	pop %rbx\n"
    "	.cfi_def_cfa_offset 8\n"
    "	ret\n"
    "	.cfi_endproc\n"
    "	.size copied, . - copied\n");
#endif

static unsigned uprobe_type(void)
{
	FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	unsigned type = 0;

	if (!file || fscanf(file, "%u", &type) != 1)
		exit(3);
	fclose(file);
	return type;
}

/* Puts a probe on an instruction of this program. `config`: 1 for a uretprobe, as .../devices/uprobe/format/retprobe says. */
static void probe(const void *at, unsigned long config)
{
	extern const char __executable_start[];
	struct perf_event_attr attr = { .size = sizeof(attr), .type = uprobe_type(), .config = config };

	attr.uprobe_path = (uintptr_t)"/proc/self/exe";
	attr.probe_offset = (uintptr_t)at - (uintptr_t)__executable_start;
	if (syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC) < 0) {
		perror("perf_event_open");
		exit(3);
	}
}

static void probe_named(const char *name)
{
	static const struct {
		const char *name;
		const void *code;
	} all[] = {
		{ "chain", chain }, { "by_value", by_value }, { "work", work }, { "tiny", tiny }, { "first", first },
		{ "second", second }, { "leaps", leaps }, { "jumps", jumps }, { "lands", lands }, { "spin", spin },
		{ "on_alarm", on_alarm },
	};

	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(name, all[i].name))
			return probe(all[i].code, 1);
	exit(2);
}

static void take_signals(void)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_ONSTACK };
	struct itimerval timer = { { 0, 1000 }, { 0, 1000 } };
	stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };

	sigaltstack(&stack, NULL);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

static NOINLINE void run(const char *what)
{
	for (unsigned long x = 1;; x++) {
		if (!strcmp(what, "chain"))
			sink += chain(depth - 1);
		else if (!strcmp(what, "often"))
			sink += often(x);
		else if (!strcmp(what, "tail"))
			sink += first(x);
		else if (!strcmp(what, "jump"))
			lands();
		else if (!strcmp(what, "signal"))
			spin();
#ifdef __x86_64__
		else if (!strcmp(what, "copy"))
			sink += copied(x);
#endif
	}
}

int main(int argc, char **argv)
{
	int at = 2;

	if (argc < 2)
		return 2;
	if (!strcmp(argv[1], "chain") && argc > 2)
		depth = strtoul(argv[at++], NULL, 10);
#ifdef __x86_64__
	if (!strcmp(argv[1], "copy"))
		probe(copied_lea, 0);
#endif
	for (; at < argc; at++)
		probe_named(argv[at]);
	if (!strcmp(argv[1], "signal"))
		take_signals();
	ready();
	run(argv[1]);
	return 0;
}
