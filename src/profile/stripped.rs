//! Functions of stripped files: their substitute names, which are made of file and address, and their share of a
//! profile.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::advice::for_nameless;
use super::frame::{Frame, Module, UnknownReason};
use super::tables::RowSamples;
use super::view::ProfileView;

/// Stands between the file and the first address of a function, as in disassemblers and samply.
const MARK: &str = "!fun_";
/// Stands between the file and a block of addresses, as in perf and gdb.
const BLOCK_MARK: &str = "+0x";

/// The substitute name of a function without a symbol: the file's name and the function's first address within the
/// file, as in `libz.so.1.2.13!fun_3c40`. The name does not depend on where and when the file is mapped.
#[must_use]
pub fn by_start(module: &Module, start: u64) -> String {
    format!("{}{MARK}{start:x}", module.base_name())
}

/// Size of a block of addresses that share a name because their function is not known, in bytes.
const BLOCK: u64 = 256;

/// The substitute name of code whose function is not known: the file's name and the block of addresses within the file,
/// as in `chromium+0x2d94c00`. Without blocks all code of such a file would be one frame.
#[must_use]
pub fn by_block(module: &Module, address: u64) -> String {
    format!("{}{BLOCK_MARK}{:x}", module.base_name(), address - address % BLOCK)
}

/// The file in a name from [`by_block`]; any other name is returned whole.
#[must_use]
pub fn file_of_block(name: &str) -> &str {
    name.rsplit_once(BLOCK_MARK).filter(|(_, place)| is_hex(place)).map_or(name, |(file, _)| file)
}

fn is_hex(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a frame has a substitute name by function start, or no name because its file has no symbol there.
#[must_use]
pub fn is_nameless(frame: &Frame) -> bool {
    let Some(module) = &frame.module else { return false };
    let start = frame.name.strip_prefix(module.base_name()).and_then(|rest| rest.strip_prefix(MARK));
    frame.unknown == Some(UnknownReason::NoSymbol) || start.is_some_and(is_hex)
}

/// A file whose functions have no names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrippedRow {
    /// The path in the mount namespace of the processes that mapped it.
    pub path: Arc<str>,
    /// Advice: a sentence that is true of this file.
    pub advice: &'static str,
    /// Samples whose leaf is such a function.
    pub itself: u64,
    /// Samples with such a function anywhere in their stack.
    pub total: u64,
}

impl ProfileView<'_> {
    /// Files whose functions have no names, those with the most samples first.
    #[must_use]
    pub fn stripped(&self) -> Vec<StrippedRow> {
        let mut ids: HashMap<Arc<str>, usize> = HashMap::new();
        let mut rows: Vec<StrippedRow> = Vec::new();
        let row_of = self.frames().ids().map(|id| {
            let frame = self.frames().get(id);
            let module = frame.module.as_ref().filter(|_| is_nameless(&frame))?;
            let (path, advice) = (Arc::clone(&module.path), for_nameless(module));
            Some(*ids.entry(Arc::clone(&path)).or_insert_with(|| {
                rows.push(StrippedRow { path, advice, itself: 0, total: 0 });
                rows.len() - 1
            }))
        });
        let row_of: Vec<Option<usize>> = row_of.collect();
        let samples = self.row_samples(rows.len(), |frame| row_of[frame.0 as usize]);
        for (row, RowSamples { itself, total, .. }) in rows.iter_mut().zip(samples) {
            (row.itself, row.total) = (itself, total);
        }
        rows.retain(|r| r.total > 0);
        rows.sort_by(|a, b| {
            (Reverse(a.itself), Reverse(a.total), &a.path).cmp(&(
                Reverse(b.itself),
                Reverse(b.total),
                &b.path,
            ))
        });
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Kind, Labels, Profile};
    use crate::sample::Event;

    #[test]
    fn stripped_rows_are_per_file_without_named_functions() {
        let module = |path: &str| Arc::new(Module::at(path));
        let (z, c) = (module("/usr/lib/libz.so.1"), module("/usr/lib/libc.so.6"));
        let native = |module: &Arc<Module>, name: &str| {
            let module = Some(Arc::clone(module));
            Arc::new(Frame { module, ..Frame::named(Kind::Native, name) })
        };
        assert_eq!(by_start(&z, 0x3c40), "libz.so.1!fun_3c40");
        assert_eq!(by_block(&z, 0x3cff), "libz.so.1+0x3c00");
        let files = ["libz.so.1+0x3c00", "a+0x1+0x20", "c+0xyz", "c+0x", "libz.so.1"].map(file_of_block);
        assert_eq!(files, ["libz.so.1", "a+0x1", "c+0xyz", "c+0x", "libz.so.1"]);
        let (deflate, slide) = (native(&z, "deflate"), native(&z, &by_start(&z, 0x3c40)));
        let (start, foreign) = (native(&c, &by_start(&c, 0x891a0)), native(&c, "libz.so.1!fun_3c40"));
        let bare = Arc::new(Frame::unknown(UnknownReason::NoSymbol, Some(Arc::clone(&z)), 9));
        let mut p = Profile::new();
        for (stack, n) in [
            (vec![&start, &deflate, &slide, &slide], 5),
            (vec![&start, &slide, &deflate], 2),
            (vec![&start, &bare], 1),
            (vec![&foreign], 7),
        ] {
            p.add(&Labels::default(), &stack.into_iter().cloned().collect::<Vec<_>>(), n, 0);
        }
        let shown: Vec<_> = p
            .of_event(Event::Cpu)
            .stripped()
            .into_iter()
            .map(|r| (r.path.to_string(), r.itself, r.total))
            .collect();
        assert_eq!(shown, [("/usr/lib/libz.so.1".to_owned(), 6, 8), ("/usr/lib/libc.so.6".to_owned(), 0, 8)]);
    }
}
