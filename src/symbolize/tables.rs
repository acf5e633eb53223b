//! The broker's part of unwind tables.

use std::os::fd::AsFd as _;

use super::Symbolizer;
use super::child::WorkerLoss;
use super::compat_vdso;
use super::frame_rules::NoTable;
use super::message::{TableBytes, WorkerRequest, WorkerResponse};
use super::place::{FileHandle, IdentifiedFile};
use super::symbolizer::{COMPAT_VDSO, VDSO};
use crate::process::Vdso;
use crate::unwind::{Table, TablePart, TableRange};

impl Symbolizer {
    /// A vdso's image, by a number that no file of a process has. That of 32-bit programs is made on demand.
    #[must_use]
    pub fn vdso(&self, vdso: Vdso) -> Option<IdentifiedFile> {
        let (id, image) = match vdso {
            Vdso::Native => (VDSO, &self.vdso),
            Vdso::Compat => (COMPAT_VDSO, self.compat_vdso.get_or_init(compat_vdso::image)),
        };
        image.clone().map(|fd| IdentifiedFile { id, handle: FileHandle::Image { name: "[vdso]".into(), fd } })
    }

    /// The unwind table of a file, or of a part of it around an offset, built by the worker.
    ///
    /// # Errors
    /// Why there is no table. All reasons but [`NoTable::Unavailable`] are final, so do not ask again.
    pub fn unwind_table(&mut self, file: &FileHandle, around: Option<u64>) -> Result<TablePart, NoTable> {
        let fd = file.fd().map_err(|_| NoTable::Unavailable)?;
        let mut answer = self.child.ask(&WorkerRequest::UnwindTable { around }, &[fd.as_fd()]);
        if answer.as_ref().is_err_and(|how| *how == WorkerLoss::Died) {
            // An earlier request may have killed the worker.
            self.files.lost += 1;
            answer = self.child.ask(&WorkerRequest::UnwindTable { around }, &[fd.as_fd()]);
        }
        match answer {
            Ok(WorkerResponse::UnwindTable(Ok(TableBytes { bytes, start, end }))) => {
                let table = Table::from_bytes(bytes).ok_or(NoTable::BadFile)?;
                Ok(TablePart { table, range: TableRange { start, end } })
            }
            Ok(WorkerResponse::UnwindTable(Err(why))) => Err(why),
            Ok(_) => Err(NoTable::BadFile),
            Err(WorkerLoss::NotAsked) => Err(NoTable::Unavailable),
            Err(_) => {
                self.files.lost += 1;
                self.files.poisoned += 1;
                Err(NoTable::BadFile)
            }
        }
    }
}
