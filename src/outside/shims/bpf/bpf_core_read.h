/* CO-RE's reads of the kernel's structures, which are plain structures here. */
#ifndef SHIMS_BPF_CORE_READ_H
#define SHIMS_BPF_CORE_READ_H

#define CORE_READ_1(from, a) ((from)->a)
#define CORE_READ_2(from, a, b) ((from)->a->b)
#define CORE_READ_CHOSEN(_1, _2, name, ...) name
#define BPF_CORE_READ(from, ...) CORE_READ_CHOSEN(__VA_ARGS__, CORE_READ_2, CORE_READ_1)(from, __VA_ARGS__)
#define bpf_core_enum_value_exists(type, value) 1
/* Of uprobes: the list of true return addresses is not known outside of the kernel. */
#define bpf_core_field_exists(type, field) 0

#endif
