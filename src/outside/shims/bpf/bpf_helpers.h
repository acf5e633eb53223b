/*
 * What the unwinder (bpf/walk.h) needs of libbpf and of the kernel, for a program of user space. The program defines two
 * functions: src/outside/walker.c does, and tests/programs/replay/walker.c.
 */
#ifndef SHIMS_BPF_HELPERS_H
#define SHIMS_BPF_HELPERS_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

#undef __always_inline /* glibc's, which is not inline alone */
#define __always_inline inline __attribute__((always_inline))
#define SEC(name)
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
#define __array(name, value) typeof(value) *name[]

/* libbpf has functions with some of these names. */
#define bpf_map_lookup_elem shim_map_lookup_elem
#define bpf_probe_read_user shim_probe_read_user

void *bpf_map_lookup_elem(void *map, const void *key);
long bpf_probe_read_user(void *to, __u32 size, const void *from);

/* No task is the current one. */
static inline long bpf_task_pt_regs(void *task)
{
	return (long)task;
}

static inline void *bpf_get_current_task_btf(void)
{
	return NULL;
}

static inline __u64 bpf_get_current_task(void)
{
	return 0;
}

#endif
