//! Edges of one relation while they are collected, and what becomes of them: sorted rows, merged repeats, figures by
//! end.

use std::cmp::Ordering;

use rayon::prelude::*;

use crate::graph::Adjacency;

/// An edge that carries something: 24 bytes; one that carries nothing takes eight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Edge {
    /// `destination << 32 | source`.
    pub key: u64,
    pub time: i64,
    pub weight: f32,
    /// Number of its row among those of the relation.
    pub row: u32,
}

/// What the edges of a relation carry beside their ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Carried {
    pub weight: bool,
    pub time: bool,
    /// Columns of values, which lie beside the edges by row.
    pub values: bool,
}

/// The rows of the table that every entry comes from.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Origins {
    /// Entry by entry.
    rows: Vec<u32>,
    /// Where those of each entry end.
    ends: Vec<u64>,
}

impl Origins {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The rows of an entry: one, or those that were merged.
    pub fn of(&self, entry: usize) -> &[u32] {
        let start = entry.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.rows[start as usize..self.ends[entry] as usize]
    }

    fn push(&mut self, row: u32, is_new: bool) {
        self.rows.push(row);
        set_last(&mut self.ends, is_new, self.rows.len() as u64);
    }
}

/// Edges in the order of the tables.
#[derive(Debug)]
pub(super) enum EdgeList {
    Plain(Vec<u64>),
    Valued(Vec<Edge>),
}

/// What the edges at one end add up to, per node of that end. Repeated edges count as often as they occur.
#[derive(Debug, Default, PartialEq)]
pub(super) struct EndFigures {
    /// Whether the edges have weights and times; without them their figures are empty.
    pub has_weight: bool,
    pub has_time: bool,
    /// Different neighbours.
    pub degree: Vec<u32>,
    /// Edges, if they have either.
    pub count: Vec<u32>,
    pub weight_sum: Vec<f64>,
    pub weight_max: Vec<f32>,
    /// Time of the last edge.
    pub last: Vec<i64>,
}

/// Edges as the graph holds them: rows are destinations, repeats without times are merged.
#[derive(Debug)]
pub(super) struct Merged {
    pub adjacency: Adjacency,
    /// Sum of the weights of each entry.
    pub weight: Option<Vec<f32>>,
    /// Latest time of each entry.
    pub time: Option<Vec<i64>>,
    /// Where its values come from.
    pub origins: Option<Origins>,
    /// Edges that repeated an earlier one.
    pub repeated: usize,
    pub src: EndFigures,
    pub dst: EndFigures,
}

impl Merged {
    /// Edges that were made in order.
    pub fn of_events(adjacency: Adjacency) -> Self {
        let none = EndFigures::default;
        Self { adjacency, weight: None, time: None, origins: None, repeated: 0, src: none(), dst: none() }
    }
}

/// `destination << 32 | source`.
pub(super) fn key(dst: u32, src: u32) -> u64 {
    u64::from(dst) << 32 | u64::from(src)
}

impl EdgeList {
    pub fn new(carried: Carried) -> Self {
        if carried == Carried::default() { Self::Plain(Vec::new()) } else { Self::Valued(Vec::new()) }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Plain(keys) => keys.len(),
            Self::Valued(edges) => edges.len(),
        }
    }

    /// Sorts, and merges what has no time; ids have to be below `num_dst` and `num_src`. Edges with times stay as they
    /// are, in the order of time within a row. The result does not depend on the order of the edges, because equal ones
    /// are added up in the order of their weights; only edges that agree in all of that keep the order of their rows.
    pub fn merge(self, num_dst: usize, num_src: usize, carried: Carried) -> Merged {
        let mut sink = Sink::new(num_dst, num_src, carried, self.len());
        match self {
            Self::Plain(mut keys) => {
                keys.par_sort_unstable();
                keys.iter().for_each(|&key| sink.push(Edge { key, time: 0, weight: 0.0, row: 0 }));
            }
            Self::Valued(mut edges) => {
                edges.par_sort_unstable_by(|a, b| {
                    let by_row = (a.key >> 32).cmp(&(b.key >> 32));
                    let by_time = if carried.time { a.time.cmp(&b.time) } else { Ordering::Equal };
                    let by_weight = a.weight.total_cmp(&b.weight);
                    by_row.then(by_time).then(a.key.cmp(&b.key)).then(by_weight).then(a.row.cmp(&b.row))
                });
                if carried.time {
                    sink.count_partners(&edges);
                }
                edges.iter().for_each(|&edge| sink.push(edge));
            }
        }
        sink.finish(num_src)
    }
}

/// Takes edges in ascending order.
struct Sink {
    row_ptr: Vec<u64>,
    col_idx: Vec<u32>,
    weight: Option<Vec<f32>>,
    time: Option<Vec<i64>>,
    origins: Option<Origins>,
    src: EndFigures,
    dst: EndFigures,
    repeated: usize,
    last: Option<u64>,
    /// Weight of the last entry, not yet rounded.
    sum: f64,
}

impl Sink {
    fn new(num_dst: usize, num_src: usize, carried: Carried, len: usize) -> Self {
        let Carried { weight: has_weight, time: has_time, values } = carried;
        Self {
            row_ptr: vec![0; num_dst + 1],
            col_idx: Vec::with_capacity(len),
            weight: has_weight.then(Vec::new),
            time: has_time.then(Vec::new),
            origins: values.then(Origins::default),
            src: EndFigures::new(num_src, has_weight, has_time),
            dst: EndFigures::new(num_dst, has_weight, has_time),
            repeated: 0,
            last: None,
            sum: 0.0,
        }
    }

    /// Different neighbours at both ends, of edges that are not in the order of their sources.
    fn count_partners(&mut self, edges: &[Edge]) {
        let mut keys: Vec<u64> = edges.iter().map(|edge| edge.key).collect();
        keys.par_sort_unstable();
        keys.dedup();
        self.repeated = edges.len() - keys.len();
        for key in keys {
            self.dst.degree[(key >> 32) as usize] += 1;
            self.src.degree[key as u32 as usize] += 1;
        }
    }

    fn push(&mut self, edge: Edge) {
        let (dst, src) = ((edge.key >> 32) as usize, edge.key as u32 as usize);
        let (is_timed, is_repeated) = (self.time.is_some(), self.last == Some(edge.key));
        let is_new = is_timed || !is_repeated;
        if is_new {
            self.row_ptr[dst + 1] += 1;
            self.col_idx.push(src as u32);
            self.last = Some(edge.key);
            self.sum = 0.0;
        } else {
            self.repeated += 1;
        }
        if let Some(weights) = &mut self.weight {
            self.sum += f64::from(edge.weight);
            let sum = self.sum.clamp(f32::MIN.into(), f32::MAX.into()) as f32;
            set_last(weights, is_new, sum);
        }
        if let Some(times) = &mut self.time {
            times.push(edge.time);
        }
        if let Some(origins) = &mut self.origins {
            origins.push(edge.row, is_new);
        }
        // Partners of edges with times are counted already.
        self.dst.add(dst, &edge, is_new && !is_timed);
        self.src.add(src, &edge, is_new && !is_timed);
    }

    fn finish(mut self, num_src: usize) -> Merged {
        let mut end = 0;
        for start in &mut self.row_ptr {
            end += *start;
            *start = end;
        }
        self.col_idx.shrink_to_fit();
        Merged {
            adjacency: Adjacency::from_checked(self.row_ptr, self.col_idx, num_src),
            weight: self.weight,
            time: self.time,
            origins: self.origins,
            repeated: self.repeated,
            src: self.src,
            dst: self.dst,
        }
    }
}

fn set_last<T>(values: &mut Vec<T>, is_new: bool, value: T) {
    match values.last_mut() {
        Some(last) if !is_new => *last = value,
        _ => values.push(value),
    }
}

impl EndFigures {
    fn new(nodes: usize, has_weight: bool, has_time: bool) -> Self {
        let (weighted, timed) = (if has_weight { nodes } else { 0 }, if has_time { nodes } else { 0 });
        Self {
            has_weight,
            has_time,
            degree: vec![0; nodes],
            count: vec![0; if has_weight || has_time { nodes } else { 0 }],
            weight_sum: vec![0.0; weighted],
            weight_max: vec![f32::NEG_INFINITY; weighted],
            last: vec![i64::MIN; timed],
        }
    }

    fn add(&mut self, node: usize, edge: &Edge, is_new: bool) {
        self.degree[node] += u32::from(is_new);
        if let Some(count) = self.count.get_mut(node) {
            *count += 1;
        }
        if let (Some(sum), Some(max)) = (self.weight_sum.get_mut(node), self.weight_max.get_mut(node)) {
            *sum += f64::from(edge.weight);
            *max = max.max(edge.weight);
        }
        if let Some(last) = self.last.get_mut(node) {
            *last = edge.time.max(*last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const WEIGHTS: Carried = Carried { weight: true, time: false, values: false };
    const ALL: Carried = Carried { weight: true, time: true, values: true };

    fn edges() -> Vec<Edge> {
        (0..5_000u64)
            .map(|i| {
                let (dst, src) = ((i * 7919 % 13) as u32, (i * 104_729 % 17) as u32);
                let (time, weight) = ((i * 31 % 101) as i64 - 50, (i % 10) as f32 * 0.1 - 0.3);
                Edge { key: key(dst, src), time, weight, row: i as u32 }
            })
            .collect()
    }

    #[test]
    fn repeats_without_times_add_their_weights() {
        let mut oracle: BTreeMap<u64, f64> = BTreeMap::new();
        for edge in edges() {
            *oracle.entry(edge.key).or_insert(0.0) += f64::from(edge.weight);
        }
        let merged = EdgeList::Valued(edges()).merge(14, 17, WEIGHTS);
        assert_eq!(merged.repeated, 5_000 - oracle.len());
        let found: Vec<u64> =
            (0..14).flat_map(|dst| merged.adjacency.row(dst).iter().map(move |&src| key(dst as u32, src))).collect();
        assert_eq!(found, oracle.keys().copied().collect::<Vec<_>>());
        for (at, sum) in oracle.values().enumerate() {
            assert!((f64::from(merged.weight.as_ref().unwrap()[at]) - sum).abs() < 1e-4);
        }
    }

    #[test]
    fn edges_with_times_are_never_merged_and_lie_in_the_order_of_time() {
        let merged = EdgeList::Valued(edges()).merge(14, 17, ALL);
        assert_eq!(merged.adjacency.num_edges(), 5_000);
        let (times, weights) = (merged.time.unwrap(), merged.weight.unwrap());
        let mut found = Vec::new();
        for dst in 0..14 {
            let entries = merged.adjacency.entries(dst);
            assert!(times[entries.clone()].is_sorted());
            let sources = merged.adjacency.row(dst).iter();
            found.extend(
                entries.zip(sources).map(|(at, &src)| (key(dst as u32, src), times[at], weights[at].to_bits())),
            );
        }
        let mut expected: Vec<_> = edges().iter().map(|edge| (edge.key, edge.time, edge.weight.to_bits())).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        let different: std::collections::BTreeSet<u64> = edges().iter().map(|edge| edge.key).collect();
        assert_eq!(merged.repeated, 5_000 - different.len());
    }

    #[test]
    fn the_order_of_the_edges_does_not_matter() {
        let forward = EdgeList::Valued(edges()).merge(13, 17, ALL);
        let backward = EdgeList::Valued(edges().into_iter().rev().collect()).merge(13, 17, ALL);
        assert_eq!(forward.adjacency, backward.adjacency);
        assert_eq!((&forward.weight, &forward.time), (&backward.weight, &backward.time));
        assert_eq!((&forward.src, &forward.dst), (&backward.src, &backward.dst));
    }

    #[test]
    fn figures_of_an_end_are_those_of_a_loop() {
        let merged = EdgeList::Valued(edges()).merge(13, 18, ALL);
        for src in 0..18u32 {
            let own: Vec<Edge> = edges().into_iter().filter(|edge| edge.key as u32 == src).collect();
            let at = src as usize;
            let neighbours: std::collections::BTreeSet<u64> = own.iter().map(|edge| edge.key >> 32).collect();
            assert_eq!(merged.src.degree[at] as usize, neighbours.len());
            assert_eq!(merged.src.count[at] as usize, own.len());
            assert!((merged.src.weight_sum[at] - own.iter().map(|e| f64::from(e.weight)).sum::<f64>()).abs() < 1e-6);
            assert_eq!(merged.src.weight_max[at], own.iter().map(|e| e.weight).fold(f32::NEG_INFINITY, f32::max));
            assert_eq!(merged.src.last[at], own.iter().map(|e| e.time).max().unwrap_or(i64::MIN));
        }
        let plain = EdgeList::Plain(edges().iter().map(|edge| edge.key).collect()).merge(13, 18, Carried::default());
        assert_eq!(plain.src.degree, merged.src.degree);
        assert_eq!(plain.adjacency, EdgeList::Valued(edges()).merge(13, 18, WEIGHTS).adjacency);
        assert!(plain.weight.is_none() && plain.src.count.is_empty());
    }
}
