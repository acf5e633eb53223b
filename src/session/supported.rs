//! Leaves out events that this host cannot sample, if others remain.

use crate::capture::{NoSwitchHook, SwitchHook};
use crate::failure::Failure;
use crate::host::KernelRelease;
use crate::plan::Settings;
use crate::sample::Event;
use crate::sample::dynamic_event::EventOrigin;

/// Settings with the events that this host can sample, and a warning that names the event left out.
pub(super) struct SupportedSettings {
    pub(super) settings: Settings,
    pub(super) warning: Option<String>,
}

impl SupportedSettings {
    /// # Errors
    /// A [`Failure`] of the host if no event remains.
    pub(super) fn of(settings: &Settings) -> Result<SupportedSettings, Failure> {
        let waits = settings.events.iter().any(|sampled| sampled.event == Event::Wait);
        let events: Vec<Event> = settings.events.iter().map(|sampled| sampled.event).collect();
        may_interrupt(&events, KernelRelease::running())?;
        SupportedSettings::with(settings, if waits { SwitchHook::find().err() } else { None })
    }

    fn with(settings: &Settings, refused: Option<NoSwitchHook>) -> Result<SupportedSettings, Failure> {
        let mut settings = settings.clone();
        let Some(why) = refused else { return Ok(SupportedSettings { settings, warning: None }) };
        settings.events.retain(|sampled| sampled.event != Event::Wait);
        let warning = format!("waiting time cannot be sampled: {why}");
        if settings.events.is_empty() {
            return Err(Failure::host(warning));
        }
        Ok(SupportedSettings { settings, warning: Some(warning) })
    }
}

/// From this kernel on, a BPF program that comes in a non-maskable interrupt does not wait for a lock of a map that its
/// CPU holds (commit 20b6cc34ea74). Programs of perf events are kept apart by all kernels, those of probes are not.
const SAFE_INTERRUPTS: KernelRelease = KernelRelease { major: 5, minor: 11 };

/// Whether the events of a processor, which come as such interrupts, may come beside probes and waits.
fn may_interrupt(events: &[Event], release: Option<KernelRelease>) -> Result<(), Failure> {
    let is_hardware = |event: &&Event| matches!(event.origin(), Some(EventOrigin::Counter(counter)) if counter.is_hardware());
    let is_program = |event: &&Event| {
        matches!(event, Event::Wait | Event::Rss)
            || event.allocates()
            || matches!(event.origin(), Some(EventOrigin::Probe(_)))
    };
    let both = (events.iter().find(is_hardware), events.iter().find(is_program));
    if let (Some(hardware), Some(program)) = both
        && release.is_none_or(|release| release < SAFE_INTERRUPTS)
    {
        return Err(Failure::host(format!(
            "{} and {} cannot be sampled in one run before Linux {SAFE_INTERRUPTS}: sample one after the other",
            hardware.name(),
            program.name()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;
    use crate::sample::EventPeriod;

    #[test]
    fn an_old_kernel_does_not_mix_interrupts_and_probes() {
        let [cycles, fork] = ["cycles", "sched:sched_process_fork"].map(|name| Event::parse(name).unwrap());
        let [old, new] = ["5.10.0", "5.11.0"].map(KernelRelease::parse);
        assert!(may_interrupt(&[cycles, Event::Cpu], old).is_ok());
        assert!(may_interrupt(&[fork, Event::Wait], old).is_ok());
        assert!(may_interrupt(&[fork, cycles], new).is_ok());
        assert!(may_interrupt(&[fork, cycles], old).is_err_and(|why| why.exit == Exit::Host));
        assert!(may_interrupt(&[cycles, Event::Wait], None).is_err());
        assert!(may_interrupt(&[Event::Alloc, cycles], old).is_err());
        assert!(may_interrupt(&[cycles, Event::Rss], old).is_err());
    }

    #[test]
    fn a_host_without_a_hook_samples_the_other_events() {
        let sampled = |event| EventPeriod { event, period: 1 };
        let mut settings = Settings::for_test();
        settings.events = [Event::Cpu, Event::Wait].map(sampled).to_vec();
        let all = SupportedSettings::with(&settings, None).ok().unwrap();
        assert_eq!((all.settings.events.len(), all.warning), (2, None));
        let some = SupportedSettings::with(&settings, Some(NoSwitchHook::Neither)).ok().unwrap();
        assert_eq!(some.settings.events, [sampled(Event::Cpu)]);
        assert!(some.warning.unwrap().contains("sched_exit_tp"));
        settings.events = vec![sampled(Event::Wait)];
        let none = SupportedSettings::with(&settings, Some(NoSwitchHook::NoFunction)).err().unwrap();
        assert_eq!(none.exit, Exit::Host);
    }
}
