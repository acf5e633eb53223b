//! The calls that were inlined into a function (`runtime.inlinedCall`).
//!
//! From Go 1.18 on, a function gives only the offset of its description from an address in the module data. The field
//! with that address moves from version to version. The field is identified by trying: with the right one, the
//! descriptions of many functions are valid.

use super::function::GoFunction;
use super::header::{GoTableHeader, Version};
use super::image::{Image, number};
use super::module::ModuleData;

/// Functions that are examined to find the field, all over the program, and how many of those with inlined calls are
/// tried. All that are tried must be valid.
const MAX_EXAMINED: u64 = 1024;
const TRIED: usize = 64;
/// Inlined calls of one function, at most; Go's runtime assumes no more.
const MAX_RECORDS: u32 = 1 << 20;

/// Where descriptions of inlined calls are.
#[derive(Debug)]
pub(super) enum InlineTrees {
    /// Each description has its own address.
    Addressed,
    /// Descriptions are counted from this address.
    From(u64),
    /// The address is unknown.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Inlined {
    /// Offset of the called function's name.
    pub(super) name: u32,
    /// An instruction at the place of the call: bytes behind the beginning of the function.
    pub(super) called_at: u32,
}

impl InlineTrees {
    /// Finds where the descriptions are.
    pub(super) fn find(image: &dyn Image, header: &GoTableHeader, module: &ModuleData) -> InlineTrees {
        if header.version == Version::Go116 {
            return InlineTrees::Addressed;
        }
        let step = (header.functions / MAX_EXAMINED).max(1);
        let numbers = (0..header.functions).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        let functions = numbers.take(2 * MAX_EXAMINED as usize);
        let functions = functions.filter_map(|at| GoFunction::numbered(image, header, module, at));
        let tried: Vec<GoFunction> = functions.filter(|f| f.tree.is_some()).take(TRIED).collect();
        let fits = |from: u64| {
            let trees = InlineTrees::From(from);
            let first = |function| Some(trees.record(image, header, function, 0)?.name);
            let names: Option<Vec<u32>> = tried.iter().map(first).collect();
            // In zeros, each call would be one of the function with the first name.
            names.is_some_and(|names| names.iter().any(|&name| name != 0))
        };
        let mut fitting: Vec<u64> = module.gofunc.iter().copied().filter(|&from| fits(from)).collect();
        fitting.sort_unstable();
        fitting.dedup();
        match fitting[..] {
            [from] => InlineTrees::From(from),
            _ => InlineTrees::Unknown,
        }
    }

    /// The inlined call with this index in a function; `None` if the data there does not describe one.
    pub(super) fn record(
        &self,
        image: &dyn Image,
        header: &GoTableHeader,
        function: &GoFunction,
        index: u32,
    ) -> Option<Inlined> {
        let tree = function.tree.filter(|_| index < MAX_RECORDS)?;
        let tree = match self {
            InlineTrees::Addressed => tree,
            InlineTrees::From(from) => from.checked_add(tree)?,
            InlineTrees::Unknown => return None,
        };
        let (size, name, called_at) =
            if header.version == Version::Go120 { (16, 4, 8) } else { (20, 12, 16) };
        let record = tree.checked_add(u64::from(index) * size)?;
        let field = |at: u64| number(image, record.checked_add(at)?);
        let inlined = Inlined { name: field(name)?, called_at: field(called_at)? };
        let inside = u64::from(inlined.called_at) < function.end - function.entry;
        let named = header.text(image, header.names, header.units, inlined.name, 1).is_some();
        (inside && named).then_some(inlined)
    }
}
