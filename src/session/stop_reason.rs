//! How reports show the stop reasons of user stacks: a label, and advice.

use crate::profile::Module;
use crate::profile::file_trait::FileTrait;
use crate::sample::StopReason;

pub(super) fn label(stop_reason: StopReason) -> &'static str {
    match stop_reason {
        StopReason::Root => "root",
        StopReason::Depth => "more than 1,024 frames, or too many memory reads",
        StopReason::BadRead => "stack not readable",
        StopReason::NotUp => "caller's frame not above its own",
        StopReason::BadPc => "return address that is not in code",
        StopReason::NoUser => "no user stack",
        StopReason::NoTable => "no frame pointer and no unwind table",
        StopReason::NoRule => "unwind rule that is not supported",
        StopReason::NoBlob => "a JVM's code heap where no code is in use",
        StopReason::NoFrame => "a JVM's frame during its creation, change or return",
        StopReason::Uretprobe => "return address replaced by a uretprobe",
        StopReason::Unfinished => "wait that is not over",
    }
}

/// What to do about stacks that stopped for this reason in code of this file: a sentence or two. `None` if nothing is
/// missing.
pub(super) fn advice(stop_reason: StopReason, file: &Module) -> Option<&'static str> {
    Some(match stop_reason {
        StopReason::Root | StopReason::NoUser => return None,
        StopReason::Depth => {
            "Endless recursion, or a stack built to be expensive. The root of the stack is [truncated]."
        }
        StopReason::BadRead => {
            "The stack was swapped out, or the code switched to a stack that was freed. A few are normal."
        }
        StopReason::NotUp => {
            "A caller's frame lies at a higher address than the frame that it called; here it did not. The code uses the frame pointer for other data, switches stacks, or has wrong unwind information. A few are normal."
        }
        StopReason::BadPc => {
            "The code switches stacks, or its unwind information is wrong. A few are normal."
        }
        StopReason::NoTable => for_no_table(file),
        StopReason::NoRule => {
            "Mostly hand-written assembler with an unwind rule that jbpf-prof does not support."
        }
        StopReason::Uretprobe => {
            "Another tool traces function returns there, and the kernel's list of return addresses lacks this one. A few are normal."
        }
        StopReason::Unfinished => {
            "The thread still waited at the end, and its memory could not be read, or the thread ran before its memory was read. Its kernel stack is whole."
        }
        StopReason::NoBlob | StopReason::NoFrame => {
            "The JVM was creating, changing or removing that code. A few are normal."
        }
    })
}

fn for_no_table(file: &Module) -> &'static str {
    let has = |one| file.traits.has(one);
    if has(FileTrait::Packed) {
        "The file is packed (UPX) and has no unwind information. Unpack it with upx -d."
    } else if has(FileTrait::Go) {
        "Go's runtime switches stacks there, and its assembler keeps no frame pointer. A few are normal."
    } else if has(FileTrait::Musl) || file.base_name().contains("musl") {
        "musl itself has neither unwind tables nor frame pointers. Build the program with -fno-omit-frame-pointer."
    } else if has(FileTrait::NoSections) {
        "The file has neither section headers nor a usable PT_GNU_EH_FRAME. Keep one of them, or build with -fno-omit-frame-pointer."
    } else {
        "A few come from processes that had just started; without CAP_SYS_PTRACE most stacks of other users end so. If a file of your own has many, build it with -fno-omit-frame-pointer, or without -fno-asynchronous-unwind-tables."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::file_trait::FileTraits;

    #[test]
    fn each_stop_reason_has_a_label_and_advice_for_each_file() {
        let traits = FileTrait::ALL.map(|one| FileTraits::default().with(one, true));
        for stop_reason in StopReason::ALL {
            assert!(!label(stop_reason).is_empty(), "{stop_reason:?}");
            for traits in traits.into_iter().chain([FileTraits::default()]) {
                let file = Module { traits, ..Module::at("/srv/x") };
                let advice = advice(stop_reason, &file);
                let needs_none = matches!(stop_reason, StopReason::Root | StopReason::NoUser);
                assert_eq!(advice.is_none(), needs_none, "{stop_reason:?} {traits:?}");
                let is_sentence = |advice: &str| advice.len() > 20 && advice.ends_with('.');
                assert!(advice.is_none_or(is_sentence), "{stop_reason:?}: {advice:?}");
            }
        }
    }

    #[test]
    fn advice_goes_by_the_file() {
        let of = |path: &str, one| {
            let traits = FileTraits::default().with(one, true);
            advice(StopReason::NoTable, &Module { traits, ..Module::at(path) }).unwrap()
        };
        assert!(of("/srv/x", FileTrait::Packed).contains("upx -d"));
        assert!(of("/srv/x", FileTrait::Go).contains("Go"));
        assert!(of("/lib/ld-musl-x86_64.so.1", FileTrait::NoBuildId).contains("musl"));
        assert!(of("/srv/x", FileTrait::NoSections).contains("PT_GNU_EH_FRAME"));
        assert!(of("/srv/x", FileTrait::Huge).contains("-fno-omit-frame-pointer"));
    }

    #[test]
    fn the_table_in_troubleshooting_has_each_stop_reason() {
        let page = include_str!("../../docs/troubleshooting.md");
        let section = page.split("### All stop reasons\n").nth(1).unwrap();
        let table = section.split("\n## ").next().unwrap();
        for label in StopReason::ALL.map(label) {
            assert!(table.contains(&format!("\n| `{label}` | ")), "{label}");
        }
    }
}
