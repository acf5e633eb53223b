//! A session: the order of its steps, its main loop and its signals. The algorithms are in the parts.

mod aggregator;
mod batch;
mod cost;
mod functions;
mod idle;
pub mod launch;
mod long_waits;
mod name_queue;
mod new_samples;
mod object_frame;
mod outcome;
mod part;
mod part_assembler;
mod probe_frames;
mod progress;
mod sampler;
mod stages;
mod stop;
mod stop_reason;
mod supported;
mod tally;
mod targets_stage;
mod wait_tally;
mod wakers;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::capture::Filter;
use crate::capture::window::CaptureOptions;
use crate::host;
use crate::profile::Profile;
use crate::sample::EventPeriod;
use crate::targets::groups::Groups;
use crate::waits::IdleRules;
use crate::world::World;

pub use crate::plan::{
    AgentRule, Control, JavaAllocations, JavaNaming, OptedInPods, PermanentRefusals, Settings, Target,
};
pub use crate::process::container::Node;
pub use outcome::{Outcome, ResourceUse};
pub use part_assembler::target as target_text;
pub use stop::install_signal_handlers;
pub use tally::loss_reasons;

use aggregator::{Aggregator, StackDisplay};
use idle::IdleDetector;
use launch::Launched;
use sampler::{RunLength, Sampler, SamplerMessage};
use stages::{LoaderMaps, Stages};
use supported::SupportedSettings;

/// How long the main loop waits for a message while a command runs or a stage has work.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The result of [`run`].
pub struct SampledRun {
    /// What was sampled.
    pub outcome: Outcome,
    /// The error, if sampling ended early.
    pub end: anyhow::Result<()>,
}

/// Samples as `settings` say, until the duration is over, `control` ends the session, or the launched command ends.
/// `fresh` gets after each second the samples that have their names since the call before; these are in the outcome too.
/// The next second waits while `fresh` runs.
///
/// # Errors
/// If this host does not allow sampling, if the command cannot be run (a [`Failure`](crate::failure::Failure) of the
/// target), or if sampling ends without an outcome.
pub fn run(
    settings: &Settings,
    control: &Control,
    fresh: Option<&mut dyn FnMut(Profile)>,
) -> anyhow::Result<SampledRun> {
    let mut whole = None;
    let sampled = sample(settings, control, |outcome| whole = Some(outcome), fresh);
    let Some(mut outcome) = whole else {
        sampled?;
        bail!("sampling ended before the first sample");
    };
    let sampled = sampled.context("sampling ended early");
    if let Err(error) = &sampled {
        outcome.report.warnings.push(format!("{error:#}"));
    }
    Ok(SampledRun { outcome, end: sampled })
}

/// Like [`run`], but in parts: `hand` gets each part as soon as all its stacks have names, while sampling goes on. The
/// next windows wait while `hand` runs.
///
/// # Errors
/// If this host does not allow sampling, or if sampling ends early; `hand` gets what was sampled until then.
pub fn run_parts(settings: &Settings, control: &Control, hand: impl FnMut(Outcome)) -> anyhow::Result<()> {
    sample(settings, control, hand, None)
}

fn sample(
    settings: &Settings,
    control: &Control,
    mut hand: impl FnMut(Outcome),
    mut fresh: Option<&mut dyn FnMut(Profile)>,
) -> anyhow::Result<()> {
    let SupportedSettings { settings, warning } = SupportedSettings::of(settings)?;
    let settings = &settings;
    if let Some(warning) = &warning {
        log::warn!("{warning}");
    }
    let mut hand = |mut outcome: Outcome| {
        outcome.report.warnings.extend(warning.clone());
        hand(outcome);
    };
    let mut launched = match &settings.target {
        Target::Launch(command) => Some(Launched::start(&settings.binary, command)?),
        _ => None,
    };
    // After the launch, so that the command inherits the original limit.
    host::descriptors::allow_most();
    let PreparedSession { mut sampler, mut stages } =
        prepare(settings, control, launched.as_ref(), fresh.is_some())?;
    let messages = sampler.messages.take().context("the sampler has no messages")?;
    let descendants = match &settings.target {
        Target::Pids(tgids) if settings.children => stages.world().processes.descendants(tgids),
        _ => Vec::new(),
    };
    stages.begin();
    if sampler.start(RunLength { duration: settings.duration, part: settings.part }, descendants) {
        let length = settings.duration.map_or("without limit".into(), |d| format!("for {d:?}"));
        log::info!("sampling: begun, {length}");
        if let Some(launched) = &mut launched {
            launched.release();
        }
    }
    loop {
        if launched.as_ref().is_some_and(Launched::has_ended) {
            control.stop("the command has ended");
        }
        sampler.eager.store(true, Ordering::Relaxed);
        let busy = launched.is_some() || stages.have_work();
        match messages.recv_timeout(if busy { POLL_INTERVAL } else { sampler::WINDOW }) {
            Ok(SamplerMessage::Events(events)) => stages.on_events(&events),
            Ok(SamplerMessage::Window(batch)) => {
                stages.on_window(*batch, control);
                if let Some(fresh) = &mut fresh {
                    fresh(stages.take_fresh());
                }
                if settings.part.is_some() {
                    stages.hand_over(&mut hand);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        stages.tick();
    }
    stages.end();
    let sampled = sampler.finish();
    launched.as_ref().map_or(Ok(()), Launched::was_run)?;
    stages.hand_over(&mut hand);
    sampled
}

/// A session before its first sample.
struct PreparedSession<'s> {
    sampler: Sampler,
    stages: Stages<'s>,
}

/// Loads the BPF program and prepares the stages. `is_watched`: each second is shown as soon as it has its names.
fn prepare<'s>(
    settings: &'s Settings,
    control: &Control,
    launched: Option<&Launched>,
    is_watched: bool,
) -> anyhow::Result<PreparedSession<'s>> {
    let began = Instant::now();
    let mut groups = Groups::new(settings)?;
    let functions = functions::find(settings, &groups)?;
    let options = CaptureOptions { functions, ..options(settings, &groups, launched) };
    let mut sampler = Sampler::prepare(options, control)?;
    let ready = sampler.ready.take().context("the sampler has no maps")?;
    groups.begin(ready.cgroups, &ready.members)?;
    for EventPeriod { event, period } in &settings.events {
        log::info!("capture: ready for {}, a sample each {period} {}", event.name(), event.unit().name());
    }
    log::info!("capture: ready in {:.0?}", began.elapsed());
    let idle = IdleDetector::new(ready.idle_addresses, settings.idle, IdleRules::new(&settings.idle_frames));
    let mut world = World::start(settings, groups, launched.map(Launched::pid))?;
    world.new_pauses = is_watched.then(Vec::new);
    let Settings { per_thread, raw_threads, seconds, .. } = *settings;
    let aggregator =
        Aggregator::new(idle, StackDisplay { per_thread, raw_threads, seconds, first: settings.first() });
    let aggregator = if is_watched { aggregator.with_fresh_samples() } else { aggregator };
    let maps = LoaderMaps {
        unwind: ready.unwind,
        contexts: ready.contexts,
        allocations: ready.allocations,
        launched: launched.map(Launched::pid),
    };
    let stages = Stages::prepare(settings, control, world, maps, aggregator);
    Ok(PreparedSession { sampler, stages })
}

fn options(settings: &Settings, groups: &Groups, launched: Option<&Launched>) -> CaptureOptions {
    let launched = launched.map(Launched::pid);
    let filter = Filter {
        tgids: match &settings.target {
            Target::Pids(tgids) => tgids.clone(),
            Target::Launch(_) => launched.into_iter().collect(),
            Target::All | Target::Tids(_) | Target::Groups(_) => Vec::new(),
        },
        children: settings.children || launched.is_some(),
        tids: if let Target::Tids(tids) = &settings.target { tids.clone() } else { Vec::new() },
        cpus: settings.cpus.clone(),
        cgroups: groups.cgroups(),
        naming: groups.naming(),
        launched,
        include_self: settings.include_self,
        threads: settings.per_thread,
        user: settings.user,
        kernel: settings.kernel,
        wakers: settings.wakers,
        traces: settings.trace_context,
    };
    CaptureOptions {
        events: settings.events.clone(),
        functions: BTreeMap::new(),
        filter,
        btf: settings.btf.clone(),
    }
}
