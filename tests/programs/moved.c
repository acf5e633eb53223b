/*
 * Truth: all of the time is in main -> outer -> middle -> work. Their code was moved from a file to memory without a
 * file, as in programs that want their code in huge pages.
 *   moved mremap              in place, by mremap
 *   moved over                in place: memory of no file is mapped over the file's, and filled
 *   moved late                the same, a second and a half after `ready`
 *   moved elsewhere           a copy runs; the file's code stays mapped
 *   moved library LIBRARY     `over` with a library's code
 *   moved patched             `over`; one byte in the page of `work`, which never runs, differs from the file's
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

#include "moved_code.c"

typedef unsigned long function(unsigned long);

static char *filled(const char *from, size_t length)
{
	char *to = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return to == MAP_FAILED ? NULL : memcpy(to, from, length);
}

static int over(char *code, size_t length, int patched)
{
	char *copy = filled(code, length);
	char *there = mmap(code, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (!copy || there != code)
		return 1;
	memcpy(code, copy, length);
	if (patched)
		code[length - 1] ^= 1;
	return mprotect(code, length, PROT_READ | PROT_EXEC);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	function *volatile run = outer;
	char *code = (char *)outer, *end = (char *)moved_end, *copy;
	unsigned long x = 88172645463325252ul;

	if (!strcmp(how, "library")) {
		void *library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : NULL;

		if (!library)
			return 1;
		code = dlsym(library, "outer");
		end = dlsym(library, "moved_end");
		run = (function *)code;
	}
	if (!strcmp(how, "mremap") || !strcmp(how, "elsewhere")) {
		copy = filled(code, end - code);
		if (!copy || mprotect(copy, end - code, PROT_READ | PROT_EXEC))
			return 1;
		if (!strcmp(how, "elsewhere"))
			run = (function *)copy;
		else if (mremap(copy, end - code, end - code, MREMAP_MAYMOVE | MREMAP_FIXED, code) != code)
			return 1;
	} else if (strcmp(how, "late") && over(code, end - code, !strcmp(how, "patched"))) {
		return 1;
	}
	ready();
	for (unsigned long begun = us_of(CLOCK_MONOTONIC); x; x = run(x) ? x + 1 : 1) {
		if (strcmp(how, "late") || us_of(CLOCK_MONOTONIC) - begun < 1500000)
			continue;
		if (over(code, end - code, 0))
			return 1;
		how = "moved";
	}
	return 0;
}
