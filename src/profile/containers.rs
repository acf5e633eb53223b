//! Containers and their shares of a profile.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::labels::ContainerLabels;
use super::view::ProfileView;

/// A container and its number of samples in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRow {
    /// The container; `None` for samples outside of containers.
    pub container: Option<Arc<ContainerLabels>>,
    /// Number of samples, not their weight.
    pub samples: u64,
}

impl ProfileView<'_> {
    /// One row for each container and one for samples outside of containers, the most samples first. Empty if no sample
    /// has a container.
    #[must_use]
    pub fn containers(&self) -> Vec<ContainerRow> {
        let mut samples: BTreeMap<Option<Arc<ContainerLabels>>, u64> = BTreeMap::new();
        for sample in self.samples() {
            let container = &self.labels(sample.labels).container;
            match samples.get_mut(container) {
                Some(sum) => *sum += sample.weight.count,
                None => _ = samples.insert(container.clone(), sample.weight.count),
            }
        }
        if samples.keys().all(Option::is_none) {
            return Vec::new();
        }
        let mut rows: Vec<ContainerRow> =
            samples.into_iter().map(|(container, samples)| ContainerRow { container, samples }).collect();
        rows.sort_by_key(|row| Reverse(row.samples));
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::profile::labels::ContainerLabels;
    use crate::profile::{Accounts, Frame, Kind, Labels, Profile};
    use crate::sample::Event;

    #[test]
    fn each_sample_is_of_one_container() {
        let mut p = Profile::new();
        let container =
            |name: &str| Some(Arc::new(ContainerLabels { name: name.into(), ..ContainerLabels::default() }));
        let frame = [Arc::new(Frame::named(Kind::Native, "main"))];
        for (whose, samples) in [(container("a"), 3), (None, 5), (container("b"), 1), (container("a"), 4)] {
            p.add(&Labels { container: whose, ..Labels::default() }, &frame, samples, 0);
        }
        *p.accounts_mut(Event::Cpu) = Accounts { taken: 15, filtered: 1, kept: 13, ..Accounts::default() };
        p.accounts_mut(Event::Cpu).lose("ring full", 1);
        let rows = p.of_event(Event::Cpu).containers();
        let shown: Vec<_> =
            rows.iter().map(|r| (r.container.as_ref().map(|c| c.title()), r.samples)).collect();
        assert_eq!(shown, [(Some("a".into()), 7), (None, 5), (Some("b".into()), 1)]);
        for row in rows {
            let own = p.of_event(Event::Cpu).of_container(row.container.as_deref());
            assert_eq!((own.total().count, own.accounts().kept), (row.samples, row.samples));
            assert_eq!(own.accounts().lost_total(), 1);
            own.check().unwrap();
        }
    }

    #[test]
    fn without_containers_there_are_no_rows() {
        let mut p = Profile::new();
        p.add(&Labels::default(), &[Arc::new(Frame::named(Kind::Native, "main"))], 3, 0);
        assert_eq!(p.of_event(Event::Cpu).containers(), []);
    }

    #[test]
    fn titles() {
        let of = |pod: &str, name: &str, id: &str| {
            ContainerLabels {
                pod: pod.into(),
                namespace: "ns".into(),
                name: name.into(),
                id: id.into(),
                ..ContainerLabels::default()
            }
            .title()
        };
        assert_eq!(of("shop", "", "1"), "ns/shop");
        assert_eq!(of("", "web", "1"), "web");
        assert_eq!(of("", "", &"12".repeat(32)), "121212121212");
    }
}
