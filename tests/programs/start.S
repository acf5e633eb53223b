/*
 * The start code of a program in distributions that compile glibc with `-fcf-protection` (sysdeps/x86_64/start.S): the
 * rule that it has no caller begins after its first instruction.
 */
	.text
	.globl _start
	.type _start, @function
_start:
	.cfi_startproc
	endbr64
	.cfi_undefined rip
	xorl %ebp, %ebp
	movq %rdx, %r9
	popq %rsi
	movq %rsp, %rdx
	andq $-16, %rsp
	pushq %rax
	pushq %rsp
	xorl %r8d, %r8d
	xorl %ecx, %ecx
	movq main@GOTPCREL(%rip), %rdi
	call *__libc_start_main@GOTPCREL(%rip)
	hlt
	.cfi_endproc
	.size _start, .-_start

/* libc's atexit needs this symbol, which crtbegin usually defines. */
	.data
	.globl __dso_handle
	.hidden __dso_handle
__dso_handle:
	.quad 0
	.section .note.GNU-stack,"",@progbits
