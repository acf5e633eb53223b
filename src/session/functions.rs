//! Finds the functions and static markers that are sampled, in the files of the targets: a container has files of its
//! own.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::capture::FunctionPlace;
use crate::failure::Failure;
use crate::plan::{Settings, Target};
use crate::process::file::Unopened;
use crate::process::inode_traits::InodeTraits;
use crate::process::opener;
use crate::process::root::{OpenRefusal, ProcessRoot};
use crate::sample::dynamic_event::EventOrigin;
use crate::sample::probe::Probe;
use crate::sample::{Event, EventPeriod};
use crate::symbolize::{NoProbeSite, ProbeSite, ProbedFile};
use crate::targets::groups::Groups;

/// How long opening one file may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Root directories in which a file is looked for: the containers of a node.
const MAX_ROOTS: usize = 256;

/// Where the functions and markers of the sampled events lie. Later containers have files that are not known here.
///
/// # Errors
/// A [`Failure`] of the target if no target has the file, or the file has no such function.
pub(super) fn find(
    settings: &Settings,
    groups: &Groups,
) -> Result<BTreeMap<Event, Vec<FunctionPlace>>, Failure> {
    let mut roots = None;
    let mut found = BTreeMap::new();
    for EventPeriod { event, .. } in &settings.events {
        let Some(EventOrigin::Probe(probe @ (Probe::Function { file, .. } | Probe::Marker { file, .. }))) =
            event.origin()
        else {
            continue;
        };
        let roots = roots.get_or_insert_with(|| roots_of(settings, groups));
        let mut places = Vec::new();
        for file in files(&settings.binary, roots, file).map_err(|why| failure(probe, &why))? {
            let sites = sites(probe, &file).map_err(|why| failure(probe, &why.to_string()))?;
            let file = Arc::new(file);
            places.extend(sites.into_iter().filter_map(|site| place(&file, site)));
        }
        found.insert(*event, places);
    }
    Ok(found)
}

fn failure(probe: &Probe, why: &str) -> Failure {
    Failure::target(format!("{probe}: {why}"))
}

/// One process of each root directory of the targets.
fn roots_of(settings: &Settings, groups: &Groups) -> Vec<u32> {
    let tgids = match &settings.target {
        Target::Pids(ids) | Target::Tids(ids) => ids.clone(),
        Target::Groups(_) => groups.processes(),
        Target::All | Target::Launch(_) => vec![std::process::id()],
    };
    let mut known = BTreeSet::new();
    let is_new =
        |tgid: &u32| ProcessRoot::of(*tgid).is_ok_and(|root| known.insert((root.mount_ns, root.identity)));
    tgids.into_iter().filter(is_new).take(MAX_ROOTS).collect()
}

/// The distinct files of this path below the roots of these processes.
fn files(binary: &Path, tgids: &[u32], path: &str) -> Result<Vec<OwnedFd>, String> {
    let mut files = Vec::new();
    let mut known = BTreeSet::new();
    let mut refused = "no target has a running process".to_owned();
    for tgid in tgids {
        match opener::open_file(binary, *tgid, Path::new(path), OPEN_TIMEOUT) {
            Ok(file) if is_another(&file, &mut known) => files.push(file),
            Ok(_) => {}
            Err(Unopened::Refused(OpenRefusal::Missing)) => {
                let owner = if *tgid == std::process::id() {
                    "this host has".to_owned()
                } else {
                    format!("process {tgid} and its container have")
                };
                refused = format!("{owner} no file {path}");
            }
            Err(why) => refused = format!("{path}, as process {tgid} sees it: {why}"),
        }
    }
    if files.is_empty() { Err(refused) } else { Ok(files) }
}

/// Whether the file was not seen before.
fn is_another(file: &OwnedFd, known: &mut BTreeSet<InodeTraits>) -> bool {
    InodeTraits::of(file).is_ok_and(|traits| known.insert(traits))
}

fn sites(probe: &Probe, file: &OwnedFd) -> Result<Vec<ProbeSite>, NoProbeSite> {
    let file = ProbedFile::open(file.try_clone().map_err(NoProbeSite::from)?)?;
    match probe {
        Probe::Function { symbol, .. } => Ok(vec![file.function(symbol)?]),
        Probe::Marker { provider, name, .. } => file.marker(provider, name),
        Probe::Tracepoint { .. } | Probe::SystemCall { .. } | Probe::KernelFunction(_) => Ok(Vec::new()),
    }
}

fn place(file: &Arc<OwnedFd>, site: ProbeSite) -> Option<FunctionPlace> {
    Some(FunctionPlace {
        file: Arc::clone(file),
        offset: site.offset.try_into().ok()?,
        semaphore: site.semaphore.try_into().ok()?,
    })
}
