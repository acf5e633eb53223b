//! Where unwind tables come from.

use std::sync::Arc;

use crate::process::{CodeRange, CodeSource, FileId, Vdso};
use crate::symbolize::{FileHandle, NoTable, Symbolizer};
use crate::unwind::TablePart;

/// The source of unwind tables.
pub(crate) trait TableSource {
    /// The file of a vdso.
    fn vdso(&self, vdso: Vdso) -> Option<(FileId, FileHandle)>;

    /// Builds the table of a file, or of the part of a file around an offset.
    ///
    /// # Errors
    /// Why there is no table.
    fn table(&mut self, file: &FileHandle, around: Option<u64>) -> Result<TablePart, NoTable>;
}

impl TableSource for Symbolizer {
    fn vdso(&self, vdso: Vdso) -> Option<(FileId, FileHandle)> {
        Symbolizer::vdso(self, vdso)
    }

    fn table(&mut self, file: &FileHandle, around: Option<u64>) -> Result<TablePart, NoTable> {
        self.unwind_table(file, around)
    }
}

/// The file from which a range of code comes; `None` for a vdso that the source does not know.
pub(super) fn file_of(range: &CodeRange, tables: &dyn TableSource) -> Option<(FileId, FileHandle)> {
    match &range.code {
        CodeSource::File(file) => Some((file.id, FileHandle::Mapped(Arc::clone(file)))),
        CodeSource::Vdso(vdso) => tables.vdso(*vdso),
    }
}
