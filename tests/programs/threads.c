/* 10,000 threads that each work a tenth of a millisecond in a second. */
#include <pthread.h>
#include <unistd.h>

#include "target.h"

#define THREADS 10000

static void *work(void *thread)
{
	unsigned long x = 88172645463325252ul + (unsigned long)thread;

	while (x) {
		unsigned long begin = us_of(CLOCK_THREAD_CPUTIME_ID);

		while (us_of(CLOCK_THREAD_CPUTIME_ID) - begin < 100)
			BURN(x, 200);
		usleep(1000000);
	}
	return NULL;
}

int main(void)
{
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 15);
	for (unsigned long i = 0; i < THREADS; i++) {
		pthread_t thread;

		if (pthread_create(&thread, &small, work, (void *)i)) {
			perror("thread");
			return 1;
		}
	}
	ready();
	pause();
	return 0;
}
