/*
 * A process that maps HotSpot's libjvm.so but is no JVM: fake_jvm LIBJVM MODE. It shows its thread as a Java thread.
 *   none      no Java thread in its memory; prints "quit" at SIGQUIT
 *   deaf      does not catch SIGQUIT and has no attach socket
 *   mute      catches SIGQUIT and does nothing
 *   silent    its attach socket accepts and says nothing
 *   drip      answers one byte every 50 ms, without end
 *   flood     answers without end
 *   close     accepts and closes
 *   lie       answers that the agent is loaded; has a file that looks like the agent's log but is not
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int is_none;

static void on_quit(int signal)
{
	(void)signal;
	if (is_none)
		(void)!write(STDOUT_FILENO, "quit\n", 5);
}

/* HotSpot's description of a field (runtime/vmStructs.hpp). */
struct field {
	const char *class, *name, *type;
	int is_static;
	unsigned long offset;
	char *address;
};

static const struct field *field(void *library, const char *class, const char *name)
{
	struct field **table = dlsym(library, "gHotSpotVMStructs");

	for (const struct field *f = table ? *table : NULL; f && f->class; f++)
		if (!strcmp(f->class, class) && !strcmp(f->name, name))
			return f;
	return NULL;
}

/* Makes the JVM's array of threads contain this thread only. */
static void make_thread(void *library)
{
	static char array[4096], thread[4096], own[4096];
	static void *threads[] = { thread };
	const struct field *fields[] = {
		field(library, "ThreadsSMRSupport", "_java_thread_list"),
		field(library, "ThreadsList", "_length"),
		field(library, "ThreadsList", "_threads"),
		field(library, "Thread", "_osthread"),
		field(library, "OSThread", "_thread_id"),
	};

	if (!fields[3])
		fields[3] = field(library, "JavaThread", "_osthread");
	for (unsigned i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (!fields[i])
			return;
	*(void **)fields[0]->address = array;
	*(unsigned *)(array + fields[1]->offset) = 1;
	*(void ***)(array + fields[2]->offset) = threads;
	*(void **)(thread + fields[3]->offset) = own;
	*(int *)(own + fields[4]->offset) = getpid();
}

static int listener(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/.java_pid%d", getpid());
	unlink(address.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 5))
		return -1;
	chmod(address.sun_path, 0600);
	return fd;
}

static void on_term(int number)
{
	(void)number;
	_exit(0);
}

static void answer(int fd, const char *mode)
{
	static char noise[65536];
	char request[4096];

	if (!strcmp(mode, "close"))
		return;
	if (read(fd, request, sizeof(request)) < 0)
		return;
	if (!strcmp(mode, "lie")) {
		static const char loaded[] = "0\nreturn code: 0\n";

		if (ftruncate(memfd_create("jvm-symbols", MFD_ALLOW_SEALING), 8192) == 0)
			(void)!write(fd, loaded, sizeof(loaded) - 1);
		return;
	}
	memset(noise, '0', sizeof(noise));
	for (;;) {
		if (!strcmp(mode, "silent")) {
			pause();
		} else if (!strcmp(mode, "drip")) {
			if (write(fd, noise, 1) != 1)
				return;
			usleep(50000);
		} else if (write(fd, noise, sizeof(noise)) < 0) {
			return;
		}
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc == 3 ? argv[2] : "";
	void *library = argc == 3 ? dlopen(argv[1], RTLD_LAZY) : NULL;
	int server;

	if (!library)
		return 1;
	is_none = !strcmp(mode, "none");
	if (!is_none)
		make_thread(library);
	signal(SIGPIPE, SIG_IGN);
	/* A JVM that runs Java catches SIGTERM too. */
	signal(SIGTERM, on_term);
	if (strcmp(mode, "deaf"))
		signal(SIGQUIT, on_quit);
	server = strcmp(mode, "deaf") && strcmp(mode, "mute") && !is_none ? listener() : -1;
	puts("ready");
	fflush(stdout);
	for (;;) {
		int client;

		if (server < 0) {
			pause();
			continue;
		}
		client = accept(server, NULL, NULL);
		if (client >= 0) {
			answer(client, mode);
			close(client);
		}
	}
}
