/*
 * Runs a program under a process id that is free: with_pid PID PROGRAM ARGS... Waits for its end and ends as it did.
 * Needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE (clone3(2), set_tid, Linux 5.5).
 */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;

	pid_t wanted = atoi(argv[1]);
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = (unsigned long)&wanted,
		.set_tid_size = 1,
	};
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid < 0) {
		perror("clone3");
		return 3;
	}
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	int status;

	if (waitpid((pid_t)pid, &status, 0) < 0)
		return 3;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
