/*
 * A program that makes a JVM on its first thread (the leader) and runs a class's `main` on the second:
 * leader_exit_jvm LIBJVM CLASSPATH CLASS. The leader ends when the program gets SIGUSR1, and the JVM goes on.
 */
#include <dlfcn.h>
#include <jni.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static JavaVM *vm;

static void *run_main(void *name)
{
	JNIEnv *env;
	jclass class, string;
	jmethodID method;

	if ((*vm)->AttachCurrentThread(vm, (void **)&env, NULL))
		return NULL;
	class = (*env)->FindClass(env, name);
	string = (*env)->FindClass(env, "java/lang/String");
	if (!class || !string)
		return NULL;
	method = (*env)->GetStaticMethodID(env, class, "main", "([Ljava/lang/String;)V");
	(*env)->CallStaticVoidMethod(env, class, method, (*env)->NewObjectArray(env, 0, string, NULL));
	return NULL;
}

int main(int argc, char **argv)
{
	JavaVMOption options[2] = { { 0 }, { 0 } };
	JavaVMInitArgs args = { .version = JNI_VERSION_1_8, .nOptions = 2, .options = options };
	jint (*create)(JavaVM **, void **, void *);
	char path[4096];
	pthread_t java_thread;
	sigset_t leave;
	void *library;
	JNIEnv *env;
	int signal;

	if (argc < 4)
		return 1;
	/* All threads block the signal, so that only this one receives it, by sigwait. */
	sigemptyset(&leave);
	sigaddset(&leave, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &leave, NULL);
	library = dlopen(argv[1], RTLD_NOW);
	create = library ? (jint (*)(JavaVM **, void **, void *))dlsym(library, "JNI_CreateJavaVM") : NULL;
	snprintf(path, sizeof(path), "-Djava.class.path=%s", argv[2]);
	options[0].optionString = path;
	options[1].optionString = "-XX:+PreserveFramePointer";
	if (!create || create(&vm, (void **)&env, &args) || pthread_create(&java_thread, NULL, run_main, argv[3]))
		return 1;
	(*vm)->DetachCurrentThread(vm);
	sigwait(&leave, &signal);
	pthread_exit(NULL);
}
