//! Follows a log: reads the complete records, and continues from there in the next call.

use std::io;

use crate::decode::{Decoded, Load, Method, Stub, Unload};
use crate::encode::ClassName;
use crate::header::HEADER_LEN;
use crate::log_file::{ReadAt, fill};
use crate::pc_decoder::PcDecoder;
use crate::record::{MAX_BODY, MAX_NAME, RecordHeader};

/// Bytes of one read.
const PIECE: usize = 64 << 10;

/// How much of a log is read: the process that writes the log may be hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Bytes in the whole life of a log.
    pub bytes: u64,
    /// Records in the whole life of a log.
    pub records: u64,
    /// Bytes in one call of [`Reader::read`], so that one JVM cannot delay the others.
    pub bytes_per_call: u64,
    /// Longest name, bytes. Methods and stubs with a longer name are skipped.
    pub name: usize,
    /// Frames in all debug records of one load. Loads with more are skipped.
    pub frames_per_load: u64,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas {
            bytes: 4 << 30,
            records: 100 << 20,
            bytes_per_call: 64 << 20,
            name: MAX_NAME,
            frames_per_load: 4 << 20,
        }
    }
}

/// Counts of bytes and records that were read or skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes read, headers included.
    pub bytes: u64,
    /// Complete records read, including unknown, malformed and too long ones.
    pub records: u64,
    /// Records of a type that this version does not know.
    pub unknown: u64,
    /// Records that break the format.
    pub malformed: u64,
    /// Records that are too long, or that have a name or debug records that are too long.
    pub too_long: u64,
}

/// Why a reader reads no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The bytes where a record should begin are not a record.
    Garbage,
    /// [`Quotas::bytes`] or [`Quotas::records`] is used up.
    Quota,
}

/// Receives the records of a log, in the order of the log. References are valid during the call only.
pub trait RecordVisitor {
    /// A method; loads refer to it by `offset`.
    fn method(&mut self, offset: u64, method: &Method<'_>);
    /// Compiled code. Its debug records have been checked.
    fn load(&mut self, load: &Load<'_>);
    /// The JVM removed code.
    fn unload(&mut self, unload: &Unload);
    /// The JVM generated a stub.
    fn stub(&mut self, stub: &Stub<'_>);
    /// The replay is complete.
    fn replay_end(&mut self) {}
}

/// A position in a log.
#[derive(Debug)]
pub struct Reader {
    quotas: Quotas,
    counts: Counts,
    at: u64,
    /// The offset of a word without mark. If the word still has no mark in the next read, it is garbage and not a torn
    /// write.
    suspect: Option<u64>,
    end: Option<End>,
    buffer: Vec<u8>,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new(Quotas::default())
    }
}

impl Reader {
    /// Starts behind the header.
    #[must_use]
    pub fn new(quotas: Quotas) -> Reader {
        Reader::from_offset(HEADER_LEN, quotas)
    }

    /// Starts at `offset`, the consumed offset of a header.
    #[must_use]
    pub fn from_offset(offset: u64, quotas: Quotas) -> Reader {
        let at = offset.max(HEADER_LEN).next_multiple_of(crate::record::ALIGN);
        Reader { quotas, counts: Counts::default(), at, suspect: None, end: None, buffer: Vec::new() }
    }

    /// The offset of the next record: all records below were sent.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Counts of what was read so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Why the reader reads no further, if so.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Sends new records to `sink`. An incomplete record at the end is left for the next call. Returns the number of
    /// records read.
    ///
    /// # Errors
    /// Those of `pread`; the position is kept.
    pub fn read(&mut self, source: &impl ReadAt, sink: &mut impl RecordVisitor) -> io::Result<u64> {
        let before = self.counts.records;
        let mut left = self.quotas.bytes_per_call;
        while self.end.is_none() && left > 0 {
            let Some(piece) = self.complete(source)? else { break };
            left = left.saturating_sub(piece.max(PIECE) as u64);
            if piece == 0 {
                continue; // a record was skipped
            }
            // Reads again: the first copy may have a word that is newer than the body next to it.
            let mut buffer = std::mem::take(&mut self.buffer);
            let got = fill(source, &mut buffer[..piece], self.at);
            let consumed = got.map(|n| self.decode_records(&buffer[..n], sink));
            self.buffer = buffer;
            if consumed? == 0 {
                break;
            }
        }
        Ok(self.counts.records - before)
    }

    /// Fills the buffer. Returns how many of its bytes are complete records; `None` if there are none.
    fn complete(&mut self, source: &impl ReadAt) -> io::Result<Option<usize>> {
        self.buffer.resize(PIECE, 0);
        let mut got = self.fill_padded(source)?;
        let Some(first) = self.word_at(0, got) else { return Ok(None) };
        if first.body > MAX_BODY {
            self.skip(first);
            return Ok(Some(0));
        }
        let first_len = first.record_len() as usize;
        if first_len > self.buffer.len() {
            self.buffer.resize(first_len, 0);
            got = self.fill_padded(source)?;
        }
        // The padding of the last record may be missing in the file.
        let whole = |word: RecordHeader| (RecordHeader::LEN + u64::from(word.body)) as usize;
        if whole(first) > got {
            return Ok(None);
        }
        let mut len = 0;
        while let Some(word) = self.peek(len, got) {
            if word.body > MAX_BODY || whole(word) > got - len {
                break;
            }
            len = got.min(len + word.record_len() as usize);
        }
        Ok(Some(len))
    }

    /// Fills the buffer, and pads it with zeros: the file may end without the padding of the last record.
    fn fill_padded(&mut self, source: &impl ReadAt) -> io::Result<usize> {
        let got = fill(source, &mut self.buffer, self.at)?;
        let padded = got.next_multiple_of(RecordHeader::LEN as usize).min(self.buffer.len());
        self.buffer[got..padded].fill(0);
        Ok(padded)
    }

    /// The header of the record at the reader's position. A header without mark in two reads ends the log.
    fn word_at(&mut self, offset: usize, got: usize) -> Option<RecordHeader> {
        let raw = u64::from_le_bytes(
            self.buffer.get(offset..offset + 8).filter(|_| got >= offset + 8)?.try_into().ok()?,
        );
        if raw == 0 {
            self.suspect = None;
            return None;
        }
        let word = RecordHeader::from_u64(raw);
        if word.is_none() {
            if self.suspect == Some(self.at) {
                self.end = Some(End::Garbage);
            }
            self.suspect = Some(self.at);
        }
        word
    }

    fn peek(&self, offset: usize, got: usize) -> Option<RecordHeader> {
        let raw = self.buffer.get(offset..offset + 8).filter(|_| got >= offset + 8)?;
        RecordHeader::from_u64(u64::from_le_bytes(raw.try_into().ok()?))
    }

    /// Skips a record that is longer than any that the agent writes.
    fn skip(&mut self, word: RecordHeader) {
        self.counts.too_long += 1;
        self.advance(word.record_len());
    }

    fn advance(&mut self, len: u64) {
        self.counts.records += 1;
        self.counts.bytes = self.counts.bytes.saturating_add(len);
        match self
            .at
            .checked_add(len)
            .filter(|_| self.counts.bytes <= self.quotas.bytes && self.counts.records <= self.quotas.records)
        {
            Some(next) => self.at = next,
            None => self.end = Some(End::Quota),
        }
    }

    /// Sends the records in `bytes`; returns how many bytes they have.
    fn decode_records(&mut self, bytes: &[u8], sink: &mut impl RecordVisitor) -> usize {
        let mut consumed = 0;
        while self.end.is_none() {
            let Some(word) = bytes
                .get(consumed..consumed + 8)
                .and_then(|raw| raw.try_into().ok())
                .and_then(|raw| RecordHeader::from_u64(u64::from_le_bytes(raw)))
            else {
                break;
            };
            let body_at = consumed + RecordHeader::LEN as usize;
            let Some(body) = bytes.get(body_at..body_at + word.body as usize) else { break };
            let offset = self.at;
            self.advance(word.record_len());
            if self.end.is_some() {
                break;
            }
            self.one(offset, word, body, sink);
            consumed += word.record_len() as usize;
        }
        consumed
    }

    fn one(&mut self, offset: u64, word: RecordHeader, body: &[u8], sink: &mut impl RecordVisitor) {
        let long = |name: &[u8]| name.len() > self.quotas.name;
        match Decoded::read(word.kind, body) {
            Ok(Decoded::Method(method)) if names_of(&method).into_iter().any(long) => {
                self.counts.too_long += 1;
            }
            Ok(Decoded::Method(method)) => sink.method(offset, &method),
            Ok(Decoded::Load(load)) => match checked(&load, self.quotas.frames_per_load) {
                Checked::Good => sink.load(&load),
                Checked::TooLong => self.counts.too_long += 1,
                Checked::Bad => self.counts.malformed += 1,
            },
            Ok(Decoded::Unload(unload)) => sink.unload(&unload),
            Ok(Decoded::Stub(stub)) if long(stub.name) => self.counts.too_long += 1,
            Ok(Decoded::Stub(stub)) => sink.stub(&stub),
            Ok(Decoded::ReplayEnd) => sink.replay_end(),
            Ok(Decoded::Unknown) => self.counts.unknown += 1,
            Err(_) => self.counts.malformed += 1,
        }
    }
}

fn names_of<'a>(method: &Method<'a>) -> [&'a [u8]; 3] {
    match method.class {
        ClassName::Named { class, file } => [class, file, method.name],
        ClassName::As(_) => [b"", b"", method.name],
    }
}

enum Checked {
    Good,
    TooLong,
    Bad,
}

/// Decodes all debug records once, before the load is sent.
fn checked(load: &Load<'_>, frames: u64) -> Checked {
    let mut decoder = PcDecoder::new(load.debug(), load.method_count());
    let mut seen = 0u64;
    loop {
        match decoder.step() {
            Ok(None) => return Checked::Good,
            Ok(Some(record)) => seen += 1 + record.depth as u64,
            Err(_) => return Checked::Bad,
        }
        if seen > frames {
            return Checked::TooLong;
        }
    }
}
