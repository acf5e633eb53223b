/* The writer of trace contexts (OTEP 4947): the record that this variable points to is the calling thread's. */
#include "spans.h"

__attribute__((visibility("default"))) __thread struct span_record *otel_thread_ctx_v1;

void attach(struct span_record *record)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*(struct span_record *volatile *)&otel_thread_ctx_v1 = record;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

struct span_record **variable(void)
{
	return &otel_thread_ctx_v1;
}
