//! A sampled batch as one array of words and one matrix, so that it changes hands by two copies.

use std::fmt;
use std::ops::Range;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Int, Tensor, TensorMetadata, TensorPrimitive};

use super::{DeviceSample, SampledLayer, SampledShape, advance};
use crate::graph::csr::{Csr, Topology};
use crate::runtime::host::{index_tensor, words_to_host};
use crate::runtime::lists::ALIGNMENT;
use crate::sampling::backend::{SampleBackend, ValueStep, long_room};
use crate::sampling::collect::RowCollector;

/// How a stretch is copied: from which of four arrays, and whether its first word is taken off all of them.
#[derive(Clone, Copy)]
enum From {
    Starts = 0,
    Cols = 1,
    ColumnStarts = 2,
    Destinations = 3,
}

/// Words that are copied.
#[derive(Clone, Copy)]
struct Stretch {
    to: usize,
    len: usize,
    from: usize,
    of: From,
}

/// Long rows that are listed.
struct LongRows {
    /// Starts of the rows, or of the columns.
    of: From,
    rows: Range<usize>,
    to: usize,
    /// Where they are counted.
    tally: usize,
}

/// What is written for a layer.
struct Plan {
    relations: Vec<SampledCsr>,
    stretches: Vec<Stretch>,
    long: Vec<LongRows>,
    /// The words of all of it.
    range: Range<usize>,
}

/// Where the arrays of one direction of an adjacency stand.
#[derive(Clone, Copy, Debug)]
struct Direction {
    rows: usize,
    cols: usize,
    row_ptr: usize,
    col_idx: usize,
    long_rows: usize,
    num_long: usize,
}

/// One relation of a layer of a [`PackedSample`].
#[derive(Clone, Copy, Debug)]
pub struct SampledCsr {
    /// Node type of the sources.
    pub src: usize,
    /// Node type of the destinations.
    pub dst: usize,
    edges: usize,
    forward: Direction,
    reverse: Option<Direction>,
    /// Where the values of its edges begin, and how many each has.
    values: Option<(usize, usize)>,
}

/// A sampled batch with its features on a device, to be handed from the thread that made it to another one.
///
/// Memory belongs to the thread that took it, and CubeCL does not keep it for kernels of another one. So the other
/// thread makes a copy ([`PackedSample::copied`]), and the first one waits for that copy before it takes memory again
/// ([`PackedSample::wait_for`]).
#[derive(Clone)]
pub struct PackedSample<B: SampleBackend> {
    words: IntTensor<B>,
    rows: FloatTensor<B>,
    /// `[type]`: where its rows begin, and how many there are.
    of_type: Vec<(usize, usize)>,
    /// `[type]`: where its nodes are listed.
    lists: Vec<usize>,
    /// `[layer][relation]`, the layer next to the seeds first.
    pub relations: Vec<Vec<SampledCsr>>,
    /// `[layer + 1][type]`: nodes before the layer and, last, after all of them.
    pub counts: Vec<Vec<usize>>,
    /// Rows that the batch before had, too.
    pub shared: usize,
    /// Rows of the cache.
    pub cached: usize,
}

impl<B: SampleBackend> fmt::Debug for PackedSample<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedSample({:?} nodes, {} layers)", self.counts.last(), self.relations.len())
    }
}

/// The next free part of the array.
fn part(end: &mut usize, len: usize) -> usize {
    advance(end, len.max(1).next_multiple_of(ALIGNMENT))
}

impl<B: SampleBackend> DeviceSample<B> {
    /// Collects the features of the nodes, unless somebody else does, and puts everything together; waits for the
    /// device.
    pub fn pack(self, collector: Option<&mut RowCollector<B>>) -> PackedSample<B> {
        let relations = self.layers.first().map_or(0, |layer| layer.shapes.len());
        // Shared and cached rows, then the long rows of every relation in both directions.
        let tallied = 2 + 2 * relations * self.layers.len();
        let tally = index_tensor::<B>(vec![0; tallied], &self.device);
        let rows = match collector {
            Some(collector) => collector.collect(&self, &tally),
            None => B::float_empty([0, 0].into(), &self.device, DType::F32.into()),
        };
        let mut end = 0;
        let mut plans = Vec::with_capacity(self.layers.len());
        for (at, layer) in self.layers.iter().enumerate() {
            plans.push(layer.plan(&mut end, 2 + 2 * at * relations));
        }
        let counts = self.counts.last().cloned().unwrap_or_default();
        let first = end;
        let lists: Vec<usize> = counts.iter().map(|&count| part(&mut end, count)).collect();
        let listed = first..end;
        for plan in &mut plans {
            for (of, values) in plan.relations.iter_mut().zip(&self.values) {
                of.values = values.as_ref().map(|values| (part(&mut end, of.edges * values.width), values.width));
            }
        }
        // There is room between the arrays and behind lists of long rows, and the whole is copied.
        let words = Tensor::<B, 1, Int>::zeros([end.max(1)], (&self.device, DType::I32)).into_primitive();
        for (layer, plan) in self.layers.iter().zip(&plans) {
            layer.write(plan, &words, &tally);
        }
        let of_lists = lists.iter().zip(&self.lists).zip(&counts);
        let of_lists = of_lists.map(|((&to, &from), &len)| Stretch { to, len, from, of: From::Cols });
        copy::<B>([&self.nodes; 4], &of_lists.collect::<Vec<_>>(), &words, listed);
        for (layer, plan) in self.layers.iter().zip(&plans) {
            self.gather_values(layer, &plan.relations, &words);
        }
        // What is read last was launched last: all of the batch is done then.
        let tally = words_to_host::<B>(&tally, 0..tallied);
        let mut long = tally[2..].chunks(2);
        let mut with_long = |mut plan: Plan| {
            for (of, long) in plan.relations.iter_mut().zip(long.by_ref()) {
                of.forward.num_long = long[0] as usize;
                of.reverse.iter_mut().for_each(|reverse| reverse.num_long = long[1] as usize);
            }
            plan.relations
        };
        PackedSample {
            words,
            rows,
            of_type: self.first.iter().copied().zip(counts).collect(),
            lists,
            relations: plans.into_iter().map(&mut with_long).collect(),
            counts: self.counts,
            shared: tally[0] as usize,
            cached: tally[1] as usize,
        }
    }
}

impl<B: SampleBackend> DeviceSample<B> {
    /// Collects the values of the edges of a layer, in the order of its adjacencies.
    fn gather_values(&self, layer: &SampledLayer<B>, packed: &[SampledCsr], words: &IntTensor<B>) {
        let Some(parts) = &layer.parts else { return };
        for ((shape, of), values) in layer.shapes.iter().zip(packed).zip(&self.values) {
            if let (Some((start, width)), Some(values), 1..) = (of.values, values, of.edges) {
                let step = ValueStep { first: shape.first_edge, len: of.edges, width, start };
                B::gather_values(&values.words.words(), &parts.edges, step, words);
            }
        }
    }
}

impl<B: SampleBackend> SampledLayer<B> {
    /// Where the arrays of every relation go, and what is written there. Long rows are counted from `tally` on.
    fn plan(&self, end: &mut usize, tally: usize) -> Plan {
        let begin = *end;
        let (mut stretches, mut long) = (Vec::new(), Vec::new());
        let of = |(at, shape): (usize, &SampledShape)| {
            let mut direction = |way: usize, first: usize, rows: usize, cols: usize, may_be_long: bool| {
                let (starts, ends) = [(From::Starts, From::Cols), (From::ColumnStarts, From::Destinations)][way];
                let room = if may_be_long { long_room(shape.edges) } else { 0 };
                let [row_ptr, col_idx, long_rows] = [rows + 1, shape.edges, room].map(|len| part(end, len));
                stretches.push(Stretch { to: row_ptr, len: rows + 1, from: first, of: starts });
                stretches.push(Stretch { to: col_idx, len: shape.edges, from: shape.first_edge, of: ends });
                if room > 0 {
                    let tally = tally + 2 * at + way;
                    long.push(LongRows { of: starts, rows: first..first + rows, to: long_rows, tally });
                }
                Direction { rows, cols, row_ptr, col_idx, long_rows, num_long: 0 }
            };
            let forward = direction(0, shape.first_row, shape.rows, shape.cols, self.long_rows);
            let reverse = self.reverse.as_ref().map(|_| direction(1, shape.first_col, shape.cols, shape.rows, true));
            SampledCsr { src: shape.src, dst: shape.dst, edges: shape.edges, forward, reverse, values: None }
        };
        let relations = self.shapes.iter().enumerate().map(of).collect();
        Plan { relations, stretches, long, range: begin..*end }
    }

    /// Writes it to words that are zero.
    fn write(&self, plan: &Plan, words: &IntTensor<B>, tally: &IntTensor<B>) {
        // Rows without entries all begin at zero.
        let Some(parts) = &self.parts else { return };
        let [col_starts, destinations] = self.reverse.as_ref().map_or([&parts.starts, &parts.cols], |of| of.each_ref());
        let from = [&parts.starts, &parts.cols, col_starts, destinations];
        copy::<B>(from, &plan.stretches, words, plan.range.clone());
        for list in &plan.long {
            B::list_long_rows(from[list.of as usize], list.rows.clone(), words, list.to, tally, list.tally);
        }
    }
}

fn copy<B: SampleBackend>(from: [&IntTensor<B>; 4], stretches: &[Stretch], to: &IntTensor<B>, range: Range<usize>) {
    if range.is_empty() {
        return;
    }
    let words = stretches.iter().flat_map(|s| [s.to, s.len, s.from, s.of as usize].map(|word| word as i32)).collect();
    B::pack_words(from, index_tensor::<B>(words, &B::int_device(to)), stretches.len(), to, range);
}

impl<B: SampleBackend> PackedSample<B> {
    /// A copy that belongs to the calling thread.
    pub fn copied(&self) -> Self {
        let words = B::copy_words(&self.words);
        let rows = match self.rows.shape()[0] {
            // No device takes a launch over nothing.
            0 => self.rows.clone(),
            _ => B::copy_rows(&self.rows),
        };
        Self { words, rows, ..self.clone() }
    }

    /// Whatever the calling thread launches from now on happens after what another thread launched so far: the one that
    /// `copy` belongs to.
    pub fn wait_for(copy: &Self) {
        drop(B::copy_words(&B::words_at(&copy.words, 0, 1)));
    }

    /// The features of the nodes of a type, in the order of the batch.
    ///
    /// # Panics
    /// If it was packed without them.
    pub fn x(&self, node_type: usize) -> Tensor<B, 2> {
        let (first, rows) = self.of_type[node_type];
        let x = match rows {
            0 => {
                B::float_empty([0, self.rows.shape()[1]].into(), &B::float_device(&self.rows), self.rows.dtype().into())
            }
            _ => {
                assert!(self.rows.shape()[0] > 0, "PackedSample::x: expected features, packed without a collector");
                B::rows_at(&self.rows, first, rows)
            }
        };
        Tensor::from_primitive(TensorPrimitive::Float(x))
    }

    /// The nodes of a type, in the order of the batch; `None` where there are none.
    pub fn nodes(&self, node_type: usize) -> Option<Tensor<B, 1, Int>> {
        let count = self.of_type[node_type].1;
        (count > 0).then(|| Tensor::from_primitive(B::words_at(&self.words, self.lists[node_type], count)))
    }

    /// The same, read back.
    pub fn nodes_to_host(&self, node_type: usize) -> Vec<u32> {
        let first = self.lists[node_type];
        words_to_host::<B>(&self.words, first..first + self.of_type[node_type].1)
    }

    /// The adjacency of a relation of a layer: destinations by sources, in the order of the batch; `None` where either
    /// end has no node.
    pub fn csr(&self, layer: usize, relation: usize) -> Option<Csr<B>> {
        let of = &self.relations[layer][relation];
        if of.forward.rows == 0 || of.forward.cols == 0 {
            return None;
        }
        let topology = |direction: &Direction| {
            let words = |start: usize, len: usize| B::words_at(&self.words, start, len.max(1));
            Topology {
                row_ptr: words(direction.row_ptr, direction.rows + 1),
                col_idx: words(direction.col_idx, of.edges),
                spans: false,
                num_rows: direction.rows,
                num_cols: direction.cols,
                num_edges: of.edges,
                num_entries: of.edges,
                long_rows: words(direction.long_rows, direction.num_long),
                num_long: direction.num_long,
            }
        };
        Some(Csr::of_topologies(topology(&of.forward), of.reverse.as_ref().map(topology)))
    }

    /// The values of the edges of a relation of a layer, a row per entry of [`PackedSample::csr`]; `None` where the
    /// relation has none.
    pub fn values(&self, layer: usize, relation: usize) -> Option<Tensor<B, 2>> {
        let of = &self.relations[layer][relation];
        let (start, width) = of.values?;
        let values = match of.edges {
            0 => B::float_empty([0, width].into(), &B::float_device(&self.rows), DType::F32.into()),
            edges => B::floats_at(&self.words, start, [edges, width]),
        };
        Some(Tensor::from_primitive(TensorPrimitive::Float(values)))
    }

    /// Number of sampled edges.
    pub fn num_edges(&self) -> usize {
        self.relations.iter().flatten().map(|of| of.edges).sum()
    }
}
