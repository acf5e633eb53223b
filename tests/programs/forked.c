/*
 * forked LIBJVM CLASSPATH SECONDS: makes a JVM on its first thread, and has Java compiled. SECONDS after "ready" it
 * forks a child, which has a copy of the JVM without the JVM's other threads and goes on with Java. The parent prints
 * "child PID".
 */
#include <dlfcn.h>
#include <jni.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "target.h"

typedef jint (*create_t)(JavaVM **, void **, void *);

int main(int argc, char **argv)
{
	JavaVM *vm;
	JNIEnv *env;
	char path[4096];
	JavaVMOption option = { path, NULL };
	JavaVMInitArgs args = { JNI_VERSION_1_8, 1, &option, JNI_FALSE };
	void *library = argc == 4 ? dlopen(argv[1], RTLD_LAZY) : NULL;
	create_t create = library ? (create_t)dlsym(library, "JNI_CreateJavaVM") : NULL;

	if (!create || snprintf(path, sizeof(path), "-Djava.class.path=%s", argv[2]) >= (int)sizeof(path))
		return 1;
	if (create(&vm, (void **)&env, &args))
		return 1;
	jclass class = (*env)->FindClass(env, "Spin");
	jmethodID turn = class ? (*env)->GetStaticMethodID(env, class, "turn", "(J)J") : NULL;
	jlong x = 1;

	if (!turn)
		return 1;
	for (int i = 0; i < 100000; i++)
		x = (*env)->CallStaticLongMethod(env, class, turn, x);
	ready();
	/* No compiler thread may hold a lock at the fork, because the child lacks the thread. */
	sleep(atoi(argv[3]));
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			x = (*env)->CallStaticLongMethod(env, class, turn, x);
	}
	printf("child %d\n", child);
	fflush(stdout);
	waitpid(child, NULL, 0);
	return 1;
}
