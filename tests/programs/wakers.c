/*
 * Truth: the main thread waits in `take`, and two threads end its waits in turn: one in `give_a` after 2 ms, the other one
 * in `give_b` after 6 ms. All its waits have one stack.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>
#include "target.h"
#include "waiting.h"

static int gifts[2];
static sem_t turns[2];

static NOINLINE void take(void)
{
	char c;

	if (read(gifts[0], &c, 1) != 1)
		abort();
	STAYS;
}

static void give(const char *gift)
{
	if (write(gifts[1], gift, 1) != 1)
		abort();
	STAYS;
}

static NOINLINE void give_a(void) { give("a"); STAYS; }
static NOINLINE void give_b(void) { give("b"); STAYS; }

static void *run_a(void *unused)
{
	for (;;) {
		sem_wait(&turns[0]);
		nap(2000);
		give_a();
		sem_post(&turns[1]);
	}
	return unused;
}

static void *run_b(void *unused)
{
	for (;;) {
		sem_wait(&turns[1]);
		nap(6000);
		give_b();
		sem_post(&turns[0]);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;

	if (pipe(gifts) || sem_init(&turns[0], 0, 1) || sem_init(&turns[1], 0, 0) ||
	    pthread_create(&thread, NULL, run_a, NULL) || pthread_create(&thread, NULL, run_b, NULL))
		return 1;
	ready();
	for (;;)
		take();
}
