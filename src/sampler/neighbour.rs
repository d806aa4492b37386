//! Sampling in host memory, rows in parallel.

use std::sync::Arc;

use graphsieve_kernels::{distinct, hash, repeated, repeated_by_weight, smallest, weighted_key};
use rayon::prelude::*;

use super::batch::{Block, MiniBatch};
use super::config::{Fanout, SamplerConfig};
use crate::error::{Error, Result};
use crate::graph::{Adjacency, HeteroGraph};

/// Rows of one task.
const TASK_ROWS: usize = 256;

/// Samples the in-neighbours of nodes, layer after layer.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use graphsieve::graph::{Adjacency, HeteroGraph, RelationSpec};
/// use graphsieve::sampler::{Fanout, NeighbourSampler, SamplerConfig};
/// // Five items in a ring with a chord; every item points to its predecessor and successor.
/// let ring = [(0, 1), (0, 4), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 4), (4, 0), (4, 3)];
/// let adjacency = Adjacency::from_edges(5, 5, &ring);
/// let spec = RelationSpec::new("next", 0, 0, adjacency);
/// let graph = Arc::new(HeteroGraph::new(vec![("item".into(), 5)], vec![spec])?);
/// let config = SamplerConfig::new(&[Fanout::All, Fanout::Most(1)], graph.relations().len());
/// let sampler = NeighbourSampler::new(graph, config)?;
/// let batch = sampler.sample(&mut sampler.scratch(), 0, &[vec![2]])?;
/// assert_eq!(batch.nodes[0][..3], [2, 1, 3]);
/// assert_eq!((batch.counts[0][0], batch.counts[1][0], batch.blocks[1][0].cols.len()), (1, 3, 3));
/// # Ok::<(), graphsieve::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct NeighbourSampler {
    graph: Arc<HeteroGraph>,
    config: SamplerConfig,
}

/// Where each node of the graph stands in the batch that is being made: memory that batches share.
#[derive(Clone, Debug)]
pub struct SampleScratch {
    /// `[type][node]`: the number of the batch that the node was last in, above its place there.
    places: Vec<Vec<u64>>,
    batches: u32,
}

impl SampleScratch {
    fn new(graph: &HeteroGraph) -> Self {
        let places = graph.node_types().iter().map(|node_type| vec![0; node_type.count]).collect();
        SampleScratch { places, batches: 0 }
    }

    /// Forgets all nodes.
    fn begin(&mut self) {
        self.batches = self.batches.wrapping_add(1);
        if self.batches == 0 {
            // Batches of long ago would be taken for this one.
            self.places.iter_mut().for_each(|places| places.fill(0));
            self.batches = 1;
        }
    }

    /// Replaces nodes by their places in `nodes`, where those are put that are not there.
    fn place_all(&mut self, node_type: usize, cols: &mut [u32], nodes: &mut Vec<u32>) {
        /// So many loads are under way before the first is waited for.
        const AHEAD: usize = 32;
        for chunk in cols.chunks_mut(AHEAD) {
            // The table is far larger than a cache, and the loop below may stop at every node.
            let touched = chunk.iter().fold(0, |touched, &node| touched ^ self.places[node_type][node as usize]);
            std::hint::black_box(touched);
            for col in chunk {
                *col = self.place(node_type, *col, nodes).0;
            }
        }
    }

    /// The place of `node` in `nodes`, where it is put if it is not there, and whether it was put.
    #[inline]
    fn place(&mut self, node_type: usize, node: u32, nodes: &mut Vec<u32>) -> (u32, bool) {
        let known = &mut self.places[node_type][node as usize];
        if (*known >> 32) as u32 == self.batches {
            return (*known as u32, false);
        }
        let place = nodes.len() as u32;
        *known = u64::from(self.batches) << 32 | u64::from(place);
        nodes.push(node);
        (place, true)
    }
}

impl NeighbourSampler {
    /// A sampler of `graph`.
    ///
    /// # Errors
    /// [`Error::Config`] that names the key.
    pub fn new(graph: Arc<HeteroGraph>, config: SamplerConfig) -> Result<Self> {
        config.check(graph.relations())?;
        Ok(NeighbourSampler { graph, config })
    }

    /// What is sampled from.
    pub fn graph(&self) -> &HeteroGraph {
        &self.graph
    }

    /// What is sampled.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// Memory for [`NeighbourSampler::sample`], eight bytes per node of the graph: one for each thread that samples
    /// batches.
    pub fn scratch(&self) -> SampleScratch {
        SampleScratch::new(&self.graph)
    }

    /// The mini-batch of that number around `seeds`, distinct nodes by type.
    ///
    /// # Errors
    /// [`Error::Data`] for a seed that does not exist or is there twice, and for a list of seeds that is not one per
    /// type.
    pub fn sample(&self, scratch: &mut SampleScratch, number: u64, seeds: &[Vec<u32>]) -> Result<MiniBatch> {
        self.sample_kept(scratch, number, seeds, |_| None::<fn(u32, u32) -> bool>)
    }

    /// Like [`NeighbourSampler::sample`], without the edges that a rule leaves out after they were drawn: nobody looks
    /// at what only they lead to. `keep` gives the rule of a layer and a relation, which is asked with destination and
    /// source, both numbered within their types; no rule keeps all.
    ///
    /// # Errors
    /// As [`NeighbourSampler::sample`].
    pub fn sample_kept<K: Fn(u32, u32) -> bool>(
        &self,
        scratch: &mut SampleScratch,
        number: u64,
        seeds: &[Vec<u32>],
        keep: impl Fn(EdgePlace) -> Option<K>,
    ) -> Result<MiniBatch> {
        self.check_seeds(seeds)?;
        scratch.begin();
        let mut nodes: Vec<Vec<u32>> = seeds.iter().map(|seeds| Vec::with_capacity(seeds.len())).collect();
        for (at, seeds) in seeds.iter().enumerate() {
            for &seed in seeds {
                scratch.place(at, seed, &mut nodes[at]);
            }
        }
        let mut counts = vec![nodes.iter().map(Vec::len).collect::<Vec<_>>()];
        let mut blocks = Vec::with_capacity(self.config.fanouts.len());
        for (layer, fanouts) in self.config.fanouts.iter().enumerate() {
            let before = &counts[layer];
            let mut of_layer = Vec::with_capacity(fanouts.len());
            for (at, (relation, &fanout)) in self.graph.relations().iter().zip(fanouts).enumerate() {
                let rows = &nodes[relation.dst][..before[relation.dst]];
                let key = self.key(number, layer, at, relation.src);
                let last = self.config.takes_last(relation);
                let wanted =
                    Wanted { entries: &relation.forward, weights: self.config.weights_of(at), last, fanout, key };
                let Drawn { mut row_ptr, mut edges, mut cols } = self.draw_all(&wanted, rows)?;
                if let Some(keep) = keep(EdgePlace { layer, relation: at }) {
                    leave_out(&mut row_ptr, &mut edges, &mut cols, |row, source| keep(rows[row], source));
                }
                scratch.place_all(relation.src, &mut cols, &mut nodes[relation.src]);
                of_layer.push(Block { row_ptr, cols, edges });
            }
            blocks.push(of_layer);
            counts.push(nodes.iter().map(Vec::len).collect());
        }
        Ok(MiniBatch { number, nodes, counts, blocks })
    }

    /// Refuses seeds that are not distinct nodes by type.
    ///
    /// # Errors
    /// As [`NeighbourSampler::sample`].
    pub fn check_seeds(&self, seeds: &[Vec<u32>]) -> Result<()> {
        let types = self.graph.node_types();
        let refuse = |what: String, expected: String, found: String, help: &str| Error::Data {
            what,
            expected,
            found,
            help: help.into(),
        };
        if seeds.len() != types.len() {
            let expected = format!("a list for each of {} node types", types.len());
            return Err(refuse("seeds".into(), expected, seeds.len().to_string(), "a list may be empty"));
        }
        for (seeds, node_type) in seeds.iter().zip(types) {
            let what = || format!("seed of type {}", node_type.name);
            if let Some(seed) = seeds.iter().find(|&&seed| seed as usize >= node_type.count) {
                let expected = format!("nodes below {}", node_type.count);
                return Err(refuse(what(), expected, seed.to_string(), "number nodes within their type"));
            }
            let mut sorted = seeds.clone();
            sorted.sort_unstable();
            if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                let found = format!("{} twice", pair[0]);
                return Err(refuse(what(), "distinct nodes".into(), found, "leave repetitions out"));
            }
        }
        Ok(())
    }

    /// What the draws of a relation in a layer of a batch start from; `source` is the type of its sources.
    pub fn key(&self, number: u64, layer: usize, relation: usize, source: usize) -> u64 {
        let seed = hash(self.config.seed, 0);
        match self.config.dependency {
            // One variate per node of the source type, whatever the layer and the relation.
            Some(batches) => [number / u64::from(batches), source as u64].into_iter().fold(seed, hash),
            None => [number, layer as u64, relation as u64].into_iter().fold(seed, hash),
        }
    }

    /// How many entries of a row are taken.
    fn count(&self, wanted: &Wanted, row: u32) -> usize {
        let entries = wanted.entries.entries(row as usize);
        let available = match wanted.weights {
            None => entries.len(),
            Some(weights) => weights[entries].iter().filter(|&&weight| weight > 0.0).count(),
        };
        wanted.fanout.count(available, self.config.replace && !wanted.last)
    }

    /// Draws for all of `rows`.
    fn draw_all(&self, wanted: &Wanted, rows: &[u32]) -> Result<Drawn> {
        let counts: Vec<usize> = rows.par_iter().with_min_len(TASK_ROWS).map(|&row| self.count(wanted, row)).collect();
        let mut row_ptr = Vec::with_capacity(rows.len() + 1);
        let mut sum = 0u64;
        row_ptr.push(0);
        for count in counts {
            sum += count as u64;
            row_ptr.push(sum as u32);
        }
        if sum > u64::from(u32::MAX) {
            return Err(Error::Data {
                what: "sampled edges of one relation and layer".into(),
                expected: format!("at most {}", u32::MAX),
                found: sum.to_string(),
                help: "lower the fanouts or the number of seeds".into(),
            });
        }
        let (mut edges, mut cols) = (vec![0; sum as usize], vec![0; sum as usize]);
        let (mut left, mut left_cols) = (&mut edges[..], &mut cols[..]);
        let mut tasks = Vec::with_capacity(rows.len().div_ceil(TASK_ROWS));
        for (task, rows) in rows.chunks(TASK_ROWS).enumerate() {
            let starts = &row_ptr[task * TASK_ROWS..][..rows.len() + 1];
            let len = (starts[rows.len()] - starts[0]) as usize;
            let (of_task, rest) = std::mem::take(&mut left).split_at_mut(len);
            let (cols_of_task, rest_cols) = std::mem::take(&mut left_cols).split_at_mut(len);
            (left, left_cols) = (rest, rest_cols);
            tasks.push((rows, starts, of_task, cols_of_task));
        }
        let sources = wanted.entries.col_idx();
        tasks.into_par_iter().for_each_init(Room::default, |room, (rows, starts, edges, cols)| {
            for (&row, ends) in rows.iter().zip(starts.windows(2)) {
                let of_row = &mut edges[(ends[0] - starts[0]) as usize..(ends[1] - starts[0]) as usize];
                if !of_row.is_empty() {
                    room.places.resize(of_row.len(), 0);
                    self.draw(wanted, row, room);
                    let first = wanted.entries.entries(row as usize).start as u64;
                    of_row.iter_mut().zip(&room.places).for_each(|(edge, &place)| *edge = first + u64::from(place));
                }
            }
            // After all draws of the task: these loads do not wait for each other.
            cols.iter_mut().zip(edges).for_each(|(col, edge)| *col = sources[*edge as usize]);
        });
        Ok(Drawn { row_ptr, edges, cols })
    }

    /// Fills `room` with places among the entries of a row; there is at least one to take.
    fn draw(&self, wanted: &Wanted, row: u32, room: &mut Room) {
        let entries = wanted.entries.entries(row as usize);
        let Room { places, keyed, sums } = room;
        if wanted.last {
            let first = entries.len() - places.len();
            return places.iter_mut().zip(first as u32..).for_each(|(place, at)| *place = at);
        }
        let of_row = hash(wanted.key, row.into());
        let by_chance = self.config.replace && wanted.fanout != Fanout::All;
        let weights = wanted.weights.map(|weights| &weights[entries.clone()]);
        match (self.config.dependency, weights) {
            (None, None) if by_chance => repeated(places, entries.len(), of_row),
            (None, None) => distinct(places, entries.len(), of_row),
            (None, Some(weights)) if by_chance => repeated_by_weight(places, weights, of_row, sums),
            (None, Some(weights)) => {
                let positive = weights.iter().zip(0..).filter(|(weight, _)| **weight > 0.0);
                let keys = positive.map(|(&weight, at)| (weighted_key(hash(of_row, u64::from(at)), weight), at));
                smallest(places, keys, keyed);
            }
            (Some(_), weights) => {
                let sources = wanted.entries.col_idx()[entries].iter().zip(0..);
                let of_source = |source: u32| hash(wanted.key, source.into());
                match weights {
                    None => smallest(places, sources.map(|(&source, at)| (of_source(source), at)), keyed),
                    Some(weights) => {
                        let positive = sources.zip(weights).filter(|(_, weight)| **weight > 0.0);
                        let keys =
                            positive.map(|((&source, at), &weight)| (weighted_key(of_source(source), weight), at));
                        smallest(places, keys, keyed);
                    }
                }
            }
        }
    }
}

/// Where an edge is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgePlace {
    /// 0 is next to the seeds.
    pub layer: usize,
    /// Number of the relation in the graph.
    pub relation: usize,
}

/// Keeps the entries for which `keep` holds of row and source.
fn leave_out(row_ptr: &mut [u32], edges: &mut Vec<u64>, cols: &mut Vec<u32>, keep: impl Fn(usize, u32) -> bool) {
    let (mut from, mut to) = (0, 0);
    for row in 0..row_ptr.len() - 1 {
        for at in from..row_ptr[row + 1] as usize {
            (edges[to], cols[to]) = (edges[at], cols[at]);
            to += usize::from(keep(row, cols[at]));
        }
        from = row_ptr[row + 1] as usize;
        row_ptr[row + 1] = to as u32;
    }
    edges.truncate(to);
    cols.truncate(to);
}

/// What was drawn of a relation.
struct Drawn {
    /// Where the entries of each row begin.
    row_ptr: Vec<u32>,
    /// The entries.
    edges: Vec<u64>,
    /// Their sources.
    cols: Vec<u32>,
}

/// What is drawn from.
struct Wanted<'a> {
    entries: &'a Adjacency,
    weights: Option<&'a [f32]>,
    /// Whether the last entries are taken.
    last: bool,
    fanout: Fanout,
    key: u64,
}

/// Places of one row while they are drawn.
#[derive(Default)]
struct Room {
    places: Vec<u32>,
    keyed: Vec<(u64, u32)>,
    sums: Vec<f64>,
}
