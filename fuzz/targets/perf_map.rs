//! Perf maps of other runtimes, read in two steps while they grow.

use std::fs::File;
use std::io::Write as _;

use jbpf_prof::symbolize::perfmap::PerfMap;

pub(crate) fn run(data: &[u8]) {
    let Ok(memory) = rustix::fs::memfd_create("perf-map", rustix::fs::MemfdFlags::CLOEXEC) else { return };
    let (mut file, mut map) = (File::from(memory), PerfMap::default());
    for part in data.chunks(data.len().div_ceil(2).max(1)) {
        if file.write_all(part).is_err() {
            return;
        }
        map.read(&file);
    }
    for address in [0, 4096, u64::MAX].into_iter().chain(data.iter().map(|&b| u64::from(b) << 4)) {
        for earlier in [false, true] {
            let name = map.find(address, false, earlier);
            assert!(name.is_err() || name.is_ok_and(|name| !name.chars().any(char::is_control)));
        }
    }
}
