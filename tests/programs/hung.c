/*
 * A thread that waits for ever, LEVELS (argument 1) calls deep. With a second argument the pages of the callers are
 * behind userfaultfd without a server: a thread that touches them waits for ever too. Prints "ready", or why it
 * cannot.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "target.h"

#define NOINLINE __attribute__((noinline, noclone))
#define STAYS asm volatile("" ::: "memory")
#define STACK (16UL << 20)
#define PAGE 4096UL

static int never[2], inside[2];
static char *deepest;

static NOINLINE void wait_for_ever(void)
{
	char c = 'x';

	deepest = &c;
	if (write(inside[1], &c, 1) != 1 || read(never[0], &c, 1) != 1)
		abort();
	STAYS;
}

/* Each call has some pages of its own. */
static NOINLINE void level(long left)
{
	char room[3 * PAGE];

	asm volatile("" : : "r"(room) : "memory");
	if (left)
		level(left - 1);
	else
		wait_for_ever();
	STAYS;
}

static void *begin(void *levels)
{
	level((long)levels);
	return NULL;
}

/* Takes away the pages of all callers but the innermost, and of what the C library has at the end of the stack. */
static void take_away(char *stack)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	unsigned long from = ((unsigned long)deepest & ~(PAGE - 1)) + 8 * PAGE;
	unsigned long to = (unsigned long)stack + STACK - 16 * PAGE;
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	range.range.start = from;
	range.range.len = to - from;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range)) {
		puts("no userfaultfd");
		exit(0);
	}
	if (madvise((void *)from, to - from, MADV_DONTNEED))
		abort();
}

int main(int argc, char **argv)
{
	long levels = argc > 1 ? atol(argv[1]) : 1;
	pthread_attr_t attr;
	pthread_t thread;
	char *stack, c;

	stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED || pipe(never) || pipe(inside) || pthread_attr_init(&attr) ||
	    pthread_attr_setstack(&attr, stack, STACK) || pthread_create(&thread, &attr, begin, (void *)levels) ||
	    read(inside[0], &c, 1) != 1)
		return 1;
	if (argc > 2)
		take_away(stack);
	ready();
	for (;;)
		pause();
}
