//! Where everything stands: the node in the middle, its neighbours in rows to its right and left, theirs beside them.

use super::super::explanation::{Explanation, NeighbourPart};

pub(super) const WIDTH: f64 = 1120.0;
/// Above and below the picture.
const HEAD: f64 = 92.0;
const FOOT: f64 = 84.0;
/// Rows of a neighbour and of a path, and the name of a relation.
const NEIGHBOUR: f64 = 44.0;
const PATH: f64 = 19.0;
const RELATION: f64 = 30.0;
/// From the node to its neighbours at the top and in the middle of the picture, and on to theirs.
const NEAR: f64 = 130.0;
const BULGE: f64 = 70.0;
const OUT: f64 = 200.0;

/// All places.
pub(super) struct Layout {
    pub height: f64,
    /// The node.
    pub x: f64,
    pub y: f64,
    pub groups: Vec<Group>,
    /// Base line of the legend.
    pub legend: f64,
}

/// Neighbours over one relation on one side.
pub(super) struct Group {
    pub relation: String,
    /// -1 on the left, 1 on the right.
    pub side: f64,
    /// Of the relation's name.
    pub x: f64,
    pub y: f64,
    pub spots: Vec<Spot>,
}

/// A neighbour, by its place in the explanation.
pub(super) struct Spot {
    pub neighbour: usize,
    pub x: f64,
    pub y: f64,
    pub outer: Vec<Outer>,
}

/// A neighbour's neighbour, by its place among the paths.
pub(super) struct Outer {
    pub path: usize,
    pub x: f64,
    pub y: f64,
}

impl Layout {
    pub fn of(explanation: &Explanation) -> Self {
        let parts = &explanation.neighbours;
        let paths = if parts.len() <= 8 { 3 } else { 2 };
        let drawn = |at: usize| parts[at].paths.len().min(paths);
        let row = |at: usize| NEIGHBOUR.max(12.0 + PATH * drawn(at) as f64);
        let [right, left] = sides(parts, row);
        let height_of = |side: &[Vec<usize>]| -> f64 {
            side.iter().map(|group| RELATION + group.iter().map(|&at| row(at)).sum::<f64>()).sum()
        };
        let tallest = height_of(&right).max(height_of(&left)).max(150.0);
        let (x, y) = (WIDTH / 2.0, HEAD + tallest / 2.0);
        let mut groups = Vec::new();
        for (side, of_side) in [(1.0, right), (-1.0, left)] {
            let mut top = y - height_of(&of_side) / 2.0;
            for group in of_side {
                let mut spots = Vec::new();
                let name = top + RELATION * 0.55;
                top += RELATION;
                for at in group {
                    let middle = top + row(at) / 2.0;
                    top += row(at);
                    // On an ellipse, so that edges do not run into each other.
                    let away = (middle - y) / (tallest / 2.0 + NEIGHBOUR);
                    let beside = x + side * (NEAR + BULGE * (1.0 - away * away).max(0.0).sqrt());
                    let outer = (0..drawn(at)).map(|path| Outer {
                        path,
                        x: beside + side * OUT,
                        y: middle + PATH * (path as f64 - (drawn(at) as f64 - 1.0) / 2.0),
                    });
                    spots.push(Spot { neighbour: at, x: beside, y: middle, outer: outer.collect() });
                }
                let relation = parts[spots[0].neighbour].relation.clone();
                groups.push(Group { relation, side, x: spots[0].x, y: name, spots });
            }
        }
        Self { height: HEAD + tallest + FOOT, x, y, groups, legend: HEAD + tallest + 30.0 }
    }

    /// Neighbours that have a place.
    pub fn shown(&self) -> usize {
        self.groups.iter().map(|group| group.spots.len()).sum()
    }
}

/// The neighbours by relation, that with the strongest one first: the right side from the top until it holds half of
/// all rows, then the left side.
fn sides(parts: &[NeighbourPart], row: impl Fn(usize) -> f64) -> [Vec<Vec<usize>>; 2] {
    let mut relations: Vec<&str> = Vec::new();
    for part in parts {
        if !relations.contains(&part.relation.as_str()) {
            relations.push(&part.relation);
        }
    }
    let half = (0..parts.len()).map(&row).sum::<f64>() / 2.0;
    let (mut sides, mut filled) = ([Vec::new(), Vec::new()], 0.0);
    for relation in relations {
        let mut last = None;
        for at in (0..parts.len()).filter(|&at| parts[at].relation == relation) {
            let side = usize::from(filled >= half);
            filled += row(at);
            match (last == Some(side), sides[side].last_mut()) {
                (true, Some(group)) => Vec::push(group, at),
                _ => sides[side].push(vec![at]),
            }
            last = Some(side);
        }
    }
    sides
}
