/* A file that is entered as glibc's loader is: assembler without size and description that calls described code. */
int first(void)
{
	return 1;
}

__asm__(".text\n"
	".p2align 4\n"
	"enter:\n"
	"	mov %rsp, %rdi\n"
	"	call last\n"
	"after_first: mov %rax, %r12\n"
	"	call last\n"
	".globl after_second\n"
	"after_second: call enter\n"
	".globl after_third\n"
	"after_third: jmp *%r12\n"
	"	.p2align 4\n");

int last(void)
{
	return 2;
}
