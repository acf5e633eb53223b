//! What a process publishes about itself: the attributes of its OpenTelemetry resource, such as `service.name`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Attributes of one process that are kept.
const MAX_ATTRIBUTES: usize = 64;
/// Bytes of a key, and characters of a value. Longer keys are left out; a profile shortens longer values.
const MAX_KEY: usize = 128;
/// Keys that begin like this are left out: jbpf-prof measures these properties, or each process of a host has the same
/// ones, or they may have secrets, as the arguments of a command have.
const LEFT_OUT: [&str; 8] =
    ["process.", "thread.", "threadlocal.", "container.", "k8s.", "host.", "os.", "jbpf_prof."];
/// Labels of samples that are no attributes.
const LABELS: [&str; 2] = ["trace_id", "span_id"];

/// One attribute of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResourceAttribute {
    /// By OpenTelemetry's conventions: `service.name`.
    pub key: Arc<str>,
    /// The text of the value.
    pub value: Arc<str>,
}

/// The attributes of a resource, by key. A process may publish anything here, so they falsify its own samples at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResourceAttributes(Vec<ResourceAttribute>);

impl ResourceAttributes {
    /// Each key once, with its first value. Empty values, and properties that jbpf-prof measures, are left out.
    #[must_use]
    pub fn new(attributes: impl IntoIterator<Item = ResourceAttribute>) -> ResourceAttributes {
        let mut list: Vec<ResourceAttribute> = attributes.into_iter().filter(is_kept).collect();
        list.sort_by(|a, b| a.key.cmp(&b.key));
        list.dedup_by(|later, first| later.key == first.key);
        list.truncate(MAX_ATTRIBUTES);
        ResourceAttributes(list)
    }

    /// Whether the process published nothing that is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The attributes in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &ResourceAttribute> {
        self.0.iter()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        let found = self.0.binary_search_by(|attribute| (*attribute.key).cmp(key)).ok()?;
        Some(&self.0[found].value)
    }

    pub(super) fn map(&self, mut text: impl FnMut(&Arc<str>) -> Arc<str>) -> ResourceAttributes {
        let map = |ResourceAttribute { key, value }: &ResourceAttribute| ResourceAttribute {
            key: text(key),
            value: text(value),
        };
        ResourceAttributes::new(self.0.iter().map(map))
    }
}

fn is_kept(ResourceAttribute { key, value }: &ResourceAttribute) -> bool {
    !key.is_empty()
        && !value.is_empty()
        && key.len() <= MAX_KEY
        && !LABELS.contains(&&**key)
        && !LEFT_OUT.iter().any(|start| key.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[(&str, &str)]) -> ResourceAttributes {
        let attribute =
            |(key, value): &(&str, &str)| ResourceAttribute { key: (*key).into(), value: (*value).into() };
        ResourceAttributes::new(list.iter().map(attribute))
    }

    #[test]
    fn what_is_measured_is_not_taken_from_the_process() {
        let resource = of(&[
            ("service.version", "2"),
            ("service.name", "shop"),
            ("service.name", "other"),
            ("process.command_args", "--password=x"),
            ("k8s.pod.name", "of-another"),
            ("trace_id", "00"),
            ("team", ""),
            ("", "x"),
            (&"k".repeat(200), "x"),
        ]);
        let kept: Vec<&str> = resource.iter().map(|attribute| &*attribute.key).collect();
        assert_eq!(kept, ["service.name", "service.version"]);
        assert_eq!(resource.get("service.name").map(|name| &**name), Some("shop"));
        assert_eq!(resource.get("team"), None);
    }

    #[test]
    fn the_number_of_attributes_is_bounded() {
        let keys: Vec<String> = (0..1000).map(|n| format!("key{n}")).collect();
        let list: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "x")).collect();
        assert_eq!(of(&list).iter().count(), MAX_ATTRIBUTES);
    }
}
