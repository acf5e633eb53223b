//! What a wait means: its reason in words, from functions of the kernel and of user space, and whether the thread was only
//! idle.
//!
//! Depends on names of frames only, so that tests need no kernel.

pub mod filter;
pub mod idle;
mod lock;
mod pattern;
pub mod reason;
mod thread;

use std::sync::Arc;

use crate::profile::{Frame, Kind};
use crate::sample::ThreadState;

pub use filter::WaitFilter;
pub use idle::IdleRules;
pub use lock::LockView;
pub use thread::WaitingThread;

/// How a stack of a wait is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitView {
    /// How many frames at the leaf are left out: they are the scheduler's and the profiler's own.
    pub cut: usize,
    /// Why the thread had no CPU, for tables and for the leaf.
    pub reason: Arc<str>,
    /// The rule by which the thread was only idle.
    pub idle: Option<Arc<str>>,
    /// The Java lock for which the thread waited.
    pub lock: Option<LockView>,
    /// The Java method that waited for the lock.
    pub waiting_method: Option<Arc<str>>,
}

impl WaitView {
    /// The view of a stack, root first.
    #[must_use]
    pub fn of(frames: &[Arc<Frame>], thread: WaitingThread<'_>, rules: &IdleRules) -> WaitView {
        let cut = reason::scheduler_frames(frames);
        let rest = &frames[..frames.len() - cut];
        let reason = reason::wait_reason(rest, thread);
        // A thread that could run, or is blocked by a disk or a lock of the kernel, is not idle, wherever it stands.
        let may_be_idle = thread.state == ThreadState::Sleeping;
        let idle = if may_be_idle { rules.matching(rest, thread, &reason) } else { None };
        let lock = thread.lock.and_then(|lock| lock::view_of(lock, &reason));
        let waiting_method = lock.as_ref().and_then(|_| lock::waiting_method(rest));
        WaitView { cut, reason, idle, lock, waiting_method }
    }

    /// The frame that stands for the wait at the leaf.
    #[must_use]
    pub fn leaf(&self, state: ThreadState) -> Frame {
        let (kind, name) = match (&self.idle, state) {
            (Some(rule), _) => (Kind::Wait, format!("[idle: {rule}]")),
            (None, ThreadState::Runnable | ThreadState::Throttled) => {
                (Kind::Queued, format!("[{}]", state.name()))
            }
            (None, ThreadState::Blocked) => (Kind::Blocked, format!("[blocked: {}]", self.reason)),
            (None, _) => (
                Kind::Wait,
                match &self.lock {
                    Some(lock) => format!("[wait: {} {}]", self.reason, lock.class),
                    None => format!("[wait: {}]", self.reason),
                },
            ),
        };
        Frame::named(kind, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Lock, LockKind, LockOwner};

    fn stack(names: &[&str]) -> Vec<Arc<Frame>> {
        let frame = |name: &&str| {
            let (kind, name) =
                name.strip_prefix("k:").map_or((Kind::Native, *name), |name| (Kind::Kernel, name));
            Arc::new(Frame::named(kind, name))
        };
        names.iter().map(frame).collect()
    }

    fn thread(comm: &[u8], state: ThreadState) -> WaitingThread<'_> {
        WaitingThread { comm, is_kernel: false, state, lock: None }
    }

    #[test]
    fn only_threads_of_the_kernel_are_idle_as_such() {
        let frames = stack(&["k:do_syscall_64", "k:hrtimer_nanosleep", "k:schedule"]);
        let (user, rules) = (thread(b"sleep", ThreadState::Sleeping), IdleRules::default());
        assert_eq!(WaitView::of(&frames, user, &rules).idle, None, "only kernel frames were recorded");
        let kernel = WaitingThread { is_kernel: true, ..user };
        assert_eq!(WaitView::of(&frames, kernel, &rules).idle.as_deref(), Some("kernel thread"));
    }

    #[test]
    fn the_leaf_says_why() {
        let rules = IdleRules::default();
        let futex = stack(&[
            "main",
            "k:__x64_sys_futex",
            "k:futex_do_wait",
            "k:schedule",
            "k:__schedule",
            "k:bpf_prog_1",
        ]);
        let view = WaitView::of(&futex, thread(b"x", ThreadState::Sleeping), &rules);
        assert_eq!((view.cut, &*view.reason), (3, "futex"));
        assert_eq!(&*view.leaf(ThreadState::Sleeping).name, "[wait: futex]");
        let runnable = WaitView::of(&futex, thread(b"x", ThreadState::Runnable), &rules);
        assert_eq!(&*runnable.leaf(ThreadState::Runnable).name, "[runnable]");
        assert_eq!(&*runnable.reason, "CPU");
        let throttled = WaitView::of(&futex, thread(b"x", ThreadState::Throttled), &rules);
        assert_eq!(
            (&*throttled.reason, &*throttled.leaf(ThreadState::Throttled).name),
            ("quota", "[throttled]")
        );
    }

    #[test]
    fn a_futex_is_what_its_user_says() {
        let reason = |user: &[&str]| {
            let names = [user, &["k:futex_do_wait", "k:schedule"]].concat();
            let view =
                WaitView::of(&stack(&names), thread(b"x", ThreadState::Sleeping), &IdleRules::default());
            view.reason.to_string()
        };
        let sleep =
            ["java.lang.Thread.sleep", "JVM_Sleep", "JavaThread::sleep(long)", "pthread_cond_timedwait"];
        assert_eq!(reason(&sleep), "timer");
        assert_eq!(
            reason(&["Shop.buy", "ObjectMonitor::enter(JavaThread*)", "pthread_cond_wait"]),
            "monitor"
        );
        assert_eq!(reason(&["main", "pthread_mutex_lock", "__lll_lock_wait"]), "mutex");
        assert_eq!(reason(&["main"]), "futex");
        let park = "java.util.concurrent.locks.LockSupport.park";
        assert_eq!(reason(&["Shop.buy", park, "Unsafe_Park", "Parker::park", "pthread_cond_wait"]), "park");
        assert_eq!(reason(&["Shop.buy", park, "pthread_cond_wait"]), "park", "no symbols of the JVM");
        assert_eq!(reason(&["Shop.buy", park, "Unsafe_Park", "SafepointSynchronize::block"]), "safepoint");
        let compiles =
            ["InterpreterRuntime::frequency_counter_overflow", "CompileBroker::compile_method_base"];
        assert_eq!(
            reason(&[&["Shop.buy", park], &compiles[..], &["pthread_mutex_lock"]].concat()),
            "JVM lock"
        );
    }

    fn lock(kind: LockKind, class: &str) -> Lock {
        let owner = Some(LockOwner::Waker(7));
        Lock { kind, class: 1, owner, class_name: Some(class.into()), owner_name: Some("owner".into()) }
    }

    /// The leaf and the owner of a wait for a futex with these functions.
    fn of_lock(user: &[&str], lock: &Lock) -> (String, Option<String>) {
        let names = [user, &["k:futex_do_wait", "k:schedule"]].concat();
        let thread = WaitingThread { lock: Some(lock), ..thread(b"x", ThreadState::Sleeping) };
        let view = WaitView::of(&stack(&names), thread, &IdleRules::default());
        let owner = view.lock.as_ref().and_then(|lock| lock.owner.as_ref().map(ToString::to_string));
        (view.leaf(ThreadState::Sleeping).name.to_string(), owner)
    }

    #[test]
    fn a_lock_has_its_class_and_perhaps_an_owner() {
        let owner = || Some("owner".to_owned());
        let monitor = lock(LockKind::Monitor, "a.Cache");
        let enter = ["A.b", "ObjectMonitor::enter", "pthread_cond_wait"];
        assert_eq!(of_lock(&enter, &monitor), ("[wait: monitor a.Cache]".to_owned(), owner()));
        let park = ["A.b", "java.util.concurrent.locks.LockSupport.park", "pthread_cond_wait"];
        let fair = "java.util.concurrent.locks.ReentrantLock$FairSync";
        assert_eq!(of_lock(&park, &lock(LockKind::Park, fair)), (format!("[wait: park {fair}]"), owner()));
        let condition = "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject";
        assert_eq!(of_lock(&park, &lock(LockKind::Park, condition)).1, None, "who signals owns nothing");
        let wait = ["A.b", "java.lang.Object.wait", "pthread_cond_wait"];
        let waiting = lock(LockKind::Wait, "int[]");
        assert_eq!(of_lock(&wait, &waiting), ("[wait: Object.wait int[]]".to_owned(), None));
    }

    #[test]
    fn a_lock_is_waited_for_by_the_method_outside_of_the_jdk() {
        let method = |java: &[&str], kind: LockKind| {
            let java = java.iter().map(|name| Arc::new(Frame::named(Kind::Java, *name)));
            let frames: Vec<_> = java.chain(stack(&["k:futex_do_wait", "k:schedule"])).collect();
            let lock = lock(kind, "a.Cache");
            let thread = WaitingThread { lock: Some(&lock), ..thread(b"x", ThreadState::Sleeping) };
            WaitView::of(&frames, thread, &IdleRules::default()).waiting_method.as_deref().map(str::to_owned)
        };
        let park = ["java.util.concurrent.locks.LockSupport.park", "jdk.internal.misc.Unsafe.park"];
        let queue = ["java.lang.Thread.run", "a.Worker.run", "java.util.concurrent.ArrayBlockingQueue.take"];
        assert_eq!(method(&[&queue[..], &park].concat(), LockKind::Park).as_deref(), Some("a.Worker.run"));
        assert_eq!(method(&park, LockKind::Park).as_deref(), Some("jdk.internal.misc.Unsafe.park"));
        let wait = ["a.Worker.run", "java.lang.Object.wait", "java.lang.Object.wait0"];
        assert_eq!(method(&wait, LockKind::Wait).as_deref(), Some("a.Worker.run"));
        assert_eq!(method(&["java.lang.Thread.sleep"], LockKind::Monitor), None, "not a wait for the lock");
    }

    #[test]
    fn a_wait_is_only_for_a_lock_of_its_own_kind() {
        let monitor = lock(LockKind::Monitor, "a.Cache");
        let leaf = |user: &[&str], lock: &Lock| of_lock(user, lock).0;
        assert_eq!(leaf(&["A.b", "pthread_cond_wait"], &monitor), "[wait: monitor a.Cache]", "no symbols");
        assert_eq!(leaf(&["java.lang.Object.wait"], &monitor), "[wait: monitor a.Cache]", "notified");
        assert_eq!(leaf(&["java.lang.Thread.sleep"], &monitor), "[wait: timer]");
        let compiles =
            ["java.util.concurrent.locks.LockSupport.park", "InterpreterRuntime::frequency_counter_overflow"];
        assert_eq!(leaf(&compiles, &lock(LockKind::Park, "a.Lock")), "[wait: JVM lock]");
        let parked = lock(LockKind::Park, "a.Lock");
        assert_eq!(leaf(&["ObjectMonitor::enter"], &parked), "[wait: monitor]");
        let nameless = Lock { class_name: None, ..monitor };
        assert_eq!(leaf(&["ObjectMonitor::enter"], &nameless), "[wait: monitor]");
        assert_eq!(leaf(&["pthread_cond_wait"], &nameless), "[wait: condition variable]");
    }

    #[test]
    fn idle_threads_have_their_rule() {
        let rules = IdleRules::new(&["my.Pool.take".to_owned()]);
        let epoll = stack(&["main", "epoll_wait", "k:do_epoll_wait", "k:ep_poll", "k:schedule"]);
        let view = WaitView::of(&epoll, thread(b"nginx", ThreadState::Sleeping), &rules);
        assert_eq!(&*view.leaf(ThreadState::Sleeping).name, "[idle: event loop]");
        let own = stack(&["main", "my.Pool.take", "k:futex_do_wait", "k:schedule"]);
        let view = WaitView::of(&own, thread(b"x", ThreadState::Sleeping), &rules);
        assert_eq!(view.idle.as_deref(), Some("my.Pool.take"));
        let view = WaitView::of(&own, thread(b"x", ThreadState::Runnable), &rules);
        assert_eq!(view.idle, None, "it wants a CPU");
    }
}
