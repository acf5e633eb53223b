//! The JVMs of a session: attached before the clock starts, noticed when they come later, their leases renewed.

use crate::process::ProcessEvent;
use crate::symbolize::Symbolizer;

use super::Settings;
use super::resolver::Delay;

/// All JVMs that are profiled.
pub(super) struct Jvms {}

impl Jvms {
    pub(super) fn new(_settings: &Settings) -> Jvms {
        Jvms {}
    }
    pub(super) fn attach_all(&mut self, _symbolizer: &mut Symbolizer) {}
    pub(super) fn notice(&mut self, _events: &[ProcessEvent]) {}
    pub(super) fn beat(&mut self, _symbolizer: &mut Symbolizer) {}
    pub(super) fn report(
        &self,
        _tally: &super::resolver::Tally,
        _symbols: &crate::symbolize::Stats,
    ) -> Vec<crate::profile::report::JvmReport> {
        Vec::new()
    }
    pub(super) fn settle(&mut self, _symbolizer: &mut Symbolizer) {}
}

impl Delay for Jvms {
    fn is_jvm(&self, _tgid: u32) -> bool {
        false
    }
    fn is_open(&self, _tgid: u32) -> bool {
        false
    }
}
