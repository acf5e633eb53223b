//! The frame descriptions of a file's functions: `.eh_frame` or `.debug_frame`, one after the other.

use std::ops::ControlFlow;

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, EndianSlice, FrameDescriptionEntry, LittleEndian,
    UnwindOffset, UnwindSection,
};

pub(super) type SliceReader<'a> = EndianSlice<'a, LittleEndian>;

/// Visits the description of each function. An unreadable description is skipped. If not even its length can be read,
/// the descriptions behind it are not visited.
pub(super) fn for_each_function<'d, S, B>(
    frames: &S,
    bases: &BaseAddresses,
    mut visit: impl FnMut(&FrameDescriptionEntry<SliceReader<'d>>) -> ControlFlow<B>,
) -> ControlFlow<B>
where
    S: UnwindSection<SliceReader<'d>>,
{
    // Most functions have the same CIE as the previous one.
    let mut known: Option<(usize, CommonInformationEntry<SliceReader<'d>>)> = None;
    let mut entries = frames.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(|section, bases, offset| {
            let at = UnwindOffset::into(offset);
            match &known {
                Some((known_at, cie)) if *known_at == at => Ok(cie.clone()),
                _ => {
                    let cie = section.cie_from_offset(bases, offset)?;
                    known = Some((at, cie.clone()));
                    Ok(cie)
                }
            }
        });
        let Ok(fde) = fde else { continue };
        visit(&fde)?;
    }
    ControlFlow::Continue(())
}
