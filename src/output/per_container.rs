//! One file for each container, beside the file of the whole profile.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::registry::split;
use super::{OutputTarget, PictureOptions, write};
use crate::profile::ProfileView;
use crate::profile::labels::ContainerLabels;

/// Maximum characters of a container's name in a file name. Together with the id, the profile's own name and the
/// extension it must fit into 255 bytes.
const MAX_NAME: usize = 100;
/// The name for samples outside of containers.
const NONE: &str = "no-container";

/// Writes the profile of each container, and of samples outside of containers, into the directory of `target`, which is
/// a file. Returns the written files: an empty list if there are no containers.
///
/// # Errors
/// The first error of [`write()`]. The files of other containers are still written.
pub fn write_each(
    views: &[ProfileView<'_>],
    target: &OutputTarget,
    picture_options: &PictureOptions,
) -> anyhow::Result<Vec<OutputTarget>> {
    let mut taken = HashSet::new();
    let mut written = Vec::new();
    let mut failed = None;
    let rows = views.first().map(ProfileView::containers).unwrap_or_default();
    for row in rows {
        let container = row.container.as_deref();
        let name = beside(&target.name, container, &mut taken);
        let file = OutputTarget { name, format: target.format };
        // An obstacle at one container's file name, such as a directory, must not keep other containers from their
        // files.
        let own: Vec<ProfileView<'_>> = views.iter().map(|view| view.of_container(container)).collect();
        match write(&own, &file, picture_options) {
            Ok(files) => written.extend(files),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(written), Err)
}

/// `DIR/FILE-CONTAINER.EXT`, with a number if that name is taken.
fn beside(path: &Path, container: Option<&ContainerLabels>, taken: &mut HashSet<PathBuf>) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, extension) = split(&name);
    let own = container.map_or_else(|| NONE.to_owned(), file_name);
    let numbers = (2..).map(|n| format!("-{n}"));
    let names = std::iter::once(String::new()).chain(numbers);
    let mut paths = names.map(|number| path.with_file_name(format!("{stem}-{own}{number}{extension}")));
    // The iterator is endless, so `find` always succeeds.
    paths.find(|path| taken.insert(path.clone())).unwrap_or_default()
}

/// A container's name and id in letters, digits, dots and hyphens: tenants choose the name and must not choose a path.
fn file_name(container: &ContainerLabels) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
    let mut name: String = container.title().chars().take(MAX_NAME).map(safe).collect();
    let id: String = container.short_id().chars().take(12).map(safe).collect();
    if !id.is_empty() && id != name {
        name = format!("{name}-{id}");
    }
    name
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::profile::{Frame, Kind, Labels, Profile};

    fn container(name: &str, id: &str) -> ContainerLabels {
        ContainerLabels { name: name.into(), id: id.into(), ..ContainerLabels::default() }
    }

    #[test]
    fn no_name_leaves_the_directory_or_takes_anothers_file() {
        let mut taken = HashSet::new();
        let mut of = |c: Option<&ContainerLabels>| beside(Path::new("/out/x.pb.gz"), c, &mut taken);
        assert_eq!(of(None), Path::new("/out/x-no-container.pb.gz"));
        let foul = container("../../etc/pass wd\n\u{202e}", "");
        assert_eq!(of(Some(&foul)), Path::new("/out/x-.._.._etc_pass_wd__.pb.gz"));
        assert_eq!(of(Some(&foul)), Path::new("/out/x-.._.._etc_pass_wd__-2.pb.gz"));
        let id = "12ab".repeat(16);
        assert_eq!(of(Some(&container("", &id))), Path::new("/out/x-12ab12ab12ab.pb.gz"));
        assert_eq!(of(Some(&container("web", &id))), Path::new("/out/x-web-12ab12ab12ab.pb.gz"));
        assert!(of(Some(&container(&"ä".repeat(999), &id))).file_name().unwrap().len() < 200);
        let plain = beside(Path::new("x"), Some(&container("a", "")), &mut HashSet::new());
        assert_eq!(plain, Path::new("x-a"));
    }

    #[test]
    fn each_container_has_a_file_with_its_own_samples() {
        let mut p = Profile::new();
        for (name, function) in [(None, "host"), (Some("a"), "fa"), (Some("b"), "fb")] {
            let container = name.map(|name| Arc::new(container(name, "")));
            let labels = Labels { container, ..Labels::default() };
            p.add(&labels, &[Arc::new(Frame::named(Kind::Native, function))], 3, 0);
        }
        let dir = tempfile::tempdir().unwrap();
        let target =
            OutputTarget { name: dir.path().join("p.folded"), format: &crate::output::folded::FORMAT };
        assert_eq!(write_each(&p.views(), &target, &PictureOptions::default()).unwrap().len(), 3);
        for (file, text) in [("no-container", "host 3\n"), ("a", "fa 3\n"), ("b", "fb 3\n")] {
            let path = dir.path().join(format!("p-{file}.folded"));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            std::fs::remove_file(path).unwrap();
        }
        std::fs::create_dir(dir.path().join("p-a.folded")).unwrap();
        let said = format!("{:#}", write_each(&p.views(), &target, &PictureOptions::default()).unwrap_err());
        assert!(said.contains("p-a.folded: it is a directory"), "{said}");
        assert!(["no-container", "b"].iter().all(|c| dir.path().join(format!("p-{c}.folded")).is_file()));
    }
}
