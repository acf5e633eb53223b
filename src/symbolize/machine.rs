//! The machines whose frame descriptions become unwind tables: how each numbers its registers, and how large its words are.
//! Facts: the System V ABIs for x86-64 (figure 3.36) and i386 (table 2.14).

use gimli::{Register, X86, X86_64};

use super::elf::Elf;

/// What frame descriptions of a machine's code have of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Machine {
    X86_64,
    I386,
}

/// No register that a rule goes by.
const OTHER: Register = Register(u16::MAX);

impl Machine {
    /// That of a file; none if its frames are not followed.
    pub(super) fn of(elf: &Elf) -> Option<Machine> {
        match (elf.is_x86_64(), elf.is_i386()) {
            (true, _) => Some(Machine::X86_64),
            (_, true) => Some(Machine::I386),
            _ => None,
        }
    }

    /// Bytes of an address, and of a word on the stack.
    pub(super) fn word(self) -> u8 {
        match self {
            Machine::X86_64 => 8,
            Machine::I386 => 4,
        }
    }

    /// How many times a one is doubled to be a word.
    pub(super) fn word_shift(self) -> u64 {
        self.word().trailing_zeros().into()
    }

    /// The number in this machine's descriptions of a register of x86-64 that does the same.
    pub(super) fn number(self, register: Register) -> Register {
        match (self, register) {
            (Machine::X86_64, _) => register,
            (Machine::I386, X86_64::RSP) => X86::ESP,
            (Machine::I386, X86_64::RBP) => X86::EBP,
            (Machine::I386, X86_64::RA) => X86::RA,
            (Machine::I386, _) => OTHER,
        }
    }

    /// The other way round.
    pub(super) fn register(self, number: Register) -> Register {
        let all = [X86_64::RSP, X86_64::RBP, X86_64::RA];
        match self {
            Machine::X86_64 => number,
            Machine::I386 => all.into_iter().find(|one| self.number(*one) == number).unwrap_or(OTHER),
        }
    }

    /// What the kernel saves for a signal handler: from the stack pointer to the instruction pointer, bytes. `struct
    /// sigcontext_64` and `sigcontext_32` of arch/x86/include/uapi/asm/sigcontext.h.
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
            assert_eq!(1 << machine.word_shift(), machine.word());
        }
        // What has the number of the stack pointer of the other machine is another register.
        assert_eq!(Machine::I386.register(X86_64::RSP), OTHER);
        assert_eq!(Machine::I386.register(X86::ECX), OTHER);
        assert_eq!(Machine::X86_64.register(X86::ESP), X86_64::RSI);
    }
}
