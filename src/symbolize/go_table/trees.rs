//! The calls that were inlined into a function (`runtime.inlinedCall`).
//!
//! From Go 1.18 on a function says only how far its description is from a place that the module's data name, in a field
//! that moves from version to version. The field is the one by which the descriptions of many functions make sense.

use super::function::GoFunction;
use super::header::{GoTableHeader, Version};
use super::image::{Image, number};
use super::module::ModuleData;

/// Functions that are looked at to find the field, all over the program, and how many of those that have inlined calls
/// must make sense: all of these.
const LOOKED_AT: u64 = 1024;
const TRIED: usize = 64;
/// Inlined calls of one function; Go's runtime takes them for no more.
const MAX_RECORDS: u32 = 1 << 20;

/// Where descriptions of inlined calls are.
#[derive(Debug)]
pub(super) enum Trees {
    /// Each at an address.
    Addressed,
    /// Counted from here.
    From(u64),
    /// It is not known where.
    Unknown,
}

/// An inlined call.
#[derive(Debug)]
pub(super) struct Inlined {
    /// Where the name of the function that was called begins.
    pub(super) name: u32,
    /// An instruction of the call's place: bytes behind the beginning of the function.
    pub(super) called_at: u32,
}

impl Trees {
    /// Finds them.
    pub(super) fn find(image: &dyn Image, header: &GoTableHeader, module: &ModuleData) -> Trees {
        if header.version == Version::Go116 {
            return Trees::Addressed;
        }
        let step = (header.functions / LOOKED_AT).max(1);
        let numbers = (0..header.functions).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        let functions = numbers.take(2 * LOOKED_AT as usize);
        let functions = functions.filter_map(|at| GoFunction::numbered(image, header, module, at));
        let tried: Vec<GoFunction> = functions.filter(|f| f.tree.is_some()).take(TRIED).collect();
        let fits = |from: u64| {
            let trees = Trees::From(from);
            let first = |function| Some(trees.record(image, header, function, 0)?.name);
            let names: Option<Vec<u32>> = tried.iter().map(first).collect();
            // Zeros would be calls of the function whose name is the first one.
            names.is_some_and(|names| names.iter().any(|&name| name != 0))
        };
        let mut fitting: Vec<u64> = module.gofunc.iter().copied().filter(|&from| fits(from)).collect();
        fitting.sort_unstable();
        fitting.dedup();
        match fitting[..] {
            [from] => Trees::From(from),
            _ => Trees::Unknown,
        }
    }

    /// The inlined call of this number in a function; `None` if what is there is no description of one.
    pub(super) fn record(
        &self,
        image: &dyn Image,
        header: &GoTableHeader,
        function: &GoFunction,
        index: u32,
    ) -> Option<Inlined> {
        let tree = function.tree.filter(|_| index < MAX_RECORDS)?;
        let tree = match self {
            Trees::Addressed => tree,
            Trees::From(from) => from.checked_add(tree)?,
            Trees::Unknown => return None,
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
