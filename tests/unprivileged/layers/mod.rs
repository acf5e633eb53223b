//! The rooms import in one direction only (docs/architecture.md, "Rooms"), no two files need each other, and each
//! foreign library stays in its rooms.

mod source;

use std::collections::{BTreeMap, BTreeSet};

use source::{Module, Source};

/// The limit on the lines of a file.
const MAX_LINES: usize = 500;

/// The rooms that each room may name. The crate's root and `main` are above all rooms.
const ROOMS: [(&str, &[&str]); 29] = [
    ("backoff", &[]),
    ("text", &[]),
    ("failure", &[]),
    ("sample", &[]),
    ("suggestion", &[]),
    ("limits", &["text"]),
    ("unwind", &[]),
    ("process", &["backoff", "sample", "limits", "text"]),
    ("profile", &["sample", "limits", "text"]),
    ("capture", &["failure", "sample", "process", "unwind"]),
    ("waits", &["sample", "profile", "suggestion"]),
    ("outside", &["sample"]),
    ("jvm", &["sample", "process", "unwind", "text"]),
    ("host", &["process"]),
    ("symbolize", &["sample", "process", "jvm", "outside", "profile", "unwind", "limits", "text"]),
    ("compare", &["sample", "process", "jvm", "profile"]),
    ("output", &["sample", "profile", "compare", "limits", "text"]),
    ("plan", &["sample", "process", "jvm", "profile"]),
    ("targets", &["failure", "sample", "capture", "process", "plan", "profile", "text"]),
    ("world", &["sample", "process", "symbolize", "profile", "unwind", "limits", "plan", "targets"]),
    ("allocators", &["capture", "process", "symbolize", "plan", "text", "world"]),
    (
        "loader",
        &[
            "sample",
            "capture",
            "process",
            "outside",
            "unwind",
            "symbolize",
            "plan",
            "targets",
            "limits",
            "world",
        ],
    ),
    (
        "runtime",
        &[
            "sample",
            "capture",
            "process",
            "jvm",
            "symbolize",
            "profile",
            "plan",
            "targets",
            "text",
            "limits",
            "world",
        ],
    ),
    ("trace", &["sample", "capture", "process", "symbolize", "limits", "plan", "world"]),
    (
        "session",
        &[
            "failure",
            "sample",
            "capture",
            "process",
            "host",
            "symbolize",
            "profile",
            "unwind",
            "limits",
            "text",
            "plan",
            "targets",
            "allocators",
            "loader",
            "runtime",
            "trace",
            "waits",
            "world",
        ],
    ),
    ("serve", &["sample", "profile", "output"]),
    ("top", &["sample", "profile", "output", "plan", "text"]),
    (
        "daemon",
        &[
            "backoff", "sample", "process", "profile", "output", "plan", "session", "limits", "text",
            "waits", "serve",
        ],
    ),
    (
        "cli",
        &[
            "compare",
            "failure",
            "sample",
            "capture",
            "process",
            "jvm",
            "host",
            "profile",
            "output",
            "plan",
            "session",
            "serve",
            "top",
            "daemon",
            "text",
            "suggestion",
            "waits",
        ],
    ),
];

/// Every library, with the rooms that may use it outside of tests. `*` stands for all rooms.
const LIBRARIES: [(&str, &[&str]); 46] = [
    ("addr2line", &["symbolize"]),
    ("ahash", &["capture", "symbolize", "profile"]),
    ("anyhow", &["*"]),
    ("base64", &["daemon", "output"]),
    ("blazesym", &["symbolize"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("cpp_demangle", &["symbolize"]),
    ("flate2", &["symbolize", "output", "daemon"]),
    ("fxprof_processed_profile", &["output"]),
    ("gimli", &["symbolize"]),
    ("http_body_util", &["serve", "daemon"]),
    ("hyper", &["serve", "daemon"]),
    ("hyper_rustls", &["daemon"]),
    ("hyper_util", &["serve", "daemon"]),
    ("inferno", &["output"]),
    ("jiff", &["cli", "session", "daemon"]),
    ("jvm_symbols_log", &["jvm"]),
    // `symbolize` lists the loaded BPF programs, whose symbols are the kernel's.
    ("libbpf_rs", &["capture", "symbolize"]),
    ("libbpf_sys", &["capture", "symbolize"]),
    ("libc", &["*"]),
    ("log", &["*"]),
    ("lzma_rust2", &["symbolize"]),
    ("memchr", &["symbolize"]),
    ("memmap2", &["symbolize"]),
    ("opentelemetry_proto", &["output"]),
    ("perf_event_open_sys", &["capture"]),
    ("postcard", &["process", "jvm", "symbolize"]),
    // `symbolize` decodes what processes publish, `daemon` has the messages of RPC calls; the formats of profiles belong to
    // `output`.
    ("prost", &["symbolize", "output", "daemon"]),
    ("ratatui", &["top"]),
    ("rustc_demangle", &["symbolize"]),
    ("rustix", &["*"]),
    ("rustls", &["daemon"]),
    ("ruzstd", &["symbolize"]),
    ("seccompiler", &["symbolize"]),
    ("serde", &["*"]),
    ("serde_json", &["process", "output", "serve", "daemon", "cli"]),
    ("sha2", &["symbolize", "output"]),
    ("strsim", &["suggestion"]),
    ("syscalls", &["capture"]),
    ("thiserror", &["*"]),
    ("tokio", &["plan", "session", "serve", "top", "daemon"]),
    ("toml", &["cli"]),
    ("tower_service", &["daemon"]),
    ("zerocopy", &["capture"]),
];

#[test]
fn every_room_is_known() {
    let source = Source::read();
    let rooms: BTreeSet<&str> = source.0.keys().filter_map(|module| room(module)).collect();
    assert_eq!(rooms, ROOMS.iter().map(|(name, _)| *name).collect(), "src and the table of rooms");
}

#[test]
fn imports_go_one_way() {
    let source = Source::read();
    let rooms = BTreeMap::from(ROOMS);
    let (mut used, mut wrong) = (BTreeSet::new(), Vec::new());
    for (module, others) in source.imports() {
        let Some(own) = room(module) else { continue };
        let shown = source.0[module].handed_on.iter().filter_map(|name| source.defined_in(name));
        for other in others.into_iter().chain(shown).filter_map(|other| room(other)).filter(|o| *o != own) {
            if !rooms[own].contains(&other) {
                wrong.push(format!("{}: {own} must not know {other}", module.join("::")));
            }
            used.insert((own, other));
        }
    }
    for (own, others) in ROOMS {
        let unused = others.iter().filter(|other| !used.contains(&(own, **other)));
        wrong.extend(
            unused.map(|other| format!("{own} does not use {other}: the table of rooms is too wide")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_files_need_each_other() {
    let source = Source::read();
    let imports = source.imports();
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 500, "this test reads nothing");
    let circles = circles(&imports);
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn public_types_have_names_of_their_own() {
    let source = Source::read();
    let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (module, file) in &source.0 {
        file.types.iter().for_each(|name| files.entry(name).or_default().push(module.join("::")));
    }
    assert!(files.len() > 100, "this test reads nothing");
    files.retain(|_, files| files.len() > 1);
    assert!(files.is_empty(), "{files:#?}");
}

#[test]
fn files_are_about_one_noun() {
    let source = Source::read();
    let long = source.0.iter().filter(|(_, file)| file.lines > MAX_LINES);
    let long: Vec<_> = long.map(|(module, file)| (module.join("::"), file.lines)).collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines, which second noun moved in? {long:?}");
}

#[test]
fn libraries_stay_in_their_rooms() {
    let source = Source::read();
    let known = BTreeMap::from(LIBRARIES);
    let (mut used, mut wrong) = (BTreeSet::new(), Vec::new());
    for (module, file) in &source.0 {
        for library in file.named.iter().chain(&file.handed_on).map(|name| name[0].as_str()) {
            let Some((library, rooms)) = known.get_key_value(library) else { continue };
            used.insert(*library);
            let Some(own) = room(module) else { continue };
            if !rooms.contains(&"*") && !rooms.contains(&own) {
                wrong.push(format!("{}: {library} belongs to {rooms:?}", module.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(used, known.keys().copied().collect(), "libraries that are used, and the table");
}

#[test]
fn every_library_is_in_the_table() {
    let manifest = std::fs::read_to_string(testkit::repository().join("Cargo.toml")).unwrap();
    let dependencies = manifest.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let named = dependencies.lines().filter_map(|line| Some(line.split_once(" = ")?.0.replace('-', "_")));
    assert_eq!(
        named.collect::<BTreeSet<String>>(),
        LIBRARIES.iter().map(|(name, _)| (*name).to_owned()).collect()
    );
}

fn room(module: &Module) -> Option<&str> {
    module.first().map(String::as_str)
}

/// Files that need each other, directly or through others.
fn circles(imports: &BTreeMap<&Module, BTreeSet<&Module>>) -> Vec<Vec<String>> {
    let reached = |from: &Module| {
        let mut found: BTreeSet<&Module> = BTreeSet::new();
        let mut waiting: Vec<&Module> = imports[from].iter().copied().collect();
        while let Some(next) = waiting.pop() {
            if found.insert(next) {
                waiting.extend(imports[next].iter().copied());
            }
        }
        found
    };
    let all: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|&module| (module, reached(module))).collect();
    let circle = |(&module, reached): (&&Module, &BTreeSet<&Module>)| {
        let back = reached.iter().filter(|other| all[**other].contains(module));
        let names: Vec<String> = back.map(|other| other.join("::")).collect();
        (!names.is_empty()).then_some(names)
    };
    let circles: BTreeSet<Vec<String>> = all.iter().filter_map(circle).collect();
    circles.into_iter().collect()
}

#[test]
fn circles_are_found() {
    let names = ["a", "b", "c", "d"].map(|name| vec![name.to_owned()]);
    let [a, b, c, d] = &names;
    let imports = BTreeMap::from([
        (a, BTreeSet::from([b])),
        (b, BTreeSet::from([c])),
        (c, BTreeSet::from([b, d])),
        (d, BTreeSet::new()),
    ]);
    assert_eq!(circles(&imports), [["b", "c"]]);
}

/// A re-export that the file itself uses, a path in a macro, and a type by its short name.
#[test]
fn what_is_needed_is_seen_however_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "mod inner;\npub use inner::Thing;\nconst N: u32 = 1;\nfn f() -> Thing { Thing }\n"),
        ("a/inner.rs", "use super::N;\npub struct Thing;\nconst M: u32 = N;\n"),
        (
            "b.rs",
            "fn g(x: u32) -> bool { matches!(x, crate::a::inner::M | 2) }\n#[cfg(test)]\nuse crate::a;\n",
        ),
    ] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let source = Source::of(dir.path());
    let imports = source.imports();
    assert_eq!(circles(&imports), [["a", "a::inner"]]);
    let of_b = &imports[&vec!["b".to_owned()]];
    assert_eq!(of_b.iter().map(|other| other.join("::")).collect::<Vec<_>>(), ["a::inner"]);
}
