//! The daemon's configuration: plain data that is already validated.

use std::path::PathBuf;
use std::time::Duration;

use super::budget;
use super::kubelet::KubeletConfig;
use super::push::SinkConfig;
use super::store;
use crate::sample::Event;
use crate::serve::Address;
use crate::session::{AgentRule, JavaNaming};

/// The configuration of a daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonConfig {
    /// Path of this binary, for child processes.
    pub binary: PathBuf,
    /// Ticks per second and CPU; the budget may lower the rate.
    pub hz: f64,
    /// The sampled events, at least one.
    pub events: Vec<Event>,
    /// Patterns of functions: a thread that waits below one is idle.
    pub idle_frames: Vec<String>,
    /// Record the stacks that end sampled waits.
    pub wakers: bool,
    /// Samples have the trace and the span that their threads worked for.
    pub trace_context: bool,
    /// Number of events that one sample stands for, for events that are counted: not for times and bytes.
    pub one_in: u64,
    /// Length of a window in whole seconds.
    pub window_s: u32,
    /// Limits on the daemon's own CPU time and memory.
    pub budget: budget::BudgetLimits,
    /// Sampling pauses while this file exists.
    pub kill_switch: Option<PathBuf>,
    /// The source of Java names.
    pub java: JavaNaming,
    /// Where the agent is allowed although `java` does not use it.
    pub agent_for: Vec<AgentRule>,
    /// The kubelet to ask which pods opt in to the agent.
    pub kubelet: Option<KubeletConfig>,
    /// Time limit for attaching to one JVM.
    pub attach_timeout: Duration,
    /// Directory of the stored windows and the spools.
    pub directory: PathBuf,
    /// Limits on the stored windows.
    pub store: store::StoreLimits,
    /// Address of metrics and health, without a token.
    pub metrics: Option<Address>,
    /// Address of the profiles.
    pub api: Option<Address>,
    /// The file with the token that requests for profiles need.
    pub token_file: Option<PathBuf>,
    /// Maximum number of profiles that are made at the same time.
    pub concurrent_profiles: usize,
    /// The servers to which windows are pushed.
    pub sinks: Vec<SinkConfig>,
}

impl DaemonConfig {
    /// Takes over what can change while the daemon runs. Returns the names of the other settings that differ, which keep
    /// their values until the daemon restarts.
    pub(super) fn reload(&mut self, new: DaemonConfig) -> Vec<&'static str> {
        let kubelet = |config: &DaemonConfig| {
            let kubelet = config.kubelet.clone()?;
            Some((kubelet.url, kubelet.auth, kubelet.trust, kubelet.annotations))
        };
        let fixed = [
            ("window", self.window_s != new.window_s),
            ("directory", self.directory != new.directory),
            ("metrics", self.metrics != new.metrics),
            ("api", self.api != new.api),
            ("token-file", self.token_file != new.token_file),
            ("concurrent-profiles", self.concurrent_profiles != new.concurrent_profiles),
            ("kubelet", kubelet(self) != kubelet(&new)),
        ];
        // The kubelet's client fills the list of pods of the old rule.
        let of_kubelet = self.agent_for.iter().filter(|rule| rule.opted_in().is_some()).cloned();
        let others = new.agent_for.into_iter().filter(|rule| rule.opted_in().is_none());
        *self = DaemonConfig {
            hz: new.hz,
            events: new.events,
            idle_frames: new.idle_frames,
            wakers: new.wakers,
            trace_context: new.trace_context,
            one_in: new.one_in,
            budget: new.budget,
            kill_switch: new.kill_switch,
            java: new.java,
            agent_for: others.chain(of_kubelet).collect(),
            attach_timeout: new.attach_timeout,
            store: new.store,
            sinks: new.sinks,
            binary: self.binary.clone(),
            window_s: self.window_s,
            kubelet: self.kubelet.clone(),
            directory: self.directory.clone(),
            metrics: self.metrics.clone(),
            api: self.api.clone(),
            token_file: self.token_file.clone(),
            concurrent_profiles: self.concurrent_profiles,
        };
        fixed.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// Whether a session with these settings is as one with the others: the limits of the store, the kill switch and the
    /// sinks change no session.
    pub(super) fn samples_like(&self, other: &DaemonConfig) -> bool {
        let DaemonConfig { store, kill_switch, sinks, .. } = other.clone();
        DaemonConfig { store, kill_switch, sinks, ..self.clone() } == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::{Auth, StoreLimits, Trust};
    use crate::profile::filter::Glob;
    use crate::session::OptedInPods;

    fn config() -> DaemonConfig {
        let opted_in = OptedInPods::default();
        let kubelet = KubeletConfig {
            url: "https://n:10250".to_owned(),
            auth: Auth::None,
            trust: Trust::default(),
            annotations: vec![("a".to_owned(), "b".to_owned())],
            opted_in: opted_in.clone(),
        };
        DaemonConfig {
            binary: PathBuf::from("/nowhere"),
            hz: 19.0,
            events: vec![Event::Cpu],
            idle_frames: Vec::new(),
            wakers: false,
            trace_context: false,
            one_in: 1000,
            window_s: 10,
            budget: budget::BudgetLimits { cpu: 0.005, memory: 1 << 27 },
            kill_switch: None,
            java: JavaNaming::Vm,
            agent_for: vec![AgentRule::OptedIn(opted_in)],
            kubelet: Some(kubelet),
            attach_timeout: Duration::from_secs(10),
            directory: PathBuf::from("/var/lib/jbpf-prof"),
            store: StoreLimits { bytes: 1 << 30, age: Duration::from_secs(3600) },
            metrics: None,
            api: None,
            token_file: None,
            concurrent_profiles: 2,
            sinks: Vec::new(),
        }
    }

    #[test]
    fn a_reload_applies_changes_and_lists_the_others() {
        let mut running = config();
        // A reading makes a list of pods of its own, which no client of the kubelet fills.
        let same = config();
        assert_ne!(running, same);
        let before = running.clone();
        assert_eq!(running.reload(same), Vec::<&str>::new());
        assert!(running == before && running.samples_like(&before));
        let pods = AgentRule::Pod(Glob::new("shop/*"));
        let mut new = config();
        (new.hz, new.window_s, new.token_file) = (49.0, 20, Some(PathBuf::from("/t")));
        new.agent_for.push(pods.clone());
        assert_eq!(running.reload(new), ["window", "token-file"]);
        assert_eq!((running.hz, running.window_s, &running.token_file), (49.0, 10, &None));
        assert_eq!(running.agent_for, [pods, before.agent_for[0].clone()]);
        assert!(!running.samples_like(&before));
    }

    #[test]
    fn limits_of_the_store_and_the_kill_switch_change_no_session() {
        let mut running = config();
        let before = running.clone();
        let mut new = config();
        new.kill_switch = Some(PathBuf::from("/run/stop"));
        new.store.bytes = 1;
        assert_eq!(running.reload(new), Vec::<&str>::new());
        assert!(running != before && running.samples_like(&before));
    }
}
