//! `perf_event_open` and the few calls on its descriptors. A room where `unsafe` is allowed.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use perf_event_open_sys as sys;
use rustix::io::Errno;

use super::denied::Denied;
use crate::sample::Event;

/// Whether an event was refused since its CPU is offline.
pub fn is_offline(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NODEV)
}

/// Opens an event for every task (`pid` -1) or one, on one CPU; the descriptor is closed on exec.
///
/// # Errors
/// What the kernel says: `ENODEV` for a CPU that [`is_offline`]; [`Denied`] if nobody gets an event here.
pub fn open(attr: &mut sys::bindings::perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let flags = libc_flag(sys::bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` lives through the call and states its own size; the kernel only reads and, on E2BIG, writes it.
    let fd = unsafe { sys::perf_event_open(attr, pid, cpu, -1, flags) };
    if fd < 0 {
        return Err(Denied::of("perf_event_open", io::Error::last_os_error()));
    }
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn libc_flag(flag: u32) -> libc::c_ulong {
    libc::c_ulong::from(flag)
}

/// Starts counting and sampling.
///
/// # Errors
/// What the kernel says.
pub fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { sys::ioctls::ENABLE(event.as_raw_fd(), 0) })
}

/// Stops counting and sampling; when it returns, no tick of this event runs any more, and what its last one wrote is seen.
///
/// The kernel takes an event off its CPU by a call on that CPU (kernel/events/core.c: `event_function_call`, which waits
/// for `smp_call_function_single`). A tick runs there in a timer's hard interrupt (`perf_swevent_hrtimer`, on PREEMPT_RT
/// too), which the call cannot interrupt; the call cancels the timer. If the CPU is offline, its going has done the same
/// (`perf_event_exit_cpu`).
///
/// # Errors
/// What the kernel says.
pub fn disable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { sys::ioctls::DISABLE(event.as_raw_fd(), 0) })
}

fn check(rc: i32) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Runs the BPF program `program` at each overflow of `event`. The event keeps the program until it is closed.
///
/// # Errors
/// What the kernel says.
pub fn set_bpf(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let Ok(program) = u32::try_from(program.as_raw_fd()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: takes no pointer; the descriptor is alive.
    check(unsafe { sys::ioctls::SET_BPF(event.as_raw_fd(), program) })
}

/// What an event says when it is read; [`READ_FORMAT`] must be its format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventReading {
    /// What it counted.
    pub count: u64,
    /// For how long it was enabled on a CPU that was online, in nanoseconds.
    pub enabled_ns: u64,
}

impl EventReading {
    /// The time for which a cpu-clock event owes ticks, ns: what it counted, and what passed while the kernel held it back
    /// (`perf_event_max_sample_rate`), when its count stands still.
    #[must_use]
    pub fn unsampled_ns(self) -> u64 {
        self.count.max(self.enabled_ns)
    }
}

/// The format of [`EventReading`].
pub const READ_FORMAT: u64 = sys::bindings::PERF_FORMAT_TOTAL_TIME_ENABLED as u64;

/// Reads an event.
///
/// # Errors
/// What the kernel says.
pub fn read(event: BorrowedFd<'_>) -> io::Result<EventReading> {
    let mut bytes = [0u8; 16];
    rustix::io::read(event, &mut bytes)?;
    let (count, enabled) = bytes.split_at(8);
    let number = |half: &[u8]| half.try_into().map_or(0, u64::from_ne_bytes);
    Ok(EventReading { count: number(count), enabled_ns: number(enabled) })
}

/// Whether an event is still at work: when its CPU goes offline the kernel turns it off for good, and if the CPU was back
/// before anybody looked, nothing but the event's own time shows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Liveness(u64);

impl Liveness {
    /// Whether the event was enabled for any time since the last call.
    pub fn has_advanced(&mut self, event: BorrowedFd<'_>) -> bool {
        let Ok(EventReading { enabled_ns, .. }) = read(event) else { return false };
        std::mem::replace(&mut self.0, enabled_ns) != enabled_ns
    }
}

/// The attributes of a software event with a fixed period, created disabled.
///
/// Of cpu-clock a frequency would be turned into a fixed period by the kernel anyway; of others it would change from moment
/// to moment. With a period the number of samples that there should be is known.
#[must_use]
pub fn software(event: Event, period: u64) -> sys::bindings::perf_event_attr {
    let config = match event {
        Event::Cpu => sys::bindings::PERF_COUNT_SW_CPU_CLOCK,
        Event::PageFaults => sys::bindings::PERF_COUNT_SW_PAGE_FAULTS,
        Event::MinorFaults => sys::bindings::PERF_COUNT_SW_PAGE_FAULTS_MIN,
        Event::MajorFaults => sys::bindings::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
        Event::ContextSwitches => sys::bindings::PERF_COUNT_SW_CONTEXT_SWITCHES,
    };
    let mut attr = sys::bindings::perf_event_attr {
        type_: sys::bindings::PERF_TYPE_SOFTWARE,
        size: u32::try_from(size_of::<sys::bindings::perf_event_attr>()).unwrap_or(0),
        config: u64::from(config),
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = period;
    attr.read_format = READ_FORMAT;
    attr.set_disabled(1);
    attr
}
