//! What pictures share: colors, letters, headings, names with their color.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::size::format_count;

pub const FONT: &str = "Helvetica, Arial, sans-serif";
pub const INK: RGBColor = RGBColor(38, 50, 56);
pub const FAINT: RGBColor = RGBColor(222, 226, 230);
pub const BLUE: RGBColor = RGBColor(31, 119, 180);
pub const ORANGE: RGBColor = RGBColor(230, 126, 34);
pub const RED: RGBColor = RGBColor(192, 57, 43);
pub const GREEN: RGBColor = RGBColor(39, 140, 90);
pub const VIOLET: RGBColor = RGBColor(125, 90, 170);

/// A part of a picture.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// What drawing returns.
pub type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Letters of this size.
pub fn text(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// A large line and a small one below it.
pub fn draw_heading(area: &Area<'_>, heading: String, details: String) -> Drawn {
    area.draw(&Text::new(heading, (20, 14), text(22)))?;
    let faint = (FONT, 14).into_font().color(&INK.mix(0.75));
    area.draw(&Text::new(details, (20, 42), faint))?;
    Ok(())
}

/// A name behind a square of its color.
pub fn draw_name(area: &Area<'_>, at: (i32, i32), color: RGBColor, name: &str) -> Drawn {
    let (x, y) = at;
    area.draw(&Rectangle::new([(x, y), (x + 12, y + 10)], color.filled()))?;
    area.draw(&Text::new(name, (x + 18, y - 2), text(13)))?;
    Ok(())
}

/// A number of an axis, short.
pub fn format_tick(value: f64) -> String {
    if value >= 1000.0 {
        format_count(value.round() as u64)
    } else if value >= 10.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
