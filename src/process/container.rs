//! Containers and pods, as the node's own files name them: no runtime's socket, no API server.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::cgroup::{container_named, is_id, pod_in};

/// Bytes of a runtime's file that are read.
const MAX_FILE: u64 = 4 << 20;
/// Entries of a directory that are read.
const MAX_ENTRIES: usize = 65_536;

/// A container; what is not known of it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Its id: 64 hexadecimal digits.
    pub id: String,
    /// Its name where people give it one: Docker's, Podman's, runc's.
    pub name: String,
    /// Its name in its pod.
    pub container: String,
    /// The pod.
    pub pod: String,
    /// The pod's uid.
    pub pod_uid: String,
    /// The pod's namespace.
    pub namespace: String,
}

/// Where the node's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node(PathBuf);

impl Node {
    /// The node whose file system is mounted there.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Node {
        Node(root.into())
    }

    /// What its files say now.
    #[must_use]
    pub fn names(&self) -> Names {
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
        Names { node: self.clone(), pods, logs, podman: podman.collect(), runc: runc.collect() }
    }

    /// The name that Docker gave a container.
    fn docker(&self, id: &str) -> Option<String> {
        let docker: Docker = json(&self.0.join("var/lib/docker/containers").join(id).join("config.v2.json"))?;
        Some(docker.name.trim_start_matches('/').to_owned())
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Pod {
    /// Of a directory's name in `/var/log/pods`: `NAMESPACE_NAME_UID`. None of them can have an underscore.
    fn parse(name: &str) -> Option<Pod> {
        let mut parts = name.split('_').map(str::to_owned);
        let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
        (parts.next().is_none() && !uid.is_empty()).then_some(Pod { namespace, name, uid })
    }
}

/// What `/var/log/containers` tells of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Log {
    pod: String,
    namespace: String,
    container: String,
}

/// Of a file's name: `POD_NAMESPACE_CONTAINER-ID.log`.
fn log(name: &str) -> Option<(String, Log)> {
    let (rest, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    let mut parts = rest.split('_').map(str::to_owned);
    let log = Log { pod: parts.next()?, namespace: parts.next()?, container: parts.next()? };
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
    /// The directory of its group in each hierarchy.
    #[serde(default)]
    cgroup_paths: HashMap<String, PathBuf>,
}

/// What a node's files said at one time.
#[derive(Clone, Debug)]
pub struct Names {
    node: Node,
    pub(super) pods: Vec<Pod>,
    logs: HashMap<String, Log>,
    podman: HashMap<String, String>,
    runc: HashMap<PathBuf, String>,
}

impl Names {
    /// The container or at least the pod that a group belongs to. Of containers within each other it is the outermost,
    /// and only if its group is in a directory of root: whoever was given a group makes others below it, of any name.
    #[must_use]
    pub fn container(&self, dir: &Path) -> Option<Container> {
        let groups: Vec<&Path> = dir.ancestors().collect();
        for group in groups.into_iter().rev() {
            let id = group.file_name().and_then(|name| container_named(name.as_bytes()));
            // Podman and CRI-O have runc call their containers by their ids.
            let name = self.runc.get(group).filter(|name| !is_id(name.as_bytes()));
            if (id.is_some() || name.is_some()) && is_roots(group) {
                let id = id.unwrap_or_default();
                return Some(self.named(id, name.cloned(), pod_in(group)));
            }
        }
        let uid = pod_in(dir)?;
        self.pods.iter().any(|pod| pod.uid == uid).then(|| self.named(String::new(), None, Some(uid)))
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

/// Whether a group lies in a directory of root: only root can have made it, and given it its name.
pub(super) fn is_roots(group: &Path) -> bool {
    let above = group.parent().and_then(|above| fs::metadata(above).ok());
    above.is_some_and(|above| above.uid() == 0)
}

/// Names in a directory that are text; none if it is not there.
fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_ENTRIES);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn json<T: for<'a> Deserialize<'a>>(file: &Path) -> Option<T> {
    let mut text = Vec::new();
    fs::File::open(file).ok()?.take(MAX_FILE).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// For tests: files of a node below a directory, all of them with this text.
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
        // Its parent, /proc/fs, is root's.
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
