//! Names of containers and pods, read from the node's own files: no runtime's socket, no API server.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Deserialize;

use super::cgroup::{container_named, is_id, pod_in, pod_named};

/// Bytes that are read of a runtime's file.
const MAX_FILE: u64 = 4 << 20;
/// Entries that are read of a directory.
const MAX_ENTRIES: usize = 65_536;

/// A container. Unknown fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Id: 64 hexadecimal digits.
    pub id: String,
    /// Name that people gave the container: Docker's, Podman's, runc's.
    pub name: String,
    /// Name in the pod.
    pub container: String,
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub pod_uid: String,
    /// Namespace of the pod.
    pub namespace: String,
}

/// The root of the node's file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node(PathBuf);

impl Node {
    /// The node whose file system is mounted at `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Node {
        Node(root.into())
    }

    /// The names that the node's files have now.
    #[must_use]
    pub fn names(&self) -> ContainerNames {
        let pods = entries(&self.0.join("var/log/pods")).iter().filter_map(|name| Pod::parse(name)).collect();
        let logs = entries(&self.0.join("var/log/containers")).iter().filter_map(|name| log(name)).collect();
        let storage = self.0.join("var/lib/containers/storage/overlay-containers/containers.json");
        let podman: Vec<Podman> = json(&storage).unwrap_or_default();
        let podman = podman.into_iter().filter_map(|c| Some((c.id, c.names.into_iter().next()?)));
        let runc = self.0.join("run/runc");
        let runc = entries(&runc).into_iter().flat_map(|name| {
            let state: Runc = json(&runc.join(&name).join("state.json")).unwrap_or_default();
            state.cgroup_paths.into_values().map(move |dir| (dir, name.clone()))
        });
        let (podman, runc, groups) = (podman.collect(), runc.collect(), OnceLock::new());
        ContainerNames { node: self.clone(), pods, logs, podman, runc, groups }
    }

    /// The name that Docker gave a container.
    fn docker(&self, id: &str) -> Option<String> {
        let docker: Docker = json(&self.0.join("var/lib/docker/containers").join(id).join("config.v2.json"))?;
        Some(docker.name.trim_start_matches('/').to_owned())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Pod {
    /// Parses a directory's name in `/var/log/pods`: `NAMESPACE_NAME_UID`. None of the three can have an underscore.
    fn parse(name: &str) -> Option<Pod> {
        let mut parts = name.split('_').map(str::to_owned);
        let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
        (parts.next().is_none() && !uid.is_empty()).then_some(Pod { namespace, name, uid })
    }
}

/// What a file's name in `/var/log/containers` says of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ContainerLogName {
    pod: String,
    namespace: String,
    container: String,
}

/// Parses a file's name: `POD_NAMESPACE_CONTAINER-ID.log`.
fn log(name: &str) -> Option<(String, ContainerLogName)> {
    let (rest, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    let mut parts = rest.split('_').map(str::to_owned);
    let log = ContainerLogName { pod: parts.next()?, namespace: parts.next()?, container: parts.next()? };
    (is_id(id.as_bytes()) && parts.next().is_none()).then(|| (id.to_owned(), log))
}

#[derive(Deserialize)]
struct Docker {
    #[serde(rename = "Name")]
    name: String,
}

#[derive(Default, Deserialize)]
struct Podman {
    id: String,
    #[serde(default)]
    names: Vec<String>,
}

#[derive(Default, Deserialize)]
struct Runc {
    /// Directory of the container's cgroup in each hierarchy.
    #[serde(default)]
    cgroup_paths: HashMap<String, PathBuf>,
}

/// The names that a node's files had at one time.
#[derive(Clone, Debug)]
pub struct ContainerNames {
    node: Node,
    pub(super) pods: Vec<Pod>,
    logs: HashMap<String, ContainerLogName>,
    podman: HashMap<String, String>,
    runc: HashMap<PathBuf, String>,
    /// The cgroups of each container id and pod uid. They are listed when the first container within another one is
    /// looked up.
    groups: OnceLock<Option<HashMap<String, Vec<PathBuf>>>>,
}

impl ContainerNames {
    /// The container, or at least the pod, that a cgroup belongs to. Of nested containers the outermost counts, and
    /// only if its cgroup is in a directory of root: a tenant that was given a cgroup can make others below it, with
    /// any name.
    ///
    /// A node may itself be a container (kind, minikube, k3d). Then an inner container counts under two conditions. The
    /// node's files show that the kubelet has made it, and no cgroup outside of the outer one has its id or its pod's.
    #[must_use]
    pub fn container(&self, dir: &Path) -> Option<Container> {
        let groups: Vec<&Path> = dir.ancestors().collect();
        let mut groups = groups.into_iter().rev();
        let outer = groups.by_ref().find_map(|group| Some((group, self.claimed(group)?)));
        let Some((outer_group, outer)) = outer else {
            let uid = pod_in(dir)?;
            let known = self.pods.iter().any(|pod| pod.uid == uid);
            return known.then(|| self.named(String::new(), None, Some(uid)));
        };
        let mut inner = groups.filter_map(|group| self.claimed(group));
        let inner = inner.find(|inner| self.confirms(inner) && self.groups_within(outer_group, inner));
        Some(inner.unwrap_or(outer))
    }

    /// Whether a cgroup seems to be of a container within the one that counts: the kubelet may write its files later.
    #[must_use]
    pub fn is_maybe_nested(&self, dir: &Path) -> bool {
        let claimed = dir.ancestors().find_map(|group| self.claimed(group));
        claimed.is_some_and(|claimed| self.container(dir).is_some_and(|counts| counts.id != claimed.id))
    }

    /// The container that a cgroup belongs to according to its name, or to runc.
    fn claimed(&self, group: &Path) -> Option<Container> {
        let id = group.file_name().and_then(|name| container_named(name.as_bytes()));
        // In runc, containers of Podman and CRI-O have their ids as names.
        let name = self.runc.get(group).filter(|name| !is_id(name.as_bytes()));
        let claims = (id.is_some() || name.is_some()) && is_roots(group);
        claims.then(|| self.named(id.unwrap_or_default(), name.cloned(), pod_in(group)))
    }

    /// Whether the kubelet's files have such a pod, and have the container in that pod if they know the container.
    /// (They do not know the container that holds a pod's namespaces.)
    fn confirms(&self, container: &Container) -> bool {
        let pod = self.pods.iter().find(|pod| pod.uid == container.pod_uid);
        let log = self.logs.get(&container.id);
        let same = |pod: &Pod, log: &ContainerLogName| pod.name == log.pod && pod.namespace == log.namespace;
        pod.is_some_and(|pod| log.is_none_or(|log| same(pod, log)))
    }

    /// Whether all cgroups of this container and of its pod lie within `outer`. Within it a tenant may name cgroups
    /// like those of others.
    fn groups_within(&self, outer: &Path, container: &Container) -> bool {
        let Some(groups) = self.groups.get_or_init(|| named_groups(top(outer))) else { return false };
        let of = |id: &String| groups.get(id).into_iter().flatten();
        of(&container.id).chain(of(&container.pod_uid)).all(|group| group.starts_with(outer))
    }

    fn named(&self, id: String, name: Option<String>, pod_uid: Option<String>) -> Container {
        let name = name.or_else(|| self.podman.get(&id).cloned());
        let name = name.or_else(|| is_id(id.as_bytes()).then(|| self.node.docker(&id))?);
        let log = self.logs.get(&id);
        let pod = self.pods.iter().find(|pod| match (&pod_uid, log) {
            (Some(uid), _) => pod.uid == *uid,
            (None, Some(log)) => pod.name == log.pod && pod.namespace == log.namespace,
            (None, None) => false,
        });
        let text =
            |of_pod: Option<&String>, of_log: Option<&String>| of_pod.or(of_log).cloned().unwrap_or_default();
        Container {
            id,
            name: name.unwrap_or_default(),
            container: text(None, log.map(|log| &log.container)),
            pod: text(pod.map(|pod| &pod.name), log.map(|log| &log.pod)),
            namespace: text(pod.map(|pod| &pod.namespace), log.map(|log| &log.namespace)),
            pod_uid: pod_uid.or_else(|| Some(pod?.uid.clone())).unwrap_or_default(),
        }
    }
}

/// Whether a cgroup lies in a directory of root: only root can have made and named it.
pub(super) fn is_roots(group: &Path) -> bool {
    let above = group.parent().and_then(|above| fs::metadata(above).ok());
    above.is_some_and(|above| above.uid() == 0)
}

/// The root of the hierarchy of a cgroup.
fn top(group: &Path) -> &Path {
    let groups = group.ancestors().take_while(|dir| dir.join("cgroup.procs").exists());
    groups.last().unwrap_or(group)
}

/// The cgroups of a hierarchy that are named after containers and pods, by id and uid. `None` if there are too many
/// cgroups.
fn named_groups(top: &Path) -> Option<HashMap<String, Vec<PathBuf>>> {
    let mut groups: HashMap<String, Vec<PathBuf>> = HashMap::new();
    let (mut waiting, mut seen) = (vec![top.to_owned()], 0);
    while let Some(dir) = waiting.pop() {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let (name, path) = (entry.file_name(), entry.path());
            for id in [container_named(name.as_bytes()), pod_named(name.as_bytes())].into_iter().flatten() {
                groups.entry(id).or_default().push(path.clone());
            }
            waiting.push(path);
            seen += 1;
            if seen > MAX_ENTRIES {
                return None;
            }
        }
    }
    Some(groups)
}

/// Names in a directory that are valid text; empty if the directory does not exist.
fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_ENTRIES);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn json<T: for<'a> Deserialize<'a>>(file: &Path) -> Option<T> {
    let mut text = Vec::new();
    fs::File::open(file).ok()?.take(MAX_FILE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// For tests: a node with these files below a directory, each with its text.
#[cfg(test)]
pub(super) fn node_with(root: &Path, files: &[(&str, &str)]) -> Node {
    for (file, text) in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Node::at(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a9c0d1e4b5a69788796a5b4c3d2e1f00112233445566778899aabbccddeef";
    const UID: &str = "0a1b2c3d-0000-1111-2222-333344445555";

    #[test]
    fn a_pods_container_has_all_its_names() {
        let tmp = tempfile::tempdir().unwrap();
        let (log, pod) = (
            format!("var/log/containers/shop-1_prod_app-{ID}.log"),
            format!("var/log/pods/prod_shop-1_{UID}/app/0.log"),
        );
        let names = node_with(tmp.path(), &[(&log, ""), (&pod, "")]).names();
        let whole = Container {
            id: ID.into(),
            name: String::new(),
            container: "app".into(),
            pod: "shop-1".into(),
            pod_uid: UID.into(),
            namespace: "prod".into(),
        };
        let named = |uid: Option<&str>| names.named(ID.into(), None, uid.map(str::to_owned));
        assert_eq!(named(Some(UID)), whole);
        assert_eq!(named(None), whole, "the uid comes from the pod of that name");
        let pause = names.named("1".repeat(64), None, Some(UID.into()));
        assert_eq!((pause.pod.as_str(), pause.container.as_str()), ("shop-1", ""));
    }

    #[test]
    fn names_of_docker_podman_and_runc() {
        let tmp = tempfile::tempdir().unwrap();
        let other = ID.replace('3', "4");
        let docker = format!("var/lib/docker/containers/{ID}/config.v2.json");
        let podman = format!(r#"[{{"id":"{other}","names":["db","x"],"layer":"y"}},{{"id":"z"}}]"#);
        let by_id = format!("run/runc/{other}/state.json");
        let in_libpod = format!(r#"{{"cgroup_paths":{{"cpu":"/proc/fs/libpod-{other}"}}}}"#);
        let files = [
            (docker.as_str(), r#"{"Name":"/web","State":{}}"#),
            ("var/lib/containers/storage/overlay-containers/containers.json", podman.as_str()),
            ("run/runc/box/state.json", r#"{"id":"box","cgroup_paths":{"cpu":"/proc/fs/box"}}"#),
            ("run/runc/bad/state.json", "{"),
            (by_id.as_str(), in_libpod.as_str()),
        ];
        let names = node_with(tmp.path(), &files).names();
        assert_eq!(names.named(ID.into(), None, None).name, "web");
        let in_libpod = PathBuf::from(format!("/proc/fs/libpod-{other}"));
        assert_eq!(names.named(other, None, None).name, "db");
        assert_eq!(names.container(&in_libpod).unwrap().name, "db", "runc knows its id only");
        // Its parent, /proc/fs, belongs to root.
        assert_eq!(names.container(Path::new("/proc/fs/box/inner")).unwrap().name, "box");
        assert_eq!(names.container(Path::new("/proc/fs")), None);
    }

    #[test]
    fn the_outermost_container_counts_and_only_in_a_directory_of_root() {
        let names = Node::at("/nowhere").names();
        let inner = ID.replace('3', "4");
        let nested = format!("/proc/fs/{ID}/docker/{inner}");
        assert_eq!(names.container(Path::new(&nested)).unwrap().id, ID);
        let gone = format!("/proc/no such directory/{ID}");
        assert_eq!(names.container(Path::new(&gone)), None);
    }

    /// Needs root: cgroups in directories of other users do not count.
    #[test]
    fn an_inner_container_counts_where_the_nodes_files_know_it() {
        if !rustix::process::getuid().is_root() {
            return;
        }
        let tmp = tempfile::tempdir().unwrap();
        let digits = |digit: &str| ID.replace('3', digit);
        let (node, web, pause, other) = (digits("4"), digits("5"), digits("6"), digits("7"));
        let foreign_uid = UID.replace('5', "6");
        let files = [
            format!("node/var/log/pods/prod_web-0_{UID}/app/0.log"),
            format!("node/var/log/containers/web-0_prod_app-{web}.log"),
            format!("node/var/log/pods/prod_db-0_{foreign_uid}/app/0.log"),
            format!("node/var/log/containers/db-0_prod_app-{other}.log"),
        ];
        node_with(tmp.path(), &files.each_ref().map(|file| (file.as_str(), "")));
        let root = tmp.path().join("cgroup");
        let group = |path: String| {
            let dir = root.join(path);
            fs::create_dir_all(&dir).unwrap();
            let groups = dir.ancestors().take_while(|dir| dir.starts_with(&root));
            groups.for_each(|dir| fs::write(dir.join("cgroup.procs"), "").unwrap());
            dir
        };
        let inner = |uid: &str, id: &str| group(format!("docker/{node}/kubelet/kubepods/pod{uid}/{id}"));
        let (app, holder, unknown) = (inner(UID, &web), inner(UID, &pause), inner(&digits("8")[..36], &web));
        let (elsewhere, mixed) = (inner(&foreign_uid, &other), inner(UID, &other));
        let names = || Node::at(tmp.path().join("node")).names();
        let of = |dir: &Path| names().container(dir).map(|c| (c.pod, c.container, c.id)).unwrap();
        let outer = || (String::new(), String::new(), node.clone());
        assert_eq!(of(&app), ("web-0".into(), "app".into(), web.clone()));
        assert_eq!(of(&app.join("own")), of(&app));
        assert_eq!(of(&holder), ("web-0".into(), String::new(), pause.clone()));
        assert_eq!(of(&elsewhere), ("db-0".into(), "app".into(), other.clone()));
        assert_eq!(of(&unknown), outer(), "the node's files know no such pod");
        assert_eq!([&app, &unknown].map(|dir| names().is_maybe_nested(dir)), [false, true]);
        assert_eq!(of(&mixed), outer(), "that container is in another pod");
        // Another node's container has cgroups of the same names.
        group(format!("kubepods/pod{foreign_uid}"));
        assert_eq!(of(&elsewhere), outer());
        assert_eq!(of(&app).0, "web-0");
        group(format!("kubepods/{web}"));
        assert_eq!(of(&app), outer());
    }

    #[test]
    fn what_has_no_such_form_is_no_name() {
        for bad in ["", "a_b", "a_b_", "a_b_c_d"] {
            assert_eq!(Pod::parse(bad), None, "{bad}");
        }
        for bad in ["x.log", "a_b_c-1.log", &format!("a_b-{ID}.log"), &format!("a_b_c-{ID}")] {
            assert_eq!(log(bad), None, "{bad}");
        }
    }
}
