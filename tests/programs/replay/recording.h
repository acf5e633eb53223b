/*
 * A recording: blocks of memory as they were from then on, and the registers with which a stack is to be unwound.
 * record.c writes it, walker.c reads it; a file of such items in a row, nothing before or after them.
 */
#ifndef RECORDING_H
#define RECORDING_H

#include <stdint.h>

#define BLOCK_SIZE 256

enum item_kind {
	ITEM_block = 1, /* `address`, a multiple of BLOCK_SIZE, and so many bytes */
	ITEM_stack = 2, /* struct start, and `callers` return addresses as they truly are, the innermost first */
};

struct item {
	uint64_t kind;
	uint64_t address;
};

struct start {
	uint64_t ip, sp, fp, ax, bx, r13;
	uint64_t callers;
};

#endif
