//! Exported symbols of a library in memory, found by the library's own hash table as the dynamic linker finds them. No
//! file is opened, so neither a deleted `libjvm.so` nor a false one at its path matters.
//!
//! ELF64 only (elf(5); the binutils and glibc sources describe the GNU hash table).

use super::memory::{InvalidMemory, Memory, half_in, word_in};

const PROGRAM_HEADER: usize = 56;
const MAX_PROGRAM_HEADERS: u16 = 64;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const MAX_DYNAMIC: u64 = 16 << 10;
const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const SYMBOL: u64 = 24;
/// A longer chain means that the table is corrupt.
const MAX_CHAIN: u32 = 4096;

/// A library in memory.
#[derive(Debug)]
pub(super) struct InMemoryLibrary<'a, M> {
    memory: &'a M,
    /// The difference between addresses in memory and in the file.
    bias: u64,
    symbols: u64,
    strings: u64,
    hash: Hash,
}

#[derive(Clone, Copy, Debug)]
enum Hash {
    Gnu(u64),
    SysV(u64),
}

impl<'a, M: Memory> InMemoryLibrary<'a, M> {
    /// The library whose first page is mapped at `base`.
    pub(super) fn at(memory: &'a M, base: u64) -> Result<InMemoryLibrary<'a, M>, InvalidMemory> {
        let mut header = [0; 64];
        memory.read_all(base, &mut header)?;
        // Class 64; the byte order is this machine's, since the library runs here.
        if !header.starts_with(b"\x7fELF\x02") {
            return Err(InvalidMemory);
        }
        let table = base.checked_add(word_in(&header, 32)?).ok_or(InvalidMemory)?;
        let count = u16::from_ne_bytes([header[56], header[57]]);
        if count > MAX_PROGRAM_HEADERS
            || usize::from(u16::from_ne_bytes([header[54], header[55]])) != PROGRAM_HEADER
        {
            return Err(InvalidMemory);
        }
        let mut headers = vec![0; usize::from(count) * PROGRAM_HEADER];
        memory.read_all(table, &mut headers)?;
        let of_type = |wanted| {
            headers.chunks(PROGRAM_HEADER).find(|h| half_in(h, 0) == Ok(wanted)).ok_or(InvalidMemory)
        };
        let load = of_type(PT_LOAD)?;
        let bias = base.wrapping_sub(word_in(load, 16)?.wrapping_sub(word_in(load, 8)?));
        let dynamic = of_type(PT_DYNAMIC)?;
        let length = word_in(dynamic, 40)?.min(MAX_DYNAMIC);
        let mut entries = vec![0; usize::try_from(length).map_err(|_| InvalidMemory)?];
        memory.read_all(bias.wrapping_add(word_in(dynamic, 16)?), &mut entries)?;
        // glibc writes absolute addresses into the section, musl does not change it.
        let address = |value: u64| if value < base { bias.wrapping_add(value) } else { value };
        let entry = |tag: u64| {
            let mut words = entries.chunks_exact(16).map(|e| (word_in(e, 0), word_in(e, 8)));
            words
                .by_ref()
                .take_while(|(t, _)| *t != Ok(DT_NULL))
                .find_map(|(t, value)| if t == Ok(tag) { value.ok().map(address) } else { None })
        };
        let hash = entry(DT_GNU_HASH)
            .map(Hash::Gnu)
            .or_else(|| entry(DT_HASH).map(Hash::SysV))
            .ok_or(InvalidMemory)?;
        let (symbols, strings) =
            (entry(DT_SYMTAB).ok_or(InvalidMemory)?, entry(DT_STRTAB).ok_or(InvalidMemory)?);
        Ok(InMemoryLibrary { memory, bias, symbols, strings, hash })
    }

    /// Address of a symbol.
    pub(super) fn symbol(&self, name: &str) -> Result<u64, InvalidMemory> {
        match self.hash {
            Hash::Gnu(table) => self.by_gnu_hash(table, name.as_bytes()),
            Hash::SysV(table) => self.by_sysv_hash(table, name.as_bytes()),
        }
    }

    /// The value of a variable of eight bytes.
    pub(super) fn value(&self, name: &str) -> Result<u64, InvalidMemory> {
        self.memory.word(self.symbol(name)?)
    }

    fn by_gnu_hash(&self, table: u64, name: &[u8]) -> Result<u64, InvalidMemory> {
        let hash = name.iter().fold(5381_u32, |h, &b| h.wrapping_mul(33).wrapping_add(u32::from(b)));
        let head = |at| self.half(table.wrapping_add(at));
        let (buckets, first, bloom) = (head(0)?, head(4)?, head(8)?);
        let bucket_table = table.wrapping_add(16 + u64::from(bloom) * 8);
        let chains = bucket_table.wrapping_add(u64::from(buckets) * 4);
        let slot = u64::from(hash.checked_rem(buckets).ok_or(InvalidMemory)?);
        let mut index = self.half(bucket_table.wrapping_add(slot * 4))?;
        for _ in 0..MAX_CHAIN {
            let place = u64::from(index.checked_sub(first).ok_or(InvalidMemory)?);
            let link = self.half(chains.wrapping_add(place * 4))?;
            if link | 1 == hash | 1
                && let Some(found) = self.if_named(index, name)?
            {
                return Ok(found);
            }
            if link & 1 == 1 {
                break;
            }
            index = index.checked_add(1).ok_or(InvalidMemory)?;
        }
        Err(InvalidMemory)
    }

    fn by_sysv_hash(&self, table: u64, name: &[u8]) -> Result<u64, InvalidMemory> {
        let hash = name.iter().fold(0_u32, |h, &b| {
            let h = (h << 4).wrapping_add(u32::from(b));
            let high = h & 0xf000_0000;
            (h ^ (high >> 24)) & !high
        });
        let buckets = self.half(table)?;
        let slot = u64::from(hash.checked_rem(buckets).ok_or(InvalidMemory)?);
        let mut index = self.half(table.wrapping_add(8 + slot * 4))?;
        let chains = table.wrapping_add(8 + u64::from(buckets) * 4);
        for _ in 0..MAX_CHAIN {
            if index == 0 {
                break;
            }
            if let Some(found) = self.if_named(index, name)? {
                return Ok(found);
            }
            index = self.half(chains.wrapping_add(u64::from(index) * 4))?;
        }
        Err(InvalidMemory)
    }

    /// The symbol's address if the symbol at `index` has this name.
    fn if_named(&self, index: u32, name: &[u8]) -> Result<Option<u64>, InvalidMemory> {
        let mut symbol = [0; SYMBOL as usize];
        self.memory.read_all(self.symbols.wrapping_add(u64::from(index) * SYMBOL), &mut symbol)?;
        let its_name = self.memory.string(self.strings.wrapping_add(u64::from(half_in(&symbol, 0)?)))?;
        let value = word_in(&symbol, 8)?;
        Ok((its_name == name && value != 0).then(|| self.bias.wrapping_add(value)))
    }

    fn half(&self, address: u64) -> Result<u32, InvalidMemory> {
        let mut bytes = [0; 4];
        self.memory.read_all(address, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory with zeros at every address.
    struct Zeros;

    impl Memory for Zeros {
        fn read(&self, _: u64, buffer: &mut [u8]) -> usize {
            buffer.fill(0);
            buffer.len()
        }
    }

    #[test]
    fn a_hash_table_at_the_end_of_all_addresses_is_nonsense() {
        for hash in [Hash::Gnu(u64::MAX - 3), Hash::SysV(u64::MAX - 3)] {
            let library = InMemoryLibrary { memory: &Zeros, bias: 0, symbols: 0, strings: 0, hash };
            assert_eq!(library.symbol("gHotSpotVMStructs"), Err(InvalidMemory), "{hash:?}");
        }
    }
}
