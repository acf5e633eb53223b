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
    /// Number of events that one sample stands for, for all events but `cpu`.
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
