/*
 * Runs through much of what compilers and libc do to stacks, and ends: lazily bound calls, callbacks out of libc, stacks of
 * variable size and of large alignment, jumps out of calls, signal handlers on the stack and on one of their own, a thread,
 * the vdso, functions at the end.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "chain.h"

static volatile unsigned long sink;
static jmp_buf jump;

static int by_value(const void *a, const void *b)
{
	return (int)(*(const unsigned long *)a - *(const unsigned long *)b);
}

static NOINLINE unsigned long of_variable_size(unsigned long n)
{
	char *bytes = alloca(n), more[n];

	memset(bytes, 1, n);
	memset(more, 2, n);
	asm volatile("" : : "r"(bytes), "r"(more) : "memory");
	return chain(2) + (unsigned long)bytes[n - 1] + (unsigned long)more[n / 2];
}

/*
 * Frames that share a number of bytes as their caller likes: the code and the stack pointer below them do not show
 * where the upper frame ends. At the place where it ended the time before, its return address is still there.
 */
static NOINLINE unsigned long below_both(unsigned long n)
{
	asm volatile("" : "+r"(n));
	return n + 1;
}

static NOINLINE unsigned long lower(unsigned long bytes)
{
	void *room = alloca(bytes);

	asm volatile("" : : "r"(room) : "memory");
	return below_both(bytes) + 1;
}

static NOINLINE unsigned long upper(unsigned long bytes, unsigned long rest)
{
	void *room = alloca(bytes);

	asm volatile("" : : "r"(room) : "memory");
	return lower(rest) + 1;
}

/* With the 16 bytes of its own frame. */
static NOINLINE unsigned long above_both(unsigned long bytes, unsigned long rest)
{
	return upper(bytes - 16, rest) + 1;
}

static NOINLINE unsigned long aligned(unsigned long n)
{
	unsigned long values[8] __attribute__((aligned(64)));

	for (int i = 0; i < 8; i++)
		values[i] = n + (unsigned long)i;
	asm volatile("" : : "r"(values) : "memory");
	return chain(1) + values[n % 8] + of_variable_size(n * 8 + 8);
}

static NOINLINE void jump_out(int depth)
{
	if (!depth)
		longjmp(jump, 1);
	if (sink)
		jump_out(depth - 1);
	sink++;
}

static NOINLINE unsigned long tail(unsigned long n)
{
	return n > 3 ? aligned(n - 3) : chain(n);
}

static void on_signal(int signal)
{
	sink += chain((unsigned long)signal % 4) + aligned(3);
}

static void *in_thread(void *argument)
{
	sink += chain(3);
	return argument;
}

static void at_end(void)
{
	sink += chain(1);
}

static void handle(int signal, int flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };

	sigaction(signal, &action, NULL);
	raise(signal);
}

int main(int argc, char **argv)
{
	stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
	struct timespec now;
	pthread_t thread;
	char text[200], *end;

	atexit(at_end);
	sink = chain(5) + tail((unsigned long)argc + 1) + tail((unsigned long)argc + 9);
	snprintf(text, sizeof(text), "%s %g %Lf %08lx %-20s|", argv[0], 1.0 / 3, 2.5L, sink, "text");
	sink += strlen(text) + (unsigned long)strtod("1e-3", &end);
	sink += (unsigned long)(strstr(text, "text") - text) + (strdup(text) != NULL);
	sink += upper(64, 256);
	sink += above_both(256, 64);
	if (!setjmp(jump))
		jump_out(4);
	handle(SIGUSR1, 0);
	sigaltstack(&stack, NULL);
	handle(SIGUSR2, SA_ONSTACK);
	if (!pthread_create(&thread, NULL, in_thread, NULL))
		pthread_join(thread, NULL);
	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("%ld %lu\n", now.tv_sec, sink);
	return 0;
}
