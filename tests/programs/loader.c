/* Loads the agent in its first argument, and calls the agent like a JVM that provides no function at all. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *agent = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	int (*attach)(void *, char *, void *);
	int (*load)(void *, char *, void *);

	if (!agent) {
		puts(dlerror());
		return 1;
	}
	attach = (int (*)(void *, char *, void *))dlsym(agent, "Agent_OnAttach");
	load = (int (*)(void *, char *, void *))dlsym(agent, "Agent_OnLoad");
	printf("%d %d %d\n", attach(0, 0, 0), attach(0, "nonce=zz,cap=,=,,", 0), load(0, 0, 0));
	return 0;
}
