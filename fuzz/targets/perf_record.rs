//! Side-band records: no input panics, and all data that is read lies within the record.

use jbpf_prof::process::event::{self, RecordHeader};
use jbpf_prof::process::{EventKind, ProcessOptions, Processes};

pub(crate) fn run(data: &[u8]) {
    // With these options the table never waits and opens no file.
    let mut processes = Processes::new(ProcessOptions::default());
    let mut rest = data;
    while let Ok(header) = RecordHeader::parse(rest) {
        let (record, after) = rest.split_at(header.size.min(rest.len()));
        if let Ok(Some(event)) = event::parse(record) {
            if let EventKind::Comm { name, .. } = &event.kind {
                assert!(!name.contains(&0) && name.len() < record.len());
            }
            processes.apply(&event);
        }
        rest = after;
    }
}
