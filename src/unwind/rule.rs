//! Unwind rules: how to go from a frame to its caller, on x86.

use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

/// The rule at an instruction: `struct jp_rule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// No frame description covers this code.
    None,
    /// The outermost frame, which has no caller.
    End,
    /// A frame of a function; the return address is at CFA - 8 (32-bit code: CFA - 4).
    Frame {
        /// How to compute the CFA.
        cfa: Cfa,
        /// Where the caller's frame pointer is.
        fp: Fp,
    },
    /// A slot of the procedure linkage table: the CFA is sp + `cfa`, and one word more from byte `from` of the slot on.
    Plt {
        /// Offset of the CFA from sp, bytes.
        cfa: i32,
        /// Byte in the slot's 16 bytes.
        from: u8,
    },
    /// The registers that the kernel saved for a signal handler: sp at sp + `sp_at`, ip after it, fp at sp + `fp_at`.
    Signal {
        /// Offset of the saved sp from sp, bytes.
        sp_at: i32,
        /// Offset of the saved fp from sp, bytes.
        fp_at: i16,
    },
    /// A rule that the unwinder does not support.
    Other,
    /// A short gap between described code, mostly assembler. In a leaf, the top of the stack is the return address if
    /// it follows a call; otherwise as [`Rule::None`].
    Bare,
}

/// How to compute the canonical frame address (CFA): the stack pointer after the return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cfa {
    /// The stack pointer plus this many bytes.
    Sp(i32),
    /// The frame pointer plus this many bytes.
    Fp(i32),
    /// \*(sp + n) + m.
    AtSp(i16, i16),
    /// \*(fp + n) + m.
    AtFp(i16, i16),
}

/// Where the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fp {
    /// In fp itself, which the function has not changed.
    Same,
    /// At CFA + n.
    AtCfa(i16),
    /// At fp + n.
    AtFp(i16),
    /// Not known, or not in a form that the unwinder supports.
    Lost,
}

/// The names of `JP_CFAS`, in its order.
pub const CFAS: [&str; 10] = ["none", "end", "sp", "fp", "plt", "at_sp", "at_fp", "signal", "other", "bare"];
/// The names of `JP_FPS`, in its order.
pub const FPS: [&str; 4] = ["same", "at_cfa", "at_fp", "lost"];

const NONE: u8 = 0;
const END: u8 = 1;
const SP: u8 = 2;
const FP: u8 = 3;
const PLT: u8 = 4;
const AT_SP: u8 = 5;
const AT_FP: u8 = 6;
const SIGNAL: u8 = 7;
const OTHER: u8 = 8;
const BARE: u8 = 9;

/// A table numbers its rules, and hashes each row's: one word takes a fraction of the time that all fields take.
impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from_le_bytes(self.encode()));
    }
}

impl Rule {
    /// The bytes of a `struct jp_rule`.
    #[must_use]
    pub fn encode(self) -> [u8; 8] {
        let (kind, fp, fp_at, cfa) = match self {
            Rule::None => (NONE, 0, 0, 0),
            Rule::End => (END, 0, 0, 0),
            Rule::Frame { cfa, fp } => {
                let (kind, cfa) = match cfa {
                    Cfa::Sp(n) => (SP, n),
                    Cfa::Fp(n) => (FP, n),
                    Cfa::AtSp(n, m) => (AT_SP, halves(n, m)),
                    Cfa::AtFp(n, m) => (AT_FP, halves(n, m)),
                };
                let (fp, at) = match fp {
                    Fp::Same => (0, 0),
                    Fp::AtCfa(n) => (1, n),
                    Fp::AtFp(n) => (2, n),
                    Fp::Lost => (3, 0),
                };
                (kind, fp, at, cfa)
            }
            Rule::Plt { cfa, from } => (PLT, 0, i16::from(from), cfa),
            Rule::Signal { sp_at, fp_at } => (SIGNAL, 0, fp_at, sp_at),
            Rule::Other => (OTHER, 0, 0, 0),
            Rule::Bare => (BARE, 0, 0, 0),
        };
        let ([a, b], [c, d, e, f]) = (fp_at.to_le_bytes(), cfa.to_le_bytes());
        [kind, fp, a, b, c, d, e, f]
    }

    /// Decodes the bytes of [`encode`](Self::encode); invalid bytes are [`Rule::Other`].
    #[must_use]
    pub fn decode([kind, fp, a, b, c, d, e, f]: [u8; 8]) -> Rule {
        let (at, n) = (i16::from_le_bytes([a, b]), i32::from_le_bytes([c, d, e, f]));
        let (low, high) = (i16::from_le_bytes([c, d]), i16::from_le_bytes([e, f]));
        let cfa = match kind {
            NONE => return Rule::None,
            END => return Rule::End,
            BARE => return Rule::Bare,
            PLT => return Rule::Plt { cfa: n, from: u8::try_from(at).unwrap_or(u8::MAX) },
            SIGNAL => return Rule::Signal { sp_at: n, fp_at: at },
            SP => Cfa::Sp(n),
            FP => Cfa::Fp(n),
            AT_SP => Cfa::AtSp(low, high),
            AT_FP => Cfa::AtFp(low, high),
            _ => return Rule::Other,
        };
        let fp = match fp {
            0 => Fp::Same,
            1 => Fp::AtCfa(at),
            2 => Fp::AtFp(at),
            _ => Fp::Lost,
        };
        Rule::Frame { cfa, fp }
    }
}

fn halves(low: i16, high: i16) -> i32 {
    let ([a, b], [c, d]) = (low.to_le_bytes(), high.to_le_bytes());
    i32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_read_as_it_was_written() {
        let cfas = [Cfa::Sp(8), Cfa::Fp(-70_000), Cfa::AtSp(-8, 8), Cfa::AtFp(i16::MIN, i16::MAX)];
        let fps = [Fp::Same, Fp::AtCfa(-16), Fp::AtFp(0), Fp::Lost];
        let frames = cfas.into_iter().flat_map(|cfa| fps.map(|fp| Rule::Frame { cfa, fp }));
        let others = [
            Rule::None,
            Rule::End,
            Rule::Plt { cfa: 8, from: 11 },
            Rule::Signal { sp_at: 160, fp_at: 120 },
            Rule::Other,
            Rule::Bare,
        ];
        for rule in frames.chain(others) {
            assert_eq!(Rule::decode(rule.encode()), rule);
        }
        assert_eq!(Rule::decode([99; 8]), Rule::Other);
    }

    #[test]
    fn kinds_are_those_of_the_header() {
        let header = include_str!("../../bpf/abi.h");
        let list = |name: &str| -> Vec<&str> {
            let line = header.lines().find(|l| l.starts_with(&format!("#define {name}(X)"))).unwrap();
            line.split("X(").skip(1).map(|x| x.split(')').next().unwrap()).collect()
        };
        assert_eq!(list("JP_CFAS"), CFAS);
        assert_eq!(list("JP_FPS"), FPS);
        let kind = |rule: Rule| CFAS[usize::from(rule.encode()[0])];
        let frame = |cfa| kind(Rule::Frame { cfa, fp: Fp::Same });
        assert_eq!(
            [
                kind(Rule::None),
                kind(Rule::End),
                frame(Cfa::Sp(0)),
                frame(Cfa::Fp(0)),
                kind(Rule::Plt { cfa: 0, from: 0 }),
                frame(Cfa::AtSp(0, 0)),
                frame(Cfa::AtFp(0, 0)),
                kind(Rule::Signal { sp_at: 0, fp_at: 0 }),
                kind(Rule::Other),
                kind(Rule::Bare),
            ],
            CFAS
        );
        let fp = |fp| FPS[usize::from(Rule::Frame { cfa: Cfa::Sp(0), fp }.encode()[1])];
        assert_eq!([fp(Fp::Same), fp(Fp::AtCfa(0)), fp(Fp::AtFp(0)), fp(Fp::Lost)], FPS);
    }

    #[test]
    fn the_bytes_are_those_of_the_struct() {
        let rule = Rule::Frame { cfa: Cfa::Sp(0x0102_0304), fp: Fp::AtCfa(-16) };
        assert_eq!(rule.encode(), [2, 1, 0xf0, 0xff, 4, 3, 2, 1]);
    }
}
