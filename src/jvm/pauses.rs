//! The pauses of a JVM, by the counters that it keeps for `jstat`. They lie in memory that the JVM maps from the file
//! `/tmp/hsperfdata_USER/PID`. The owner of the process can write anything there.

use super::memory::{InvalidMemory, byte_in, half_in, word_in};

/// The first bytes of the counters, in each byte order.
const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];
/// The byte order at offset 4: that of the CPUs on which jbpf-prof runs.
const LITTLE_ENDIAN: u8 = 1;
/// Entries that are looked at: JVMs have some hundred.
const MAX_ENTRIES: u32 = 4096;
/// The type of a counter: a `long`.
const LONG: u8 = b'J';

/// Most bytes of counters that are read: `-XX:PerfDataMemorySize` is 32 KiB by default.
pub const MAX_BYTES: u64 = 1 << 20;

/// Whether the counters of a JVM lie in the file with this path. `ns_pid`: its process id in its own pid namespace. Tools
/// such as jstat map the counters of other JVMs, too.
#[must_use]
pub fn is_counters(path: &[u8], ns_pid: u32) -> bool {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    path.windows(12).any(|part| part == b"/hsperfdata_") && path.ends_with(format!("/{ns_pid}").as_bytes())
}

/// How long a JVM stood still since its start, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseCounters {
    /// Safepoints: all Java threads stood still.
    pub safepoints: u64,
    /// Time until all threads stood still and in which they did, nanoseconds.
    pub safepoint_ns: u64,
    /// Garbage collections, of all collectors.
    pub collections: u64,
    /// Time that the collectors count for them, nanoseconds.
    pub collection_ns: u64,
}

impl PauseCounters {
    /// Reads the counters.
    ///
    /// # Errors
    /// If the bytes are no counters of HotSpot.
    pub fn parse(bytes: &[u8]) -> Result<PauseCounters, InvalidMemory> {
        if bytes.get(..4) != Some(&MAGIC[..]) || byte_in(bytes, 4)? != LITTLE_ENDIAN {
            return Err(InvalidMemory);
        }
        let mut place = u64::from(half_in(bytes, 24)?);
        let mut found = PauseCounters::default();
        let mut hertz = 0;
        for _ in 0..half_in(bytes, 28)?.min(MAX_ENTRIES) {
            let Ok(entry) = PerfCounter::at(bytes, place) else { break };
            match entry.name {
                b"sun.os.hrt.frequency" => hertz = entry.value,
                b"sun.rt.safepoints" => found.safepoints = entry.value,
                b"sun.rt.safepointTime" => found.safepoint_ns = entry.value,
                name if is_of_collector(name, b"invocations") => {
                    found.collections = found.collections.saturating_add(entry.value);
                }
                name if is_of_collector(name, b"time") => {
                    found.collection_ns = found.collection_ns.saturating_add(entry.value);
                }
                _ => {}
            }
            place += entry.length;
        }
        let ns = |ticks: u64| u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(hertz)).ok();
        if hertz == 0 {
            return Err(InvalidMemory);
        }
        found.safepoint_ns = ns(found.safepoint_ns).ok_or(InvalidMemory)?;
        found.collection_ns = ns(found.collection_ns).ok_or(InvalidMemory)?;
        Ok(found)
    }

    /// What was added since an earlier reading.
    #[must_use]
    pub fn since(&self, before: &PauseCounters) -> PauseCounters {
        PauseCounters {
            safepoints: self.safepoints.saturating_sub(before.safepoints),
            safepoint_ns: self.safepoint_ns.saturating_sub(before.safepoint_ns),
            collections: self.collections.saturating_sub(before.collections),
            collection_ns: self.collection_ns.saturating_sub(before.collection_ns),
        }
    }
}

/// Whether this is a counter of one of the collectors: `sun.gc.collector.NUMBER.COUNTER`.
fn is_of_collector(name: &[u8], counter: &[u8]) -> bool {
    let rest = name.strip_prefix(b"sun.gc.collector.");
    let number = rest.and_then(|rest| rest.strip_suffix(counter)?.strip_suffix(b"."));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// A counter with its name.
struct PerfCounter<'a> {
    length: u64,
    name: &'a [u8],
    /// 0 if the entry is no number.
    value: u64,
}

impl PerfCounter<'_> {
    fn at(bytes: &[u8], place: u64) -> Result<PerfCounter<'_>, InvalidMemory> {
        let length = u64::from(half_in(bytes, place)?);
        let name = place + u64::from(half_in(bytes, place + 4)?);
        let is_scalar = half_in(bytes, place + 8)? == 0 && byte_in(bytes, place + 12)? == LONG;
        let value = place + u64::from(half_in(bytes, place + 16)?);
        let rest = usize::try_from(name).ok().and_then(|at| bytes.get(at..)).ok_or(InvalidMemory)?;
        let end = rest.iter().take(256).position(|byte| *byte == 0).ok_or(InvalidMemory)?;
        if length == 0 {
            return Err(InvalidMemory);
        }
        Ok(PerfCounter {
            length,
            name: &rest[..end],
            value: if is_scalar { word_in(bytes, value)? } else { 0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters as a JVM writes them.
    fn counters(entries: &[(&str, u64)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([LITTLE_ENDIAN, 2, 0, 1]);
        bytes.resize(24, 0);
        bytes.extend(32u32.to_le_bytes());
        bytes.extend(u32::try_from(entries.len()).unwrap().to_le_bytes());
        for (name, value) in entries {
            let data = (20 + name.len() as u32 + 1).next_multiple_of(8);
            let mut entry = Vec::new();
            for number in [data + 8, 20, 0] {
                entry.extend(number.to_le_bytes());
            }
            entry.extend([LONG, 0, 0, 0]);
            entry.extend(data.to_le_bytes());
            entry.extend(name.bytes());
            entry.resize(data as usize, 0);
            entry.extend(value.to_le_bytes());
            bytes.extend(entry);
        }
        bytes.resize(bytes.len() + 100, 0);
        bytes
    }

    #[test]
    fn pauses_are_those_of_all_collectors() {
        let bytes = counters(&[
            ("sun.rt.safepoints", 7),
            ("sun.rt.safepointTime", 2_000),
            ("sun.gc.collector.0.invocations", 3),
            ("sun.gc.collector.0.time", 500),
            ("sun.gc.collector.10.invocations", 2),
            ("sun.gc.collector.10.time", 1_000),
            ("sun.gc.collector.x.time", 9),
            ("sun.gc.collector.0.lastEntryTime", 9),
            ("sun.os.hrt.frequency", 1_000),
        ]);
        let found = PauseCounters::parse(&bytes).unwrap();
        let second = 1_000_000_000;
        let right = PauseCounters {
            safepoints: 7,
            safepoint_ns: 2 * second,
            collections: 5,
            collection_ns: 3 * second / 2,
        };
        assert_eq!(found, right);
        assert_eq!(found.since(&PauseCounters { safepoints: 4, ..found }).safepoints, 3);
        assert_eq!(PauseCounters::default().since(&found), PauseCounters::default());
    }

    #[test]
    fn whatever_a_process_writes_is_read_without_harm() {
        let bytes = counters(&[("sun.os.hrt.frequency", 1), ("sun.rt.safepointTime", u64::MAX)]);
        assert_eq!(PauseCounters::parse(&bytes), Err(InvalidMemory), "more nanoseconds than there are");
        for length in 0..bytes.len() {
            let _ = PauseCounters::parse(&bytes[..length]);
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut forged = bytes.clone();
                forged[at] = value;
                let _ = PauseCounters::parse(&forged);
            }
        }
        assert_eq!(PauseCounters::parse(b"\xca\xfe\xc0\xc0"), Err(InvalidMemory));
        assert_eq!(
            PauseCounters::parse(&counters(&[("sun.rt.safepoints", 1)])),
            Err(InvalidMemory),
            "no frequency"
        );
    }

    #[test]
    fn files_of_counters_are_known_by_their_path() {
        assert!(is_counters(b"/tmp/hsperfdata_root/42", 42));
        assert!(is_counters(b"/proc/1/root/tmp/hsperfdata_x/1 (deleted)", 1));
        assert!(!is_counters(b"/tmp/hsperfdata/42", 42) && !is_counters(b"", 42));
        assert!(!is_counters(b"/tmp/hsperfdata_root/142", 42), "another JVM's");
    }
}
