//! Attention with a score behind the non-linearity on the CPU: rayon over rows, hidden layers of a run of edges in L1.

use std::ops::Range;

use burn::tensor::TensorMetadata;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

use super::{GatV2Backend, V2Backward, V2Inputs, V2RowGradients, V2Wanted};
use crate::graph::csr::View;
use crate::graph::drop_edge::DropEdge;
use crate::graph::row_entries::RowEntries;
use crate::ops::dropout::Dropout;
use crate::ops::gat::cpu_parts::{Factors, ROWS_PER_SUM};
use crate::ops::gat::edges::cpu::{Carried, RowOfEdges as Encoded, contiguous};
use crate::ops::gat::{GatArgs, GatForward};
use crate::runtime::flex::{self, Offsets, ROWS_PER_TASK, Storage, axpy, dot, with_storage};
use crate::runtime::rows::{Row, consecutive, exp_all, exp_weights, hidden_rows, lean_rows, zeroed};

/// Edges whose hidden layers are made at a time: 16 KiB of 128 channels.
const RUN: usize = 32;

/// The rows of hidden layers, one after the other.
const IN_ORDER: [u32; RUN] = consecutive();

impl GatV2Backend for Flex {
    fn gatv2_forward(
        view: &View<IntTensor<Self>>,
        inputs: V2Inputs<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
    ) -> GatForward<FloatTensor<Self>> {
        let inputs = in_order(inputs);
        with_storage!(inputs.src.dtype(), E => forward::<E>(view, &inputs, args))
    }

    fn gatv2_row_gradients(
        view: &View<IntTensor<Self>>,
        inputs: V2Backward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
        wanted: V2Wanted,
    ) -> V2RowGradients<FloatTensor<Self>> {
        let inputs = all_in_order(inputs);
        with_storage!(inputs.g.dtype(), E => row_gradients::<E>(view, &inputs, args, wanted))
    }

    fn gatv2_source_gradient(
        reverse: &View<IntTensor<Self>>,
        inputs: V2Backward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        let inputs = all_in_order(inputs);
        with_storage!(inputs.g.dtype(), E => source_gradient::<E>(reverse, &inputs, args))
    }
}

/// The inputs with everything that is read element by element in order.
fn in_order(inputs: V2Inputs<FlexTensor, FlexTensor>) -> V2Inputs<FlexTensor, FlexTensor> {
    let edges = contiguous(&inputs.edges);
    V2Inputs { edges, ..inputs.map(|f| f.to_contiguous()) }
}

fn all_in_order(inputs: V2Backward<FlexTensor, FlexTensor>) -> V2Backward<FlexTensor, FlexTensor> {
    let of_edges = in_order(inputs.inputs.clone());
    V2Backward { inputs: of_edges, ..inputs.map(|f| f.to_contiguous()) }
}

/// What a pass reads of edges.
struct Reader<'a, E> {
    row_entries: RowEntries<'a>,
    values: &'a [E],
    edge_map: Option<Offsets<'a>>,
    value_columns: usize,
    /// Columns of all that edges carry.
    columns: usize,
    /// Where edges have an age: it is encoded row by row.
    carried: Option<Carried<'a, E>>,
    /// By head.
    attention: &'a [f32],
    /// By column.
    projection: &'a [f32],
    /// Whether messages have what edges carry, projected, too.
    messages: bool,
    width: usize,
    heads: usize,
    slope: f32,
}

/// The kept edges of a row, and the hidden layers of a run of them.
#[derive(Default)]
struct RowOfEdges<E> {
    /// The other ends.
    ids: Vec<u32>,
    entries: Vec<usize>,
    stored: Vec<E>,
    /// What all edges of the row carry, where they have an age.
    encoded: Encoded<E>,
    /// `[edges of the run, columns]`.
    values: Vec<f32>,
    /// `[edges of the run, width]`.
    hidden: Vec<f32>,
}

impl<'a, E: Storage> Reader<'a, E> {
    fn new(
        view: &'a View<FlexTensor>,
        inputs: &'a V2Inputs<FlexTensor, FlexTensor>,
        args: &GatArgs,
        rows_are_sources: bool,
    ) -> Self {
        let V2Inputs { src, parameters, edges, messages, .. } = inputs;
        let width = src.shape()[1];
        let (attention, projection) = flex::slice::<f32>(parameters).split_at(width);
        let drop_edge = if rows_are_sources { args.drop_edge.map(DropEdge::reverse) } else { args.drop_edge };
        Self {
            row_entries: RowEntries::new(view, drop_edge),
            values: edges.values.as_ref().map_or(&[], flex::slice::<E>),
            edge_map: edges.edge_map.as_ref().map(Offsets::of),
            value_columns: edges.value_columns,
            columns: edges.columns(),
            carried: edges.age.as_ref().map(|_| Carried::of(edges, 0, rows_are_sources)),
            attention,
            projection,
            messages: *messages,
            width,
            heads: args.heads,
            slope: args.negative_slope,
        }
    }

    /// The kept edges of `node`, and the factors of their weights.
    fn row(&self, node: usize, row: &mut RowOfEdges<E>, factors: &mut Factors) {
        match &self.carried {
            Some(carried) => {
                carried.row(&self.row_entries, node, &mut row.ids, &mut row.encoded);
                row.entries.clear();
                row.entries.extend_from_slice(row.encoded.entries());
            }
            None if self.columns == 0 => self.row_entries.sources(node, &mut row.ids),
            None => self.row_entries.sources_and_entries(node, &mut row.ids, &mut row.entries),
        }
        factors.of_row(node, &row.ids);
        self.row_entries.locate(&mut row.ids);
    }

    fn edge(&self, entry: usize) -> usize {
        self.edge_map.map_or(entry, |map| map.get(entry))
    }

    /// Makes the hidden layers of a run of edges between `own` and rows of `x`.
    fn run(&self, row: &mut RowOfEdges<E>, run: Range<usize>, own: &[f32], x: &[E]) {
        row.values.resize(run.len() * self.columns, 0.0);
        if self.carried.is_some() {
            for k in 0..self.columns {
                let column = &row.encoded.column(k)[run.clone()];
                row.values[k..].iter_mut().step_by(self.columns).zip(column).for_each(|(to, &value)| *to = value);
            }
        } else if self.columns > 0 {
            row.stored.clear();
            for &entry in &row.entries[run.clone()] {
                row.stored.extend_from_slice(&self.values[self.edge(entry) * self.columns..][..self.columns]);
            }
            E::widen(&row.stored, &mut row.values);
        }
        row.hidden.resize(run.len() * self.width, 0.0);
        hidden_rows(&mut row.hidden, own, (x, &row.ids[run]), (&row.values, self.projection), self.slope);
    }

    /// The projection of every column for head `h`; none where messages are the sources alone.
    fn of_messages(&self, h: usize) -> impl Iterator<Item = &'a [f32]> {
        let (projection, head) = (self.projection, self.head(h));
        let rows = if self.messages { projection } else { &[] };
        rows.chunks_exact(self.width).map(move |row| &row[head.clone()])
    }

    /// The channels of a head.
    fn head(&self, h: usize) -> Range<usize> {
        let channels = self.width / self.heads;
        h * channels..(h + 1) * channels
    }

    /// The scores of the run for head `h`.
    fn scores(&self, row: &RowOfEdges<E>, h: usize, scores: &mut Vec<f32>) {
        let head = self.head(h);
        let edges = row.hidden.len() / self.width;
        scores.resize(edges, 0.0);
        let attention = &self.attention[head.clone()];
        f32::dot_rows(scores, attention, &row.hidden, self.width, head.start, &IN_ORDER[..edges]);
    }

    /// Turns the hidden layers of the run into their gradients by those of the scores.
    fn lean(&self, row: &mut RowOfEdges<E>, h: usize, dz: &[f32]) {
        let head = self.head(h);
        let attention = &self.attention[head.clone()];
        lean_rows(&mut row.hidden, (self.width, head.start), attention, dz, self.slope);
    }
}

impl<E> RowOfEdges<E> {
    /// Column `k` of what the edges of the run carry, of `columns`.
    fn column(&self, k: usize, columns: usize) -> impl Iterator<Item = &f32> {
        self.values[k..].iter().step_by(columns)
    }

    /// What the edges of the run carry in column `k` of `columns`, weighed and added up.
    fn weighed(&self, k: usize, columns: usize, weights: &[f32]) -> f32 {
        self.column(k, columns).zip(weights).map(|(value, weight)| value * weight).sum()
    }
}

/// Stretches of a list of edges whose hidden layers are made together.
fn runs(edges: usize) -> impl Iterator<Item = Range<usize>> {
    (0..edges).step_by(RUN).map(move |start| start..edges.min(start + RUN))
}

fn forward<E: Storage>(
    view: &View<FlexTensor>,
    inputs: &V2Inputs<FlexTensor, FlexTensor>,
    args: GatArgs,
) -> GatForward<FlexTensor> {
    let (rows, width, heads) = (view.num_rows(), inputs.src.shape()[1], args.heads);
    let (src, dst) = (flex::slice::<E>(&inputs.src), flex::slice::<E>(&inputs.dst));
    let reader = Reader::<E>::new(view, inputs, &args, false);
    let mut out = zeroed::<E>(rows * width);
    let mut log_sum_exp = zeroed::<f32>(rows * heads);
    let block = ROWS_PER_TASK;
    let task = |task: usize, out: &mut [E], lse: &mut [f32]| {
        let (mut own, mut acc) = (vec![0f32; width], vec![0f32; width]);
        let (mut max, mut mass) = (vec![0f32; heads], vec![0f32; heads]);
        let (mut row, mut weights) = (RowOfEdges::default(), Vec::new());
        let mut factors = Factors::new(args.attention_dropout, heads);
        for (r, (out, lse)) in out.chunks_mut(width).zip(lse.chunks_mut(heads)).enumerate() {
            let i = task * block + r;
            reader.row(reader.row_entries.node(i), &mut row, &mut factors);
            E::widen(&dst[i * width..(i + 1) * width], &mut own);
            acc.fill(0.0);
            max.fill(f32::MIN);
            mass.fill(0.0);
            for run in runs(row.ids.len()) {
                reader.run(&mut row, run.clone(), &own, src);
                for h in 0..heads {
                    reader.scores(&row, h, &mut weights);
                    let (largest, sum) = exp_weights(&mut weights);
                    let new_max = largest.max(max[h]);
                    let (rescale, scale) = ((max[h] - new_max).exp(), (largest - new_max).exp());
                    max[h] = new_max;
                    mass[h] = mass[h] * rescale + sum * scale;
                    weights.iter_mut().zip(run.clone()).for_each(|(w, k)| *w *= scale * factors.of(h, k));
                    let head = reader.head(h);
                    let acc = &mut acc[head.clone()];
                    if rescale < 1.0 {
                        acc.iter_mut().for_each(|sum| *sum *= rescale);
                    }
                    E::add_rows(acc, src, width, head.start, &row.ids[run.clone()], &weights);
                    for (k, projection) in reader.of_messages(h).enumerate() {
                        axpy(acc, row.weighed(k, reader.columns, &weights), projection);
                    }
                }
            }
            for h in 0..heads {
                let any = mass[h] > 0.0;
                lse[h] = if any { max[h] + mass[h].ln() } else { f32::MAX };
                let scale = if any { 1.0 / mass[h] } else { 0.0 };
                acc[reader.head(h)].iter_mut().for_each(|sum| *sum *= scale);
            }
            E::narrow(&acc, out);
        }
    };
    let blocks = out.par_chunks_mut(block * width).zip(log_sum_exp.par_chunks_mut(block * heads));
    blocks.enumerate().for_each(|(at, (out, lse))| task(at, out, lse));
    GatForward {
        out: flex::tensor(out, [rows, width]),
        log_sum_exp: flex::tensor(log_sum_exp, [rows, heads]),
        positive: None,
        edges: None,
    }
}

/// What a task of the pass over destinations leaves beside their gradients.
struct Found {
    /// The parameters' share, added up over few rows and so in f32.
    parameters: Vec<f32>,
    /// That of frequencies and phases, where asked for.
    angles: Vec<f32>,
    /// Edges and the gradients of their values, where asked for.
    edges: Vec<usize>,
    values: Vec<f32>,
}

fn row_gradients<E: Storage>(
    view: &View<FlexTensor>,
    inputs: &V2Backward<FlexTensor, FlexTensor>,
    args: GatArgs,
    wanted: V2Wanted,
) -> V2RowGradients<FlexTensor> {
    let V2Backward { g, inputs: V2Inputs { src, dst, edges, .. }, log_sum_exp, delta } = inputs;
    let (rows, width, heads) = (view.num_rows(), src.shape()[1], args.heads);
    let [g, src, dst] = [g, src, dst].map(flex::slice::<E>);
    let [lse, delta] = [log_sum_exp, delta].map(flex::slice::<f32>);
    let reader = Reader::<E>::new(view, &inputs.inputs, &args, false);
    let (columns, value_columns) = (reader.columns, reader.value_columns);
    let (first_cosine, cosines) = (edges.first_cosine(), edges.cosines);
    let task = |task: usize, gradient: &mut [E]| {
        let (mut own, mut acc, mut own_g) = (vec![0f32; width], vec![0f32; width], vec![0f32; width]);
        let (mut row, mut column, mut dots) = (RowOfEdges::default(), Vec::new(), [0f32; RUN]);
        let (mut dz, mut products) = (vec![Vec::new(); heads], Vec::new());
        // Of every head, where messages have what edges carry: weights of the edges of a run, and what the gradient of
        // the row means for the columns.
        let (mut weights, mut of_columns) = (vec![Vec::new(); heads], vec![Vec::new(); heads]);
        let mut factors = Factors::new(args.attention_dropout, heads);
        let parameters = vec![0f32; (1 + columns) * width];
        let angles = vec![0f32; 2 * cosines];
        let mut found = Found { parameters, angles, edges: Vec::new(), values: Vec::new() };
        for (r, gradient) in gradient.chunks_mut(width).enumerate() {
            let i = task * ROWS_PER_SUM + r;
            reader.row(reader.row_entries.node(i), &mut row, &mut factors);
            E::widen(&dst[i * width..(i + 1) * width], &mut own);
            E::widen(&g[i * width..(i + 1) * width], &mut own_g);
            for (h, of_columns) in of_columns.iter_mut().enumerate() {
                of_columns.clear();
                of_columns.extend(reader.of_messages(h).map(|projection| dot(&own_g[reader.head(h)], projection)));
            }
            acc.fill(0.0);
            for run in runs(row.ids.len()) {
                let in_order = &IN_ORDER[..run.len()];
                reader.run(&mut row, run.clone(), &own, src);
                products.resize(run.len(), 0.0);
                for (h, dz) in dz.iter_mut().enumerate() {
                    let head = reader.head(h);
                    reader.scores(&row, h, dz);
                    dz.iter_mut().for_each(|z| *z -= lse[i * heads + h]);
                    exp_all(dz);
                    E::dot_rows(&mut products, &own_g[head.clone()], src, width, head.start, &row.ids[run.clone()]);
                    for (k, of_column) in of_columns[h].iter().enumerate() {
                        let column = row.column(k, columns);
                        products.iter_mut().zip(column).for_each(|(product, value)| *product += of_column * value);
                    }
                    if reader.messages {
                        weights[h].clear();
                        weights[h].extend(dz.iter().zip(run.clone()).map(|(alpha, k)| alpha * factors.of(h, k)));
                    }
                    for ((dz, product), k) in dz.iter_mut().zip(&products).zip(run.clone()) {
                        *dz *= factors.of(h, k) * product - delta[i * heads + h];
                    }
                    let of_attention = &mut found.parameters[head.clone()];
                    f32::add_rows(of_attention, &row.hidden, width, head.start, in_order, dz);
                    reader.lean(&mut row, h, dz);
                }
                f32::sum_rows(&mut acc, &row.hidden, width, |_| (in_order, in_order.len()));
                for (v, of_value) in found.parameters[width..].chunks_exact_mut(width).enumerate() {
                    column.clear();
                    column.extend(row.column(v, columns));
                    f32::add_rows(of_value, &row.hidden, width, 0, in_order, &column);
                    for (h, weights) in weights.iter().enumerate().filter(|_| reader.messages) {
                        let head = reader.head(h);
                        axpy(&mut of_value[head.clone()], row.weighed(v, columns, weights), &own_g[head]);
                    }
                }
                let start = found.values.len();
                if wanted.values {
                    found.edges.extend(row.entries[run.clone()].iter().map(|&entry| reader.edge(entry)));
                    found.values.resize(start + run.len() * value_columns, 0.0);
                }
                // What the columns of edges get.
                for (v, projection) in reader.projection.chunks_exact(width).enumerate() {
                    let of_value = wanted.values && v < value_columns;
                    let of_cosine = wanted.angles && v >= first_cosine;
                    if !(of_value || of_cosine) {
                        continue;
                    }
                    let dots = &mut dots[..run.len()];
                    f32::dot_rows(dots, projection, &row.hidden, width, 0, in_order);
                    for (weights, of_columns) in weights.iter().zip(&of_columns).filter(|_| reader.messages) {
                        axpy(dots, of_columns[v], weights);
                    }
                    if of_value {
                        let to = found.values[start + v..].iter_mut().step_by(value_columns);
                        to.zip(dots).for_each(|(to, dot)| *to = *dot);
                        continue;
                    }
                    let cosine = v - first_cosine;
                    let (ages, slopes) = row.encoded.ages_and_slopes(cosine);
                    for ((dot, slope), age) in dots.iter().zip(&slopes[run.clone()]).zip(&ages[run.clone()]) {
                        found.angles[cosine] += dot * slope * age;
                        found.angles[cosines + cosine] += dot * slope;
                    }
                }
            }
            E::narrow(&acc, gradient);
        }
        found
    };
    let mut gradient = zeroed::<E>(rows * width);
    let blocks = gradient.par_chunks_mut(ROWS_PER_SUM * width).enumerate();
    let found: Vec<Found> = blocks.map(|(at, gradient)| task(at, gradient)).collect();

    let total = |len: usize, of: fn(&Found) -> &[f32]| -> Vec<f32> {
        let mut sums = vec![0f64; len];
        for of_task in &found {
            sums.iter_mut().zip(of(of_task)).for_each(|(sum, &part)| *sum += f64::from(part));
        }
        sums.into_iter().map(|sum| sum as f32).collect()
    };
    let parameters = total((1 + columns) * width, |found| &found.parameters);
    let angles = wanted.angles.then(|| flex::tensor(total(2 * cosines, |found| &found.angles), [2 * cosines]));
    let values = edges.values.as_ref().filter(|_| wanted.values).map(|values| {
        // Edges without a kept entry have no gradient.
        let all = values.shape()[0];
        let mut gradient = zeroed::<E>(all * value_columns);
        for of_task in &found {
            for (&edge, values) in of_task.edges.iter().zip(of_task.values.chunks(value_columns)) {
                E::narrow(values, &mut gradient[edge * value_columns..(edge + 1) * value_columns]);
            }
        }
        flex::tensor(gradient, [all, value_columns])
    });
    V2RowGradients {
        dst: flex::tensor(gradient, [rows, width]),
        parameters: flex::tensor(parameters, [1 + columns, width]),
        angles,
        values,
    }
}

fn source_gradient<E: Storage>(
    reverse: &View<FlexTensor>,
    inputs: &V2Backward<FlexTensor, FlexTensor>,
    args: GatArgs,
) -> FlexTensor {
    let V2Backward { g, inputs: V2Inputs { src, dst, .. }, log_sum_exp, delta } = inputs;
    let (rows, width, heads) = (reverse.num_rows(), src.shape()[1], args.heads);
    let [g, src, dst] = [g, src, dst].map(flex::slice::<E>);
    let [lse, delta] = [log_sum_exp, delta].map(flex::slice::<f32>);
    let reader = Reader::<E>::new(reverse, &inputs.inputs, &args, true);
    let block = ROWS_PER_TASK;
    let task = |task: usize, gradient: &mut [E]| {
        let (mut own, mut acc) = (vec![0f32; width], vec![0f32; width]);
        let (mut row, mut weights, mut products) = (RowOfEdges::default(), Vec::new(), Vec::new());
        let (mut dz, mut dots) = (vec![Vec::new(); heads], [0f32; RUN]);
        let mut factors = Factors::new(args.attention_dropout.map(Dropout::reverse), heads);
        for (r, gradient) in gradient.chunks_mut(width).enumerate() {
            let j = task * block + r;
            reader.row(reader.row_entries.node(j), &mut row, &mut factors);
            E::widen(&src[j * width..(j + 1) * width], &mut own);
            acc.fill(0.0);
            for run in runs(row.ids.len()) {
                reader.run(&mut row, run.clone(), &own, dst);
                products.resize(run.len(), 0.0);
                for (h, dz) in dz.iter_mut().enumerate() {
                    let (head, ids) = (reader.head(h), &row.ids[run.clone()]);
                    let at = |k: usize| ids[k] as usize * heads + h;
                    reader.scores(&row, h, dz);
                    dz.iter_mut().enumerate().for_each(|(k, z)| *z -= lse[at(k)]);
                    exp_all(dz);
                    weights.clear();
                    weights.extend(dz.iter().zip(run.clone()).map(|(alpha, k)| alpha * factors.of(h, k)));
                    E::dot_rows(&mut products, &own[head.clone()], g, width, head.start, ids);
                    for (k, projection) in reader.of_messages(h).enumerate() {
                        let (dots, column) = (&mut dots[..ids.len()], row.column(k, reader.columns));
                        E::dot_rows(dots, projection, g, width, head.start, ids);
                        let terms = dots.iter().zip(column);
                        products.iter_mut().zip(terms).for_each(|(product, (dot, value))| *product += dot * value);
                    }
                    E::add_rows(&mut acc[head.clone()], g, width, head.start, ids, &weights);
                    for (k, dz) in dz.iter_mut().enumerate() {
                        *dz = weights[k] * products[k] - *dz * delta[at(k)];
                    }
                    reader.lean(&mut row, h, dz);
                }
                f32::sum_rows(&mut acc, &row.hidden, width, |_| (&IN_ORDER, run.len()));
            }
            E::narrow(&acc, gradient);
        }
    };
    let mut gradient = zeroed::<E>(rows * width);
    gradient.par_chunks_mut(block * width).enumerate().for_each(|(at, gradient)| task(at, gradient));
    flex::tensor(gradient, [rows, width])
}
