/*
 * A user-space file system (FUSE) whose server goes silent: it accepts requests and never answers them, like a server
 * that hangs or is malicious. Only this process's own mount namespace has it, and it ends with this process.
 *   dead_fs file DIR PROGRAM   mounts on DIR and runs a copy of PROGRAM from there; silent from SIGUSR1 on: says "silent"
 *   dead_fs lock DIR [MAPPED]  runs locked_work in a process one of whose threads holds the memory lock while it waits
 *                              for the server, until SIGUSR2; it has also mapped the file MAPPED
 *   dead_fs jit DIR FILE       runs code that it has generated, and has mapped the file there at MAPPED_AT; silent from
 *                              SIGUSR1 on
 *   dead_fs root DIR FILE      the same, and the file system is its root
 *   dead_fs close DIR PROGRAM  as with `file`, but from SIGUSR1 on it answers everything except a close
 *   dead_fs overlay DIR PROGRAM  as with `close`, but the program runs from an overlay (overlayfs) above the file system
 * Says "pid N" (of the process that runs) before the process itself, or the server for it, says "ready".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "target.h"

#define FILE_NODE 2
#define PAGE 4096
#define MAPPED_AT ((void *)0x40000000)

static volatile sig_atomic_t silent, let_go;
static int fuse, served = -1, only_closes;
static struct stat served_stat;

static void fail(const char *what)
{
	perror(what);
	_exit(1);
}

static void be_silent(int signal)
{
	(void)signal;
	silent = 1;
}

static void be_done(int signal)
{
	(void)signal;
	let_go = 1;
}

static void answer(const struct fuse_in_header *in, int error, const void *data, size_t size)
{
	struct fuse_out_header out = { .len = (unsigned)(sizeof(out) + size), .error = error, .unique = in->unique };
	struct iovec parts[] = { { &out, sizeof(out) }, { (void *)data, size } };

	/* A request that was interrupted meanwhile is gone: ENOENT. */
	if (writev(fuse, parts, size ? 2 : 1) < 0 && errno != ENOENT)
		fail("answer");
}

static struct fuse_attr attributes(unsigned long node)
{
	struct fuse_attr attr = { .ino = node, .nlink = 1, .blksize = PAGE };

	attr.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0755;
	if (node == FILE_NODE) {
		attr.size = (unsigned long)served_stat.st_size;
		attr.blocks = (attr.size + 511) / 512;
	}
	return attr;
}

/* Attributes are valid for one answer only, so the next stat asks again. */
static void serve(const struct fuse_in_header *in, const void *body)
{
	static char block[1 << 17];

	switch (in->opcode) {
	case FUSE_INIT: {
		const struct fuse_init_in *wish = body;
		struct fuse_init_out out = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 1 << 16,
					     .max_readahead = wish->max_readahead, .time_gran = 1 };
		return answer(in, 0, &out, sizeof(out));
	}
	case FUSE_LOOKUP: {
		struct fuse_entry_out out = { .nodeid = FILE_NODE, .attr = attributes(FILE_NODE) };

		return strcmp(body, "file") ? answer(in, -ENOENT, NULL, 0) : answer(in, 0, &out, sizeof(out));
	}
	case FUSE_GETATTR: {
		struct fuse_attr_out out = { .attr = attributes(in->nodeid) };

		return answer(in, 0, &out, sizeof(out));
	}
	case FUSE_OPEN: {
		struct fuse_open_out out = { .open_flags = FOPEN_KEEP_CACHE };

		return answer(in, 0, &out, sizeof(out));
	}
	case FUSE_READ: {
		const struct fuse_read_in *wish = body;
		ssize_t got = pread(served, block, wish->size < sizeof(block) ? wish->size : sizeof(block),
				    (off_t)wish->offset);

		return got < 0 ? answer(in, -errno, NULL, 0) : answer(in, 0, block, (size_t)got);
	}
	case FUSE_STATFS: {
		struct fuse_statfs_out out = { .st = { .bsize = PAGE, .frsize = PAGE, .namelen = 255 } };

		return answer(in, 0, &out, sizeof(out));
	}
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		return answer(in, 0, NULL, 0);
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return;
	default:
		return answer(in, -ENOSYS, NULL, 0);
	}
}

/* Serves until it is silent, then only reads requests. Requests to write back are never answered. */
static void serve_all(void)
{
	static char request[1 << 18];
	struct fuse_in_header waiting = { 0 };
	int said = 0;

	for (;;) {
		if (silent && !said++) {
			puts("silent");
			fflush(stdout);
		}
		ssize_t got = read(fuse, request, sizeof(request));

		if (got < 0 && errno != EINTR && errno != ENOENT)
			fail("/dev/fuse");
		if (let_go && waiting.unique) {
			answer(&waiting, -EIO, NULL, 0);
			waiting.unique = 0;
		}

		const struct fuse_in_header *in = (const void *)request;

		if (got < 0 || (silent && (!only_closes || in->opcode == FUSE_FLUSH)))
			continue;

		if (in->opcode == FUSE_WRITE || in->opcode == FUSE_SETATTR) {
			/* The thread that waits for this answer holds its memory lock. */
			silent = said = 1;
			waiting = *in;
			puts("ready");
			fflush(stdout);
			continue;
		}
		serve(in, in + 1);
	}
}

static __attribute__((noinline)) unsigned long locked_work(unsigned long x)
{
	BURN(x, 20000);
	return x;
}

/* Maps something else over a file's dirty page: the kernel writes it back first, under the lock. */
static void *hold_lock(void *page)
{
	if (mmap(page, PAGE, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		fail("mmap over it");
	return NULL;
}

static void run_locked(const char *path, const char *mapped)
{
	pthread_t thread;
	int fd = open(path, O_RDWR);
	char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		fail(path);
	if (mapped && mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, open(mapped, O_RDONLY), 0) == MAP_FAILED)
		fail(mapped);
	page[0] = 1;
	if (pthread_create(&thread, NULL, hold_lock, page))
		fail("thread");
	for (unsigned long x = 88172645463325252ul; x;)
		x = locked_work(x);
}

/* With the whole file in the page cache the program no longer needs the server. */
static void run_from(const char *path)
{
	static char block[1 << 16];
	int fd = open(path, O_RDONLY);

	while (read(fd, block, sizeof(block)) > 0)
		;
	close(fd);
	execl(path, path, NULL);
	fail(path);
}

/* An endless loop. */
#ifdef __x86_64__
static const unsigned char loop[] = { 0xeb, 0xfe };
#else
static const unsigned char loop[] = { 0x00, 0x00, 0x00, 0x14 };
#endif

/* When this prints `ready`, the file system has answered. */
static void run_generated(const char *path)
{
	void *code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	int fd = open(path, O_RDONLY);

	if (code == MAP_FAILED || fd < 0 ||
	    mmap(MAPPED_AT, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
		fail(path);
	memcpy(code, loop, sizeof(loop));
	if (mprotect(code, PAGE, PROT_READ | PROT_EXEC))
		fail("mprotect");
	__builtin___clear_cache(code, (char *)code + sizeof(loop));
	ready();
	((void (*)(void))code)();
}

/* Mounts an overlay above the file system in `dir`, and runs the program there. */
static void run_above(const char *dir)
{
	char above[4096], below[4096], layers[2 * 4096 + 16], path[4096 + 8];

	snprintf(above, sizeof(above), "%s-above", dir);
	snprintf(below, sizeof(below), "%s-below", dir);
	snprintf(layers, sizeof(layers), "lowerdir=%s:%s", dir, below);
	snprintf(path, sizeof(path), "%s/file", above);
	if ((mkdir(above, 0755) && errno != EEXIST) || (mkdir(below, 0755) && errno != EEXIST) ||
	    mount("above", above, "overlay", 0, layers))
		fail("overlay");
	run_from(path);
}

int main(int argc, char **argv)
{
	char path[4096], options[128];

	if (argc < 3)
		return 2;

	int lock = !strcmp(argv[1], "lock");

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	only_closes = !strcmp(argv[1], "close") || !strcmp(argv[1], "overlay");
	served = open(lock ? "/proc/self/exe" : argv[3], O_RDONLY | O_CLOEXEC);
	fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (served < 0 || fstat(served, &served_stat) || fuse < 0)
		fail("/dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("dead", argv[2], "fuse", 0, options))
		fail("mount");
	snprintf(path, sizeof(path), "%s/file", argv[2]);
	/* Without SA_RESTART, so that the signal interrupts the read. */
	sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = be_silent }, NULL);
	sigaction(SIGUSR2, &(struct sigaction){ .sa_handler = be_done }, NULL);

	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		/* Only the server may have the descriptor: closing it ends the file system, and with it every wait. */
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent || close(fuse))
			_exit(1);
		if (!strcmp(argv[1], "root")) {
			if (chroot(argv[2]) || chdir("/"))
				fail(argv[2]);
			run_generated("/file");
		} else if (!strcmp(argv[1], "jit"))
			run_generated(path);
		else if (!strcmp(argv[1], "overlay"))
			run_above(argv[2]);
		else if (lock)
			run_locked(path, argc > 3 ? argv[3] : NULL);
		else
			run_from(path);
	}
	printf("pid %d\n", pid);
	fflush(stdout);
	serve_all();
}
