//! `jbpf-prof jvms`: the JVMs of this host as a table.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;

use crate::host::capability::Capabilities;
use crate::jvm::{self, ExpectedNameSource, JvmRow};

const HEADINGS: [&str; 8] =
    ["PID", "CONTAINER", "USER", "VERSION", "FRAME POINTERS", "ATTACH", "NAMES", "MAIN"];
/// Digits of a container's id, as container tools show it.
const SHORT_ID: usize = 12;

/// Inspects every JVM, without attaching. `binary`: this program, which also runs as the helper.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn rows(binary: &Path) -> anyhow::Result<Vec<JvmRow>> {
    let jvms = jvm::discover().context("looking for JVMs in /proc")?;
    Ok(jvms.iter().map(|jvm| JvmRow::of(jvm, binary)).collect())
}

/// One line about a JVM, for a bug report.
#[must_use]
pub fn line(row: &JvmRow) -> String {
    let [pid, container, user, version, frame_pointers, attach, names, main] = cells(row, &user_name);
    format!(
        "{pid}, container {container}, user {user}, {version}, frame pointers {frame_pointers}, attach: {attach}, \
         names: {names}, {main}"
    )
}

/// The table, or a sentence if there is no JVM. An ordinary user sees only its own.
#[must_use]
pub fn table(rows: &[JvmRow]) -> String {
    if rows.is_empty() {
        let sees_all = Capabilities::own().missing().all(|missing| missing.name != "SYS_PTRACE");
        let none = if sees_all {
            "no JVM runs on this host"
        } else {
            "no JVM of this user runs; with sudo all are listed"
        };
        return format!("{none}\n");
    }
    layout(rows.iter().map(|row| cells(row, &user_name)))
}

fn layout(rows: impl Iterator<Item = [String; 8]>) -> String {
    let rows: Vec<_> = std::iter::once(HEADINGS.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..HEADINGS.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row[..7].iter().zip(&widths) {
            // Writing to a String does not fail.
            let _ = write!(text, "{cell:<width$}  ");
        }
        text.push_str(&row[7]);
        text.push('\n');
    }
    text
}

fn cells(row: &JvmRow, user: &dyn Fn(u32) -> Option<String>) -> [String; 8] {
    let JvmRow { pid, container, uid, version, vendor: _, main, frame_pointers, newer_than, refusal, names } =
        row;
    [
        pid.to_string(),
        container.as_ref().map_or("-".into(), |id| id.chars().take(SHORT_ID).collect()),
        user(*uid).unwrap_or_else(|| uid.to_string()),
        match newer_than {
            _ if version.is_empty() => "unknown".into(),
            Some(_) => format!("{version} (untested)"),
            None => version.clone(),
        },
        match frame_pointers {
            Some(true) => "kept".into(),
            Some(false) => "not kept".into(),
            None => "unknown".into(),
        },
        refusal.as_ref().map_or("yes".into(), |refusal| format!("no: {refusal}")),
        match names {
            ExpectedNameSource::Agent => "agent".into(),
            ExpectedNameSource::AgentAtStart => "agent at start".into(),
            ExpectedNameSource::Memory => "memory".into(),
            ExpectedNameSource::Nothing => "none".into(),
        },
        main.clone(),
    ]
}

/// The name that the host's `/etc/passwd` has for a user.
fn user_name(uid: u32) -> Option<String> {
    named(&std::fs::read_to_string("/etc/passwd").ok()?, uid)
}

fn named(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::{ExpectedNameSource, JvmRow, cells, layout, named, table};
    use crate::jvm::Refusal;

    #[test]
    fn columns_stand_under_their_headings() {
        let one = JvmRow {
            pid: 7,
            container: Some("0123456789abcdef".repeat(4)),
            uid: 1000,
            version: "17.0.15+6".into(),
            vendor: "Debian".into(),
            main: "Main".into(),
            frame_pointers: Some(true),
            newer_than: None,
            refusal: None,
            names: ExpectedNameSource::Agent,
        };
        let other = JvmRow {
            pid: 4_000_000,
            container: None,
            version: String::new(),
            frame_pointers: None,
            refusal: Some(Refusal::AttachDisabled),
            names: ExpectedNameSource::Memory,
            ..one.clone()
        };
        let new = JvmRow {
            version: "28-ea+12".into(),
            newer_than: Some(25),
            names: ExpectedNameSource::AgentAtStart,
            ..one.clone()
        };
        let user = |uid| (uid == 1000).then(|| "worker".to_owned());
        let text = layout([&one, &other, &new].iter().map(|row| cells(row, &user)));
        let lines: Vec<_> = text.lines().collect();
        let at = |line: usize, heading: &str| lines[line].get(lines[0].find(heading).unwrap()..).unwrap();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(
            at(1, "CONTAINER").starts_with("0123456789ab  ") && at(2, "CONTAINER").starts_with("-  "),
            "{text}"
        );
        assert!(at(1, "USER").starts_with("worker") && at(2, "VERSION").starts_with("unknown"), "{text}");
        assert!(
            at(1, "ATTACH").starts_with("yes") && at(2, "ATTACH").starts_with("no: attach disabled"),
            "{text}"
        );
        assert!(at(1, "NAMES").starts_with("agent") && at(2, "NAMES").starts_with("memory"), "{text}");
        assert!(at(3, "VERSION").starts_with("28-ea+12 (untested)  "), "{text}");
        assert!(at(3, "NAMES").starts_with("agent at start  "), "{text}");
        assert_eq!(at(2, "MAIN"), "Main", "{text}");
    }

    #[test]
    fn no_jvm_is_a_sentence() {
        let none = table(&[]);
        // An ordinary user does not see the processes of others.
        assert!(none.starts_with("no JVM ") && none.ends_with('\n'), "{none}");
    }

    #[test]
    fn users_have_the_hosts_names() {
        let passwd = "root:x:0:0::/root:/bin/sh\nbad line\nworker:x:1000:1000::/:/bin/sh\n";
        assert_eq!(named(passwd, 1000).as_deref(), Some("worker"));
        assert_eq!(named(passwd, 1), None);
    }
}
