//! Charts as SVG text: axes, lines, steps, dots with whiskers. Colours and fonts are CSS classes: a page that holds a
//! chart gives them its own, and a file of charts ([`page`]) has those of `style.css` beside this file.
//!
//! A curve keeps at most four points per pixel column, so a chart stays small for millions of nodes.

mod scale;

use std::fmt::Write;

pub(crate) use scale::{Axis, is_drawable};

/// Colours and fonts of a file.
const STYLE: &str = include_str!("style.css");

/// Room for the title of a file above its charts, and around them.
const HEAD: f64 = 34.0;
const BORDER: f64 = 12.0;

/// Size of the drawing, and of the margins around the plot.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 268.0;
const LEFT: f64 = 42.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 40.0;

/// Least distance of two lines of text, and about the width of a letter.
const LINE: f64 = 15.0;
const LETTER: f64 = 6.3;

/// What a mark stands for: the CSS class that gives it its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    Model,
    Second,
    Baseline,
    Chance,
    All,
    Normal,
    Anomalous,
}

impl Ink {
    fn class(self) -> &'static str {
        match self {
            Ink::Model => "model",
            Ink::Second => "second",
            Ink::Baseline => "baseline",
            Ink::Chance => "chance",
            Ink::All => "all",
            Ink::Normal => "normal",
            Ink::Anomalous => "anomalous",
        }
    }
}

/// Where the key of a chart stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Corner {
    TopLeft,
    TopRight,
    BottomLeft,
    BottomRight,
}

/// Something that is drawn inside the axes.
#[derive(Debug, Clone)]
pub(crate) enum Mark {
    /// A polyline.
    Line { points: Vec<(f64, f64)>, ink: Ink, name: String },
    /// A step line over bins of one width, filled down to the axis.
    Steps { low: f64, high: f64, heights: Vec<f64>, ink: Ink, name: String },
    /// Dots (x, y) with whiskers from the third to the fourth value of y.
    Dots { points: Vec<[f64; 4]>, ink: Ink, name: String },
    /// A single point with a text beside it.
    Point { x: f64, y: f64, ink: Ink, text: String },
    /// A vertical line with a text above it.
    Rule { x: f64, text: String },
}

/// A chart.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// Unique on the page: ids are made of it.
    pub id: String,
    pub title: String,
    /// What the chart shows, in a sentence for those who do not see it.
    pub description: String,
    pub x: Axis,
    pub y: Axis,
    /// Where the key stands if no other corner is emptier.
    pub key: Corner,
    pub marks: Vec<Mark>,
}

/// A file of its own: `charts` below one another, on white.
pub(crate) fn page(title: &str, charts: &[Chart]) -> String {
    let (width, height) = (WIDTH + 2.0 * BORDER, HEAD + HEIGHT * charts.len() as f64 + BORDER);
    let mut svg = format!(r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" "#);
    let _ = write!(svg, r#"width="{}" height="{}"><style>{STYLE}</style>"#, 1.6 * width, 1.6 * height);
    let _ = write!(svg, r#"<rect class="paper" width="{width}" height="{height}"/>"#);
    text_at(&mut svg, "title", "start", BORDER, 22.0, title);
    for (at, chart) in charts.iter().enumerate() {
        let y = HEAD + HEIGHT * at as f64;
        chart.write(&mut svg, &format!(r#" x="{BORDER}" y="{y}" width="{WIDTH}" height="{HEIGHT}""#));
    }
    svg.push_str("</svg>\n");
    svg
}

impl Chart {
    /// The SVG element.
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        self.write(&mut svg, "");
        svg
    }

    /// The SVG element with `place` among its attributes.
    fn write(&self, svg: &mut String, place: &str) {
        let (id, title, description) = (escaped(&self.id), escaped(&self.title), escaped(&self.description));
        let _ = write!(
            svg,
            r#"<svg class="chart"{place} viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{id}-t {id}-d">"#
        );
        let _ = write!(svg, r#"<title id="{id}-t">{title}</title><desc id="{id}-d">{description}</desc>"#);
        self.axes(svg);
        self.marks.iter().for_each(|mark| self.mark(svg, mark));
        self.keys(svg);
        svg.push_str("</svg>");
    }

    fn px(&self, x: f64) -> f64 {
        LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT)
    }

    fn py(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, svg: &mut String) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for (value, text) in self.y.ticks(5) {
            let y = self.py(value);
            let _ = write!(svg, r#"<path class="grid" d="M{LEFT} {y:.1}H{right}"/>"#);
            text_at(svg, "tick", "end", LEFT - 6.0, y + 4.0, &text);
        }
        for (value, text) in self.x.ticks(6) {
            let x = self.px(value);
            let _ = write!(svg, r#"<path class="axis" d="M{x:.1} {bottom}v4"/>"#);
            text_at(svg, "tick", "middle", x, bottom + 17.0, &text);
        }
        let _ = write!(svg, r#"<path class="axis" d="M{LEFT} {bottom}H{right}"/>"#);
        text_at(svg, "name", "start", 2.0, 13.0, &self.y.name);
        text_at(svg, "name", "end", right, HEIGHT - 5.0, &self.x.name);
    }

    fn mark(&self, svg: &mut String, mark: &Mark) {
        match mark {
            Mark::Line { points, ink, .. } => {
                let pixels = points.iter().filter(|(x, y)| is_drawable(*x) && is_drawable(*y));
                let pixels = thinned(pixels.map(|&(x, y)| (self.px(x), self.py(y))));
                match pixels[..] {
                    // One point has no line; a dot shows that it is there.
                    [(x, y)] => dot(svg, *ink, x, y),
                    _ => {
                        let _ = write!(svg, r#"<path class="line {}" d="{}"/>"#, ink.class(), path(&pixels));
                    }
                }
            }
            Mark::Steps { low, high, heights, ink, .. } => {
                let width = (high - low) / heights.len().max(1) as f64;
                let mut corners = vec![(self.px(*low), self.py(self.y.low))];
                for (at, &height) in heights.iter().enumerate() {
                    let [left, right] = [at, at + 1].map(|at| self.px(low + width * at as f64));
                    corners.extend([(left, self.py(height)), (right, self.py(height))]);
                }
                corners.push((self.px(*high), self.py(self.y.low)));
                let _ = write!(svg, r#"<path class="steps {}" d="{}"/>"#, ink.class(), path(&corners));
            }
            Mark::Dots { points, ink, .. } => {
                for &[x, y, low, high] in points {
                    let (x, low, high) = (self.px(x), self.py(low), self.py(high));
                    let _ = write!(svg, r#"<path class="line {}" d="M{x:.1} {low:.1}V{high:.1}"/>"#, ink.class());
                    dot(svg, *ink, x, self.py(y));
                }
            }
            Mark::Point { x, y, ink, text } => {
                let (x, y) = (self.px(*x), self.py(*y));
                dot(svg, *ink, x, y);
                let (anchor, side) = if x > WIDTH * 0.6 { ("end", -8.0) } else { ("start", 8.0) };
                text_at(svg, "label", anchor, x + side, y + 13.0, text);
            }
            Mark::Rule { x, text } => {
                let x = self.px(*x);
                let _ = write!(svg, r#"<path class="rule" d="M{x:.1} {TOP}V{}"/>"#, HEIGHT - BOTTOM);
                text_at(svg, "label", "middle", x, TOP - 4.0, text);
            }
        }
    }

    /// The corner whose box of this size the fewest points of lines and steps lie in; of equally empty ones the wanted
    /// one.
    fn emptiest(&self, width: f64, height: f64) -> Corner {
        let points: Vec<(f64, f64)> = self.marks.iter().flat_map(|mark| self.along(mark)).collect();
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let covered = |corner: Corner| {
            let x = if matches!(corner, Corner::TopLeft | Corner::BottomLeft) { LEFT } else { right - width };
            let y = if matches!(corner, Corner::TopLeft | Corner::TopRight) { TOP } else { bottom - height - 8.0 };
            // A curve along the border is inside, too.
            let inside =
                |point: &&(f64, f64)| (x..=x + width).contains(&point.0) && (y..=y + height + 8.0).contains(&point.1);
            points.iter().filter(inside).count()
        };
        let corners = [self.key, Corner::TopRight, Corner::TopLeft, Corner::BottomRight, Corner::BottomLeft];
        corners.into_iter().min_by_key(|&corner| covered(corner)).unwrap_or(self.key)
    }

    /// Pixels along a mark.
    fn along(&self, mark: &Mark) -> Vec<(f64, f64)> {
        const PIECES: u32 = 16;
        let corners: Vec<(f64, f64)> = match mark {
            Mark::Line { points, .. } => {
                let drawn = points.iter().filter(|(x, y)| is_drawable(*x) && is_drawable(*y));
                drawn.map(|&(x, y)| (self.px(x), self.py(y))).collect()
            }
            Mark::Dots { points, .. } => {
                return points.iter().map(|point| (self.px(point[0]), self.py(point[1]))).collect();
            }
            Mark::Steps { low, high, heights, .. } => {
                let width = (high - low) / heights.len().max(1) as f64;
                // Bins without a node lie on the axis, where nothing is hidden.
                let filled = heights.iter().enumerate().filter(|(_, height)| **height > self.y.low);
                filled.map(|(at, &height)| (self.px(low + width * (at as f64 + 0.5)), self.py(height))).collect()
            }
            Mark::Point { .. } | Mark::Rule { .. } => Vec::new(),
        };
        let corners = thinned(corners.into_iter());
        let between = |pair: &[(f64, f64)]| {
            let ((x, y), (u, v)) = (pair[0], pair[1]);
            (0..PIECES)
                .map(move |at| f64::from(at) / f64::from(PIECES))
                .map(move |t| (x + (u - x) * t, y + (v - y) * t))
        };
        corners.windows(2).flat_map(between).collect()
    }

    /// Names of the marks, one below the other, each behind a sample.
    fn keys(&self, svg: &mut String) {
        let named: Vec<(Ink, &str)> = self
            .marks
            .iter()
            .filter_map(|mark| match mark {
                Mark::Line { ink, name, .. } | Mark::Steps { ink, name, .. } | Mark::Dots { ink, name, .. } => {
                    (!name.is_empty()).then_some((*ink, name.as_str()))
                }
                Mark::Point { .. } | Mark::Rule { .. } => None,
            })
            .collect();
        let height = LINE * named.len() as f64;
        let longest = named.iter().map(|(_, name)| name.chars().count()).max().unwrap_or(0);
        let corner = self.emptiest(longest as f64 * LETTER + 44.0, height);
        let top = match corner {
            Corner::TopLeft | Corner::TopRight => TOP + 14.0,
            Corner::BottomLeft | Corner::BottomRight => HEIGHT - BOTTOM - height + 4.0,
        };
        let (anchor, text, sample) = match corner {
            Corner::TopLeft | Corner::BottomLeft => ("start", LEFT + 34.0, LEFT + 8.0),
            Corner::TopRight | Corner::BottomRight => ("end", WIDTH - RIGHT - 34.0, WIDTH - RIGHT - 28.0),
        };
        for (at, (ink, name)) in named.into_iter().enumerate() {
            let y = top + LINE * at as f64;
            let _ = write!(svg, r#"<path class="line {}" d="M{sample:.1} {:.1}h20"/>"#, ink.class(), y - 4.0);
            text_at(svg, "key", anchor, text, y, name);
        }
    }
}

fn dot(svg: &mut String, ink: Ink, x: f64, y: f64) {
    let _ = write!(svg, r#"<circle class="dot {}" cx="{x:.1}" cy="{y:.1}" r="3.5"/>"#, ink.class());
}

fn text_at(svg: &mut String, class: &str, anchor: &str, x: f64, y: f64, text: &str) {
    let text = escaped(text);
    let _ = write!(svg, r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
}

fn path(points: &[(f64, f64)]) -> String {
    let mut text = String::new();
    for (at, (x, y)) in points.iter().enumerate() {
        let _ = write!(text, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' });
    }
    text
}

/// The first, lowest, highest and last point of every half pixel column, in their order.
fn thinned(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = points.collect();
    let mut kept = Vec::new();
    for column in points.chunk_by(|a, b| (2.0 * a.0).round() == (2.0 * b.0).round()) {
        let by_height = |a: &(usize, &(f64, f64)), b: &(usize, &(f64, f64))| a.1.1.total_cmp(&b.1.1);
        let lowest = column.iter().enumerate().min_by(by_height).map_or(0, |(at, _)| at);
        let highest = column.iter().enumerate().max_by(by_height).map_or(0, |(at, _)| at);
        let mut places = vec![0, lowest, highest, column.len() - 1];
        places.sort_unstable();
        places.dedup();
        kept.extend(places.into_iter().map(|at| column[at]));
    }
    kept
}

/// `text` inside an element or a quoted attribute of SVG or HTML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(marks: Vec<Mark>) -> Chart {
        Chart {
            id: "roc".into(),
            title: "A <title>".into(),
            description: "Two & more".into(),
            x: Axis::share("x"),
            y: Axis::share("\"y\""),
            key: Corner::BottomRight,
            marks,
        }
    }

    #[test]
    fn a_chart_has_a_title_and_a_description_and_escapes_every_text() {
        let points = vec![(0.0, 0.0), (1.0, 1.0)];
        let svg = chart(vec![Mark::Line { points, ink: Ink::Model, name: "<b>".into() }]).svg();
        for part in [
            r#"role="img" aria-labelledby="roc-t roc-d""#,
            r#"<title id="roc-t">A &lt;title&gt;</title>"#,
            r#"<desc id="roc-d">Two &amp; more</desc>"#,
            "&lt;b&gt;</text>",
            "&quot;y&quot;</text>",
        ] {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
    }

    #[test]
    fn values_lie_where_the_axes_say() {
        let svg = chart(vec![Mark::Point { x: 0.5, y: 0.25, ink: Ink::Model, text: String::new() }]).svg();
        let (x, y) = (LEFT + 0.5 * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - 0.25 * (HEIGHT - TOP - BOTTOM));
        assert!(svg.contains(&format!(r#"cx="{x:.1}" cy="{y:.1}""#)), "{svg}");
    }

    #[test]
    fn a_long_curve_is_thinned_and_keeps_its_peaks() {
        let mut points: Vec<(f64, f64)> = (0..200_000).map(|at| (f64::from(at) / 200_000.0, 0.5)).collect();
        points[77_777].1 = 1.0;
        let svg = chart(vec![Mark::Line { points, ink: Ink::Model, name: String::new() }]).svg();
        assert!(svg.len() < 60_000, "{} bytes", svg.len());
        assert!(svg.contains(&format!(" {TOP:.1}L")), "the peak is drawn");
    }

    #[test]
    fn the_key_stands_in_an_empty_corner() {
        let line = |points: Vec<(f64, f64)>| Mark::Line { points, ink: Ink::Model, name: "a run".into() };
        let place = |marks: Vec<Mark>| chart(marks).emptiest(100.0, 20.0);
        assert_eq!(place(vec![line(vec![(0.0, 0.0), (1.0, 1.0)])]), Corner::BottomRight, "the wanted one is empty");
        assert_eq!(place(vec![line(vec![(0.0, 1.0), (1.0, 0.0)])]), Corner::TopRight);
        assert_eq!(place(vec![line(vec![(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)])]), Corner::TopLeft);
    }

    #[test]
    fn one_point_is_a_dot_and_values_that_are_not_finite_are_left_out() {
        let points = vec![(0.5, 0.5), (0.6, f64::NAN)];
        let svg = chart(vec![Mark::Line { points, ink: Ink::Model, name: String::new() }]).svg();
        assert!(svg.contains("<circle") && !svg.contains("NaN"), "{svg}");
    }
}
