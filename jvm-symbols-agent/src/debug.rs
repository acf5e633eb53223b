//! Encodes the debug records of a compiled method from the arguments of `CompiledMethodLoad`.
#![allow(unsafe_code)]

use core::ffi::c_void;

use jvm_symbols_log::PcEncoder;
use jvm_symbols_log::encode::code_flag;
use jvm_symbols_log::pc_encoder::MAX_DEPTH;

use crate::jvmti::{AddressLocation, InlineRecord, MethodId, PcStack};
use crate::scratch::Methods;

/// The highest number of debug records of a method, and of records behind one `compile_info`.
const MAX_PCS: i32 = 1 << 20;
const MAX_RECORDS: usize = 16;
const INLINE_INFO: i32 = 2;

/// The arguments of one event; valid during the event.
#[derive(Clone, Copy, Debug)]
pub struct Source<'e> {
    /// The compiled method itself, which gets number 0 in the method table.
    pub method: MethodId,
    /// First address of the code.
    pub start: usize,
    /// Length of the code in bytes.
    pub size: u32,
    inlines: &'e [PcStack],
    locations: &'e [AddressLocation],
}

impl<'e> Source<'e> {
    /// Reads the arguments of the event.
    ///
    /// # Safety
    /// `map` has `map_length` entries or is null; `info` is null or a list as jvmticmlr.h defines it.
    #[must_use]
    pub unsafe fn new(
        method: MethodId,
        start: usize,
        size: u32,
        (map, map_length): (*const AddressLocation, i32),
        info: *const c_void,
    ) -> Source<'e> {
        // SAFETY: the caller guarantees it.
        let (inlines, locations) = unsafe { (inline_records(info.cast()), array(map, map_length)) };
        Source { method, start, size, inlines, locations }
    }

    /// Encodes the debug records, and numbers the methods that they name, the compiled one first. Returns flags of
    /// [`code_flag`].
    pub fn encode(&self, methods: &mut Methods, mut encoder: PcEncoder<'_, '_, '_>) -> u8 {
        methods.begin();
        let _ = methods.number(self.method);
        if self.inlines.is_empty() {
            return self.encode_locations(&mut encoder) | finish(encoder) | code_flag::NO_INLINES;
        }
        let mut flags = 0;
        let mut last: Option<Chain<'_>> = None;
        for stack in self.inlines {
            // SAFETY: the stack is part of the event's list.
            let chain = unsafe { Chain::new(stack) };
            let (Some(chain), Some(pc)) = (chain, self.offset(stack.pc)) else { continue };
            let kept = last.as_ref().map_or(0, |last| last.common(&chain));
            let new = chain.outermost_first().skip(kept).map(|(id, bci)| Some((methods.number(id)?, bci)));
            if encoder.record(pc, kept, new) {
                last = Some(chain);
            } else {
                flags = code_flag::DEBUG_CUT;
                break;
            }
        }
        flags | finish(encoder)
    }

    /// Without inline records, encodes the bytecode indices of the compiled method itself.
    fn encode_locations(&self, encoder: &mut PcEncoder<'_, '_, '_>) -> u8 {
        for location in self.locations {
            let Some(pc) = self.offset(location.address) else { continue };
            let frame = core::iter::once(Some((0, location.location as i32)));
            if !encoder.record(pc, 0, frame) {
                return code_flag::DEBUG_CUT;
            }
        }
        0
    }

    /// Bytes from the code's start; `None` outside the code.
    fn offset(&self, pc: usize) -> Option<u32> {
        let offset = pc.checked_sub(self.start).and_then(|n| u32::try_from(n).ok())?;
        (offset <= self.size).then_some(offset)
    }
}

fn finish(encoder: PcEncoder<'_, '_, '_>) -> u8 {
    if encoder.finish() { 0 } else { code_flag::DEBUG_CUT }
}

/// The frames at one debug record.
#[derive(Clone, Copy, Debug)]
struct Chain<'e> {
    methods: &'e [MethodId],
    bcis: &'e [i32],
}

impl<'e> Chain<'e> {
    /// # Safety
    /// The arrays have as many entries as the record says, or are null.
    unsafe fn new(stack: &PcStack) -> Option<Chain<'e>> {
        // SAFETY: the caller guarantees it.
        let (methods, bcis) =
            unsafe { (array(stack.methods, stack.frames), array(stack.bcis, stack.frames)) };
        let known = !methods.is_empty() && methods.len() == bcis.len() && methods.len() <= MAX_DEPTH;
        known.then_some(Chain { methods, bcis })
    }

    fn outermost_first(&self) -> impl ExactSizeIterator<Item = (MethodId, i32)> + use<'e> {
        self.methods.iter().copied().zip(self.bcis.iter().copied()).rev()
    }

    /// The number of outermost frames that both chains share.
    fn common(&self, other: &Chain<'_>) -> usize {
        self.outermost_first().zip(other.outermost_first()).take_while(|(a, b)| a == b).count()
    }
}

/// The first inline record of the list.
///
/// # Safety
/// `record` is null or a list as jvmticmlr.h defines it.
unsafe fn inline_records<'e>(mut record: *const InlineRecord) -> &'e [PcStack] {
    for _ in 0..MAX_RECORDS {
        if record.is_null() {
            break;
        }
        // SAFETY: the caller guarantees a list of the header: every record has its four fields, and only records of
        // kind 2 have more.
        unsafe {
            if (*record).kind == INLINE_INFO && (*record).major == 1 {
                return array((*record).pcs, (*record).pc_count);
            }
            record = (*record).next;
        }
    }
    &[]
}

/// An array of the JVM; empty if the pointer is null, or the count negative or absurd.
///
/// # Safety
/// `first` is null or has `count` entries, valid for `'e`.
unsafe fn array<'e, T>(first: *const T, count: i32) -> &'e [T] {
    if first.is_null() || count <= 0 || count > MAX_PCS {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { core::slice::from_raw_parts(first, count as usize) }
}
