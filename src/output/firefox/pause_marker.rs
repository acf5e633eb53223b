//! Pauses of JVMs as markers of the Firefox Profiler.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, Profile, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle,
};

use crate::profile::pauses::PauseTotals;

/// A marker of the Firefox Profiler for the pauses in one second, or in the whole of a profile that does not distinguish
/// seconds.
pub(super) struct PauseMarker {
    pub(super) name: StringHandle,
    pub(super) category: CategoryHandle,
    pub(super) totals: PauseTotals,
}

const fn field(key: &'static str, label: &'static str, format: MarkerFieldFormat) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField { key, label, format, flags: MarkerFieldFlags::empty() }
}

impl StaticSchemaMarker for PauseMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "JvmPauses";
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.safepointTime}");
    const TOOLTIP_LABEL: Option<&'static str> =
        Some("{marker.name}: {marker.data.safepointTime} in this time");
    const TABLE_LABEL: Option<&'static str> =
        Some("{marker.data.safepointTime} of {marker.data.safepoints} safepoints");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        field("safepoints", "Safepoints", MarkerFieldFormat::Integer),
        field("safepointTime", "Time at safepoints", MarkerFieldFormat::Duration),
        field("collections", "Collections", MarkerFieldFormat::Integer),
        field("collectionTime", "Time of collections", MarkerFieldFormat::Duration),
    ];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.name
    }

    /// Durations are in milliseconds.
    fn number_field_value(&self, field: u32) -> f64 {
        match field {
            0 => self.totals.safepoints as f64,
            1 => self.totals.safepoint_usec as f64 / 1000.0,
            2 => self.totals.collections as f64,
            _ => self.totals.collection_usec as f64 / 1000.0,
        }
    }
}
