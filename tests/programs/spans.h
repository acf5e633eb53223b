/* A record of a thread's trace context, as OTEP 4947 has it, and its writer. */
#include <stdint.h>

struct span_record {
	uint8_t trace[16];
	uint8_t span[8];
	uint8_t valid;
	uint8_t flags;
	uint16_t attributes_size;
	uint8_t attributes[4];
} __attribute__((packed, aligned(2)));

/* Makes a record the calling thread's; NULL: the thread works for no span. */
void attach(struct span_record *record);

/* The calling thread's variable. */
struct span_record **variable(void);
