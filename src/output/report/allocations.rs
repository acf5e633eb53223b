//! The report's section on allocated bytes.

use super::detail::Detail;
use super::layout::{ColumnAlignment, bytes, percent, table, thousands};
use crate::output::name;
use crate::profile::ProfileView;
use crate::profile::object_classes::ObjectClassRow;
use crate::profile::report::{AllocatedBytes, EventReport};
use crate::sample::Event;

/// Allocated bytes, and those that samples stand for by class; empty for other events.
pub(super) fn allocations(of: &EventReport, profile: &ProfileView<'_>, detail: Detail) -> Vec<String> {
    let Some(AllocatedBytes { profiled, filtered, profiled_calls, estimated, .. }) = of.allocated else {
        return Vec::new();
    };
    // Other processes have the probes of `alloc`, and not those of `native-alloc`.
    let (calls, whose) = match of.event {
        Event::NativeAlloc => (format!(" in {} calls", thousands(profiled_calls)), ""),
        _ => (String::new(), " (other JVMs with the same libjvm.so, or -I and -X)"),
    };
    let others = match filtered {
        0 => String::new(),
        filtered => format!(", and {} not asked for{whose}", bytes(filtered)),
    };
    let total = match (profiled, estimated) {
        (profiled, 0) => bytes(profiled),
        (0, estimated) => format!("{} estimated: JVMs chose the samples", bytes(estimated)),
        _ => format!("{}, and {} estimated: JVMs chose the samples", bytes(profiled), bytes(estimated)),
    };
    let mut lines = vec![format!("Allocated             {total}{calls}{others}")];
    let rows: Vec<ObjectClassRow> = profile.object_classes();
    let all: u64 = rows.iter().map(|row| row.bytes).sum();
    let rows = rows.iter().take(detail.rows).map(|row| {
        let symbol = &profile.frames().symbols()[row.symbol as usize];
        let class = name::display_name(profile.frames(), symbol);
        [
            percent(row.bytes, all),
            bytes(row.bytes),
            thousands(row.objects),
            thousands(row.samples),
            name::of_object(&class).to_owned(),
        ]
    });
    let rows: Vec<[String; 5]> = rows.collect();
    if !rows.is_empty() {
        let columns = [
            ColumnAlignment::Right("share"),
            ColumnAlignment::Right("sampled"),
            ColumnAlignment::Right("objects"),
            ColumnAlignment::Right("samples"),
            ColumnAlignment::Rest("class"),
        ];
        lines.extend(table(columns, &rows, detail.width));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::profile::samples::Weight;
    use crate::profile::{Frame, Kind, Labels, Profile};
    use crate::sample::Estimate;

    #[test]
    fn the_section_has_all_bytes_and_the_classes() {
        let mut profile = Profile::new();
        let labels = profile.intern_labels(&Labels::default());
        for (class, samples) in [("[new: int[]]", 3), ("[new: a.B]", 1)] {
            let frames = [Frame::named(Kind::Java, "a.B.c"), Frame::named(Kind::Object, class)].map(Arc::new);
            let stack = profile.intern_stack(&frames);
            let weight =
                Weight { count: samples, value: samples << 20, objects: Estimate::whole(samples << 10) };
            profile.add_interned_in_second(0, stack, labels, Event::Alloc, weight);
        }
        let allocated = Some(AllocatedBytes {
            profiled: 5 << 20,
            filtered: 1 << 10,
            profiled_calls: 12_345,
            filtered_calls: 1,
            estimated: 0,
        });
        let of = EventReport { event: Event::Alloc, allocated, ..EventReport::default() };
        let text = |of: &EventReport| {
            allocations(of, &profile.of_event(Event::Alloc), Detail { width: 80, ..Detail::default() })
                .join("\n")
        };
        let section = text(&of);
        assert!(section.starts_with("Allocated             5.0 MiB, and 1 KiB not asked for (other JVMs with the same libjvm.so, or -I and -X)\n"), "{section}");
        assert!(section.contains("75.0 %  3.0 MiB    3,072        3  int[]\n"), "{section}");
        assert!(section.ends_with("25.0 %  1.0 MiB    1,024        1  a.B"), "{section}");
        let native = text(&EventReport { event: Event::NativeAlloc, ..of.clone() });
        assert!(
            native.starts_with("Allocated             5.0 MiB in 12,345 calls, and 1 KiB not asked for\n"),
            "{native}"
        );
        let with = |profiled, estimated| {
            let allocated = AllocatedBytes { profiled, estimated, ..AllocatedBytes::default() };
            let lines = text(&EventReport { allocated: Some(allocated), ..of.clone() });
            lines.lines().next().unwrap_or_default().to_owned()
        };
        let estimated = "3.0 MiB estimated: JVMs chose the samples";
        assert_eq!(with(0, 3 << 20), format!("Allocated             {estimated}"));
        assert_eq!(with(5 << 20, 3 << 20), format!("Allocated             5.0 MiB, and {estimated}"));
        assert_eq!(text(&EventReport::default()), "");
    }
}
