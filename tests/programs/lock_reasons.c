/*
 * Waits for locks, of libc and of the kernel, as in reasons.c: each thread and each child process waits in one way, and is
 * named after it. The argument is a directory for files. Prints a line `without NAME` for each way that this host
 * does not have. Ends with its parent; its children end with it.
 */
#include "reasons.h"
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>

static const char *dir;

static void *in_mutex(void *unused)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

	name("mutex");
	pthread_mutex_lock(&mutex);
	pthread_mutex_lock(&mutex);
	return unused;
}

static void *in_condition(void *unused)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

	name("condition");
	pthread_mutex_lock(&mutex);
	for (;;)
		pthread_cond_wait(&condition, &mutex);
	return unused;
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void *in_reader(void *unused) { name("rwlock read"); pthread_rwlock_rdlock(&rwlock); return unused; }
static void *in_writer(void *unused) { name("rwlock write"); pthread_rwlock_wrlock(&rwlock); return unused; }

static void *in_semaphore(void *unused)
{
	sem_t semaphore;

	name("semaphore");
	sem_init(&semaphore, 0, 0);
	sem_wait(&semaphore);
	return unused;
}

static void *in_barrier(void *unused)
{
	pthread_barrier_t barrier;

	name("barrier");
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_barrier_wait(&barrier);
	return unused;
}

static void *in_futex(void *unused)
{
	static unsigned word;

	name("futex");
	for (;;)
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	return unused;
}

static void *in_join(void *unused)
{
	pthread_t thread;

	name("join");
	pthread_create(&thread, NULL, in_futex, NULL);
	pthread_join(thread, NULL);
	return unused;
}

/* Where a fault waits until the server below has slept. */
static char *slow_page;
static int faults;

static void *serve_faults(void *unused)
{
	struct uffdio_zeropage zero = { .range = { (unsigned long)slow_page, 4096 } };
	struct uffd_msg fault;

	name("server");
	while (read(faults, &fault, sizeof(fault)) == sizeof(fault)) {
		usleep(20000);
		ioctl(faults, UFFDIO_ZEROPAGE, &zero);
	}
	return unused;
}

static int shared_file(void)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/locked", dir);
	return open(path, O_RDWR | O_CREAT, 0600);
}

/* The file whose position and whose content the first of these threads has locked most of the time. */
static int locked;

static void *in_held(void *unused)
{
	name("held");
	while (faults >= 0 && write(locked, slow_page, 1) == 1)
		madvise(slow_page, 4096, MADV_DONTNEED);
	return unused;
}

static void *in_position(void *unused)
{
	name("file position");
	while (faults >= 0 && write(locked, "x", 1) == 1)
		;
	without("file position");
	return unused;
}

static void *in_content(void *unused)
{
	int fd = shared_file();

	name("file content");
	while (faults >= 0 && pwrite(fd, "x", 1, 0) == 1)
		;
	without("file content");
	return unused;
}

/* Grace periods of RCU, one after the other. */
static void *in_rcu(void *unused)
{
	name("rcu");
	while (!syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0))
		;
	without("rcu");
	return unused;
}

/* Reads the directory of a file system whose server never answers, in a mount namespace of its own. */
static void wait_for_fuse(void)
{
	char options[128], place[4096];
	int fuse;

	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	name("fuse");
	fuse = open("/dev/fuse", O_RDWR);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	snprintf(place, sizeof(place), "%s", dir);
	if (fuse < 0 || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", place, "fuse", 0, options))
		without("fuse");
	open(place, O_RDONLY | O_DIRECTORY);
	_exit(1);
}

static int tids[2];

static void *be_held(void *unused)
{
	int tid = (int)syscall(SYS_gettid);

	name("held");
	if (write(tids[1], &tid, sizeof(tid)) != sizeof(tid))
		_exit(1);
	pause();
	return unused;
}

/*
 * A process that executes another program, and so waits for the end of its second thread, which the tracer, this process,
 * does not let go.
 */
static void wait_for_exit(void)
{
	int go[2], tid;
	char byte;
	pid_t child;

	if (pipe(tids) || pipe(go))
		return;
	child = fork();
	if (!child) {
		pthread_t thread;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		name("exec");
		pthread_create(&thread, NULL, be_held, NULL);
		if (read(go[0], &byte, 1) == 1)
			execl("/proc/self/exe", "exec", NULL);
		_exit(1);
	}
	if (read(tids[0], &tid, sizeof(tid)) != sizeof(tid) || ptrace(PTRACE_SEIZE, tid, NULL, PTRACE_O_TRACEEXIT)) {
		printf("without exec\n");
		fflush(stdout);
	}
	if (write(go[1], "x", 1) != 1)
		abort();
}

int main(int argc, char **argv)
{
	void *(*ways[])(void *) = {
		in_mutex, in_condition, in_reader, in_writer, in_semaphore, in_barrier, in_join, serve_faults, in_held, in_position,
		in_content, in_rcu,
	};

	if (argc < 2)
		return 1;
	dir = argv[1];
	locked = shared_file();
	faults = catch_faults(&slow_page);
	pthread_rwlock_wrlock(&rwlock);
	wait_for_fuse();
	wait_for_exit();
	wait_in(ways, sizeof(ways) / sizeof(*ways));
	return 0;
}
