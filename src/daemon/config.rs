//! What the daemon is asked for: plain data, valid by the time it gets here.

use std::path::PathBuf;
use std::time::Duration;

use super::budget;
use super::http::Address;
use super::kubelet::KubeletConfig;
use super::push::SinkConfig;
use super::store;
use crate::sample::Event;
use crate::session::{AgentRule, JavaNaming};

/// All settings of a daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonConfig {
    /// This binary: child processes are it again.
    pub binary: PathBuf,
    /// Samples a second on each CPU, unless they cost too much.
    pub hz: f64,
    /// What is sampled, at least one.
    pub events: Vec<Event>,
    /// How many events a sample stands for, but for time on a CPU.
    pub one_in: u64,
    /// Whole seconds of a window.
    pub window_s: u32,
    /// What it may cost.
    pub budget: budget::BudgetLimits,
    /// While there is a file of this name nothing is sampled.
    pub kill_switch: Option<PathBuf>,
    /// Where Java names come from.
    pub java: JavaNaming,
    /// Where the agent is allowed, if that is not the rule.
    pub agent_for: Vec<AgentRule>,
    /// The kubelet, if it is to say which pods allow it.
    pub kubelet: Option<KubeletConfig>,
    /// How long attaching to one JVM may take.
    pub attach_timeout: Duration,
    /// Where windows are kept, and what waits for sinks.
    pub directory: PathBuf,
    /// How much is kept.
    pub store: store::StoreLimits,
    /// Where metrics and health are told to anybody.
    pub metrics: Option<Address>,
    /// Where profiles are told.
    pub api: Option<Address>,
    /// The token that profiles need.
    pub token_file: Option<PathBuf>,
    /// Profiles that may be made at the same time.
    pub concurrent_profiles: usize,
    /// Where windows go.
    pub sinks: Vec<SinkConfig>,
}
