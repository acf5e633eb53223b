//! The procedure linkage table (PLT): code without symbols for calls into other libraries, named `memcpy@plt`.
//!
//! The place of an entry does not say which function the entry calls, because linkers order entries freely. The entry's
//! own instruction names a slot of the global offset table, and the slot's relocation names the symbol. System V ABI,
//! x86-64 and AArch64 supplements.

use std::collections::HashMap;

use super::aliases::{StringTable, name_at};
use super::elf::{EM_X86_64, Elf};
use super::fields::{ElfClass, Fields};

const EM_AARCH64: u16 = 183;
const MAX_RELOCATIONS: u64 = 1 << 20;
const ENTRY: u64 = 16;

/// The slots of the global offset table, and the symbols that fill them.
#[derive(Debug, Default)]
pub(crate) struct Plt {
    /// By slot: number of the dynamic symbol.
    slots: HashMap<u64, u32>,
}

impl Plt {
    /// Reads the relocations of the slots. Slots that cannot be read have no names.
    pub(crate) fn read(elf: &Elf) -> Plt {
        let mut plt = Plt::default();
        if elf.class() != ElfClass::Elf64 {
            return plt;
        }
        for table in [".rela.plt", ".rela.dyn"] {
            let Some(section) = elf.section(table) else { continue };
            let Ok(bytes) = elf.bytes(section.offset, section.size, MAX_RELOCATIONS * 24) else { continue };
            for record in bytes.chunks_exact(24) {
                let f = Fields(record);
                let (slot, info) = (f.u64(0), f.u64(8));
                let symbol = u32::try_from(info >> 32).unwrap_or(0);
                if symbol != 0 {
                    plt.slots.insert(slot, symbol);
                }
            }
        }
        plt
    }

    /// `name@plt` if `address` lies in a linkage table, `[plt]` if the entry's function is not known.
    pub(crate) fn find(&self, elf: &Elf, address: u64) -> Option<Vec<u8>> {
        let section = elf
            .sections()
            .iter()
            .find(|section| section.name.starts_with(".plt") && section.holds(address))?;
        let within = (address - section.addr) / ENTRY * ENTRY;
        let mut code = [0; ENTRY as usize];
        let read = section.offset.checked_add(within).and_then(|at| elf.read_some(&mut code, at).ok());
        let name = read.filter(|&got| got == code.len()).and_then(|_| {
            let slot = slot_of(elf.machine(), section.addr + within, &code)?;
            self.symbol_name(elf, *self.slots.get(&slot)?)
        });
        Some(match name {
            Some(name) => [&name[..], b"@plt"].concat(),
            None => b"[plt]".to_vec(),
        })
    }

    fn symbol_name(&self, elf: &Elf, symbol: u32) -> Option<Vec<u8>> {
        let table = elf.section(".dynsym")?;
        let strings = elf.strings_of(table)?;
        let at = u64::from(symbol).checked_mul(24).filter(|at| at + 24 <= table.size)?;
        let record = elf.bytes(table.offset + at, 24, 24).ok()?;
        name_at(elf, StringTable { offset: strings.offset, size: strings.size }, Fields(&record).u32(0))
    }
}

/// The address of the slot that the entry's code at `pc` jumps through.
fn slot_of(machine: u16, pc: u64, code: &[u8; 16]) -> Option<u64> {
    match machine {
        // jmp *disp32(%rip), after endbr64 or bnd or nothing.
        EM_X86_64 => {
            let jump = code.windows(2).take(8).position(|w| w == [0xff, 0x25])?;
            let disp = i32::from_le_bytes(code.get(jump + 2..jump + 6)?.try_into().ok()?);
            Some(pc.wrapping_add(jump as u64 + 6).wrapping_add_signed(i64::from(disp)))
        }
        // adrp x16, page; ldr x17, [x16, #offset], after bti or nothing.
        EM_AARCH64 => {
            let f = Fields(code);
            let at = (0..3).find(|i| f.u32(i * 4) & 0x9f00_001f == 0x9000_0010)? * 4;
            let (adrp, ldr) = (f.u32(at), f.u32(at + 4));
            let pages = (adrp >> 3 & 0x1f_fffc) | (adrp >> 29 & 3);
            let pages = i64::from((pages << 11) as i32 >> 11);
            let page = (pc.wrapping_add(at as u64) & !0xfff).wrapping_add_signed(pages << 12);
            Some(page.wrapping_add(u64::from(ldr >> 10 & 0xfff) << 3))
        }
        _ => None,
    }
}
