/* The native method of Hostile.java. */
#include <jni.h>

#define FRAMES 2000 /* more than are unwound */
#define SEARCHED 63 /* words in which a return address is looked for: bpf/step_hotspot.h */

static jlong stack[FRAMES * (SEARCHED + 64)];

/* The stack whose frames have no return address in its place: 62 times `word`, and only then a return address. */
static inline __attribute__((always_inline)) void on_stack(jlong word, jlong pc, long size)
{
	long at = 0;

	stack[at++] = 0;
	stack[at++] = pc;
	while (at + size + SEARCHED <= (long)(sizeof(stack) / sizeof(stack[0]))) {
		at += size;
		for (int i = 1; i < SEARCHED; i++)
			stack[at++] = word;
		stack[at++] = pc;
	}
#if defined(__x86_64__)
	__asm__ volatile("mov %0, %%rbp; mov %0, %%rsp; 1: pause; jmp 1b" : : "r"(stack) : "memory");
#endif
	__builtin_unreachable();
}

JNIEXPORT jlong JNICALL Java_Hostile_spin(JNIEnv *env, jclass class, jlong word)
{
	jlong *frame = __builtin_frame_address(0);

	(void)env;
	(void)class;
	/* The caller keeps fp: its frame ends two words above. */
	if (word)
		on_stack(word, frame[1], (jlong *)frame[0] - frame);
	return frame[1];
}
