//! A node, its strongest neighbours and theirs as one SVG picture.

mod layout;

use maud::{Markup, PreEscaped, html};

use self::layout::{Group, Layout, Outer, Spot, WIDTH};
use super::explanation::{Explanation, NeighbourPart};

/// Colours are those of the page that the picture stands in, where it defines them; else they follow light and dark by
/// themselves. Each is given twice, for programs that know no variables.
const STYLE: &str = "
.neighbourhood-drawing{--n-paper:var(--paper,#fdfdfc);--n-ink:var(--ink,#1c1b19);--n-quiet:var(--quiet,#5d5a54);
--n-raises:var(--anomalous,#b63c0c);--n-lowers:var(--normal,#1f66a8);
font-family:system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif;font-size:13px}
@media (prefers-color-scheme:dark){.neighbourhood-drawing{--n-paper:var(--paper,#161513);--n-ink:var(--ink,#ece9e2);
--n-quiet:var(--quiet,#a9a49a);--n-raises:var(--anomalous,#ff8a57);
--n-lowers:var(--normal,#79b4ec)}}
.neighbourhood-drawing .n-paper{fill:#fdfdfc;fill:var(--n-paper)}
.neighbourhood-drawing text{fill:#1c1b19;fill:var(--n-ink);stroke:#fdfdfc;stroke:var(--n-paper);stroke-width:4px;
stroke-linejoin:round;paint-order:stroke}
.neighbourhood-drawing .n-quiet{fill:#5d5a54;fill:var(--n-quiet);font-size:11.5px}
.neighbourhood-drawing .n-relation{fill:#5d5a54;fill:var(--n-quiet);font-size:12px;font-weight:600;letter-spacing:.04em}
.neighbourhood-drawing .n-name{font-weight:600;font-size:16px}
.neighbourhood-drawing .n-letter{text-anchor:middle;font-weight:600;stroke:none;font-size:11px}
.neighbourhood-drawing .n-end{text-anchor:end}
.neighbourhood-drawing .n-middle{text-anchor:middle}
.neighbourhood-drawing .n-raises{stroke:#b63c0c;stroke:var(--n-raises);fill:none;stroke-linecap:round}
.neighbourhood-drawing .n-lowers{stroke:#1f66a8;stroke:var(--n-lowers);fill:none;stroke-dasharray:7 5}
.neighbourhood-drawing .n-node{fill:#fdfdfc;fill:var(--n-paper);stroke:#1c1b19;stroke:var(--n-ink);stroke-width:1.5}
.neighbourhood-drawing .n-score{fill:#b63c0c;fill:var(--n-raises)}
.neighbourhood-drawing .n-known{fill:none;stroke:#b63c0c;stroke:var(--n-raises);stroke-width:2}
";

/// Widths of the strongest and of the weakest edge, in pixels.
const WIDEST: f64 = 9.0;
const NARROWEST: f64 = 1.2;
/// Characters of an id that are shown; all of them are in the title of the node.
const LONGEST_ID: usize = 20;

/// Draws the neighbourhood that an explanation tells of: the node in the middle, its strongest neighbours around it by
/// relation, their strongest neighbours outside. The width of an edge is the size of what it adds, its colour and
/// dashes the sign; the shape and the letter of a node are its type, its filling its own score, a ring marks known
/// anomalies, or nodes known to be of the class.
///
/// The picture needs nothing else: it can stand alone in a file or inside an HTML page. Every text of the data is
/// escaped.
pub fn neighbourhood(explanation: &Explanation) -> String {
    let layout = Layout::of(explanation);
    let drawing = Drawing { of: explanation, scale: scale(explanation), types: types(explanation) };
    let height = layout.height;
    let title = format!("Neighbourhood of {}", explanation.name);
    html! {
        svg.neighbourhood-drawing xmlns="http://www.w3.org/2000/svg"
            viewBox=(format!("0 0 {WIDTH} {height}")) role="img"
            aria-labelledby=(format!("neighbourhood-{0}-title neighbourhood-{0}-desc", explanation.node)) {
            title id=(format!("neighbourhood-{}-title", explanation.node)) { (clean(&title)) }
            desc id=(format!("neighbourhood-{}-desc", explanation.node)) { (clean(&drawing.description())) }
            style { (PreEscaped(STYLE)) }
            rect.n-paper width=(WIDTH) height=(height) {}
            (drawing.head())
            @for group in &layout.groups { (drawing.edges(group, &layout)) }
            @for group in &layout.groups { (drawing.nodes(group)) }
            (drawing.centre(&layout))
            (drawing.legend(&layout))
        }
    }
    .into_string()
}

struct Drawing<'a> {
    of: &'a Explanation,
    /// Pixels per unit of a contribution.
    scale: f64,
    /// Names of node types; the place of a type is its shape.
    types: Vec<&'a str>,
}

impl Drawing<'_> {
    fn description(&self) -> String {
        let of = self.of;
        let strongest: Vec<String> =
            of.neighbours.iter().take(5).map(|part| format!("{} {:+.3}", part.name, part.contribution)).collect();
        let neighbours = match strongest.is_empty() {
            true => "It has no neighbours.".into(),
            false => format!("Strongest neighbours: {}.", strongest.join(", ")),
        };
        format!("Score {:.3}; {} {:+.3}. {neighbours}", of.score, of.unit, of.sum)
    }

    fn head(&self) -> Markup {
        let of = self.of;
        let probability = of.probability.map(|p| format!(", probability {p:.2}")).unwrap_or_default();
        let own = if of.own == 0.0 { String::new() } else { format!(", {} for itself", signed(of.own)) };
        let edges = match of.method.additive {
            true => "the rest for the edges",
            false => "the rest for its columns; an edge is what the sum loses without it",
        };
        let sum = format!("{} {}: {} for any node{own}, {edges}", of.unit, signed(of.sum), signed(of.base));
        html! {
            text.n-name x="20" y="32" { title { (clean(&of.name)) } (clean(&shortened(&of.name, 60))) }
            text x="20" y="54" { (format!("score {:.3}{probability}", of.score)) }
            text.n-quiet x="20" y="74" { (sum) }
        }
    }

    /// `turn` is the share of the way on which the edge goes straight ahead, past the texts beside it.
    fn edge(&self, from: (f64, f64), to: (f64, f64), turn: f64, contribution: f64, title: &str) -> Markup {
        let width = (contribution.abs() * self.scale).clamp(NARROWEST, WIDEST);
        let class = if contribution < 0.0 { "n-lowers" } else { "n-raises" };
        let ((x, y), (u, v)) = (from, to);
        let bend = x + (u - x) * turn;
        let path = format!("M{x:.1} {y:.1}C{bend:.1} {y:.1} {bend:.1} {v:.1} {u:.1} {v:.1}");
        html! { path class=(class) d=(path) stroke-width=(format!("{width:.2}")) { title { (clean(title)) } } }
    }

    fn edges(&self, group: &Group, layout: &Layout) -> Markup {
        let edge_of = |spot: &Spot| {
            let part = &self.of.neighbours[spot.neighbour];
            let title = format!("{} over {}: {:+.4}", part.name, part.relation, part.contribution);
            self.edge((layout.x, layout.y), (spot.x, spot.y), 0.55, part.contribution, &title)
        };
        let outer = |spot: &Spot, outer: &Outer| {
            let part = &self.of.neighbours[spot.neighbour];
            let path = &part.paths[outer.path];
            let title = format!("{} over {} to {}: {:+.4}", path.name, path.relation, part.name, path.contribution);
            self.edge((spot.x, spot.y), (outer.x, outer.y), 0.93, path.contribution, &title)
        };
        html! {
            @for spot in &group.spots {
                (edge_of(spot))
                @for place in &spot.outer { (outer(spot, place)) }
            }
        }
    }

    fn nodes(&self, group: &Group) -> Markup {
        let end = if group.side < 0.0 { " n-end" } else { "" };
        let side = group.side;
        html! {
            text class=(format!("n-relation{end}")) x=(coordinate(group.x + 14.0 * side)) y=(coordinate(group.y)) {
                (clean(&group.relation))
            }
            @for spot in &group.spots {
                @let part = &self.of.neighbours[spot.neighbour];
                @for outer in &spot.outer {
                    @let path = &part.paths[outer.path];
                    @let own = path.node == self.of.node;
                    @let id = if own { "this node".into() } else { shortened(id_of(&path.name), LONGEST_ID) };
                    g {
                        title { (clean(&self.about(&path.name, path.score, path.label))) }
                        (self.node(&path.name, outer.x, outer.y, 5.5, path.score, path.label))
                        @let x = coordinate(outer.x + 13.0 * side);
                        text class=(format!("n-quiet{end}")) x=(x) y=(coordinate(outer.y + 4.0)) {
                            (clean(&id))
                        }
                    }
                }
                g {
                    title { (clean(&self.about(&part.name, part.score, part.label))) }
                    (self.node(&part.name, spot.x, spot.y, 10.0, part.score, part.label))
                    @let x = coordinate(spot.x + 16.0 * side);
                    text class=(end.trim_start()) x=(x) y=(coordinate(spot.y - 9.0)) {
                        (clean(&shortened(id_of(&part.name), LONGEST_ID)))
                    }
                    text class=(format!("n-quiet{end}")) x=(x) y=(coordinate(spot.y + 18.0)) {
                        (figures(part, self.of.method.additive))
                    }
                }
            }
        }
    }

    fn centre(&self, layout: &Layout) -> Markup {
        let of = self.of;
        html! {
            g {
                title { (clean(&self.about(&of.name, Some(of.score), None))) }
                (self.node(&of.name, layout.x, layout.y, 22.0, Some(of.score), None))
            }
            text.n-middle x=(coordinate(layout.x)) y=(coordinate(layout.y + 44.0)) {
                (clean(&shortened(&of.id, LONGEST_ID)))
            }
        }
    }

    /// The mark of a node: its type as shape and letter, its score as filling.
    fn node(&self, name: &str, x: f64, y: f64, r: f64, score: Option<f32>, label: Option<u8>) -> Markup {
        let shape = self.types.iter().position(|kind| *kind == kind_of(name)).unwrap_or(0);
        let opacity = format!("{:.2}", 0.75 * score.unwrap_or(0.0).clamp(0.0, 1.0));
        let letter = kind_of(name).chars().next().unwrap_or(' ').to_uppercase().to_string();
        html! {
            @if label == Some(1) { circle.n-known cx=(coordinate(x)) cy=(coordinate(y)) r=(coordinate(r + 4.5)) {} }
            (outline(shape, x, y, r, "n-node", None))
            (outline(shape, x, y, r - 0.75, "n-score", Some(&opacity)))
            @if r > 8.0 { text.n-letter x=(coordinate(x)) y=(coordinate(y + 4.0)) { (clean(&letter)) } }
        }
    }

    fn about(&self, name: &str, score: Option<f32>, label: Option<u8>) -> String {
        let score = score.map(|score| format!(", score {score:.3}")).unwrap_or_default();
        let known = self.of.known(label).map(|[_, known]| format!(", {known}")).unwrap_or_default();
        format!("{name}{score}{known}")
    }

    fn legend(&self, layout: &Layout) -> Markup {
        let y = layout.legend;
        let mut x = 26.0;
        let mut advance = |text: &str, mark: f64| {
            let at = x;
            x += mark + 26.0 + 6.2 * text.chars().count() as f64;
            at
        };
        let items: Vec<(f64, &str)> = self.types.iter().map(|kind| (advance(kind, 10.0), *kind)).collect();
        let ringed = self.of.known(Some(1)).map_or("", |[_, known]| known);
        let known = advance(ringed, 14.0);
        let full = advance("filling: its own score", 12.0);
        let [raises, lowers] = ["raises the score", "lowers it"].map(|text| advance(text, 34.0));
        let mut notes: Vec<String> = Vec::new();
        let hidden = self.of.more_neighbours + self.of.neighbours.len() - layout.shown();
        if hidden > 0 {
            let drawn = |part: &NeighbourPart| part.contribution;
            let rest: f64 = self.of.rest + self.of.neighbours.iter().skip(layout.shown()).map(drawn).sum::<f64>();
            let adds = if self.of.method.additive { format!(", together {}", signed(rest)) } else { String::new() };
            notes.push(format!("{hidden} more neighbours are not drawn{adds}"));
        }
        let note = match self.of.method.additive {
            true => {
                "what edges add sums up; \u{201c}without it\u{201d} is how the sum changes when the neighbour is \
                 removed: that does not"
            }
            false => "what edges add does not sum up",
        };
        notes.push(note.to_owned());
        html! {
            @for (shape, (x, kind)) in items.iter().enumerate() {
                (outline(shape, *x, y - 4.0, 6.0, "n-node", None))
                text.n-quiet x=(coordinate(x + 13.0)) y=(coordinate(y)) { (clean(kind)) }
            }
            circle.n-node cx=(coordinate(known)) cy=(coordinate(y - 4.0)) r="4.5" {}
            circle.n-known cx=(coordinate(known)) cy=(coordinate(y - 4.0)) r="8" {}
            text.n-quiet x=(coordinate(known + 15.0)) y=(coordinate(y)) { (ringed) }
            circle.n-node cx=(coordinate(full)) cy=(coordinate(y - 4.0)) r="6" {}
            circle.n-score cx=(coordinate(full)) cy=(coordinate(y - 4.0)) r="5.25" fill-opacity="0.75" {}
            text.n-quiet x=(coordinate(full + 13.0)) y=(coordinate(y)) { "filling: its own score" }
            @for (x, class, text) in [(raises, "n-raises", "raises the score"), (lowers, "n-lowers", "lowers it")] {
                path class=(class) d=(format!("M{:.1} {:.1}h26", x - 6.0, y - 4.0)) stroke-width="4" {}
                text.n-quiet x=(coordinate(x + 27.0)) y=(coordinate(y)) { (text) }
            }
            @for (line, note) in notes.iter().enumerate() {
                text.n-quiet x="20" y=(coordinate(y + 22.0 + 18.0 * line as f64)) { (note) }
            }
        }
    }
}

/// What a neighbour adds, and how the sum changes without it where that is another number.
fn figures(part: &NeighbourPart, additive: bool) -> String {
    match part.removal.filter(|_| additive) {
        Some(removal) => format!("{}, without it {}", signed(part.contribution), signed(-removal)),
        None => signed(part.contribution),
    }
}

/// With a minus that is as wide as a plus.
fn signed(value: f64) -> String {
    format!("{value:+.3}").replace('-', "\u{2212}")
}

/// So that the strongest edge has the greatest width.
fn scale(of: &Explanation) -> f64 {
    let strongest = of.neighbours.iter().map(|part| part.contribution.abs()).fold(0.0, f64::max);
    if strongest > 0.0 && strongest.is_finite() { WIDEST / strongest } else { 0.0 }
}

/// The node types of the picture by name: shapes stay the same from node to node.
fn types(of: &Explanation) -> Vec<&str> {
    let around = of
        .neighbours
        .iter()
        .flat_map(|part| std::iter::once(kind_of(&part.name)).chain(part.paths.iter().map(|path| kind_of(&path.name))));
    let mut types: Vec<&str> = std::iter::once(of.kind.as_str()).chain(around).collect();
    types.sort_unstable();
    types.dedup();
    types
}

/// Names of types hold no colon, ids may.
fn kind_of(name: &str) -> &str {
    name.split_once(':').map_or(name, |(kind, _)| kind)
}

fn id_of(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, id)| id)
}

/// Start and end of a text that is too long.
fn shortened(text: &str, longest: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= longest {
        return text.to_owned();
    }
    let end = longest / 3;
    let start = longest - end - 1;
    let of = |part: &[char]| part.iter().collect::<String>();
    format!("{}\u{2026}{}", of(&characters[..start]), of(&characters[characters.len() - end..]))
}

/// Without the characters that XML cannot hold, not even escaped.
fn clean(text: &str) -> String {
    let holds = |c: char| matches!(c, '\t' | '\n' | '\r') || (c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}'));
    text.chars().map(|c| if holds(c) { c } else { '\u{fffd}' }).collect()
}

fn coordinate(value: f64) -> String {
    format!("{value:.1}")
}

/// A circle, or a polygon of the same size for every further type.
fn outline(shape: usize, x: f64, y: f64, r: f64, class: &str, opacity: Option<&str>) -> Markup {
    // Corners, and the turn of the first one from the top.
    let (corners, turn) = match shape % 6 {
        0 => {
            let (x, y, r) = (coordinate(x), coordinate(y), format!("{r:.2}"));
            return html! { circle class=(class) cx=(x) cy=(y) r=(r) fill-opacity=[opacity] {} };
        }
        1 => (4, 0.125),
        2 => (3, 0.0),
        3 => (4, 0.0),
        4 => (6, 0.0),
        _ => (5, 0.0),
    };
    let reach = if corners == 3 { 1.4 } else { 1.22 } * r;
    let corner = |k: usize| {
        let (sin, cos) = (std::f64::consts::TAU * (k as f64 / corners as f64 + turn)).sin_cos();
        format!("{:.1},{:.1}", x + reach * sin, y - reach * cos)
    };
    let points: Vec<String> = (0..corners).map(corner).collect();
    html! { polygon class=(class) points=(points.join(" ")) fill-opacity=[opacity] {} }
}

#[cfg(test)]
mod tests;
