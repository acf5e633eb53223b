/*
 * Stacks of known shape, for code without frame pointers. The first argument says which:
 *   chain     main, chain x 40, qsort, by_value, work; `chain N` with N calls of chain, `chain N MS` for so many ms
 *   signal    main, spin, (the kernel's frame), on_alarm, work; with `signal stack` the handler has a stack of its own,
 *             with `signal bare` it returns to code without a description, as in musl's programs
 *   leaves    main, caller, and tiny, which has pushes, pops and no frame pointer; no work of their own
 *   slot      main and slot, which works before and after the push in an entry of the procedure linkage table
 *   thread    the same as chain, in a thread
 *   forks     the same as chain, in one short-lived child after the other
 *   two       the same as chain, and in a second thread in until_signalled, which ends at SIGUSR1
 *   coroutine in_coroutine, chain x 40 and so on, on a stack of its own without callers; switches in and out of it
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include "chain.h"
#include "target.h"

static volatile unsigned long sink;

#ifdef __x86_64__
/*
 * An entry of the procedure linkage table takes no time, so slot has its shape and description, and takes time: 16
 * bytes, a push that ends at the 11th, and the linkers' one rule for all entries (System V ABI of AMD64, lazy binding):
 * CFA = rsp + 8 + ((rip & 15) >= 11) * 8.
 */
void slot(unsigned before, unsigned after);
asm("	.text\n"
    "	.p2align 4\n"
    "	.type slot, @function\n"
    "slot:\n"
    "	.cfi_startproc\n"
    "	.cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22\n"
    "1:	dec %edi\n"
    "	jnz 1b\n"
    "	xchg %ax, %ax\n"
    "	.byte 0x68, 0, 0, 0, 0\n" /* push $0 */
    "2:	dec %esi\n"
    "	jnz 2b\n"
    "	pop %rcx\n"
    "	ret\n"
    "	.cfi_endproc\n"
    "	.size slot, . - slot\n");
#endif

static NOINLINE unsigned long work(unsigned long x, unsigned long rounds)
{
	BURN(x, rounds);
	return x;
}

static unsigned long depth = 40;

static NOINLINE int by_value(const void *a, const void *b)
{
	unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;

	sink += work(x | 1, 20000);
	return x < y ? -1 : x > y;
}

static void *in_thread(void *unused)
{
	for (;;)
		sink += chain(depth - 1);
	return unused;
}

static ucontext_t outside, inside;

static void in_coroutine(void)
{
	for (;;) {
		sink += chain(39);
		swapcontext(&inside, &outside);
	}
}

static void in_and_out(void)
{
	getcontext(&inside);
	inside.uc_stack.ss_size = 1 << 16;
	inside.uc_stack.ss_sp = malloc(inside.uc_stack.ss_size);
	/* This word is in the place of a caller's frame: an address of code, but not of a caller. */
	inside.uc_link = (ucontext_t *)(unsigned long)in_coroutine;
	makecontext(&inside, in_coroutine, 0);
	for (;;)
		swapcontext(&outside, &inside);
}

static volatile sig_atomic_t signalled;

static void on_word(int unused)
{
	signalled = unused;
}

static void *until_signalled(void *unused)
{
	while (!signalled)
		sink += chain(39);
	return unused;
}

static void on_alarm(int unused)
{
	sink += work((unsigned long)unused, 300000);
}

#ifdef __x86_64__
/* As in musl: assembler without a description of its frame. */
__asm__(".text\nnop\nbare_return: mov $15, %rax\nsyscall\n");
extern void bare_return(void);

/* The kernel's structure, because libc's function would set its own restorer. */
struct bare_action {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

#define SA_RESTORER_OF_X86 0x04000000

static void catch_bare(void)
{
	struct bare_action action = { .handler = on_alarm, .flags = SA_RESTORER_OF_X86, .restorer = bare_return };

	syscall(SYS_rt_sigaction, SIGALRM, &action, NULL, sizeof(action.mask));
}
#endif

static NOINLINE void spin(void)
{
	for (unsigned long i = 1; i; i++)
		asm volatile("" : "+r"(i));
}

static NOINLINE unsigned long tiny(unsigned long x, unsigned long y)
{
	unsigned long a = x * y, b = x + y, c = x ^ y, d = x | y, e = x & y;

#ifdef __i386__
	asm volatile("" : "+g"(a), "+g"(b), "+g"(c), "+g"(d), "+g"(e) : : "ebx", "esi", "edi", "ebp");
#else
	asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e) : : "rbx", "r12", "r13", "r14", "r15", "rbp");
#endif
	return a + b + c + d + e;
}

static NOINLINE unsigned long caller(unsigned long x)
{
	for (int i = 0; i < 100000; i++)
		x = tiny(x, x + 1) + tiny(x + 2, x);
	return x;
}

static void in_children(void)
{
	for (;;) {
		pid_t child = fork();

		if (child <= 0) {
			for (int i = 0; i < 20; i++)
				sink += chain(39);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "chain";
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval timer = { { 0, 1000 }, { 0, 1000 } };
	stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
	pthread_t thread;

	ready();
	if (!strcmp(what, "thread")) {
		pthread_create(&thread, NULL, in_thread, NULL);
		pthread_join(thread, NULL);
	}
	if (!strcmp(what, "two")) {
		signal(SIGUSR1, on_word);
		pthread_create(&thread, NULL, until_signalled, NULL);
	}
	if (!strcmp(what, "forks"))
		in_children();
	if (!strcmp(what, "coroutine"))
		in_and_out();
	if (!strcmp(what, "signal")) {
		if (argc > 2 && !strcmp(argv[2], "stack")) {
			sigaltstack(&stack, NULL);
			action.sa_flags = SA_ONSTACK;
		}
		sigaction(SIGALRM, &action, NULL);
#ifdef __x86_64__
		if (argc > 2 && !strcmp(argv[2], "bare"))
			catch_bare();
#endif
		setitimer(ITIMER_REAL, &timer, NULL);
		spin();
	}
#ifdef __x86_64__
	if (!strcmp(what, "slot"))
		for (;;)
			slot(500, 500);
#endif
	if (!strcmp(what, "leaves"))
		for (unsigned long x = 1;; )
			x = caller(x);
	if (argc > 2)
		depth = strtoul(argv[2], NULL, 10);
	if (argc > 3)
		for (unsigned long end = us_of(CLOCK_MONOTONIC) + 1000 * strtoul(argv[3], NULL, 10); us_of(CLOCK_MONOTONIC) < end;)
			sink += chain(depth - 1);
	else
		in_thread(NULL);
	return 0;
}
