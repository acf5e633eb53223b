/*
 * Truth: each round makes one system call openat in opens, calls called three times in calls, passes the static marker
 * probed:round twice in marks, and forks once in forks. The rounds begin when the file in the first argument exists; the
 * second one is their number.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "marker.h"
#include "target.h"

#define NOINLINE __attribute__((noinline, noclone))

/* Not 0 while a tool uses the marker: the kernel counts the tools here. */
unsigned short probed_round_semaphore __attribute__((section(".probes")));

NOINLINE long called(long x)
{
	__asm__ volatile("" : "+r"(x));
	return x + 1;
}

static NOINLINE long calls(long x)
{
	return called(called(called(x))) + 1;
}

static NOINLINE long marks(long x)
{
	if (probed_round_semaphore) {
		MARK("probed", "round", "probed_round_semaphore");
		x++;
		MARK("probed", "round", "probed_round_semaphore");
	}
	return x;
}

static NOINLINE long opens(void)
{
	long fd = syscall(SYS_openat, AT_FDCWD, "/", O_RDONLY | O_DIRECTORY);

	if (fd >= 0)
		close((int)fd);
	return fd;
}

static NOINLINE int forks(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	return pid > 0 && waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

int main(int argc, char **argv)
{
	long rounds = argc > 2 ? atol(argv[2]) : 0;
	volatile long sum = 0;

	ready();
	while (access(argv[1], F_OK))
		usleep(1000);
	for (long round = 0; round < rounds; round++) {
		sum += calls(round) + marks(round);
		if (opens() < 0 || forks())
			return 1;
	}
	puts("probed");
	fflush(stdout);
	pause();
	return 0;
}
