//! The cgroups that a user selects: by path, or by the names of containers, pods and namespaces.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::cgroup::{container_named, pod_named};
use super::container::{Container, ContainerNames, Node, is_roots};
use super::group::{Group, NoGroup};
use super::hierarchies::Hierarchies;
use super::hierarchy::Hierarchy;

/// Candidates that an error lists.
const MAX_NAMED: usize = 10;
/// Digits of a container's id: the fewest that count as the beginning of one, and how many tools show.
const ID_DIGITS: std::ops::RangeInclusive<usize> = 3..=12;

/// What the user asked for. Containers, pods and namespaces narrow each other; paths are added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Cgroups, in any form that [`Hierarchies::group`] takes.
    pub paths: Vec<PathBuf>,
    /// Containers: an id, the beginning of one, or a name.
    pub containers: Vec<String>,
    /// Pods: a name or a uid.
    pub pods: Vec<String>,
    /// Kubernetes namespaces; empty: pods of all namespaces.
    pub namespaces: Vec<String>,
    /// The node whose files give the names.
    pub node: Node,
}

/// Why nothing can be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTarget {
    /// A path gives no cgroup.
    #[error(transparent)]
    Group(#[from] NoGroup),
    /// Nothing has that name.
    #[error("no {what} is called {asked}; {}", named(what, .known))]
    Unknown {
        /// Kind of the target, such as `pod`.
        what: &'static str,
        /// Name that was asked for.
        asked: String,
        /// Names of this kind that exist; empty if none can be seen.
        known: Vec<String>,
    },
    /// Several ids begin like this.
    #[error("{asked} matches the ids of several containers: {}", list(.known))]
    Ambiguous {
        /// The beginning of an id that was asked for.
        asked: String,
        /// The containers whose ids begin so: names for people, with short ids.
        known: Vec<String>,
    },
}

fn named(what: &str, known: &[String]) -> String {
    if known.is_empty() { format!("jbpf-prof finds no {what} on this host") } else { list(known) }
}

fn list(known: &[String]) -> String {
    if known.len() > MAX_NAMED {
        format!("there are {} and more", known[..MAX_NAMED].join(", "))
    } else {
        format!("there are {}", known.join(", "))
    }
}

/// Whether everything that was asked for must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnMissing {
    /// Yes: at the start.
    Needed,
    /// No: later, targets that are gone may come back.
    Free,
}

/// The cgroup of a container or of a pod.
struct Candidate {
    container: Container,
    dir: PathBuf,
    /// Whether root has made the cgroup. Other users may choose any name, so their cgroups count only if root has none
    /// of that name.
    of_root: bool,
}

impl Selection {
    /// Whether the selection may get other cgroups during the session.
    #[must_use]
    pub fn is_by_name(&self) -> bool {
        !(self.containers.is_empty() && self.pods.is_empty() && self.namespaces.is_empty())
    }

    /// The selected cgroups now, without those below another.
    ///
    /// # Errors
    /// When something that was asked for does not exist.
    pub fn groups(&self, hierarchies: &Hierarchies) -> Result<Vec<Group>, NoTarget> {
        let mut groups = Vec::new();
        for path in &self.paths {
            groups.push(hierarchies.group(path)?);
        }
        if self.is_by_name() {
            let all: Vec<Hierarchy> = hierarchies.all().map(|(hierarchy, _)| hierarchy).collect();
            groups.extend(self.by_name(hierarchies, all, OnMissing::Needed)?);
        }
        Ok(topmost(groups))
    }

    /// The selection, evaluated again: cgroups at the paths of `first`, and cgroups with the selected names in the
    /// hierarchies of `first`.
    #[must_use]
    pub fn groups_again(&self, hierarchies: &Hierarchies, first: &[Group]) -> Vec<Group> {
        let mut groups: Vec<Group> =
            first.iter().filter_map(|group| hierarchies.at(group.id.hierarchy, &group.dir)).collect();
        if self.is_by_name() {
            let mut all: Vec<Hierarchy> = first.iter().map(|group| group.id.hierarchy).collect();
            all.sort_unstable();
            all.dedup();
            groups.extend(self.by_name(hierarchies, all, OnMissing::Free).unwrap_or_default());
        }
        topmost(groups)
    }

    /// Finds cgroups by name in the first hierarchy that has all of them. The one that distinguishes containers comes
    /// before the others.
    fn by_name(
        &self,
        hierarchies: &Hierarchies,
        mut all: Vec<Hierarchy>,
        presence: OnMissing,
    ) -> Result<Vec<Group>, NoTarget> {
        let names = self.node.names();
        all.sort_by_key(|hierarchy| *hierarchy != hierarchies.naming());
        let mut why = None;
        for hierarchy in all {
            let dirs = hierarchies.dirs(hierarchy);
            let found = match self.containers.as_slice() {
                [] => self.pods(&names, &dirs, presence),
                asked => self.containers(asked, &names, &dirs, presence),
            };
            match found {
                Ok(dirs) => {
                    return Ok(dirs.iter().filter_map(|dir| hierarchies.at(hierarchy, dir)).collect());
                }
                Err(error) => why = why.or(Some(error)),
            }
        }
        let unseen = || NoTarget::Unknown { what: "container", asked: String::new(), known: Vec::new() };
        Err(why.unwrap_or_else(unseen))
    }

    /// The directories of the selected pods.
    fn pods(
        &self,
        names: &ContainerNames,
        dirs: &[PathBuf],
        presence: OnMissing,
    ) -> Result<Vec<PathBuf>, NoTarget> {
        let of = |dir: &Path| {
            let uid = pod_named(dir.file_name()?.as_bytes())?;
            let pod = names.pods.iter().find(|pod| pod.uid == uid);
            let container = Container { pod_uid: uid, ..Container::default() };
            Some(match pod {
                Some(pod) => {
                    Container { pod: pod.name.clone(), namespace: pod.namespace.clone(), ..container }
                }
                None => container,
            })
        };
        let pods: Vec<Candidate> = dirs
            .iter()
            .filter_map(|dir| {
                Some(Candidate { container: of(dir)?, dir: dir.clone(), of_root: is_roots(dir) })
            })
            .collect();
        self.all_are_there(&pods, presence)?;
        Ok(self.within(&pods).filter(|c| c.of_root).map(|c| c.dir.clone()).collect())
    }

    /// The directories of the selected containers: for each name all that have it, or the one whose id begins so.
    fn containers(
        &self,
        asked: &[String],
        names: &ContainerNames,
        dirs: &[PathBuf],
        presence: OnMissing,
    ) -> Result<Vec<PathBuf>, NoTarget> {
        let all: Vec<Candidate> = dirs
            .iter()
            .filter_map(|dir| {
                let named = dir.file_name()?;
                let id = container_named(named.as_bytes()).unwrap_or_default();
                let known = names.container(dir).unwrap_or_default();
                // Cgroups of runc, and others, have the names of their containers; cgroups within a container do not.
                let name = match (known.name.is_empty(), id.is_empty() && known.id.is_empty()) {
                    (true, true) => without_systemd_affixes(&named.to_string_lossy()).to_owned(),
                    _ => known.name,
                };
                let container = Container { id, name, ..known };
                Some(Candidate { container, dir: dir.clone(), of_root: is_roots(dir) })
            })
            .collect();
        self.all_are_there(&all, presence)?;
        let mut found = Vec::new();
        for asked in asked {
            let exact = |c: &Container| [&c.id, &c.name, &c.container].contains(&asked);
            let mut dirs: Vec<&Candidate> = self.within(&all).filter(|c| exact(&c.container)).collect();
            if dirs.is_empty() && asked.len() >= *ID_DIGITS.start() {
                dirs = self.within(&all).filter(|c| c.container.id.starts_with(asked)).collect();
                let ids = sorted(dirs.iter().map(|c| c.container.id.clone()));
                if ids.len() > 1 && presence == OnMissing::Free {
                    continue;
                }
                if ids.len() > 1 {
                    let known = dirs.iter().map(|c| describe(&c.container)).collect();
                    return Err(NoTarget::Ambiguous { asked: asked.clone(), known });
                }
            }
            if dirs.is_empty() && presence == OnMissing::Needed {
                let containers = self.within(&all).filter(|c| !c.container.id.is_empty());
                let known = sorted(containers.map(|c| describe(&c.container)));
                return Err(NoTarget::Unknown { what: "container", asked: asked.clone(), known });
            }
            if dirs.iter().any(|c| c.of_root) {
                dirs.retain(|c| c.of_root);
            }
            found.extend(dirs.into_iter().map(|c| c.dir.clone()));
        }
        Ok(found)
    }

    /// Candidates in the pods and namespaces that were asked for.
    fn within<'a>(&'a self, all: &'a [Candidate]) -> impl Iterator<Item = &'a Candidate> {
        let any = |asked: &[String], names: &[&String]| {
            asked.is_empty() || asked.iter().any(|asked| names.contains(&asked))
        };
        all.iter().filter(move |Candidate { container, .. }| {
            any(&self.pods, &[&container.pod, &container.pod_uid])
                && any(&self.namespaces, &[&container.namespace])
        })
    }

    fn all_are_there(&self, all: &[Candidate], presence: OnMissing) -> Result<(), NoTarget> {
        if presence == OnMissing::Free {
            return Ok(());
        }
        let check = |what, asked: &[String], names: &dyn Fn(&Container) -> [String; 2]| {
            let known: Vec<[String; 2]> = all.iter().map(|c| names(&c.container)).collect();
            match asked.iter().find(|asked| !known.iter().flatten().any(|name| name == *asked)) {
                None => Ok(()),
                Some(asked) => {
                    let known = sorted(known.into_iter().map(|[name, _]| name));
                    Err(NoTarget::Unknown { what, asked: asked.clone(), known })
                }
            }
        };
        check("namespace", &self.namespaces, &|c| [c.namespace.clone(), String::new()])?;
        check("pod", &self.pods, &|c| [c.pod.clone(), c.pod_uid.clone()])
    }
}

/// The cgroups that lie below no other.
fn topmost(mut groups: Vec<Group>) -> Vec<Group> {
    groups.sort_by(|a, b| (a.id.hierarchy, &a.path).cmp(&(b.id.hierarchy, &b.path)));
    groups.dedup_by(|later, kept| {
        later.id.hierarchy == kept.id.hierarchy && later.path.starts_with(&kept.path)
    });
    groups
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    names.sort();
    names.dedup();
    names
}

/// A container's description in a message.
fn describe(container: &Container) -> String {
    let Container { id, name, container, pod, namespace, .. } = container;
    let short = id.get(..*ID_DIGITS.end()).unwrap_or(id);
    match (name.is_empty(), pod.is_empty()) {
        (_, false) => format!("{namespace}/{pod}/{container} ({short})"),
        (false, _) => format!("{name} ({short})"),
        _ => short.to_owned(),
    }
}

/// A cgroup's name without what systemd puts around it: `runc-NAME.scope`, `system-NAME.slice`.
fn without_systemd_affixes(name: &str) -> &str {
    let inner = name.strip_suffix(".scope").and_then(|name| name.split_once('-'));
    inner.map_or(name, |(_, inner)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::container::node_with;

    const UIDS: [&str; 2] = ["0a1b2c3d-0000-1111-2222-333344445555", "0a1b2c3d-0000-1111-2222-333344446666"];

    fn id(digit: &str) -> String {
        format!("ab{}", digit.repeat(62))
    }

    /// A node with two pods in two namespaces, one of them with two containers; also containers of Docker and runc.
    fn node(root: &Path) -> (Node, Vec<PathBuf>) {
        let files = [
            format!("var/log/pods/prod_shop_{}/app/0.log", UIDS[0]),
            format!("var/log/pods/test_shop_{}/app/0.log", UIDS[1]),
            format!("var/log/containers/shop_prod_app-{}.log", id("1")),
            format!("var/log/containers/shop_prod_side-{}.log", id("2")),
            format!("var/log/containers/shop_test_app-{}.log", id("3")),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|file| (file.as_str(), "")).collect();
        let docker = format!("var/lib/docker/containers/{}/config.v2.json", id("4"));
        let node = node_with(root, &[&files[..], &[(docker.as_str(), r#"{"Name":"/web"}"#)]].concat());
        // Directories of root that always exist stand for those of cgroups.
        let dirs = [
            format!("/sys/kernel/pod{}", UIDS[0]),
            format!("/sys/kernel/{}", id("1")),
            format!("/sys/{}", id("2")),
            format!("/sys/kubepods-pod{}.slice", UIDS[1].replace('-', "_")),
            format!("/sys/cri-containerd-{}.scope", id("3")),
            format!("/sys/docker-{}.scope", id("4")),
            "/sys/box".to_owned(),
            "/sys/runc-box2.scope".to_owned(),
        ];
        (node, dirs.map(PathBuf::from).to_vec())
    }

    fn ask(names: [&[&str]; 3]) -> Result<Vec<usize>, String> {
        let tmp = tempfile::tempdir().unwrap();
        let (node, dirs) = node(tmp.path());
        let [containers, pods, namespaces] = names.map(|names| names.iter().map(|n| (*n).into()).collect());
        let selection = Selection { paths: Vec::new(), containers, pods, namespaces, node };
        let names = selection.node.names();
        let found = match selection.containers.as_slice() {
            [] => selection.pods(&names, &dirs, OnMissing::Needed),
            asked => selection.containers(asked, &names, &dirs, OnMissing::Needed),
        };
        let place = |dir: PathBuf| dirs.iter().position(|d| *d == dir).unwrap();
        found.map(|found| found.into_iter().map(place).collect()).map_err(|e| e.to_string())
    }

    #[test]
    fn pods_by_name_uid_and_namespace() {
        assert_eq!(ask([&[], &["shop"], &[]]), Ok(vec![0, 3]));
        assert_eq!(ask([&[], &["shop"], &["test"]]), Ok(vec![3]));
        assert_eq!(ask([&[], &[UIDS[0]], &[]]), Ok(vec![0]));
        assert_eq!(ask([&[], &[], &["prod", "test"]]), Ok(vec![0, 3]));
        let said = ask([&[], &["x"], &[]]).unwrap_err();
        assert_eq!(said, "no pod is called x; there are shop");
        assert_eq!(ask([&[], &[], &["x"]]).unwrap_err(), "no namespace is called x; there are prod, test");
    }

    #[test]
    fn containers_by_id_beginning_and_name() {
        assert_eq!(ask([&[&id("2")], &[], &[]]), Ok(vec![2]));
        assert_eq!(ask([&["ab33"], &[], &[]]), Ok(vec![4]));
        assert_eq!(ask([&["app"], &[], &["test"]]), Ok(vec![4]));
        assert_eq!(ask([&["web"], &[], &[]]), Ok(vec![5]));
        assert_eq!(ask([&["box", "box2"], &[], &[]]), Ok(vec![6, 7]));
        let said = ask([&["nope"], &[], &[]]).unwrap_err();
        assert!(said.contains("nope; there are") && said.contains("prod/shop/app (ab1111111111)"), "{said}");
        assert_eq!(ask([&["ab"], &[], &[]]).unwrap_err()[..30], said.replace("nope", "ab")[..30]);
    }

    #[test]
    fn the_beginning_of_several_ids_names_them() {
        let tmp = tempfile::tempdir().unwrap();
        let dirs = [format!("/sys/{}", "abc".repeat(21) + "0"), format!("/sys/{}", "abc".repeat(21) + "1")];
        let selection = Selection {
            paths: Vec::new(),
            containers: vec!["abcabc".into()],
            pods: Vec::new(),
            namespaces: Vec::new(),
            node: Node::at(tmp.path()),
        };
        let dirs = dirs.map(PathBuf::from);
        let names = selection.node.names();
        let of = |presence| selection.containers(&selection.containers, &names, &dirs, presence);
        assert_eq!(of(OnMissing::Free), Ok(Vec::new()));
        let said = of(OnMissing::Needed).unwrap_err();
        assert!(said.to_string().starts_with("abcabc matches the ids of several containers"), "{said}");
    }
}
