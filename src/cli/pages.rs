//! Files for packages: shell completions, and man pages.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use super::args::Args;

/// The completion script for a shell.
#[must_use]
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "jbpf-prof", &mut script);
    script
}

/// Writes one man page for each command to a directory. A package is one version, so its pages have no date.
///
/// # Errors
/// A file cannot be written.
pub fn write_man_pages(directory: &Path) -> anyhow::Result<()> {
    // A page has a version of one line.
    let command = Args::command().long_version(env!("CARGO_PKG_VERSION"));
    clap_mangen::generate_to(command.disable_help_subcommand(true), directory)
        .with_context(|| format!("man pages in {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::{Args, CommandFactory, Shell, completions, write_man_pages};

    fn commands() -> Vec<String> {
        let command = Args::command();
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        shown.map(|sub| sub.get_name().to_owned()).collect()
    }

    #[test]
    fn each_shell_completes_each_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(completions(shell)).unwrap();
            for word in commands().iter().map(String::as_str).chain(["attach-timeout", "keep-size"]) {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn each_command_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        write_man_pages(directory.path()).unwrap();
        let mut pages: Vec<String> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        pages.sort();
        let mut expected: Vec<String> = commands().iter().map(|name| format!("jbpf-prof-{name}.1")).collect();
        expected.push("jbpf-prof.1".to_owned());
        expected.sort();
        assert_eq!(pages, expected);
        let page = std::fs::read_to_string(directory.path().join("jbpf-prof-daemon.1")).unwrap();
        assert!(page.contains(".SH OPTIONS") && page.contains("keep\\-size"), "{page}");
        assert!(write_man_pages(&directory.path().join("none")).is_err());
    }
}
