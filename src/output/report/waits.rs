//! The report's section on waiting time.

use super::detail::Detail;
use super::layout::{ColumnAlignment, cut_middle, duration, percent, table, thousands};
use crate::profile::report::EventReport;
use crate::profile::wait_report::{IdleRule, LockMethod, WaitLock, WaitReason, WaitState};

/// Waiting time by state, by reason, by Java lock, and by rule of idleness; empty for other events.
pub(super) fn waits(of: &EventReport, detail: Detail) -> Vec<String> {
    let Some(waits) = &of.waits else { return Vec::new() };
    let busy: u64 = waits.reasons.iter().map(|row| row.samples).sum();
    let mut lines = vec!["Waiting time".to_owned()];
    lines.extend(states(&waits.states, detail));
    lines.extend(reasons(&waits.reasons, busy, detail));
    lines.extend(locks(&waits.locks, busy, detail));
    lines.extend(lock_methods(&waits.lock_methods, busy, detail));
    lines.extend(idle(&waits.idle, detail));
    lines
}

fn states(states: &[WaitState], detail: Detail) -> Vec<String> {
    let total: u64 = states.iter().map(|row| row.ns).sum();
    let rows: Vec<[String; 4]> = states
        .iter()
        .filter(|row| row.ns > 0 || row.samples > 0)
        .map(|row| {
            [
                format!("{} s", thousands_of_seconds(row.ns)),
                percent(row.ns, total),
                thousands(row.samples),
                row.state.name().to_owned(),
            ]
        })
        .collect();
    let columns = [
        ColumnAlignment::Right("measured"),
        ColumnAlignment::Right("share"),
        ColumnAlignment::Right("samples"),
        ColumnAlignment::Left("state"),
    ];
    table(columns, &rows, detail.width)
}

fn reasons(reasons: &[WaitReason], busy: u64, detail: Detail) -> Vec<String> {
    let rows = reasons.iter().map(|row| {
        [
            thousands(row.samples),
            percent(row.samples, busy),
            thousands(row.waits),
            duration(row.longest_ns),
            row.state.name().to_owned(),
            row.reason.clone(),
        ]
    });
    let columns = [
        ColumnAlignment::Right("samples"),
        ColumnAlignment::Right("share"),
        ColumnAlignment::Right("waits"),
        ColumnAlignment::Right("longest"),
        ColumnAlignment::Left("state"),
        ColumnAlignment::Rest("waits for"),
    ];
    cut_rows(table(columns, &rows.collect::<Vec<_>>(), detail.width), detail.rows)
}

fn locks(locks: &[WaitLock], busy: u64, detail: Detail) -> Vec<String> {
    let rows = locks.iter().map(|row| {
        let owner = row.owner.clone().unwrap_or_else(|| "-".to_owned());
        [
            thousands(row.samples),
            percent(row.samples, busy),
            thousands(row.waits),
            duration(row.longest_ns),
            row.reason.clone(),
            owner,
            row.class.clone(),
        ]
    });
    let columns = [
        ColumnAlignment::Right("samples"),
        ColumnAlignment::Right("share"),
        ColumnAlignment::Right("waits"),
        ColumnAlignment::Right("longest"),
        ColumnAlignment::Left("waits for"),
        ColumnAlignment::Left("owner"),
        ColumnAlignment::Rest("lock"),
    ];
    cut_rows(table(columns, &rows.collect::<Vec<_>>(), detail.width), detail.rows)
}

/// The methods in which threads wait for locks. Classes are cut, so that methods have room.
fn lock_methods(methods: &[LockMethod], busy: u64, detail: Detail) -> Vec<String> {
    let rows = methods.iter().map(|row| {
        [
            thousands(row.samples),
            percent(row.samples, busy),
            thousands(row.waits),
            duration(row.longest_ns),
            cut_middle(&row.class, detail.width / 4),
            row.method.clone(),
        ]
    });
    let columns = [
        ColumnAlignment::Right("samples"),
        ColumnAlignment::Right("share"),
        ColumnAlignment::Right("waits"),
        ColumnAlignment::Right("longest"),
        ColumnAlignment::Left("lock"),
        ColumnAlignment::Rest("in"),
    ];
    cut_rows(table(columns, &rows.collect::<Vec<_>>(), detail.width), detail.rows)
}

fn idle(rules: &[IdleRule], detail: Detail) -> Vec<String> {
    let total: u64 = rules.iter().map(|row| row.samples).sum();
    let rows =
        rules.iter().map(|row| [thousands(row.samples), percent(row.samples, total), row.rule.clone()]);
    let columns = [
        ColumnAlignment::Right("samples"),
        ColumnAlignment::Right("share"),
        ColumnAlignment::Rest("idle by the rule"),
    ];
    cut_rows(table(columns, &rows.collect::<Vec<_>>(), detail.width), detail.rows)
}

/// The head of a table and at most `rows` rows; nothing if the table has no row.
fn cut_rows(mut table: Vec<String>, rows: usize) -> Vec<String> {
    table.truncate(rows + 1);
    if table.len() > 1 { table } else { Vec::new() }
}

/// Seconds with one decimal and separated thousands: `1,234.5`.
fn thousands_of_seconds(ns: u64) -> String {
    let tenths = ns.saturating_add(50_000_000) / 100_000_000;
    format!("{}.{}", thousands(tenths / 10), tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::wait_report::WaitReport;
    use crate::sample::ThreadState;

    #[test]
    fn the_section_has_states_reasons_and_rules() {
        let detail = Detail { width: 80, ..Detail::default() };
        assert!(waits(&EventReport::default(), detail).is_empty());
        let state = ThreadState::Sleeping;
        let report = WaitReport {
            states: vec![WaitState { state, ns: 1_234_560_000_000, samples: 9 }],
            untimed: 3,
            reasons: vec![WaitReason {
                state,
                reason: "lock".into(),
                samples: 5,
                waits: 2,
                longest_ns: 12_345_678,
            }],
            idle: vec![IdleRule { rule: "event loop".into(), samples: 4 }],
            locks: [("monitor", Some("worker-1"), 3), ("park", None, 2)]
                .map(|(reason, owner, samples)| WaitLock {
                    reason: reason.into(),
                    class: format!("a.{reason}"),
                    owner: owner.map(str::to_owned),
                    samples,
                    waits: 1_234,
                    longest_ns: 2_000_000_000,
                })
                .to_vec(),
            lock_methods: vec![LockMethod {
                reason: "park".into(),
                class: "java.util.concurrent.locks.ReentrantLock$FairSync".into(),
                method: "Shop.priceOf".into(),
                samples: 2,
                waits: 1_234,
                longest_ns: 2_000_000_000,
            }],
        };
        let text = waits(&EventReport { waits: Some(report), ..EventReport::default() }, detail).join("\n");
        for part in [
            "1,234.6 s",
            "       5  100.0 %      2  12.3 ms  sleeping  lock",
            "1,234   2.00 s",
            "event loop",
            "monitor    worker-1  a.monitor",
            "park       -         a.park",
            "1,234   2.00 s  java.u…Lock$FairSync  Shop.priceOf",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }
}
