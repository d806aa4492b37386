//! Message passing on CubeCL devices.

use burn::tensor::DType;
use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::{Float, Size};

use super::kernel::{
    EdgeShape, EdgeWorkArgs, EndPositionsArgs, MessageShape, OperandArgs, OperandLaunch, OperandsArgs, OperandsLaunch,
    edge_kernel,
};
use super::reduce_kernel::{
    MergeInputsArgs, MergeStepsArgs, MergedArgs, PiecesArgs, ReduceShape, ReducedArgs, merge_kernel, reduce_kernel,
};
use super::{Fold, MessageBackend, Messages, Place, Strategy};
use crate::graph::csr::{EdgeIds, Topology, View};
use crate::graph::row_schedule::{padded_bytes, row_launches};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, Target, address, empty, f32_vector, flat, vector_width, zeros};

/// Entries of a plane that goes by edges, for one lane per value.
const STRETCH: usize = 64;

/// Vectors of a value of an edge that a lane reads at a time.
const STEPS: usize = 4;

/// Vectors of messages that a lane has under way: enough to hide the latency of memory.
const VECTORS_IN_FLIGHT: usize = 4;

impl_for_devices! { MessageBackend =>
    fn reduce_messages(
        view: &View<IntTensor<Self>>,
        edge_map: Option<EdgeIds<IntTensor<Self>>>,
        messages: &Messages<FloatTensor<Self>, IntTensor<Self>>,
        fold: Fold,
        out_width: usize,
        strategy: Strategy,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> (FloatTensor<Self>, Option<IntTensor<Self>>) {
        let (rows, width, like) = (view.num_rows(), messages.width, &messages.operands[0].values);
        let finds_best = fold != Fold::Sum;
        let winners_of = |rows: usize| finds_best.then(|| empty(like, [rows, width], DType::U32));
        if rows * out_width == 0 || view.topology.num_edges == 0 || view.num_cols() == 0 {
            // Nobody reads winners where there is no entry.
            return (accumulate_into.unwrap_or_else(|| zeros(like, [rows, out_width], like.dtype)), winners_of(rows));
        }
        let parts = strategy.parts(rows, &view.topology);
        let reader = Reader::new(messages, edge_map);
        let out = Target::of(accumulate_into, like, [rows, out_width], like.dtype);
        if parts == 1 && out_width == width {
            let winners = winners_of(rows);
            reduce(view, &reader, fold, 1, &out, &winners);
            return (out.rows.tensor, winners);
        }
        // Pieces of rows, and channels that share a column, stay in f32 until they are added up.
        let whole = |rows: usize| Target { rows: Rows::of(empty(like, [rows, width], DType::F32)), accumulate_into: false };
        let (mut sums, mut winners) = (whole(rows * parts), winners_of(rows * parts));
        reduce(view, &reader, fold, parts, &sums, &winners);
        if parts > 1 {
            let steps = Steps { parts, row: parts * width, column: 1, part: width };
            let merged = winners_of(rows);
            if out_width == width {
                merge(&sums, &winners, fold, steps, &out, &merged);
                return (out.rows.tensor, merged);
            }
            let pieces = std::mem::replace(&mut sums, whole(rows));
            merge(&pieces, &winners, fold, steps, &sums, &merged);
            winners = merged;
        }
        let share = width / out_width;
        merge(&sums, &winners, fold, Steps { parts: share, row: width, column: share, part: 1 }, &out, &None);
        (out.rows.tensor, None)
    }

    fn edge_messages(
        view: &View<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        messages: &Messages<FloatTensor<Self>, IntTensor<Self>>,
        out_width: usize,
        strategy: Strategy,
    ) -> FloatTensor<Self> {
        let View { topology, rows, cols } = view;
        let like = &messages.operands[0].values;
        if view.num_rows() == 0 || view.num_cols() == 0 {
            return zeros(like, [topology.num_edges, out_width], like.dtype);
        }
        let out = empty(like, [topology.num_edges, out_width], like.dtype);
        if out.shape().num_elements() == 0 {
            return out;
        }
        let reader = Reader::new(messages, edge_map.map(EdgeIds::OfEntries));
        let geometry = PlanePerRow::of(&out.client);
        let plane = geometry.plane as usize;
        let adds_up = out_width < messages.width;
        let channels = messages.width / out_width;
        let v = if adds_up {
            reader.vector_width(gcd(channels, reader.unit()), &[])
        } else {
            reader.vector_width(reader.unit(), &[&Rows::of(out.clone())])
        };
        let (cells, share) = if adds_up { (out_width, channels / v) } else { (messages.width / v, 1) };
        // A lane reads several vectors of a value: a plane has more values under way, and adds up over fewer lanes.
        let lanes = if adds_up { share.div_ceil(STEPS).next_power_of_two().min(plane) } else { 1 };
        let steps = share.div_ceil(lanes).min(STEPS);
        let by_rows = strategy == Strategy::Rows;
        let stretch = (STRETCH / lanes.min(STRETCH)).max(plane / lanes);
        let end = if by_rows { topology.num_rows } else { topology.num_edges.div_ceil(stretch) };
        let (select_rows, select_cols) = (rows.is_some(), cols.is_some());
        let shape =
            EdgeShape { message: reader.shape(), lanes, steps, adds_up, plane, by_rows, select_rows, select_cols };
        // An argument that the kernel does not read still needs a buffer.
        let [rows, columns] = [rows, cols].map(|set| set.as_ref().map_or(&topology.col_idx, |set| &set.position));
        // SAFETY: every index stays inside: ids and row pointers were checked when the CSR was made.
        unsafe {
            edge_kernel::launch_unchecked::<R>(
                &out.client,
                geometry.count(end),
                geometry.dim,
                address(&reader.read(topology, &[&out])),
                v,
                reader.vectors(0, v),
                reader.vectors(1, v),
                reader.vectors(2, v),
                if adds_up { 1 } else { v },
                topology.edges(),
                reader.edge_map(topology).into_array_arg(),
                reader.operands(v),
                out.clone().into_array_arg(),
                EndPositionsArgs { rows: array(rows), columns: array(columns) }.launch(),
                EdgeWorkArgs { cells, share, num_rows: topology.num_rows, num_edges: topology.num_edges, stretch, end }
                    .launch(),
                shape,
                [out.dtype.into(), topology.row_ptr.dtype.into()],
            );
        }
        out
    }
}

/// What the kernels read for a message.
struct Reader<'a, R: CubeRuntime> {
    messages: &'a Messages<CubeTensor<R>, CubeTensor<R>>,
    operands: Vec<Rows<R>>,
    edge_map: Option<CubeTensor<R>>,
    /// Whether the edges are those of rows.
    of_rows: bool,
}

impl<'a, R: CubeRuntime> Reader<'a, R> {
    fn new(messages: &'a Messages<CubeTensor<R>, CubeTensor<R>>, edge_map: Option<EdgeIds<CubeTensor<R>>>) -> Self {
        let operands = messages.operands.iter().map(|o| Rows::of(o.values.clone())).collect();
        let (edge_map, of_rows) = edge_map.map(EdgeIds::split).unzip();
        Self { messages, operands, edge_map, of_rows: of_rows.unwrap_or(false) }
    }

    /// Operand `k`; the last stands in for those that the term does not have.
    fn operand(&self, k: usize) -> &Rows<R> {
        &self.operands[k.min(self.operands.len() - 1)]
    }

    fn is_full(&self, k: usize) -> bool {
        self.operand(k).width == self.messages.width
    }

    /// Channels that a vector divides: they share their values of every operand.
    fn unit(&self) -> usize {
        let width = self.messages.width;
        let shares = self.operands.iter().filter(|o| o.width < width).map(|o| width / o.width);
        shares.fold(width, gcd)
    }

    /// The widest vector that divides `unit` and the rows of what is read, and of `written`.
    fn vector_width(&self, unit: usize, written: &[&Rows<R>]) -> usize {
        let full = self.operands.iter().filter(|o| o.width == self.messages.width);
        let rows: Vec<&Rows<R>> = full.chain(written.iter().copied()).collect();
        if rows.is_empty() { 1 } else { vector_width(unit, &rows) }
    }

    /// The vector width of operand `k` in messages of vectors of `v`.
    fn vectors(&self, k: usize, v: usize) -> usize {
        if self.is_full(k) { v } else { 1 }
    }

    fn operands<F: Float, N: Size, VA: Size, VB: Size, VC: Size>(
        &self,
        v: usize,
    ) -> OperandsLaunch<F, N, VA, VB, VC, R> {
        OperandsArgs {
            a: self.operand_in_vectors(0, v),
            b: self.operand_in_vectors(1, v),
            c: self.operand_in_vectors(2, v),
            scale: array(&self.scale()),
            winners: array(&self.winners()),
        }
        .launch()
    }

    /// Operand `k` of messages of vectors of `v`.
    fn operand_in_vectors<F: Float, N: Size>(&self, k: usize, v: usize) -> OperandLaunch<F, N, R> {
        let rows = self.operand(k);
        let share = (self.messages.width / rows.width / v).max(1);
        OperandArgs { values: rows.arg(), stride: rows.stride / self.vectors(k, v), share }.launch()
    }

    fn shape(&self) -> MessageShape {
        let place = |k: usize| self.messages.operands.get(k).map_or(Place::Row, |o| o.place);
        MessageShape {
            term: self.messages.term,
            places: [0, 1, 2].map(place),
            full: [0, 1, 2].map(|k| self.is_full(k)),
            scale: self.messages.scale.as_ref().map(|s| s.place),
            winners: self.messages.winners.as_ref().map(|(_, place)| *place),
            edge_map: self.edge_map.is_some(),
        }
    }

    // An argument that a kernel does not read still needs a buffer.

    fn scale(&self) -> CubeTensor<R> {
        self.messages.scale.as_ref().map_or_else(|| self.operands[0].tensor.clone(), |s| f32_vector(s.values.clone()))
    }

    fn edge_map(&self, topology: &Topology<CubeTensor<R>>) -> CubeTensor<R> {
        self.edge_map.clone().unwrap_or_else(|| topology.row_ptr.clone())
    }

    fn winners(&self) -> CubeTensor<R> {
        self.messages.winners.as_ref().map_or_else(|| self.operands[0].tensor.clone(), |(w, _)| w.clone())
    }

    /// Everything that is indexed.
    fn read<'b>(
        &'b self,
        topology: &'b Topology<CubeTensor<R>>,
        written: &[&'b CubeTensor<R>],
    ) -> Vec<&'b CubeTensor<R>> {
        let operands = self.operands.iter().map(|o| &o.tensor);
        let winners = self.messages.winners.iter().map(|(w, _)| w);
        [&topology.row_ptr, &topology.col_idx]
            .into_iter()
            .chain(operands)
            .chain(winners)
            .chain(written.iter().copied())
            .collect()
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Folds the messages of every row, or of each of `parts` pieces of it, into rows of `out` and `winners`.
fn reduce<R: CubeRuntime>(
    view: &View<CubeTensor<R>>,
    reader: &Reader<'_, R>,
    fold: Fold,
    parts: usize,
    out: &Target<R>,
    winners: &Option<CubeTensor<R>>,
) {
    let (width, client) = (reader.messages.width, &out.rows.tensor.client);
    let geometry = PlanePerRow::of(client);
    let plane = geometry.plane as usize;
    let v = reader.vector_width(reader.unit(), &[&out.rows]);
    let vectors = width / v;
    let lanes = vectors.next_power_of_two().min(plane);
    let slots = vectors.div_ceil(lanes);
    let shape = ReduceShape {
        message: reader.shape(),
        edge_of_row: reader.of_rows,
        fold,
        accumulate_into: out.accumulate_into,
        lanes,
        slots,
        in_flight: (VECTORS_IN_FLIGHT / slots).max(1),
    };
    // A team holds a row of f32 vectors, and the entries that they came from. Pieces are short enough for a plane.
    let held = if fold == Fold::Sum { 1 } else { 2 };
    let lane_bytes = if parts == 1 { held * padded_bytes(width, &out.rows.tensor) } else { ONE_PLANE };
    let unread = winners.clone().unwrap_or_else(|| out.rows.tensor.clone());
    let edge_map = reader.edge_map(&view.topology);
    for row_launch in row_launches(view, lane_bytes, false) {
        let count = if parts == 1 { row_launch.count.clone() } else { geometry.count(row_launch.end * parts) };
        // SAFETY: every index stays inside: ids and row pointers were checked when the CSR was made.
        unsafe {
            reduce_kernel::launch_unchecked::<R>(
                client,
                count,
                row_launch.dim,
                address(&reader.read(&view.topology, &[&out.rows.tensor, &unread])),
                v,
                reader.vectors(0, v),
                reader.vectors(1, v),
                reader.vectors(2, v),
                view.topology.edges(),
                edge_map.clone().into_array_arg(),
                reader.operands(v),
                ReducedArgs { values: out.rows.matrix(v), entries: array(&unread) }.launch(),
                row_launch.pieces(parts),
                row_launch.columns(),
                PiecesArgs { vectors, parts }.launch(),
                shape,
                row_launch.schedule,
                [
                    reader.operands[0].tensor.dtype.into(),
                    view.topology.row_ptr.dtype.into(),
                    out.rows.tensor.dtype.into(),
                ],
            );
        }
    }
}

/// More than a team may hold.
const ONE_PLANE: usize = 1 << 20;

/// Where the values that become one stand: `parts` of them, so many elements from one to the next.
struct Steps {
    parts: usize,
    row: usize,
    column: usize,
    part: usize,
}

/// Folds parts of `values` into the elements of `out`.
fn merge<R: CubeRuntime>(
    values: &Target<R>,
    entries: &Option<CubeTensor<R>>,
    fold: Fold,
    steps: Steps,
    out: &Target<R>,
    out_entries: &Option<CubeTensor<R>>,
) {
    let Steps { parts, row, column, part } = steps;
    let (values, out, accumulate_into) = (&values.rows.tensor, &out.rows, out.accumulate_into);
    let (count, dim) = flat(out.num_rows * out.width);
    // SAFETY: the loops end at the sizes of the matrices.
    unsafe {
        merge_kernel::launch_unchecked::<R>(
            &values.client,
            count,
            dim,
            address(&[values, &out.tensor]),
            // An argument that the kernel does not read or write still needs a buffer.
            MergeInputsArgs { values: array(values), entries: array(entries.as_ref().unwrap_or(values)) }.launch(),
            MergedArgs { values: out.table(), entries: array(out_entries.as_ref().unwrap_or(&out.tensor)) }.launch(),
            MergeStepsArgs { rows: out.num_rows, columns: out.width, parts, row, column, part }.launch(),
            fold,
            accumulate_into,
            out.tensor.dtype.into(),
        );
    }
}
