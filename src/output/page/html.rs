//! The HTML file: the page's own style and script, and the document. Text of profiled programs is only in the document,
//! which is packed and encoded in base64, so that no name can be markup.

use std::io::Write;
use std::sync::LazyLock;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use sha2::{Digest, Sha256};

use super::document::Document;

const PAGE: &str = include_str!("web/page.html");
const STYLE: &str = include_str!("web/page.css");

/// A module of the page, under its name.
struct ScriptModule {
    name: &'static str,
    text: &'static str,
}

macro_rules! modules {
    ($($name:literal)*) => { [$(ScriptModule { name: $name, text: include_str!(concat!("web/", $name, ".js")) }),*] };
}

/// All modules, each behind those that it imports. The last one is the page's begin and exports nothing.
static MODULES: [ScriptModule; 24] = modules!(
    "dom" "numbers" "colour" "data" "waits" "selection" "pauses" "shown" "layout" "flame" "groups" "tree" "table"
    "lines" "functions" "run" "strip" "facets" "address" "growing" "feed" "bar" "live" "main"
);

/// The page before and behind the document.
struct Parts {
    before: String,
    behind: String,
}

/// The page as a file. It has its policy in its head.
static FILE: LazyLock<Parts> = LazyLock::new(|| {
    Parts::new(&format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n", policy()))
});
/// The page of a server, whose policy is in a header: one in the head would forbid requests to the server.
static SERVED: LazyLock<Parts> = LazyLock::new(|| Parts::new(""));
static SCRIPT: LazyLock<String> = LazyLock::new(|| MODULES.iter().map(assembled).collect());
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        hash(&SCRIPT),
        hash(STYLE)
    )
});

impl Parts {
    fn new(policy: &str) -> Parts {
        let page = PAGE.replace("{policy}\n", policy).replace("{style}", STYLE).replace("{script}", &SCRIPT);
        let (before, behind) = page.split_once("{profile}").unwrap_or((&page, ""));
        Parts { before: before.to_owned(), behind: behind.to_owned() }
    }
}

/// The content security policy of the page: only its own script and style, and no request.
pub(super) fn policy() -> &'static str {
    &POLICY
}

/// The page of a server. `settings` is JSON without text of profiled programs.
pub(super) fn shell(settings: &str) -> String {
    [&SERVED.before, settings, &SERVED.behind].concat()
}

/// A module as a part of one script, because a page under a strict policy cannot load further files. The module becomes
/// a function with its own scope; `import` takes values from an earlier module, and `export` returns them.
fn assembled(module: &ScriptModule) -> String {
    let mut body = String::new();
    let mut exports = Vec::new();
    for line in module.text.lines() {
        if let Some((names, from)) =
            line.strip_prefix("import ").and_then(|rest| rest.split_once(" from \"./"))
        {
            body += &format!("const {names} = ${};", from.trim_end_matches(".js\";"));
        } else if let Some(declared) = line.strip_prefix("export ") {
            exports.extend(exported(declared));
            body += declared;
        } else {
            body += line;
        }
        body.push('\n');
    }
    if exports.is_empty() {
        return body;
    }
    format!("const ${} = (() => {{\n{body}return {{ {} }};\n}})();\n", module.name, exports.join(", "))
}

/// The name in a declaration: `function NAME(`, `async function NAME(`, `class NAME {`, `const NAME =`.
fn exported(declared: &str) -> Option<&str> {
    let rest = declared.strip_prefix("async ").unwrap_or(declared);
    let (_, rest) = rest.split_once(' ')?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Writes the page with a document.
///
/// # Errors
/// The error of `out`.
pub(super) fn write(document: &Document<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    out.write_all(FILE.before.as_bytes())?;
    pack(document, out)?;
    Ok(out.write_all(FILE.behind.as_bytes())?)
}

/// Writes the packed document: JSON on one line.
///
/// # Errors
/// The error of `out`.
pub(super) fn pack(document: &Document<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    out.write_all(b"{\"deflate-raw\":\"")?;
    let mut text = EncoderWriter::new(&mut *out, &STANDARD);
    let mut packed = DeflateEncoder::new(&mut text, Compression::default());
    serde_json::to_writer(&mut packed, document).context("writing the profile of a page")?;
    packed.finish().context("writing the profile of a page")?;
    text.finish().context("writing the profile of a page")?;
    drop(text);
    Ok(out.write_all(b"\"}")?)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{FILE, MODULES, Parts, STYLE, exported, shell};

    #[test]
    fn each_module_stands_behind_those_that_it_imports() {
        let mut known: HashSet<(&str, &str)> = HashSet::new();
        let mut imports = 0;
        for module in &MODULES {
            for line in module.text.lines().filter(|line| line.starts_with("import ")) {
                let (names, from) =
                    line["import { ".len()..].split_once(" } from \"./").expect("one line, names in braces");
                let from = from.strip_suffix(".js\";").unwrap();
                for name in names.split(", ") {
                    assert!(known.contains(&(from, name)), "{}.js: {line}", module.name);
                    imports += 1;
                }
            }
            let exports = module.text.lines().filter_map(|line| line.strip_prefix("export "));
            known.extend(exports.map(|line| (module.name, exported(line).unwrap())));
        }
        assert!(imports > 40, "{imports}");
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/output/page/web")).unwrap();
        let scripts =
            files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|it| it == "js"));
        assert_eq!(scripts.count(), MODULES.len(), "a file of web/ is not in MODULES");
    }

    fn policy_line(before: &str) -> String {
        before.lines().find(|line| line.contains("Content-Security-Policy")).unwrap().to_owned() + "\n"
    }

    #[test]
    fn the_policy_allows_only_the_own_script_and_style() {
        let Parts { before, behind } = &*FILE;
        assert!(before.contains("default-src 'none'; script-src 'sha256-") && before.contains(STYLE));
        let page = format!("{before}{behind}");
        assert_eq!(page.matches("<script").count(), 2);
        for word in
            ["unsafe-inline", "unsafe-eval", "http:", "https:", "innerHTML", "document.write", "eval("]
        {
            assert!(!page.contains(word), "{word}");
        }
        assert!(!behind.contains("{script}") && !before.contains("{policy}"));
        let served = shell("{\"live\":{}}");
        assert!(!served.contains("Content-Security-Policy") && !served.contains("{policy}"));
        assert!(served.contains("<script id=\"profile\" type=\"application/json\">{\"live\":{}}</script>"));
        assert_eq!(
            served.len() + before.len() + behind.len(),
            2 * page.len() + 11 - policy_line(before).len()
        );
    }
}
