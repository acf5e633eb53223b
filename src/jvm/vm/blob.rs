//! A code blob: its kind, the place of its code, and the debug records of a compiled method.

use std::ops::Range;

use super::debug_info::DebugInfo;
use super::heaps::is_used;
use super::layout::{BlobPlace, DebugDataOffsets, VmLayout};
use crate::jvm::memory::{InvalidMemory, Memory, half_in, word_in};
use crate::unwind::CodeSpan;

/// Largest blob that is believed, bytes. HotSpot compiles no bytecode beyond 8,000 bytes (`HugeMethodLimit`); the
/// largest blobs, interpreter and stubs, have some hundred KiB.
const MAX_SIZE: u64 = 16 << 20;
/// Largest part of a compiled method beside its code, bytes.
const MAX_PART: u64 = 4 << 20;

/// HotSpot's names of compiled methods; JNI methods have native wrappers.
const METHODS: [&[u8]; 2] = [b"nmethod", b"native nmethod"];

/// Distinguishes a blob from another that gets the same address. HotSpot never reuses a compilation number among
/// compilations of one kind; different kinds differ in the other fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlobIdentity {
    pub(super) name: u64,
    size: u32,
    pub(super) code: CodeSpan,
    /// Zeros if the blob is no method.
    compilation: Compilation,
    is_method: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Compilation {
    number: u32,
    /// Address of the compiled `Method`.
    method: u64,
}

impl BlobIdentity {
    pub(super) fn of(
        header: &[u8],
        layout: &VmLayout,
        start: u64,
        is_method: bool,
    ) -> Result<BlobIdentity, InvalidMemory> {
        let size = half_in(header, layout.blob.size)?;
        let end = start.checked_add(u64::from(size)).ok_or(InvalidMemory)?;
        let code = place(header, start, layout.blob.code)?;
        let code_end = place(header, start, layout.blob.code_end)?;
        if u64::from(size) > MAX_SIZE || !(start..=code_end).contains(&code) || code_end > end {
            return Err(InvalidMemory);
        }
        let compilation = if is_method {
            let number = half_in(header, layout.nmethod.compile_id)?;
            Compilation { number, method: word_in(header, layout.nmethod.method)? }
        } else {
            Compilation::default()
        };
        let name = word_in(header, layout.blob.name)?;
        Ok(BlobIdentity { name, size, code: CodeSpan { start: code, end: code_end }, compilation, is_method })
    }

    /// Whether the same blob is still at `start`.
    pub(super) fn is_at<M: Memory>(&self, memory: &M, layout: &VmLayout, start: u64) -> bool {
        let now = header(memory, layout, start)
            .and_then(|header| BlobIdentity::of(&header, layout, start, self.is_method));
        now.as_ref() == Ok(self)
    }
}

/// A blob as it was when it was read.
#[derive(Clone, Debug)]
pub(super) struct CodeBlob {
    pub(super) start: u64,
    pub(super) identity: BlobIdentity,
    pub(super) kind: BlobKind,
    /// The structure as it was read.
    header: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BlobKind {
    /// A compiled method, with the address of its `Method`.
    Method(u64),
    /// Any other blob, with HotSpot's name.
    Stub(Vec<u8>),
}

impl CodeBlob {
    /// The blob in use that begins at `start`.
    pub(super) fn read<M: Memory>(
        memory: &M,
        layout: &VmLayout,
        start: u64,
    ) -> Result<CodeBlob, InvalidMemory> {
        let header = header(memory, layout, start)?;
        let text = memory.string(word_in(&header, layout.blob.name)?)?;
        let is_method = is_method(&text);
        let identity = BlobIdentity::of(&header, layout, start, is_method)?;
        let kind =
            if is_method { BlobKind::Method(identity.compilation.method) } else { BlobKind::Stub(text) };
        Ok(CodeBlob { start, identity, kind, header })
    }

    /// Addresses of the whole blob, its header included.
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start + u64::from(self.identity.size)
    }

    pub(super) fn code(&self) -> Range<u64> {
        self.identity.code.start..self.identity.code.end
    }

    /// The debug records of a compiled method.
    pub(super) fn debug_info<M: Memory>(
        &self,
        memory: &M,
        layout: &VmLayout,
    ) -> Result<DebugInfo, InvalidMemory> {
        let [metadata, scopes, records] = self.parts(layout)?;
        let read = |part: Range<u64>| -> Result<Vec<u8>, InvalidMemory> {
            let size =
                part.end.checked_sub(part.start).filter(|size| *size <= MAX_PART).ok_or(InvalidMemory)?;
            let mut bytes = vec![0; usize::try_from(size).map_err(|_| InvalidMemory)?];
            memory.read_all(part.start, &mut bytes)?;
            Ok(bytes)
        };
        Ok(DebugInfo { metadata: read(metadata)?, scopes: read(scopes)?, records: read(records)? })
    }

    /// Addresses of the metadata, the scopes and the debug records, in this order.
    fn parts(&self, layout: &VmLayout) -> Result<[Range<u64>; 3], InvalidMemory> {
        let offset = |field| half_in(&self.header, field).map(u64::from);
        let plus = |base: u64, offset: u64| base.checked_add(offset).ok_or(InvalidMemory);
        match layout.nmethod.parts {
            DebugDataOffsets::Inside { metadata, scopes, records, dependencies } => {
                let metadata = plus(self.start, offset(metadata)?)?;
                let scopes = place(&self.header, self.start, scopes)?;
                let records = plus(self.start, offset(records)?)?;
                let end = plus(self.start, offset(dependencies)?)?;
                if end > self.range().end {
                    return Err(InvalidMemory);
                }
                Ok([metadata..scopes, scopes..records, records..end])
            }
            DebugDataOffsets::Outside {
                immutable,
                immutable_size,
                records,
                scopes,
                mutable,
                mutable_size,
                relocation_size,
            } => {
                let (immutable, size) = (word_in(&self.header, immutable)?, offset(immutable_size)?);
                let (records, scopes) = (offset(records)?, offset(scopes)?);
                let (mutable, all) = (word_in(&self.header, mutable)?, offset(mutable_size)?);
                let relocations = offset(relocation_size)?;
                if size == 0 {
                    // The wrapper of a JNI method has no debug records.
                    return Ok([0..0, 0..0, 0..0]);
                }
                Ok([
                    plus(mutable, relocations)?..plus(mutable, all)?,
                    plus(immutable, scopes)?..plus(immutable, size)?,
                    plus(immutable, records)?..plus(immutable, scopes)?,
                ])
            }
        }
    }
}

/// Whether the name is HotSpot's name of compiled methods.
pub(super) fn is_method(name: &[u8]) -> bool {
    METHODS.contains(&name)
}

/// The block at an address, and the structure at the beginning of its blob. The bytes suffice for a compiled method, or
/// are fewer if memory ends there.
pub(super) fn block_at<M: Memory>(
    memory: &M,
    layout: &VmLayout,
    address: u64,
) -> Result<Vec<u8>, InvalidMemory> {
    let size = layout.heaps.block_size + layout.nmethod.size;
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| InvalidMemory)?];
    let got = memory.read(address, &mut bytes);
    bytes.truncate(got);
    Ok(bytes)
}

/// The structure at the beginning of a blob that is in use.
fn header<M: Memory>(memory: &M, layout: &VmLayout, start: u64) -> Result<Vec<u8>, InvalidMemory> {
    let block = start.checked_sub(layout.heaps.block_size).ok_or(InvalidMemory)?;
    let ahead = usize::try_from(layout.heaps.block_size).map_err(|_| InvalidMemory)?;
    let mut bytes = block_at(memory, layout, block)?;
    if !is_used(&bytes, &layout.heaps) {
        return Err(InvalidMemory);
    }
    Ok(bytes.split_off(ahead.min(bytes.len())))
}

/// The address of a part of the blob at `start`.
fn place(header: &[u8], start: u64, place: BlobPlace) -> Result<u64, InvalidMemory> {
    match place {
        BlobPlace::Offset(field) => {
            start.checked_add(u64::from(half_in(header, field)?)).ok_or(InvalidMemory)
        }
        BlobPlace::Address(field) => word_in(header, field),
    }
}
