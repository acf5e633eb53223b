//! Which functions allocate in a process: of each name the one that the dynamic linker finds first.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use super::functions::{COUNT, FileFunctions, FileRole, FunctionSite};
use super::link_order::LinkOrder;
use crate::process::inode_traits::InodeTraits;
use crate::process::{CodeSource, MappedFile, ProcessCode};

/// A file with code of a process.
pub(super) struct CandidateFile {
    pub(super) file: Arc<MappedFile>,
    pub(super) role: FileRole,
}

/// A function of a file of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChosenFunction {
    pub(super) file: InodeTraits,
    pub(super) site: FunctionSite,
}

/// The files of a process, in the order in which the dynamic linker searches them. Files that its list lacks come last.
/// Without a list the program comes first, then libraries that replace the allocator, then the C library.
pub(super) fn candidates(code: &ProcessCode, order: Option<&LinkOrder>) -> Vec<CandidateFile> {
    let mut known = BTreeSet::new();
    let (mut files, mut starts): (Vec<CandidateFile>, _) = (Vec::new(), Vec::new());
    for range in &code.ranges {
        let CodeSource::File(file) = &range.code else { continue };
        let is_program = (range.start..range.end).contains(&code.start_code);
        let role = if is_program { FileRole::Program } else { FileRole::Library };
        if known.insert(file.id) {
            files.push(CandidateFile { file: Arc::clone(file), role });
            starts.push(range.start);
        } else if is_program && let Some(same) = files.iter_mut().find(|same| same.file.id == file.id) {
            same.role = role;
        }
    }
    let places = order.map_or_else(|| vec![None; files.len()], |order| order.places(&starts));
    let mut placed: Vec<_> = places.into_iter().zip(files).collect();
    placed.sort_by_key(|(place, candidate)| (place.unwrap_or(usize::MAX), likely_place(candidate)));
    placed.into_iter().map(|(_, candidate)| candidate).collect()
}

fn likely_place(candidate: &CandidateFile) -> u8 {
    let path = candidate.file.path.as_os_str().as_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match candidate.role {
        FileRole::Program => 0,
        // glibc's dynamic linker has an allocator of its own, for itself.
        FileRole::Library if name.starts_with(b"ld-linux") => 3,
        FileRole::Library
            if name.starts_with(b"libc.") || name.starts_with(b"libc-") || name.starts_with(b"ld-musl") =>
        {
            2
        }
        FileRole::Library => 1,
    }
}

/// Of each name the first function, in the order of the files. Two names of one function count once.
pub(super) fn choose(files: &[FileFunctions]) -> BTreeSet<ChosenFunction> {
    let first = |nth: usize| {
        let mut found =
            files.iter().filter_map(|of| Some(ChosenFunction { file: of.file, site: of.sites[nth]? }));
        found.next()
    };
    let mut places = BTreeSet::new();
    (0..COUNT).filter_map(first).filter(|chosen| places.insert((chosen.file, chosen.site.offset))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::capture::AllocationArguments::{Malloc, Memalign};

    #[test]
    fn the_first_file_with_a_name_has_its_function() {
        let site = |offset, arguments| FunctionSite { offset, arguments };
        let traits = |path| InodeTraits::of(File::open(path).unwrap()).unwrap();
        let [program, preloaded, library] =
            ["/proc/self/exe", "/proc/self/status", "/proc/self/stat"].map(traits);
        let mut replaced = [None; COUNT];
        replaced[0] = Some(site(0x10, Malloc));
        let mut all = [None; COUNT];
        all[0] = Some(site(0x100, Malloc));
        all[5] = Some(site(0x200, Memalign));
        all[6] = all[5];
        let files = [(program, [None; COUNT]), (preloaded, replaced), (library, all)];
        let chosen = choose(&files.map(|(file, sites)| FileFunctions { file, sites }));
        let right = [(preloaded, site(0x10, Malloc)), (library, site(0x200, Memalign))];
        assert_eq!(chosen, right.map(|(file, site)| ChosenFunction { file, site }).into());
        assert_eq!(choose(&[]), BTreeSet::new());
    }
}
