//! What people are told of how a walk of a user stack ended: a label, and what to do about it.

use crate::profile::Module;
use crate::profile::file_trait::FileTrait;
use crate::sample::End;

/// The label of a stop reason, in reports.
pub(super) fn label(end: End) -> &'static str {
    match end {
        End::Root => "root",
        End::Depth => "deeper than 1,024 frames, or too dear to walk",
        End::BadRead => "stack not readable",
        End::NotUp => "caller's frame not above its own",
        End::BadPc => "return address that is not in code",
        End::NoUser => "no user stack",
        End::NoTable => "no frame pointer and no unwind table",
        End::NoRule => "unwind rule that is not followed",
        End::NoBlob => "a JVM's code heap where no code is in use",
        End::NoFrame => "a JVM's frame while it was made, changed or left",
        End::Uretprobe => "return address replaced by a uretprobe",
    }
}

/// What to do about stacks that stopped so in code of this file: a sentence or two that are true of it. None where nothing
/// is missing.
pub(super) fn advice(end: End, file: &Module) -> Option<&'static str> {
    Some(match end {
        End::Root | End::NoUser => return None,
        End::Depth => "Endless recursion, or a stack that was made so: its root is [truncated].",
        End::BadRead => {
            "The stack was swapped out, or the code switched to a stack that is gone. A few are normal."
        }
        End::NotUp | End::BadPc => {
            "The code switches stacks, or says something false of its frames. A few are normal."
        }
        End::NoTable => for_no_table(file),
        End::NoRule => {
            "Hand-written assembler, mostly: its frames are described by a rule that is not followed."
        }
        End::Uretprobe => {
            "Another tool traces returns there, and the kernel's list lacks this one. A few are normal."
        }
        End::NoBlob | End::NoFrame => {
            "A few are normal: the JVM was about to make, change or drop that code."
        }
    })
}

fn for_no_table(file: &Module) -> &'static str {
    let has = |one| file.traits.has(one);
    if has(FileTrait::Packed) {
        "The file unpacks itself (UPX), so nothing describes its frames: unpack it with upx -d."
    } else if has(FileTrait::Go) {
        "Go's runtime changes stacks there, and in its assembler keeps no frame pointer. A few are normal."
    } else if has(FileTrait::Musl) || file.base_name().contains("musl") {
        "musl itself has neither unwind tables nor frame pointers. Build the program with -fno-omit-frame-pointer."
    } else if has(FileTrait::NoSections) {
        "The file has no section headers and no usable PT_GNU_EH_FRAME: keep both, or build with -fno-omit-frame-pointer."
    } else {
        "A few are processes that had just begun. If there are many, build the file with -fno-omit-frame-pointer, or without -fno-asynchronous-unwind-tables."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::file_trait::FileTraits;

    #[test]
    fn each_stop_reason_has_a_label_and_advice_for_each_file() {
        let traits = FileTrait::ALL.map(|one| FileTraits::default().with(one, true));
        for end in End::ALL {
            assert!(!label(end).is_empty(), "{end:?}");
            for traits in traits.into_iter().chain([FileTraits::default()]) {
                let file = Module { traits, ..Module::at("/srv/x") };
                match advice(end, &file) {
                    Some(advice) => assert!(advice.len() > 20 && advice.ends_with('.'), "{end:?}: {advice}"),
                    None => assert!(matches!(end, End::Root | End::NoUser), "{end:?} {traits:?}"),
                }
            }
        }
    }

    #[test]
    fn advice_goes_by_the_file() {
        let of = |path: &str, one| {
            let traits = FileTraits::default().with(one, true);
            advice(End::NoTable, &Module { traits, ..Module::at(path) }).unwrap()
        };
        assert!(of("/srv/x", FileTrait::Packed).contains("upx -d"));
        assert!(of("/srv/x", FileTrait::Go).contains("Go"));
        assert!(of("/lib/ld-musl-x86_64.so.1", FileTrait::NoBuildId).contains("musl"));
        assert!(of("/srv/x", FileTrait::NoSections).contains("PT_GNU_EH_FRAME"));
        assert!(of("/srv/x", FileTrait::Huge).contains("-fno-omit-frame-pointer"));
    }

    #[test]
    fn troubleshooting_has_each_stop_reason() {
        let page = include_str!("../../docs/troubleshooting.md");
        for end in End::ALL.into_iter().filter(|end| *end != End::Root) {
            assert!(page.contains(label(end)), "{}", label(end));
        }
    }
}
