//! Advice on frames without a name, by reason and by the file's traits.

use super::file_trait::FileTrait;
use super::frame::{Module, UnknownReason};

/// Advice on frames without a name for one reason: a sentence or two.
#[must_use]
pub fn for_unknown(why: UnknownReason) -> &'static str {
    match why {
        UnknownReason::NoSymbol => "`Without symbols` below lists the files and what to do about each.",
        UnknownReason::NotMapped => {
            "Code between this frame and the leaf keeps no frame pointers. jbpf-prof does not trust the rest of the stack."
        }
        UnknownReason::MappingsUnread => {
            "The kernel did not list the mappings in time (-v names the process that delays it), or the process has too many mappings."
        }
        UnknownReason::ProcessGone => {
            "Normal where processes live for a few milliseconds, or JVMs for a second or two."
        }
        UnknownReason::FileUnavailable => {
            "Check with `jbpf-prof doctor` whether a capability is missing, and whether the file system answers."
        }
        UnknownReason::BadFile => "Check the file with `readelf -a FILE`.",
        UnknownReason::WorkerFailed => "The warnings count the files that were given up. Please report them.",
        UnknownReason::AnonymousCode => {
            "Let the runtime write a perf map: node --perf-basic-prof, python -X perf. Packed programs have their code there, too."
        }
        UnknownReason::NoAgent => "The row of the JVM shows the reason. With --java off there are no names.",
        UnknownReason::NotLogged => "A few are normal. If there are many, please report the JVM's version.",
        UnknownReason::CodeMoved => "Normal while a JVM compiles: profile it when it is warm.",
        UnknownReason::MethodGone => "Normal where classes are loaded and dropped all the time.",
        UnknownReason::LogCut => {
            "The row of the JVM shows where the log was cut. More memory for the container helps."
        }
        UnknownReason::NoCode => "A few are normal. With --java agent the names of removed code are known.",
        UnknownReason::BadMemory => "Use --java agent, and please report the JVM's version.",
        UnknownReason::KernelHidden => {
            "Set kernel.kptr_restrict to 0 or 1, and run as root or with CAP_SYSLOG."
        }
        UnknownReason::NotKernelText => {
            "Normal after a kernel module or a short-lived BPF program was unloaded; else please report it."
        }
    }
}

/// Advice on functions that have a substitute name (`FILE!fun_ADDRESS`) or no name.
#[must_use]
pub fn for_nameless(file: &Module) -> &'static str {
    let traits = file.traits;
    if traits.has(FileTrait::Packed) {
        "The file is packed (UPX). Unpack it with upx -d."
    } else if traits.has(FileTrait::Go) {
        "jbpf-prof could not read the function table of this Go program. Please report the output of `go version FILE`."
    } else if traits.has(FileTrait::NoSections) {
        "The file has no section headers, so no debug file fits. Keep the section headers."
    } else if traits.has(FileTrait::Huge) {
        "Makers of browsers strip their programs. Some publish the symbols separately."
    } else if traits.has(FileTrait::Musl) && is_of_distribution(&file.path) {
        "On Alpine, install the package NAME-dbg."
    } else if traits.has(FileTrait::NoBuildId) {
        "The file has no build id, so debug files cannot be found. Do not strip the file, or link it with -Wl,--build-id."
    } else if is_of_distribution(&file.path) {
        "Install the debug package of the distribution: `find-dbgsym-packages FILE` (package debian-goodies) names it on Debian and Ubuntu, if the archive of debug packages was added; `debuginfo-install` installs it on Fedora."
    } else {
        "Do not strip the file, or put the output of objcopy --only-keep-debug below /usr/lib/debug/.build-id."
    }
}

/// Whether a distribution's packages install code at such a path.
fn is_of_distribution(path: &str) -> bool {
    let usr = path.strip_prefix("/usr").unwrap_or(path);
    ["/bin/", "/sbin/", "/lib/", "/lib64/", "/lib32/", "/libexec/", "/libx32/"]
        .iter()
        .any(|dir| usr.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::file_trait::FileTraits;

    fn module(path: &str, traits: &[FileTrait]) -> Module {
        let traits = traits.iter().fold(FileTraits::default(), |set, one| set.with(*one, true));
        Module { traits, ..Module::at(path) }
    }

    #[test]
    fn each_reason_has_advice_for_each_file() {
        let mut files: Vec<Module> = FileTrait::ALL.iter().map(|one| module("/srv/x", &[*one])).collect();
        files.extend(["/srv/x", "/usr/lib/x.so", ""].map(|path| module(path, &[])));
        let of_files = files.iter().map(for_nameless);
        for advice in UnknownReason::ALL.into_iter().map(for_unknown).chain(of_files) {
            assert!(advice.len() > 20 && advice.ends_with('.'), "{advice}");
        }
    }

    #[test]
    fn advice_names_debug_packages_where_they_help() {
        let packages = |file: &Module| for_nameless(file).contains("find-dbgsym-packages");
        assert!(packages(&module("/usr/lib/x86_64-linux-gnu/libz.so.1", &[])));
        assert!(packages(&module("/lib64/libz.so.1", &[])));
        assert!(!packages(&module("/usr/local/bin/server", &[])));
        assert!(!packages(&module("/app/server", &[])));
        for one in
            [FileTrait::Go, FileTrait::NoSections, FileTrait::Musl, FileTrait::Packed, FileTrait::NoBuildId]
        {
            assert!(!packages(&module("/usr/bin/x", &[one])), "{one:?}");
        }
    }

    #[test]
    fn sets_hold_what_was_put_into_them() {
        let set = FileTraits::default()
            .with(FileTrait::Go, true)
            .with(FileTrait::Huge, true)
            .with(FileTrait::Musl, false);
        let held: Vec<FileTrait> = FileTrait::ALL.into_iter().filter(|one| set.has(*one)).collect();
        assert_eq!(held, [FileTrait::Go, FileTrait::Huge]);
    }
}
