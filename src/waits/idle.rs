//! Rules that say which threads only wait for work. Their time is summed by rule and left out of pictures.

use std::sync::Arc;

use super::pattern::{matches, without_parameters};
use super::thread::WaitingThread;
use crate::profile::Frame;
use crate::profile::filter::Glob;
use crate::profile::kind::Origin;

/// A rule: its name, functions of which one must be on the stack, and the reasons of the wait (none: any). A pattern
/// `A>B` means that A called B. A function that also runs the work is a pattern only with the wait that it calls, or
/// with a reason: otherwise the waits of the work would be idle too.
struct IdlePattern {
    name: &'static str,
    functions: &'static [&'static str],
    reasons: &'static [&'static str],
}

const fn rule(
    name: &'static str,
    functions: &'static [&'static str],
    reasons: &'static [&'static str],
) -> IdlePattern {
    IdlePattern { name, functions, reasons }
}

/// Java's own waits for work.
#[rustfmt::skip]
const JAVA: &[IdlePattern] = &[
    rule("thread pool", &["java.util.concurrent.ThreadPoolExecutor.getTask", "io.netty.util.concurrent.SingleThreadEventExecutor.takeTask", "org.eclipse.jetty.util.thread.QueuedThreadPool*idleJobPoll", "org.apache.tomcat.util.threads.TaskQueue.take", "org.apache.tomcat.util.threads.TaskQueue.poll"], &[]),
    rule("ForkJoinPool", &["java.util.concurrent.ForkJoinPool.awaitWork"], &[]),
    rule("Timer", &["java.util.TimerThread.mainLoop>java.lang.Object.wait*"], &[]),
    rule("reference handler", &["java.lang.ref.Reference.waitForReferencePendingList", "java.lang.ref.Reference.tryHandlePending>java.lang.Object.wait*", "java.lang.ref.Reference$ReferenceHandler.run>java.lang.Object.wait*", "java.lang.ref.ReferenceQueue.remove"], &[]),
    rule("event loop", &["sun.nio.ch.EPoll.wait", "sun.nio.ch.EPollArrayWrapper.epollWait", "io.netty.channel.epoll.Native.epollWait*"], &[]),
    rule("event loop", &["io.netty.channel.uring.*"], &["io_uring"]),
    rule("accept", &["sun.nio.ch.Net.accept", "sun.nio.ch.ServerSocketChannelImpl.accept", "java.net.ServerSocket.accept"], &[]),
    rule("virtual thread scheduler", &["java.util.concurrent.DelayScheduler.loop*"], &["park"]),
    rule("virtual thread scheduler", &["java.lang.VirtualThread.takeVirtualThreadListToUnblock", "sun.nio.ch.Poller.updateLoop"], &[]),
];

/// Waits for work of native runtimes and servers.
#[rustfmt::skip]
const NATIVE: &[IdlePattern] = &[
    rule("JVM thread", &["os::signal_wait", "AttachListener::dequeue", "GCTaskManager::get_task", "GangWorker::loop", "AbstractGangWorker::loop", "ConcurrentMarkThread::sleepBeforeNextCycle", "ConcurrentMarkSweepThread::sleepBeforeNextCycle", "SurrogateLockerThread::loop", "WorkerThread::run", "VMThread::loop>Monitor::wait*", "WatcherThread::sleep", "CompileQueue::get", "ServiceThread::service_thread_entry", "MonitorDeflationThread::monitor_deflation_thread_entry", "NotificationThread::notification_thread_entry", "ConcurrentGCThread::run", "G1ServiceThread::wait_to_run", "G1ConcurrentRefineThread::wait_for_completed_buffers", "ConcurrentG1RefineThread::wait_for_completed_buffers", "ConcurrentG1RefineThread::sample_young_list_rs_lengths", "JfrThreadSampler::run", "Threads::destroy_vm>Monitor::wait*"], &[]),
    // Without symbols of the C library the join of the thread that runs `main` is only a futex.
    rule("JVM thread", &["JLI_Launch"], &["thread join", "futex"]),
    rule("Go scheduler", &["runtime.findRunnable", "runtime.findrunnable", "runtime.stopm", "runtime.sysmon", "runtime.mPark", "runtime.templateThread"], &[]),
    rule("Tokio worker", &["tokio::runtime::scheduler::multi_thread::worker::Context::park*"], &[]),
    rule("Node worker", &["worker>uv_cond_wait"], &[]),
    rule("nginx", &["ngx_master_process_cycle"], &["signal"]),
    rule("PostgreSQL", &["PostmasterMain"], &["event loop", "poll"]),
    rule("PostgreSQL", &["WalWriterMain", "CheckpointerMain", "BackgroundWriterMain", "AutoVacLauncherMain", "StartAutoVacLauncher", "PgArchiverMain", "ApplyLauncherMain", "LogicalLauncherMain", "SysLoggerMain", "IoWorkerMain"], &["PostgreSQL latch"]),
];

/// Kernel names (comm) of a JVM's own threads, for a libjvm without symbols. A name that ends with `*` is a prefix.
const JVM_THREADS: &[&str] = &[
    "VM Thread",
    "VM Periodic Tas*",
    "DestroyJavaVM",
    "GC Thread#*",
    // JDK 8: Parallel; G1 and CMS.
    "GC task thread#*",
    "Gang worker#*",
    "Concurrent Mark*",
    "Surrogate Locke*",
    "G1 *",
    "C1 CompilerThre*",
    "C2 CompilerThre*",
    "Signal Dispatch*",
    "Reference Handl*",
    "Finalizer",
    "Common-Cleaner",
    "Attach Listener",
    "Service Thread",
    "Monitor Deflati*",
    "Notification Th*",
    "Sweeper thread",
    "StringDedup*",
    "ZWorker#*",
    "ZDirector*",
    "ZDriver*",
    "ZStat",
    "XWorker#*",
    "Shenandoah *",
    "JFR *",
    "Cleaner-*",
];

/// Reasons that are idleness by themselves.
const REASONS: &[&str] = &["event loop", "accept", "kernel worker", "kernel thread", "io_uring worker"];

/// Every rule of this file.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    JAVA.iter().chain(NATIVE).map(|rule| rule.name).chain(REASONS.iter().copied())
}

/// All rules: those of this file, and those of the user.
#[derive(Clone, Debug, Default)]
pub struct IdleRules {
    own: Vec<(Arc<str>, Glob)>,
}

impl IdleRules {
    /// The rules of this file, and the user's patterns: a thread is idle if a function on its stack matches one.
    #[must_use]
    pub fn new(patterns: &[String]) -> IdleRules {
        IdleRules { own: patterns.iter().map(|p| (Arc::from(p.as_str()), Glob::new(p))).collect() }
    }

    /// The rule by which a waiting thread with these frames, root first, is idle.
    pub(super) fn matching(
        &self,
        frames: &[Arc<Frame>],
        thread: WaitingThread<'_>,
        reason: &str,
    ) -> Option<Arc<str>> {
        let by_user = |(name, glob): &(Arc<str>, Glob)| {
            frames.iter().any(|frame| glob.matches(&frame.name)).then(|| Arc::clone(name))
        };
        if let Some(rule) = self.own.iter().find_map(by_user) {
            return Some(rule);
        }
        let is_java = frames.iter().any(|frame| frame.kind.origin() == Origin::Java);
        let rule = by_frames(frames, reason, if is_java { JAVA } else { NATIVE })
            .or_else(|| jvm_thread(frames, thread.comm));
        if rule.is_some() {
            return rule.map(Arc::from);
        }
        if thread.is_kernel && reason != "stopped" && reason != "frozen" {
            return Some("kernel thread".into());
        }
        // Java has its own rules: a selector may wait for an answer.
        (!is_java).then(|| REASONS.iter().find(|own| **own == reason)).flatten().map(|own| Arc::from(*own))
    }
}

fn by_frames(frames: &[Arc<Frame>], reason: &str, rules: &[IdlePattern]) -> Option<&'static str> {
    let names: Vec<&str> = frames.iter().map(|frame| without_parameters(&frame.name)).collect();
    let on_stack = |pattern: &&str| match pattern.split_once('>') {
        None => names.iter().any(|name| matches(pattern, name)),
        Some((caller, callee)) => {
            names.windows(2).any(|pair| matches(caller, pair[0]) && matches(callee, pair[1]))
        }
    };
    let has_reason = |rule: &IdlePattern| rule.reasons.is_empty() || rule.reasons.contains(&reason);
    let found = rules.iter().find(|rule| has_reason(rule) && rule.functions.iter().any(&on_stack));
    found.map(|rule| rule.name)
}

/// A thread that a JVM runs for itself, by its name: only where code of a JVM is on the stack.
fn jvm_thread(frames: &[Arc<Frame>], comm: &[u8]) -> Option<&'static str> {
    let comm = std::str::from_utf8(comm).ok()?;
    let in_jvm = || frames.iter().any(|f| f.module.as_ref().is_some_and(|m| m.base_name() == "libjvm.so"));
    (JVM_THREADS.iter().any(|name| matches(name, comm)) && in_jvm()).then_some("JVM thread")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::manual;
    use crate::profile::Kind;
    use crate::profile::frame::Module;
    use crate::sample::ThreadState;
    use crate::waits::reason;

    #[test]
    fn each_reason_of_a_rule_exists() {
        let of_rules = JAVA.iter().chain(NATIVE).flat_map(|rule| rule.reasons);
        let wrong = of_rules.chain(REASONS).find(|wanted| !reason::names().any(|known| known == **wanted));
        assert_eq!(wrong, None);
    }

    #[test]
    fn each_rule_is_documented() {
        let page = include_str!("../../docs/waiting.md");
        let rows = manual::table(page, "## Idle threads");
        let documented: BTreeSet<&str> = rows.iter().flat_map(|row| manual::codes(row[0])).collect();
        let known: BTreeSet<&str> = names().chain(["JVM thread", "kernel thread"]).collect();
        assert_eq!(documented, known);
    }

    #[test]
    fn waits_of_the_work_itself_are_not_idle() {
        let java = |name: &str| Arc::new(Frame::named(Kind::Java, name));
        let native = |name: &str| Arc::new(Frame::named(Kind::Native, name));
        let rules = IdleRules::default();
        let thread = WaitingThread { comm: b"x", is_kernel: false, state: ThreadState::Sleeping, lock: None };
        let of = |frames: &[Arc<Frame>], reason: &str| rules.matching(frames, thread, reason);
        let timer = java("java.util.TimerThread.mainLoop");
        let idle = [Arc::clone(&timer), java("java.lang.Object.wait")];
        assert_eq!(of(&idle, "Object.wait").as_deref(), Some("Timer"));
        let task = [timer, java("com.example.Task.run"), java("java.net.SocketInputStream.read")];
        assert_eq!(of(&task, "socket read"), None);
        assert_eq!(of(&[native("CheckpointerMain"), native("pg_fsync")], "disk sync"), None);
        assert_eq!(of(&[native("CheckpointerMain")], "PostgreSQL latch").as_deref(), Some("PostgreSQL"));
        assert_eq!(of(&[native("PostmasterMain"), native("PostgresMain")], "PostgreSQL lock"), None);
        let launcher = [native("JLI_Launch"), native("CallJavaMainInNewThread")];
        assert_eq!(of(&launcher, "thread join").as_deref(), Some("JVM thread"));
        assert_eq!(of(&launcher, "futex").as_deref(), Some("JVM thread"), "no symbols of the C library");
        assert_eq!(of(&launcher, "disk read"), None);
        let in_jvm = Arc::new(Frame {
            module: Some(Arc::new(Module::at("/usr/lib/jvm/java-8/jre/lib/amd64/server/libjvm.so"))),
            ..Frame::named(Kind::Native, "libjvm.so!fun_5d0")
        });
        for comm in ["GC task thread#", "Gang worker#1 (", "Concurrent Mark", "Surrogate Locke"] {
            let thread = WaitingThread { comm: comm.as_bytes(), ..thread };
            let rule = rules.matching(&[Arc::clone(&in_jvm)], thread, "condition variable");
            assert_eq!(rule.as_deref(), Some("JVM thread"), "{comm} of JDK 8");
            assert_eq!(rules.matching(&[native("main")], thread, "condition variable"), None);
        }
        let after_main =
            [native("jni_DestroyJavaVM"), native("Threads::destroy_vm"), native("Monitor::wait")];
        assert_eq!(of(&after_main, "condition variable").as_deref(), Some("JVM thread"));
        let master = [native("main"), native("ngx_master_process_cycle")];
        assert_eq!(of(&master, "signal").as_deref(), Some("nginx"));
        assert_eq!(of(&master, "disk read"), None);
        assert_eq!(
            of(&[native("main"), native("io_uring_enter")], "io_uring"),
            None,
            "its own input and output"
        );
    }

    #[test]
    fn a_java_thread_that_waits_for_an_answer_is_not_idle() {
        let java = |name: &str| Arc::new(Frame::named(Kind::Java, name));
        let kernel = Arc::new(Frame::named(Kind::Kernel, "do_epoll_wait"));
        let rules = IdleRules::default();
        let thread =
            WaitingThread { comm: b"main", is_kernel: false, state: ThreadState::Sleeping, lock: None };
        let of = |frames: &[Arc<Frame>]| rules.matching(frames, thread, "event loop");
        assert_eq!(of(&[java("com.example.Client.call"), Arc::clone(&kernel)]), None);
        assert_eq!(of(&[java("sun.nio.ch.EPoll.wait"), kernel]).as_deref(), Some("event loop"));
    }
}
