//! The machines for which unwind tables are built: how each numbers its registers, and how large its words are.
//! Sources: the System V ABIs for x86-64 (figure 3.36) and i386 (table 2.14).

use gimli::{Register, X86, X86_64};

use super::elf::Elf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    X86_64,
    I386,
}

/// A register that no rule uses.
const OTHER: Register = Register(u16::MAX);

impl Machine {
    /// The machine of a file; `None` if no unwind table can be built for it.
    pub(super) fn of(elf: &Elf) -> Option<Machine> {
        match (elf.is_x86_64(), elf.is_i386()) {
            (true, _) => Some(Machine::X86_64),
            (_, true) => Some(Machine::I386),
            _ => None,
        }
    }

    /// Bytes of an address, and of a word on the stack.
    pub(super) fn word_size(self) -> u8 {
        match self {
            Machine::X86_64 => 8,
            Machine::I386 => 4,
        }
    }

    /// The binary logarithm of the size of a word.
    pub(super) fn word_shift(self) -> u64 {
        self.word_size().trailing_zeros().into()
    }

    /// This machine's number of the register with the same role as an x86-64 register.
    pub(super) fn number(self, register: Register) -> Register {
        match (self, register) {
            (Machine::X86_64, _) => register,
            (Machine::I386, X86_64::RSP) => X86::ESP,
            (Machine::I386, X86_64::RBP) => X86::EBP,
            (Machine::I386, X86_64::RA) => X86::RA,
            (Machine::I386, _) => OTHER,
        }
    }

    /// The inverse of `number`.
    pub(super) fn register(self, number: Register) -> Register {
        let all = [X86_64::RSP, X86_64::RBP, X86_64::RA];
        match self {
            Machine::X86_64 => number,
            Machine::I386 => all.into_iter().find(|one| self.number(*one) == number).unwrap_or(OTHER),
        }
    }

    /// Bytes from the saved stack pointer to the saved instruction pointer in the kernel's signal frame:
    /// `struct sigcontext_64` and `sigcontext_32` of arch/x86/include/uapi/asm/sigcontext.h.
    pub(super) fn saved_ip(self) -> i64 {
        match self {
            Machine::X86_64 => 8,
            Machine::I386 => 28,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_those_that_do_the_same() {
        for machine in [Machine::X86_64, Machine::I386] {
            for register in [X86_64::RSP, X86_64::RBP, X86_64::RA] {
                assert_eq!(machine.register(machine.number(register)), register, "{machine:?}");
            }
            assert_eq!(1 << machine.word_shift(), machine.word_size());
        }
        // The stack pointer's number on the other machine is another register here.
        assert_eq!(Machine::I386.register(X86_64::RSP), OTHER);
        assert_eq!(Machine::I386.register(X86::ECX), OTHER);
        assert_eq!(Machine::X86_64.register(X86::ESP), X86_64::RSI);
    }
}
