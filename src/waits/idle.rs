//! Rules that say which threads only wait for work. Their time is summed by rule and left out of pictures.

use std::sync::Arc;

use super::pattern::{matches, without_parameters};
use super::thread::WaitingThread;
use crate::profile::Frame;
use crate::profile::filter::Glob;
use crate::profile::kind::Origin;

/// A rule, and functions of which one must be on the stack. A name that ends with `*` is a prefix.
type Rule = (&'static str, &'static [&'static str]);

/// Java's own waits for work.
#[rustfmt::skip]
const JAVA: &[Rule] = &[
    ("thread pool", &["java.util.concurrent.ThreadPoolExecutor.getTask", "java.util.concurrent.SynchronousQueue.take", "io.netty.util.concurrent.SingleThreadEventExecutor.takeTask", "org.eclipse.jetty.util.thread.QueuedThreadPool*idleJobPoll", "org.apache.tomcat.util.threads.TaskQueue.take", "org.apache.tomcat.util.threads.TaskQueue.poll"]),
    ("ForkJoinPool", &["java.util.concurrent.ForkJoinPool.awaitWork"]),
    ("Timer", &["java.util.TimerThread.mainLoop"]),
    ("reference handler", &["java.lang.ref.Reference.waitForReferencePendingList", "java.lang.ref.Reference.tryHandlePending", "java.lang.ref.Reference$ReferenceHandler.run", "java.lang.ref.Finalizer$FinalizerThread.run", "jdk.internal.ref.CleanerImpl.run", "java.lang.ref.ReferenceQueue.remove"]),
    ("event loop", &["sun.nio.ch.EPoll.wait", "sun.nio.ch.EPollArrayWrapper.epollWait", "sun.nio.ch.KQueue.poll", "sun.nio.ch.Poller*", "sun.nio.ch.SelectorImpl.select", "io.netty.channel.epoll.Native.epollWait*", "io.netty.channel.uring.*", "io.netty.channel.kqueue.Native*"]),
    ("accept", &["sun.nio.ch.Net.accept", "sun.nio.ch.ServerSocketChannelImpl.accept", "java.net.ServerSocket.accept"]),
    ("virtual thread scheduler", &["java.lang.VirtualThread.unblocker*", "java.util.concurrent.DelayScheduler*"]),
];

/// Waits for work of native runtimes and servers, by functions.
#[rustfmt::skip]
const NATIVE: &[Rule] = &[
    ("JVM thread", &["os::signal_wait", "AttachListener::dequeue", "GangWorker::loop", "AbstractGangWorker::loop", "WorkerThread::run", "VMThread::loop", "VMThread::wait_until_executed", "VMThread::inner_execute", "WatcherThread::sleep", "CompileQueue::get", "ServiceThread::service_thread_entry", "MonitorDeflationThread::monitor_deflation_thread_entry", "NotificationThread::notification_thread_entry", "ConcurrentGCThread::run", "G1ServiceThread::wait_to_run", "G1ConcurrentRefineThread::wait_for_completed_buffers", "JfrThreadSampler::run"]),
    ("Go scheduler", &["runtime.findRunnable", "runtime.findrunnable", "runtime.stopm", "runtime.sysmon", "runtime.mPark", "runtime.templateThread", "runtime.gcBgMarkWorker"]),
    ("Tokio worker", &["tokio::runtime::scheduler::multi_thread::worker::Context::park*", "tokio::runtime::blocking::pool::Inner::run", "tokio::runtime::park::*", "tokio::runtime::scheduler::multi_thread::park::*"]),
    ("Node worker", &["uv__io_poll", "uv__work_execute*", "v8::platform::DelayedTaskQueue*", "node::(anonymous namespace)::PlatformWorkerThread*", "node::PlatformWorkerThread*"]),
    ("PostgreSQL", &["ReadCommand", "SocketBackend", "WalWriterMain", "CheckpointerMain", "BackgroundWriterMain", "AutoVacLauncherMain", "PgArchiverMain", "ApplyLauncherMain", "LogicalLauncherMain", "SysLoggerMain", "IoWorkerMain"]),
    ("event loop", &["g_main_context_iterate*", "g_main_loop_run", "event_base_loop", "ev_run", "ngx_epoll_process_events"]),
];

/// Kernel names (comm) of a JVM's own threads, for a libjvm without symbols. A name that ends with `*` is a prefix.
const JVM_THREADS: &[&str] = &[
    "VM Thread",
    "VM Periodic Tas*",
    "GC Thread#*",
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
const REASONS: &[&str] = &["event loop", "accept", "kernel worker", "kernel thread", "io_uring"];

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
        let rule = by_frames(frames, if is_java { JAVA } else { NATIVE })
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

fn by_frames(frames: &[Arc<Frame>], rules: &[Rule]) -> Option<&'static str> {
    let on_stack =
        |pattern: &&str| frames.iter().any(|frame| matches(pattern, without_parameters(&frame.name)));
    rules.iter().find(|(_, functions)| functions.iter().any(&on_stack)).map(|(rule, _)| *rule)
}

/// A thread that a JVM runs for itself, by its name: only where code of a JVM is on the stack.
fn jvm_thread(frames: &[Arc<Frame>], comm: &[u8]) -> Option<&'static str> {
    let comm = std::str::from_utf8(comm).ok()?;
    let in_jvm = || frames.iter().any(|f| f.module.as_ref().is_some_and(|m| m.base_name() == "libjvm.so"));
    (JVM_THREADS.iter().any(|name| matches(name, comm)) && in_jvm()).then_some("JVM thread")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Kind;
    use crate::sample::ThreadState;

    #[test]
    fn a_java_thread_that_waits_for_an_answer_is_not_idle() {
        let java = |name: &str| Arc::new(Frame::named(Kind::Java, name));
        let kernel = Arc::new(Frame::named(Kind::Kernel, "do_epoll_wait"));
        let rules = IdleRules::default();
        let thread = WaitingThread { comm: b"main", is_kernel: false, state: ThreadState::Sleeping };
        let of = |frames: &[Arc<Frame>]| rules.matching(frames, thread, "event loop");
        assert_eq!(of(&[java("com.example.Client.call"), Arc::clone(&kernel)]), None);
        assert_eq!(of(&[java("sun.nio.ch.EPoll.wait"), kernel]).as_deref(), Some("event loop"));
    }
}
