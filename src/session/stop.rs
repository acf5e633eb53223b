//! When to stop before the time is over: at Ctrl-C or SIGTERM, or when the command has ended. A second signal ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// A flag that is raised when sampling is to end.
pub(super) struct Stop {
    flag: Arc<AtomicBool>,
}

impl Stop {
    /// Takes over the signals.
    ///
    /// # Errors
    /// When signals cannot be caught.
    pub(super) fn catch() -> anyhow::Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&flag);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("signals")?;
        // Caught from here on: one that comes while JVMs are attached ends the session, not the program.
        let (mut interrupt, mut terminate) = {
            let _inside = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                runtime.block_on(async {
                    for first in [true, false] {
                        tokio::select! {
                            _ = interrupt.recv() => {}
                            _ = terminate.recv() => {}
                        }
                        log::info!("sampling: to end, at a signal");
                        raised.store(true, Ordering::Relaxed);
                        if !first {
                            quit();
                        }
                    }
                });
            })
            .context("starting the signal thread")?;
        Ok(Stop { flag })
    }

    /// The flag, for whoever must see it at once.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Raises the flag, for this reason.
    pub(super) fn raise(&self, why: &str) {
        if !self.flag.swap(true, Ordering::Relaxed) {
            log::info!("sampling: to end, since {why}");
        }
    }
}

/// The user insists: nothing is written. 130 is what shells show for a program that Ctrl-C ended.
#[allow(clippy::exit)]
fn quit() -> ! {
    std::process::exit(130)
}
