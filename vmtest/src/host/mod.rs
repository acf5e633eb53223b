//! The host's side: builds images, boots guests, and checks their results.

mod cache;
mod hostile;
mod initramfs;
mod kernel;
mod machine;
mod options;
mod packages;
mod payload;
mod root;
mod verdict;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Context;
use clap::Parser;

use crate::arch::Arch;
use crate::matrix::{Boot, Kernel};
use crate::plan::{Line, Outcome, Plan};
use crate::say;
use cache::Cache;
use kernel::Image;
use machine::Machine;
use options::Options;
use payload::Payload;
use verdict::Verdict;

/// Executes the command line. Exit codes: 0 if all cases passed, 1 if not, 2 for usage errors, else that of `--run`'s
/// command.
pub(crate) fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(&options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("vmtest: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<u8> {
    let selection = options.selection();
    // Wrong names fail before any download.
    let mut boots = selection.boots()?;
    if let Some(plan) = options.interactive() {
        let kernel = options.one_kernel()?;
        let cache = Cache::open()?;
        let image = kernel::image(&cache, kernel)?;
        return Bench::new(options, &cache, [kernel.arch])?.machine(kernel, &image, &plan)?.converse(&plan);
    }
    if selection.is_covering_list() {
        let day = selection.day;
        let text = format!("covering list of day {day} (--day {day} repeats it; --full is all of it)");
        writeln!(std::io::stdout(), "{text}")?;
    }
    // The longest first, so that no guest runs alone at the end.
    boots.sort_by_key(|boot| std::cmp::Reverse(boot.patience()));
    if options.list {
        return list(&boots);
    }
    let cache = Cache::open()?;
    let boots = boots.into_iter().map(|boot| Ok((kernel::image(&cache, boot.kernel)?, boot)));
    let boots = boots.collect::<anyhow::Result<Vec<_>>>()?;
    Bench::new(options, &cache, boots.iter().map(|(_, boot)| boot.kernel.arch))?.judge(boots)
}

/// Prints the runs of all boots, in their order.
fn list(boots: &[Boot]) -> anyhow::Result<u8> {
    let mut out = std::io::stdout().lock();
    for boot in boots {
        for run in &boot.runs {
            writeln!(out, "{:<7} {run}", boot.kernel.name)?;
        }
    }
    let runs: usize = boots.iter().map(|boot| boot.runs.len()).sum();
    writeln!(out, "{runs} runs on {} kernels", boots.len())?;
    Ok(0)
}

/// Shared by all boots: a payload and a root file system for each architecture.
struct Bench<'a> {
    options: &'a Options,
    payloads: BTreeMap<Arch, (Payload, PathBuf)>,
}

impl Bench<'_> {
    fn new<'a>(
        options: &'a Options,
        cache: &Cache,
        arches: impl IntoIterator<Item = Arch>,
    ) -> anyhow::Result<Bench<'a>> {
        let arches: BTreeSet<Arch> = arches.into_iter().collect();
        let payloads = arches
            .into_iter()
            .map(|arch| Ok((arch, (Payload::make(options, arch)?, root::image(cache, arch)?))))
            .collect::<anyhow::Result<_>>()?;
        Ok(Bench { options, payloads })
    }

    fn machine(&self, kernel: &Kernel, image: &Image, plan: &Plan) -> anyhow::Result<Machine> {
        let (payload, root) = self.payloads.get(&kernel.arch).context("the guest's programs")?;
        let initramfs = payload.initramfs(kernel, image, plan)?;
        Machine::new(self.options, kernel, image, root, &initramfs, payload.logs())
    }

    /// Boots all guests, some at a time, and returns the exit code.
    fn judge(&self, boots: Vec<(Image, Boot)>) -> anyhow::Result<u8> {
        let begin = Instant::now();
        let waiting = Mutex::new(VecDeque::from(boots));
        let verdict = Mutex::new(Verdict::default());
        std::thread::scope(|scope| {
            for _ in 0..self.options.jobs.max(1) {
                scope.spawn(|| {
                    while let Some((image, boot)) = waiting.lock().ok().and_then(|mut w| w.pop_front()) {
                        let results = self.boot(&boot, &image);
                        if let Ok(mut verdict) = verdict.lock() {
                            verdict.add(boot.kernel.name, &boot.runs, results);
                        }
                    }
                });
            }
        });
        let verdict = verdict.into_inner().unwrap_or_default();
        for fault in verdict.faults() {
            say(&format!("FAILED: {fault}"));
        }
        // test.sh reads this line, as those of other tests.
        let closing = format!(
            "test result: {}. {} passed; {} failed; finished in {:.0} s",
            if verdict.faults().is_empty() { "ok" } else { "FAILED" },
            verdict.passed(),
            verdict.faults().len(),
            begin.elapsed().as_secs_f64()
        );
        writeln!(std::io::stdout(), "{closing}")?;
        Ok(u8::from(!verdict.faults().is_empty()))
    }

    /// Runs one guest. Returns its results, and an error of the guest itself.
    fn boot(&self, boot: &Boot, image: &Image) -> (Vec<Outcome>, Option<String>) {
        let mut results = Vec::new();
        let plan = Plan::Cases(boot.runs.clone());
        let ended = self.machine(boot.kernel, image, &plan).and_then(|machine| {
            machine.run(|line| {
                if let Line::Result(outcome) = line {
                    let _ = writeln!(std::io::stdout(), "{}", verdict::row(&outcome));
                    results.push(outcome);
                }
            })
        });
        (results, ended.err().map(|error| format!("{error:#}")))
    }
}
