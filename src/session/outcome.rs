//! What a session gives: the profile with its accounts.

use std::borrow::Cow;

use super::resolver::Resolver;
use super::sampler::Totals;
use super::{Outcome, Settings};
use crate::capture::abi::LOSSES;
use crate::profile::Accounts;

/// The accounts of a session that has ended.
pub(super) fn accounts(resolver: &Resolver, totals: &Totals, settings: &Settings) -> Accounts {
    let tally = &resolver.tally;
    let hidden_idle = if settings.idle { 0 } else { tally.idle };
    let mut accounts = Accounts {
        ticks: tally.counters.ticks,
        filtered: tally.counters.filtered + hidden_idle,
        kept: tally.kept - hidden_idle,
        lost: Vec::new(),
        missed: totals.elapsed.periods.saturating_sub(tally.counters.ticks),
        expected: totals.elapsed.periods,
        period_ns: settings.period_ns,
    };
    for (reason, lost) in LOSSES.into_iter().zip(tally.counters.lost) {
        accounts.lose(Cow::Borrowed(reason), lost);
    }
    accounts.lose("frames never arrived", tally.frameless);
    accounts
}

/// Puts the parts together.
pub(super) fn outcome(resolver: Resolver, totals: &Totals, settings: &Settings) -> Outcome {
    let accounts = accounts(&resolver, totals, settings);
    let mut profile = resolver.profile;
    profile.accounts = accounts;
    Outcome { profile }
}
