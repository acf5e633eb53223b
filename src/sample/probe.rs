//! Probes: places in the kernel or in a program at which a BPF program runs. Their names are perf's and bpftrace's.

use std::fmt;

/// A place at which each occurrence is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Probe {
    /// A tracepoint of the kernel: `block:block_rq_issue`.
    Tracepoint {
        /// The subsystem, a directory of `/sys/kernel/tracing/events`.
        category: String,
        /// Name of the tracepoint within its category: `block_rq_issue`.
        name: String,
    },
    /// The begin of a system call of 64-bit programs, `syscalls:sys_enter_openat`, or its end.
    SystemCall {
        /// Whether the call begins or ends here.
        edge: CallEdge,
        /// The system call: `openat`.
        name: String,
    },
    /// The begin of a function of a file: `uprobe:/usr/lib/libc.so.6:malloc`.
    Function {
        /// The path of the program or library.
        file: String,
        /// Symbol of the function in the file, mangled.
        symbol: String,
    },
    /// A static marker of a file, as `<sys/sdt.h>` makes them: `usdt:/usr/lib/libc.so.6:libc:setjmp`.
    Marker {
        /// The path of the program or library.
        file: String,
        /// The provider of the marker.
        provider: String,
        /// Name of the marker within its provider.
        name: String,
    },
    /// The begin of a function of the kernel: `kprobe:vfs_read`.
    KernelFunction(String),
}

/// Where in a system call a probe lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallEdge {
    /// Before the call.
    Enter,
    /// After the call.
    Exit,
}

/// Why a text is not a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProbe {
    /// A uprobe without file or symbol.
    #[error("a uprobe is uprobe:FILE:SYMBOL, with an absolute path")]
    Function,
    /// A marker without file, provider or name.
    #[error("a static marker is usdt:FILE:PROVIDER:NAME, with an absolute path")]
    Marker,
    /// A kprobe without function.
    #[error("a kprobe is kprobe:FUNCTION")]
    KernelFunction,
    /// A tracepoint without category or name.
    #[error("a tracepoint is CATEGORY:NAME, for example block:block_rq_issue")]
    Tracepoint,
    /// The ends of functions.
    #[error(
        "the ends of functions are not sampled: a probe there overwrites return addresses on the stack, and a stack \
         at the end of a function is the stack of its beginning; use uprobe: or kprobe:"
    )]
    Return,
    /// A tracepoint at which a BPF program can stop a CPU.
    #[error(
        "tracepoints of {0}: are not sampled: the kernel runs them where it holds locks that the BPF program needs, \
         and the CPU could stop"
    )]
    Unsafe(&'static str),
}

/// Categories of tracepoints inside the kernel's own locking and inside interrupts that nothing can hold off.
const UNSAFE: [&str; 2] = ["lock", "nmi"];
const SYSTEM_CALLS: &str = "syscalls";

impl Probe {
    /// Parses a probe; `None` if the text is a name without a colon.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Option<Probe>, InvalidProbe> {
        let Some((kind, rest)) = text.split_once(':') else { return Ok(None) };
        Ok(Some(match kind {
            "uprobe" => {
                let (file, symbol) = of_file(rest).ok_or(InvalidProbe::Function)?;
                Probe::Function { file, symbol: symbol.to_owned() }
            }
            "usdt" => {
                let marker = || {
                    let (file, marker) = of_file(rest)?;
                    let (provider, name) = marker.split_once(':')?;
                    let is_whole = !provider.is_empty() && !name.is_empty();
                    is_whole.then(|| Probe::Marker {
                        file,
                        provider: provider.to_owned(),
                        name: name.to_owned(),
                    })
                };
                marker().ok_or(InvalidProbe::Marker)?
            }
            "kprobe" if is_word(rest) => Probe::KernelFunction(rest.to_owned()),
            "kprobe" => return Err(InvalidProbe::KernelFunction),
            "uretprobe" | "kretprobe" => return Err(InvalidProbe::Return),
            "tracepoint" => {
                let (category, name) = rest.split_once(':').ok_or(InvalidProbe::Tracepoint)?;
                tracepoint(category, name)?
            }
            category => tracepoint(category, rest)?,
        }))
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Probe::Tracepoint { category, name } => write!(f, "{category}:{name}"),
            Probe::SystemCall { edge, name } => write!(f, "{SYSTEM_CALLS}:{}{name}", edge.prefix()),
            Probe::Function { file, symbol } => write!(f, "uprobe:{file}:{symbol}"),
            Probe::Marker { file, provider, name } => write!(f, "usdt:{file}:{provider}:{name}"),
            Probe::KernelFunction(function) => write!(f, "kprobe:{function}"),
        }
    }
}

impl CallEdge {
    fn prefix(self) -> &'static str {
        match self {
            CallEdge::Enter => "sys_enter_",
            CallEdge::Exit => "sys_exit_",
        }
    }
}

/// The absolute path before the first colon, and the rest.
fn of_file(text: &str) -> Option<(String, &str)> {
    let (file, rest) = text.split_once(':')?;
    (file.starts_with('/') && !rest.is_empty()).then(|| (file.to_owned(), rest))
}

fn tracepoint(category: &str, name: &str) -> Result<Probe, InvalidProbe> {
    if !is_word(category) || !is_word(name) {
        return Err(InvalidProbe::Tracepoint);
    }
    if let Some(found) = UNSAFE.into_iter().find(|found| *found == category) {
        return Err(InvalidProbe::Unsafe(found));
    }
    if category == SYSTEM_CALLS {
        let call = [CallEdge::Enter, CallEdge::Exit].into_iter().find_map(|edge| {
            let name = name.strip_prefix(edge.prefix())?.to_owned();
            Some(Probe::SystemCall { edge, name })
        });
        return call.ok_or(InvalidProbe::Tracepoint);
    }
    Ok(Probe::Tracepoint { category: category.to_owned(), name: name.to_owned() })
}

/// Whether the text can be a name of the kernel: some compilers add parts behind a dot to names of functions.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for name in [
            "block:block_rq_issue",
            "syscalls:sys_enter_openat",
            "syscalls:sys_exit_read",
            "uprobe:/usr/lib/libc.so.6:malloc",
            "usdt:/usr/lib/libc.so.6:libc:setjmp",
            "kprobe:vfs_read",
        ] {
            let probe = Probe::parse(name).unwrap().unwrap();
            assert_eq!(probe.to_string(), name);
        }
        let long = Probe::parse("tracepoint:sched:sched_switch").unwrap().unwrap();
        assert_eq!(long.to_string(), "sched:sched_switch");
        assert_eq!(Probe::parse("cycles"), Ok(None));
    }

    #[test]
    fn a_refusal_says_how_a_probe_is_written() {
        let refusal = |text: &str| Probe::parse(text).unwrap_err();
        assert_eq!(refusal("uprobe:libc:malloc"), InvalidProbe::Function);
        assert_eq!(refusal("usdt:/lib/libc.so:setjmp"), InvalidProbe::Marker);
        assert_eq!(refusal("kprobe:"), InvalidProbe::KernelFunction);
        assert_eq!(refusal("uretprobe:/lib/libc.so:malloc"), InvalidProbe::Return);
        assert_eq!(refusal("block:"), InvalidProbe::Tracepoint);
        assert_eq!(refusal("tracepoint:block"), InvalidProbe::Tracepoint);
        assert_eq!(refusal("syscalls:openat"), InvalidProbe::Tracepoint);
        assert_eq!(refusal("sched:../x"), InvalidProbe::Tracepoint);
        assert_eq!(refusal("lock:contention_end"), InvalidProbe::Unsafe("lock"));
    }
}
