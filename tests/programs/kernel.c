/*
 * Truth: nearly all the time goes to the kernel, under read(2), like `dd if=/dev/zero of=/dev/null`: the blocks are large,
 * so that entering and leaving the kernel is nothing even where zeros are cheap (`dc zva` of an emulated AArch64).
 */
#include <fcntl.h>
#include <unistd.h>

#include "target.h"

static __attribute__((noinline)) int copy(int in, int out)
{
	static char block[1 << 20];
	ssize_t got = read(in, block, sizeof(block));

	return got > 0 && write(out, block, (size_t)got) == got;
}

int main(void)
{
	int in = open("/dev/zero", O_RDONLY);
	int out = open("/dev/null", O_WRONLY);

	ready();
	while (copy(in, out))
		;
	return 1;
}
