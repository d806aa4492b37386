//! What was appended to a base.

use std::collections::HashMap;

use half::f16;

use super::lists::Lists;
use super::names::Names;
use crate::graph::Events;

/// Stands for no label, and for no node.
pub(super) const NONE: u8 = u8::MAX;
pub(super) const NOWHERE: u32 = u32::MAX;

/// Appended nodes of a type, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// Number of the first one within the type.
    pub first: u32,
    pub names: Names,
    /// Row after row.
    pub features: Vec<f16>,
    /// [`Events::NO_TIME`] of what is no event.
    pub time: Vec<i64>,
    /// NaN for none, as of amounts.
    pub value: Vec<f32>,
    pub amount: Vec<f32>,
    pub label: Vec<u8>,
    pub known: Vec<i64>,
    /// Whether a row tells of it; only edges name the others.
    pub has_row: Vec<bool>,
    pub is_gone: Vec<bool>,
    /// Whether derived columns have to be looked up when somebody asks for them.
    pub is_stale: Vec<bool>,
}

impl Nodes {
    pub fn len(&self) -> u32 {
        self.time.len() as u32
    }

    /// The place here of a node, if it is here.
    pub fn at(&self, local: u32) -> Option<usize> {
        local.checked_sub(self.first).filter(|at| *at < self.len()).map(|at| at as usize)
    }

    fn forget(&mut self, at: usize, width: usize) {
        self.names.forget(at as u32);
        self.features[at * width..(at + 1) * width].fill(f16::ZERO);
        (self.value[at], self.amount[at], self.label[at], self.known[at]) = (f32::NAN, f32::NAN, NONE, Events::NEVER);
        self.is_gone[at] = true;
    }
}

/// Appended edges of a relation, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Edges {
    /// Where edges lead from; [`NOWHERE`] of one that was forgotten.
    pub src: Vec<u32>,
    pub dst: Vec<u32>,
    pub weight: Vec<f32>,
    pub time: Vec<i64>,
    /// Row after row.
    pub values: Vec<f32>,
    /// Of edges into events: when the event happened.
    pub moment: Vec<i64>,
    /// By destination: edges as they came.
    pub into: Lists,
    /// By source: edges as they came, those into events in the order of time.
    pub out: Lists,
}

/// An edge in numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewEdge<'a> {
    pub relation: usize,
    pub src: u32,
    pub dst: u32,
    pub weight: Option<f32>,
    pub time: Option<i64>,
    pub values: &'a [f32],
    /// When the destination happened.
    pub moment: Option<i64>,
}

impl Edges {
    pub fn len(&self) -> usize {
        self.src.len()
    }

    /// The part of the list of a source whose events happened before `time`.
    pub fn before(&self, src: u32, time: i64) -> &[u32] {
        let edges = self.out.get(src);
        &edges[..edges.partition_point(|&edge| self.moment[edge as usize] < time)]
    }

    fn push(&mut self, edge: &NewEdge) {
        let number = self.len() as u32;
        self.src.push(edge.src);
        self.dst.push(edge.dst);
        self.weight.extend(edge.weight);
        self.time.extend(edge.time);
        self.values.extend_from_slice(edge.values);
        self.into.push(edge.dst, number);
        let Some(moment) = edge.moment else { return self.out.push(edge.src, number) };
        self.moment.push(moment);
        debug_assert_eq!(self.moment.len(), self.src.len(), "all edges of a relation lead into events, or none");
        let place = |&known: &u32| (self.moment[known as usize], self.dst[known as usize]) < (moment, edge.dst);
        let at = self.out.get(edge.src).partition_point(place);
        self.out.insert(edge.src, at, number);
    }

    /// Leaves out the edges into a node, and those from it.
    fn forget_into(&mut self, dst: u32) {
        for edge in self.into.take(dst) {
            self.out.remove(self.src[edge as usize], edge);
            self.wipe(edge as usize);
        }
    }

    fn forget_out(&mut self, src: u32) {
        for edge in self.out.take(src) {
            self.into.remove(self.dst[edge as usize], edge);
            self.wipe(edge as usize);
        }
    }

    fn wipe(&mut self, at: usize) {
        (self.src[at], self.dst[at]) = (NOWHERE, NOWHERE);
        let width = self.values.len() / self.len();
        self.values[at * width..(at + 1) * width].fill(0.0);
        self.weight.get_mut(at).into_iter().for_each(|weight| *weight = 0.0);
    }
}

/// What was appended since the base was made, or what a single call appends for itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Delta {
    /// By node type.
    pub nodes: Vec<Nodes>,
    /// By relation; those that others are the reverse of, or that follow from others, have none.
    pub edges: Vec<Edges>,
    /// Rows of nodes that were there already, but that no row told of.
    pub rows: HashMap<(usize, u32), Box<[f16]>>,
}

impl Delta {
    /// Behind so many nodes of each type; relations lead from the first to the second of their types.
    pub fn behind(counts: &[u32], relations: &[[usize; 2]]) -> Self {
        let nodes = counts.iter().map(|&first| Nodes { first, ..Nodes::default() });
        let lists = |of: usize| Lists::new(counts[of]);
        let edges = relations.iter().map(|&[src, dst]| Edges { into: lists(dst), out: lists(src), ..Edges::default() });
        Self { nodes: nodes.collect(), edges: edges.collect(), rows: HashMap::new() }
    }

    pub fn push_edge(&mut self, edge: &NewEdge) {
        self.edges[edge.relation].push(edge);
    }

    /// Leaves out a node and its edges; `relations` are the types at both ends of each.
    pub fn forget(&mut self, node_type: usize, local: u32, relations: &[[usize; 2]], width: usize) {
        for (edges, &[src, dst]) in self.edges.iter_mut().zip(relations) {
            if dst == node_type {
                edges.forget_into(local);
            }
            if src == node_type {
                edges.forget_out(local);
            }
        }
        self.rows.remove(&(node_type, local));
        let nodes = &mut self.nodes[node_type];
        if let Some(at) = nodes.at(local) {
            nodes.forget(at, width);
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        let of_nodes = |nodes: &Nodes| {
            let words = 2 * nodes.features.capacity() + 16 * nodes.time.capacity() + 8 * nodes.value.capacity();
            nodes.names.bytes() + (words + 4 * nodes.label.capacity()) as u64
        };
        let of_edges = |edges: &Edges| {
            let longs = edges.time.capacity() + edges.moment.capacity() + edges.src.capacity();
            let words = edges.weight.capacity() + edges.values.capacity();
            edges.into.bytes() + edges.out.bytes() + (8 * longs + 4 * words) as u64
        };
        // They are of one width.
        let rows = self.rows.values().next().map_or(0, |row| (2 * row.len() + 40) * self.rows.len());
        self.nodes.iter().map(of_nodes).sum::<u64>() + self.edges.iter().map(of_edges).sum::<u64>() + rows as u64
    }
}
