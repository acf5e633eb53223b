//! `perf_event_open` and the calls on its descriptors, which need `unsafe`.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use perf_event_open_sys as sys;
use rustix::io::Errno;

use super::denied_syscall::DeniedSyscall;
use crate::sample::Event;
use crate::sample::counter::{Counter, CounterClass};
use crate::sample::dynamic_event::EventOrigin;

/// Whether opening an event failed because its CPU is offline.
pub fn is_offline(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NODEV)
}

/// Whether opening an event failed because the kernel or the processor does not have it, or cannot sample it.
pub fn is_unknown(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::INVAL))
}

/// Whether this host counts an event. An event that may not be opened counts as one that it has.
#[must_use]
pub fn is_counted(event: Event) -> bool {
    let Some(mut attr) = attributes(event, event.usual_period()) else { return false };
    // Of this thread, which needs the least permissions; events of the kernel's own code need more.
    attr.set_exclude_kernel(1);
    !open(&mut attr, 0, -1).is_err_and(|error| is_unknown(&error))
}

/// Opens an event for every task (`pid` -1) or one task, on one CPU. The descriptor is closed on exec.
///
/// # Errors
/// The kernel's error: `ENODEV` for a CPU that [`is_offline`]; [`DeniedSyscall`] if this host denies the call to this
/// process.
pub fn open(attr: &mut sys::bindings::perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let flags = libc_flag(sys::bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` lives through the call and has its own size; the kernel only reads it and, on E2BIG, writes it.
    let fd = unsafe { sys::perf_event_open(attr, pid, cpu, -1, flags) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        // EOPNOTSUPP and ENOSYS are of one kind: an event that cannot be sampled, and a call that is denied.
        return Err(if is_unknown(&error) { error } else { DeniedSyscall::of("perf_event_open", error) });
    }
    // SAFETY: the kernel has just created this descriptor for us; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens the event of a uprobe at an offset of a file. The kernel runs a program of the event on all CPUs, in all
/// processes or only in the process of `thread`, in all its threads; other processes then have no breakpoint. The event
/// stays with the process when that executes another program, but not after the end of `thread`: the kernel compares the
/// memory of both. `kind`: the kernel's number for uprobes. The call reads the instruction from the file.
///
/// # Errors
/// The kernel's error.
pub fn open_uprobe(kind: u32, path: &CStr, offset: u64, thread: Option<u32>) -> io::Result<OwnedFd> {
    let mut attr = sys::bindings::perf_event_attr {
        type_: kind,
        size: u32::try_from(size_of::<sys::bindings::perf_event_attr>()).unwrap_or(0),
        ..Default::default()
    };
    attr.__bindgen_anon_3.uprobe_path = path.as_ptr().addr() as u64;
    attr.__bindgen_anon_4.probe_offset = offset;
    attr.set_disabled(1);
    let (pid, cpu) = match thread {
        Some(thread) => (i32::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?, -1),
        None => (-1, 0),
    };
    // The kernel reads the path during the call, and `path` lives through it.
    open(&mut attr, pid, cpu)
}

fn libc_flag(flag: u32) -> libc::c_ulong {
    libc::c_ulong::from(flag)
}

/// Starts counting and sampling.
///
/// # Errors
/// When `PERF_EVENT_IOC_ENABLE` fails: `event` is not a perf event, or a security module refuses.
pub fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes no pointer.
    check(unsafe { sys::ioctls::ENABLE(event.as_raw_fd(), 0) })
}

/// Stops counting and sampling. When the call returns, no tick of this event runs any more, and all writes of its last
/// tick are visible.
///
/// The kernel takes an event off its CPU by a call on that CPU (kernel/events/core.c: `event_function_call`, which
/// waits for `smp_call_function_single`). A tick runs there in a timer's hard interrupt (`perf_swevent_hrtimer`, on
/// PREEMPT_RT too), which the call cannot interrupt; the call cancels the timer. A CPU that goes offline does the same
/// (`perf_event_exit_cpu`).
///
/// # Errors
/// When `PERF_EVENT_IOC_DISABLE` fails: `event` is not a perf event, or a security module refuses.
pub fn disable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call takes no pointer.
    check(unsafe { sys::ioctls::DISABLE(event.as_raw_fd(), 0) })
}

fn check(rc: i32) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Runs the BPF program `program` at each overflow of `event`. The event keeps the program until it is closed.
///
/// # Errors
/// When `PERF_EVENT_IOC_SET_BPF` fails, for example with `EEXIST` if the event has a program already.
pub fn set_bpf(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let Ok(program) = u32::try_from(program.as_raw_fd()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: the call takes no pointer; the descriptor is alive.
    check(unsafe { sys::ioctls::SET_BPF(event.as_raw_fd(), program) })
}

/// A reading of an event whose read format is [`READ_FORMAT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventReading {
    /// The event's count: nanoseconds for cpu-clock, else a number of events.
    pub count: u64,
    /// How long the event was enabled on an online CPU, in nanoseconds.
    pub enabled_ns: u64,
}

impl EventReading {
    /// The time for which a cpu-clock event should have ticked, in nanoseconds. The count alone is too small: it stands
    /// still while the kernel throttles the event (`perf_event_max_sample_rate`).
    #[must_use]
    pub fn unsampled_ns(self) -> u64 {
        self.count.max(self.enabled_ns)
    }
}

/// The format of [`EventReading`].
pub const READ_FORMAT: u64 = sys::bindings::PERF_FORMAT_TOTAL_TIME_ENABLED as u64;

/// Reads an event's count and time.
///
/// # Errors
/// When `read` fails, with `ENOSPC` if the event's read format has more fields than [`READ_FORMAT`].
pub fn read(event: BorrowedFd<'_>) -> io::Result<EventReading> {
    let mut bytes = [0u8; 16];
    rustix::io::read(event, &mut bytes)?;
    let (count, enabled) = bytes.split_at(8);
    let number = |half: &[u8]| half.try_into().map_or(0, u64::from_ne_bytes);
    Ok(EventReading { count: number(count), enabled_ns: number(enabled) })
}

/// Checks whether an event still counts. The kernel turns an event off for good when its CPU goes offline. If the CPU
/// is back before the next check, only the event's own time shows that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Liveness(u64);

impl Liveness {
    /// Whether the event was enabled for any time since the last call.
    pub fn has_advanced(&mut self, event: BorrowedFd<'_>) -> bool {
        let Ok(EventReading { enabled_ns, .. }) = read(event) else { return false };
        std::mem::replace(&mut self.0, enabled_ns) != enabled_ns
    }
}

/// The attributes of an event with a fixed period, created disabled.
///
/// A period and not a frequency, because then the number of expected samples is known. The kernel would turn a
/// frequency of cpu-clock into a fixed period anyway; for other events it would change the period all the time.
/// `None`: the event is not a perf event.
#[must_use]
pub fn attributes(event: Event, period: u64) -> Option<sys::bindings::perf_event_attr> {
    let software = |config| (sys::bindings::PERF_TYPE_SOFTWARE, u64::from(config));
    let (type_, config) = match event {
        Event::Cpu => software(sys::bindings::PERF_COUNT_SW_CPU_CLOCK),
        Event::PageFaults => software(sys::bindings::PERF_COUNT_SW_PAGE_FAULTS),
        Event::MinorFaults => software(sys::bindings::PERF_COUNT_SW_PAGE_FAULTS_MIN),
        Event::MajorFaults => software(sys::bindings::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
        Event::ContextSwitches => software(sys::bindings::PERF_COUNT_SW_CONTEXT_SWITCHES),
        Event::Wait | Event::Alloc | Event::Rss | Event::NativeAlloc => return None,
        Event::Dynamic(event) => match &event.description().origin {
            EventOrigin::Counter(Counter { class: CounterClass::Software, config }) => {
                (sys::bindings::PERF_TYPE_SOFTWARE, *config)
            }
            EventOrigin::Counter(Counter { class: CounterClass::Hardware, config }) => {
                (sys::bindings::PERF_TYPE_HARDWARE, *config)
            }
            EventOrigin::Counter(Counter { class: CounterClass::Cache, config }) => {
                (sys::bindings::PERF_TYPE_HW_CACHE, *config)
            }
            EventOrigin::Probe(_) | EventOrigin::File => return None,
        },
    };
    let mut attr = sys::bindings::perf_event_attr {
        type_,
        size: u32::try_from(size_of::<sys::bindings::perf_event_attr>()).unwrap_or(0),
        config,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = period;
    attr.read_format = READ_FORMAT;
    attr.set_disabled(1);
    Some(attr)
}
