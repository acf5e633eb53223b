//! Leaves out events that this host cannot sample, if others remain.

use crate::capture::{NoSwitchHook, SwitchHook};
use crate::failure::Failure;
use crate::plan::Settings;
use crate::sample::Event;

/// Settings with the events that this host can sample, and a warning that names the event left out.
pub(super) struct Supported {
    pub(super) settings: Settings,
    pub(super) warning: Option<String>,
}

impl Supported {
    /// # Errors
    /// A [`Failure`] of the host if no event remains.
    pub(super) fn of(settings: &Settings) -> Result<Supported, Failure> {
        let waits = settings.events.iter().any(|(event, _)| *event == Event::Wait);
        Supported::with(settings, if waits { SwitchHook::find().err() } else { None })
    }

    fn with(settings: &Settings, refused: Option<NoSwitchHook>) -> Result<Supported, Failure> {
        let mut settings = settings.clone();
        let Some(why) = refused else { return Ok(Supported { settings, warning: None }) };
        settings.events.retain(|(event, _)| *event != Event::Wait);
        let warning = format!("waiting time cannot be sampled: {why}");
        if settings.events.is_empty() {
            return Err(Failure::host(warning));
        }
        Ok(Supported { settings, warning: Some(warning) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_host_without_a_hook_samples_the_other_events() {
        let mut settings = Settings::for_test();
        settings.events = vec![(Event::Cpu, 1), (Event::Wait, 1)];
        let all = Supported::with(&settings, None).ok().unwrap();
        assert_eq!((all.settings.events.len(), all.warning), (2, None));
        let some = Supported::with(&settings, Some(NoSwitchHook::Neither)).ok().unwrap();
        assert_eq!(some.settings.events, [(Event::Cpu, 1)]);
        assert!(some.warning.unwrap().contains("sched_exit_tp"));
        settings.events = vec![(Event::Wait, 1)];
        let none = Supported::with(&settings, Some(NoSwitchHook::NoFunction)).err().unwrap();
        assert_eq!(none.exit, Exit::Host);
    }
}
