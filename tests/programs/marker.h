/* A static marker as <sys/sdt.h> makes it: an instruction that does nothing, and a note with its address. */
#ifndef MARKER_H
#define MARKER_H

/* All arguments are texts. `semaphore`: a variable that is not 0 while a tool uses the marker, or "0". */
#define MARK(provider, name, semaphore) \
	__asm__ volatile("1: nop\n" \
			 ".pushsection .note.stapsdt,\"\",\"note\"\n" \
			 ".balign 4\n" \
			 ".4byte 8, 3f - 2f, 3\n" \
			 ".asciz \"stapsdt\"\n" \
			 "2: .8byte 1b, _.stapsdt.base, " semaphore "\n" \
			 ".asciz \"" provider "\", \"" name "\", \"\"\n" \
			 "3: .balign 4\n" \
			 ".popsection\n")

__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
	".weak _.stapsdt.base\n"
	".hidden _.stapsdt.base\n"
	"_.stapsdt.base: .space 1\n"
	".size _.stapsdt.base, 1\n"
	".popsection\n");

#endif
