//! The page with both sides: the runs before and after are ranges of its time, which it compares.

use std::io::Write;

use super::format::DiffFormat;
use super::model::Difference;
use crate::compare::Side;
use crate::output::page;
use crate::output::picture_options::{ComparedColumns, PictureOptions};

pub(super) static FORMAT: DiffFormat = DiffFormat { extension: "html", write };

fn write(
    difference: &Difference<'_>,
    picture_options: &PictureOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let title = format!(
        "{} compared with {}",
        difference.files(Side::After).join(", "),
        difference.files(Side::Before).join(", ")
    );
    let columns = ComparedColumns {
        base: difference.pair.columns(Side::Before),
        range: difference.pair.columns(Side::After),
    };
    let picture_options = PictureOptions {
        title: Some(picture_options.title.clone().unwrap_or(title)),
        columns: Some(columns),
        ..picture_options.clone()
    };
    page::write(&[difference.pair.view()], &picture_options, out)
}
