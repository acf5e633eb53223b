//! What Kubernetes is given, `deploy/base`.

use std::path::Path;

/// A file of it.
pub(crate) fn text(file: &str) -> String {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/base");
    std::fs::read_to_string(base.join(file)).unwrap()
}

/// Whether the DaemonSet has such a line.
pub(crate) fn has(line: &str) -> bool {
    text("daemonset.yaml").lines().any(|have| have.trim() == line)
}

/// The list that follows a key of the DaemonSet on its line.
pub(crate) fn listed(key: &str) -> Vec<String> {
    let text = text("daemonset.yaml");
    let found = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(&format!("{key}: ")).filter(|l| l.starts_with('[')));
    serde_json::from_str(found.unwrap_or_else(|| panic!("{key} in the manifest"))).unwrap()
}
