//! The running sinks: a task for each sink of the settings. A reload of the settings replaces sinks while they run.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::push::{PushStats, Sink, SinkConfig};
use crate::profile::Profile;

struct RunningSink {
    sink: Arc<Sink>,
    task: AbortHandle,
}

/// The sinks to which windows are pushed.
#[derive(Default)]
pub(super) struct Sinks {
    spools: PathBuf,
    /// Path of this binary, for child processes.
    binary: PathBuf,
    running: RwLock<Vec<RunningSink>>,
}

impl Sinks {
    /// No sinks yet. `spools` is the directory of their spools, `binary` the path of this binary.
    pub(super) fn new(spools: PathBuf, binary: PathBuf) -> Sinks {
        Sinks { spools, binary, running: RwLock::default() }
    }

    /// Runs exactly these sinks. A sink whose settings are the same goes on. A sink with the name of another one takes
    /// over its spool and its counters. The spool of a removed sink stays on the disk.
    ///
    /// Must be called on the thread of `runtime`, which has no other thread: no sink sends meanwhile. Windows are not
    /// offered meanwhile either, because the lock is held. So a spool belongs to one sink at a time.
    ///
    /// # Errors
    /// A spool cannot be opened: one sentence. The sinks stay as they were.
    pub(super) fn apply(&self, configs: &[SinkConfig], runtime: &Handle) -> anyhow::Result<()> {
        let mut running = self.running.write().unwrap_or_else(PoisonError::into_inner);
        let mut opened = Vec::new();
        for config in configs.iter().filter(|config| !running.iter().any(|one| one.sink.has(config))) {
            let sink = Sink::open(config.clone(), &self.spools, &self.binary)?;
            if let Some(before) = running.iter().find(|one| one.sink.name() == config.name) {
                sink.continue_counting(before.sink.stats());
            }
            opened.push(Arc::new(sink));
        }
        running.retain(|one| {
            let stays = configs.iter().any(|config| one.sink.has(config));
            if !stays {
                one.task.abort();
            }
            if !configs.iter().any(|config| config.name == one.sink.name()) {
                let bytes = one.sink.stats().spooled;
                log::info!("sink {}: removed; {bytes} bytes stay in its spool", one.sink.name());
            }
            stays
        });
        running.extend(opened.into_iter().map(|sink| {
            let of_task = Arc::clone(&sink);
            RunningSink { sink, task: runtime.spawn(async move { of_task.run().await }).abort_handle() }
        }));
        Ok(())
    }

    /// Puts a window into the spool of each sink.
    pub(super) fn offer(&self, profile: &Profile) {
        for RunningSink { sink, .. } in &*self.running() {
            if let Err(error) = sink.offer(profile) {
                log::warn!("{}: a profile is lost: {error:#}", sink.name());
            }
        }
    }

    /// The counters of each sink, by its name.
    pub(super) fn stats(&self) -> Vec<(String, PushStats)> {
        self.running().iter().map(|one| (one.sink.name().to_owned(), one.sink.stats())).collect()
    }

    fn running(&self) -> RwLockReadGuard<'_, Vec<RunningSink>> {
        self.running.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::daemon::{Auth, Protocol, Trust};
    use crate::profile::{Frame, Kind, Labels};

    fn config(name: &str) -> SinkConfig {
        SinkConfig {
            name: name.to_owned(),
            protocol: Protocol::OtlpHttp,
            url: "http://127.0.0.1:9".to_owned(),
            auth: Auth::None,
            trust: Trust::default(),
            tenant: None,
            labels: BTreeMap::new(),
            spool_bytes: 1 << 20,
        }
    }

    fn spooled(sinks: &Sinks) -> Vec<(String, u64)> {
        sinks.stats().into_iter().map(|(name, stats)| (name, stats.spooled)).collect()
    }

    #[test]
    fn a_sink_that_changes_keeps_its_requests_and_a_removed_one_leaves_them() {
        let root = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sinks = Sinks::new(root.path().to_owned(), PathBuf::from("/nowhere"));
        let [same, changes, removed] = ["same", "changes", "removed"].map(config);
        sinks.apply(&[same.clone(), changes.clone(), removed], runtime.handle()).unwrap();
        let mut profile = Profile::new();
        let stack = [Arc::new(Frame::named(Kind::Native, "main".to_owned()))];
        profile.add(&Labels::default(), &stack, 1, 1);
        sinks.offer(&profile);
        let waiting = spooled(&sinks);
        let (of_same, of_changes) = (waiting[0].1, waiting[1].1);
        assert!(of_same > 0 && of_changes > 0);
        let before = Arc::clone(&sinks.running()[0].sink);
        let changed = SinkConfig { tenant: Some("t".to_owned()), ..changes };
        sinks.apply(&[changed.clone(), same.clone(), config("new")], runtime.handle()).unwrap();
        assert!(Arc::ptr_eq(&before, &sinks.running()[0].sink), "it goes on");
        let now =
            [("same", of_same), ("changes", of_changes), ("new", 0)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(spooled(&sinks), now);
        // Another request gets a file of its own in the spool that the changed sink took over.
        sinks.offer(&profile);
        assert!(spooled(&sinks)[1].1 > of_changes);
        assert_eq!(std::fs::read_dir(root.path().join("changes")).unwrap().count(), 2);
        assert_eq!(std::fs::read_dir(root.path().join("removed")).unwrap().count(), 1);
        // A spool that cannot be opened changes nothing.
        std::fs::write(root.path().join("file"), "").unwrap();
        assert!(sinks.apply(&[config("file"), same], runtime.handle()).is_err());
        assert_eq!(spooled(&sinks).len(), 3);
        assert!(!sinks.running()[1].task.is_finished() && sinks.running()[1].sink.has(&changed));
    }
}
