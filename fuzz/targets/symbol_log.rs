//! The log of an agent in a JVM that may be hostile: first the header, then all records with their contents.

use jvm_symbols_log::{
    Header, Load, Method, PcDecoder, Quotas, Reader, RecordVisitor, Stub, Unload, header::HEADER_LEN,
};

/// Decodes all contents of a record.
#[derive(Default)]
struct DecodedRecords(u64);

impl RecordVisitor for DecodedRecords {
    fn method(&mut self, _: u64, method: &Method<'_>) {
        self.0 += method.lines().count() as u64;
    }

    fn load(&mut self, load: &Load<'_>) {
        assert_eq!(load.methods().count(), load.method_count());
        let mut records = PcDecoder::new(load.debug(), load.method_count());
        while let Ok(Some(record)) = records.step() {
            assert_eq!(records.chain().len(), record.depth);
            self.0 += 1;
        }
    }

    fn unload(&mut self, _: &Unload) {
        self.0 += 1;
    }

    fn stub(&mut self, _: &Stub<'_>) {
        self.0 += 1;
    }
}

pub(crate) fn run(data: &[u8]) {
    let _ = Header::read(&data);
    // The input has only records: with a header of a page, most mutations would change the header.
    let mut log = vec![0; HEADER_LEN as usize];
    log.extend(data);
    let quotas = Quotas { bytes: 1 << 20, records: 10_000, frames_per_load: 100_000, ..Quotas::default() };
    let (mut reader, mut decoded) = (Reader::new(quotas), DecodedRecords::default());
    for _ in 0..4 {
        let before = reader.offset();
        assert!(reader.read(&log, &mut decoded).is_ok());
        assert!(reader.offset() >= before);
    }
}
