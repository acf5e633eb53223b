//! The options string: `nonce=HEX,lease=SECONDS,cap=BYTES,path=FILE,stubs=0|1,alloc=BYTES,klass=OFFSET`, each of them
//! optional.

/// Longest lease that is accepted, seconds.
const MAX_LEASE: u64 = 3600;
/// Least and most bytes of a log.
const CAP: (u64, u64) = (8 << 10, 1 << 30);

/// Longest mean distance of samples of allocations, bytes: the JVM takes a `jint`.
const MAX_ALLOC: u64 = i32::MAX as u64;

/// Options of an attach or of `-agentpath`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options<'a> {
    /// The nonce by which the profiler finds its own log.
    pub nonce: [u8; 16],
    /// First lease, from the creation of the log on, ns; at most one hour.
    pub lease: u64,
    /// Most bytes that may be written and not consumed.
    pub cap: u64,
    /// The path from which the agent was loaded.
    pub path: &'a [u8],
    /// Also log generated code that belongs to no method.
    pub stubs: bool,
    /// Mean number of allocated bytes between two samples of allocations; 0: no samples.
    pub alloc: u64,
    /// Where a `java.lang.Class` object has the address of its class in HotSpot, bytes. The agent only passes it on.
    pub klass: u64,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            nonce: [0; 16],
            lease: 10_000_000_000,
            cap: 32 << 20,
            path: b"",
            stubs: true,
            alloc: 0,
            klass: 0,
        }
    }
}

impl<'a> Options<'a> {
    /// Parses the string; ignores unknown options and invalid values.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Options<'a> {
        let mut options = Options::default();
        for item in text.split(|&b| b == b',') {
            let mut parts = item.splitn(2, |&b| b == b'=');
            let (Some(key), Some(value)) = (parts.next(), parts.next()) else { continue };
            match key {
                b"nonce" => options.nonce = nonce(value),
                b"lease" => {
                    if let Some(seconds) = number(value) {
                        options.lease = seconds.min(MAX_LEASE).wrapping_mul(1_000_000_000);
                    }
                }
                b"cap" => {
                    if let Some(bytes) = number(value) {
                        options.cap = bytes.max(CAP.0).min(CAP.1);
                    }
                }
                b"path" => options.path = value,
                b"stubs" => options.stubs = value != b"0",
                b"alloc" => options.alloc = number(value).unwrap_or(0).min(MAX_ALLOC),
                b"klass" => options.klass = number(value).unwrap_or(0),
                _ => {}
            }
        }
        options
    }
}

fn number(text: &[u8]) -> Option<u64> {
    let mut value = None;
    for &digit in text {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            break; // a unit, as in `10s`
        }
        value = Some(value.unwrap_or(0u64).checked_mul(10)?.checked_add(u64::from(digit))?);
    }
    value
}

/// Reads up to 32 hex digits from the front; other characters count as 0, further ones are ignored.
fn nonce(text: &[u8]) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks(2)) {
        for &digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit.wrapping_sub(b'0'),
                b'a'..=b'f' => digit.wrapping_sub(b'a').wrapping_add(10),
                b'A'..=b'F' => digit.wrapping_sub(b'A').wrapping_add(10),
                _ => 0,
            };
            *byte = (*byte << 4) | value;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_options_are_read() {
        let options = Options::parse(
            b"nonce=00ff10aB,lease=3s,cap=1000000,path=/tmp/.x/a=b.so,stubs=0,alloc=4096,klass=72,later=1",
        );
        assert_eq!(options.nonce[..5], [0, 0xff, 0x10, 0xab, 0]);
        assert_eq!(options.lease, 3_000_000_000);
        assert_eq!(options.cap, 1_000_000);
        assert_eq!(options.path, b"/tmp/.x/a=b.so");
        assert!(!options.stubs);
        assert_eq!((options.alloc, options.klass), (4096, 72));
    }

    #[test]
    fn nonsense_is_the_default() {
        for text in
            [&b""[..], b",,,", b"lease", b"lease=,cap=x", b"cap=99999999999999999999999", b"\xff=\xff"]
        {
            assert_eq!(Options::parse(text), Options::default(), "{text:?}");
        }
        assert_eq!(Options::parse(b"cap=1").cap, 8 << 10);
        assert_eq!(Options::parse(b"alloc=4294967295").alloc, 2_147_483_647);
        assert_eq!(Options::parse(b"lease=99999999").lease, 3_600_000_000_000);
    }
}
