//! The broker's side of native names: which files the worker has, which ones it must not be given again.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};

use super::child::{Child, Lost};
use super::frames::{Frames, Shared, unknown};
use super::message::{FileFacts, Kept, Request, Response};
use super::place::FileHandle;
use crate::process::{FileId, FileUse};
use crate::profile::Why;
use crate::profile::frame::Module;

/// Offsets in one request.
const BATCH: usize = 4096;
/// Descriptors that one worker is given; then it is replaced. Each file needs up to three.
const MAX_DESCRIPTORS: usize = 900;
/// Files that are remembered as bad.
const MAX_BAD: usize = 4096;

/// Why one attempt to read a file ended.
enum Failure {
    /// The file is at fault, or absent: another attempt would end the same way.
    File(Why),
    /// The worker was lost over it.
    Worker(Lost),
}

#[derive(Debug)]
struct FileState {
    module: Arc<Module>,
    /// The worker that has it.
    generation: u64,
    /// Whether it must keep it; none of an image of our own.
    usage: Option<FileUse>,
    bad: Option<Why>,
}

/// Files and the worker that reads them.
#[derive(Debug)]
pub(crate) struct Files {
    files: HashMap<FileId, FileState>,
    debug_dir: PathBuf,
    shared: Shared,
    /// Workers that were lost over a file.
    pub(crate) lost: u64,
    /// Files that were given up because workers were lost over them.
    pub(crate) poisoned: u64,
}

impl Files {
    pub(crate) fn new(debug_dir: PathBuf) -> Files {
        Files { files: HashMap::new(), debug_dir, shared: Shared::default(), lost: 0, poisoned: 0 }
    }

    /// The frames at `offsets` of a file, in order. A worker that dies over it is replaced, and the file tried once
    /// more; a file over which two die, or one is too slow, is not read again.
    pub(crate) fn frames(
        &mut self,
        child: &mut Child,
        (id, file): (FileId, &FileHandle),
        offsets: &[u64],
    ) -> Vec<Frames> {
        let mut frames = Vec::with_capacity(offsets.len());
        let mut lost = 0;
        let mut why = self.state(id, file).bad;
        while frames.len() < offsets.len() && why.is_none() {
            let rest = &offsets[frames.len()..];
            match self.attempt(child, (id, file), &rest[..rest.len().min(BATCH)]) {
                Ok(more) => frames.extend(more),
                Err(Failure::File(w)) => why = Some(w),
                Err(Failure::Worker(Lost::NotAsked)) => why = Some(Why::WorkerFailed),
                Err(Failure::Worker(how)) => {
                    self.lost += 1;
                    lost += 1;
                    if lost > 1 || how == Lost::TooSlow {
                        self.poisoned += 1;
                        why = Some(Why::WorkerFailed);
                        self.state(id, file).bad = why;
                    }
                }
            }
        }
        let module = Arc::clone(&self.state(id, file).module);
        let unknown = |&offset: &u64| unknown(why.unwrap_or(Why::NoSymbol), Some(&module), offset);
        let missing: Vec<Frames> = offsets[frames.len()..].iter().map(unknown).collect();
        frames.extend(missing);
        frames
    }

    /// Forgets the names that nobody uses any more.
    pub(crate) fn tidy(&mut self) {
        self.shared.tidy();
    }

    fn state(&mut self, id: FileId, file: &FileHandle) -> &mut FileState {
        self.files.entry(id).or_insert_with(|| FileState {
            module: Arc::new(file.module()),
            generation: 0,
            usage: None,
            bad: None,
        })
    }

    /// Has the worker close files that no process maps any more: they would keep their file systems from being unmounted,
    /// and what was deleted would keep its space.
    pub(crate) fn forget_unmapped(&mut self, child: &mut Child) {
        let unmapped = |state: &mut FileState| {
            state.bad.is_none() && state.usage.as_ref().is_some_and(|usage| !usage.is_mapped())
        };
        for (id, state) in self.files.extract_if(|_, state| unmapped(state)) {
            child.forget(state.generation, Kept::File(id.0));
        }
        // What is bad is remembered as long as there is room.
        if self.files.len() > MAX_BAD {
            self.files.retain(|_, state| state.bad.is_none() && state.generation == child.generation());
        }
    }

    fn attempt(
        &mut self,
        child: &mut Child,
        (id, file): (FileId, &FileHandle),
        offsets: &[u64],
    ) -> Result<Vec<Frames>, Failure> {
        self.give(child, id, file)?;
        let module = Arc::clone(&self.state(id, file).module);
        let request = Request::Names { file: id.0, offsets: offsets.to_vec() };
        match child.ask(&request, &[]).map_err(Failure::Worker)? {
            Response::Names(names) if !names.answers.is_empty() => {
                let frames = self.shared.frames(&names, offsets, Some(&module)).into_iter().zip(offsets);
                Ok(frames
                    .map(|(frames, &offset)| frames.unwrap_or_else(|why| unknown(why, Some(&module), offset)))
                    .collect())
            }
            _ => Err(Failure::File(Why::WorkerFailed)),
        }
    }

    /// Sees to it that the worker has the file and its debug files.
    fn give(&mut self, child: &mut Child, id: FileId, file: &FileHandle) -> Result<(), Failure> {
        if self.state(id, file).generation == child.generation() {
            return Ok(());
        }
        let fd = file.fd().map_err(Failure::File)?;
        if child.descriptors() > MAX_DESCRIPTORS {
            child.restart();
            self.forget_good();
        }
        let facts = match ask_file(child, &Request::Open { file: id.0 }, &*fd) {
            Err(Failure::File(why)) => {
                self.state(id, file).bad = Some(why);
                return Err(Failure::File(why));
            }
            answer => answer?,
        };
        let facts = self.give_debug_files(child, id, facts)?;
        let generation = child.generation();
        let state = self.state(id, file);
        state.generation = generation;
        state.usage = match file {
            FileHandle::Mapped(file) => file.usage(),
            FileHandle::Image { .. } => None,
        };
        let build_id = facts.build_id.map(Arc::from);
        if state.module.build_id != build_id || state.module.traits != facts.traits {
            let path = Arc::clone(&state.module.path);
            state.module = Arc::new(Module { path, build_id, traits: facts.traits });
        }
        Ok(())
    }

    fn give_debug_files(
        &mut self,
        child: &mut Child,
        id: FileId,
        mut facts: FileFacts,
    ) -> Result<FileFacts, Failure> {
        for alternate in [false, true] {
            let wanted = if alternate {
                facts.alternate.as_deref()
            } else {
                facts.build_id.as_deref().filter(|_| facts.wants_debug_file)
            };
            let Some(fd) = wanted.and_then(|id| open_debug_file(&self.debug_dir, id)) else { continue };
            match ask_file(child, &Request::Debug { file: id.0, alternate }, &fd) {
                Ok(more) => facts = more,
                // Debug information that does not fit is done without.
                Err(Failure::File(_)) => {}
                Err(lost) => return Err(lost),
            }
        }
        Ok(facts)
    }

    fn forget_good(&mut self) {
        self.files.retain(|_, state| state.bad.is_some());
        if self.files.len() > MAX_BAD {
            self.files.clear();
        }
    }
}

fn ask_file(child: &mut Child, request: &Request, fd: &impl AsFd) -> Result<FileFacts, Failure> {
    match child.ask(request, &[fd.as_fd()]).map_err(Failure::Worker)? {
        Response::File(facts) => facts.map_err(Failure::File),
        _ => Err(Failure::File(Why::WorkerFailed)),
    }
}

/// The separate debug file of a build id: `DIR/.build-id/xx/yyyy.debug`, a regular file of root's that nobody else may
/// write. Only the name comes from a tenant, and it is hex.
fn open_debug_file(dir: &Path, build_id: &[u8]) -> Option<OwnedFd> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let hex: String = rest.iter().map(|b| format!("{b:02x}")).collect();
    let path = dir.join(format!(".build-id/{first:02x}/{hex}.debug"));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = std::fs::File::from(open(path, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok()?;
    let trusted = meta.is_file()
        && meta.mode() & 0o022 == 0
        && (meta.uid() == 0 || !rustix::process::getuid().is_root());
    trusted.then(|| file.into())
}
