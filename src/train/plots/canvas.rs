//! What the plots are drawn with: colours, sizes, axes, curves, legends, and the file.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::{Error, Result};
use crate::graph::formats::atomic_write;

/// Colours that stay apart with any colour vision (Okabe and Ito, 2008), the most distinct first.
pub(super) const PALETTE: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
const INK: RGBColor = RGBColor(40, 40, 40);
const FAINT: RGBColor = RGBColor(228, 228, 228);
const REFERENCE: RGBColor = RGBColor(130, 130, 130);

pub(super) const WIDTH: u32 = 760;
pub(super) const HEIGHT: u32 = 520;
/// Both axes of these plots are shares, so the plot is about square.
pub(super) const SQUARE: (u32, u32) = (640, 620);
const FONT: &str = "Helvetica, Arial, 'DejaVu Sans', sans-serif";
/// The SVG backend divides sizes by 1.24: 17 is about 14 px on the screen.
const TEXT: i32 = 17;
const TITLE: i32 = 22;

pub(super) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
pub(super) type Drawn<T = ()> = std::result::Result<T, DrawingAreaErrorKind<io::Error>>;

/// Draws on a white canvas below the title and writes the file.
pub(super) fn draw(path: &Path, title: &str, size: (u32, u32), content: impl FnOnce(&Canvas) -> Drawn) -> Result<()> {
    let mut svg = String::new();
    {
        let canvas = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = canvas.fill(&WHITE).and_then(|()| {
            let style = (FONT, TITLE).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Top));
            canvas.draw_text(title, &style, (24, 16))?;
            content(&canvas.margin(44, 12, 12, 24))?;
            canvas.present()
        });
        drawn.map_err(|error| Error::io(path, "draw", io::Error::other(error.to_string())))?;
    }
    atomic_write(path, |file| file.write_all(svg.as_bytes()))
}

pub(super) struct Axis<'a> {
    pub name: &'a str,
    pub range: Range<f64>,
}

impl<'a> Axis<'a> {
    /// An axis for shares; a little past 1, so a curve along the border stays visible.
    pub fn share(name: &'a str) -> Self {
        Self { name, range: 0.0..1.005 }
    }
}

pub(super) fn axes<'a, 'b>(
    canvas: &'a Canvas<'b>,
    x: Axis,
    y: Axis,
    x_label: &dyn Fn(&f64) -> String,
    y_label: &dyn Fn(&f64) -> String,
) -> Drawn<Plot<'a, 'b>> {
    let mut plot = ChartBuilder::on(canvas)
        .x_label_area_size(48)
        .y_label_area_size(70)
        .margin_right(8)
        .build_cartesian_2d(x.range, y.range)?;
    plot.configure_mesh()
        .x_desc(x.name)
        .y_desc(y.name)
        .x_labels(11)
        .y_labels(8)
        .x_label_formatter(x_label)
        .y_label_formatter(y_label)
        .label_style((FONT, TEXT).into_font().color(&INK))
        .axis_desc_style((FONT, TEXT).into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(plot)
}

pub(super) fn curve<'a, 'b: 'a>(
    plot: &mut Plot<'a, 'b>,
    name: &str,
    points: impl Iterator<Item = (f64, f64)>,
    colour: RGBColor,
) -> Drawn {
    let mut last = None;
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for point in points.filter(|point| is_drawable(point.0) && is_drawable(point.1)) {
        let pixel = plot.backend_coord(&point);
        if last != Some(pixel) {
            kept.push(point);
            last = Some(pixel);
        }
    }
    // A single epoch has no line; a dot shows that it is there.
    if let [point] = kept[..] {
        plot.draw_series([Circle::new(point, 3, colour.filled())])?.label(name).legend(sample(colour));
    } else {
        plot.draw_series(LineSeries::new(kept, colour.stroke_width(2)))?.label(name).legend(sample(colour));
    }
    Ok(())
}

/// A dashed line from one point to the other.
pub(super) fn reference<'a, 'b: 'a>(plot: &mut Plot<'a, 'b>, name: &str, line: [(f64, f64); 2]) -> Drawn {
    let [(x0, y0), (x1, y1)] = line;
    const DASHES: usize = 40;
    let at = |part: f64| (x0 + (x1 - x0) * part, y0 + (y1 - y0) * part);
    let dashes = (0..DASHES).map(|dash| {
        let start = dash as f64 / DASHES as f64;
        PathElement::new(vec![at(start), at(start + 0.6 / DASHES as f64)], REFERENCE.stroke_width(2))
    });
    plot.draw_series(dashes)?.label(name).legend(|(x, y)| {
        let dash = |from: i32, to: i32| PathElement::new(vec![(x + from, y), (x + to, y)], REFERENCE.stroke_width(2));
        EmptyElement::at((0, 0)) + dash(0, 8) + dash(14, 22)
    });
    Ok(())
}

pub(super) fn sample(colour: RGBColor) -> impl Fn((i32, i32)) -> PathElement<(i32, i32)> {
    move |(x, y)| PathElement::new(vec![(x, y), (x + 22, y)], colour.stroke_width(3))
}

pub(super) fn legend<'a, 'b: 'a>(plot: &mut Plot<'a, 'b>, position: SeriesLabelPosition) -> Drawn {
    plot.configure_series_labels()
        .position(position)
        .margin(12)
        .legend_area_size(30)
        .label_font((FONT, TEXT).into_font().color(&INK))
        .background_style(WHITE.mix(0.85))
        .border_style(FAINT)
        .draw()
}

/// Whether an axis can hold the value: finite, and far enough from the limits of f64 that a range has a width.
pub(super) fn is_drawable(value: f64) -> bool {
    value.abs() <= 1e100
}

/// The range of the drawable values, widened by `share` of itself on both sides; [0, 1] without any, never empty.
pub(super) fn padded(values: impl Iterator<Item = f64>, share: f64) -> Range<f64> {
    let values = values.filter(|&value| is_drawable(value));
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return 0.0..1.0;
    }
    let width = high - low;
    // Also too narrow for an axis: a width within the rounding of the values themselves.
    if width <= 1e-9 * high.abs().max(low.abs()).max(1e-3) {
        let half = 0.5 * high.abs().max(1.0);
        return low - half..high + half;
    }
    low - share * width..high + share * width
}

/// A number with as many decimals as a linear axis needs.
pub(super) fn decimals(value: &f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    match rounded.abs() {
        0.0 => "0".into(),
        size if size >= 1e5 => format!("{rounded:.1e}"),
        size if size >= 10.0 => trimmed(format!("{rounded:.1}")),
        size if size >= 1e-3 => trimmed(format!("{rounded:.4}")),
        _ => format!("{value:.1e}"),
    }
}

/// A positive number with two significant digits, for a logarithmic axis.
pub(super) fn two_digits(value: f64) -> String {
    match value.log10().floor() {
        power if (-3.0..1.0).contains(&power) => trimmed(format!("{value:.0$}", (1.0 - power) as usize)),
        power if (1.0..5.0).contains(&power) => format!("{value:.0}"),
        _ => format!("{value:.1e}"),
    }
}

/// A whole number, and nothing between: there is no half epoch.
pub(super) fn whole(value: &f64) -> String {
    if (value - value.round()).abs() < 1e-6 { format!("{value:.0}") } else { String::new() }
}

fn trimmed(number: String) -> String {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_labels_have_the_digits_they_need() {
        let labels = [0.0, 0.25, 1.0, 100.0, 0.0125, 2e-5, -0.5].map(|value| decimals(&value));
        assert_eq!(labels, ["0", "0.25", "1", "100", "0.0125", "2.0e-5", "-0.5"]);
        assert_eq!([1.0, 0.0316228, 31.62, 1e-7].map(two_digits), ["1", "0.032", "32", "1.0e-7"]);
        assert_eq!([1.5, 20.0].map(|value| whole(&value)), ["", "20"]);
    }
}
