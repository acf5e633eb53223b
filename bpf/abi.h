/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * The contract between the BPF program and the loader: types and limits, no variables.
 * src/capture/abi.rs states the same; sizes and offsets are asserted on both sides.
 */
#ifndef JP_ABI_H
#define JP_ABI_H

#define JP_ABI_VERSION 1

#define JP_COMM_LEN 16
#define JP_MAX_KERNEL_WORDS 127  /* bpf_get_stack stops at sysctl perf_event_max_stack, 127 unless raised */
#define JP_MAX_USER_FRAMES 1024
#define JP_MAX_USER_WORDS (2 * JP_MAX_USER_FRAMES) /* an interpreted frame has two */
#define JP_PARITIES 2

/*
 * Why a tick was lost. One list: the enum and the labels (src/capture/abi.rs) come from it, a test compares.
 *   ring_full    no room for the new stack's frames; its count is not inserted, so the next tick tries again
 *   counts_full  the window's count map has no free entry
 *   counts_busy  the count map refused the insert for another reason (a bucket lock was held)
 *   no_scratch   a map could not be had: cannot happen, counted so that the accounts add up
 *   nested       as many programs were at work on the CPU as there are slots for
 */
#define JP_LOSSES(X) X(ring_full) X(counts_full) X(counts_busy) X(no_scratch) X(nested)

enum jp_loss {
#define X(name) JP_LOSS_##name,
	JP_LOSSES(X)
#undef X
	JP_LOSS_COUNT
};

/*
 * Why the walk of the user stack ended.
 *   root        the frame pointer was zero, or the caller's pc was: the outermost frame was reached
 *   depth       JP_MAX_USER_FRAMES frames were walked, or memory was read as often as a walk may; the root side is missing
 *   bad_read    the frame's memory could not be read (not mapped, or paged out)
 *   not_up      the next frame does not lie above this one: the frame pointer is not one
 *   bad_pc      the return address is no user address
 *   no_user     there is no user stack (kernel thread, idle, or user frames not asked for)
 *   no_table    the frame pointer led nowhere, in a file's code of which no unwind table that is loaded says anything
 *   no_rule     the unwind table has a rule that is not followed (an expression, another register)
 *   no_blob     the pc lies in a JVM's code heap, but in no code that is in use there
 *   no_frame    a JVM's code was found without a frame as that code has: it was about to be made, changed or left
 *   uretprobe   a uretprobe has replaced the return address, and the kernel's list of the true ones does not have it
 */
#define JP_ENDS(X) X(root) X(depth) X(bad_read) X(not_up) X(bad_pc) X(no_user) X(no_table) X(no_rule) X(no_blob) X(no_frame) X(uretprobe)

enum jp_end {
#define X(name) JP_END_##name,
	JP_ENDS(X)
#undef X
	JP_END_COUNT
};

/* No end: the walk goes on. */
#define JP_WALKING JP_END_COUNT

/*
 * How user code was left when the tick came: its first pc is an instruction that was about to run (a leaf) or the
 * return address of a system call.
 */
#define JP_LEAVES(X) X(user) X(syscall) X(fault) X(none)

enum jp_leaf {
#define X(name) JP_LEAF_##name,
	JP_LEAVES(X)
#undef X
	JP_LEAF_COUNT
};

/*
 * Hierarchies of cgroups: that of v2, then those of v1, by each controller that has one. One list, by the kernel's names
 * of the controllers (io is `blkio` in a v1 mount): the enum and src/process/hierarchies.rs, a test compares.
 */
#define JP_CONTROLLERS(X) X(memory) X(pids) X(cpu) X(cpuacct) X(cpuset) X(devices) X(freezer) X(io) X(perf_event) X(hugetlb) X(net_cls) X(net_prio) X(rdma) X(misc)

enum jp_hierarchy {
	JP_HIERARCHY_v2,
#define X(name) JP_HIERARCHY_##name,
	JP_CONTROLLERS(X)
#undef X
	JP_HIERARCHY_COUNT
};

/* How deep in its hierarchy a group may lie that is chosen. Its descendants may lie anywhere. */
#define JP_MAX_LEVEL 63

/* A group that is chosen. Ids are those of kernfs, each hierarchy has its own. */
struct jp_cgroup {
	__u64 id;
	__u32 hierarchy; /* enum jp_hierarchy */
	__u32 pad;
};

/* Of each process, for each hierarchy in which groups are chosen: what the filter sees. */
struct jp_member {
	__u64 id;        /* its group */
	__u32 tgid;
	__u32 hierarchy;
	__u32 wanted;    /* whether its group is a chosen one, or lies below one */
	__u32 pad;
};

/*
 * A user word: bits 60..63 say what it is, the rest is the value (user addresses have at most 57 bits).
 * FOLLOWED is a return address to which a frame pointer led, in code of a file of which no table was there to say that
 * it is one. INTERPRETED is a Java method that the interpreter runs: its Method*, or 0 if there is none; a second word
 * without tag follows: its bytecode pointer, or 0.
 */
#define JP_WORD_TAG_SHIFT 60
#define JP_WORD_RETURN 0ULL
#define JP_WORD_LEAF 1ULL
#define JP_WORD_INTERPRETED 3ULL
#define JP_WORD_FOLLOWED 4ULL

/*
 * Unwind tables lie in pages, numbered from 1 (0 is none), in chunks that the loader adds as they are needed. A table
 * or a space takes pages in a row; it is written before anything names it, and not written over while a program that
 * has seen its number may run. src/unwind/ writes them.
 */
#define JP_PAGE_SIZE 4096
#define JP_CHUNK_PAGES 256 /* 1 MiB */
#define JP_CHUNKS 60

/* The first 32 bytes of a space: whose addresses it is about. Kept by fork, changed by exec. */
struct jp_space {
	__u64 start_code; /* of mm_struct, as /proc/PID/stat shows them */
	__u64 end_code;
	__u64 start_stack;
	__u32 ranges;     /* how many struct jp_range follow, sorted by address, none over another */
	__u32 pad;
};

#define JP_MAX_RANGES 1023 /* eight pages */

/* What lies at an address. */
enum jp_code {
	JP_CODE_unknown, /* no range: nothing, or generated code of which nothing is known */
	JP_CODE_file,    /* code of a file */
	JP_CODE_heap,    /* a code heap of HotSpot */
};

struct jp_range {
	__u64 start;
	__u64 end;
	__u64 bias;   /* file: address - bias = offset in the file; heap: the address of its segment map */
	__u32 table;  /* the first page of the file's table (0: there is none) or of the JVM's struct jp_vm */
	__u32 code;   /* enum jp_code */
};

#define JP_VM_STUBS 8
#define JP_BLOB_BYTES 128 /* so much of a block of a code heap is read; the fields' offsets are below */

/*
 * A JVM, as its own tables (gHotSpotVMStructs) describe it: where a block of a code heap says what its code's frames are.
 * Offsets are in bytes from the block's beginning: its header, then the CodeBlob.
 */
struct jp_vm {
	__u64 code_start;              /* all of its code heaps */
	__u64 code_end;
	__u64 interpreter;             /* its code */
	__u64 interpreter_end;
	__u64 continuation;            /* stubs to which frames of a virtual thread return whose callers are in the heap */
	__u64 continuation_end;
	struct {
		__u64 start, end;
	} stubs[JP_VM_STUBS];          /* hand-written code (StubRoutines), in which each stub has a frame of its own kind */
	__u32 segment_shift;           /* a segment of a heap has 1 << segment_shift bytes */
	__u32 used;                    /* a byte: 1 if the block is in use */
	__u32 blob;                    /* where the CodeBlob begins */
	__u32 frame_size;              /* s32, words with the return address; 0 or less: no frame of one size */
	__u32 frame_complete;          /* from the code's beginning on the frame is there; negative: never said */
	__u32 frame_complete_is_short; /* s16, else s32 */
	__u32 begin;                   /* where its code begins */
	__u32 begin_is_offset;          /* as s32 from the blob, else an address */
	__u32 bcp;                     /* in a frame of the interpreter: the bytecode pointer, words from fp - 64 */
	__u32 frame_pointers;          /* compiled code keeps them */
};

/*
 * The first 32 bytes of a table. Then words: `steps` + 1 of the index (the first row of each step of code), the rows,
 * from `rules` on the rules. A row holds the offset in its step and above it the number of its rule, which is that of
 * all code up to the next row.
 */
#define JP_STEP_SHIFT 10 /* a step is 1 KiB of the file */
#define JP_STEP_MASK ((1 << JP_STEP_SHIFT) - 1)

struct jp_table {
	__u32 first;  /* the step of the file at which the index begins */
	__u32 steps;
	__u32 rules;  /* in words from the table's beginning; even */
	__u32 i386;   /* of 32-bit code: 1 */
	__u32 pad[4];
};

/* How the frame's address (CFA, the stack pointer after the return) is found. */
#define JP_CFAS(X) X(none) X(end) X(sp) X(fp) X(plt) X(at_sp) X(at_fp) X(signal) X(other) X(bare)
/*
 *   none    no frame description covers this code
 *   end     the outermost frame
 *   sp      sp + cfa
 *   fp      fp + cfa
 *   plt     sp + cfa, and a word more from byte `fp_at` of a 16-byte slot on
 *   at_sp   *(sp + low half of cfa) + high half of cfa: OpenSSL's assembler keeps the caller's sp so
 *   at_fp   *(fp + low half of cfa) + high half of cfa: GCC, where the stack is aligned by more than calls do
 *   signal  *(sp + cfa), with ip after it (i386: JP_I386_SAVED_IP) and fp at *(sp + fp_at): what the kernel has saved
 *   other   another rule
 *   bare    a little code between what is described, as assembler is: a leaf's return address is on top of the stack, if
 *           it follows a call; else as none
 */
enum jp_cfa {
#define X(name) JP_CFA_##name,
	JP_CFAS(X)
#undef X
	JP_CFA_COUNT
};

/* How the caller's frame pointer is found: it is as it was, *(CFA + fp_at), *(fp + fp_at), not at all. */
#define JP_FPS(X) X(same) X(at_cfa) X(at_fp) X(lost)

enum jp_fp {
#define X(name) JP_FP_##name,
	JP_FPS(X)
#undef X
	JP_FP_COUNT
};

struct jp_rule {
	__u8 cfa_kind; /* enum jp_cfa */
	__u8 fp_kind;  /* enum jp_fp */
	__s16 fp_at;
	__s32 cfa;
};

/* What happened: one list, the enum and src/sample/event.rs, a test compares. */
#define JP_EVENTS(X) X(cpu) X(page_faults) X(minor_faults) X(major_faults) X(context_switches)

enum jp_event {
#define X(name) JP_EVENT_##name,
	JP_EVENTS(X)
#undef X
	JP_EVENT_COUNT
};

/* What a count is for. No holes: the map compares bytes. */
struct jp_key {
	__u64 start;   /* start_boottime of the group leader, ns since boot: with tgid and exec the process */
	__u64 cgroup;  /* kernfs id of the task's cgroup in the hierarchy `naming` of the config */
	__u64 stack;   /* seeded hash of the words and of how leaf and walk ended */
	__u64 comm;    /* the thread's comm, hashed */
	__u32 tgid;
	__u32 tid;     /* 0 unless threads were asked for */
	__u32 exec;    /* low bits of self_exec_id: another one is another program in the same process */
	__u32 event;   /* enum jp_event */
};

struct jp_value {
	__u64 count;   /* ticks */
	__u64 weight;  /* sum of what they stand for: ns of CPU time, or events */
};

/* What the program is asked for; constant once it is loaded. All flags are 0 or 1. */
struct jp_config {
	__u64 seed;          /* of hashes: random, so that nobody can make stacks or steps collide */
	__u64 ring_half;     /* half the ring's size in bytes: wake the reader above it */
	__u64 cgroup_levels; /* the levels at which chosen groups may lie, a bit each */
	__u32 cgroups;       /* the hierarchies in which groups are chosen, a bit each; 0: none is */
	__u32 own_tgid;      /* the profiler, to be left out with its children; 0: shown like any other */
	__u8 by_tgid;        /* only processes in `wanted_tgids` */
	__u8 by_tid;         /* only threads in `wanted_tids` */
	__u8 children;       /* and the descendants of wanted processes */
	__u8 threads;        /* count each thread by itself */
	__u8 user;           /* user frames wanted */
	__u8 kernel;         /* kernel frames wanted */
	__u8 naming;         /* enum jp_hierarchy: the one that tells containers apart */
	__u8 pad;
};

/* A new stack, in the ring buffer: this header, then kernel_words + user_words words, leaf first. */
struct jp_record {
	__u16 version;      /* JP_ABI_VERSION */
	__u8 leaf;          /* enum jp_leaf */
	__u8 end;           /* enum jp_end */
	__u16 kernel_words; /* the first is a leaf, the others are return addresses */
	__u16 user_words;
	__u32 window;       /* parity of the window that counts it */
	__u32 pad;
	__u64 ktime;        /* CLOCK_MONOTONIC, ns */
	struct jp_key key;
	char comm[JP_COMM_LEN];
};

/* Addresses at which process 0 waits for work; 0: no more are known. */
#define JP_WAITS 8

struct jp_waits {
	__u64 ip[JP_WAITS];
};

/* Per CPU, parity and event. ticks = filtered + idle + sum of drained counts + sum of lost, exactly. */
struct jp_counters {
	__u64 ticks;
	__u64 filtered;
	__u64 idle; /* at one of jp_waits */
	__u64 lost[JP_LOSS_COUNT];
};

_Static_assert(sizeof(struct jp_key) == 48, "jp_key");
_Static_assert(sizeof(struct jp_value) == 16, "jp_value");
_Static_assert(sizeof(struct jp_record) == 88, "jp_record");
_Static_assert(sizeof(struct jp_space) == 32, "jp_space");
_Static_assert(sizeof(struct jp_range) == 32, "jp_range");
_Static_assert(sizeof(struct jp_vm) == 48 + 16 * JP_VM_STUBS + 40, "jp_vm");
_Static_assert(sizeof(struct jp_table) == 32, "jp_table");
_Static_assert(sizeof(struct jp_rule) == 8, "jp_rule");
_Static_assert(sizeof(struct jp_config) == 40, "jp_config");
_Static_assert(sizeof(struct jp_cgroup) == 16, "jp_cgroup");
_Static_assert(sizeof(struct jp_member) == 24, "jp_member");
_Static_assert(sizeof(struct jp_counters) == 8 * (3 + JP_LOSS_COUNT), "jp_counters");

#endif
