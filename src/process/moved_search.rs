//! Finds a file's code in anonymous memory, and proves it by comparing bytes. Runs in the [opener](super::opener): the
//! memory of a process, like its files, can keep a reader waiting for ever.
//!
//! Candidates are the files that the process has mapped. If the loader would have put a file's code at the very
//! address, the place gives the offset. Otherwise the bytes at the address are searched for in the code of all those
//! files.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat};
use serde::{Deserialize, Serialize};

use super::event::Inode;
use super::event::is_of_no_file;
use super::maps::{Maps, MapsEntry};
use super::opening;
use super::process_dir::ProcessDir;
use super::reading::ExpectedProgram;
use super::segments::{self, HEADER, Segment};

/// Unit of comparison, bytes: a page is equal, or it proves nothing.
const PAGE: u64 = 4096;
/// Bytes that are read at once.
const BLOCK: u64 = 256 << 10;
/// Fewer equal bytes prove nothing. This many are searched for in a file.
const MIN_MATCH: usize = 64;
/// Parts of one answer. The others are found when they are asked for.
const MAX_PARTS: usize = 160;
/// How long one search may take.
const SEARCH_TIMEOUT: Duration = Duration::from_millis(100);
/// Mappings of a process that are read, at most.
const MAX_MAPPINGS: usize = 65_536;
/// Lines of the maps before and after an address in which its file is searched for.
const NEIGHBOURS: usize = 16;
/// Files that one search opens.
const MAX_IMAGES: usize = 128;
/// Mappings of one file that show where the loader has put it.
const MAX_BIASES: usize = 16;
/// Bytes of files' code in which one search looks for bytes.
const MAX_SEARCHED: u64 = 128 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MovedCodeSearch {
    pub(super) program: ExpectedProgram,
    /// Addresses in anonymous memory.
    pub(super) addresses: Vec<u64>,
    /// Whether bytes are also searched for in all files. That search is expensive, and in vain for a runtime that
    /// generates code.
    pub(super) by_bytes: bool,
}

/// Code of one file that was found in anonymous memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MovedCode {
    /// The file, as the process has it mapped elsewhere.
    pub(super) inode: Inode,
    pub(super) path: Vec<u8>,
    pub(super) parts: Vec<MovedPart>,
}

/// A range of addresses with the bytes of the file from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MovedPart {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
}

/// Looks for code of files in the memory of a living process. Returns the code of the first file that has some.
pub(super) fn find(search: &MovedCodeSearch) -> Option<MovedCode> {
    let tgid = search.program.tgid;
    let process = ProcessDir::open(tgid).ok()?;
    let running = process.live_thread().ok().filter(|running| search.program.is(&running.stat))?;
    // The descriptor stays with the program that runs now, even if the process executes another one.
    let memory = openat(&running.dir, "mem", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let maps = Maps::open_all(running.dir.as_fd()).ok()?;
    let maps: Vec<MapsEntry> = maps.map_while(Result::ok).take(MAX_MAPPINGS).collect();
    let found = Finder::new(running.dir.as_fd(), &maps, File::from(memory)).find(search)?;
    // Read after the maps, because an exec meanwhile would change it.
    let now = process.live_thread().ok()?;
    search.program.same_program(&now.stat).then_some(found)
}

/// A source of bytes, by address or offset.
trait ByteSource {
    /// Fills the front of `buffer` as far as there are bytes. Returns how many.
    fn bytes(&self, at: u64, buffer: &mut [u8]) -> usize;
}

impl ByteSource for File {
    fn bytes(&self, at: u64, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some(empty) = buffer.get_mut(filled..).filter(|empty| !empty.is_empty()) {
            match self.read_at(empty, at.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        filled
    }
}

/// A file with code, and the distances by which the loader has moved it.
struct CodeFile {
    /// The line of the maps by which the file was opened, as an index.
    entry: usize,
    file: File,
    segments: Vec<Segment>,
    biases: Vec<u64>,
}

/// Addresses at which code of a file may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CandidateRange {
    start: u64,
    end: u64,
    /// The difference between addresses and offsets in the file.
    above: u64,
}

impl CandidateRange {
    /// The part of a mapping in which `segment` may lie if its byte at `offset` is at `address`.
    fn of(segment: &Segment, offset: u64, address: u64, mapping: &MapsEntry) -> CandidateRange {
        let first = i128::from(address) - i128::from(offset) + i128::from(segment.offset);
        let within = |at: i128| at.clamp(i128::from(mapping.start), i128::from(mapping.end));
        let address_of = |at: i128| u64::try_from(within(at)).unwrap_or(mapping.end);
        let (start, end) = (address_of(first), address_of(first + i128::from(segment.len)));
        CandidateRange { start, end, above: address.wrapping_sub(offset) }
    }

    /// The part that lies in the page of an address.
    fn page_of(self, address: u64) -> CandidateRange {
        let page = address & !(PAGE - 1);
        CandidateRange { start: self.start.max(page), end: self.end.min(page.saturating_add(PAGE)), ..self }
    }
}

/// Bytes of memory that are searched for in files.
struct Needle<'m> {
    address: u64,
    mapping: &'m MapsEntry,
    /// Distance from the start of the page, bytes.
    in_page: u64,
    bytes: [u8; MIN_MATCH],
}

impl Needle<'_> {
    fn aligned(&self) -> u64 {
        self.address & !(MIN_MATCH as u64 - 1)
    }

    fn is_in(&self, page: &[u8]) -> bool {
        let there = usize::try_from(self.in_page).ok().and_then(|at| page.get(at..at + MIN_MATCH));
        there == Some(&self.bytes[..])
    }
}

struct Finder<'m> {
    task: BorrowedFd<'m>,
    maps: &'m [MapsEntry],
    memory: File,
    /// Files that have been looked at; `None` for a file without code.
    images: HashMap<Inode, Option<Rc<CodeFile>>>,
    end: Instant,
}

impl<'m> Finder<'m> {
    fn new(task: BorrowedFd<'m>, maps: &'m [MapsEntry], memory: File) -> Finder<'m> {
        Finder { task, maps, memory, images: HashMap::new(), end: Instant::now() + SEARCH_TIMEOUT }
    }

    fn find(&mut self, search: &MovedCodeSearch) -> Option<MovedCode> {
        let mut found: Option<MovedCode> = None;
        for &address in &search.addresses {
            let parts = found.as_ref().map_or(&[][..], |found| &found.parts);
            if parts.iter().any(|part| (part.start..part.end).contains(&address)) {
                continue;
            }
            if self.is_over() || parts.len() >= MAX_PARTS {
                break;
            }
            match (&mut found, self.find_in_place(address)) {
                (Some(found), Some(more)) if found.inode == more.inode => found.parts.extend(more.parts),
                (none @ None, there) => *none = there,
                // Code of another file is found when it is asked for again.
                (Some(_), _) => {}
            }
        }
        if found.is_none() && search.by_bytes {
            (0..self.maps.len()).for_each(|entry| drop(self.image(entry)));
            found = self.find_by_bytes(&search.addresses);
        }
        found
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// The anonymous mapping in which an address lies, with its index.
    fn mapping(&self, address: u64) -> Option<(usize, &'m MapsEntry)> {
        let at = self.maps.partition_point(|entry| entry.end <= address);
        let found = self.maps.get(at).filter(|entry| entry.start <= address && entry.executable)?;
        // Names of the kernel's own code begin like this.
        let is_kernels = found.path.as_os_str().as_encoded_bytes().starts_with(b"[v");
        (is_of_no_file(found.inode, &found.path) && !is_kernels).then_some((at, found))
    }

    /// The code that the loader would have put at an address.
    fn find_in_place(&mut self, address: u64) -> Option<MovedCode> {
        let (at, mapping) = self.mapping(address)?;
        let near = at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS).min(self.maps.len());
        for neighbour in near {
            let Some(image) = self.image(neighbour) else { continue };
            for bias in &image.biases {
                let unmoved = address.wrapping_sub(*bias);
                let code = image.segments.iter().filter(|segment| segment.executable);
                for (segment, offset) in code.filter_map(|code| Some((code, code.offset_of(unmoved)?))) {
                    let place = CandidateRange::of(segment, offset, address, mapping);
                    if let Some(found) = self.prove(&image, place, address) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// The code, in any file, that has the bytes at one of these addresses at the same distance from the start of a
    /// page.
    fn find_by_bytes(&self, addresses: &[u64]) -> Option<MovedCode> {
        let wanted: Vec<Needle<'_>> = addresses.iter().filter_map(|&address| self.needle(address)).collect();
        let (mut left, mut block) = (MAX_SEARCHED, vec![0; BLOCK as usize]);
        let images = self.images.values().flatten().filter(|_| !wanted.is_empty());
        let segments = images.flat_map(|image| image.segments.iter().map(move |segment| (image, segment)));
        for (image, segment) in segments.filter(|(_, segment)| segment.executable) {
            let mut offset = segment.offset & !(PAGE - 1);
            while offset < segment.offset + segment.len {
                if left == 0 || self.is_over() {
                    return None;
                }
                let read = image.file.bytes(offset, &mut block);
                for (page, at) in block[..read].chunks(PAGE as usize).zip((offset..).step_by(PAGE as usize)) {
                    for wanted in wanted.iter().filter(|wanted| wanted.is_in(page)) {
                        let place = CandidateRange::of(
                            segment,
                            at + wanted.in_page,
                            wanted.aligned(),
                            wanted.mapping,
                        );
                        if let Some(found) = self.prove(image, place, wanted.address) {
                            return Some(found);
                        }
                    }
                }
                offset = offset.saturating_add(BLOCK);
                left = left.saturating_sub(BLOCK);
            }
        }
        None
    }

    /// The bytes to search for; `None` if code cannot be recognised by them.
    fn needle(&self, address: u64) -> Option<Needle<'m>> {
        let (_, mapping) = self.mapping(address)?;
        let mut wanted = Needle { address, mapping, in_page: 0, bytes: [0; MIN_MATCH] };
        wanted.in_page = wanted.aligned() % PAGE;
        let there = self.memory.bytes(wanted.aligned(), &mut wanted.bytes) == MIN_MATCH;
        (there && !is_uniform(&wanted.bytes)).then_some(wanted)
    }

    /// The parts of a place that have the file's bytes, if the page of `address` is among them.
    fn prove(&self, image: &CodeFile, place: CandidateRange, address: u64) -> Option<MovedCode> {
        let page = place.page_of(address);
        if !(place.start..place.end).contains(&address)
            || equal_parts(&self.memory, &image.file, page, address, |_| false).is_empty()
        {
            return None;
        }
        let goes_on = |parts: usize| parts < MAX_PARTS && !self.is_over();
        let parts = equal_parts(&self.memory, &image.file, place, address, goes_on);
        let entry = &self.maps[image.entry];
        let path = entry.path.as_os_str().as_encoded_bytes().to_vec();
        Some(MovedCode { inode: entry.inode, path, parts })
    }

    /// The file of a line of the maps, if it has code.
    fn image(&mut self, entry: usize) -> Option<Rc<CodeFile>> {
        let inode = self.maps[entry].inode;
        if is_of_no_file(inode, &self.maps[entry].path) {
            return None;
        }
        if let Some(known) = self.images.get(&inode) {
            return known.clone();
        }
        if self.images.len() >= MAX_IMAGES {
            return None;
        }
        let image = self.open(entry).map(Rc::new);
        self.images.insert(inode, image.clone());
        image
    }

    fn open(&self, entry: usize) -> Option<CodeFile> {
        let file = File::from(opening::open_entry(self.task, &self.maps[entry])?);
        let mut header = [0; HEADER];
        let table = (file.bytes(0, &mut header) == HEADER).then(|| segments::table(&header))??;
        let mut bytes = vec![0; table.len];
        let read = file.bytes(table.offset, &mut bytes);
        let segments = segments::segments(bytes.get(..read)?);
        let inode = self.maps[entry].inode;
        let biases = biases(&segments, self.maps.iter().filter(|entry| entry.inode == inode));
        segments.iter().any(|segment| segment.executable).then_some(CodeFile {
            entry,
            file,
            segments,
            biases,
        })
    }
}

/// The distances by which the loader has moved a file, from each of its mappings.
fn biases<'m>(segments: &[Segment], mappings: impl Iterator<Item = &'m MapsEntry>) -> Vec<u64> {
    let mut found = Vec::new();
    for mapping in mappings {
        for segment in segments {
            // The loader maps whole pages.
            let first = segment.offset & !(PAGE - 1);
            if (first..segment.offset + segment.len).contains(&mapping.offset) {
                let unmoved = segment.address.wrapping_sub(segment.offset).wrapping_add(mapping.offset);
                let bias = mapping.start.wrapping_sub(unmoved);
                if !found.contains(&bias) && found.len() < MAX_BIASES {
                    found.push(bias);
                }
            }
        }
    }
    found
}

/// The parts of a place in which memory has the file's bytes, page by page: from `first` on, then what lies before it.
/// `goes_on` gets the number of parts after each block and decides whether to continue.
fn equal_parts(
    memory: &impl ByteSource,
    file: &impl ByteSource,
    place: CandidateRange,
    first: u64,
    mut goes_on: impl FnMut(usize) -> bool,
) -> Vec<MovedPart> {
    let CandidateRange { start, end, above } = place;
    let (mut ours, mut theirs) = (vec![0; BLOCK as usize], vec![0; BLOCK as usize]);
    let mut parts: Vec<MovedPart> = Vec::new();
    let blocks = (first / BLOCK..end.div_ceil(BLOCK)).chain((start / BLOCK..first / BLOCK).rev());
    for block in blocks {
        let from = start.max(block * BLOCK);
        let until = end.min((block + 1) * BLOCK);
        let len = usize::try_from(until.saturating_sub(from)).unwrap_or(0);
        let (ours, theirs) = (&mut ours[..len], &mut theirs[..len]);
        let there = memory.bytes(from, ours).min(file.bytes(from.wrapping_sub(above), theirs));
        let mut at = 0;
        while at < there {
            let page = from + at as u64;
            let next = there.min(at + (PAGE - page % PAGE) as usize);
            if proves(&ours[at..next], &theirs[at..next]) {
                let end = from + next as u64;
                parts.push(MovedPart { start: page, end, offset: page.wrapping_sub(above) });
            }
            at = next;
        }
        join(&mut parts);
        if !goes_on(parts.len()) {
            break;
        }
    }
    parts
}

/// Joins parts that follow each other.
fn join(parts: &mut Vec<MovedPart>) {
    parts.sort_unstable_by_key(|part| part.start);
    parts.dedup_by(|next, part| {
        let follows = part.end == next.start;
        if follows {
            part.end = next.end;
        }
        follows
    });
}

/// Whether these bytes of memory are the file's code. Padding proves nothing: it is found everywhere, and may yet
/// become other code.
fn proves(memory: &[u8], file: &[u8]) -> bool {
    memory == file && memory.len() >= MIN_MATCH && !is_uniform(memory)
}

fn is_uniform(bytes: &[u8]) -> bool {
    bytes.windows(2).all(|pair| pair[0] == pair[1])
}

#[cfg(test)]
#[path = "moved_search_tests.rs"]
mod tests;
