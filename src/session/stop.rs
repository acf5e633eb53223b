//! Ctrl-C and SIGTERM end a session; a second one ends the program at once.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use crate::plan::Control;

/// Installs the signal handlers: from now on the first signal ends the session. A second one ends the program behind
/// `at_exit`.
///
/// # Errors
/// If the handlers cannot be installed.
pub fn install_signal_handlers(control: &Control, at_exit: fn()) -> anyhow::Result<()> {
    let control = control.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("signals")?;
    // Installed here, not in the thread: a signal while JVMs are attached then ends the session, not the program.
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
                    control.interrupt("a signal came");
                    if !first {
                        at_exit();
                        quit();
                    }
                }
            });
        })
        .context("starting the signal thread")?;
    Ok(())
}

/// Ends the program without any output. 130 is the exit code that shells show for a program that Ctrl-C ended.
#[allow(clippy::exit, reason = "the user asked a second time")]
fn quit() -> ! {
    std::process::exit(130)
}
