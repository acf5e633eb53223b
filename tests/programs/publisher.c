/*
 * Truth: a process that publishes its context (OTEP 4719) and burns CPU time. The first argument is the name of its
 * service, the second how it publishes: "file" in a file in memory, "anonymous" in private memory with a name,
 * "changing" with a version that changes all the time, "garbage" with a payload that is no message, "nowhere" with a
 * payload that is not there.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "target.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

struct context {
	char signature[8];
	uint32_t version;
	uint32_t size;
	uint64_t published;
	uint64_t payload;
};

struct message {
	unsigned char bytes[1024];
	uint32_t size;
};

/* A field with bytes: its number, its length, its content. All lengths here need one byte, or two as `padded`. */
static void field(struct message *to, unsigned char number, const void *bytes, uint32_t size)
{
	to->bytes[to->size++] = (unsigned char)(number << 3 | 2);
	to->bytes[to->size++] = (unsigned char)(size & 0x7f) | 0x80;
	to->bytes[to->size++] = (unsigned char)(size >> 7);
	memcpy(to->bytes + to->size, bytes, size);
	to->size += size;
}

static void attribute(struct message *to, const char *key, const char *text)
{
	struct message value = {}, pair = {};

	field(&value, 1, text, (uint32_t)strlen(text));
	field(&pair, 1, key, (uint32_t)strlen(key));
	field(&pair, 2, value.bytes, value.size);
	field(to, 1, pair.bytes, pair.size);
}

static void encode(struct message *to, const char *name, const char *version)
{
	struct message resource = {};

	attribute(&resource, "service.name", name);
	attribute(&resource, "service.version", version);
	attribute(&resource, "deployment.environment.name", "test\n");
	attribute(&resource, "process.command_args", "secret");
	attribute(&resource, "k8s.pod.name", "another");
	field(to, 1, resource.bytes, resource.size);
}

static void name_mapping(struct context *context)
{
	prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, context, 4096, "OTEL_CTX");
}

static void publish(struct context *context, const void *payload, uint32_t size, uint64_t time)
{
	*(volatile uint64_t *)&context->published = 0;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	context->payload = (uint64_t)(uintptr_t)payload;
	context->size = size;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile uint64_t *)&context->published = time;
}

static struct context *mapping(int in_file)
{
	struct context *context;
	int file = -1;

	if (in_file) {
		file = memfd_create("OTEL_CTX", MFD_CLOEXEC);
		if (file < 0 || ftruncate(file, 4096))
			exit(1);
	}
	context = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | (in_file ? 0 : MAP_ANONYMOUS), file, 0);
	if (context == MAP_FAILED)
		exit(1);
	madvise(context, 4096, MADV_DONTFORK);
	memcpy(context->signature, "OTEL_CTX", 8);
	context->version = 2;
	return context;
}

static struct context *context;
static struct message messages[2];

static void *change(void *unused)
{
	(void)unused;
	for (uint64_t time = 2;; time++) {
		struct message *message = &messages[time & 1];

		publish(context, message->bytes, message->size, time);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	volatile unsigned long x = 1;
	pthread_t changing;
	const char *how;

	if (argc < 3)
		return 1;
	how = argv[2];
	context = mapping(strcmp(how, "anonymous"));
	encode(&messages[0], argv[1], "0000000000000000");
	encode(&messages[1], argv[1], "1");
	publish(context, messages[0].bytes, messages[0].size, 1);
	if (!strcmp(how, "garbage"))
		memset(messages[0].bytes, 0xff, sizeof(messages[0].bytes));
	if (!strcmp(how, "nowhere"))
		publish(context, (void *)16, 4096, 1);
	if (strcmp(how, "file"))
		name_mapping(context);
	if (!strcmp(how, "changing"))
		pthread_create(&changing, NULL, change, NULL);
	ready();
	for (;;)
		BURN(x, 10000);
	return 0;
}
