//! Go's own line table (`.gopclntab`): functions, inlined calls, files and lines of Go code.
//!
//! Go's runtime needs the table to unwind stacks, so no `strip` can remove it: programs built with `-ldflags="-s -w"`
//! have nothing else. The table is read piece by piece where an address needs it (a kubelet's has 30 MiB). Nothing of
//! it is kept, and nothing of it is trusted. Sources: Go 1.16 to 1.27, `cmd/link/internal/ld/pcln.go`,
//! `runtime/symtab.go`, `runtime/symtabinl.go`, `debug/gosym/pclntab.go`.

#[cfg(any(test, fuzzing))]
pub mod fixture;
mod function;
mod header;
pub(crate) mod image;
mod module;
mod stack;
mod trees;
mod values;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod oracle_tests;

use function::GoFunction;
use header::GoTableHeader;
use image::Image;
use module::ModuleData;
pub(crate) use stack::OnStack;
use trees::InlineTrees;
use values::ReadAllowance;

/// Inlined calls of one address, at most; Go's compiler stops far below.
const MAX_INLINED: usize = 128;
/// Bytes of a name that are read.
const MAX_NAME: usize = 16 << 10;

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoCall {
    /// Its name, as in Go's stack traces.
    pub(crate) name: Vec<u8>,
    /// Source file, as the compiler wrote it.
    pub(crate) file: Option<Vec<u8>>,
    /// Line in it, 0 if unknown.
    pub(crate) line: u32,
}

/// The line table of one file, and the code that it describes.
#[derive(Debug)]
pub(crate) struct GoTable {
    header: GoTableHeader,
    module: ModuleData,
    trees: InlineTrees,
}

impl GoTable {
    /// Finds the table of a program. `None` if there is no table, or only one that contradicts itself.
    pub(crate) fn find(image: &dyn Image) -> Option<GoTable> {
        let found = |base| {
            let header = GoTableHeader::read(image, base)?;
            let module = ModuleData::find(image, &header)?;
            Some((header, module))
        };
        let (header, module) = image::tables(image).into_iter().find_map(found)?;
        let trees = InlineTrees::find(image, &header, &module);
        Some(GoTable { header, module, trees })
    }

    /// Whether the code at `address` is Go code.
    pub(crate) fn covers(&self, address: u64) -> bool {
        (self.module.first..self.module.end).contains(&address)
    }

    /// The functions at `address`, innermost first: the last one is the outer function, into which the others were
    /// inlined. Empty if the table does not describe `address`.
    pub(crate) fn calls(&self, image: &dyn Image, address: u64) -> Vec<GoCall> {
        let function = Some(address).filter(|&address| self.covers(address));
        let function = function.and_then(|at| GoFunction::at(image, &self.header, &self.module, at));
        let Some(function) = function else { return Vec::new() };
        let Some(name) = self.name(image, function.name) else { return Vec::new() };
        // Even if the lines cannot be read, the function is known.
        self.unfolded(image, &function, &name, address)
            .unwrap_or_else(|| vec![GoCall { name: for_print(&name), file: None, line: 0 }])
    }

    /// The function, and the calls inlined into it. `None` if these cannot be read: then the line may not be the
    /// function's own.
    fn unfolded(
        &self,
        image: &dyn Image,
        function: &GoFunction,
        name: &[u8],
        address: u64,
    ) -> Option<Vec<GoCall>> {
        let allowance = ReadAllowance::default();
        let mut calls = Vec::new();
        let mut at = address;
        while calls.len() <= MAX_INLINED {
            let value = |table| function.value(image, &self.header, table, at, &allowance);
            let (file, line) = (value(function.files)?, value(function.lines)?);
            let call = |name: &[u8]| GoCall {
                name: for_print(name),
                file: function.file(image, &self.header, file),
                line: u32::try_from(line).unwrap_or(0),
            };
            let Ok(index) = u32::try_from(value(function.inlined)?) else {
                calls.push(call(name));
                return Some(calls);
            };
            let inlined = self.trees.record(image, &self.header, function, index)?;
            calls.push(call(&self.name(image, inlined.name)?));
            at = function.entry.checked_add(u64::from(inlined.called_at))?;
        }
        None
    }

    fn name(&self, image: &dyn Image, at: u32) -> Option<Vec<u8>> {
        self.header.text(image, self.header.names, self.header.units, at, MAX_NAME)
    }
}

/// A name as Go prints it. The compiler's representation of the type arguments of a generic function is left out
/// (`runtime.funcNamePiecesForPrint`).
fn for_print(name: &[u8]) -> Vec<u8> {
    let open = name.iter().position(|&b| b == b'[');
    let close = name.iter().rposition(|&b| b == b']');
    match (open, close) {
        (Some(open), Some(close)) if open < close => [&name[..open], b"[...]", &name[close + 1..]].concat(),
        _ => name.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::for_print;

    #[test]
    fn type_arguments_are_left_out_of_names() {
        for (name, printed) in [
            ("main.main", "main.main"),
            ("slices.Max[go.shape.[]int,go.shape.int]", "slices.Max[...]"),
            ("main.(*List[go.shape.string]).Push.func1", "main.(*List[...]).Push.func1"),
            ("odd]and[odd", "odd]and[odd"),
            ("", ""),
        ] {
            assert_eq!(for_print(name.as_bytes()), printed.as_bytes());
        }
    }
}
