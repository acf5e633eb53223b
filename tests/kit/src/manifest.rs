//! The manifest for Kubernetes, `deploy/base`.

/// The text of one of its files.
pub fn text(file: &str) -> String {
    let base = crate::repository().join("deploy/base");
    std::fs::read_to_string(base.join(file)).unwrap()
}

/// Whether the DaemonSet has this line.
pub fn has(line: &str) -> bool {
    text("daemonset.yaml").lines().any(|have| have.trim() == line)
}

/// The list after this key in the DaemonSet, on the same line.
pub fn listed(key: &str) -> Vec<String> {
    let text = text("daemonset.yaml");
    let found = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(&format!("{key}: ")).filter(|l| l.starts_with('[')));
    serde_json::from_str(found.unwrap_or_else(|| panic!("{key} in the manifest"))).unwrap()
}
