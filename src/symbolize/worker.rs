//! The worker: a child process that reads data of tenants: ELF files, perf maps, JVMs' logs and memory. The worker may
//! die at any time; the broker then starts another one and sends the needed objects again.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::elf::Elf;
use super::frame_rules::{self, NoTable};
use super::function::{FunctionName, NativeFunction};
use super::java_log::{JavaLog, JavaSource};
use super::java_memory::JavaMemory;
use super::memory;
use super::message::{
    DebugKind, FileFacts, JitLookup, MAX_MESSAGE, TableBytes, WorkerObject, WorkerRequest, WorkerResponse,
};
use super::name_answers::{FunctionLabel, Name, NameAnswersBuilder};
use super::native::Native;
use super::outside_memory::unwind_threads;
use super::perfmap::PerfMap;
use super::process_context;
use super::sandbox;
use super::thread_local;
use crate::process::channel::{Channel, ChannelError, Received};
use crate::profile::{Kind, UnknownReason};
use crate::unwind::{TablePart, TableRange};

/// The hidden first argument that makes this binary a worker.
pub const ARGUMENT: &str = "__worker";

/// Entry point of the child process; its standard input is the socket to the broker. Returns the exit code: 0 when the
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

/// Files that may hold their DWARF between requests.
const MAX_RECENT: usize = 4;

fn serve(channel: &Channel<BorrowedFd<'_>>) -> Result<(), ChannelError> {
    let mut worker = Worker::default();
    loop {
        let Received { message, descriptors } = match channel.receive(MAX_MESSAGE, None) {
            Ok(received) => received,
            Err(ChannelError::Closed) => return Ok(()),
            Err(e) => return Err(e),
        };
        let response = match message {
            WorkerRequest::Unwind { space, threads } => unwind_threads(descriptors, space, &threads),
            other => worker.answer(other, descriptors.into_iter().next_back()),
        };
        channel.send(&response, &[], None)?;
    }
}

/// The objects that the worker was given.
#[derive(Default)]
struct Worker {
    files: HashMap<u64, Native>,
    /// Files that hold DWARF, in the order of their last use.
    recent: Vec<u64>,
    maps: HashMap<u64, (File, PerfMap)>,
    jvms: HashMap<u64, Box<dyn JavaSource>>,
}

impl Worker {
    fn answer(&mut self, request: WorkerRequest, descriptor: Option<OwnedFd>) -> WorkerResponse {
        match (request, descriptor) {
            (WorkerRequest::Open { file }, Some(fd)) => WorkerResponse::File(self.open(file, fd)),
            (WorkerRequest::Debug { file, kind }, Some(fd)) => {
                WorkerResponse::File(self.add_debug(file, kind, fd))
            }
            (WorkerRequest::Names { file, offsets, lines }, None) => self.names(file, &offsets, lines),
            (WorkerRequest::PerfMap { map }, fd) => self.read_map(map, fd),
            (WorkerRequest::Jit { map, addresses, raw }, None) => match self.maps.get(&map) {
                Some((_, perf_map)) => jit(perf_map, &addresses, raw),
                None => WorkerResponse::Refused,
            },
            (WorkerRequest::ReadLog { jvm, follow: Some(follow) }, Some(fd)) => {
                self.add_jvm(jvm, Box::new(JavaLog::new(File::from(fd), follow)))
            }
            (WorkerRequest::ReadMemory { jvm, watch: Some(watch) }, Some(fd)) => {
                self.add_jvm(jvm, Box::new(JavaMemory::new(File::from(fd), *watch)))
            }
            (
                WorkerRequest::ReadLog { jvm, follow: None } | WorkerRequest::ReadMemory { jvm, watch: None },
                None,
            ) => self.jvms.get_mut(&jvm).map_or(WorkerResponse::Refused, |source| source.read()),
            (WorkerRequest::Java { jvm, lookups }, None) => {
                self.jvms.get_mut(&jvm).map_or(WorkerResponse::Refused, |source| source.names(&lookups))
            }
            (WorkerRequest::Methods { jvm, lookups }, None) => {
                self.jvms.get_mut(&jvm).map_or(WorkerResponse::Refused, |source| source.methods(&lookups))
            }
            (WorkerRequest::Threads { jvm, numbers }, None) => {
                self.jvms.get_mut(&jvm).map_or(WorkerResponse::Refused, |source| source.threads(&numbers))
            }
            (WorkerRequest::Owners { jvm, waiters }, None) => {
                self.jvms.get_mut(&jvm).map_or(WorkerResponse::Refused, |source| source.owners(&waiters))
            }
            (WorkerRequest::Classes { jvm, lookups }, None) => {
                self.jvms.get_mut(&jvm).map_or(WorkerResponse::Refused, |source| source.classes(&lookups))
            }
            (WorkerRequest::Forget(kept), None) => {
                self.forget(kept);
                WorkerResponse::Done
            }
            (WorkerRequest::UnwindTable { around }, Some(fd)) => {
                WorkerResponse::UnwindTable(unwind_table(fd, around))
            }
            (WorkerRequest::ThreadLocal { name }, Some(fd)) => {
                let elf = Elf::read(File::from(fd)).ok();
                WorkerResponse::ThreadLocal(elf.and_then(|elf| thread_local::find(&elf, &name).ok()?))
            }
            (WorkerRequest::ProcessContext { payload }, None) => {
                WorkerResponse::ProcessContext(process_context::decode(&payload))
            }
            _ => WorkerResponse::Refused,
        }
    }

    /// Closed files do not keep their file systems from being unmounted; deleted files free their disk space.
    fn forget(&mut self, kept: WorkerObject) {
        match kept {
            WorkerObject::File(file) => {
                self.files.remove(&file);
                self.recent.retain(|&recent| recent != file);
            }
            WorkerObject::PerfMap(map) => drop(self.maps.remove(&map)),
            WorkerObject::Jvm(jvm) => drop(self.jvms.remove(&jvm)),
        }
    }

    fn add_jvm(&mut self, jvm: u64, source: Box<dyn JavaSource>) -> WorkerResponse {
        self.jvms.entry(jvm).insert_entry(source).get_mut().read()
    }

    fn names(&mut self, file: u64, offsets: &[u64], lines: bool) -> WorkerResponse {
        let Some(native) = self.files.get(&file) else { return WorkerResponse::Refused };
        let names = names(native, offsets, lines);
        let holds_lines = native.trim();
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

    fn open(&mut self, number: u64, fd: OwnedFd) -> Result<FileFacts, UnknownReason> {
        let native = Native::open(File::from(fd)).map_err(|_| UnknownReason::BadFile)?;
        let facts = native.facts();
        self.files.insert(number, native);
        Ok(facts)
    }

    fn add_debug(&mut self, number: u64, kind: DebugKind, fd: OwnedFd) -> Result<FileFacts, UnknownReason> {
        let native = self.files.get_mut(&number).ok_or(UnknownReason::BadFile)?;
        let file = File::from(fd);
        let added = match kind {
            DebugKind::Stripped => native.add_debug_file(file),
            DebugKind::Shared => native.add_alternate(file),
            DebugKind::Package => {
                native.add_package(file);
                Ok(())
            }
        };
        added.map_err(|_| UnknownReason::BadFile)?;
        Ok(native.facts())
    }

    fn read_map(&mut self, number: u64, fd: Option<OwnedFd>) -> WorkerResponse {
        if let Some(fd) = fd {
            self.maps.insert(number, (File::from(fd), PerfMap::default()));
        }
        match self.maps.get_mut(&number) {
            Some((file, map)) => WorkerResponse::PerfMap(map.read(file)),
            None => WorkerResponse::Refused,
        }
    }
}

/// The file is not kept, because it is seldom needed again.
fn unwind_table(fd: OwnedFd, around: Option<u64>) -> Result<TableBytes, NoTable> {
    let elf = Elf::read(File::from(fd)).map_err(|_| NoTable::BadFile)?;
    let TablePart { table, range: TableRange { start, end } } = frame_rules::table(&elf, around)?;
    Ok(TableBytes { bytes: table.into_bytes(), start, end })
}

fn names(native: &Native, offsets: &[u64], lines: bool) -> WorkerResponse {
    let mut names = NameAnswersBuilder::default();
    for (functions, &offset) in native.functions_at(offsets, lines).into_iter().zip(offsets) {
        let nameless = |why| {
            let place = native.address_of(offset).filter(|_| why == UnknownReason::NoSymbol);
            place.map(|place| vec![Name::nameless(place)]).ok_or(why)
        };
        let answer = functions.map(|functions| {
            let name = |f: NativeFunction| Name {
                kind: f.kind,
                label: match f.called {
                    FunctionName::Name(name) => FunctionLabel::Text(names.text(&name)),
                    FunctionName::Start(start) => FunctionLabel::Start(start),
                },
                file: f.file.map(|file| names.text(&file)),
                line: f.line,
                bci: None,
            };
            functions.into_iter().map(name).collect()
        });
        if !names.answer(answer.or_else(nameless)) {
            break;
        }
    }
    WorkerResponse::Names(names.finish())
}

fn jit(map: &PerfMap, addresses: &[JitLookup], raw: bool) -> WorkerResponse {
    let mut names = NameAnswersBuilder::default();
    for &JitLookup { pc, earlier } in addresses {
        let answer = map.find(pc, raw, earlier).map(|name| {
            let label = FunctionLabel::Text(names.text(&name));
            vec![Name { kind: Kind::Jit, label, file: None, line: 0, bci: None }]
        });
        if !names.answer(answer) {
            break;
        }
    }
    WorkerResponse::Names(names.finish())
}
