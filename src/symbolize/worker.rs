//! The child process that reads what tenants wrote: ELF files, perf maps, JVMs' logs. It may die at any time; the broker then
//! starts another one and sends it what it needs.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::elf::Elf;
use super::frame_rules::{self, NoTable};
use super::function::{Called, Function};
use super::java_log::{JavaLog, JavaSource};
use super::java_memory::JavaMemory;
use super::memory;
use super::message::{
    DebugKind, FileFacts, JitPc, Kept, Label, MAX_MESSAGE, Name, NamesBuilder, Request, Response, TableBytes,
};
use super::native::Native;
use super::perfmap::PerfMap;
use super::sandbox;
use crate::process::channel::{Channel, ChannelError};
use crate::profile::{Kind, Why};
use crate::unwind::{TablePart, TableWindow};

/// The hidden first argument that makes a worker of this binary.
pub const ARGUMENT: &str = "__worker";

/// Entry of the child process; its standard input is the socket to the broker. Returns the exit code: 0 when the
/// broker has closed the socket.
#[must_use]
pub fn main() -> i32 {
    if sandbox::enter().is_err() {
        return 1;
    }
    match serve(&Channel(rustix::stdio::stdin())) {
        Ok(()) => 0,
        Err(_) => 1,
    }
}

/// Files that hold DWARF that was read between requests.
const MAX_RECENT: usize = 4;

fn serve(channel: &Channel<BorrowedFd<'_>>) -> Result<(), ChannelError> {
    let mut worker = Worker::default();
    loop {
        let (request, mut descriptors) = match channel.receive(MAX_MESSAGE, None) {
            Ok(received) => received,
            Err(ChannelError::Closed) => return Ok(()),
            Err(e) => return Err(e),
        };
        channel.send(&worker.answer(request, descriptors.pop()), &[], None)?;
    }
}

/// What the worker has been given.
#[derive(Default)]
struct Worker {
    files: HashMap<u64, Native>,
    /// Those that hold DWARF that was read: the few that were asked for last, the last one last.
    recent: Vec<u64>,
    maps: HashMap<u64, (File, PerfMap)>,
    jvms: HashMap<u64, Box<dyn JavaSource>>,
}

impl Worker {
    fn answer(&mut self, request: Request, descriptor: Option<OwnedFd>) -> Response {
        match (request, descriptor) {
            (Request::Open { file }, Some(fd)) => Response::File(self.open(file, fd)),
            (Request::Debug { file, kind }, Some(fd)) => Response::File(self.add_debug(file, kind, fd)),
            (Request::Names { file, offsets, lines }, None) => self.names(file, &offsets, lines),
            (Request::PerfMap { map }, fd) => self.read_map(map, fd),
            (Request::Jit { map, addresses, raw }, None) => match self.maps.get(&map) {
                Some((_, perf_map)) => jit(perf_map, &addresses, raw),
                None => Response::Refused,
            },
            (Request::ReadLog { jvm, follow: Some(follow) }, Some(fd)) => {
                self.begin(jvm, Box::new(JavaLog::new(File::from(fd), follow)))
            }
            (Request::ReadMemory { jvm, watch: Some(watch) }, Some(fd)) => {
                self.begin(jvm, Box::new(JavaMemory::new(File::from(fd), *watch)))
            }
            (Request::ReadLog { jvm, follow: None } | Request::ReadMemory { jvm, watch: None }, None) => {
                self.jvms.get_mut(&jvm).map_or(Response::Refused, |source| source.read())
            }
            (Request::Java { jvm, lookups }, None) => {
                self.jvms.get_mut(&jvm).map_or(Response::Refused, |source| source.names(&lookups))
            }
            (Request::Methods { jvm, lookups }, None) => {
                self.jvms.get_mut(&jvm).map_or(Response::Refused, |source| source.methods(&lookups))
            }
            (Request::Threads { jvm, numbers }, None) => {
                self.jvms.get_mut(&jvm).map_or(Response::Refused, |source| source.threads(&numbers))
            }
            (Request::Forget(kept), None) => {
                self.forget(kept);
                Response::Done
            }
            (Request::UnwindTable { around }, Some(fd)) => Response::UnwindTable(unwind_table(fd, around)),
            _ => Response::Refused,
        }
    }

    /// What is closed here keeps no file system from being unmounted, and no space of a deleted file.
    fn forget(&mut self, kept: Kept) {
        match kept {
            Kept::File(file) => {
                self.files.remove(&file);
                self.recent.retain(|&recent| recent != file);
            }
            Kept::PerfMap(map) => drop(self.maps.remove(&map)),
            Kept::Jvm(jvm) => drop(self.jvms.remove(&jvm)),
        }
    }

    fn begin(&mut self, jvm: u64, source: Box<dyn JavaSource>) -> Response {
        self.jvms.entry(jvm).insert_entry(source).get_mut().read()
    }

    fn names(&mut self, file: u64, offsets: &[u64], lines: bool) -> Response {
        let Some(native) = self.files.get(&file) else { return Response::Refused };
        let names = names(native, offsets, lines);
        let holds_lines = native.rest();
        memory::give_back_files();
        self.recent.retain(|&recent| recent != file);
        if holds_lines {
            self.recent.push(file);
        }
        if self.recent.len() > MAX_RECENT {
            let oldest = self.recent.remove(0);
            self.files.get(&oldest).into_iter().for_each(Native::forget_lines);
        }
        names
    }

    fn open(&mut self, number: u64, fd: OwnedFd) -> Result<FileFacts, Why> {
        let native = Native::open(File::from(fd)).map_err(|_| Why::BadFile)?;
        let facts = native.facts();
        self.files.insert(number, native);
        Ok(facts)
    }

    fn add_debug(&mut self, number: u64, kind: DebugKind, fd: OwnedFd) -> Result<FileFacts, Why> {
        let native = self.files.get_mut(&number).ok_or(Why::BadFile)?;
        let file = File::from(fd);
        let added = match kind {
            DebugKind::Stripped => native.add_debug_file(file),
            DebugKind::Shared => native.add_alternate(file),
            DebugKind::Package => {
                native.add_package(file);
                Ok(())
            }
        };
        added.map_err(|_| Why::BadFile)?;
        Ok(native.facts())
    }

    fn read_map(&mut self, number: u64, fd: Option<OwnedFd>) -> Response {
        if let Some(fd) = fd {
            self.maps.insert(number, (File::from(fd), PerfMap::default()));
        }
        match self.maps.get_mut(&number) {
            Some((file, map)) => Response::PerfMap(map.read(file)),
            None => Response::Refused,
        }
    }
}

/// Nothing of the file is kept: it is seldom asked for again.
fn unwind_table(fd: OwnedFd, around: Option<u64>) -> Result<TableBytes, NoTable> {
    let elf = Elf::read(File::from(fd)).map_err(|_| NoTable::BadFile)?;
    let TablePart { table, window: TableWindow { start, end } } = frame_rules::table(&elf, around)?;
    Ok(TableBytes { bytes: table.into_bytes(), start, end })
}

fn names(native: &Native, offsets: &[u64], lines: bool) -> Response {
    let mut names = NamesBuilder::default();
    for (functions, &offset) in native.functions_at(offsets, lines).into_iter().zip(offsets) {
        let place = native.address_of(offset).filter(|_| functions == Err(Why::NoSymbol));
        let nameless = place.map(|place| vec![Name::nameless(place)]);
        let answer = functions.map(|functions| {
            let name = |f: Function| Name {
                kind: f.kind,
                label: match f.called {
                    Called::Name(name) => Label::Text(names.text(&name)),
                    Called::Start(start) => Label::Start(start),
                },
                file: f.file.map(|file| names.text(&file)),
                line: f.line,
                bci: None,
            };
            functions.into_iter().map(name).collect()
        });
        if !names.answer(nameless.map_or(answer, Ok)) {
            break;
        }
    }
    Response::Names(names.finish())
}

fn jit(map: &PerfMap, addresses: &[JitPc], raw: bool) -> Response {
    let mut names = NamesBuilder::default();
    for &JitPc { pc, earlier } in addresses {
        let answer = map.find(pc, raw, earlier).map(|name| {
            let label = Label::Text(names.text(&name));
            vec![Name { kind: Kind::Jit, label, file: None, line: 0, bci: None }]
        });
        if !names.answer(answer) {
            break;
        }
    }
    Response::Names(names.finish())
}
