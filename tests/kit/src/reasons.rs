//! Programs whose threads and child processes each wait for ever in one way, and are named after it.

use super::folded::Folded;

/// Thread and leaf of `reasons.c`. With `--idle`, a thread that waits for work has the rule in its leaf.
pub const LEAVES: [(&str, &str); 23] = [
    ("flock", "[wait: file lock]"),
    ("eventfd", "[wait: eventfd]"),
    ("inotify", "[wait: file events]"),
    ("timerfd", "[wait: timer]"),
    ("signalfd", "[wait: signal]"),
    ("sigwait", "[wait: signal]"),
    ("paused", "[wait: signal]"),
    ("msgrcv", "[wait: message queue]"),
    ("semop", "[wait: System V semaphore]"),
    ("pipe write", "[wait: pipe write]"),
    ("pipe read", "[wait: pipe read]"),
    ("socket write", "[wait: socket write]"),
    ("socket read", "[wait: socket read]"),
    ("accept", "[idle: accept]"),
    ("connect", "[wait: connect]"),
    ("poll", "[wait: poll]"),
    ("epoll", "[idle: event loop]"),
    ("terminal", "[wait: terminal]"),
    ("io_uring", "[wait: io_uring]"),
    ("userfaultfd", "[wait: userfaultfd]"),
    ("vfork", "[blocked: child process]"),
    ("wait", "[wait: child process]"),
    ("traced", "[wait: stopped]"),
];

/// The same of `lock_reasons.c`.
pub const LOCK_LEAVES: [(&str, &str); 13] = [
    ("mutex", "[wait: mutex]"),
    ("condition", "[wait: condition variable]"),
    ("rwlock read", "[wait: read-write lock]"),
    ("rwlock write", "[wait: read-write lock]"),
    ("semaphore", "[wait: semaphore]"),
    ("barrier", "[wait: barrier]"),
    ("join", "[wait: thread join]"),
    ("futex", "[wait: futex]"),
    ("file position", "[blocked: kernel mutex]"),
    ("file content", "[blocked: kernel rwsem]"),
    ("rcu", "[blocked: RCU]"),
    ("fuse", "[blocked: FUSE]"),
    ("exec", "[blocked: process exit]"),
];

/// Threads that wait again and again, and for each other too.
const CONTENDING: [&str; 3] = ["file position", "file content", "rcu"];

/// Whether a thread waits again and again: chance decides on some of its samples.
pub fn contends(thread: &str) -> bool {
    CONTENDING.contains(&thread)
}

/// Whether a stack of a profile by thread is of the thread with this name.
pub fn is_of(stack: &[String], thread: &str) -> bool {
    let after_name =
        stack.get(1).and_then(|frame| frame.strip_prefix('[')).and_then(|frame| frame.strip_prefix(thread));
    after_name.is_some_and(|rest| rest.starts_with(" tid="))
}

/// What is wrong in a profile by thread (`--per-thread --raw-threads --idle`), a line for each thread: each thread but
/// those of the lines `without NAME` waits during nearly all `periods` of the run, with its leaf; threads that contend,
/// most of the time. A thread that was woken waits for a CPU, too, on a busy machine for long. A libc without symbols does
/// not show some functions: those waits are a `futex`.
pub fn mistakes(folded: &Folded, leaves: &[(&str, &str)], lines: &[String], periods: f64) -> Vec<String> {
    let lacks: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("without ")).collect();
    let there = leaves.iter().filter(|(thread, _)| !lacks.contains(thread));
    let mistake = |(thread, leaf): &(&str, &str)| {
        let thread_samples = folded.keep(|frames| is_of(frames, thread));
        let own = thread_samples.keep(|frames| frames.last().unwrap() != "[runnable]");
        let is_hidden = |frames: &[String]| {
            ["semaphore", "join"].contains(thread)
                && !frames.iter().any(|f| f.contains("sem_wait") || f.contains("pthread_"))
        };
        let with = own.count(|frames| {
            let last = frames.last().unwrap();
            last == leaf || (last == "[wait: futex]" && is_hidden(frames))
        });
        let (time, share) = if contends(thread) { (0.5, 0.9) } else { (0.95, 0.99) };
        let (all, queued) = (own.total(), thread_samples.total() - own.total());
        let is_good = (all + queued) as f64 >= time * periods
            && all as f64 >= 0.1 * periods
            && with as f64 >= share * all as f64;
        let top = own.top(3);
        (!is_good).then(|| {
            format!(
                "{top}\n{thread}: {with} of {all} are {leaf}, {queued} are [runnable], in {periods} periods"
            )
        })
    };
    there.filter_map(mistake).collect()
}
