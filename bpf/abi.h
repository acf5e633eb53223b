/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR Apache-2.0 OR MIT */
/*
 * The contract between the BPF program and the loader: types and limits, no variables. In bpf/, "the loader" is jbpf-prof in
 * user space: mostly src/capture/. The room src/loader/ loads the unwind tables.
 * src/capture/abi.rs and src/capture/controls.rs mirror this file; both sides assert sizes and offsets.
 */
#ifndef JP_ABI_H
#define JP_ABI_H

#define JP_ABI_VERSION 1

#define JP_COMM_LEN 16
#define JP_MAX_KERNEL_WORDS 127  /* bpf_get_stack stops at sysctl perf_event_max_stack, 127 by default */
#define JP_MAX_USER_FRAMES 1024
#define JP_MAX_USER_WORDS (2 * JP_MAX_USER_FRAMES) /* an interpreted frame has two words */
#define JP_PARITIES 2

/*
 * Why a sample was lost. src/capture/abi.rs has a label for each reason, in this order; a test compares the lists.
 *   ring_full    no room in the ring for the new stack; its count is not inserted, so the next sample tries again
 *   counts_full  the window's count map has no free entry
 *   counts_busy  the count map refused the insert for another reason (a bucket lock was held)
 *   no_scratch   a map lookup failed: cannot happen, counted so that the accounts add up
 *   nested       other programs used all scratch slots of the CPU
 *   spaces_full  no room for another address space, so that its growth is not known
 */
#define JP_LOSSES(X) X(ring_full) X(counts_full) X(counts_busy) X(no_scratch) X(nested) X(spaces_full)

enum jp_loss {
#define X(name) JP_LOSS_##name,
	JP_LOSSES(X)
#undef X
	JP_LOSS_COUNT
};

/*
 * The stop reason: why the unwinder stopped.
 *   root        the outermost frame: its frame pointer or its caller's pc is zero, or the unwind table marks it
 *   depth       the limit of JP_MAX_USER_FRAMES frames or of JP_MAX_READS memory reads; the root side is missing
 *   bad_read    the frame's memory could not be read (not mapped, or paged out)
 *   not_up      the next frame does not lie above this one: the frame pointer is invalid
 *   bad_pc      the return address is not a user address
 *   no_user     there is no user stack (kernel thread, idle, exec under way, io_uring worker, or user frames were not
 *               requested)
 *   no_table    the frame pointer is invalid, and no loaded unwind table has a rule for this code of a file
 *   no_rule     the unwind table has a rule that the unwinder does not support (an expression, another register)
 *   no_blob     the pc lies in a JVM's code heap, but not in code that is in use
 *   no_frame    code of a JVM without the frame that such code has: the frame was being built, changed or removed
 *   uretprobe   a uretprobe replaced the return address, and the kernel's list does not have the true one
 *   unfinished  the thread is still waiting: the record has its registers (struct jp_waiting) in place of user words, and
 *               the loader unwinds the user stack
 */
#define JP_ENDS(X) X(root) X(depth) X(bad_read) X(not_up) X(bad_pc) X(no_user) X(no_table) X(no_rule) X(no_blob) X(no_frame) X(uretprobe) X(unfinished)

enum jp_end {
#define X(name) JP_END_##name,
	JP_ENDS(X)
#undef X
	JP_END_COUNT
};

/* Not a stop reason: unwinding continues. */
#define JP_WALKING JP_END_COUNT

/*
 * How the task left user mode before the sample. The first user pc is an instruction that was about to run (a leaf) or
 * the return address of a system call.
 */
#define JP_LEAVES(X) X(user) X(syscall) X(fault) X(none)

enum jp_leaf {
#define X(name) JP_LEAF_##name,
	JP_LEAVES(X)
#undef X
	JP_LEAF_COUNT
};

/*
 * Cgroup hierarchies: v2, then one of v1 for each controller that can have one. The names are the kernel's names of the
 * controllers (io is `blkio` in a v1 mount). src/process/hierarchy.rs has the same list; a test compares.
 */
#define JP_CONTROLLERS(X) X(memory) X(pids) X(cpu) X(cpuacct) X(cpuset) X(devices) X(freezer) X(io) X(perf_event) X(hugetlb) X(net_cls) X(net_prio) X(rdma) X(misc)

enum jp_hierarchy {
	JP_HIERARCHY_v2,
#define X(name) JP_HIERARCHY_##name,
	JP_CONTROLLERS(X)
#undef X
	JP_HIERARCHY_COUNT
};

/* The deepest level of a chosen group in its hierarchy. Its descendants may lie at any level. */
#define JP_MAX_LEVEL 63

/* A chosen group. Ids are kernfs ids; each hierarchy has its own. */
struct jp_cgroup {
	__u64 id;
	__u32 hierarchy; /* enum jp_hierarchy */
	__u32 pad;
};

/* The group of a process in one hierarchy, as the filter sees it. Only hierarchies in which groups are chosen. */
struct jp_member {
	__u64 id;        /* of the group */
	__u32 tgid;
	__u32 hierarchy;
	__u32 wanted;    /* 1 if the group is a chosen one or lies below one */
	__u32 pad;
};

/*
 * A user word: bits 60..63 are a tag, the other bits the value (user addresses have at most 57 bits).
 * FOLLOWED is a return address that the unwinder found by frame pointer while no unwind table of the callee's file was
 * loaded, so nothing confirms it; as the last word with the value 0, it says that the stack ended there, at the root by
 * frame pointer. INTERPRETED is a Java method that the interpreter runs: its Method*, or 0 if that is
 * unknown. A second word without tag follows: the bytecode pointer, or 0.
 */
#define JP_WORD_TAG_SHIFT 60
#define JP_WORD_RETURN 0ULL
#define JP_WORD_LEAF 1ULL
#define JP_WORD_INTERPRETED 3ULL
#define JP_WORD_FOLLOWED 4ULL

/*
 * Unwind tables lie in pages, numbered from 1 (0: no page), in chunks that the loader adds when it needs them. A table
 * or an address space takes consecutive pages. The loader writes pages before anything refers to them, and does not
 * overwrite them while a program that has read their number may run. src/unwind/ has the code.
 */
#define JP_PAGE_SIZE 4096
#define JP_CHUNK_PAGES 256 /* 1 MiB */
#define JP_CHUNKS 60

/* The first 32 bytes of an address space: they identify its program. fork keeps the addresses, exec changes them. */
struct jp_space {
	__u64 start_code; /* of mm_struct, as /proc/PID/stat shows them */
	__u64 end_code;
	__u64 start_stack;
	__u32 ranges;     /* how many struct jp_range follow, sorted by address, without overlap */
	__u32 pad;
};

#define JP_MAX_RANGES 1023 /* eight pages */

/* The kind of code at an address. */
enum jp_code {
	JP_CODE_unknown, /* no range: no code, or generated code that is not described */
	JP_CODE_file,    /* code of a file */
	JP_CODE_heap,    /* a code heap of HotSpot */
};

struct jp_range {
	__u64 start;
	__u64 end;
	__u64 bias;   /* file: address - bias = offset in the file; heap: the address of its segment map */
	__u32 table;  /* the first page of the file's table (0: no table) or of the JVM's struct jp_vm */
	__u32 code;   /* enum jp_code */
};

/*
 * How a JVM's locks are found (bpf/lock.h): offsets in bytes, unless the comment says something else.
 */
struct jp_vm_locks {
	__u64 call_stub;      /* the address to which the first Java frame returns; 0: locks are not described */
	__u64 heap_busy;      /* address of a byte: not 0 while a collection has stopped the program */
	__u64 good_colour;    /* addresses of the masks of ZGC's pointers; 0: pointers have no colour */
	__u64 bad_colour;
	__u64 oop_base;       /* compressed pointers: base + (pointer << shift) */
	__u64 class_base;
	__u32 oop_shift;
	__u32 class_shift;
	__u32 os_thread;      /* in a JavaThread: its OSThread */
	__u32 thread_id;      /* in an OSThread: the thread's id in its own pid namespace */
	__u32 thread_object;  /* in a JavaThread: the java.lang.Thread, virtual if one is mounted */
	__u32 park_blocker;   /* in a java.lang.Thread */
	__u32 pending;        /* in a JavaThread: the ObjectMonitor that it enters */
	__u32 waiting;        /* in a JavaThread: the ObjectMonitor of its Object.wait */
	__u32 monitor_object; /* in an ObjectMonitor */
	__u32 monitor_owner;  /* in an ObjectMonitor */
	__u32 class;          /* in an object: its class */
	__u32 traits;         /* JP_VM_... */
};

/* Traits of a JVM, bits of jp_vm_locks.traits. */
#define JP_VM_HANDLES 1        /* JavaThread and ObjectMonitor have handles of objects, not objects */
#define JP_VM_NARROW_OOPS 2    /* fields of objects have compressed pointers */
#define JP_VM_NARROW_CLASSES 4 /* objects have compressed pointers to their classes */
#define JP_VM_COMPACT 8        /* the class is in the upper bits of the mark word (-XX:+UseCompactObjectHeaders) */
#define JP_VM_SHIFTED 16       /* generational ZGC: a pointer is an address, shifted, and a colour below */
#define JP_VM_MONITOR_TABLE 32 /* the mark word does not have the monitor's address (-XX:+UseObjectMonitorTable) */

/* How to compute the canonical frame address (CFA): the stack pointer after the return. */
#define JP_CFAS(X) X(none) X(end) X(sp) X(fp) X(plt) X(at_sp) X(at_fp) X(signal) X(other) X(bare)
/*
 *   none    no frame description covers this code
 *   end     the outermost frame
 *   sp      sp + cfa
 *   fp      fp + cfa
 *   plt     sp + cfa, and one word more from byte `fp_at` of a 16-byte slot on
 *   at_sp   *(sp + low half of cfa) + high half of cfa: where assembler of OpenSSL and HotSpot keeps an earlier sp
 *   at_fp   *(fp + low half of cfa) + high half of cfa: GCC, where it aligns the stack more than calls do
 *   signal  the kernel's saved registers: sp at sp + cfa, ip after it (i386: JP_I386_SAVED_IP), fp at sp + fp_at
 *   other   an unsupported rule
 *   bare    a short gap between described code, mostly assembler. In a leaf, the top of the stack is the return address
 *           if it follows a call; otherwise as none
 */
enum jp_cfa {
#define X(name) JP_CFA_##name,
	JP_CFAS(X)
#undef X
	JP_CFA_COUNT
};

/* Where the caller's frame pointer is: unchanged in fp, at CFA + fp_at, at fp + fp_at, or unknown. */
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

#define JP_VM_STUBS 8
#define JP_BLOB_BYTES 128 /* how much of a code heap's block the program reads; the fields' offsets are smaller */
#define JP_STUB_RULES 32  /* HotSpot of JDK 25 needs at most 20 */

/*
 * The rule for some instructions of a stub that neither keeps fp nor has frames of one size. src/jvm/vm/stub_frames.rs
 * finds them.
 */
struct jp_stub_rule {
	__u64 start;
	__u64 end;
	struct jp_rule rule;
};

/*
 * A JVM, as its VMStructs (gHotSpotVMStructs) describe it: where a block of a code heap describes its code's frames.
 * Offsets are in bytes from the start of the block, which is a header and then the CodeBlob.
 */
struct jp_vm {
	__u64 code_start;              /* of all code heaps together */
	__u64 code_end;
	__u64 interpreter;             /* the interpreter's code */
	__u64 interpreter_end;
	__u64 continuation;            /* stubs: return addresses of virtual threads with outer frames in the heap */
	__u64 continuation_end;
	struct {
		__u64 start, end;
	} stubs[JP_VM_STUBS];          /* hand-written code (StubRoutines); each stub has its own frame layout */
	__u64 stub_rules_start;        /* around all of the rules; 0: none */
	__u64 stub_rules_end;
	struct jp_stub_rule stub_rules[JP_STUB_RULES]; /* sorted by address, without overlap, zeros behind the last */
	__u32 segment_shift;           /* a segment of a heap has 1 << segment_shift bytes */
	__u32 used;                    /* a byte: 1 if the block is in use */
	__u32 blob;                    /* where the CodeBlob begins */
	__u32 frame_size;              /* s32, words with the return address; 0 or less: frames differ in size */
	__u32 frame_complete;          /* bytes of code after which the frame is complete; negative: not known */
	__u32 frame_complete_is_short; /* 1: s16, 0: s32 */
	__u32 begin;                   /* where the code begins */
	__u32 begin_is_offset;          /* 1: s32 from the CodeBlob, 0: address */
	__u32 bcp;                     /* where an interpreter frame has the bytecode pointer: words from fp - 64 */
	__u32 frame_pointers;          /* 1: compiled code keeps frame pointers */
	struct jp_vm_locks locks;
};

/*
 * The first 32 bytes of a table. 32-bit words follow: the index, with `steps` + 1 entries (the first row of each step
 * of code), then the rows, then at word `rules` the rules. A row holds an offset in its step, and above that the number
 * of the rule for all code up to the next row.
 */
#define JP_STEP_SHIFT 10 /* a step is 1 KiB of the file */
#define JP_STEP_MASK ((1 << JP_STEP_SHIFT) - 1)

struct jp_table {
	__u32 first;  /* the step of the file at which the index begins */
	__u32 steps;
	__u32 rules;  /* in words from the start of the table; even */
	__u32 i386;   /* 1: table of 32-bit code */
	__u32 pad[4];
};

/* Events with a number of their own. src/sample/event.rs has the same list; a test compares. */
#define JP_EVENTS(X) X(cpu) X(page_faults) X(minor_faults) X(major_faults) X(context_switches) X(wait) X(alloc) X(rss) X(native_alloc)

enum jp_event {
#define X(name) JP_EVENT_##name,
	JP_EVENTS(X)
#undef X
	JP_EVENT_COUNT
};

/* Events that a run chooses by name have the numbers after these: the slot of the event, from JP_EVENT_COUNT on. */
#define JP_EVENT_SLOTS 8
#define JP_EVENT_NUMBERS (JP_EVENT_COUNT + JP_EVENT_SLOTS)

/* How an event is sampled whose programs are attached for the whole run. The loader writes it, by the event's number. */
struct jp_event_control {
	__u64 period; /* occurrences on a CPU, or bytes, for a sample; 0: none, sampling has not begun or is over */
	__u32 number; /* of the system call, if a probe takes one; of `rss`: bytes of a page */
	__u32 noting; /* of `rss`, 1: the programs take no samples, and only note which pages there are */
};

/*
 * What a thread did in a sample. Samples of `wait` have the states from `runnable` on.
 *   running    it ran on a CPU
 *   runnable   it could run and had no CPU: it was preempted, or had been woken
 *   throttled  as runnable, but the quota of its cgroup was used up
 *   blocked    it waited uninterruptibly, mostly for a disk or a lock of the kernel
 *   sleeping   it waited in a way that a signal can end
 * src/sample/state.rs has the same list; a test compares.
 */
#define JP_STATES(X) X(running) X(runnable) X(throttled) X(blocked) X(sleeping)

enum jp_state {
#define X(name) JP_STATE_##name,
	JP_STATES(X)
#undef X
	JP_STATE_COUNT
};

/* jp_key.event: the event is in the low bits, the state above. */
#define JP_STATE_SHIFT 8

/*
 * What is known of the trace that a thread worked for (OTEP 4947).
 *   none    nothing was asked for, or the process does not publish traces
 *   span    the thread worked for a span: JP_CONTEXT_WORDS words with its ids follow the user words
 *   idle    the thread had no active span
 *   unread  the thread's memory could not be read
 * src/sample/span.rs has the same list; a test compares.
 */
#define JP_CONTEXTS(X) X(none) X(span) X(idle) X(unread)

enum jp_context {
#define X(name) JP_CONTEXT_##name,
	JP_CONTEXTS(X)
#undef X
};

/* The trace's id (two words) and the span's, as the bytes lie in memory. */
#define JP_CONTEXT_WORDS 3

/*
 * Where the threads of a program have the pointer to their trace context: at a distance from the thread pointer, or in a
 * block of thread-local storage that each thread's table of such blocks (the DTV) leads to.
 */
struct jp_context_place {
	__u64 start_code;  /* the program, as in struct jp_space */
	__u64 end_code;
	__u64 start_stack;
	__s64 offset;      /* from the thread pointer, or in the block, bytes */
	__u32 module;      /* the block's number in the DTV; 0: there is none, the offset is from the thread pointer */
	__s32 dtv;         /* where the DTV's address lies, from the thread pointer */
	__s32 length;      /* where the number of its entries lies, from the DTV's beginning */
	__u32 entry;       /* bytes of an entry, whose first word is the block's address */
};

/* The key of a count. No padding, because the map compares bytes. */
struct jp_key {
	__u64 start;   /* start_boottime of the group leader, ns since boot; start, tgid and exec identify a process */
	__u64 cgroup;  /* kernfs id of the task's cgroup in the hierarchy jp_config.naming */
	__u64 stack;   /* seeded hash of the words, the leaf and the stop reason */
	__u64 comm;    /* hash of the thread's comm */
	__u32 tgid;
	__u32 tid;     /* 0 unless threads are counted one by one */
	__u32 exec;    /* low bits of self_exec_id: each exec changes it */
	__u32 event;   /* enum jp_event or a slot's number | enum jp_state << JP_STATE_SHIFT */
};

struct jp_value {
	__u64 count;   /* samples */
	__u64 weight;  /* sum of their weights: ns of CPU time, events, or bytes */
	/* How many waits of `wait`, or objects of `alloc` and `native-alloc`, these stand for, in 1 / JP_ESTIMATE_UNIT. */
	__u64 estimate;
	__u64 longest; /* of `wait`: the longest wait with a sample, ns */
};

#define JP_ESTIMATE_UNIT 256ULL

/* Options of the program, constant once it is loaded. All flags are 0 or 1. */
struct jp_config {
	__u64 seed;          /* of hashes: random, so that a tenant cannot construct stacks or steps that collide */
	__u64 ring_half;     /* half the ring's size in bytes: above it, the program wakes the reader */
	__u64 cgroup_levels; /* bit mask: levels at which chosen groups may lie */
	__u32 cgroups;       /* bit mask: hierarchies in which groups are chosen; 0: no filter of cgroups */
	__u32 own_tgid;      /* the profiler, filtered out with its children; 0: sampled like any other process */
	__u8 by_tgid;        /* only processes in `wanted_tgids` */
	__u8 by_tid;         /* only threads in `wanted_tids` */
	__u8 children;       /* with by_tgid: and the descendants of those processes */
	__u8 threads;        /* count each thread by itself */
	__u8 user;           /* record user frames */
	__u8 kernel;         /* record kernel frames */
	__u8 naming;         /* enum jp_hierarchy: the one that identifies containers */
	__u8 switch_state;   /* sched_switch has the state as an argument (Linux 5.18) */
	__u8 by_cpu;         /* only what `wanted_on` (filter.h) accepts by its CPU */
	__u8 wakers;         /* record the stacks of threads that end sampled waits */
	__u8 traces;         /* record the trace contexts of threads */
	__u8 pad[5];
};

/*
 * The Java lock of a wait: a monitor that the thread entered, the monitor of its Object.wait, or what it parked for.
 * src/sample/lock.rs has the same list; a test compares.
 */
#define JP_LOCKS(X) X(none) X(monitor) X(wait) X(park)

enum jp_lock_kind {
#define X(name) JP_LOCK_##name,
	JP_LOCKS(X)
#undef X
};

/* Who had the lock: not known, the thread that woke this one, or the thread that had the lock still. */
enum jp_owner {
	JP_OWNER_unknown,
	JP_OWNER_waker,  /* `owner` is an id in the initial pid namespace */
	JP_OWNER_holder, /* `owner` is an id in the process's own pid namespace */
};

struct jp_lock {
	__u64 class;      /* address in the JVM */
	__u32 owner;      /* a thread of the same process */
	__u16 kind;       /* enum jp_lock_kind; none: the other fields are 0 */
	__u16 owner_kind; /* enum jp_owner */
};

/*
 * A new stack in the ring buffer: this header, then kernel_words + user_words words, leaf first. With a span,
 * JP_CONTEXT_WORDS more.
 */
struct jp_record {
	__u16 version;      /* JP_ABI_VERSION */
	__u8 leaf;          /* enum jp_leaf */
	__u8 end;           /* enum jp_end */
	__u16 kernel_words; /* the first word is a leaf, the others are return addresses */
	__u16 user_words;
	__u32 window;       /* parity of the window that counts the stack */
	__u32 context;      /* enum jp_context, in the hash of the stack, too */
	__u64 ktime;        /* CLOCK_MONOTONIC, ns */
	struct jp_key key;
	char comm[JP_COMM_LEN];
	struct jp_lock lock; /* in the hash of the stack, too */
	/*
	 * Of a wait: the id of the stack that ended it, in the hash of the stack, too; 0: the wait is not over, or wakers are
	 * not recorded. Of such a stack, which has the event `wait`, the state `running` and no samples: its own id.
	 */
	__u64 waker;
	__u64 object_class; /* of an allocation: the object's class, an address in the JVM; in the hash of the stack, too */
};

/* A thread that is still waiting, with JP_END_unfinished: where the loader begins to unwind its user stack. */
struct jp_waiting {
	__u64 ip;       /* the registers with which the thread left user mode */
	__u64 sp;
	__u64 fp;
	__u64 ax;       /* see struct regs */
	__u64 bx;
	__u64 r13;
	__u64 switches; /* how often the thread has lost its CPU so far: an unchanged number proves that it is still waiting */
	__u32 tid;
	__u32 own_tid;  /* in its own pid namespace */
	__u64 i386;     /* 1: the thread ran 32-bit code */
};

/* Kernel addresses at which process 0 waits for work; 0: free entry. */
#define JP_IDLE_ADDRESSES 8

struct jp_idle_addresses {
	__u64 ip[JP_IDLE_ADDRESSES];
};

/* Times of `wait`, which the loader writes. CLOCK_MONOTONIC, ns. */
struct jp_wait_control {
	__u64 period; /* length of a block of waiting time, ns: each has one sample */
	__u64 begin;  /* sampling began; 0: it has not, and the programs do nothing */
	__u64 end;    /* sampling ended; 0: it has not */
	__u64 noting; /* 1: the iterator takes no samples, and only notes which threads wait, and in which state */
};

/* The context switches of a CPU while the programs of `wait` are attached. */
struct jp_switches {
	__u64 last;   /* when, ns of CLOCK_MONOTONIC */
	__u64 number; /* a measure for the cost of the programs */
};

/* Waiting time, for each CPU and parity. */
struct jp_waited {
	__u64 ns[JP_STATE_COUNT]; /* by state, measured at the ends of waits */
	__u64 untimed;            /* waits not measured: `thread_waits` was full, or their end was not seen */
};

/* Allocations, for each CPU, parity and event: all of them, with and without samples. Bytes, and how many calls. Those of
 * JVMs that choose the samples themselves are not counted, only estimated. */
struct jp_allocated {
	__u64 wanted;
	__u64 filtered; /* of processes and threads that are not sampled */
	__u64 wanted_calls;
	__u64 filtered_calls;
	__u64 estimated; /* bytes */
};

/* For each CPU, parity and event. ticks = filtered + idle + sum of drained counts + sum of lost, exactly. */
struct jp_counters {
	__u64 ticks;
	__u64 filtered;
	__u64 idle; /* process 0, at an address in jp_idle_addresses */
	__u64 lost[JP_LOSS_COUNT];
};

_Static_assert(sizeof(struct jp_key) == 48, "jp_key");
_Static_assert(sizeof(struct jp_value) == 32, "jp_value");
_Static_assert(sizeof(struct jp_record) == 120, "jp_record");
_Static_assert(sizeof(struct jp_waiting) == 72, "jp_waiting");
_Static_assert(sizeof(struct jp_context_place) == 48, "jp_context_place");
_Static_assert(sizeof(struct jp_space) == 32, "jp_space");
_Static_assert(sizeof(struct jp_range) == 32, "jp_range");
_Static_assert(sizeof(struct jp_lock) == 16, "jp_lock");
_Static_assert(sizeof(struct jp_vm_locks) == 96, "jp_vm_locks");
_Static_assert(sizeof(struct jp_stub_rule) == 24, "jp_stub_rule");
_Static_assert(sizeof(struct jp_vm) == 48 + 16 * JP_VM_STUBS + 16 + 24 * JP_STUB_RULES + 40 + 96, "jp_vm");
_Static_assert(sizeof(struct jp_vm) <= JP_PAGE_SIZE, "jp_vm");
_Static_assert(sizeof(struct jp_table) == 32, "jp_table");
_Static_assert(sizeof(struct jp_rule) == 8, "jp_rule");
_Static_assert(sizeof(struct jp_config) == 48, "jp_config");
_Static_assert(sizeof(struct jp_cgroup) == 16, "jp_cgroup");
_Static_assert(sizeof(struct jp_member) == 24, "jp_member");
_Static_assert(sizeof(struct jp_wait_control) == 32, "jp_wait_control");
_Static_assert(sizeof(struct jp_event_control) == 16, "jp_event_control");
_Static_assert(sizeof(struct jp_waited) == 8 * (JP_STATE_COUNT + 1), "jp_waited");
_Static_assert(sizeof(struct jp_allocated) == 40, "jp_allocated");
_Static_assert(sizeof(struct jp_counters) == 8 * (3 + JP_LOSS_COUNT), "jp_counters");

#endif
