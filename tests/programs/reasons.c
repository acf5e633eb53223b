/*
 * Each thread and each child process waits for ever in one way, and is named after it. Prints a line `without NAME` for
 * each way that this host does not have. Ends with its parent; its children end with it.
 */
#include "reasons.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

static const char *dir;

static void read_for_ever(int fd)
{
	char bytes[512];

	if (read(fd, bytes, sizeof(bytes)) < 0)
		pause();
}

static void *in_flock(void *unused)
{
	name("flock");
	for (int i = 0; i < 2; i++)
		flock(open(dir, O_RDONLY | O_DIRECTORY), LOCK_EX);
	return unused;
}

static void *in_eventfd(void *unused) { name("eventfd"); read_for_ever(eventfd(0, 0)); return unused; }
static void *in_inotify(void *unused) { name("inotify"); read_for_ever(inotify_init1(0)); return unused; }
static void *in_timerfd(void *unused) { name("timerfd"); read_for_ever(timerfd_create(CLOCK_MONOTONIC, 0)); return unused; }

static void *in_signalfd(void *unused)
{
	sigset_t set;

	name("signalfd");
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	read_for_ever(signalfd(-1, &set, 0));
	return unused;
}

static void *in_sigwait(void *unused)
{
	sigset_t set;

	name("sigwait");
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigwaitinfo(&set, NULL);
	return unused;
}

/* main makes and removes both. */
static int queue, semaphore;

static void *in_msgrcv(void *unused)
{
	struct { long type; char text[8]; } message;

	name("msgrcv");
	msgrcv(queue, &message, sizeof(message.text), 0, 0);
	return unused;
}

static void *in_semop(void *unused)
{
	struct sembuf down = { 0, -1, 0 };

	name("semop");
	semop(semaphore, &down, 1);
	return unused;
}

static void fill(int fd)
{
	static char bytes[1 << 16];

	while (write(fd, bytes, sizeof(bytes)) > 0)
		;
}

static void *in_pipe_write(void *unused)
{
	int fds[2];

	name("pipe write");
	if (!pipe(fds))
		fill(fds[1]);
	return unused;
}

static void *in_pipe_read(void *unused)
{
	int fds[2];

	name("pipe read");
	if (!pipe(fds))
		read_for_ever(fds[0]);
	return unused;
}

static void *in_socket_write(void *unused)
{
	int fds[2];

	name("socket write");
	if (!socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		fill(fds[1]);
	return unused;
}

static void *in_socket_read(void *unused)
{
	int fds[2];

	name("socket read");
	if (!socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		read_for_ever(fds[0]);
	return unused;
}

static int listener(struct sockaddr_un *address, socklen_t *length)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	*length = sizeof(sa_family_t);
	if (bind(fd, (struct sockaddr *)address, *length) || listen(fd, 0))
		abort();
	*length = sizeof(*address);
	getsockname(fd, (struct sockaddr *)address, length);
	return fd;
}

static void *in_accept(void *unused)
{
	struct sockaddr_un address;
	socklen_t length;

	name("accept");
	accept(listener(&address, &length), NULL, NULL);
	return unused;
}

/* The first connection fills the queue. */
static void *in_connect(void *unused)
{
	struct sockaddr_un address;
	socklen_t length;

	name("connect");
	listener(&address, &length);
	for (int i = 0; i < 3; i++)
		connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, length);
	return unused;
}

static void *in_poll(void *unused) { name("poll"); poll(NULL, 0, -1); return unused; }

static void *in_epoll(void *unused)
{
	struct epoll_event event;

	name("epoll");
	epoll_wait(epoll_create1(0), &event, 1, -1);
	return unused;
}

static void *in_terminal(void *unused)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY);

	name("terminal");
	if (terminal < 0)
		without("terminal");
	if (!grantpt(terminal) && !unlockpt(terminal))
		read_for_ever(open(ptsname(terminal), O_RDWR | O_NOCTTY));
	return unused;
}

static void *in_io_uring(void *unused)
{
	struct io_uring_params params = {};
	int fd = (int)syscall(SYS_io_uring_setup, 1, &params);

	name("io_uring");
	if (fd < 0)
		without("io_uring");
	syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	return unused;
}

static void *in_userfaultfd(void *unused)
{
	char *page;
	int fd = catch_faults(&page);

	name("userfaultfd");
	if (fd < 0)
		without("userfaultfd");
	return *(volatile char *)page ? NULL : unused;
}

static void *in_vfork(void *unused)
{
	name("vfork");
	if (!vfork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		name("paused");
		pause();
		_exit(0);
	}
	return unused;
}

static void *in_wait(void *unused)
{
	pid_t child;

	name("wait");
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		name("paused");
		pause();
		_exit(0);
	}
	waitpid(child, NULL, 0);
	return unused;
}

/* The tracer does not wait for the child, so that the child stays stopped. */
static void stop_traced(void)
{
	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	name("traced");
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	_exit(0);
}

int main(int argc, char **argv)
{
	void *(*ways[])(void *) = {
		in_flock, in_eventfd, in_inotify, in_timerfd, in_signalfd, in_sigwait, in_msgrcv, in_semop, in_pipe_write,
		in_pipe_read, in_socket_write, in_socket_read, in_accept, in_connect, in_poll, in_epoll, in_terminal,
		in_io_uring, in_userfaultfd, in_vfork, in_wait,
	};

	if (argc < 2)
		return 1;
	dir = argv[1];
	queue = msgget(IPC_PRIVATE, 0600);
	semaphore = semget(IPC_PRIVATE, 1, 0600);
	stop_traced();
	wait_in(ways, sizeof(ways) / sizeof(*ways));
	msgctl(queue, IPC_RMID, NULL);
	semctl(semaphore, 0, IPC_RMID);
	return 0;
}
