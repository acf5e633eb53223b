/*
 * Truth: each thread burns CPU time in span_1, span_2 and span_3, in shares of 1, 2 and 3, and in no_span, 1 more. While a
 * thread is in span_N, its trace context has the span N: all bytes of the trace id are 16 * thread + N, and all bytes of the
 * span id are that plus 128. In no_span it has none. The first thread has a record for each span, the second changes the
 * bytes of one record.
 *
 * The first argument is a library with the writer, which is opened when the file in the second argument exists; both are
 * not used if the writer is linked. With "hostile" as the third argument, the contexts are false in all ways.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "spans.h"
#include "target.h"

#define NOINLINE __attribute__((noinline, noclone))

typedef void attach_fn(struct span_record *record);
typedef struct span_record **variable_fn(void);

static attach_fn *attach_record;
static variable_fn *own_variable;
/* Some 20 microseconds: a thread changes its span more than 10,000 times a second. */
static const unsigned long slice = 10000;

static NOINLINE unsigned long span_1(unsigned long x)
{
	BURN(x, slice);
	return x + 1;
}

static NOINLINE unsigned long span_2(unsigned long x)
{
	BURN(x, 2 * slice);
	return x + 2;
}

static NOINLINE unsigned long span_3(unsigned long x)
{
	BURN(x, 3 * slice);
	return x + 3;
}

static NOINLINE unsigned long no_span(unsigned long x)
{
	BURN(x, slice);
	return x + 4;
}

static void fill(struct span_record *record, int thread, int number)
{
	memset(record->trace, 16 * thread + number, sizeof(record->trace));
	memset(record->span, 128 + 16 * thread + number, sizeof(record->span));
}

static unsigned long work(unsigned long x, int number)
{
	return number == 1 ? span_1(x) : number == 2 ? span_2(x) : span_3(x);
}

static NOINLINE void *by_records(void *unused)
{
	struct span_record records[4] = {};
	volatile unsigned long x = 1;

	(void)unused;
	for (int number = 1; number < 4; number++) {
		fill(&records[number], 1, number);
		records[number].valid = 1;
	}
	for (;;) {
		for (int number = 1; number < 4; number++) {
			attach_record(&records[number]);
			x = work(x, number);
			attach_record(NULL);
		}
		x = no_span(x);
	}
	return NULL;
}

static NOINLINE void *in_place(void *unused)
{
	struct span_record record = {};
	volatile unsigned long x = 1;

	(void)unused;
	attach_record(&record);
	for (;;) {
		for (int number = 1; number < 4; number++) {
			fill(&record, 2, number);
			__atomic_signal_fence(__ATOMIC_SEQ_CST);
			*(volatile uint8_t *)&record.valid = 1;
			__atomic_signal_fence(__ATOMIC_SEQ_CST);
			x = work(x, number);
			__atomic_signal_fence(__ATOMIC_SEQ_CST);
			*(volatile uint8_t *)&record.valid = 0;
			__atomic_signal_fence(__ATOMIC_SEQ_CST);
		}
		x = no_span(x);
	}
	return NULL;
}

/* Where no record is: in the first page, between user and kernel, in the kernel, across the end of what is mapped. */
static struct span_record *nowhere(int number, char *page_end)
{
	switch (number) {
	case 1:
		return (struct span_record *)16;
	case 2:
		return (struct span_record *)(1ULL << 60);
	default:
		return (struct span_record *)(page_end - 12);
	}
}

static NOINLINE void *hostile_pointers(void *unused)
{
	char *pages = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile unsigned long x = 1;

	(void)unused;
	mprotect(pages + 4096, 4096, PROT_NONE);
	for (;;) {
		for (int number = 1; number < 4; number++) {
			attach_record(nowhere(number, pages + 4096));
			x = work(x, number);
		}
		attach_record((struct span_record *)~0ULL);
		x = no_span(x);
	}
	return NULL;
}

static struct span_record **other_variable;

/* Changes the pointer and the record of another thread all the time. */
static void *disturb(void *record)
{
	for (unsigned long x = 1;; x++) {
		BURN(x, 7);
		*(struct span_record *volatile *)other_variable = x & 8 ? record : (struct span_record *)x;
		memcpy(record, &x, sizeof(x));
	}
	return NULL;
}

/* Random ids, 64 KiB of attributes that are not there, and another thread that changes them. */
static NOINLINE void *hostile_records(void *unused)
{
	static struct span_record record = { .valid = 1, .attributes_size = 0xffff };
	volatile unsigned long x = 1;
	pthread_t disturbing;

	(void)unused;
	attach_record(&record);
	other_variable = own_variable();
	pthread_create(&disturbing, NULL, disturb, &record);
	for (;;) {
		for (int number = 1; number < 4; number++) {
			memcpy(record.trace, (void *)&x, sizeof(x));
			x = work(x, number);
		}
		x = no_span(x);
	}
	return NULL;
}

#ifdef LINKED
static void open_writer(const char *path, const char *when)
{
	(void)path;
	(void)when;
	attach_record = attach;
	own_variable = variable;
	ready();
}
#else
static void open_writer(const char *path, const char *when)
{
	void *library;

	ready();
	while (access(when, F_OK))
		usleep(1000);
	library = dlopen(path, RTLD_NOW);
	attach_record = (attach_fn *)dlsym(library, "attach");
	own_variable = (variable_fn *)dlsym(library, "variable");
}
#endif

int main(int argc, char **argv)
{
	int hostile = argc > 3 && !strcmp(argv[3], "hostile");
	pthread_t first, second;

	if (argc < 3)
		return 1;
	open_writer(argv[1], argv[2]);
	pthread_create(&first, NULL, hostile ? hostile_pointers : by_records, NULL);
	pthread_create(&second, NULL, hostile ? hostile_records : in_place, NULL);
	pthread_join(first, NULL);
	return 0;
}
