//! All mapped files: each is named once, opened once, and closed again when too many are open.

use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::event::Inode;
use super::file::{Content, ContentKey, FileId, FileRef, FileState, FoundFile, MappedFile, Unopened};
use super::moved_search::{MovedCode, MovedCodeSearch};
use super::opener::{NO_ROOM, Opener, OpenersCost};
use super::opening::{self, FileQuery};
use super::options::ProcessOptions;
use super::root::{FileOwner, ProcessRoot};
use super::served::CopyQuota;
use super::timed_calls::Tenant;
use crate::sample::MonoNs;

/// Descriptors that other parts of the profiler may use.
const RESERVE: u64 = 256;
/// Files that may be open in any case.
const MIN_OPEN: usize = 10;
/// Identities of closed files that are remembered, so that a file keeps its [`FileId`] from one program to the next.
const MAX_REMEMBERED: usize = 16_384;
/// The first pause after a failure, which doubles each time up to the last. A file that took too long gets the last
/// pause at once.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct FileCounts {
    pub(super) named: usize,
    pub(super) open: usize,
}

#[derive(Debug)]
pub(super) struct FileTable {
    refs: HashMap<(Inode, Arc<Path>), Arc<FileRef>>,
    contents: HashMap<ContentKey, (FileId, Weak<Content>)>,
    next_id: u64,
    max_open: usize,
    open: usize,
    copies: CopyQuota,
    uses: u64,
    opener: Opener,
}

impl FileTable {
    pub(super) fn new(
        ProcessOptions { call_timeout, max_open_files, binary, .. }: &ProcessOptions,
    ) -> FileTable {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let room = usize::try_from(limit.saturating_sub(RESERVE)).unwrap_or(usize::MAX).max(MIN_OPEN);
        FileTable {
            refs: HashMap::new(),
            contents: HashMap::new(),
            next_id: 1,
            max_open: (*max_open_files).min(room),
            open: 0,
            copies: CopyQuota::default(),
            uses: 0,
            opener: Opener::new(binary.clone(), *call_timeout),
        }
    }

    /// The shared reference to an inode under a path.
    pub(super) fn intern_ref(&mut self, inode: Inode, path: &Arc<Path>) -> Arc<FileRef> {
        let new = || Arc::new(FileRef::new(inode, Arc::clone(path)));
        Arc::clone(self.refs.entry((inode, Arc::clone(path))).or_insert_with(new))
    }

    /// The file of a mapping that was made at `mapped`, if the file need not be opened for it.
    pub(super) fn reuse_open(
        &mut self,
        tgid: u32,
        file: &FileRef,
        mapped: MonoNs,
        now: MonoNs,
    ) -> Option<Arc<MappedFile>> {
        let mut state = file.state();
        let opened = Arc::clone(state.opened.as_ref()?);
        match &opened.content {
            // The delay may lie only on that process's way to the file.
            Err(Unopened::TooSlow) if state.asked_by != tgid => None,
            Err(_) => (now < state.retry_at).then_some(opened),
            Ok(content) => {
                content.fd()?;
                // A program that mapped the file later may have found other content. Only the server of a copied file
                // knows whether the file changed.
                if mapped > state.checked && (content.copied_for.is_some() || !unchanged(content)) {
                    return None;
                }
                state.checked = now;
                self.uses += 1;
                content.touch(self.uses);
                drop(state);
                Some(opened)
            }
        }
    }

    /// Opens the file of a mapping of the process `tgid`.
    pub(super) fn open(
        &mut self,
        tgid: u32,
        file: &FileRef,
        wanted: &FileQuery,
        now: MonoNs,
    ) -> Arc<MappedFile> {
        let found = self.with_free_descriptor(|opener| opener.open(tgid, wanted));
        let found = found.and_then(|found| self.copy_if_served(tgid, wanted, found));
        let mut state = file.state();
        state.asked_by = tgid;
        let opened = self.record_open(file, &mut state, found, now);
        state.opened = Some(Arc::clone(&opened));
        opened
    }

    /// Opens a file below the root of the process `tgid` that belongs to the process's user or to root.
    pub(super) fn open_below(
        &mut self,
        tgid: u32,
        root: &ProcessRoot,
        path: &Path,
    ) -> Result<OwnedFd, Unopened> {
        self.with_free_descriptor(|opener| {
            opener.open_below(tgid, root, path, FileOwner::ProcessUserOrRootUser)
        })
    }

    /// Looks for code of files in anonymous memory.
    pub(super) fn find_moved_code(
        &mut self,
        search: &MovedCodeSearch,
    ) -> Result<Option<MovedCode>, Unopened> {
        self.opener.find_moved_code(search)
    }

    /// Evicts files that no process maps any more.
    pub(super) fn evict_unused(&mut self) {
        self.refs.retain(|_, file| Arc::strong_count(file) > 1);
        if self.contents.len() > MAX_REMEMBERED {
            self.contents.retain(|_, (_, content)| content.strong_count() > 0);
        }
        let (mut open, mut copies) = (0, CopyQuota::default());
        for content in self.alive() {
            open += usize::from(content.fd().is_some());
            // A copy that is closed here may still be read elsewhere.
            content.copied_for.iter().for_each(|tenant| copies.add(tenant, content.key.size));
        }
        (self.open, self.copies) = (open, copies);
    }

    pub(super) fn counts(&self) -> FileCounts {
        let open = self.alive().filter(|content| content.fd().is_some()).count();
        FileCounts { named: self.refs.len(), open }
    }

    /// What the processes that open files cost.
    pub(super) fn openers_cost(&self) -> OpenersCost {
        self.opener.cost()
    }

    /// Number of opens that hang in the kernel now.
    pub(super) fn stuck(&self) -> usize {
        self.opener.stuck()
    }

    /// Runs `open`. Other files are closed first if too many are open, and also when no descriptor is left.
    fn with_free_descriptor<T>(
        &mut self,
        open: impl Fn(&mut Opener) -> Result<T, Unopened>,
    ) -> Result<T, Unopened> {
        if self.open >= self.max_open {
            self.close_oldest(self.max_open);
        }
        let found = open(&mut self.opener);
        // Other parts of the profiler may use more than the reserve: JVMs and unwind tables take descriptors, too.
        if matches!(found, Err(NO_ROOM)) && self.close_some() {
            return open(&mut self.opener);
        }
        found
    }

    /// For a served file, takes the existing copy or makes a new one.
    fn copy_if_served(
        &mut self,
        tgid: u32,
        wanted: &FileQuery,
        found: FoundFile,
    ) -> Result<(FoundFile, Option<Tenant>), Unopened> {
        let content = self.contents.get(&found.key).and_then(|(_, content)| content.upgrade());
        if !found.served || content.as_ref().is_some_and(|content| content.fd().is_some()) {
            return Ok((found, None));
        }
        let copy = |opener: &mut Opener| opener.copy(tgid, wanted, &found);
        // A copy that was closed is counted already.
        if content.is_some_and(|content| content.copied_for.is_some()) {
            return Ok((FoundFile { fd: self.with_free_descriptor(copy)?, ..found }, None));
        }
        let tenant = Tenant::of(tgid);
        if !self.copies.have_room(&tenant, found.key.size) {
            return Err(Unopened::NoRoom);
        }
        let fd = self.with_free_descriptor(copy)?;
        self.copies.add(&tenant, found.key.size);
        Ok((FoundFile { fd, ..found }, Some(tenant)))
    }

    /// Notes the result of an attempt to open a file.
    fn record_open(
        &mut self,
        file: &FileRef,
        state: &mut FileState,
        found: Result<(FoundFile, Option<Tenant>), Unopened>,
        now: MonoNs,
    ) -> Arc<MappedFile> {
        let (found, copied_for) = match found {
            Ok(found) => found,
            Err(why) => {
                let pause = state.backoff.pause(FIRST_PAUSE, LAST_PAUSE);
                let pause = if why == Unopened::TooSlow { LAST_PAUSE } else { pause };
                state.retry_at = now.after(pause);
                let id = state.opened.as_ref().map_or_else(|| self.new_id(), |opened| opened.id);
                return Arc::new(MappedFile {
                    id,
                    path: Arc::clone(file.path()),
                    inode: file.inode(),
                    deleted_or_replaced: file.named_deleted(),
                    content: Err(why),
                });
            }
        };
        state.backoff.begin_anew();
        state.checked = now;
        let (key, deleted_or_replaced) = (found.key, found.deleted_or_replaced);
        let known = self.contents.get(&key).map(|(id, content)| (*id, content.upgrade()));
        let content = match known {
            Some((_, Some(content))) => {
                if content.fd().is_none() {
                    content.reopened(found.fd);
                    self.open += 1;
                }
                content
            }
            other => {
                let id = other.map_or_else(|| self.new_id(), |(id, _)| id);
                let content = Arc::new(Content::new(id, found, copied_for));
                self.contents.insert(key, (id, Arc::downgrade(&content)));
                self.open += 1;
                content
            }
        };
        self.uses += 1;
        content.touch(self.uses);
        Arc::new(MappedFile {
            id: content.id,
            path: Arc::clone(file.path()),
            inode: file.inode(),
            deleted_or_replaced,
            content: Ok(content),
        })
    }

    fn new_id(&mut self) -> FileId {
        self.next_id += 1;
        FileId(self.next_id)
    }

    fn alive(&self) -> impl Iterator<Item = Arc<Content>> + '_ {
        self.contents.values().filter_map(|(_, content)| content.upgrade())
    }

    /// Closes some files that can be opened again, when no descriptor is left. Returns whether there were any.
    pub(super) fn close_some(&mut self) -> bool {
        self.close_oldest(self.open)
    }

    /// Closes the files that were unused for longest, so that a quarter of `room` is free. Returns whether there were
    /// any.
    fn close_oldest(&mut self, room: usize) -> bool {
        let mut open: Vec<_> = self.alive().filter(|content| content.fd().is_some()).collect();
        open.sort_by_key(|content| content.used.load(Ordering::Relaxed));
        let surplus = open.len().saturating_sub(room - room.div_ceil(4));
        open.iter().take(surplus).for_each(|content| content.close());
        self.open = open.len() - surplus;
        surplus > 0
    }
}

/// Whether an open file is unchanged since it was opened.
fn unchanged(content: &Content) -> bool {
    content.fd().and_then(|fd| opening::content_key(fd.as_fd())).is_some_and(|now| now == content.key)
}
