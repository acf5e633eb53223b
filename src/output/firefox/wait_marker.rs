//! Waits as markers of the Firefox Profiler.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, Profile, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle,
};

/// A marker of the Firefox Profiler for one wait.
pub(super) struct WaitMarker {
    /// What the thread did.
    pub(super) name: StringHandle,
    pub(super) reason: StringHandle,
    pub(super) category: CategoryHandle,
    pub(super) samples: u64,
}

impl StaticSchemaMarker for WaitMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Wait";
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.reason}");
    const TOOLTIP_LABEL: Option<&'static str> = Some("{marker.name}: {marker.data.reason}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.reason}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        StaticSchemaMarkerField {
            key: "reason",
            label: "Reason",
            format: MarkerFieldFormat::String,
            flags: MarkerFieldFlags::SEARCHABLE,
        },
        StaticSchemaMarkerField {
            key: "samples",
            label: "Samples",
            format: MarkerFieldFormat::Integer,
            flags: MarkerFieldFlags::empty(),
        },
    ];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.reason
    }

    fn number_field_value(&self, _: u32) -> f64 {
        self.samples as f64
    }
}
