/*
 * For LD_AUDIT: makes the linker take 1.5 s of CPU time for libjvm.so, after it has mapped the library and before it
 * has relocated the library, as on a busy machine.
 */
#define _GNU_SOURCE
#include <link.h>
#include <string.h>
#include <time.h>

#define TAKES_NS 1500000000LL

static long long cpu_time(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

unsigned int la_version(unsigned int version)
{
	return version;
}

unsigned int la_objopen(struct link_map *map, Lmid_t namespace, uintptr_t *cookie)
{
	size_t length = strlen(map->l_name);
	long long end = cpu_time() + TAKES_NS;

	(void)namespace;
	(void)cookie;
	if (length >= 10 && !strcmp(map->l_name + length - 10, "/libjvm.so"))
		while (cpu_time() < end)
			;
	return 0;
}
