//! Where unwind tables come from.

use std::sync::Arc;

use crate::process::{CodeRange, CodeSource, Vdso};
use crate::symbolize::{FileHandle, IdentifiedFile, NoTable, Symbolizer};
use crate::unwind::TablePart;

/// The source of unwind tables.
pub(crate) trait TableSource {
    /// The file of a vdso.
    fn vdso(&self, vdso: Vdso) -> Option<IdentifiedFile>;

    /// Builds the table of a file, or of the part of a file around an offset.
    ///
    /// # Errors
    /// Why there is no table.
    fn table(&mut self, file: &FileHandle, around: Option<u64>) -> Result<TablePart, NoTable>;
}

impl TableSource for Symbolizer {
    fn vdso(&self, vdso: Vdso) -> Option<IdentifiedFile> {
        Symbolizer::vdso(self, vdso)
    }

    fn table(&mut self, file: &FileHandle, around: Option<u64>) -> Result<TablePart, NoTable> {
        self.unwind_table(file, around)
    }
}

/// The file from which a range of code comes; `None` for a vdso that the source does not know.
pub(super) fn file_of(range: &CodeRange, tables: &dyn TableSource) -> Option<IdentifiedFile> {
    match &range.code {
        CodeSource::File(file) => {
            Some(IdentifiedFile { id: file.id, handle: FileHandle::Mapped(Arc::clone(file)) })
        }
        CodeSource::Vdso(vdso) => tables.vdso(*vdso),
    }
}
