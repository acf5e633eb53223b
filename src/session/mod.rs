//! A session: the order of the stages, the beat, the signals. It wires; it holds no algorithm of any stage.

mod allowance;
mod cost;
mod idle;
mod jvms;
pub mod launch;
mod outcome;
mod progress;
mod resolver;
mod sampler;
mod settings;
mod stop;
mod targets;
mod thread_name;
mod unwinding;

use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::capture::Filter;
use crate::capture::window::Options;
use crate::process::{self, Processes, Which};
use crate::symbolize::{self, Symbolizer};

pub use settings::{Java, Settings, Target};

use jvms::Jvms;
use launch::Launched;
use outcome::Start;
use progress::Progress;
use resolver::{Resolver, View};
use sampler::{News, Sampler};
use stop::Stop;
use targets::Targets;
use unwinding::Unwinding;

/// How often the session looks around while no window comes.
const BEAT: Duration = Duration::from_millis(50);

/// What a session gives.
pub struct Outcome {
    /// What ran.
    pub profile: crate::profile::Profile,
    /// What else the report tells.
    pub report: crate::profile::RunReport,
}

/// Samples as `settings` say, until the time is over, a signal comes, or the launched command ends.
///
/// # Errors
/// When this host does not allow it, or sampling ends early.
pub fn run(settings: &Settings) -> anyhow::Result<Outcome> {
    let stop = Stop::catch()?;
    let mut launched = match &settings.target {
        Target::Launch(command) => Some(Launched::start(&settings.binary, command)?),
        _ => None,
    };
    let began = Instant::now();
    let mut sampler = Sampler::prepare(options(settings, launched.as_ref()), stop.flag())?;
    log::info!("capture: ready to tick every {} ns, in {:.0?}", settings.period_ns, began.elapsed());
    let mut resolver = resolver(settings)?;
    let mut jvms = Jvms::new(settings);
    jvms.attach_all(&resolver.processes, &mut resolver.symbolizer, &stop.flag());

    let memory = sampler.unwind.take().context("the sampler has no maps")?;
    let mut unwinding = Unwinding::new(memory, settings, launched.as_ref().map(Launched::pid));
    unwinding.begin(&mut resolver.processes, &mut resolver.symbolizer);

    let news = sampler.news.take().context("the sampler has no news")?;
    let start = Start::now();
    sampler.go(settings.duration);
    log::info!(
        "sampling: begun, {}",
        settings.duration.map_or("without limit".into(), |d| format!("for {d:?}"))
    );
    if let Some(launched) = &mut launched {
        launched.go();
    }
    let targets = Targets::of(settings);
    let progress = Progress::new(settings.progress, settings.duration);
    let mut events = Vec::new();
    loop {
        if launched.as_mut().is_some_and(|l| l.ended().is_some()) {
            stop.raise("the command has ended");
        }
        sampler.eager.store(true, Ordering::Relaxed);
        match news.recv_timeout(BEAT) {
            Ok(News::Events(new)) => {
                resolver.apply(&new);
                events.extend(new);
            }
            Ok(News::Window(batch)) => {
                resolver.apply(&batch.events);
                events.extend_from_slice(&batch.events);
                if targets.have_ended(&resolver.processes) {
                    stop.raise("the chosen processes have ended");
                }
                jvms.notice(&std::mem::take(&mut events));
                unwinding.meet(&batch.window.stacks);
                jvms.meet(&batch.window.stacks, &mut resolver.symbolizer);
                jvms.beat(&mut resolver.symbolizer);
                jvms.read(&resolver.read_logs());
                resolver.window(batch, &jvms);
                progress.show(&resolver.tally);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        unwinding.beat(&mut resolver.processes, &mut resolver.symbolizer);
    }
    let began = Instant::now();
    jvms.settle(&mut resolver.symbolizer);
    jvms.read(&resolver.read_logs());
    jvms.release();
    resolver.finish();
    progress.clear();
    log::info!("sampling: ended; the last stacks named in {:.0?}", began.elapsed());
    let totals = sampler.finish()?;
    Ok(start.end(resolver, &jvms, &totals, unwinding.usage(), settings))
}

/// The first look at all processes, and the stages behind the capture.
fn resolver(settings: &Settings) -> anyhow::Result<Resolver> {
    let symbols = symbolize::Config {
        raw_names: settings.raw_names,
        ..symbolize::Config::new(settings.binary.clone())
    };
    let began = Instant::now();
    let symbolizer = Symbolizer::start(symbols).context("starting the symbol worker")?;
    log::info!("symbols: worker started and kernel symbols read in {:.0?}", began.elapsed());
    let began = Instant::now();
    let options = process::Options { binary: settings.binary.clone(), ..process::Options::default() };
    let mut processes = Processes::new(options);
    let found = match &settings.target {
        Target::Pids(tgids) if !settings.children => processes.scan(&Which::Tgids(tgids)),
        _ => processes.scan(&Which::All),
    };
    log::info!("processes: {found} found in {:.0?}", began.elapsed());
    let Settings { idle, per_thread, raw_threads, .. } = *settings;
    Ok(Resolver::new(processes, symbolizer, View { idle, per_thread, raw_threads }))
}

/// What the capture is to do.
fn options(settings: &Settings, launched: Option<&Launched>) -> Options {
    let launched = launched.map(Launched::pid);
    let filter = Filter {
        tgids: match &settings.target {
            Target::Pids(tgids) => tgids.clone(),
            Target::Launch(_) => launched.into_iter().collect(),
            Target::All | Target::Tids(_) => Vec::new(),
        },
        children: settings.children || launched.is_some(),
        tids: if let Target::Tids(tids) = &settings.target { tids.clone() } else { Vec::new() },
        launched,
        include_self: settings.include_self,
        threads: settings.per_thread,
        user: settings.user,
        kernel: settings.kernel,
    };
    let Settings { period_ns, cpus, btf, .. } = settings;
    Options { period_ns: *period_ns, cpus: cpus.clone(), filter, btf: btf.clone() }
}
