//! The service of a sample, as sinks see it: a process name, or a container. Sinks store a series for each service. So
//! services must be few, without properties that change with each process.

use std::collections::HashMap;
use std::sync::Arc;

use crate::profile::labels::ContainerLabels;
use crate::profile::resource::ResourceAttributes;
use crate::profile::{Labels, ProfileView};

/// Maximum services of a window, those with the most samples. Otherwise a tenant that keeps renaming its processes
/// would fill the sink with series.
const MAX_SERVICES: usize = 128;
/// The service of all remaining samples.
const OTHER: &str = "other";
/// The service of lost samples, which belong to no process.
const OWN: &str = "jbpf-prof";

/// A service with its labels or attributes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Service {
    pub(super) name: Arc<str>,
    /// Further properties: name and text.
    pub(super) attributes: Vec<(&'static str, Arc<str>)>,
    /// What the process publishes about itself; `attributes` are measured and win over these.
    pub(super) resource: Option<Arc<ResourceAttributes>>,
}

impl Service {
    /// Named as in OpenTelemetry's conventions: a container is a resource, identified by its id. A process that publishes
    /// the name of its service has that name, as in its traces.
    pub(super) fn as_resource(labels: &Labels) -> Service {
        let mut service = Service::of_container(labels);
        if let Some(name) = labels.resource.as_ref().and_then(|resource| resource.get("service.name")) {
            service.name = Arc::clone(name);
            service.attributes.retain(|(key, _)| *key != "service.namespace");
        }
        service.resource.clone_from(&labels.resource);
        service
    }

    fn of_container(labels: &Labels) -> Service {
        let Some(of) = known(labels) else { return Service::named(&labels.process) };
        let attributes = [
            ("service.namespace", &of.namespace),
            ("k8s.namespace.name", &of.namespace),
            ("k8s.pod.name", &of.pod),
            ("k8s.pod.uid", &of.pod_uid),
            ("k8s.container.name", &of.container),
            ("container.name", &of.name),
            ("container.id", &of.id),
        ];
        Service::with(own_name(of).unwrap_or(&labels.process), &attributes)
    }

    /// Labelled as Pyroscope's own agents do. Properties that change with each start of a container are left out,
    /// because each set of labels is a series.
    pub(super) fn as_series(labels: &Labels) -> Service {
        let Some((of, name)) = known(labels).and_then(|of| Some((of, own_name(of)?))) else {
            return Service::named(&labels.process);
        };
        let attributes = [("namespace", &of.namespace), ("pod", &of.pod), ("container", name)];
        let service = Service::with(name, &attributes);
        if of.namespace.is_empty() {
            return service;
        }
        Service { name: format!("{}/{name}", of.namespace).into(), ..service }
    }

    fn with(name: &Arc<str>, attributes: &[(&'static str, &Arc<str>)]) -> Service {
        let known = attributes.iter().filter(|(_, text)| !text.is_empty());
        Service {
            name: Arc::clone(name),
            attributes: known.map(|&(key, text)| (key, Arc::clone(text))).collect(),
            resource: None,
        }
    }

    fn named(name: &str) -> Service {
        Service { name: name.into(), attributes: Vec::new(), resource: None }
    }
}

/// The container, unless it ended before its labels were read.
fn known(labels: &Labels) -> Option<&ContainerLabels> {
    labels.container.as_deref().filter(|of| !of.is_gone())
}

/// A container's name in its pod, or else outside of pods.
fn own_name(of: &ContainerLabels) -> Option<&Arc<str>> {
    [&of.container, &of.name].into_iter().find(|name| !name.is_empty())
}

/// Groups the samples of an event by service, in the order of the services. Lost samples are a view of their own without
/// samples.
pub(super) fn split<'p>(
    view: &ProfileView<'p>,
    service: impl Fn(&Labels) -> Service,
) -> Vec<(Service, ProfileView<'p>)> {
    let mut samples: HashMap<Service, u64> = HashMap::new();
    for sample in view.samples() {
        *samples.entry(service(view.labels(sample.labels))).or_default() += sample.weight.count;
    }
    let mut largest: Vec<(Service, u64)> = samples.into_iter().collect();
    largest.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    largest.truncate(MAX_SERVICES);
    let kept: HashMap<Service, u64> = largest.into_iter().collect();
    let other = Service::named(OTHER);
    let service = |labels: &Labels| {
        let service = service(labels);
        if kept.contains_key(&service) { service } else { other.clone() }
    };
    let mut parts: Vec<(Service, ProfileView<'p>)> = view.split(service).collect();
    if view.accounts().lost_total() > 0 {
        parts.push((Service::named(OWN), view.lost()));
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{MAX_SERVICES, Service, split};
    use crate::profile::labels::ContainerLabels;
    use crate::profile::resource::{ResourceAttribute, ResourceAttributes};
    use crate::profile::{Frame, Kind, Labels, Profile};
    use crate::sample::Event;

    #[test]
    fn services_add_up_and_are_bounded() {
        let mut profile = Profile::new();
        for service in 0..1000u32 {
            let labels = Labels { pid: service, process: format!("p{service}").into(), ..Labels::default() };
            profile.add(&labels, &[Arc::new(Frame::named(Kind::Native, "main"))], u64::from(service) + 1, 10);
        }
        let accounts = profile.accounts_mut(Event::Cpu);
        (accounts.taken, accounts.kept) = (500_503, 500_500);
        accounts.lose("ring full", 3);
        profile.check().unwrap();
        let parts = split(&profile.of_event(Event::Cpu), Service::as_series);
        assert_eq!(parts.len(), MAX_SERVICES + 2);
        let shown: u64 = parts.iter().map(|(_, part)| part.accounts().shown()).sum();
        assert_eq!(shown, profile.accounts(Event::Cpu).shown());
        for (_, part) in &parts {
            part.check().unwrap();
        }
        assert!(parts.iter().any(|(service, _)| &*service.name == "p999"));
        assert!(!parts.iter().any(|(service, _)| &*service.name == "p0"));
    }

    #[test]
    fn containers_are_services_by_their_names() {
        let found = |service: &Service| {
            let rest = service.attributes.iter().map(|(key, text)| format!(" {key}={text}"));
            format!("{}{}", service.name, rest.collect::<String>())
        };
        let both = |of: Option<ContainerLabels>| {
            let labels = Labels { process: "java".into(), container: of.map(Arc::new), ..Labels::default() };
            [Service::as_series(&labels), Service::as_resource(&labels)].each_ref().map(found)
        };
        assert_eq!(both(None), ["java", "java"]);
        assert_eq!(both(Some(ContainerLabels::gone())), ["java", "java"], "nothing is known of it");
        let id = ContainerLabels { id: "1f".into(), ..ContainerLabels::default() };
        assert_eq!(both(Some(id.clone())), ["java", "java container.id=1f"]);
        let docker = ContainerLabels { name: "web".into(), ..id.clone() };
        assert_eq!(both(Some(docker)), ["web container=web", "web container.name=web container.id=1f"]);
        let pod = ContainerLabels {
            namespace: "prod".into(),
            pod: "shop-0".into(),
            container: "app".into(),
            pod_uid: "u".into(),
            ..id
        };
        let series = "prod/app namespace=prod pod=shop-0 container=app";
        let resource = "app service.namespace=prod k8s.namespace.name=prod k8s.pod.name=shop-0 k8s.pod.uid=u \
                        k8s.container.name=app container.id=1f";
        assert_eq!(both(Some(pod)), [series, resource]);
    }

    #[test]
    fn a_published_name_is_that_of_the_resource_and_makes_no_series() {
        let attribute = |key: &str, value: &str| ResourceAttribute { key: key.into(), value: value.into() };
        let published = [attribute("service.name", "shop"), attribute("service.version", "2")];
        let container = ContainerLabels {
            namespace: "prod".into(),
            pod: "shop-0".into(),
            container: "app".into(),
            ..ContainerLabels::default()
        };
        let labels = Labels {
            process: "java".into(),
            container: Some(Arc::new(container)),
            resource: Some(Arc::new(ResourceAttributes::new(published))),
            ..Labels::default()
        };
        let resource = Service::as_resource(&labels);
        assert_eq!((&*resource.name, &resource.resource), ("shop", &labels.resource));
        let keys: Vec<&str> = resource.attributes.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["k8s.namespace.name", "k8s.pod.name", "k8s.container.name"]);
        let series = Service::as_series(&labels);
        assert_eq!((&*series.name, series.resource), ("prod/app", None));
    }
}
