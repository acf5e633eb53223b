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

/* A thread that gives after some time, if it is its turn. */
struct giver {
	void (*give)(void);
	long us;
	sem_t turn;
	struct giver *next;
};

static void *run(void *argument)
{
	struct giver *giver = argument;

	for (;;) {
		sem_wait(&giver->turn);
		nap(giver->us);
		giver->give();
		sem_post(&giver->next->turn);
	}
	return NULL;
}

int main(void)
{
	static struct giver a, b = { .give = give_b, .us = 6000, .next = &a };
	pthread_t thread;

	a = (struct giver){ .give = give_a, .us = 2000, .next = &b };
	if (pipe(gifts) || sem_init(&a.turn, 0, 1) || sem_init(&b.turn, 0, 0) ||
	    pthread_create(&thread, NULL, run, &a) || pthread_create(&thread, NULL, run, &b))
		return 1;
	ready();
	for (;;)
		take();
}
