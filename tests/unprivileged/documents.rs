//! The documents say what is there: links lead somewhere, files and flags exist, and the headings of the manual are sentences
//! that the program prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use testkit::repository;

/// The files with this extension in these directories, and below them unless they are the root of the repository.
fn files(directories: &[&str], extension: &str) -> Vec<PathBuf> {
    let root = repository().join("");
    let mut directories: Vec<PathBuf> = directories.iter().map(|directory| root.join(directory)).collect();
    let mut found = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && directory != root {
                directories.push(path);
            } else if path.extension().is_some_and(|its| its == extension) {
                found.push(path);
            }
        }
    }
    found
}

/// All documents, with their paths from the root of the repository.
fn documents() -> BTreeMap<PathBuf, String> {
    let of = |path: PathBuf| {
        (path.strip_prefix(repository()).unwrap().to_owned(), fs::read_to_string(&path).unwrap())
    };
    let found: BTreeMap<PathBuf, String> =
        files(&["", "docs", "bench", "bpf", ".github", "deploy"], "md").into_iter().map(of).collect();
    assert!(found.len() > 20, "this test reads nothing: {found:?}");
    found
}

/// Lines outside blocks of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#'))).collect()
}

/// Targets of links, `](target)`, with their lines.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        let parts = line.split("](").skip(1);
        parts.filter_map(move |rest| rest.split_once(')')).map(move |(target, _)| (number, target))
    })
}

#[test]
fn links_lead_somewhere() {
    let documents = documents();
    let (mut broken, mut checked) = (Vec::new(), 0);
    for (path, text) in &documents {
        for (number, target) in links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() {
                path.clone()
            } else {
                let joined = repository().join(path.parent().unwrap()).join(file);
                let Ok(real) = joined.canonicalize() else {
                    broken.push(format!("{}:{number}: {target}", path.display()));
                    continue;
                };
                real.strip_prefix(repository()).unwrap().to_owned()
            };
            checked += 1;
            if !fragment.is_empty()
                && !documents.get(&file).is_some_and(|text| anchors(text).contains(fragment))
            {
                broken.push(format!("{}:{number}: {target}", path.display()));
            }
        }
    }
    assert!(checked > 100, "only {checked} links were checked");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Paths in code spans, such as `src/main.rs`.
#[test]
fn files_that_are_named_exist() {
    const TOP: [&str; 9] =
        ["src/", "bpf/", "tests/", "vmtest/", "bench/", "benches/", "deploy/", "docs/", "scripts/"];
    let (mut missing, mut checked) = (Vec::new(), 0);
    for (path, text) in documents() {
        if path == Path::new("CHANGELOG.md") {
            continue;
        }
        for (number, line) in prose(&text) {
            for span in line.split('`').skip(1).step_by(2) {
                let is_path = TOP.iter().any(|top| span.starts_with(top))
                    && !span.contains("NAME")
                    && span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
                if is_path {
                    checked += 1;
                    if !repository().join(span).exists() {
                        missing.push(format!("{}:{number}: {span}", path.display()));
                    }
                }
            }
        }
    }
    assert!(checked > 100, "only {checked} paths were checked");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Options in code spans, `--all`: help or a settings key has each of them.
#[test]
fn options_that_are_named_exist() {
    let help: String = fs::read_dir(repository().join("src/cli/help"))
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    let known: BTreeSet<&str> = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
    let (mut missing, mut checked) = (Vec::new(), 0);
    for (path, text) in documents() {
        if !["README.md", "docs/getting-started.md", "docs/java.md", "docs/containers.md", "docs/daemon.md"]
            .iter()
            .any(|name| path == Path::new(name))
        {
            continue;
        }
        for line in text.lines().filter(|line| line.contains("jbpf-prof ")) {
            let command = line.split("jbpf-prof ").nth(1).unwrap_or_default();
            let command = command.split(['`', '|', '#', '(']).next().unwrap_or_default();
            let command = command.split(" -- ").next().unwrap_or_default();
            for word in command.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2) {
                let option = word.split(['=', ',', '.', ';', ')', ':']).next().unwrap_or_default();
                checked += 1;
                if !known.contains(option) {
                    missing.push(format!("{}: {word}: {line}", path.display()));
                }
            }
        }
    }
    assert!(checked > 30, "only {checked} options were checked");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// What the program can print: the texts in its source, without what is put in.
fn texts() -> String {
    let mut all = String::new();
    for path in files(&["src"], "rs") {
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap();
        let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        // Quoted quotes are nowhere in what headings say.
        let code = lines.join("\n").replace("\\\"", "").replace("'\"'", "");
        let texts = code.split('"').skip(1).step_by(2).map(without_arguments);
        texts.for_each(|text| all += &(text + "\n"));
    }
    all
}

/// A format string without its `{…}`, and without the ends of lines that continue.
fn without_arguments(text: &str) -> String {
    let mut words = text.split("\\\n");
    let mut joined = words.next().unwrap_or_default().to_owned();
    words.for_each(|more| joined += more.trim_start());
    let mut parts = joined.split('{');
    let mut fixed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        fixed += part.split_once("} ").or_else(|| part.split_once('}')).map_or(part, |(_, rest)| rest);
    }
    fixed
}

/// Headings of the manual below these are messages, with words in capitals for what differs.
const CHAPTERS: [&str; 5] = ["The host", "Ticks", "Cgroups, containers, pods", "Frames", "Java"];

#[test]
fn the_manuals_headings_are_what_the_program_prints() {
    let texts = texts();
    let manual = fs::read_to_string(repository().join("docs/troubleshooting.md")).unwrap();
    let (mut chapter, mut strange, mut checked) = ("", Vec::new(), 0);
    for (_, line) in prose(&manual) {
        if let Some(name) = line.strip_prefix("# ") {
            chapter = name;
        }
        let Some(heading) = line.strip_prefix("## ").filter(|_| CHAPTERS.contains(&chapter)) else {
            continue;
        };
        checked += 1;
        for part in heading.split(", is ").flat_map(fixed) {
            if !texts.contains(&part) {
                strange.push(format!("{heading}: {part:?}"));
            }
        }
    }
    assert!(checked > 40, "only {checked} headings were checked");
    assert!(strange.is_empty(), "{strange:#?}");
}

/// Sentences of the program in spans of code, with `…` and numbers for what differs.
#[test]
fn the_sentences_that_guides_quote_are_what_the_program_prints() {
    let texts = texts();
    let (mut strange, mut checked) = (Vec::new(), 0);
    for name in ["docs/slow-java-service.md", "docs/waiting.md", "docs/java.md"] {
        for (number, passage) in passages(&fs::read_to_string(repository().join(name)).unwrap()) {
            for span in passage.split('`').skip(1).step_by(2).filter(|span| is_sentence(span)) {
                checked += 1;
                if quoted(span).iter().any(|part| !texts.contains(part)) {
                    strange.push(format!("{name}:{number}: {span}"));
                }
            }
        }
    }
    assert!(checked > 20, "only {checked} sentences were checked");
    assert!(strange.is_empty(), "{strange:#?}");
}

/// Four words or more that are no command, no stack and no piece of code.
fn is_sentence(span: &str) -> bool {
    let is_code = |word: &str| word.starts_with('-') || word.contains("::") || word.contains(['/', '=', ';']);
    let words: Vec<&str> = span.split_whitespace().collect();
    words.len() >= 4 && words[0] != "sudo" && !words.into_iter().any(is_code)
}

/// The parts of a sentence, of two words and more, that are the same in each case.
fn quoted(sentence: &str) -> Vec<String> {
    let differs = |word: &&str| {
        let word = word.trim_matches(|c: char| c.is_ascii_punctuation() || c == '…');
        ["", "N", "ms", "s"].contains(&word) || word.starts_with(|c: char| c.is_ascii_digit())
    };
    let words: Vec<&str> = sentence.split_whitespace().collect();
    let parts: Vec<String> = words.split(differs).map(|part| part.join(" ")).collect();
    let parts =
        parts.iter().flat_map(|part| part.split(['…', ':', '[', ']']).flat_map(|part| part.split(". ")));
    let parts = parts.map(|part| part.trim_matches([' ', '.', ',']).to_owned());
    parts.filter(|part| part.contains(' ')).collect()
}

/// The parts of a heading that are the same in each case.
fn fixed(heading: &str) -> Vec<String> {
    let heading = heading.trim_matches(['[', ']']);
    let heading =
        heading.strip_prefix("unknown: ").or_else(|| heading.strip_prefix("ended: ")).unwrap_or(heading);
    let heading = heading.split(" (").next().unwrap_or_default();
    let is_placeholder = |word: &str| {
        let word = word.trim_matches(|c: char| c.is_ascii_punctuation());
        ["N", "WHY", "PATH", "FILE", "PID", "NAME", "or"].contains(&word) || word.parse::<u32>().is_ok()
    };
    let words: Vec<&str> = heading.split(' ').collect();
    let parts = words.split(|word| is_placeholder(word)).map(|part| part.join(" "));
    let parts = parts.map(|part| part.trim_matches([':', '[', ']']).to_owned());
    parts.filter(|part| part.len() > 3).collect()
}

/// Documents for readers: sentences and lines have a limit there.
fn is_for_readers(path: &Path) -> bool {
    path.starts_with("docs") || path.parent() == Some(Path::new(""))
}

/// A line of a paragraph begins a text of its own if it is an item of a list.
fn without_bullet(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = number.strip_prefix(". ").filter(|_| number.len() < line.len());
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or(numbered)
}

/// Paragraphs, items of lists and cells of tables, with their lines.
fn passages(text: &str) -> Vec<(usize, String)> {
    let mut passages: Vec<(usize, String)> = Vec::new();
    let (mut continues, mut previous) = (false, 0);
    for (number, line) in prose(text) {
        let line = line.trim();
        let follows = continues && number == previous + 1;
        previous = number;
        continues = !(line.is_empty() || line.starts_with(['#', '<', '|']));
        if line.starts_with('|') {
            let cells = line.replace("\\|", "/");
            passages.extend(cells.split('|').map(|cell| (number, cell.to_owned())));
        } else if let Some(item) = without_bullet(line) {
            passages.push((number, item.to_owned()));
        } else if continues && follows {
            let (_, passage) = passages.last_mut().unwrap();
            *passage += " ";
            *passage += line;
        } else if continues {
            passages.push((number, line.to_owned()));
        }
    }
    passages
}

/// The words of a text. A span of code is one word, and the target of a link is none.
fn words(text: &str) -> Vec<String> {
    let parts = text.split('`').enumerate();
    let spans: String = parts.map(|(at, part)| if at % 2 == 0 { part } else { "`CODE`" }).collect();
    let mut links = spans.split("](");
    let mut plain = links.next().unwrap_or_default().to_owned();
    links.for_each(|link| plain += link.split_once(')').map_or("", |(_, after)| after));
    plain.split_whitespace().map(str::to_owned).collect()
}

/// Numbers of words of a text's sentences. A colon ends a sentence if no small letter follows.
fn lengths(text: &str) -> Vec<usize> {
    let words = words(text);
    let (mut lengths, mut length) = (Vec::new(), 0);
    for (at, word) in words.iter().enumerate() {
        length += usize::from(word.contains(char::is_alphanumeric));
        let end = word.trim_end_matches(['*', ')', '"', ']']).chars().next_back();
        let is_last = match (end, words.get(at + 1)) {
            (_, None) | (Some('.' | '!' | '?'), _) => true,
            (Some(':'), Some(next)) => !next.starts_with(char::is_lowercase),
            _ => false,
        };
        if is_last {
            lengths.push(std::mem::take(&mut length));
        }
    }
    lengths
}

#[test]
fn lengths_of_sentences_are_counted() {
    assert_eq!(lengths("One two. `a b c` is *one* word: Then [a link](x.md#y z) (in it)."), [2, 4, 5]);
    assert_eq!(passages("# A\na b\nc\n\n- d\n  e\n| f | g |\n").len(), 6);
}

#[test]
fn the_first_page_has_150_lines_at_most() {
    let lines = fs::read_to_string(repository().join("README.md")).unwrap().lines().count();
    assert!((50..=150).contains(&lines), "{lines}");
}

#[test]
fn sentences_and_lines_are_short() {
    const MAX_WORDS: usize = 30;
    const MAX_CHARACTERS: usize = 120;
    let (mut long, mut checked) = (Vec::new(), 0);
    for (path, text) in documents().into_iter().filter(|(path, _)| is_for_readers(path)) {
        for (number, passage) in passages(&text) {
            let lengths = lengths(&passage);
            checked += lengths.len();
            for words in lengths.into_iter().filter(|words| *words > MAX_WORDS) {
                long.push(format!("{}:{number}: a sentence has {words} words", path.display()));
            }
        }
        let lines = prose(&text).filter(|(_, line)| !line.starts_with('|'));
        for (number, _) in lines.filter(|(_, line)| line.chars().count() > MAX_CHARACTERS) {
            long.push(format!("{}:{number}: the line is too long", path.display()));
        }
    }
    assert!(checked > 1000, "only {checked} sentences were checked");
    assert!(long.is_empty(), "{long:#?}");
}
