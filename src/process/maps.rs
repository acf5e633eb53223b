//! The executable mappings of a process, read one after the other in little memory, however many there are. A search
//! engine has 100,000 files mapped as data.
//!
//! Since Linux 6.11 the kernel finds executable mappings without writing a line for each of the others. For 250,000
//! mappings it takes 33 ms. The text of `/proc/PID/maps`, 45 MB, takes 225 ms to read (Linux 6.18). On older kernels
//! the text is read.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::event::Inode;
use super::ioctl::{self, MappingQuery, Vma};
use super::path::bytes_path;
use super::procfs::{decimal, hex};

/// Longest line that is read, bytes: a path of `PATH_MAX` bytes, each a line feed that is written as four.
const MAX_LINE: u64 = 20 << 10;
/// Bytes that are read at once. The kernel gives a page at most.
const BUFFER: usize = 16 << 10;
/// Mappings of a file that are searched for its beginning: a tool may have changed the protection of parts.
const MAX_PARTS: usize = 64;
/// The largest gap between two mappings of a file, bytes: the alignment of segments on some machines (`max-page-size`).
const MAX_GAP: u64 = 1 << 16;
/// The least size of a page, bytes.
const MIN_PAGE: usize = 4096;

/// A line of `/proc/PID/maps`, or the kernel's answer to `PROCMAP_QUERY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsEntry {
    /// First address of the mapping.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Offset of the first byte in the file, bytes.
    pub offset: u64,
    /// The file; all zero for anonymous memory. The generation is not known.
    pub inode: Inode,
    /// The path as seen from our root, or a name such as `[vdso]`; empty for anonymous memory.
    pub path: Arc<Path>,
    /// Whether it may be executed.
    pub executable: bool,
}

/// Mappings of a process, by address: the executable ones, or all.
#[derive(Debug)]
pub struct Maps(MapsReader);

#[derive(Debug)]
enum MapsReader {
    /// Asks the kernel, from this address on.
    Query(File, u64),
    Text(MapsText<BufReader<File>>),
}

impl Maps {
    /// The executable mappings of the process or thread with this directory in `/proc`. May wait for the process's
    /// memory lock.
    ///
    /// # Errors
    /// The kernel's error; `ESRCH` or `ENOENT` if the process has ended.
    pub fn open(task: BorrowedFd<'_>) -> Result<Maps, Errno> {
        let file = open(task)?;
        Ok(match ioctl::mapping(file.as_fd(), 0, MappingQuery::ExecutableFrom) {
            Err(errno) if errno != Errno::NOENT && errno != Errno::SRCH => Maps::read(file),
            _ => Maps(MapsReader::Query(file, 0)),
        })
    }

    /// All mappings, executable or not, of the process or thread with this directory in `/proc`.
    ///
    /// # Errors
    /// When `/proc/PID/maps` cannot be opened: `ESRCH` or `ENOENT` if the process has ended.
    pub(super) fn open_all(task: BorrowedFd<'_>) -> Result<Maps, Errno> {
        let text = BufReader::with_capacity(BUFFER, open(task)?);
        Ok(Maps(MapsReader::Text(MapsText { all: true, ..MapsText::new(text) })))
    }

    fn read(file: File) -> Maps {
        Maps(MapsReader::Text(MapsText::new(BufReader::with_capacity(BUFFER, file))))
    }

    /// Address of the first byte of the file of `of`, the mapping that was returned last. The byte may lie in `of`, or
    /// below it in mappings of the same file. `None` if these do not reach that far.
    #[must_use]
    pub fn beginning(&self, of: &MapsEntry) -> Option<u64> {
        match &self.0 {
            MapsReader::Text(text) => {
                text.beginning.filter(|(inode, _)| *inode == of.inode).map(|(_, start)| start)
            }
            MapsReader::Query(file, _) => {
                let (mut start, mut offset) = (of.start, of.offset);
                for _ in 0..MAX_PARTS {
                    if offset == 0 {
                        return Some(start);
                    }
                    // A linker may leave a gap between two segments.
                    let mut places = (0..=MAX_GAP).step_by(MIN_PAGE);
                    let below = places.find_map(|gap| {
                        let place = start.checked_sub(1 + gap)?;
                        ioctl::mapping(file.as_fd(), place, MappingQuery::Covering).ok()
                    })?;
                    if below.inode != of.inode {
                        return None;
                    }
                    (start, offset) = (below.start, below.offset);
                }
                None
            }
        }
    }
}

fn open(task: BorrowedFd<'_>) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    openat(task, "maps", flags, Mode::empty()).map(File::from)
}

impl Iterator for Maps {
    type Item = Result<MapsEntry, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            MapsReader::Text(text) => text.next(),
            MapsReader::Query(file, next) => {
                match ioctl::mapping(file.as_fd(), *next, MappingQuery::ExecutableFrom) {
                    Ok(vma) if vma.end > *next => {
                        *next = vma.end;
                        let Vma { start, end, offset, inode, name } = vma;
                        let path = Arc::from(bytes_path(&name));
                        Some(Ok(MapsEntry { start, end, offset, inode, path, executable: true }))
                    }
                    Ok(_) | Err(Errno::NOENT | Errno::SRCH) => None,
                    Err(errno) => {
                        *next = u64::MAX;
                        Some(Err(errno))
                    }
                }
            }
        }
    }
}

/// Mappings in the text of `/proc/PID/maps`: the executable ones, or all.
#[derive(Debug)]
pub struct MapsText<R> {
    text: R,
    line: Vec<u8>,
    /// The last mapping so far of a file's first byte: the file, and the address.
    beginning: Option<(Inode, u64)>,
    /// Whether to give mappings that are not executable, too.
    all: bool,
    /// Lines that could not be parsed.
    pub rejected: usize,
    /// Whether an error has ended the reading.
    ended: bool,
}

impl<R: BufRead> MapsText<R> {
    /// The executable mappings in `text`.
    pub fn new(text: R) -> MapsText<R> {
        MapsText { text, line: Vec::new(), beginning: None, all: false, rejected: 0, ended: false }
    }

    /// All mappings in `text`.
    pub(super) fn of_all(text: R) -> MapsText<R> {
        MapsText { all: true, ..MapsText::new(text) }
    }

    /// The next line, without its end; `None` at the end of the text. A line that is too long is cut.
    fn next_line(&mut self) -> std::io::Result<Option<NextLine<'_>>> {
        self.line.clear();
        self.text.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.line)?;
        let cut = self.line.len() as u64 == MAX_LINE && !self.line.ends_with(b"\n");
        if cut {
            // The remainder of a name must not be taken for a line.
            self.text.skip_until(b'\n')?;
        }
        let bytes = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok((!self.line.is_empty()).then_some(NextLine { bytes, cut }))
    }
}

struct NextLine<'a> {
    bytes: &'a [u8],
    cut: bool,
}

impl<R: BufRead> Iterator for MapsText<R> {
    type Item = Result<MapsEntry, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = self.all;
        while !self.ended {
            let NextLine { bytes, cut } = match self.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return None,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(super::errno_of(&error)));
                }
            };
            if bytes.is_empty() {
                continue;
            }
            let Some(MapsLine { start, end, executable, offset, inode, path }) = MapsLine::parse(bytes)
            else {
                self.rejected += 1;
                continue;
            };
            let wanted = executable || all;
            let path: Option<Arc<Path>> =
                wanted.then(|| Arc::from(bytes_path(&unescape(if cut { b"" } else { path }))));
            if offset == 0 && inode.ino != 0 {
                self.beginning = Some((inode, start));
            }
            if let Some(path) = path {
                return Some(Ok(MapsEntry { start, end, offset, inode, path, executable }));
            }
        }
        None
    }
}

/// The result of [`parse_maps`].
#[derive(Debug)]
pub struct ParsedMaps {
    /// The executable mappings, in ascending order of addresses.
    pub entries: Vec<MapsEntry>,
    /// Number of lines that could not be parsed.
    pub rejected: usize,
}

/// Parses the executable mappings in a text.
#[must_use]
pub fn parse_maps(bytes: &[u8]) -> ParsedMaps {
    let mut text = MapsText::new(bytes);
    let entries = text.by_ref().flatten().collect();
    ParsedMaps { entries, rejected: text.rejected }
}

/// All mappings in a text.
#[cfg(test)]
pub(super) fn parse_all_maps(bytes: &[u8]) -> Vec<MapsEntry> {
    MapsText::of_all(bytes).flatten().collect()
}

/// A line of `/proc/PID/maps`.
struct MapsLine<'a> {
    start: u64,
    end: u64,
    executable: bool,
    offset: u64,
    inode: Inode,
    path: &'a [u8],
}

impl MapsLine<'_> {
    fn parse(line: &[u8]) -> Option<MapsLine<'_>> {
        let mut fields = line.splitn(6, |&b| b == b' ');
        let (start, end) = split_once(fields.next()?, b'-')?;
        let (start, end) = (hex(start)?, hex(end)?);
        let protection = fields.next()?;
        let offset = hex(fields.next()?)?;
        let (major, minor) = split_once(fields.next()?, b':')?;
        let (major, minor) = (u32::try_from(hex(major)?).ok()?, u32::try_from(hex(minor)?).ok()?);
        let ino = decimal(fields.next()?)?;
        // The kernel pads with blanks up to column 73. A path could begin with a blank only if it were relative, which
        // it never is.
        let path = fields.next().unwrap_or_default().trim_ascii_start();
        let executable = *protection.get(2)? == b'x';
        let inode = Inode { major, minor, ino, generation: 0 };
        (protection.len() == 4 && start < end).then_some(MapsLine {
            start,
            end,
            executable,
            offset,
            inode,
            path,
        })
    }
}

/// Undoes the kernel's escaping: a newline in a path is written as `\012`, and nothing else is changed.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            out.push(b'\n');
            rest = after;
        } else {
            out.push(byte);
            rest = after;
        }
    }
    out
}

fn split_once(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let i = bytes.iter().position(|&b| b == at)?;
    Some((&bytes[..i], &bytes[i + 1..]))
}

#[cfg(test)]
mod tests {
    use rustix::fs::open;

    use super::*;

    fn own() -> std::os::fd::OwnedFd {
        open("/proc/self", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn lines(text: &[u8]) -> MapsText<&[u8]> {
        MapsText::new(text)
    }

    #[test]
    fn executable_lines() {
        let text = b"55e0a000-55e0b000 r--p 00000000 fd:01 1234                       /usr/bin/x\n\
            55e0b000-55e0c000 r-xp 00001000 fd:01 1234                       /usr/bin/a b\\012c (deleted)\n\
            7f00-7f10 --xs 00000000 00:00 0\n\
            7ffd0000-7ffd2000 r-xp 00000000 00:00 0                          [vdso]\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
        let ParsedMaps { entries, rejected } = parse_maps(text);
        assert_eq!(rejected, 0);
        let paths: Vec<_> = entries.iter().map(|entry| entry.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/usr/bin/a b\nc (deleted)", "", "[vdso]", "[vsyscall]"]);
        let inode = Inode { major: 0xfd, minor: 1, ino: 1234, generation: 0 };
        let first = &entries[0];
        assert_eq!(
            (first.start, first.end, first.offset, first.inode),
            (0x55e0_b000, 0x55e0_c000, 0x1000, inode)
        );
        let all = parse_all_maps(text);
        assert_eq!((all.len(), all[0].executable, &all[1..]), (5, false, &entries[..]));
    }

    #[test]
    fn lines_that_are_no_mappings_are_counted() {
        let text = b"garbage\n10-20 r-xp 0 0:0\n20-10 r-xp 0 0:0 0\n+1-20 r-xp 0 0:0 0\n10-20 r-x 0 0:0 0\n\
            10-20 r-xp 0 100000000:0 0\n11111111111111111-2 r-xp 0 0:0 0\n10-20 r-xp 0 0:0 5 /ok\n10-20 r-xp 0 0:";
        let ParsedMaps { entries, rejected } = parse_maps(text);
        assert_eq!((entries.len(), rejected), (1, 8));
    }

    #[test]
    fn a_name_that_is_too_long_forges_no_line() {
        let false_line = "30-40 r-xp 0 0:0 9 /forged";
        for before in 0..40 {
            let filler = "x".repeat(usize::try_from(MAX_LINE).unwrap() - before);
            let text = format!("10-20 r-xp 0 0:0 5 /{filler}{false_line}\n50-60 r-xp 0 0:0 6 /next\n");
            let ParsedMaps { entries, rejected } = parse_maps(text.as_bytes());
            let found: Vec<_> = entries.iter().map(|e| (e.start, e.path.to_str().unwrap())).collect();
            assert_eq!((&found[..], rejected), (&[(0x10, ""), (0x50, "/next")][..], 0), "{before}");
        }
    }

    #[test]
    fn mappings_beyond_any_size_of_the_text_are_found_in_little_memory() {
        let line =
            b"7f0000000000-7f0000001000 r--s 00000000 fd:01 77  /var/lib/search/segments/0123456789.cfs\n";
        let last = b"7fff00000000-7fff00001000 r-xp 00001000 fd:01 78  /usr/lib/libc.so\n";
        let many = std::io::repeat(0).take(400_000 * line.len() as u64);
        // Repeats a line: each byte of the endless text is the one at its place in the line.
        struct RepeatedLine<R>(R, &'static [u8], usize);
        impl<R: std::io::Read> std::io::Read for RepeatedLine<R> {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let got = self.0.read(buffer)?;
                for byte in &mut buffer[..got] {
                    *byte = self.1[self.2 % self.1.len()];
                    self.2 += 1;
                }
                Ok(got)
            }
        }
        let text = BufReader::with_capacity(BUFFER, RepeatedLine(many, line, 0).chain(&last[..]));
        let mut maps = MapsText::new(text);
        let found: Vec<_> = maps.by_ref().map(Result::unwrap).collect();
        assert_eq!((found.len(), found[0].start, maps.rejected), (1, 0x7fff_0000_0000, 0));
        assert!(maps.line.capacity() < 1 << 16);
    }

    #[test]
    fn a_file_begins_at_the_nearest_mapping_below() {
        let text = b"1000-2000 r--s 00000000 08:01 9 /x/lib.so\n\
            7000-8000 r--p 00000000 08:01 9 /opt/lib.so\n\
            8000-9000 r-xp 00001000 08:01 9 /opt/lib.so\n\
            9000-a000 r-xp 00000000 08:01 7 /opt/other.so\n\
            b000-c000 r-xp 00001000 08:01 5 /opt/cut.so\n";
        let mut maps = lines(text);
        let mut beginnings = Vec::new();
        while let Some(Ok(entry)) = maps.next() {
            beginnings.push(maps.beginning.filter(|(inode, _)| *inode == entry.inode).map(|(_, at)| at));
        }
        assert_eq!(beginnings, [Some(0x7000), Some(0x9000), None]);
    }

    #[test]
    fn what_the_kernel_is_asked_for_and_its_text_agree() {
        let all = |maps: Maps| maps.map(Result::unwrap).filter(|e| &*e.path != Path::new("[vsyscall]"));
        let asked: Vec<_> = all(Maps::open(own().as_fd()).unwrap()).collect();
        let text: Vec<_> = all(Maps::read(super::open(own().as_fd()).unwrap())).collect();
        // Other tests map and unmap memory: it is enough to compare what both readings saw.
        assert!(asked.len() >= 2, "{asked:?}");
        assert!(asked.iter().filter(|entry| text.contains(entry)).count() >= 2, "{asked:?}\n{text:?}");
    }

    #[test]
    fn the_beginning_of_our_own_program() {
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        for read in [false, true] {
            let mut maps = Maps::open(own().as_fd()).unwrap();
            if read {
                maps = Maps::read(super::open(own().as_fd()).unwrap());
            }
            let entry = maps.by_ref().flatten().find(|entry| *entry.path == *exe).unwrap();
            let begin = maps.beginning(&entry).unwrap();
            assert!(begin < entry.start && entry.offset > 0, "{begin:x} {entry:x?}");
        }
    }
}
