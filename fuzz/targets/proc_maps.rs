//! `/proc/PID/{maps,stat,status}`.

use jbpf_prof::process::{maps, procfs};

pub(crate) fn run(data: &[u8]) {
    let maps::ParsedMaps { entries, rejected } = maps::parse_maps(data);
    let lines = data.split(|&b| b == b'\n').count();
    assert!(entries.len() + rejected <= lines);
    assert!(entries.iter().all(|entry| entry.start < entry.end));
    if let Some(stat) = procfs::parse_stat(data) {
        assert!(stat.comm.len() < data.len());
    }
    let _ = procfs::parse_status(data);
}
