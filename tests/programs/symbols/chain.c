/* A chain of inlined calls, code without a symbol and without a size, and calls through the linkage table. Labels mark the places. */
#include <stdlib.h>

extern int other_unit(int);

__asm__(".text\n"
	".globl no_size\n"
	"no_size: nop\nnop\nnop\nnop\n"
	".globl sizeless\n"
	".type sizeless, @function\n"
	"sizeless: .cfi_startproc\nnop\nnop\nnop\nret\n.cfi_endproc\n");

static inline __attribute__((always_inline)) int innermost(int x)
{
	__asm__ volatile(".globl at_innermost\nat_innermost: nop");
	return x * 3;
}

static inline __attribute__((always_inline)) int middle(int x)
{
	return innermost(x + 1); /* line 21 */
}

__attribute__((noinline)) int outer(int x)
{
	return middle(x) + 7; /* line 26 */
}

int main(int argc, char **argv)
{
	(void)argv;
	return outer(argc) + other_unit(argc) + abs(atoi("1") + rand());
}
