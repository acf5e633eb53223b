//! The broker's part of native names: which files the worker has, and which files it must not get again.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::child::{WorkerLoss, WorkerProcess};
use super::debug_files;
use super::frames::{FrameChain, FrameInterner, unknown};
use super::lookup::WantedFile;
use super::message::{DebugKind, FileFacts, WorkerObject, WorkerRequest, WorkerResponse};
use super::place::{AddressSpaces, FileHandle};
use crate::process::{FileId, FileUse};
use crate::profile::UnknownReason;
use crate::profile::frame::Module;

/// Offsets in one request.
const BATCH: usize = 4096;
/// Descriptors given to one worker before it is replaced. The worker holds up to five for each.
const MAX_DESCRIPTORS: usize = 700;
/// Bad files that are remembered.
const MAX_BAD: usize = 4096;

/// Why an attempt to read a file failed.
enum FileReadError {
    /// The file is at fault, or absent: another attempt would fail in the same way.
    File(UnknownReason),
    /// The worker was lost over the file.
    Worker(WorkerLoss),
}

#[derive(Debug)]
struct WorkerFileState {
    module: Arc<Module>,
    /// Generation of the worker that has the file.
    generation: u64,
    /// Shows whether a process still maps the file; `None` for an image of our own.
    usage: Option<FileUse>,
    bad: Option<UnknownReason>,
    /// Workers were lost over the file, so its DWARF is no longer read.
    no_lines: bool,
}

/// The files that the symbolizer knows, and their state in the worker.
#[derive(Debug)]
pub(crate) struct NativeFiles {
    files: HashMap<FileId, WorkerFileState>,
    debug_dir: PathBuf,
    shared: FrameInterner,
    /// Workers that were lost over a file.
    pub(crate) lost: u64,
    /// Files that are no longer read, because workers were lost over them.
    pub(crate) poisoned: u64,
}

impl NativeFiles {
    pub(crate) fn new(debug_dir: PathBuf) -> NativeFiles {
        NativeFiles {
            files: HashMap::new(),
            debug_dir,
            shared: FrameInterner::default(),
            lost: 0,
            poisoned: 0,
        }
    }

    /// The frames at the wanted offsets of a file, in order. If a worker dies over the file, the next one tries once
    /// more. If that one dies too, or one is too slow, the file's DWARF is no longer read. If another worker is lost
    /// after that, the file is not read again.
    pub(crate) fn frames(
        &mut self,
        child: &mut WorkerProcess,
        spaces: &mut impl AddressSpaces,
        id: FileId,
        wanted: &WantedFile,
    ) -> Vec<FrameChain> {
        let WantedFile { file, offsets, .. } = wanted;
        let mut frames = Vec::with_capacity(offsets.len());
        let mut lost = 0;
        let mut why = self.state(id, file).bad;
        while frames.len() < offsets.len() && why.is_none() {
            let rest = &offsets[frames.len()..];
            match self.attempt(child, spaces, id, wanted, &rest[..rest.len().min(BATCH)]) {
                Ok(more) => frames.extend(more),
                Err(FileReadError::File(w)) => why = Some(w),
                Err(FileReadError::Worker(WorkerLoss::NotAsked)) => why = Some(UnknownReason::WorkerFailed),
                Err(FileReadError::Worker(how)) => {
                    self.lost += 1;
                    lost += 1;
                    let gives_up = lost > 1 || how == WorkerLoss::TooSlow;
                    let state = self.state(id, file);
                    if gives_up && state.no_lines {
                        why = Some(UnknownReason::WorkerFailed);
                        state.bad = why;
                        self.poisoned += 1;
                    } else if gives_up {
                        state.no_lines = true;
                        log::warn!(
                            "symbols: {} has no lines and inlined functions, because workers crashed or timed out while reading it",
                            state.module.path
                        );
                    }
                }
            }
        }
        let module = Arc::clone(&self.state(id, file).module);
        let unknown = |&offset: &u64| unknown(why.unwrap_or(UnknownReason::NoSymbol), Some(&module), offset);
        let missing: Vec<FrameChain> = offsets[frames.len()..].iter().map(unknown).collect();
        frames.extend(missing);
        frames
    }

    /// Evicts names that are no longer used.
    pub(crate) fn evict_unused(&mut self) {
        self.shared.evict_unused();
    }

    fn state(&mut self, id: FileId, file: &FileHandle) -> &mut WorkerFileState {
        self.files.entry(id).or_insert_with(|| WorkerFileState {
            module: Arc::new(file.module()),
            generation: 0,
            usage: None,
            bad: None,
            no_lines: false,
        })
    }

    /// Makes the worker close files that no process maps any more. Open files would keep their file systems from being
    /// unmounted, and deleted files would keep their disk space.
    pub(crate) fn forget_unmapped(&mut self, child: &mut WorkerProcess) {
        let unmapped = |state: &mut WorkerFileState| {
            state.bad.is_none() && state.usage.as_ref().is_some_and(|usage| !usage.is_mapped())
        };
        for (id, state) in self.files.extract_if(|_, state| unmapped(state)) {
            child.forget(state.generation, WorkerObject::File(id.0));
        }
        // Bad files are remembered as long as there is room.
        if self.files.len() > MAX_BAD {
            self.files.retain(|_, state| state.bad.is_none() && state.generation == child.generation());
        }
    }

    fn attempt(
        &mut self,
        child: &mut WorkerProcess,
        spaces: &mut impl AddressSpaces,
        id: FileId,
        wanted: &WantedFile,
        offsets: &[u64],
    ) -> Result<Vec<FrameChain>, FileReadError> {
        self.give(child, spaces, id, wanted)?;
        let state = self.state(id, &wanted.file);
        let (module, lines) = (Arc::clone(&state.module), !state.no_lines);
        let request = WorkerRequest::Names { file: id.0, offsets: offsets.to_vec(), lines };
        match child.ask(&request, &[]).map_err(FileReadError::Worker)? {
            WorkerResponse::Names(names) if !names.answers.is_empty() => {
                let frames = self.shared.frames(&names, offsets, Some(&module)).into_iter().zip(offsets);
                Ok(frames
                    .map(|(frames, &offset)| frames.unwrap_or_else(|why| unknown(why, Some(&module), offset)))
                    .collect())
            }
            _ => Err(FileReadError::File(UnknownReason::WorkerFailed)),
        }
    }

    /// Makes sure that the worker has the file and its debug files.
    fn give(
        &mut self,
        child: &mut WorkerProcess,
        spaces: &mut impl AddressSpaces,
        id: FileId,
        wanted: &WantedFile,
    ) -> Result<(), FileReadError> {
        let file = &wanted.file;
        if self.state(id, file).generation == child.generation() {
            return Ok(());
        }
        let fd = file.fd().map_err(FileReadError::File)?;
        if child.descriptors() > MAX_DESCRIPTORS {
            child.restart();
            self.forget_good();
        }
        let facts = match ask_file(child, &WorkerRequest::Open { file: id.0 }, &*fd) {
            Err(FileReadError::File(why)) => {
                self.state(id, file).bad = Some(why);
                return Err(FileReadError::File(why));
            }
            answer => answer?,
        };
        let facts = self.give_debug_files(child, spaces, id, wanted, facts)?;
        let generation = child.generation();
        let state = self.state(id, file);
        state.generation = generation;
        state.usage = match file {
            FileHandle::Mapped(file) => file.usage(),
            FileHandle::Image { .. } => None,
        };
        let FileFacts { build_id, htlhash, traits, .. } = facts;
        let path = Arc::clone(&state.module.path);
        let module = Module { path, build_id: build_id.map(Arc::from), htlhash, traits };
        if *state.module != module {
            state.module = Arc::new(module);
        }
        Ok(())
    }

    /// Debug files that do not fit are skipped.
    fn give_debug_files(
        &mut self,
        child: &mut WorkerProcess,
        spaces: &mut impl AddressSpaces,
        id: FileId,
        wanted: &WantedFile,
        mut facts: FileFacts,
    ) -> Result<FileFacts, FileReadError> {
        for kind in [DebugKind::Stripped, DebugKind::Shared, DebugKind::Package] {
            let (host, paths) = match kind {
                DebugKind::Stripped if facts.wants_debug_file => {
                    (facts.build_id.as_deref(), debug_files::in_root(wanted.file.path(), &facts))
                }
                DebugKind::Shared => {
                    let build_id = facts.alternate.as_deref();
                    (build_id, build_id.and_then(debug_files::in_root_by_build_id).into_iter().collect())
                }
                DebugKind::Package if facts.wants_package => {
                    (None, debug_files::package(wanted.file.path()).into_iter().collect())
                }
                DebugKind::Stripped | DebugKind::Package => continue,
            };
            let host = host.and_then(|build_id| debug_files::of_host(&self.debug_dir, build_id));
            let request = WorkerRequest::Debug { file: id.0, kind };
            if let Some(fd) = host
                && let Some(more) = fitting(ask_file(child, &request, &fd))?
            {
                facts = more;
                continue;
            }
            for path in paths {
                let Some(fd) = own_file(spaces, wanted, &path) else { continue };
                if let Some(more) = fitting(ask_file(child, &request, &fd))? {
                    facts = more;
                    break;
                }
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

/// A debug file from the root of the process that maps the file, if the file's owner can have made it.
fn own_file(spaces: &mut impl AddressSpaces, wanted: &WantedFile, path: &Path) -> Option<OwnedFd> {
    let id = wanted.mapped_by;
    let at = wanted.mapped_at;
    let debug = spaces.own_file(id, at, path).ok()?;
    wanted.file.fd().is_ok_and(|file| debug_files::is_kin(&file, &debug)).then_some(debug)
}

/// The facts of a file with the given debug file; `None` if the worker did not accept the debug file.
fn fitting(said: Result<FileFacts, FileReadError>) -> Result<Option<FileFacts>, FileReadError> {
    match said {
        Ok(facts) => Ok(Some(facts)),
        Err(FileReadError::File(_)) => Ok(None),
        Err(lost) => Err(lost),
    }
}

fn ask_file(
    child: &mut WorkerProcess,
    request: &WorkerRequest,
    fd: &impl AsFd,
) -> Result<FileFacts, FileReadError> {
    match child.ask(request, &[fd.as_fd()]).map_err(FileReadError::Worker)? {
        WorkerResponse::File(facts) => facts.map_err(FileReadError::File),
        _ => Err(FileReadError::File(UnknownReason::WorkerFailed)),
    }
}
