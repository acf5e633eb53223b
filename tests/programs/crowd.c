/*
 * As many sleeping threads as the second argument says, made when the file in the first one exists. Then it prints
 * `crowd` and how many threads this host allowed.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "target.h"

static void *sleep_often(void *unused)
{
	for (;;)
		usleep(500000);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_attr_t small;
	pthread_t thread;
	long n = 0;

	if (argc < 3)
		return 1;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 16384);
	ready();
	while (access(argv[1], F_OK))
		usleep(1000);
	while (n < atol(argv[2]) && !pthread_create(&thread, &small, sleep_often, NULL))
		n++;
	printf("crowd %ld\n", n);
	fflush(stdout);
	for (;;)
		pause();
}
