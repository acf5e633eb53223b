//! Reads process events from the kernel's side-band: one dummy perf event a CPU, no tracefs needed.
//!
//! Events of mappings identify the file by device, inode and inode generation, not by build id (`attr.build_id`, Linux
//! 5.12). The kernel gives one or the other; `/proc/PID/maps` and files without build id have only the former. After a
//! process has ended, `fstat` proves that an opened file is the right one, without reading it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use perf_event_open_sys::bindings as sys;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::ClockId;

use super::perf_event::{self, Liveness};
use super::perf_ring::PerfRing;
use crate::process::event::{self, RecordHeader, SAMPLE_TYPE};
use crate::process::{EventKind, ProcessEvent};
use crate::sample::MonoNs;

/// Sizes of a CPU's ring to try, in bytes. The largest fits the default `perf_event_mlock_kb` of 516.
const RINGS: [usize; 6] = [512 << 10, 256 << 10, 128 << 10, 64 << 10, 32 << 10, 16 << 10];

/// The side-band of all CPUs.
#[derive(Debug)]
pub struct Sideband {
    cpus: BTreeMap<u32, Cpu>,
    /// Readable when a ring is half full.
    ready: OwnedFd,
    ring_size: usize,
    /// Events that are newer than the last drain; the size of the rings bounds their number.
    pending: VecDeque<ProcessEvent>,
    scratch: Vec<u8>,
    lost: u64,
    bad: u64,
    /// CPUs that are online, but whose side-band could not be opened.
    deaf: BTreeSet<u32>,
}

#[derive(Debug)]
struct Cpu {
    // The first field, so that the ring is unmapped before the descriptor is closed.
    ring: PerfRing,
    event: OwnedFd,
    pulse: Liveness,
}

impl Sideband {
    /// Opens and enables the side-band of these CPUs. Skips CPUs that are offline.
    ///
    /// # Errors
    /// The kernel's error for the first CPU that cannot be opened.
    pub fn open(cpus: impl IntoIterator<Item = u32>) -> io::Result<Sideband> {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let cpus: Vec<u32> = cpus.into_iter().collect();
        let ring_size = match cpus.len() {
            0..=16 => RINGS[0],
            17..=64 => RINGS[1],
            _ => RINGS[2],
        };
        let mut sideband = Sideband {
            cpus: BTreeMap::new(),
            ready,
            ring_size,
            pending: VecDeque::new(),
            scratch: Vec::new(),
            lost: 0,
            bad: 0,
            deaf: BTreeSet::new(),
        };
        for cpu in cpus {
            sideband.open_cpu(cpu)?;
        }
        Ok(sideband)
    }

    /// Opens the side-band of a CPU that came online. Does nothing if the CPU is open already, or offline.
    ///
    /// # Errors
    /// When the perf event cannot be opened or enabled, or no ring size can be mapped.
    pub fn open_cpu(&mut self, cpu: u32) -> io::Result<()> {
        if self.cpus.contains_key(&cpu) {
            return Ok(());
        }
        let number = i32::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
        let sizes = RINGS.into_iter().filter(|&size| size <= self.ring_size);
        let mut refused = io::Error::from(io::ErrorKind::OutOfMemory);
        for size in sizes {
            let event = match perf_event::open(&mut attr(size), -1, number) {
                Err(e) if perf_event::is_offline(&e) => return Ok(()),
                opened => opened?,
            };
            match PerfRing::map(event.as_fd(), size) {
                Ok(ring) => {
                    self.ring_size = size;
                    let data = epoll::EventData::new_u64(u64::from(cpu));
                    // Edge-triggered, because an event of a CPU that went offline reports a hang-up all the time.
                    epoll::add(&self.ready, &event, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
                    perf_event::enable(event.as_fd())?;
                    self.cpus.insert(cpu, Cpu { ring, event, pulse: Liveness::default() });
                    return Ok(());
                }
                Err(e) => refused = e,
            }
        }
        Err(refused)
    }

    /// Opens CPUs that came online, closes those that went offline, and renews those that went and came back in
    /// between. An unknown number of events on a CPU is lost before it is opened, so this adds a `Lost` event.
    pub fn follow_hotplug(&mut self, online: &[u32]) {
        let stays =
            |cpu: u32, open: &mut Cpu| online.contains(&cpu) && open.pulse.has_advanced(open.event.as_fd());
        let gone = self.cpus.iter_mut().filter_map(|(cpu, open)| (!stays(*cpu, open)).then_some(*cpu));
        for cpu in gone.collect::<Vec<_>>() {
            self.close_cpu(cpu);
        }
        self.deaf.retain(|cpu| online.contains(cpu));
        for &cpu in online.iter().filter(|cpu| !self.cpus.contains_key(cpu)).collect::<Vec<_>>() {
            match self.open_cpu(cpu) {
                Ok(()) => drop(self.deaf.remove(&cpu)),
                Err(error) if self.deaf.insert(cpu) => {
                    log::warn!("CPU {cpu}: process events of this CPU are not received: {error}");
                }
                // Reported before.
                Err(_) => continue,
            }
            let (at, kind) = (MonoNs::now(), EventKind::Lost(0));
            self.pending.push_back(ProcessEvent { at, tgid: 0, tid: 0, kind });
        }
    }

    /// Closes a CPU that went offline. The next drain returns the events that its ring still holds.
    pub fn close_cpu(&mut self, cpu: u32) {
        if let Some(mut closed) = self.cpus.remove(&cpu) {
            self.read_ring(&mut closed);
            let _ = epoll::delete(&self.ready, &closed.event);
        }
    }

    /// Returns all events up to now, sorted by time over all CPUs. Events that are newer than the call wait for the
    /// next call, because other events of the same time may still be unread.
    pub fn drain(&mut self) -> Vec<ProcessEvent> {
        let now = MonoNs::now();
        let mut cpus = std::mem::take(&mut self.cpus);
        for cpu in cpus.values_mut() {
            self.read_ring(cpu);
        }
        self.cpus = cpus;
        self.pending.make_contiguous().sort_by_key(|event| event.at);
        let ready = self.pending.partition_point(|event| event.at <= now);
        self.pending.drain(..ready).collect()
    }

    /// Waits until a ring is half full, at most for `limit`. Returns whether a ring is half full. Each half is reported
    /// once, so the caller must drain.
    ///
    /// # Errors
    /// The kernel's error; a signal is not an error.
    pub fn wait(&self, limit: std::time::Duration) -> io::Result<bool> {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let limit = rustix::time::Timespec::try_from(limit).ok();
        match epoll::wait(&self.ready, &mut events[..], limit.as_ref()) {
            Err(Errno::INTR) => Ok(false),
            found => Ok(found? > 0),
        }
    }

    /// The number of records lost so far, because a ring was full or a record was invalid.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost + self.bad
    }

    /// The number of invalid records among the lost ones.
    #[must_use]
    pub fn bad(&self) -> u64 {
        self.bad
    }

    fn read_ring(&mut self, cpu: &mut Cpu) {
        self.scratch.clear();
        if cpu.ring.read(&mut self.scratch).is_err() {
            self.bad += 1;
            return;
        }
        let mut rest = self.scratch.as_slice();
        while !rest.is_empty() {
            let size = RecordHeader::parse(rest).map_or(rest.len(), |header| header.size.min(rest.len()));
            let (record, after) = rest.split_at(size);
            rest = after;
            match event::parse(record) {
                Ok(Some(event)) => {
                    if let EventKind::Lost(n) = event.kind {
                        self.lost += n;
                    }
                    self.pending.push_back(event);
                }
                Ok(None) => {}
                Err(_) => self.bad += 1,
            }
        }
    }
}

impl AsFd for Sideband {
    /// A descriptor for poll, readable when a ring is half full.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// The attributes of a dummy event that only carries side-band records.
fn attr(ring_size: usize) -> sys::perf_event_attr {
    let mut attr = sys::perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        size: u32::try_from(size_of::<sys::perf_event_attr>()).unwrap_or(0),
        config: u64::from(sys::PERF_COUNT_SW_DUMMY),
        sample_type: SAMPLE_TYPE,
        read_format: perf_event::READ_FORMAT,
        clockid: ClockId::Monotonic as i32,
        ..sys::perf_event_attr::default()
    };
    attr.set_disabled(1);
    attr.set_exclude_kernel(1);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = u32::try_from(ring_size / 2).unwrap_or(u32::MAX);
    attr
}
