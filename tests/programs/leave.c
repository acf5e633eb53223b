/*
 * Truth: all work is in `burn`, called by `middle`, called by `outer`, on the second thread. The first one ends before the
 * program is ready (`pthread_exit` in `main`): it is a zombie as long as the program runs.
 */
#include <pthread.h>
#include "target.h"

static volatile unsigned long sink = 88172645463325252UL;

static __attribute__((noinline)) void burn(void)
{
	unsigned long x = sink;

	BURN(x, 100000);
	sink = x;
}

static __attribute__((noinline)) void middle(void)
{
	burn();
	sink += 1;
}

static __attribute__((noinline)) void outer(void)
{
	middle();
	sink += 1;
}

static void *second(void *first)
{
	pthread_join(*(pthread_t *)first, NULL);
	ready();
	for (;;)
		outer();
	return NULL;
}

int main(void)
{
	static pthread_t self;
	pthread_t other;

	self = pthread_self();
	if (pthread_create(&other, NULL, second, &self))
		return 1;
	pthread_exit(NULL);
}
