//! Edges of one relation while they are collected, and what becomes of them: sorted rows, merged repeats, figures by
//! end.

use std::cmp::Ordering;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use super::spilled::Items;
use crate::error::Result;
use crate::graph::{Adjacency, Array, Disk, Record};

/// An edge that carries something: 24 bytes; one that carries nothing takes eight.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Edge {
    /// `destination << 32 | source`.
    pub key: u64,
    /// 0 without times.
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

    fn append(&mut self, other: &Self) {
        let before = self.rows.len() as u64;
        self.rows.extend_from_slice(&other.rows);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }
}

/// Edges in the order of the tables, or in any where they lie on disk.
#[derive(Debug)]
pub(super) enum EdgeList {
    Plain(Items<u64>),
    Valued(Items<Edge>),
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
#[derive(Debug, PartialEq)]
pub(super) struct Merged {
    pub adjacency: Adjacency,
    /// Sum of the weights of each entry.
    pub weight: Option<Array<f32>>,
    /// Latest time of each entry.
    pub time: Option<Array<i64>>,
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
        match carried == Carried::default() {
            true => Self::Plain(Vec::new().into()),
            false => Self::Valued(Vec::new().into()),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Plain(keys) => keys.len(),
            Self::Valued(edges) => edges.len(),
        }
    }

    /// Takes edges out of memory when they fill what a run may take of `room` bytes; all of them `at_end`.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub fn spill(&mut self, disk: &Disk, room: u64, at_end: bool) -> Result<()> {
        match self {
            Self::Plain(keys) => keys.spill(disk, room, at_end),
            Self::Valued(edges) => edges.spill(disk, room, at_end),
        }
    }

    /// Sorts, and merges what has no time; ids have to be below the numbers of destinations and sources. Edges with
    /// times stay as they are, in the order of time within a row. The result does not depend on the order of the edges,
    /// because equal ones are added up in the order of their weights; only edges that agree in all of that keep the
    /// order of their rows. Nor does it depend on the number of threads. Edges on disk are for
    /// [`merge`](super::on_disk::merge).
    pub fn merge(self, ends: [usize; 2], carried: Carried) -> Merged {
        match self {
            Self::Plain(keys) => merge(keys.rest, ends, carried),
            Self::Valued(edges) => merge(edges.rest, ends, carried),
        }
    }
}

/// An edge as a list holds it.
pub(super) trait Item: Record {
    fn edge(self) -> Edge;
}

impl Record for Edge {
    fn order(&self, other: &Self) -> Ordering {
        let by_row = (self.key >> 32).cmp(&(other.key >> 32)).then(self.time.cmp(&other.time));
        by_row.then(self.key.cmp(&other.key)).then(self.weight.total_cmp(&other.weight)).then(self.row.cmp(&other.row))
    }
}

impl Item for u64 {
    fn edge(self) -> Edge {
        Edge { key: self, time: 0, weight: 0.0, row: 0 }
    }
}

impl Item for Edge {
    fn edge(self) -> Edge {
        self
    }
}

/// Edges that are put into buckets at once.
const AT_ONCE: usize = 1 << 20;
/// Lists below this length stay in one bucket, rows below it are sorted by one thread.
const FEW: usize = 1 << 16;

/// Nodes in ranges of a power of two, about a thousand of them.
#[derive(Clone, Copy)]
struct Buckets {
    shift: u32,
    nodes: usize,
}

impl Buckets {
    fn of(nodes: usize, edges: usize) -> Self {
        let bits = nodes.max(1).ilog2();
        Self { shift: if edges < FEW { bits + 1 } else { bits.saturating_sub(9) }, nodes }
    }

    fn len(self) -> usize {
        (self.nodes >> self.shift) + 1
    }

    fn at(self, node: u32) -> usize {
        (node >> self.shift) as usize
    }

    /// The nodes of a bucket.
    fn range(self, at: usize) -> Range<usize> {
        (at << self.shift).min(self.nodes)..((at + 1) << self.shift).min(self.nodes)
    }

    /// Items in the order of their buckets, and where each bucket ends; within a bucket they keep their order.
    fn sorted<T: Copy>(self, items: &[T], node: impl Fn(&T) -> u32) -> (Vec<T>, Vec<usize>) {
        let mut ends = vec![0; self.len() + 1];
        items.iter().for_each(|item| ends[self.at(node(item)) + 1] += 1);
        (1..ends.len()).for_each(|at| ends[at] += ends[at - 1]);
        let mut sorted = items.to_vec();
        for item in items {
            let next = &mut ends[self.at(node(item))];
            sorted[*next] = *item;
            *next += 1;
        }
        ends.pop();
        (sorted, ends)
    }
}

/// The part of a bucket in what [`Buckets::sorted`] returns.
fn part<T>((items, ends): &(Vec<T>, Vec<usize>), at: usize) -> &[T] {
    &items[at.checked_sub(1).map_or(0, |before| ends[before])..ends[at]]
}

/// Edges by bucket of their destination. Room is given back while they move.
fn in_buckets<T: Item>(mut edges: Vec<T>, buckets: Buckets) -> Vec<Vec<T>> {
    let dst = |edge: &T| (edge.edge().key >> 32) as u32;
    let count = |edges: &[T]| {
        let mut counts = vec![0usize; buckets.len()];
        edges.iter().for_each(|edge| counts[buckets.at(dst(edge))] += 1);
        counts
    };
    let add = |mut a: Vec<usize>, b: Vec<usize>| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    };
    let counts = edges.par_chunks(FEW).map(count).reduce(|| vec![0; buckets.len()], add);
    if let [_] = counts[..] {
        return vec![edges];
    }
    let mut all: Vec<Vec<T>> = counts.into_iter().map(Vec::with_capacity).collect();
    while !edges.is_empty() {
        let start = edges.len().saturating_sub(AT_ONCE);
        let parts: Vec<_> = edges[start..].par_chunks(FEW).map(|edges| buckets.sorted(edges, dst)).collect();
        edges.truncate(start);
        edges.shrink_to_fit();
        let fill = |(at, bucket): (usize, &mut Vec<T>)| {
            parts.iter().for_each(|sorted| bucket.extend_from_slice(part(sorted, at)));
        };
        all.par_iter_mut().enumerate().with_min_len(8).for_each(fill);
    }
    all
}

/// What an edge adds to its source.
#[derive(Debug, Clone, Copy)]
struct Touch {
    src: u32,
    weight: f32,
    time: i64,
    /// Whether it is the first edge to its destination.
    is_new: bool,
}

/// What sorted edges become.
#[derive(Default)]
pub(super) struct Entries {
    pub col_idx: Vec<u32>,
    pub weight: Vec<f32>,
    pub time: Vec<i64>,
    pub origins: Origins,
    pub repeated: usize,
    /// Of the weights of the last entry.
    sum: f64,
}

impl Entries {
    fn with_room(entries: usize, carried: Carried) -> Self {
        Self {
            col_idx: Vec::with_capacity(entries),
            weight: Vec::with_capacity(if carried.weight { entries } else { 0 }),
            time: Vec::with_capacity(if carried.time { entries } else { 0 }),
            ..Self::default()
        }
    }

    /// Adds an edge, which `is_first` of its row from its source; others that have no time are merged into that one,
    /// which they follow.
    pub fn push(&mut self, edge: Edge, is_first: bool, carried: Carried) {
        let is_new = carried.time || is_first;
        if is_new {
            self.col_idx.push(edge.key as u32);
            self.sum = 0.0;
        }
        self.repeated += usize::from(!is_first);
        if carried.weight {
            // Not rounded before all of it is there.
            self.sum += f64::from(edge.weight);
            set_last(&mut self.weight, is_new, self.sum.clamp(f32::MIN.into(), f32::MAX.into()) as f32);
        }
        if carried.time {
            self.time.push(edge.time);
        }
        if carried.values {
            self.origins.push(edge.row, is_new);
        }
    }
}

/// The rows of a bucket.
struct Rows {
    lengths: Vec<u64>,
    entries: Entries,
    dst: EndFigures,
    /// By bucket of the source, in the order of the rows.
    touches: (Vec<Touch>, Vec<usize>),
}

fn merge<T: Item>(edges: Vec<T>, [num_dst, num_src]: [usize; 2], carried: Carried) -> Merged {
    let Carried { weight: has_weight, time: has_time, values } = carried;
    let count = edges.len();
    let [buckets, of_sources] = [num_dst, num_src].map(|nodes| Buckets::of(nodes, count));
    let mut row_ptr: Vec<u64> = Vec::with_capacity(num_dst + 1);
    row_ptr.push(0);
    let mut col_idx = Vec::with_capacity(count);
    let mut weight = Vec::with_capacity(if has_weight { count } else { 0 });
    let mut time = Vec::with_capacity(if has_time { count } else { 0 });
    let mut origins = Origins::default();
    let mut dst = EndFigures::new(0, has_weight, has_time);
    let mut src = EndFigures::new(num_src, has_weight, has_time);
    let mut repeated = 0;
    let mut rest = in_buckets(edges, buckets).into_iter().enumerate();
    loop {
        // So many at a time that all threads are busy and what they make takes little room.
        let wave: Vec<_> = rest.by_ref().take(4 * rayon::current_num_threads()).collect();
        if wave.is_empty() {
            break;
        }
        let rows = |(at, edges)| rows_of(edges, buckets.range(at), carried, of_sources);
        let wave: Vec<Rows> = wave.into_par_iter().with_max_len(1).map(rows).collect();
        src.parts(of_sources).into_par_iter().enumerate().for_each(|(at, mut figures)| {
            let first = of_sources.range(at).start;
            for touch in wave.iter().flat_map(|rows| part(&rows.touches, at)) {
                figures.add(touch.src as usize - first, touch.weight, touch.time, touch.is_new);
            }
        });
        for rows in wave {
            let mut end = col_idx.len() as u64;
            row_ptr.extend(rows.lengths.iter().map(|length| {
                end += length;
                end
            }));
            let entries = rows.entries;
            col_idx.extend(entries.col_idx);
            weight.extend(entries.weight);
            time.extend(entries.time);
            origins.append(&entries.origins);
            dst.append(rows.dst);
            repeated += entries.repeated;
        }
    }
    col_idx.shrink_to_fit();
    weight.shrink_to_fit();
    Merged {
        adjacency: Adjacency::from_checked(row_ptr, col_idx, num_src),
        weight: has_weight.then(|| weight.into()),
        time: has_time.then(|| time.into()),
        origins: values.then_some(origins),
        repeated,
        src,
        dst,
    }
}

/// Sorts and merges the edges to the destinations `nodes`.
fn rows_of<T: Item>(unsorted: Vec<T>, nodes: Range<usize>, carried: Carried, of_sources: Buckets) -> Rows {
    let dst = |edge: &T| (edge.edge().key >> 32) as u32 - nodes.start as u32;
    let count = unsorted.len();
    let by_row = Buckets { shift: 0, nodes: nodes.len() };
    let (mut edges, ends) = by_row.sorted(&unsorted, dst);
    drop(unsorted);
    let mut rows = Rows {
        lengths: Vec::with_capacity(nodes.len()),
        entries: Entries::with_room(count, carried),
        dst: EndFigures::new(nodes.len(), carried.weight, carried.time),
        touches: Default::default(),
    };
    let mut figures = rows.dst.whole();
    let mut touches = Vec::with_capacity(count);
    let (mut is_first, mut partners) = (Vec::new(), Vec::new());
    let mut start = 0;
    for (node, &end) in ends[..nodes.len()].iter().enumerate() {
        let row = &mut edges[start..end];
        start = end;
        if row.len() < FEW {
            row.sort_unstable_by(T::order)
        } else {
            row.par_sort_unstable_by(T::order)
        }
        // Edges in the order of time do not lie beside those from the same source.
        if carried.time {
            partners.clear();
            partners.extend(row.iter().zip(0u32..).map(|(edge, at)| (edge.edge().key as u32, at)));
            partners.sort_unstable();
            partners.dedup_by_key(|(src, _)| *src);
            is_first.clear();
            is_first.resize(row.len(), false);
            partners.iter().for_each(|&(_, at)| is_first[at as usize] = true);
        }
        let before = rows.entries.col_idx.len();
        let mut last = None;
        for (at, edge) in row.iter().enumerate() {
            let edge = edge.edge();
            let is_first = if carried.time { is_first[at] } else { last != Some(edge.key) };
            last = Some(edge.key);
            rows.entries.push(edge, is_first, carried);
            figures.add(node, edge.weight, edge.time, is_first);
            touches.push(Touch { src: edge.key as u32, weight: edge.weight, time: edge.time, is_new: is_first });
        }
        rows.lengths.push((rows.entries.col_idx.len() - before) as u64);
    }
    rows.touches = of_sources.sorted(&touches, |touch| touch.src);
    rows
}

fn set_last<T>(values: &mut Vec<T>, is_new: bool, value: T) {
    match values.last_mut() {
        Some(last) if !is_new => *last = value,
        _ => values.push(value),
    }
}

impl EndFigures {
    pub fn new(nodes: usize, has_weight: bool, has_time: bool) -> Self {
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

    pub fn whole(&mut self) -> FiguresMut<'_> {
        let Self { degree, count, weight_sum, weight_max, last, .. } = self;
        FiguresMut { degree, count, weight_sum, weight_max, last }
    }

    /// Those of every bucket.
    fn parts(&mut self, buckets: Buckets) -> Vec<FiguresMut<'_>> {
        let mut rest = self.whole();
        (0..buckets.len()).map(|at| rest.take(buckets.range(at).len())).collect()
    }

    fn append(&mut self, other: Self) {
        self.degree.extend(other.degree);
        self.count.extend(other.count);
        self.weight_sum.extend(other.weight_sum);
        self.weight_max.extend(other.weight_max);
        self.last.extend(other.last);
    }
}

/// Figures of some nodes.
#[derive(Default)]
pub(super) struct FiguresMut<'a> {
    degree: &'a mut [u32],
    count: &'a mut [u32],
    weight_sum: &'a mut [f64],
    weight_max: &'a mut [f32],
    last: &'a mut [i64],
}

impl<'a> FiguresMut<'a> {
    /// Takes off the first nodes.
    fn take(&mut self, nodes: usize) -> Self {
        fn front<'a, T>(of: &mut &'a mut [T], nodes: usize) -> &'a mut [T] {
            let nodes = nodes.min(of.len());
            of.split_off_mut(..nodes).unwrap_or_default()
        }
        Self {
            degree: front(&mut self.degree, nodes),
            count: front(&mut self.count, nodes),
            weight_sum: front(&mut self.weight_sum, nodes),
            weight_max: front(&mut self.weight_max, nodes),
            last: front(&mut self.last, nodes),
        }
    }

    pub fn add(&mut self, node: usize, weight: f32, time: i64, is_new: bool) {
        self.degree[node] += u32::from(is_new);
        if let Some(count) = self.count.get_mut(node) {
            *count += 1;
        }
        if let (Some(sum), Some(max)) = (self.weight_sum.get_mut(node), self.weight_max.get_mut(node)) {
            *sum += f64::from(weight);
            *max = max.max(weight);
        }
        if let Some(last) = self.last.get_mut(node) {
            *last = time.max(*last);
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

    /// Without times all of them are 0.
    fn merge_all(mut edges: Vec<Edge>, ends: [usize; 2], carried: Carried) -> Merged {
        if !carried.time {
            edges.iter_mut().for_each(|edge| edge.time = 0);
        }
        EdgeList::Valued(edges.into()).merge(ends, carried)
    }

    fn merge_plain(edges: &[Edge], ends: [usize; 2]) -> Merged {
        let keys: Vec<u64> = edges.iter().map(|edge| edge.key).collect();
        EdgeList::Plain(keys.into()).merge(ends, Carried::default())
    }

    #[test]
    fn repeats_without_times_add_their_weights() {
        let mut oracle: BTreeMap<u64, f64> = BTreeMap::new();
        for edge in edges() {
            *oracle.entry(edge.key).or_insert(0.0) += f64::from(edge.weight);
        }
        let merged = merge_all(edges(), [14, 17], WEIGHTS);
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
        let merged = merge_all(edges(), [14, 17], ALL);
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
        let forward = merge_all(edges(), [13, 17], ALL);
        let backward = merge_all(edges().into_iter().rev().collect(), [13, 17], ALL);
        assert_eq!(forward.adjacency, backward.adjacency);
        assert_eq!((&forward.weight, &forward.time), (&backward.weight, &backward.time));
        assert_eq!((&forward.src, &forward.dst), (&backward.src, &backward.dst));
    }

    #[test]
    fn figures_of_an_end_are_those_of_a_loop() {
        let merged = merge_all(edges(), [13, 18], ALL);
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
        let plain = merge_plain(&edges(), [13, 18]);
        assert_eq!(plain.src.degree, merged.src.degree);
        assert_eq!(plain.adjacency, merge_all(edges(), [13, 18], WEIGHTS).adjacency);
        assert!(plain.weight.is_none() && plain.src.count.is_empty());
    }

    /// What a loop over sorted edges makes: entries with weight and time, and the figures of both ends.
    fn by_a_loop(mut edges: Vec<Edge>, [dsts, srcs]: [usize; 2], carried: Carried) -> (Vec<Entry>, [EndFigures; 2]) {
        edges.sort_by(|a, b| {
            let by_time = if carried.time { a.time.cmp(&b.time) } else { Ordering::Equal };
            let by_row = (a.key >> 32).cmp(&(b.key >> 32)).then(by_time);
            by_row.then(a.key.cmp(&b.key)).then(a.weight.total_cmp(&b.weight)).then(a.row.cmp(&b.row))
        });
        let mut entries: Vec<Entry> = Vec::new();
        let mut ends = [dsts, srcs].map(|nodes| EndFigures::new(nodes, carried.weight, carried.time));
        let (mut seen, mut sum) = (std::collections::BTreeSet::new(), 0.0);
        for edge in edges {
            let is_first = seen.insert(edge.key);
            if is_first || carried.time {
                entries.push((edge.key, 0.0, edge.time, Vec::new()));
                sum = 0.0;
            }
            sum += f64::from(edge.weight);
            let last = entries.last_mut().unwrap();
            last.1 = sum as f32;
            last.3.push(edge.row);
            for (end, node) in ends.iter_mut().zip([(edge.key >> 32) as usize, edge.key as u32 as usize]) {
                end.whole().add(node, edge.weight, edge.time, is_first);
            }
        }
        (entries, ends)
    }

    /// Ends, weight, time, rows.
    type Entry = (u64, f32, i64, Vec<u32>);

    #[test]
    fn buckets_and_threads_change_nothing() {
        let draw = |of: u64, below: u64| (of.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % below;
        // One destination has a third of the edges.
        let dst = |at: u64| if at.is_multiple_of(3) { 4_242 } else { draw(at, 5_000) as u32 };
        let edge = |at: u64| Edge {
            key: key(dst(at), draw(at + 7, 700) as u32),
            time: draw(at * 3, 50) as i64,
            weight: draw(at * 5, 1_000) as f32 * 0.1 - 20.0,
            row: at as u32,
        };
        let edges: Vec<Edge> = (0..250_000).map(edge).collect();
        assert!(edges.len() > FEW && Buckets::of(5_001, edges.len()).len() > 100);
        for (carried, threads) in [(ALL, 1), (ALL, 5), (WEIGHTS, 2), (WEIGHTS, 8)] {
            let (expected, [dst, src]) = by_a_loop(edges.clone(), [5_001, 701], carried);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let merged = pool.install(|| merge_all(edges.clone(), [5_001, 701], carried));
            assert_eq!((&merged.dst, &merged.src), (&dst, &src));
            let weights = merged.weight.as_ref().unwrap();
            let rows = (0..5_001usize).flat_map(|dst| {
                let adjacency = &merged.adjacency;
                adjacency.entries(dst).zip(adjacency.row(dst)).map(move |(at, &src)| (at, key(dst as u32, src)))
            });
            let found: Vec<Entry> = rows
                .map(|(at, key)| {
                    let time = merged.time.as_ref().map_or(expected[at].2, |times| times[at]);
                    let rows =
                        merged.origins.as_ref().map_or(expected[at].3.clone(), |origins| origins.of(at).to_vec());
                    (key, weights[at], time, rows)
                })
                .collect();
            assert!(found == expected, "{carried:?}, {threads} threads");
            assert_eq!(merged.repeated, edges.len() - src.degree.iter().map(|&degree| degree as usize).sum::<usize>());
        }
        let plain = merge_plain(&edges, [5_001, 701]);
        assert_eq!(plain.adjacency, merge_all(edges, [5_001, 701], WEIGHTS).adjacency);
    }
}
