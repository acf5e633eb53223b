//! OpenTelemetry's attribute `profile.frame.type`.

use std::path::Path;

use crate::profile::{Frame, Kind};

/// The language or runtime of a frame's code; `None` if OpenTelemetry has no name for it. A well-known value must be as
/// precise as possible (semantic conventions 1.44.0), so Go and Rust are distinguished from other native code by
/// the source file. A Rust function without one has a path as its name, which no C or Go function has.
pub(super) fn of(frame: &Frame) -> Option<&'static str> {
    let general = frame.kind.facts().otel;
    if !matches!(frame.kind, Kind::Native | Kind::NativeInlined) {
        return general;
    }
    let extension = frame.file.as_deref().and_then(|file| Path::new(file).extension()?.to_str());
    match extension {
        Some("go") => Some("go"),
        Some("rs") => Some("rust"),
        None if frame.kind == Kind::Native && frame.name.contains("::") => Some("rust"),
        _ => general,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_as_precise_as_they_are_known() {
        for (kind, name, file, expected) in [
            (Kind::Java, "a.B.run", None, Some("jvm")),
            (Kind::Kernel, "do_syscall_64", None, Some("kernel")),
            (Kind::Native, "main", None, Some("native")),
            (Kind::Native, "main", Some("/src/main.c"), Some("native")),
            (Kind::Cpp, "std::sort", None, Some("native")),
            (Kind::NativeInlined, "std::move", Some("/usr/include/c++/12/bits/move.h"), Some("native")),
            (Kind::Native, "core::fmt::Formatter::pad", None, Some("rust")),
            (Kind::NativeInlined, "pad", Some("/rustc/1/library/core/src/fmt/mod.rs"), Some("rust")),
            (Kind::Native, "main.burn", Some("/src/main.go"), Some("go")),
            (Kind::Unknown, "libx.so", None, None),
            (Kind::Marker, "[lost]", None, None),
        ] {
            let frame = Frame { file: file.map(Into::into), ..Frame::named(kind, name) };
            assert_eq!(of(&frame), expected, "{name}");
        }
    }
}
