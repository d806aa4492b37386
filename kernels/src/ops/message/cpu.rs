//! Message passing on the CPU: rayon over rows, pieces of rows or stretches of entries; messages stay in L1.

use std::ops::Range;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Bytes, DType, Shape};
use burn_backend::TensorMetadata;
use burn_flex::{Flex, FlexTensor, Layout};
use rayon::prelude::*;

use super::{Fold, MessageBackend, Messages, NO_ENTRY, Place, Strategy, Term};
use crate::graph::csr::{EdgeIds, View};
use crate::graph::row_entries::RowEntries;
use crate::runtime::flex::{self, Offsets, ROWS_PER_TASK, Storage, axpy, dot, in_edges, with_storage};
use crate::runtime::rows::{Kernel, Vector, dispatch};

/// Entries of one rayon task.
const EDGES_PER_TASK: usize = 1024;

impl MessageBackend for Flex {
    fn reduce_messages(
        view: &View<IntTensor<Self>>,
        edge_map: Option<EdgeIds<IntTensor<Self>>>,
        messages: &Messages<FloatTensor<Self>, IntTensor<Self>>,
        fold: Fold,
        out_width: usize,
        strategy: Strategy,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> (FloatTensor<Self>, Option<IntTensor<Self>>) {
        let messages = contiguous(messages);
        let parts = strategy.parts(view.num_rows(), &view.topology);
        with_storage!(messages.operands[0].values.dtype(), E => {
            reduce::<E>(view, edge_map, &messages, fold, out_width, parts, accumulate_into)
        })
    }

    fn edge_messages(
        view: &View<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        messages: &Messages<FloatTensor<Self>, IntTensor<Self>>,
        out_width: usize,
        strategy: Strategy,
    ) -> FloatTensor<Self> {
        let messages = contiguous(messages);
        with_storage!(messages.operands[0].values.dtype(), E => {
            edge_values::<E>(view, edge_map.as_ref(), &messages, out_width, strategy)
        })
    }
}

fn contiguous(messages: &Messages<FlexTensor, FlexTensor>) -> Messages<FlexTensor, FlexTensor> {
    let mut messages = messages.clone();
    for operand in messages.operands.iter_mut().chain(&mut messages.scale) {
        operand.values = operand.values.to_contiguous();
    }
    messages
}

/// Where the operands of an entry stand.
#[derive(Clone, Copy)]
struct Entry {
    /// Nodes, for factors.
    nodes: [usize; 2],
    /// Rows of matrices at the row, at the column and of the entry.
    rows: [usize; 3],
}

fn index_of(place: Place) -> usize {
    match place {
        Place::Row => 0,
        Place::Col => 1,
        Place::Edge => 2,
    }
}

/// The elements of [`Messages`].
struct Reader<'a, E> {
    term: Term,
    width: usize,
    operands: Vec<(&'a [E], usize, Place)>,
    scale: Option<(&'a [f32], Place)>,
    winners: Option<(&'a [u32], Place)>,
}

/// Room for the operands of one message.
struct Scratch([[Vec<f32>; 2]; 3]);

impl Scratch {
    fn new(width: usize) -> Self {
        Self(std::array::from_fn(|_| [vec![0.0; width], vec![0.0; width]]))
    }
}

/// What folding the entries of a row takes.
struct Room {
    entries: Vec<Entry>,
    scratch: Scratch,
}

impl Room {
    fn new(width: usize) -> Self {
        Self { entries: Vec::new(), scratch: Scratch::new(width) }
    }
}

impl<'a, E: Storage> Reader<'a, E> {
    fn new(messages: &'a Messages<FlexTensor, FlexTensor>) -> Self {
        let operands = messages.operands.iter();
        let winners = messages.winners.as_ref();
        Self {
            term: messages.term,
            width: messages.width,
            operands: operands.map(|o| (flex::slice::<E>(&o.values), o.values.shape()[1], o.place)).collect(),
            scale: messages.scale.as_ref().map(|s| (flex::slice::<f32>(&s.values), s.place)),
            winners: winners.map(|(w, place)| (w.as_slice::<u32>().expect("winners are contiguous u32"), *place)),
        }
    }

    /// Folds the messages of `entries` into `sums`; where the best is looked for, `held` tells where each came from.
    fn fold(&self, entries: &[Entry], sums: &mut [f32], held: Option<Held<'_>>, scratch: &mut Scratch) {
        dispatch(FoldMessages { reader: self, entries, sums, held, scratch });
    }

    /// The rows of the operands of an entry.
    #[inline(always)]
    fn row(&self, operand: usize, entry: &Entry) -> &'a [E] {
        let (values, columns, place) = self.operands[operand];
        let at = entry.rows[index_of(place)];
        &values[at * columns..(at + 1) * columns]
    }

    /// Whether the messages are products of two operands with a value per channel and nothing else.
    fn is_product(&self) -> bool {
        let full = self.operands.iter().all(|(_, columns, _)| *columns == self.width);
        self.term == Term::Mul && full && self.scale.is_none() && self.winners.is_none()
    }
}

/// A row as f32, one value per channel of `room`.
#[inline(always)]
fn channels<'a, E: Storage>(row: &'a [E], [room, narrow]: &'a mut [Vec<f32>; 2]) -> &'a [f32] {
    if row.len() == room.len() {
        return E::row(row, room);
    }
    let share = room.len() / row.len();
    let row = E::row(row, &mut narrow[..row.len()]);
    for (channels, &value) in room.chunks_exact_mut(share).zip(row) {
        channels.fill(value);
    }
    room
}

/// Where the best messages so far came from.
struct Held<'a> {
    entries: &'a mut [u32],
    /// The smallest is the best.
    smallest: bool,
}

/// [`Reader::fold`].
struct FoldMessages<'r, 'a, E> {
    reader: &'r Reader<'a, E>,
    entries: &'r [Entry],
    sums: &'r mut [f32],
    held: Option<Held<'r>>,
    scratch: &'r mut Scratch,
}

impl<E: Storage> Kernel for FoldMessages<'_, '_, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let Self { reader, entries, sums, mut held, scratch } = self;
        for entry in entries {
            let mut operands = [&[][..]; 3];
            let rooms = operands.iter_mut().zip(&mut scratch.0).take(reader.operands.len());
            for (k, (operand, room)) in rooms.enumerate() {
                *operand = channels(reader.row(k, entry), room);
            }
            let winners = reader.winners.map(|(entries, place)| {
                let at = entry.rows[index_of(place)] * reader.width;
                (&entries[at..at + reader.width], entry.rows[2] as u32)
            });
            let scale = reader.scale.map_or(1.0, |(scale, place)| scale[entry.nodes[index_of(place)]]);
            let best = held.as_mut().map(|held| Best {
                entries: &mut *held.entries,
                entry: entry.rows[2] as u32,
                smallest: held.smallest,
            });
            FoldMessage { operands, scale, winners, sums: &mut *sums, best }.fold(reader.term);
        }
    }
}

/// The entries that the best messages so far came from.
struct Best<'a> {
    entries: &'a mut [u32],
    entry: u32,
    /// The smallest is the best.
    smallest: bool,
}

/// `sums = fold(sums, scale * term)`, channel by channel.
struct FoldMessage<'a> {
    operands: [&'a [f32]; 3],
    scale: f32,
    /// The entries that count, and this one.
    winners: Option<(&'a [u32], u32)>,
    sums: &'a mut [f32],
    best: Option<Best<'a>>,
}

impl FoldMessage<'_> {
    #[inline(always)]
    fn fold(self, term: Term) {
        // Equal lengths let the compiler drop the checks from the loops.
        let width = self.sums.len();
        let operands = self.operands;
        let of = |operand: usize| &operands[operand][..width];
        match term {
            Term::Copy => {
                let a = of(0);
                self.each(|k| a[k]);
            }
            Term::Negate => {
                let a = of(0);
                self.each(|k| -a[k]);
            }
            Term::Add => {
                let (a, b) = (of(0), of(1));
                self.each(|k| a[k] + b[k]);
            }
            Term::Sub => {
                let (a, b) = (of(0), of(1));
                self.each(|k| a[k] - b[k]);
            }
            Term::Mul => {
                let (a, b) = (of(0), of(1));
                self.each(|k| a[k] * b[k]);
            }
            Term::Div => {
                let (a, b) = (of(0), of(1));
                self.each(|k| a[k] / b[k]);
            }
            Term::DivisorGradient => {
                let (a, b, c) = (of(0), of(1), of(2));
                self.each(|k| -a[k] * b[k] / (c[k] * c[k]));
            }
        }
    }

    #[inline(always)]
    fn each(self, message: impl Fn(usize) -> f32) {
        let (sums, scale) = (self.sums, self.scale);
        let width = sums.len();
        if let Some(best) = self.best {
            let entries = &mut best.entries[..width];
            for (k, (sum, held)) in sums.iter_mut().zip(entries).enumerate() {
                let value = message(k);
                let better = if best.smallest { value < *sum } else { value > *sum };
                // Of equal ones the edge that comes first, wherever its entry stands. Without branches, so that it
                // becomes vector code.
                let takes = better | (*held == NO_ENTRY) | ((value == *sum) & (best.entry < *held));
                *sum = if takes { value } else { *sum };
                *held = if takes { best.entry } else { *held };
            }
        } else if let Some((entries, entry)) = self.winners {
            let entries = &entries[..width];
            for (k, (sum, &winner)) in sums.iter_mut().zip(entries).enumerate() {
                let value = scale * message(k);
                *sum += if winner == entry { value } else { 0.0 };
            }
        } else {
            for (k, sum) in sums.iter_mut().enumerate() {
                *sum += scale * message(k);
            }
        }
    }
}

/// The channels of every output column added up.
fn add_up(sums: &[f32], ones: &[f32], out: &mut [f32]) {
    if sums.len() == out.len() {
        return out.copy_from_slice(sums);
    }
    let share = sums.len() / out.len();
    for (out, channels) in out.iter_mut().zip(sums.chunks_exact(share)) {
        *out = dot(channels, &ones[..share]);
    }
}

fn reduce<E: Storage>(
    view: &View<FlexTensor>,
    edge_map: Option<EdgeIds<FlexTensor>>,
    messages: &Messages<FlexTensor, FlexTensor>,
    fold: Fold,
    out_width: usize,
    parts: usize,
    accumulate_into: Option<FlexTensor>,
) -> (FlexTensor, Option<FlexTensor>) {
    let (rows, width) = (view.num_rows(), messages.width);
    let reader = Reader::<E>::new(messages);
    let row_entries = RowEntries::new(view, None);
    let position = view.cols.as_ref().map(|set| flex::ids(&set.position));
    let (edge_map, of_rows) = edge_map.map(EdgeIds::split).unzip();
    let (edge_map, of_rows) = (edge_map.as_ref().map(Offsets::of), of_rows.unwrap_or(false));
    let records = fold != Fold::Sum;
    // Folds some entries of result row `r`.
    let piece =
        |r: usize, (range, cols): (Range<usize>, &[i32]), sums: &mut [f32], held: &mut [u32], room: &mut Room| {
            let node = row_entries.node(r);
            room.entries.clear();
            for (e, &col) in range.zip(cols) {
                let col = col as usize;
                let at = position.map_or(col as i32, |p| p[col]);
                if at >= 0 {
                    let e = edge_map.map_or(e, |map| map.get(if of_rows { node } else { e }));
                    room.entries.push(Entry { nodes: [node, col], rows: [r, at as usize, e] });
                }
            }
            let held = records.then(|| Held { entries: held, smallest: fold == Fold::Min });
            reader.fold(&room.entries, sums, held, &mut room.scratch);
        };

    let adds = accumulate_into.is_some();
    let mut out = flex::target::<E>(accumulate_into, [rows, out_width]);
    let mut winners = vec![NO_ENTRY; if records { rows * width } else { 0 }];
    let block = (ROWS_PER_TASK * out_width).max(1);
    let winner_blocks: Vec<&mut [u32]> = match records {
        true => winners.chunks_mut((ROWS_PER_TASK * width).max(1)).collect(),
        false => (0..rows.div_ceil(ROWS_PER_TASK)).map(|_| &mut [][..]).collect(),
    };
    let values = flex::slice_mut::<E>(&mut out);
    values.par_chunks_mut(block).zip(winner_blocks).enumerate().for_each(|(task, (block, winners))| {
        let mut room = Room::new(width);
        let (mut sums, mut columns, ones) = (vec![0f32; width], vec![0f32; out_width], vec![1f32; width]);
        let mut own = vec![0f32; out_width];
        let mut winner_rows = winners.chunks_mut(width.max(1));
        for (k, out_row) in block.chunks_mut(out_width.max(1)).enumerate() {
            let r = task * ROWS_PER_TASK + k;
            let entries = winner_rows.next().unwrap_or_default();
            let (range, cols) = row_entries.entries(row_entries.node(r));
            if adds && range.is_empty() {
                continue;
            }
            sums.fill(0.0);
            if parts == 1 {
                piece(r, (range, cols), &mut sums, entries, &mut room);
            } else {
                let pieces = pieces(range, parts).into_par_iter().map(|(range, within)| {
                    let mut sums = vec![0f32; width];
                    let mut entries = vec![NO_ENTRY; if records { width } else { 0 }];
                    piece(r, (range, &cols[within]), &mut sums, &mut entries, &mut Room::new(width));
                    (sums, entries)
                });
                for (other, other_entries) in pieces.collect::<Vec<_>>() {
                    merge(fold, (&mut sums, entries), (&other, &other_entries));
                }
            }
            add_up(&sums, &ones, &mut columns);
            if adds {
                axpy(&mut columns, 1.0, E::row(out_row, &mut own));
            }
            E::narrow(&columns, out_row);
        }
    });
    let shape = Shape::new([rows, width]);
    let winners = records.then(|| FlexTensor::new(Bytes::from_elems(winners), Layout::contiguous(shape), DType::U32));
    (out, winners)
}

/// A range in `parts` equal pieces, each also counted from its start.
fn pieces(range: Range<usize>, parts: usize) -> Vec<(Range<usize>, Range<usize>)> {
    let len = range.len();
    let share = len.div_ceil(parts);
    let bounds = (0..parts).map(|p| (p * share).min(len)..((p + 1) * share).min(len));
    bounds.map(|within| (range.start + within.start..range.start + within.end, within)).collect()
}

/// Folds a later piece of a row into the ones before.
fn merge(fold: Fold, (sums, entries): (&mut [f32], &mut [u32]), (other, other_entries): (&[f32], &[u32])) {
    if fold == Fold::Sum {
        return axpy(sums, 1.0, other);
    }
    for k in 0..sums.len() {
        let better = if fold == Fold::Min { other[k] < sums[k] } else { other[k] > sums[k] };
        let earlier = other[k] == sums[k] && other_entries[k] < entries[k];
        if other_entries[k] != NO_ENTRY && (better || earlier || entries[k] == NO_ENTRY) {
            (sums[k], entries[k]) = (other[k], other_entries[k]);
        }
    }
}

fn edge_values<E: Storage>(
    view: &View<FlexTensor>,
    edge_map: Option<&FlexTensor>,
    messages: &Messages<FlexTensor, FlexTensor>,
    out_width: usize,
    strategy: Strategy,
) -> FlexTensor {
    let View { topology, rows, cols } = view;
    let (edges, width) = (topology.num_edges, messages.width);
    let reader = Reader::<E>::new(messages);
    let [row_position, col_position] = [rows, cols].map(|set| set.as_ref().map(|set| flex::ids(&set.position)));
    let place = |position: Option<&[i32]>, node: usize| position.map_or(node as i32, |position| position[node]);
    let cols = flex::ids(&topology.col_idx);
    let row_ptr = Offsets::of(&topology.row_ptr);
    let bounds: Vec<usize> = match strategy {
        Strategy::Rows => (0..topology.num_rows).step_by(ROWS_PER_TASK).map(|row| row_ptr.get(row)).collect(),
        Strategy::Auto | Strategy::Edges => (0..edges).step_by(EDGES_PER_TASK).collect(),
    };
    let ids = edge_map.map(Offsets::of);
    let share = width / out_width.max(1);
    let products = share > 1 && reader.is_product();
    let mut out = vec![E::default(); edges * out_width];
    // Tasks own disjoint stretches of the output.
    let mut tasks = Vec::with_capacity(bounds.len());
    let mut rest = out.as_mut_slice();
    for (k, &first) in bounds.iter().enumerate() {
        let last = bounds.get(k + 1).copied().unwrap_or(edges);
        let (stretch, tail) = rest.split_at_mut((last - first) * out_width);
        tasks.push((first, stretch));
        rest = tail;
    }
    tasks.into_par_iter().for_each(|(first, stretch)| {
        let mut scratch = Scratch::new(width);
        let (mut sums, ones) = (vec![0f32; width], vec![1f32; width]);
        let mut values = vec![0f32; stretch.len()];
        let mut row = row_of(row_ptr, topology.num_rows, first);
        for (k, columns) in values.chunks_mut(out_width.max(1)).enumerate() {
            let e = first + k;
            while row_ptr.get(row + 1) <= e {
                row += 1;
            }
            let col = cols[e] as usize;
            let (at_row, at_col) = (place(row_position, row), place(col_position, col));
            if at_row < 0 || at_col < 0 {
                continue;
            }
            let edge = ids.map_or(e, |ids| ids.get(e));
            let entry = Entry { nodes: [row, col], rows: [at_row as usize, at_col as usize, edge] };
            if products {
                let [a, b] = [0, 1].map(|k| reader.row(k, &entry));
                let [[room_a, _], [room_b, _], _] = &mut scratch.0;
                let (a, b) = (E::row(a, room_a), E::row(b, room_b));
                for ((out, a), b) in columns.iter_mut().zip(a.chunks_exact(share)).zip(b.chunks_exact(share)) {
                    *out = dot(a, b);
                }
            } else {
                sums.fill(0.0);
                reader.fold(&[entry], &mut sums, None, &mut scratch);
                add_up(&sums, &ones, columns);
            }
        }
        E::narrow(&values, stretch);
    });
    in_edges::<E>(edge_map, flex::tensor(out, [edges, out_width]))
}

/// The row of entry `e`.
fn row_of(row_ptr: Offsets<'_>, num_rows: usize, e: usize) -> usize {
    let (mut low, mut high) = (0, num_rows);
    while high > low + 1 {
        let middle = low + (high - low) / 2;
        if row_ptr.get(middle) <= e { low = middle } else { high = middle }
    }
    low
}
