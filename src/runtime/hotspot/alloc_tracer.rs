//! The functions of HotSpot at which allocations are sampled. HotSpot calls them whether Flight Recorder runs or not
//! (`gc/shared/allocTracer.hpp`; before JDK 10 `gc_interface/allocTracer.hpp`).

use std::os::fd::OwnedFd;

use crate::capture::AllocationArguments::{
    self, ClassBytes, ClassObjectBytes, ClassObjectTlabBytes, ClassTlabBytes,
};
use crate::symbolize::{NoProbeSite, ProbedFile};

/// A function by its mangled name.
struct TracerFunction {
    symbol: &'static str,
    arguments: AllocationArguments,
}

const fn function(symbol: &'static str, arguments: AllocationArguments) -> TracerFunction {
    TracerFunction { symbol, arguments }
}

/// Called when a thread takes a new TLAB for an object. The bytes in the arguments are first those of the TLAB, then those
/// of the object.
const IN_NEW_TLAB: [TracerFunction; 5] = [
    // From JDK 17 on.
    function(
        "_ZN11AllocTracer27send_allocation_in_new_tlabEP5KlassPP12HeapWordImplmmP10JavaThread",
        ClassObjectTlabBytes,
    ),
    function(
        "_ZN11AllocTracer27send_allocation_in_new_tlabEP5KlassPP12HeapWordImplmmP6Thread",
        ClassObjectTlabBytes,
    ),
    // JDK 11.
    function(
        "_ZN11AllocTracer27send_allocation_in_new_tlabEP5KlassP8HeapWordmmP6Thread",
        ClassObjectTlabBytes,
    ),
    // JDK 8 from update 262 on.
    function(
        "_ZN11AllocTracer33send_allocation_in_new_tlab_eventE11KlassHandleP8HeapWordmmP6Thread",
        ClassObjectTlabBytes,
    ),
    // JDK 8 before, and JDK 9. A KlassHandle has one field, the class.
    function("_ZN11AllocTracer33send_allocation_in_new_tlab_eventE11KlassHandlemm", ClassTlabBytes),
];

/// Called for an object that is allocated outside of TLABs. The same versions in the same order.
const OUTSIDE_TLAB: [TracerFunction; 5] = [
    function(
        "_ZN11AllocTracer28send_allocation_outside_tlabEP5KlassPP12HeapWordImplmP10JavaThread",
        ClassObjectBytes,
    ),
    function(
        "_ZN11AllocTracer28send_allocation_outside_tlabEP5KlassPP12HeapWordImplmP6Thread",
        ClassObjectBytes,
    ),
    function("_ZN11AllocTracer28send_allocation_outside_tlabEP5KlassP8HeapWordmP6Thread", ClassObjectBytes),
    function(
        "_ZN11AllocTracer34send_allocation_outside_tlab_eventE11KlassHandleP8HeapWordmP6Thread",
        ClassObjectBytes,
    ),
    function("_ZN11AllocTracer34send_allocation_outside_tlab_eventE11KlassHandlem", ClassBytes),
];

/// A function in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TracerSite {
    /// Bytes from the beginning of the file.
    pub(super) offset: u64,
    pub(super) arguments: AllocationArguments,
}

/// Where both functions of a file lie.
///
/// # Errors
/// Why one of them was not found.
pub(super) fn sites(file: OwnedFd) -> Result<[TracerSite; 2], NoProbeSite> {
    let file = ProbedFile::open(file)?;
    Ok([site(&file, &IN_NEW_TLAB)?, site(&file, &OUTSIDE_TLAB)?])
}

fn site(file: &ProbedFile, names: &[TracerFunction]) -> Result<TracerSite, NoProbeSite> {
    for TracerFunction { symbol, arguments } in names {
        match file.function(symbol) {
            Ok(site) => return Ok(TracerSite { offset: site.offset, arguments: *arguments }),
            Err(NoProbeSite::Function) => {}
            Err(why) => return Err(why),
        }
    }
    Err(NoProbeSite::Function)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn the_function_for_new_tlabs_has_one_size_more() {
        for (in_new, outside) in IN_NEW_TLAB.iter().zip(&OUTSIDE_TLAB) {
            let with_tlab = match outside.arguments {
                ClassObjectBytes => ClassObjectTlabBytes,
                ClassBytes => ClassTlabBytes,
                other => panic!("{other:?}"),
            };
            assert_eq!(in_new.arguments, with_tlab);
            assert_eq!(outside.symbol.contains("HeapWord"), outside.arguments == ClassObjectBytes);
            // The function for new TLABs has a size more, and another name of another length.
            let as_outside = in_new
                .symbol
                .replace("27send_allocation_in_new", "28send_allocation_outside")
                .replace("33send_allocation_in_new_tlab_event", "34send_allocation_outside_tlab_event");
            assert_eq!(as_outside.replacen("mm", "m", 1), outside.symbol);
        }
    }

    #[test]
    fn a_program_that_is_no_jvm_has_no_such_functions() {
        let own = File::open("/proc/self/exe").unwrap();
        assert!(matches!(sites(own.into()), Err(NoProbeSite::Function)));
    }
}
