//! Runs one case in its own process: the result goes to standard output, an error to standard error.

use std::io::Write;

use anyhow::{Context, bail};

use super::cases;
use crate::plan::Found;

/// Runs the case that the arguments name.
pub(crate) fn main(args: &[String]) -> anyhow::Result<()> {
    let name = args.first().context("which case?")?;
    let jdk = args.get(1).map(|jdk| jdk.parse()).transpose().context("which JDK?")?;
    let found = run(name, jdk)?;
    serde_json::to_writer(std::io::stdout(), &found)?;
    Ok(std::io::stdout().flush()?)
}

fn run(name: &str, jdk: Option<u32>) -> anyhow::Result<Found> {
    let on = || jdk.context("this case needs a JDK");
    match name {
        "profile" => cases::profile::attached(on()?),
        "agentpath" => cases::profile::from_the_start(on()?),
        "unwind" => cases::unwind::run(on()?),
        "locks" => cases::locks::run(on()?),
        "native" => cases::native::run(),
        "probed" => cases::probed::run(),
        "events" => cases::events::run(),
        "waits" => cases::waits::run(),
        "cgroup" => cases::cgroup::run(),
        "hotplug" => cases::hotplug::run(),
        "leave" => cases::leave::run(),
        "hostile" => cases::hostile::run(),
        "two" => cases::two::run(),
        "musl" => cases::musl::run(),
        "pids" => cases::pids::run(),
        "refusals" => cases::refusals::run(),
        "broken-truth" => cases::native::with_a_wrong_truth(),
        "broken-case" => loop {
            std::thread::park();
        },
        "broken-kernel" => {
            std::fs::write("/proc/sysrq-trigger", "c")?;
            bail!("the kernel survived")
        }
        other => bail!("no case is called {other}"),
    }
}
