//! The way from some nodes to what they are joined to.

use std::collections::BTreeMap;

use hashbrown::HashTable;

use super::append::Overlay;
use super::draw::{Around, Draw, hash_of};
use super::made::{Layer, MadeRows};
use super::refused::{Fault, Refused};
use super::view::{Carrier, View};
use crate::error::Error;
use crate::splitmix::mix;

/// Nodes by type in the order in which they were found.
pub(super) struct Found {
    pub nodes: Vec<Vec<u32>>,
    /// All of them: type and place among those of the type.
    pub order: Vec<(usize, u32)>,
    /// Their places in `order`, by type.
    numbers: Vec<Vec<u32>>,
    /// Numbers in `order`, by type and number in the graph.
    table: HashTable<u32>,
}

/// Rows of a relation, in the order in which they were gone through.
#[derive(Default)]
pub(super) struct Rows {
    /// Where the row of a node of the destination's type, by its place, begins and ends; later ones have none.
    spans: Vec<[usize; 2]>,
    /// Places of sources.
    col_idx: Vec<u32>,
    carriers: Vec<Carrier>,
}

/// What is gone around a node for.
#[derive(Clone, Copy)]
enum Purpose {
    Score,
    Embedding,
}

/// On the way from targets to what they are joined to.
pub(super) struct Walk<'a> {
    view: View<'a>,
    draw: &'a Draw,
    /// As [`Overlay::unheard_until`] says.
    unheard_until: i64,
    pub found: Found,
    /// By relation.
    pub rows: Vec<Rows>,
    /// By number: what is kept of a node that was asked for it.
    pub made: BTreeMap<u32, MadeRows>,
    /// By number and purpose: how many steps are gone from a node.
    steps: Vec<[usize; 2]>,
    /// By number: whether its rows are there.
    has_rows: Vec<bool>,
    /// Numbers by steps that are to be gone from them.
    waiting: Vec<Vec<(u32, Purpose)>>,
    places: Vec<u32>,
}

/// By which a node is looked up.
fn key_of(node_type: usize, local: u32) -> u64 {
    mix((node_type as u64) << 32 | u64::from(local))
}

impl Found {
    pub fn get(&self, node_type: usize, local: u32) -> Option<u32> {
        let is_own = |&at: &u32| {
            let (t, place) = self.order[at as usize];
            (t, self.nodes[t][place as usize]) == (node_type, local)
        };
        let known = self.table.find(key_of(node_type, local), is_own)?;
        Some(self.order[*known as usize].1)
    }

    /// The place of a node among those of its type.
    fn place(&mut self, node_type: usize, local: u32) -> u32 {
        if let Some(place) = self.get(node_type, local) {
            return place;
        }
        let Self { nodes, order, numbers, table } = self;
        let key = |&at: &u32| {
            let (t, place) = order[at as usize];
            key_of(t, nodes[t][place as usize])
        };
        table.insert_unique(key_of(node_type, local), order.len() as u32, key);
        let place = nodes[node_type].len() as u32;
        numbers[node_type].push(order.len() as u32);
        order.push((node_type, place));
        nodes[node_type].push(local);
        place
    }
}

impl Rows {
    /// The row of a node, by its place; nothing where it was not gone through.
    fn row(&self, place: u32) -> &[u32] {
        self.spans.get(place as usize).map_or(&[][..], |&[first, end]| &self.col_idx[first..end])
    }

    fn end_row(&mut self, place: u32, first: usize) {
        self.spans.resize(self.spans.len().max(place as usize + 1), [0; 2]);
        self.spans[place as usize] = [first, self.col_idx.len()];
    }

    /// Where the rows of all `count` nodes begin, sources and carriers, in the order of the nodes.
    pub fn in_order(self, count: usize) -> (Vec<u64>, Vec<u32>, Vec<Carrier>) {
        let Self { mut spans, col_idx, carriers } = self;
        spans.resize(count, [0; 2]);
        let mut row_ptr = Vec::with_capacity(count + 1);
        row_ptr.push(0);
        let lengths = spans.iter().map(|[first, end]| end - first);
        row_ptr.extend(lengths.scan(0, |end, length| {
            *end += length as u64;
            Some(*end)
        }));
        let is_in_order = |(&[first, end], &at): (&[usize; 2], &u64)| first == end || first as u64 == at;
        if spans.iter().zip(&row_ptr).all(is_in_order) {
            return (row_ptr, col_idx, carriers);
        }
        let entries = || spans.iter().flat_map(|&[first, end]| first..end);
        let (cols, carried) = (entries().map(|at| col_idx[at]).collect(), entries().map(|at| carriers[at]).collect());
        (row_ptr, cols, carried)
    }
}

impl<'a> Walk<'a> {
    /// Before the first step.
    pub fn new(view: View<'a>, draw: &'a Draw, overlay: Option<&Overlay>) -> Self {
        let lists = || vec![Vec::new(); view.base().of_events.len()];
        let most = draw.hops.max(draw.makes.embeddings.map_or(0, |around| around.reach));
        Self {
            view,
            draw,
            unheard_until: overlay.map_or(i64::MAX, |overlay| overlay.unheard_until),
            found: Found { nodes: lists(), order: Vec::new(), numbers: lists(), table: HashTable::new() },
            rows: view.base().ends.iter().map(|_| Rows::default()).collect(),
            made: BTreeMap::new(),
            steps: Vec::new(),
            has_rows: Vec::new(),
            waiting: vec![Vec::new(); most + 1],
            places: Vec::new(),
        }
    }

    /// The place of a target.
    pub fn target(&mut self, node_type: usize, local: u32) -> u32 {
        self.reach(node_type, local, (self.draw.hops, Purpose::Score))
    }

    /// The place of a node, from which at least so many steps are gone.
    fn reach(&mut self, node_type: usize, local: u32, steps: (usize, Purpose)) -> u32 {
        let place = self.found.place(node_type, local);
        self.raise(self.found.numbers[node_type][place as usize], steps);
        place
    }

    fn raise(&mut self, number: u32, (steps, purpose): (usize, Purpose)) {
        let at = number as usize;
        self.steps.resize(self.found.order.len(), [0; 2]);
        self.has_rows.resize(self.found.order.len(), false);
        let known = &mut self.steps[at][purpose as usize];
        if *known < steps {
            *known = steps;
            self.waiting[steps].push((number, purpose));
        }
    }

    /// Goes to everything that scores of the targets are made of.
    pub fn go(&mut self) -> Result<(), Refused> {
        if let Some(Around { within, reach }) = self.draw.makes.embeddings {
            // Nodes so far away have this many steps left, and are known when all closer ones were gone from.
            self.go_on(self.draw.hops.saturating_sub(within) + 1)?;
            for number in 0..self.found.order.len() as u32 {
                let (node_type, place) = self.found.order[number as usize];
                let local = self.found.nodes[node_type][place as usize];
                if self.view.refreshed(node_type, local).is_none() && !self.has(number, Layer::Embedding) {
                    self.raise(number, (reach, Purpose::Embedding));
                }
            }
        }
        self.go_on(1)
    }

    /// Goes from all nodes that have at least `least` steps left, from those that have most first: nodes are found in
    /// the order of their distance.
    fn go_on(&mut self, least: usize) -> Result<(), Refused> {
        for steps in (least..self.waiting.len()).rev() {
            for (number, purpose) in std::mem::take(&mut self.waiting[steps]) {
                // The last step is gone for the first layer.
                let is_left = self.steps[number as usize][purpose as usize] == steps;
                if is_left && !(steps == 1 && self.is_kept(number, purpose)) {
                    self.step(number, (steps, purpose))?;
                }
            }
        }
        Ok(())
    }

    /// Whether everything is kept that the first layer makes of a node.
    fn is_kept(&mut self, number: u32, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Embedding => self.has(number, Layer::Encoder),
            Purpose::Score => {
                let networks = self.draw.makes.networks;
                networks > 0 && (0..networks).all(|at| self.has(number, Layer::Network(at)))
            }
        }
    }

    fn has(&mut self, number: u32, layer: Layer) -> bool {
        if !self.made.contains_key(&number) {
            let (node_type, place) = self.found.order[number as usize];
            let (local, networks) = (self.found.nodes[node_type][place as usize], self.draw.makes.networks);
            let made = self.view.made(node_type, local, self.unheard_until, networks);
            self.made.extend(made.map(|made| (number, made)));
        }
        self.made.get(&number).is_some_and(|made| made.get(layer).is_some())
    }

    fn step(&mut self, number: u32, (steps, purpose): (usize, Purpose)) -> Result<(), Refused> {
        let (node_type, place) = self.found.order[number as usize];
        if std::mem::replace(&mut self.has_rows[number as usize], true) {
            for at in 0..self.rows.len() {
                let [src, dst] = self.view.base().ends[at];
                for entry in (0..self.rows[at].row(place).len()).filter(|_| dst == node_type) {
                    let source = self.rows[at].row(place)[entry];
                    self.raise(self.found.numbers[src][source as usize], (steps - 1, purpose));
                }
            }
            return Ok(());
        }
        let (view, draw, base) = (self.view, self.draw, self.view.base());
        let local = self.found.nodes[node_type][place as usize];
        // All of a row is no draw.
        let key = draw.fanouts.as_ref().map_or(0, |_| hash_of(view.name(node_type, local)));
        let keys = |at: usize| [base.keys[at], base.type_keys[node_type], key];
        let mut places = std::mem::take(&mut self.places);
        for at in (0..self.rows.len()).filter(|&at| base.ends[at][1] == node_type) {
            let sources = view.sources(at, local);
            draw.take(draw.hops.saturating_sub(steps), sources.len(), keys(at), &mut places);
            let first = self.rows[at].col_idx.len();
            for &entry in &places {
                let (source, carrier) = sources.at(entry as usize);
                let source = self.reach(base.ends[at][0], source, (steps - 1, purpose));
                self.rows[at].col_idx.push(source);
                self.rows[at].carriers.push(carrier);
            }
            self.rows[at].end_row(place, first);
            if self.found.order.len() > draw.max_nodes {
                return Err(too_large(view, &self.found, draw));
            }
        }
        self.places = places;
        Ok(())
    }
}

pub(super) fn too_large(view: View, found: &Found, draw: &Draw) -> Refused {
    let (node_type, place) = found.order[0];
    let name = view.name(node_type, found.nodes[node_type][place as usize]);
    let help = match &draw.fanouts {
        None => "sample the neighbourhood instead of taking all of it, or raise the limit of nodes",
        Some(_) => "lower the fanouts or the number of targets, or raise the limit of nodes",
    };
    let error = Error::Data {
        what: format!("neighbourhood of `{}:{name}`", view.base().type_name(node_type)),
        expected: format!("at most {} nodes within {} steps", draw.max_nodes, draw.hops),
        found: format!("{} or more", found.order.len()),
        help: help.into(),
    };
    Refused { fault: Fault::TooLarge, error }
}
