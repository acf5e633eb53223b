//! Why a thread waits, from the functions on its stack: a table of kernel functions, one of user functions in a wait for a
//! futex, and one of functions of PostgreSQL.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::lock::reason_of;
use super::pattern::{matches, without_parameters};
use super::thread::WaitingThread;
use crate::profile::frame::HIDDEN_KERNEL;
use crate::profile::{Frame, Kind, UnknownReason};
use crate::sample::{Lock, LockKind, ThreadState};

/// A reason, and the kernel functions that show it (Linux 5.10 to 6.18). Rows above count before rows below: a page
/// fault that reads from a disk is a page fault, and a disk is more than the bit that its page waits for.
struct ReasonRow {
    reason: &'static str,
    functions: &'static [&'static str],
}

const fn row(reason: &'static str, functions: &'static [&'static str]) -> ReasonRow {
    ReasonRow { reason, functions }
}

/// Reasons that no function shows.
const CPU: &str = "CPU";
const QUOTA: &str = "quota";
const HIDDEN: &str = "kernel hidden";
const UNKNOWN: &str = "unknown";

/// What most waits of user space come down to. [`USER_ROWS`] says which wait it is.
const FUTEX: &str = "futex";

/// Of waits for a futex: a reason, and the user functions that show it. The function nearest to the leaf counts.
#[rustfmt::skip]
const USER_ROWS: &[ReasonRow] = &[
    row("timer", &["java.lang.Thread.sleep", "java.lang.Thread.sleep0", "java.lang.Thread.sleepNanos0", "JavaThread::sleep", "JavaThread::sleep_nanos", "os::sleep", "runtime.usleep"]),
    row("Object.wait", &["java.lang.Object.wait", "java.lang.Object.wait0", "ObjectMonitor::wait", "JVM_MonitorWait", "ObjectSynchronizer::wait"]),
    row("monitor", &["ObjectMonitor::enter", "ObjectMonitor::EnterI", "ObjectMonitor::enter_internal", "ObjectMonitor::ReenterI", "ObjectMonitor::reenter_internal", "ObjectSynchronizer::enter", "InterpreterRuntime::monitorenter", "SharedRuntime::complete_monitor_locking_C", "SharedRuntime::monitor_enter_helper"]),
    row("park", &["jdk.internal.misc.Unsafe.park", "sun.misc.Unsafe.park", "java.util.concurrent.locks.LockSupport.park", "Parker::park", "Unsafe_Park"]),
    row("thread join", &["pthread_join", "__pthread_clockjoin_ex", "pthread_clockjoin_np", "std::thread::join", "pthread_timedjoin_np"]),
    row("condition variable", &["pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait", "__pthread_cond_wait", "__pthread_cond_timedwait", "___pthread_cond_wait", "___pthread_cond_timedwait64", "cnd_wait", "std::sys::sync::condvar::futex::Condvar::wait*"]),
    row("mutex", &["pthread_mutex_lock", "__pthread_mutex_lock", "___pthread_mutex_lock", "__lll_lock_wait", "lll_lock_wait", "pthread_mutex_timedlock", "__pthread_mutex_lock_full", "std::sys::sync::mutex::futex::Mutex::lock_contended", "runtime.lock2"]),
    row("read-write lock", &["pthread_rwlock_rdlock", "pthread_rwlock_wrlock", "__pthread_rwlock_rdlock", "__pthread_rwlock_wrlock", "___pthread_rwlock_rdlock", "___pthread_rwlock_wrlock"]),
    row("semaphore", &["sem_wait", "sem_timedwait", "sem_clockwait", "__new_sem_wait", "__new_sem_wait_slow64", "PyThread_acquire_lock_timed"]),
    row("barrier", &["pthread_barrier_wait", "__pthread_barrier_wait"]),
    row("VM operation", &["VMThread::execute", "VMThread::wait_until_executed"]),
    row("safepoint", &["SafepointSynchronize::block", "SafepointMechanism::process", "SafepointMechanism::block_or_handshake", "SafepointMechanism::process_if_requested_slow", "LinuxWaitBarrier::wait"]),
    row(JVM_LOCK, &["Mutex::lock", "Mutex::lock_without_safepoint_check", "Mutex::lock_contended", "Monitor::lock", "Monitor::lock_without_safepoint_check", "Monitor::ILock"]),
];

/// Of a virtual thread that keeps its carrier: it parks for everything but a monitor. The functions that called `park`.
#[rustfmt::skip]
const CARRIER_ROWS: &[ReasonRow] = &[
    row("timer", &["java.lang.VirtualThread.sleepNanos"]),
    row("poll", &["sun.nio.ch.Poller.poll*"]),
];

/// Reasons that libraries build others from: a function further from the leaf may show a better one.
const GENERIC_REASONS: &[&str] = &["condition variable", "mutex", "semaphore"];

/// A lock or a condition of the JVM's own.
const JVM_LOCK: &str = "JVM lock";

/// Of waits for a futex or for events, in PostgreSQL: a reason, and the user functions that show it. A backend waits for
/// all things by the same few functions. Rows above count before rows below. The names of locks are those of
/// `pg_stat_activity`.
const POSTGRESQL_ROWS: &[ReasonRow] = &[
    row("PostgreSQL lock", &["ProcSleep"]),
    row("PostgreSQL LWLock", &["LWLockAcquire", "LWLockAcquireOrWait", "LWLockWaitForVar"]),
    row("PostgreSQL replication", &["SyncRepWaitForLSN"]),
    row("timer", &["pg_sleep", "pg_usleep"]),
    row("condition variable", &["ConditionVariableSleep", "ConditionVariableTimedSleep"]),
    row(LATCH, &["WaitLatch", "WaitLatchOrSocket"]),
    row("socket write", &["secure_write"]),
    row("socket read", &["NextCopyFrom", "NextCopyFromRawFields", "CopyFrom"]),
];

/// What wakes a process of PostgreSQL.
const LATCH: &str = "PostgreSQL latch";

/// Where compiled or interpreted code of Java enters HotSpot. Functions of Java above such a call do not wait: a thread
/// can run `LockSupport.park` and ask for a compilation, which waits for a lock of the compiler.
const ENTRIES: &[&str] = &[
    "InterpreterRuntime::*",
    "Runtime1::*",
    "OptoRuntime::*",
    "SharedRuntime::*",
    "JVMCIRuntime::*",
    "Deoptimization::*",
];

#[rustfmt::skip]
const ROWS: &[ReasonRow] = &[
    row("stopped", &["do_signal_stop", "do_jobctl_trap", "ptrace_stop", "ptrace_do_notify"]),
    row("frozen", &["do_freezer_trap", "__refrigerator", "cgroup_enter_frozen"]),
    row("userfaultfd", &["handle_userfault"]),
    row("FUSE", &["request_wait_answer", "fuse_get_req", "fuse_chan_send", "fuse_simple_request", "__fuse_simple_request"]),
    row("network file system", &["rpc_wait_bit_killable", "nfs4_wait_clnt_recover", "nfs_wait_bit_killable", "wait_for_response", "netfs_wait_for_read"]),
    row("memory reclaim", &["try_to_free_pages", "try_to_free_mem_cgroup_pages", "do_try_to_free_pages", "mem_cgroup_handle_over_high", "__mem_cgroup_handle_over_high", "reclaim_throttle", "shrink_node", "throttle_direct_reclaim", "mem_cgroup_oom_synchronize"]),
    row("write throttling", &["balance_dirty_pages", "balance_dirty_pages_ratelimited", "balance_dirty_pages_ratelimited_flags", "wbt_wait"]),
    row("swap", &["do_swap_page", "swap_readpage", "swap_read_folio"]),
    row("memory map lock", &["mmap_read_lock_killable", "__mmap_lock_do_trace_acquire_returned", "vm_mmap_pgoff", "__vm_munmap", "do_mprotect_pkey", "dup_mmap", "mmap_write_lock_killable", "lock_mm_and_find_vma", "do_madvise", "madvise_lock", "vma_start_read"]),
    row("page fault", &["handle_mm_fault", "exc_page_fault", "do_user_addr_fault", "do_translation_fault", "do_mem_abort", "asm_exc_page_fault"]),
    row("file lock", &["locks_lock_inode_wait", "fcntl_setlk", "flock_lock_inode_wait", "do_lock_file_wait"]),
    row("disk sync", &["vfs_fsync_range", "do_fsync", "ksys_sync", "sync_filesystem", "file_write_and_wait_range", "__filemap_fdatawait_range", "jbd2_log_wait_commit", "jbd2_complete_transaction", "xfs_log_force_seq", "btrfs_sync_log"]),
    row("journal", &["jbd2_journal_start", "start_this_handle", "jbd2__journal_start", "add_transaction_credits", "wait_transaction_locked", "do_get_write_access", "xlog_grant_head_wait"]),
    row("disk read", &["filemap_read", "generic_file_buffered_read", "filemap_get_pages", "filemap_update_page", "iomap_dio_rw", "__iomap_dio_rw", "blkdev_direct_IO", "ext4_dio_read_iter", "bread_gfp", "__bread_slow", "__bread", "read_cache_folio", "do_read_cache_page", "do_read_cache_folio", "wait_on_buffer", "__wait_on_buffer"]),
    row(FUTEX, &["futex_do_wait", "__futex_wait", "futex_wait_queue", "futex_wait_queue_me", "futex_wait", "futex_wait_requeue_pi", "futex_lock_pi", "do_futex", "futex_wait_multiple"]),
    row("timer", &["do_nanosleep", "hrtimer_nanosleep", "common_nsleep", "__x64_sys_clock_nanosleep", "__arm64_sys_clock_nanosleep", "timerfd_read", "timerfd_read_iter", "msleep", "msleep_interruptible", "usleep_range_state"]),
    row("event loop", &["do_epoll_wait", "ep_poll", "__x64_sys_epoll_wait", "do_epoll_pwait"]),
    row("io_uring worker", &["io_sq_thread", "io_wq_worker", "io_wqe_worker"]),
    row("io_uring", &["__do_sys_io_uring_enter", "io_cqring_wait", "io_cqring_wait_schedule"]),
    row("accept", &["inet_csk_accept", "inet_csk_wait_for_connect", "do_accept", "__sys_accept4", "unix_accept", "vsock_accept"]),
    row("connect", &["inet_stream_connect", "__inet_stream_connect", "inet_wait_for_connect", "unix_stream_connect", "__sys_connect", "vsock_connect"]),
    row("poll", &["do_sys_poll", "do_poll", "do_select", "core_sys_select", "do_pselect", "poll_schedule_timeout"]),
    row("socket read", &["tcp_recvmsg", "tcp_recvmsg_locked", "sk_wait_data", "__skb_wait_for_more_packets", "unix_stream_data_wait", "unix_stream_read_generic", "__skb_recv_udp", "__skb_recv_datagram", "netlink_recvmsg", "packet_recvmsg", "vsock_connectible_recvmsg", "vsock_stream_recvmsg", "__sys_recvfrom", "sock_recvmsg", "tls_sw_recvmsg", "tls_rx_rec_wait"]),
    row("socket write", &["sk_stream_wait_memory", "tcp_sendmsg", "sock_alloc_send_pskb", "sock_wait_for_wmem", "unix_wait_for_peer", "unix_stream_sendmsg", "sock_sendmsg", "__sock_sendmsg", "sk_stream_wait_close", "vsock_connectible_sendmsg"]),
    row("pipe read", &["pipe_read", "anon_pipe_read", "fifo_pipe_read", "pipe_wait_readable", "fifo_open", "splice_from_pipe_next", "opipe_prep", "ipipe_prep"]),
    row("pipe write", &["pipe_write", "anon_pipe_write", "fifo_pipe_write", "pipe_wait_writable"]),
    row("eventfd", &["eventfd_read", "eventfd_write"]),
    row("file events", &["inotify_read", "fanotify_read"]),
    row("terminal", &["n_tty_read", "n_tty_write", "tty_wait_until_sent", "vt_waitactive"]),
    row("child process", &["do_wait", "kernel_wait4", "__do_wait", "kernel_waitid", "wait_for_vfork_done", "kernel_clone"]),
    row("signal", &["do_sigtimedwait", "sigsuspend", "__x64_sys_rt_sigsuspend", "__arm64_sys_rt_sigsuspend", "__x64_sys_pause", "__ia32_sys_pause", "__arm64_sys_pause", "__do_sys_pause", "signalfd_read", "signalfd_dequeue", "signalfd_read_iter"]),
    row("System V semaphore", &["do_semtimedop", "__do_semtimedop"]),
    row("message queue", &["do_msgrcv", "do_msgsnd", "wq_sleep", "do_mq_timedreceive", "do_mq_timedsend"]),
    row("process exit", &["exit_mm", "coredump_wait", "zap_other_threads", "de_thread", "begin_new_exec", "exit_notify"]),
    row("RCU", &["synchronize_rcu", "synchronize_rcu_normal", "synchronize_srcu", "__synchronize_srcu", "__wait_rcu_gp", "rcu_barrier", "wait_rcu_exp_gp", "synchronize_rcu_expedited"]),
    row("disk", &["io_schedule", "io_schedule_timeout", "submit_bio_wait", "blk_mq_get_tag", "rq_qos_wait", "bit_wait_io", "blk_io_schedule", "folio_wait_bit_common", "folio_wait_bit", "wait_on_page_bit_common", "__folio_lock", "__lock_page", "blk_execute_rq", "folio_wait_writeback", "wait_on_page_writeback", "out_of_line_wait_on_bit"]),
    row("kernel mutex", &["__mutex_lock", "__mutex_lock_slowpath", "mutex_lock", "mutex_lock_killable", "mutex_lock_interruptible", "__mutex_lock_killable_slowpath", "__mutex_lock_interruptible_slowpath", "__ww_mutex_lock", "rt_mutex_slowlock", "__rt_mutex_slowlock", "rt_mutex_lock"]),
    row("kernel rwsem", &["rwsem_down_read_slowpath", "rwsem_down_write_slowpath", "percpu_rwsem_wait", "down_read", "down_write", "down_read_killable", "down_write_killable", "__percpu_down_read"]),
    row("kernel semaphore", &["__down", "__down_common", "__down_interruptible", "__down_timeout"]),
    row("kernel completion", &["wait_for_completion", "wait_for_completion_timeout", "wait_for_completion_killable", "wait_for_completion_interruptible", "__wait_for_common"]),
    row("kernel worker", &["worker_thread", "rescuer_thread", "kthread_worker_fn"]),
    row("kernel thread", &["kthread"]),
];

/// Functions of the scheduler, and the profiler's own at its end: they stand above each wait.
const SCHEDULER: &[&str] = &[
    "__schedule",
    "__schedule_loop",
    "schedule",
    "schedule_idle",
    "schedule_preempt_disabled",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_irq",
    "preempt_schedule_thunk",
    "__cond_resched",
    "finish_task_switch",
];

/// Beginnings of the kernel's functions between a raw tracepoint and its BPF program (include/trace/bpf_probe.h,
/// include/linux/tracepoint.h, kernel/trace/bpf_trace.c; kernels 5.10 to 6.18).
pub const TRACEPOINT_CALLERS: [&str; 4] = ["__traceiter_", "__bpf_trace_", "bpf_trace_run", "bpf_prog_"];

/// Beginnings of other functions of the profiler.
const OWN: &[&str] = &["bpf_get_stack", "kprobe_", "optimized_callback", "bpf_trampoline_", "trace_call_bpf"];

/// Functions that many waits share, so that they say nothing.
const SHARED: &[&str] = &[
    "schedule_timeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "schedule_hrtimeout",
    "schedule_timeout_interruptible",
    "schedule_timeout_uninterruptible",
    "__wait_on_bit",
    "__wait_on_bit_lock",
    "bit_wait",
    "wait_woken",
    "wait_on_bit",
];

static TABLE: LazyLock<HashMap<&'static str, usize>> = LazyLock::new(|| {
    let rows = ROWS.iter().enumerate().rev();
    rows.flat_map(|(at, row)| row.functions.iter().map(move |function| (*function, at))).collect()
});

/// The name without what the compiler adds to it: `finish_task_switch.isra.0`.
fn without_compiler_suffix(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// How many frames at the leaf (the end of `frames`) are the scheduler's and the profiler's own.
pub(super) fn scheduler_frames(frames: &[Arc<Frame>]) -> usize {
    let is_scheduler = |frame: &&Arc<Frame>| {
        let name = without_compiler_suffix(&frame.name);
        match frame.kind {
            Kind::Kernel => {
                SCHEDULER.contains(&name)
                    || TRACEPOINT_CALLERS.iter().chain(OWN).any(|prefix| name.starts_with(prefix))
            }
            // The profiler's own programs were loaded after the kernel's symbols were read.
            _ => frame.unknown == Some(UnknownReason::NotKernelText),
        }
    };
    frames.iter().rev().take_while(is_scheduler).count()
}

/// Why a thread with these frames, without those of the scheduler, has no CPU.
pub(super) fn wait_reason(frames: &[Arc<Frame>], thread: WaitingThread<'_>) -> Arc<str> {
    if let Some(reason) = queued_reason(thread.state) {
        return reason.into();
    }
    let kernel = || frames.iter().rev().take_while(|frame| frame.kind == Kind::Kernel);
    let row = kernel().filter_map(|frame| TABLE.get(without_compiler_suffix(&frame.name)).copied()).min();
    if let Some(row) = row {
        let reason = ROWS[row].reason;
        if [FUTEX, "event loop", "poll"].contains(&reason)
            && let Some(reason) = postgresql_reason(frames)
        {
            return reason.into();
        }
        return if reason == FUTEX {
            lock_reason(futex_reason(frames), thread.lock).into()
        } else {
            reason.into()
        };
    }
    let innermost =
        kernel().map(|frame| without_compiler_suffix(&frame.name)).find(|name| !SHARED.contains(name));
    match innermost {
        Some(HIDDEN_KERNEL) => HIDDEN.into(),
        Some(name) => format!("in {name}").into(),
        None => UNKNOWN.into(),
    }
}

/// Why a thread that could run has no CPU; `None` for other states.
pub(super) fn queued_reason(state: ThreadState) -> Option<&'static str> {
    match state {
        ThreadState::Running | ThreadState::Runnable => Some(CPU),
        ThreadState::Throttled => Some(QUOTA),
        ThreadState::Blocked | ThreadState::Sleeping => None,
    }
}

/// Every reason but those that name a kernel function.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let rows = USER_ROWS.iter().chain(POSTGRESQL_ROWS).chain(ROWS).map(|row| row.reason);
    rows.chain([CPU, QUOTA, HIDDEN, UNKNOWN])
}

/// What a process of PostgreSQL waits for; `None` for other programs, and for its waits for clients.
fn postgresql_reason(frames: &[Arc<Frame>]) -> Option<&'static str> {
    frames.iter().find(|frame| &*frame.name == "PostmasterMain")?;
    let has = |functions: &[&str]| frames.iter().any(|frame| functions.contains(&&*frame.name));
    POSTGRESQL_ROWS.iter().find(|row| has(row.functions)).map(|row| row.reason)
}

/// What a wait for a futex is, by the user functions above it.
fn futex_reason(frames: &[Arc<Frame>]) -> &'static str {
    /// How many functions a wait may have between its own and the system call.
    const NEAR: usize = 16;
    let user = frames.iter().rev().skip_while(|frame| frame.kind == Kind::Kernel).take(NEAR);
    let mut generic = None;
    for (at, frame) in user.clone().enumerate() {
        let name = without_parameters(&frame.name);
        let is_one_of = |functions: &[&str]| functions.iter().any(|known| matches(known, name));
        match USER_ROWS.iter().find(|row| is_one_of(row.functions)).map(|row| row.reason) {
            Some("park") => return carrier_reason(user.skip(at)).unwrap_or("park"),
            // HotSpot's waits end in condition variables: Java's name for them says more.
            Some(reason) if GENERIC_REASONS.contains(&reason) => _ = generic.get_or_insert(reason),
            Some(reason) => return reason,
            None if is_one_of(ENTRIES) => return JVM_LOCK,
            None => {}
        }
    }
    generic.unwrap_or(FUTEX)
}

/// For what a virtual thread with these frames, leaf first, keeps its carrier while it parks.
fn carrier_reason<'f>(frames: impl Iterator<Item = &'f Arc<Frame>>) -> Option<&'static str> {
    let names: Vec<&str> = frames.map(|frame| &*frame.name).collect();
    names.iter().find(|name| name.starts_with("java.lang.VirtualThread."))?;
    let has =
        |functions: &[&str]| names.iter().any(|name| functions.iter().any(|known| matches(known, name)));
    CARRIER_ROWS.iter().find(|row| has(row.functions)).map(|row| row.reason)
}

/// What a wait for a futex is, if the JVM says for which lock the thread waits: a libjvm without symbols shows no
/// functions. A thread is not still parked where its functions enter a monitor.
fn lock_reason(reason: &'static str, lock: Option<&Lock>) -> &'static str {
    let is_unclear = reason == FUTEX || GENERIC_REASONS.contains(&reason);
    let named = lock.filter(|lock| lock.class_name.is_some());
    match named.map(|lock| lock.kind) {
        Some(kind) if is_unclear => reason_of(kind),
        Some(kind @ (LockKind::Monitor | LockKind::Wait)) if ["monitor", "Object.wait"].contains(&reason) => {
            reason_of(kind)
        }
        _ => reason,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::manual;

    fn reason(kernel: &[&str]) -> String {
        reason_of_stack(&[(Kind::Kernel, kernel)])
    }

    /// The reason of a stack whose parts have these kinds, root first.
    fn reason_of_stack(parts: &[(Kind, &[&str])]) -> String {
        let of = |(kind, names): &(Kind, &[&str])| {
            names.iter().map(|name| Arc::new(Frame::named(*kind, *name))).collect::<Vec<_>>()
        };
        let frames: Vec<_> = parts.iter().flat_map(of).collect();
        let cut = scheduler_frames(&frames);
        let thread = WaitingThread { comm: b"x", is_kernel: false, state: ThreadState::Sleeping, lock: None };
        wait_reason(&frames[..frames.len() - cut], thread).to_string()
    }

    #[test]
    fn each_function_has_one_row() {
        for rows in [ROWS, USER_ROWS, CARRIER_ROWS, POSTGRESQL_ROWS] {
            let all: Vec<&str> = rows.iter().flat_map(|row| row.functions).copied().collect();
            let mut once = all.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), all.len(), "{all:?}");
        }
    }

    #[test]
    fn each_reason_is_documented() {
        let page = include_str!("../../docs/waiting.md");
        let rows = manual::tables(page, "## Reasons");
        let documented: BTreeSet<&str> = rows.iter().flat_map(|row| manual::codes(row[0])).collect();
        assert_eq!(documented, names().chain(["in FUNCTION"]).collect());
    }

    #[test]
    fn the_upper_row_counts() {
        let read =
            ["vfs_read", "ext4_file_read_iter", "filemap_read", "folio_wait_bit_common", "io_schedule"];
        assert_eq!(reason(&read), "disk read");
        let fault = [
            "asm_exc_page_fault",
            "handle_mm_fault",
            "filemap_fault",
            "folio_wait_bit_common",
            "io_schedule",
        ];
        assert_eq!(reason(&fault), "page fault");
        assert_eq!(reason(&["do_writepages", "blk_mq_get_tag", "io_schedule"]), "disk");
    }

    #[test]
    fn waits_of_postgresql_differ_by_what_the_backend_waits_for() {
        let of = |user: &[&str]| reason_of_stack(&[(Kind::Native, user), (Kind::Kernel, &["do_epoll_wait"])]);
        let lock = ["PostmasterMain", "LockAcquireExtended", "ProcSleep", "WaitLatch", "WaitEventSetWait"];
        assert_eq!(of(&lock), "PostgreSQL lock");
        assert_eq!(of(&["PostmasterMain", "CheckpointerMain", "WaitLatch"]), LATCH);
        assert_eq!(of(&["PostmasterMain", "pq_getbyte", "secure_read", "WaitEventSetWait"]), "event loop");
        assert_eq!(of(&["main", "WaitLatch"]), "event loop", "another program");
    }

    #[test]
    fn a_virtual_thread_that_keeps_its_carrier_parks_for_everything() {
        let of = |java: &[&str]| {
            let parked = ["java.lang.VirtualThread.parkOnCarrierThread", "jdk.internal.misc.Unsafe.park"];
            let native = ["Unsafe_Park", "Parker::park", "pthread_cond_timedwait"];
            reason_of_stack(&[
                (Kind::Java, java),
                (Kind::Java, &parked),
                (Kind::Native, &native),
                (Kind::Kernel, &["futex_wait"]),
            ])
        };
        let nap = [
            "java.lang.Thread.sleep",
            "java.lang.VirtualThread.sleepNanos",
            "java.lang.VirtualThread.parkNanos",
        ];
        assert_eq!(of(&nap), "timer");
        let park = [
            "java.util.concurrent.locks.LockSupport.park",
            "jdk.internal.misc.VirtualThreads.park",
            "java.lang.System$2.parkVirtualThread",
            "java.lang.VirtualThread.park",
        ];
        assert_eq!(of(&park), "park");
        let read = ["sun.nio.ch.NioSocketImpl.park", "sun.nio.ch.Poller.poll"];
        assert_eq!(of(&[&read[..], &park].concat()), "poll");
    }

    #[test]
    fn what_no_row_knows_says_its_function() {
        assert_eq!(
            reason(&["some_driver_wait.isra.0", "schedule_timeout", "schedule", "__schedule"]),
            "in some_driver_wait"
        );
        assert_eq!(reason(&[]), "unknown");
        assert_eq!(reason(&[HIDDEN_KERNEL]), "kernel hidden");
    }
}
