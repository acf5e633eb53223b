//! Timeouts of calls that another process can hold up.
//!
//! Reading `/proc/PID/maps` waits for the process's memory lock. Such calls run on a thread that is given up when it
//! takes too long. After a limited number of such threads, nothing is tried until one returns. One tenant may hold the
//! locks of many processes, so each tenant has a limit of its own. Other tenants' calls are tried while it is used up.
//!
//! Only time in which the call sleeps counts. A call that waits for a CPU, or that stands still with its whole virtual
//! machine, is not held up by another process.

use std::path::Component;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::thread::gettid;

use super::cgroup::CgroupMembership;
use super::{ProcessRoot, procfs};

/// Timeout of a system call that another process can hold up.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_millis(500);
/// Calls that may hang at once.
pub(super) const MAX_STUCK: usize = 64;
/// Hanging calls, or other hanging things, that one tenant may have.
const MAX_OF_ONE: usize = 8;
/// The number of steps in which a timeout is waited for, and how many timeouts a wait takes at most.
const STEPS: u32 = 10;
const MAX_TIMEOUTS: u32 = 4;
/// Stack of a helper thread, bytes: it parses lines and opens files.
const STACK: usize = 256 << 10;
/// Levels of a cgroup's path that identify a tenant: those of pods and of systemd's units. A tenant that was given a
/// cgroup may make others below it.
const LEVELS: usize = 3;

type BlockingCall = Box<dyn FnOnce() + Send>;

/// Calls `answered` until it returns a value; the argument is the time to wait in that call. Returns `None` when the
/// time for which `counts` returned true reaches `timeout`, or after four times `timeout` in all. `counts` is called
/// once for each step.
pub(crate) fn wait<T>(
    timeout: Duration,
    mut counts: impl FnMut(Duration) -> bool,
    mut answered: impl FnMut(Duration) -> Option<T>,
) -> Option<T> {
    let step = timeout / STEPS;
    let mut counted = 0;
    for _ in 0..STEPS * MAX_TIMEOUTS {
        if let Some(answer) = answered(step) {
            return Some(answer);
        }
        counted += u32::from(counts(step));
        if counted >= STEPS {
            break;
        }
    }
    None
}

/// Whether the task with this directory in `/proc` sleeps, or is gone.
pub(crate) fn sleeps(task: &str) -> bool {
    let stat = procfs::read(&format!("{task}/stat")).unwrap_or_default();
    procfs::parse_stat(&stat).is_none_or(|stat| stat.sleeps())
}

/// The owner of a process, to which calls that hang are charged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tenant(String);

impl Tenant {
    #[cfg(test)]
    pub(super) fn named(name: &str) -> Tenant {
        Tenant(name.to_owned())
    }

    /// The owner of things whose process is unknown.
    pub(crate) fn unknown() -> Tenant {
        Tenant(String::new())
    }

    /// The owner of a process: its cgroup, or its user if no cgroup is used.
    pub(crate) fn of(tgid: u32) -> Tenant {
        let cgroups = CgroupMembership::of(tgid).unwrap_or_default();
        let names = cgroups.path().into_iter().flat_map(std::path::Path::components);
        let names = names.filter(|part| matches!(part, Component::Normal(_))).take(LEVELS);
        let place: Vec<_> = names.map(|part| part.as_os_str().to_string_lossy()).collect();
        if place.is_empty() {
            return ProcessRoot::of(tgid)
                .map_or(Tenant::unknown(), |root| Tenant(format!("user {}", root.uid)));
        }
        Tenant(place.join("/"))
    }
}

/// Calls that were given up, with their tenants.
#[derive(Debug)]
pub(crate) struct HungCalls<C> {
    max_calls: usize,
    calls: Vec<(Tenant, C)>,
}

/// Permission for one call: its timeout, and its tenant. The tenant is `None` if no call hangs, since the tenant was not
/// looked up then.
#[derive(Debug)]
pub(crate) struct CallPermit {
    pub(super) timeout: Duration,
    tenant: Option<Tenant>,
}

impl<C> HungCalls<C> {
    /// No calls hang yet; `max_calls` may hang at once.
    pub(crate) fn at_most(max_calls: usize) -> HungCalls<C> {
        HungCalls { max_calls, calls: Vec::new() }
    }

    /// Admits one more call. The call's own timeout is a part of `timeout`: the more calls of the tenant hang, the
    /// smaller the part, so that all calls of a tenant together cost a few timeouts. `None` if too many calls hang, or
    /// if a hanging call of this tenant matches `same`. `hangs` checks whether a call still hangs.
    pub(crate) fn admit(
        &mut self,
        timeout: Duration,
        tenant: impl FnOnce() -> Tenant,
        mut hangs: impl FnMut(&mut C) -> bool,
        same: impl Fn(&C) -> bool,
    ) -> Option<CallPermit> {
        self.calls.retain_mut(|(_, call)| hangs(call));
        // The tenant matters only if something hangs.
        let tenant = (!self.calls.is_empty()).then(tenant);
        let of_it = || self.calls.iter().filter(|(of, _)| tenant.as_ref() == Some(of));
        let before = of_it().count();
        if before >= MAX_OF_ONE || self.calls.len() >= self.max_calls || of_it().any(|(_, call)| same(call)) {
            return None;
        }
        let timeout = timeout / u32::try_from(1 + before).unwrap_or(u32::MAX);
        Some(CallPermit { timeout, tenant })
    }

    /// Records that the call with this permit hangs.
    pub(super) fn add_permitted(&mut self, permit: CallPermit, tenant: impl FnOnce() -> Tenant, call: C) {
        self.add(permit.tenant.unwrap_or_else(tenant), call);
    }

    /// Records that a call hangs.
    pub(crate) fn add(&mut self, tenant: Tenant, call: C) {
        self.calls.push((tenant, call));
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = &C> {
        self.calls.iter().map(|(_, call)| call)
    }
}

/// Runs calls that may hang.
#[derive(Debug)]
pub struct TimedCalls {
    timeout: Duration,
    worker: Option<CallThread>,
    hanging: HungCalls<HangingCall>,
}

/// A call that was given up.
#[derive(Debug)]
struct HangingCall {
    /// The process that holds the call up.
    tgid: u32,
    back: Arc<AtomicBool>,
}

impl HangingCall {
    fn hangs(&self) -> bool {
        !self.back.load(Ordering::Relaxed)
    }
}

/// The helper thread, which runs calls.
#[derive(Debug)]
struct CallThread {
    jobs: Sender<BlockingCall>,
    /// Thread id; 0 until the thread runs.
    tid: Arc<AtomicI32>,
}

impl CallThread {
    /// The thread's directory in `/proc`; until the thread runs, that of the calling thread, which does not sleep.
    fn task(&self) -> String {
        match self.tid.load(Ordering::Relaxed) {
            0 => "/proc/thread-self".to_owned(),
            tid => format!("/proc/self/task/{tid}"),
        }
    }
}

/// The call did not end in time, or too many earlier calls still hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("took too long")]
pub struct CallTimedOut;

impl TimedCalls {
    /// Calls that may take as long as `timeout`.
    #[must_use]
    pub fn new(timeout: Duration) -> TimedCalls {
        TimedCalls { timeout, worker: None, hanging: HungCalls::at_most(MAX_STUCK) }
    }

    /// Runs `job`, which the process `tgid` may hold up, on the helper thread and waits for it.
    ///
    /// # Errors
    /// [`CallTimedOut`]; the job's result is dropped when it comes.
    pub fn run<T: Send + 'static>(
        &mut self,
        tgid: u32,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallTimedOut> {
        self.run_for(tgid, || Tenant::of(tgid), job)
    }

    fn run_for<T: Send + 'static>(
        &mut self,
        tgid: u32,
        tenant: impl Fn() -> Tenant,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallTimedOut> {
        let same = |held: &HangingCall| held.tgid == tgid;
        let permit =
            self.hanging.admit(self.timeout, &tenant, |held| held.hangs(), same).ok_or(CallTimedOut)?;
        let (answer, answered) = sync_channel(1);
        let job: BlockingCall = Box::new(move || drop(answer.send(job())));
        if self.worker.is_none() {
            self.worker = Some(start_worker()?);
        }
        let Some(worker) = &self.worker else { return Err(CallTimedOut) };
        let _ = worker.jobs.send(job);
        if let Some(result) =
            wait(permit.timeout, |_| sleeps(&worker.task()), |time| answered.recv_timeout(time).ok())
        {
            return Ok(result);
        }
        let place = procfs::read(&format!("{}/wchan", worker.task())).unwrap_or_default();
        log::info!("processes: process {tgid} blocks a call in {}", String::from_utf8_lossy(&place));
        // The thread is left alone: it ends when its job has returned and its queue is closed.
        let back = Arc::new(AtomicBool::new(false));
        self.hanging.add_permitted(permit, tenant, HangingCall { tgid, back: Arc::clone(&back) });
        if let Some(worker) = self.worker.take() {
            let _ = worker.jobs.send(Box::new(move || back.store(true, Ordering::Relaxed)));
        }
        Err(CallTimedOut)
    }

    /// Number of calls that hang now.
    #[must_use]
    pub fn stuck(&self) -> usize {
        self.hanging.calls().filter(|held| held.hangs()).count()
    }
}

fn start_worker() -> Result<CallThread, CallTimedOut> {
    let (jobs, queue) = channel::<BlockingCall>();
    let tid = Arc::new(AtomicI32::new(0));
    let shared_tid = Arc::clone(&tid);
    let run = move || {
        shared_tid.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        queue.into_iter().for_each(|job| job());
    };
    thread::Builder::new()
        .name("jbpf-patience".into())
        .stack_size(STACK)
        .spawn(run)
        .map_err(|_| CallTimedOut)?;
    Ok(CallThread { jobs, tid })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that holds up nothing.
    const OTHER: u32 = 1 << 23;

    fn tenant(name: &str) -> impl Fn() -> Tenant {
        move || Tenant::named(name)
    }

    /// Makes one call for each of these tenants. Each call hangs until its sender is dropped.
    fn hang(timed_calls: &mut TimedCalls, names: &[String]) -> Vec<Sender<()>> {
        let mut tgid = 0;
        let call = |name: &String| {
            let (release, held) = channel::<()>();
            tgid += 1;
            let out = timed_calls.run_for(tgid, tenant(name), move || held.recv().is_ok());
            assert_eq!(out, Err(CallTimedOut));
            release
        };
        names.iter().map(call).collect()
    }

    fn until_all_are_back(timed_calls: &TimedCalls) {
        while timed_calls.stuck() > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn a_stuck_call_is_given_up_and_the_next_one_runs() {
        let mut timed_calls = TimedCalls::new(Duration::from_millis(20));
        let held = hang(&mut timed_calls, &["a".to_owned()]);
        assert_eq!(timed_calls.stuck(), 1);
        timed_calls.timeout = Duration::from_secs(60);
        assert_eq!(timed_calls.run(std::process::id(), || 7), Ok(7));
        drop(held);
        until_all_are_back(&timed_calls);
    }

    #[test]
    fn a_call_that_does_not_sleep_is_not_given_up_at_once() {
        let mut timed_calls = TimedCalls::new(Duration::from_millis(200));
        let work = || {
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_millis(300) {}
            7
        };
        assert_eq!(timed_calls.run(std::process::id(), work), Ok(7));
    }

    #[test]
    fn what_does_not_count_is_waited_for_four_times_as_long() {
        let parts = |counts: bool, answered: u32| {
            let mut n = 0;
            let answer = |_| {
                n += 1;
                (n == answered).then_some(n)
            };
            wait(Duration::ZERO, |_| counts, answer).ok_or(n)
        };
        assert_eq!(parts(true, 11), Err(10));
        assert_eq!(parts(false, 40), Ok(40));
        assert_eq!(parts(false, 41), Err(40));
    }

    #[test]
    fn a_tenant_whose_calls_hang_costs_others_nothing() {
        let mut timed_calls = TimedCalls::new(Duration::from_millis(1));
        let held = hang(&mut timed_calls, &vec!["hostile".to_owned(); MAX_OF_ONE]);
        timed_calls.timeout = Duration::from_secs(60);
        assert_eq!(timed_calls.run_for(OTHER, tenant("hostile"), || 7), Err(CallTimedOut), "not even begun");
        assert_eq!(timed_calls.run_for(OTHER, tenant("victim"), || 7), Ok(7));
        drop(held);
        until_all_are_back(&timed_calls);
        assert_eq!(timed_calls.run_for(OTHER, tenant("hostile"), || 7), Ok(7));
    }

    #[test]
    fn a_process_holds_up_one_call() {
        let mut timed_calls = TimedCalls::new(Duration::from_millis(1));
        let held = hang(&mut timed_calls, &["a".to_owned()]);
        timed_calls.timeout = Duration::from_secs(60);
        assert_eq!(timed_calls.run_for(1, tenant("a"), || 7), Err(CallTimedOut), "not even begun");
        drop(held);
        until_all_are_back(&timed_calls);
        assert_eq!(timed_calls.run_for(1, tenant("a"), || 7), Ok(7));
    }

    #[test]
    fn threads_that_hang_are_limited() {
        let mut timed_calls = TimedCalls::new(Duration::from_millis(1));
        let names: Vec<String> = (0..MAX_STUCK).map(|nr| (nr % (MAX_STUCK / 4)).to_string()).collect();
        let held = hang(&mut timed_calls, &names);
        timed_calls.timeout = Duration::from_secs(60);
        assert_eq!(
            timed_calls.run_for(OTHER, tenant("another"), || 7),
            Err(CallTimedOut),
            "as many hang as may"
        );
        drop(held);
        until_all_are_back(&timed_calls);
        assert_eq!(timed_calls.run_for(OTHER, tenant("another"), || 7), Ok(7));
    }

    #[test]
    fn processes_of_one_cgroup_are_one_tenants() {
        assert_eq!(Tenant::of(std::process::id()), Tenant::of(std::process::id()));
        assert_eq!(Tenant::of(u32::MAX), Tenant::unknown());
    }
}
