/* Another compilation unit: its debug information is read only when it is asked for. */
static inline __attribute__((always_inline)) int helper(int x)
{
	__asm__ volatile(".globl at_helper\nat_helper: nop");
	return x ^ 5;
}

__attribute__((noinline)) int other_unit(int x)
{
	return helper(x) - 1;
}
