//! Where unwind tables come from.

use crate::process::{FileId, Vdso};
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
