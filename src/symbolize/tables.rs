//! The broker's side of unwind tables.

use std::os::fd::AsFd as _;

use super::Symbolizer;
use super::child::Lost;
use super::frame_rules::NoTable;
use super::message::{Request, Response, TableBytes};
use super::place::FileHandle;
use super::symbolizer::VDSO;
use crate::process::FileId;
use crate::unwind::{Table, TablePart, Window};

impl Symbolizer {
    /// The vdso's image, by the number that no file of a process has.
    #[must_use]
    pub fn vdso(&self) -> Option<(FileId, FileHandle)> {
        self.vdso.clone().map(|image| (VDSO, image))
    }

    /// The unwind table of a file, or of a part of it around an offset, built by the worker.
    ///
    /// # Errors
    /// Why there is none; all but [`NoTable::Unavailable`] stay as they are, and the file need not be asked for again.
    pub fn unwind_table(&mut self, file: &FileHandle, around: Option<u64>) -> Result<TablePart, NoTable> {
        let fd = file.fd().map_err(|_| NoTable::Unavailable)?;
        let mut answer = self.child.ask(&Request::UnwindTable { around }, &[fd.as_fd()]);
        if answer.as_ref().is_err_and(|how| *how == Lost::Died) {
            // What it was asked before may have killed it.
            self.files.lost += 1;
            answer = self.child.ask(&Request::UnwindTable { around }, &[fd.as_fd()]);
        }
        match answer {
            Ok(Response::UnwindTable(Ok(TableBytes { bytes, start, end }))) => {
                let table = Table::from_bytes(bytes).ok_or(NoTable::BadFile)?;
                Ok(TablePart { table, window: Window { start, end } })
            }
            Ok(Response::UnwindTable(Err(why))) => Err(why),
            Ok(_) => Err(NoTable::BadFile),
            Err(Lost::NotAsked) => Err(NoTable::Unavailable),
            Err(_) => {
                self.files.lost += 1;
                self.files.poisoned += 1;
                Err(NoTable::BadFile)
            }
        }
    }
}
