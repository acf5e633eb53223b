//! The functions with which native code allocates memory, in a file.

use std::os::fd::OwnedFd;

use crate::capture::AllocationArguments::{
    self, Calloc, Malloc, Memalign, PosixMemalign, Realloc, Reallocarray, Valloc,
};
use crate::process::inode_traits::InodeTraits;
use crate::symbolize::{NoProbeSite, ProbedFile};

/// A function of the C library that other allocators replace.
struct AllocatorFunction {
    symbol: &'static str,
    arguments: AllocationArguments,
}

const fn function(symbol: &'static str, arguments: AllocationArguments) -> AllocatorFunction {
    AllocatorFunction { symbol, arguments }
}

/// How many functions there are.
pub(super) const COUNT: usize = 9;

/// `operator new` of C++ and the allocators of most languages call these.
const FUNCTIONS: [AllocatorFunction; COUNT] = [
    function("malloc", Malloc),
    function("calloc", Calloc),
    function("realloc", Realloc),
    function("reallocarray", Reallocarray),
    function("posix_memalign", PosixMemalign),
    function("aligned_alloc", Memalign),
    function("memalign", Memalign),
    function("valloc", Valloc),
    function("pvalloc", Valloc),
];

/// A function in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FunctionSite {
    /// Bytes from the beginning of the file.
    pub(super) offset: u64,
    pub(super) arguments: AllocationArguments,
}

/// The functions that a file defines.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileFunctions {
    pub(super) file: InodeTraits,
    /// In the order of [`FUNCTIONS`].
    pub(super) sites: [Option<FunctionSite>; COUNT],
}

impl FileFunctions {
    pub(super) fn has_malloc(&self) -> bool {
        self.sites[0].is_some()
    }
}

/// What a file is for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileRole {
    /// The executable. Its own calls lead to its functions, whether these are exported or not.
    Program,
    /// The dynamic linker finds only functions that the library exports.
    Library,
}

/// Finds the functions that a file defines.
///
/// # Errors
/// Why the file cannot be read. A file for another processor, or of 32-bit code, has none.
pub(super) fn functions_of(file: OwnedFd, role: FileRole) -> Result<FileFunctions, NoProbeSite> {
    let mut found = FileFunctions { file: InodeTraits::of(&file)?, sites: [None; COUNT] };
    let file = ProbedFile::open(file)?;
    if !file.is_native() {
        return Ok(found);
    }
    for (site, AllocatorFunction { symbol, arguments }) in found.sites.iter_mut().zip(&FUNCTIONS) {
        let exported = file.exported_function(symbol);
        let place = match (role, exported) {
            (FileRole::Program, Err(NoProbeSite::Function)) => file.function(symbol),
            (_, exported) => exported,
        };
        *site = match place {
            Ok(place) => Some(FunctionSite { offset: place.offset, arguments: *arguments }),
            Err(NoProbeSite::Function | NoProbeSite::Indirect | NoProbeSite::Outside) => None,
            Err(why) => return Err(why),
        };
        if site.is_none() && role == FileRole::Program && *arguments == Malloc {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};

    use super::super::c_library;
    use super::*;

    #[test]
    fn the_c_library_exports_the_functions_and_this_program_does_not() {
        let own = File::open("/proc/self/exe").unwrap();
        assert_eq!(functions_of(own.into(), FileRole::Library).unwrap().sites, [None; COUNT]);
        let library = c_library::files().next().unwrap();
        let functions = functions_of(library, FileRole::Library).unwrap();
        assert!(functions.sites.iter().flatten().count() >= 7, "{functions:?}");
        assert_eq!(functions.sites[0].unwrap().arguments, Malloc);
    }

    /// The dynamic linker needs no section headers either.
    #[test]
    fn a_library_without_section_headers_has_the_same_functions() {
        let read = |file: OwnedFd| functions_of(file, FileRole::Library).unwrap().sites;
        let whole = read(c_library::files().next().unwrap());
        let mut bytes = Vec::new();
        File::from(c_library::files().next().unwrap()).read_to_end(&mut bytes).unwrap();
        // e_shoff, and e_shentsize to e_shstrndx.
        bytes[40..48].fill(0);
        bytes[58..64].fill(0);
        let mut bare = tempfile::tempfile().unwrap();
        bare.write_all(&bytes).unwrap();
        assert_eq!(read(bare.into()), whole);
    }

    #[test]
    fn a_file_that_is_no_program_is_an_error() {
        let status = File::open("/proc/self/status").unwrap();
        assert!(functions_of(status.into(), FileRole::Library).is_err());
    }
}
