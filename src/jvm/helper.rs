//! The helper: a child process that handles one request about one JVM and exits. The process opens what the JVM
//! controls (memory, files, attach socket), and may hang or be killed at any point.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use jvm_symbols_log::header::{LogKind, event};
use rustix::io::dup;
use rustix::process::{Resource, Rlimit, getppid, setrlimit};

use super::agent_file::{loaded_name, remove_leftovers, remove_named, with_agent};
use super::allocation_samples::{NoAllocationSamples, agent_of, class_in_mirror};
use super::deadline::Deadline;
use super::ids::{as_target, die_with_parent};
use super::inspection::{Inspection, inspect, vendor_of};
use super::listen::{ListenerBehaviour, connection, remove_stale_trigger};
use super::log_file::{LogFile, logs_of};
use super::memory::ProcessMemory;
use super::message::{AttachOrder, HelperReply, HelperRequest, HelperTask, LogFacts, receive, send};
use super::prerequisites::{AttachPreconditions, has_agent_at_start, predict_refusal};
use super::protocol::{exchange, load_request, parse_reply};
use super::refusal::Refusal;
use super::status::{monotonic_offset, runs_java};
use super::target::{AttachTarget, entry};
use super::vm::{StubBlobs, VmLayout, blobs, lock_fields, read_unwind_info};
use crate::process::cgroup::CgroupMembership;
use crate::process::channel::{Channel, Received};
use crate::process::hierarchies::Hierarchies;
use crate::process::path::bytes_path;
use crate::unwind::HotSpotUnwindInfo;

/// The hidden argument that makes the program a helper.
pub const ARGUMENT: &str = "__jvm-helper";

/// A younger JVM may still be starting: its tables are not final before it runs Java (`runs_java`).
const START_TIME: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(10);
/// Longest `release` file that is read, bytes.
const MAX_RELEASE: u64 = 64 << 10;
/// How many levels above `libjvm.so` the runtime's top directory is: `lib/server`, or `jre/lib/amd64/server` on JDK 8.
const LEVELS_ABOVE: std::ops::RangeInclusive<usize> = 3..=5;

/// The helper's entry: one request from the socket that is its standard input, one reply. Returns the exit code.
#[must_use]
pub fn main() -> i32 {
    // First of all: the parent may have exited already.
    let Some(parent) = getppid().map(|p| p.as_raw_nonzero().get().unsigned_abs()) else { return 1 };
    if !die_with_parent(parent) || rustix::thread::set_no_new_privs(true).is_err() {
        return 1;
    }
    for (resource, most) in [(Resource::Core, 0), (Resource::Nofile, 128), (Resource::Fsize, 16 << 20)] {
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
    let Ok(socket) = dup(rustix::stdio::stdin()) else { return 1 };
    let channel = Channel(socket);
    let Ok(Received { message: request, .. }) = receive::<HelperRequest>(&channel, None) else { return 1 };
    let mut answer = HelperReply::default();
    let files = run(&request, &mut answer).unwrap_or_else(|refusal| {
        answer.refusal = Some(refusal);
        Vec::new()
    });
    let descriptors: Vec<BorrowedFd<'_>> = files.iter().map(File::as_fd).collect();
    i32::from(send(&channel, &answer, &descriptors).is_err())
}

/// Does the task. Returns the files whose descriptors go with the answer.
fn run(request: &HelperRequest, answer: &mut HelperReply) -> Result<Vec<File>, Refusal> {
    let deadline = Deadline::after(request.timeout, rustix::stdio::stdin());
    let target = AttachTarget::open(request.tgid, request.start_ticks, request.mapped)?;
    let vendor = |inspection: &mut Inspection| inspection.vendor = vendor_beside(&target, request);
    match &request.task {
        HelperTask::Inspect => {
            let mut inspection =
                inspect(&target.memory()?, request.base).map_err(|_| refusal_of_unreadable(&target))?;
            vendor(&mut inspection);
            answer.has_agent_at_start = has_agent_at_start(&target).unwrap_or(false);
            answer.foreseen = predict_refusal(&target, request.parent, &inspection, deadline).err();
            // The reply has the layout only, which is small.
            answer.layout =
                VmLayout::read(&target.memory()?, request.base).ok().filter(|_| !inspection.is_zero);
            answer.inspection = Some(inspection);
            Ok(Vec::new())
        }
        HelperTask::Describe => {
            let DescribedMemory { memory, layout, unwind_info } =
                wait_for_description(&target, request, deadline)?;
            (answer.layout, answer.unwind_info) = (Some(layout), Some(unwind_info));
            Ok(vec![memory.into_file()])
        }
        HelperTask::Attach(order) => {
            let tmp = target.directory("tmp");
            let mut inspection =
                when_started(&target, request, tmp.as_ref().ok().map(OwnedFd::as_fd), deadline)?;
            vendor(&mut inspection);
            answer.inspection = Some(inspection.clone());
            if inspection.is_zero {
                return Err(Refusal::ZeroVm);
            }
            let (found, mut facts) = attach(&target, request, order, &inspection, deadline)?;
            let agent = order.alloc_interval.map(|_| agent_that_samples(&target, &found, &inspection));
            facts.allocations = agent.as_ref().map(|agent| agent.as_ref().map(|_| ()).map_err(|why| *why));
            answer.log = Some(facts);
            Ok([Some(found.file), agent.and_then(Result::ok)].into_iter().flatten().collect())
        }
        HelperTask::Open => {
            let InspectedMemory { memory, mut inspection, layout } = open_memory(&target, request, deadline)?;
            vendor(&mut inspection);
            let (flags, is_zero) = (inspection.flags, inspection.is_zero);
            let frame_pointers = flags.keeps_frame_pointers();
            answer.inspection = Some(inspection);
            if is_zero {
                return Err(Refusal::ZeroVm);
            }
            let layout = layout?;
            let locks = lock_fields(&memory, &layout, &flags).ok();
            let described = read_unwind_info(&memory, &layout);
            answer.unwind_info =
                described.map(|unwind_info| HotSpotUnwindInfo { frame_pointers, locks, ..unwind_info }).ok();
            answer.layout = Some(layout.with_flags(&flags));
            Ok(vec![memory.into_file()])
        }
        HelperTask::Clean(name) => {
            if let Ok(tmp) = target.directory("tmp") {
                remove_named(&target, tmp.as_fd(), name)?;
                remove_stale_trigger(&target, tmp.as_fd())?;
            }
            Ok(Vec::new())
        }
    }
}

/// Reads the tables of a JVM once they are final: it runs Java, or its socket exists. A JVM that is young at first gets
/// all the time up to the deadline: with little CPU it starts slowly.
fn when_started(
    target: &AttachTarget,
    request: &HelperRequest,
    tmp: Option<BorrowedFd<'_>>,
    deadline: Deadline,
) -> Result<Inspection, Refusal> {
    let socket = format!(".java_pid{}", target.ns_pid);
    let young = target.age() < START_TIME;
    loop {
        let listens = tmp.is_some_and(|tmp| entry(tmp, &socket).is_ok_and(|found| found.is_some()));
        let started = listens || runs_java(&target.proc_file("status")?);
        let inspection = inspect(&target.memory()?, request.base);
        match inspection {
            Ok(inspection) if started || !young => return Ok(inspection),
            Err(_) if target.age() >= START_TIME => return Err(refusal_of_unreadable(target)),
            _ if target.is_stopped()? => return Err(Refusal::Stopped),
            _ => match deadline.pause(target.pidfd(), PAUSE) {
                Err(Refusal::TimedOut) => return Err(Refusal::SignalNotCaught),
                other => other?,
            },
        }
    }
}

/// A JVM's memory, and how to unwind the JVM's stacks.
struct DescribedMemory {
    memory: ProcessMemory,
    layout: VmLayout,
    unwind_info: HotSpotUnwindInfo,
}

/// Reads how to unwind the stacks of a JVM, as soon as its tables say that. Code heaps, interpreter and stubs are made
/// long before attaching is possible, but after the libraries are mapped.
fn wait_for_description(
    target: &AttachTarget,
    request: &HelperRequest,
    deadline: Deadline,
) -> Result<DescribedMemory, Refusal> {
    let memory = target.memory()?;
    // With little CPU a JVM starts slowly: one whose start was seen is waited for until attaching would be possible.
    let begun = request.mapped.is_some();
    let mut early: Option<VmLayout> = None;
    loop {
        let started = match begun {
            true => runs_java(&target.proc_file("status")?),
            false => target.age() >= START_TIME,
        };
        // Reading everything costs more than checking whether the interpreter exists.
        if started || early.as_ref().is_none_or(|layout| layout.has_interpreter(&memory)) {
            let read = VmLayout::read(&memory, request.base).ok();
            early = match read.map(|layout| (read_unwind_info(&memory, &layout), layout)) {
                Some((Ok(unwind_info), layout)) => {
                    let inspection = inspect(&memory, request.base).unwrap_or_default();
                    if inspection.is_zero {
                        return Err(Refusal::ZeroVm);
                    }
                    let frame_pointers = inspection.flags.keeps_frame_pointers();
                    let locks = lock_fields(&memory, &layout, &inspection.flags).ok();
                    let layout = layout.with_flags(&inspection.flags);
                    let unwind_info = HotSpotUnwindInfo { frame_pointers, locks, ..unwind_info };
                    return Ok(DescribedMemory { memory, layout, unwind_info });
                }
                unfinished => unfinished.map(|(_, layout)| layout),
            };
        }
        if started {
            return Err(match inspect(&memory, request.base) {
                Ok(inspection) if inspection.is_zero => Refusal::ZeroVm,
                _ if target.is_gone() => Refusal::Exited,
                _ => Refusal::LayoutUnknown,
            });
        }
        if target.is_stopped()? {
            return Err(Refusal::Stopped);
        }
        deadline.pause(target.pidfd(), PAUSE)?;
    }
}

/// A JVM's memory, and the JVM's tables in it.
struct InspectedMemory {
    memory: ProcessMemory,
    inspection: Inspection,
    layout: Result<VmLayout, Refusal>,
}

/// Opens a JVM's memory and reads its tables, once its flags are final (with `-Xrs`, once it is old enough). Its
/// libraries are mapped before that.
fn open_memory(
    target: &AttachTarget,
    request: &HelperRequest,
    deadline: Deadline,
) -> Result<InspectedMemory, Refusal> {
    loop {
        let old = target.age() >= START_TIME;
        if old || runs_java(&target.proc_file("status")?) {
            let memory = target.memory()?;
            let layout = VmLayout::read(&memory, request.base).map_err(|_| Refusal::LayoutUnknown);
            match inspect(&memory, request.base) {
                Ok(inspection) => return Ok(InspectedMemory { memory, inspection, layout }),
                Err(_) if old => return Err(refusal_of_unreadable(target)),
                Err(_) => {}
            }
        }
        deadline.pause(target.pidfd(), PAUSE)?;
    }
}

fn refusal_of_unreadable(target: &AttachTarget) -> Refusal {
    if target.is_gone() { Refusal::Exited } else { Refusal::NotHotSpot }
}

fn attach(
    target: &AttachTarget,
    request: &HelperRequest,
    order: &AttachOrder,
    inspection: &Inspection,
    deadline: Deadline,
) -> Result<(LogFile, LogFacts), Refusal> {
    let (parent, base) = (request.parent, request.base);
    let clock_offset = target.proc_file("timens_offsets").map_or(0, |text| monotonic_offset(&text));
    let facts = |found: &LogFile, blobs| LogFacts {
        at_start: found.header.kind == LogKind::Start,
        started: found.header.started,
        clock_offset,
        blobs,
        allocations: None,
    };
    if let Some(found) = logs_of(target)?.into_iter().find(|log| log.header.kind == LogKind::Start) {
        let facts = facts(&found, StubBlobs::default());
        return Ok((found, facts));
    }
    let AttachPreconditions { tmp, stubs } = AttachPreconditions::check(target, inspection, order.force)?;
    let order = &AttachOrder { cap: cap(target, order.cap), ..order.clone() };
    remove_leftovers(target, tmp.as_fd())?;
    let habits = ListenerBehaviour::of(inspection);
    loop {
        let socket = connection(target, &tmp, parent, habits, deadline)?;
        // The JVM listens: the trigger is not needed any more.
        remove_stale_trigger(target, tmp.as_fd())?;
        load(target, request, &tmp, &socket, order, stubs, deadline)?;
        match logs_of(target)?.into_iter().find(|log| log.header.nonce == order.nonce) {
            Some(found) => {
                // Code that the log may not report is read from the JVM's memory. If that fails, some frames have no
                // name.
                let unseen = || target.memory().ok().and_then(|memory| blobs(&memory, base).ok());
                let blobs = if stubs { None } else { unseen() };
                let facts = facts(&found, blobs.unwrap_or_default());
                return Ok((found, facts));
            }
            // The JVM listens before its tool interface is ready.
            None if target.age() < START_TIME => deadline.pause(target.pidfd(), PAUSE)?,
            None => return Err(Refusal::NoLog),
        }
    }
}

/// Most unread bytes of the log: its pages count against the memory limits of the JVM's cgroups. The cap is at most
/// `most`, a fiftieth of the tightest limit, and a quarter of the memory left.
fn cap(target: &AttachTarget, most: u64) -> u64 {
    let cgroups = target.proc_file("cgroup").unwrap_or_default();
    let room = Hierarchies::mounted().memory(&CgroupMembership::parse(&cgroups).absolute());
    room.map_or(most, |room| most.min(room.limit / 50).min(room.left / 4))
}

fn load(
    target: &AttachTarget,
    request: &HelperRequest,
    tmp: &OwnedFd,
    socket: &OwnedFd,
    order: &AttachOrder,
    stubs: bool,
    deadline: Deadline,
) -> Result<(), Refusal> {
    // dlopen does not load a library a second time if it knows this very path.
    let is_free = |name: &String| entry(tmp.as_fd(), name).is_ok_and(|there| there.is_none());
    let loaded = loaded_name(target.maps()?).filter(is_free);
    let name = loaded.unwrap_or_else(|| order.file_name.clone());
    let nonce: String = order.nonce.iter().map(|b| format!("{b:02x}")).collect();
    let path = format!("/tmp/{name}");
    let (lease, cap, stub) = (order.lease_seconds, order.cap, u8::from(stubs));
    let mut options = format!("nonce={nonce},lease={lease},cap={cap},path={path},stubs={stub}");
    let class = order.alloc_interval.and_then(|_| class_in_mirror(&target.memory().ok()?, request.base));
    if let Some((interval, class)) = order.alloc_interval.zip(class) {
        options += &format!(",alloc={interval},klass={class}");
    }
    let load = load_request(&path, &options)?;
    let ask = || parse_reply(&exchange(target, socket, &load, deadline)?);
    match with_agent(target, tmp, &name, request.parent, ask) {
        Err(Refusal::TimedOut) if target.is_stopped()? => Err(Refusal::Stopped),
        other => other,
    }
}

/// The file of the agent that samples the JVM's allocations, if the agent does so for this log.
fn agent_that_samples(
    target: &AttachTarget,
    log: &LogFile,
    inspection: &Inspection,
) -> Result<File, NoAllocationSamples> {
    if log.header.kind == LogKind::Start {
        return Err(NoAllocationSamples::AtStart);
    }
    if log.header.counters.events & event::ALLOCATION == 0 {
        return Err(NoAllocationSamples::of_version(inspection.version));
    }
    agent_of(target, &log.header.path).ok_or(NoAllocationSamples::Unopened)
}

/// The JVM's vendor by the `release` file of its runtime; read as the target's user.
fn vendor_beside(target: &AttachTarget, request: &HelperRequest) -> String {
    let read = || {
        let mut bytes = Vec::new();
        let above = |level| bytes_path(&request.libjvm).ancestors().nth(level);
        for top in LEVELS_ABOVE.filter_map(above) {
            if let Ok(file) = target.regular_file(&top.join("release")) {
                let _ = File::from(file).take(MAX_RELEASE).read_to_end(&mut bytes);
                break;
            }
        }
        Ok(vendor_of(&bytes))
    };
    as_target(target.ids(), request.parent, read).unwrap_or_default()
}
