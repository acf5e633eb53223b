//! The rooms import in one direction only (docs/design.md, "Rooms"), and each foreign library stays in its room.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may name. `session` and `cli` may name all.
const ROOMS: [(&str, &[&str]); 13] = [
    ("text", &[]),
    ("limits", &["text"]),
    ("unwind", &["limits"]),
    ("process", &["limits", "text"]),
    ("profile", &["limits", "text"]),
    ("capture", &["process", "unwind", "text"]),
    ("jvm", &["process", "unwind", "limits", "text"]),
    ("host", &["process", "text"]),
    ("symbolize", &["capture", "process", "jvm", "profile", "unwind", "limits", "text"]),
    ("output", &["profile", "limits", "text"]),
    (
        "session",
        &["capture", "process", "jvm", "host", "symbolize", "profile", "output", "unwind", "limits", "text"],
    ),
    ("daemon", &["profile", "output", "session", "limits", "text"]),
    (
        "cli",
        &["capture", "process", "jvm", "host", "symbolize", "profile", "output", "session", "daemon", "text"],
    ),
];

/// Libraries that only these rooms may use, outside their tests.
const LIBRARIES: [(&str, &[&str]); 13] = [
    ("ahash", &["capture", "symbolize", "profile"]),
    // `symbolize` lists the loaded BPF programs: their symbols are the kernel's.
    ("libbpf_rs", &["capture", "symbolize"]),
    ("perf_event_open_sys", &["capture"]),
    ("linux_perf_event_reader", &["capture"]),
    ("gimli", &["symbolize"]),
    ("inferno", &["output"]),
    // The daemon has the messages of calls; the formats of profiles are output's.
    ("prost", &["output", "daemon"]),
    ("opentelemetry_proto", &["output"]),
    ("clap", &["cli"]),
    ("toml", &["cli"]),
    ("tokio", &["session", "daemon"]),
    ("hyper", &["daemon"]),
    ("rustls", &["daemon"]),
];

#[test]
fn every_room_is_known() {
    let rooms = sources();
    assert!(rooms.len() >= 9, "{:?}", rooms.keys());
    for room in rooms.keys() {
        assert!(ROOMS.iter().any(|(name, _)| name == room), "src/{room} is not in the table of rooms");
    }
}

#[test]
fn imports_go_one_way() {
    let mut seen = 0;
    for (room, files) in sources() {
        let allowed = ROOMS.iter().find(|(name, _)| *name == room).unwrap().1;
        for (path, text) in files {
            for name in named_after(&text, "crate::") {
                seen += 1;
                let fine =
                    name == room || allowed.contains(&name) || !ROOMS.iter().any(|(room, _)| *room == name);
                assert!(fine, "{}: {room} must not know {name}", path.display());
            }
        }
    }
    assert!(seen > 50, "only {seen} imports were found: this test reads nothing");
}

#[test]
fn libraries_stay_in_their_rooms() {
    let mut used = 0;
    for (room, files) in sources() {
        for (path, text) in files {
            let product = text.split("#[cfg(test)]").next().unwrap();
            for (library, rooms) in LIBRARIES {
                if !product.contains(&format!("{library}::")) || is_test(&path) {
                    continue;
                }
                used += 1;
                assert!(rooms.contains(&room.as_str()), "{}: {library} belongs to {rooms:?}", path.display());
            }
        }
    }
    assert!(used > 5, "only {used} uses were found: this test reads nothing");
}

/// Files that hold tests only are named so.
fn is_test(path: &Path) -> bool {
    path.file_stem().unwrap().to_str().unwrap().ends_with("tests")
}

/// The first name after each `prefix`, in code: `crate::a::b` and `crate::{a::b, c}` name `a`, `a` and `c`.
fn named_after<'t>(text: &'t str, prefix: &str) -> Vec<&'t str> {
    let mut names = Vec::new();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    for line in code {
        for (at, _) in line.match_indices(prefix) {
            let rest = &line[at + prefix.len()..];
            assert!(
                !rest.starts_with('{') || rest.contains('}'),
                "write one `use crate::room::…` a room, so that this test can read it: {line}"
            );
            match rest.strip_prefix('{').and_then(|r| r.split_once('}')) {
                Some((list, _)) => names.extend(list.split(',').map(|item| first(item.trim()))),
                None => names.push(first(rest)),
            }
        }
    }
    names
}

fn first(path: &str) -> &str {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    &path[..end]
}

/// Each room's files with their text; the crate's roots are above all rooms.
fn sources() -> BTreeMap<String, Vec<(PathBuf, String)>> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut rooms: BTreeMap<String, Vec<(PathBuf, String)>> = BTreeMap::new();
    let mut dirs = vec![src.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let inside = path.strip_prefix(&src).unwrap();
                let room = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
                if room != "lib" && room != "main" {
                    rooms.entry(room).or_default().push((path.clone(), fs::read_to_string(&path).unwrap()));
                }
            }
        }
    }
    rooms
}

#[test]
fn names_are_read_from_lists_and_paths() {
    let text = "use crate::{a::b, c};\n// crate::d\nlet x = crate::e::f(crate::g);\n";
    assert_eq!(named_after(text, "crate::"), ["a", "c", "e", "g"]);
}
