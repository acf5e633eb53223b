/*
 * A library that replaces the allocator, as LD_PRELOAD does with others. Its functions lead to those of the C library, by
 * jumps and by calls.
 */
#include <stddef.h>

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t number, size_t n);
extern void *__libc_realloc(void *memory, size_t n);

void *malloc(size_t n)
{
	return __libc_malloc(n);
}

void *calloc(size_t number, size_t n)
{
	void *volatile memory = __libc_calloc(number, n);

	return memory;
}

void *realloc(void *memory, size_t n)
{
	return memory ? __libc_realloc(memory, n) : malloc(n);
}
