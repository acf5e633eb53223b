//! The sentences of a difference, the same in each form.

use super::model::Difference;
use crate::compare::{NoiseBasis, ShareChange, Side};
use crate::output::report::thousands;

/// The verdict in one sentence.
#[must_use]
pub fn verdict(difference: &Difference<'_>) -> String {
    let comparison = difference.comparison;
    let threshold = match number(comparison.options.threshold).as_str() {
        "1" => "1 point".to_owned(),
        number => format!("{number} points"),
    };
    let is_noise = comparison.whole.is_none_or(|whole| !whole.is_significant);
    let whole = comparison.whole.zip(comparison.options.per.as_ref());
    let whole = whole.map(|(whole, work)| {
        format!("{} % ±{} per {}", signed(whole.points()), number(whole.interval), work.name)
    });
    let Some(cause) = comparison.cause() else {
        return match whole {
            Some(whole) if comparison.is_changed() => {
                format!("changed: {whole}; no function explains it alone")
            }
            Some(whole) => {
                let why = if is_noise { "within the noise" } else { "less than that" };
                format!("no change of {threshold} or more found ({whole}, {why})")
            }
            None => format!("no change of {threshold} or more found"),
        };
    };
    let (of, change) = if cause.itself.is_finding { ("self", cause.itself) } else { ("total", cause.total) };
    let part = format!("{} {of} {}", difference.name(cause), points(&change));
    let others = comparison.findings().count() - 1;
    let more = match others {
        0 => String::new(),
        1 => "; 1 more function".to_owned(),
        n => format!("; {n} more functions"),
    };
    match whole {
        Some(whole) => format!("changed: {whole}: {part}{more}"),
        None => format!(
            "changed: {part} ({of} {} before, {} after){more}",
            percent(change.before),
            percent(change.after)
        ),
    }
}

/// Above the largest differences, if none is a finding.
pub(super) const NOT_PROVED: &str = "Largest differences (± is the 95 % confidence interval of one function, in points). None \
    is proved: each can be noise, since many functions are tested, or is smaller than --fail-above. Longer runs, a higher -F, \
    or several runs a side find smaller changes.";

/// How the noise was measured, in one sentence.
pub(super) fn noise(difference: &Difference<'_>) -> String {
    let [before, after] = difference.comparison.blocks;
    match difference.comparison.basis {
        NoiseBasis::Runs => format!("Noise is measured between runs: {before} before, {after} after."),
        NoiseBasis::Seconds => {
            let short = if before == 1 || after == 1 {
                format!(
                    " A run of fewer than {} seconds (of the daemon: stored windows) is one part, which \
                     has no noise of its own.",
                    NoiseBasis::MIN_SECONDS
                )
            } else {
                String::new()
            };
            format!(
                "Noise is measured within the runs, between their seconds or parts: {before} before, {after} after.{short} \
                 It does not contain differences between runs: several runs a side find them."
            )
        }
        NoiseBasis::Assumed => format!(
            "Noise is not measured: to measure it, use several runs a side, or pages (.html) of {} \
             seconds (of the daemon: stored windows) or more. It is assumed to be {} times the variance of independent samples, \
             or more if the rate changed.",
            NoiseBasis::MIN_SECONDS,
            NoiseBasis::DESIGN_FACTOR
        ),
    }
}

/// What is compared, in one sentence.
pub(super) fn compared(difference: &Difference<'_>) -> String {
    let title = difference.pair.view().event().title();
    match &difference.comparison.options.per {
        None => format!("This compares shares of {title}."),
        Some(work) => format!(
            "Compared is {title} per {}, in percent of the whole before ({} before, {} after).",
            work.name, work.before, work.after
        ),
    }
}

/// Files and samples of a side.
pub(super) fn side(difference: &Difference<'_>, side: Side) -> String {
    let accounts = difference.accounts(side);
    let runs = if accounts.runs == 1 { "1 run".to_owned() } else { format!("{} runs", accounts.runs) };
    let lost = if accounts.lost == 0 {
        "none lost".to_owned()
    } else {
        format!("{} lost", thousands(accounts.lost))
    };
    format!("{} ({runs}, {} samples, {lost})", difference.files(side).join(", "), thousands(accounts.samples))
}

/// What makes the comparison doubtful.
pub(super) fn warnings(difference: &Difference<'_>) -> Vec<String> {
    const MANY_LOST: f64 = 0.01;
    let mut warnings = Vec::new();
    for side in [Side::Before, Side::After] {
        let accounts = difference.accounts(side);
        let share = accounts.lost as f64 / (accounts.samples + accounts.lost).max(1) as f64;
        if share > MANY_LOST {
            let percent = percent(share * 100.0);
            warnings.push(format!(
                "{percent} of the samples {} were lost; lost samples have no stack and are not compared.",
                side.name()
            ));
        }
    }
    if difference.pair.truncated_stacks() > 0 {
        let cut = thousands(difference.pair.truncated_stacks());
        warnings.push(format!(
            "{cut} stacks were cut, because both sides together are too large for one profile."
        ));
    }
    warnings
}

/// `+2.4 points ±0.6`.
pub(super) fn points(change: &ShareChange) -> String {
    format!("{} points ±{}", signed(change.points()), number(change.interval))
}

/// `+2.4 ±0.6`.
pub(super) fn short(change: &ShareChange) -> String {
    format!("{} ±{}", signed(change.points()), number(change.interval))
}

/// A number of points with its sign; the sign is never the hyphen that looks like a range.
pub(super) fn signed(points: f64) -> String {
    let text = number(points.abs());
    if points < 0.0 && text.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) {
        format!("-{text}")
    } else {
        format!("+{text}")
    }
}

/// A number with one digit behind the point, or two if it is small.
pub(super) fn number(number: f64) -> String {
    if number.abs() < 0.95 && number != 0.0 {
        format!("{number:.2}")
    } else if number == number.trunc() {
        format!("{number:.0}")
    } else {
        format!("{number:.1}")
    }
}

pub(super) fn percent(percent: f64) -> String {
    crate::output::report::share(percent / 100.0)
}
