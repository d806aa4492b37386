//! What edges carry, on the CPU: read row by row, in f32.

use burn::tensor::TensorMetadata;
use burn_flex::FlexTensor;
use rayon::prelude::*;

use super::{AgeParts, EdgeBackward, EdgeGradients, EdgeParts};
use crate::graph::csr::View;
use crate::graph::drop_edge::DropEdge;
use crate::graph::row_entries::RowEntries;
use crate::ops::dropout::Dropout;
use crate::ops::gat::cpu_parts::{Factors, ScoreTable};
use crate::ops::gat::{GatArgs, GatTargets, arrival_columns};
use crate::runtime::flex::{self, Offsets, ROWS_PER_TASK, Storage, axpy, dot, ids};
use crate::runtime::rows::{exp_all, leaky_relu, runs, zeroed};

/// The parts with everything that is read element by element in order.
pub(in crate::ops::gat) fn contiguous(edges: &EdgeParts<FlexTensor, FlexTensor>) -> EdgeParts<FlexTensor, FlexTensor> {
    let mut edges = edges.clone().map(|f| f.to_contiguous());
    if let Some(AgeParts::Nodes { dst, src }) = &mut edges.age {
        (*dst, *src) = (dst.to_contiguous(), src.to_contiguous());
    }
    edges
}

/// What the edges of an adjacency carry.
pub(in crate::ops::gat) struct Carried<'a, E> {
    values: &'a [E],
    edge_map: Option<Offsets<'a>>,
    age: Ages<'a>,
    log_age: bool,
    /// By head.
    logit: &'a [f32],
    frequency: &'a [f32],
    phase: &'a [f32],
    value_columns: usize,
    columns: usize,
}

enum Ages<'a> {
    Nothing,
    OfEdges(&'a [f32]),
    /// Times of the rows and of the columns at hand; rows are destinations or sources.
    OfNodes {
        rows: &'a [i32],
        cols: &'a [i32],
        rows_are_sources: bool,
    },
}

/// What the kept edges of a row carry, column by column, and what they add up to.
#[derive(Default)]
pub(in crate::ops::gat) struct RowOfEdges<E> {
    entries: Vec<usize>,
    /// Rows as they are stored, and in f32, before they are turned.
    stored: Vec<E>,
    wide: Vec<f32>,
    /// `[columns, edges]`.
    values: Vec<f32>,
    ages: Vec<f32>,
    /// `[cosines, edges]`: slopes of the cosines by their angles.
    slopes: Vec<f32>,
    /// `[heads, columns]` both.
    sums: Vec<f32>,
    positives: Vec<f32>,
}

impl<E> RowOfEdges<E> {
    /// For sums of `width` elements.
    pub(in crate::ops::gat) fn new(width: usize) -> Self {
        let (sums, positives) = (vec![0.0; width], vec![0.0; width]);
        let (stored, wide, values) = (Vec::new(), Vec::new(), Vec::new());
        Self { entries: Vec::new(), stored, wide, values, ages: Vec::new(), slopes: Vec::new(), sums, positives }
    }

    /// The places of the edges among the entries of all rows.
    pub(in crate::ops::gat) fn entries(&self) -> &[usize] {
        &self.entries
    }

    /// Column `k`, with an element per edge.
    pub(in crate::ops::gat) fn column(&self, k: usize) -> &[f32] {
        &self.values[k * self.entries.len()..][..self.entries.len()]
    }

    /// The ages of the edges, and the slopes of cosine `k` by its angles.
    pub(in crate::ops::gat) fn ages_and_slopes(&self, k: usize) -> (&[f32], &[f32]) {
        (&self.ages, &self.slopes[k * self.entries.len()..][..self.entries.len()])
    }

    /// The columns, each with an element per edge; none without edges.
    fn columns(&self) -> std::slice::ChunksExact<'_, f32> {
        self.values.chunks_exact(self.entries.len().max(1))
    }

    /// Adds what the edges carry to the sums of head `head`.
    pub(in crate::ops::gat) fn add(&mut self, head: usize, weights: &[f32], share: Option<&[f32]>) {
        let (edges, count) = (self.entries.len().max(1), self.columns().len());
        for (k, column) in self.values.chunks_exact(edges).enumerate() {
            self.sums[head * count + k] += dot(weights, column);
            if let Some(share) = share {
                self.positives[head * count + k] += dot(share, column);
            }
        }
    }
}

/// Where the sums of a block of rows go.
pub(in crate::ops::gat) struct EdgeBlock<'a, E> {
    out: &'a mut [E],
    positive: &'a mut [E],
}

impl<E: Storage> EdgeBlock<'_, E> {
    /// Writes row `r`, and clears the sums for the next.
    pub(in crate::ops::gat) fn put(&mut self, r: usize, row: &mut RowOfEdges<E>) {
        let width = row.sums.len();
        let place = r * width..(r + 1) * width;
        E::narrow(&row.sums, &mut self.out[place.clone()]);
        if !self.positive.is_empty() {
            E::narrow(&row.positives, &mut self.positive[place]);
        }
        row.sums.fill(0.0);
        row.positives.fill(0.0);
    }
}

/// `tasks` blocks of `len` elements, empty where there are none.
pub(in crate::ops::gat) fn blocks<'a, E>(
    out: &'a mut [E],
    positive: &'a mut [E],
    len: usize,
    tasks: usize,
) -> Vec<EdgeBlock<'a, E>> {
    let (mut out, mut positive) = (out.chunks_mut(len.max(1)), positive.chunks_mut(len.max(1)));
    let mut next = || EdgeBlock { out: out.next().unwrap_or_default(), positive: positive.next().unwrap_or_default() };
    (0..tasks).map(|_| next()).collect()
}

impl<'a, E: Storage> Carried<'a, E> {
    pub(in crate::ops::gat) fn of(
        edges: &'a EdgeParts<FlexTensor, FlexTensor>,
        heads: usize,
        rows_are_sources: bool,
    ) -> Self {
        let age = match &edges.age {
            None => Ages::Nothing,
            Some(AgeParts::Edges(ages)) => Ages::OfEdges(flex::slice::<f32>(ages)),
            Some(AgeParts::Nodes { dst, src }) => {
                let (rows, cols) = if rows_are_sources { (src, dst) } else { (dst, src) };
                Ages::OfNodes { rows: ids(rows), cols: ids(cols), rows_are_sources }
            }
        };
        let columns = edges.columns();
        let (logit, angles) = flex::slice::<f32>(&edges.parameters).split_at(heads * columns);
        let (frequency, phase) = angles.split_at(edges.cosines);
        Self {
            values: edges.values.as_ref().map_or(&[], flex::slice::<E>),
            edge_map: edges.edge_map.as_ref().map(Offsets::of),
            age,
            log_age: edges.log_age,
            logit,
            frequency,
            phase,
            value_columns: edges.value_columns,
            columns,
        }
    }

    fn edge(&self, entry: usize) -> usize {
        self.edge_map.map_or(entry, |map| map.get(entry))
    }

    /// The kept sources of `node` as nodes, and what their edges carry.
    pub(in crate::ops::gat) fn row(
        &self,
        row_entries: &RowEntries,
        node: usize,
        sources: &mut Vec<u32>,
        row: &mut RowOfEdges<E>,
    ) {
        row_entries.sources_and_entries(node, sources, &mut row.entries);
        let (edges, width) = (sources.len(), self.value_columns);
        row.stored.clear();
        for &entry in row.entries.iter().filter(|_| width > 0) {
            row.stored.extend_from_slice(&self.values[self.edge(entry) * width..][..width]);
        }
        row.wide.resize(edges * width, 0.0);
        E::widen(&row.stored, &mut row.wide);
        row.values.resize(edges * self.columns, 0.0);
        let (values, encoding) = row.values.split_at_mut(edges * width);
        for (k, column) in values.chunks_exact_mut(edges.max(1)).enumerate() {
            column.iter_mut().zip(row.wide[k..].iter().step_by(width)).for_each(|(to, &value)| *to = value);
        }
        if matches!(self.age, Ages::Nothing) {
            return;
        }
        let age = |(&col, &entry): (&u32, &usize)| match self.age {
            Ages::Nothing => 0.0,
            Ages::OfEdges(ages) => ages[self.edge(entry)],
            Ages::OfNodes { rows, cols, rows_are_sources } => {
                let (own, other) = (rows[node], cols[col as usize]);
                let age = if rows_are_sources { other.wrapping_sub(own) } else { own.wrapping_sub(other) };
                age as f32
            }
        };
        row.ages.clear();
        row.ages.extend(sources.iter().zip(&row.entries).map(age));
        row.slopes.resize(edges * self.frequency.len(), 0.0);
        let (log, cosines) = encoding.split_at_mut(edges * usize::from(self.log_age));
        log.iter_mut().zip(&row.ages).for_each(|(to, age)| *to = (1.0 + age.max(0.0)).ln());
        let columns = cosines.chunks_exact_mut(edges.max(1)).zip(row.slopes.chunks_exact_mut(edges.max(1)));
        for ((cosines, slopes), (&frequency, &phase)) in columns.zip(self.frequency.iter().zip(self.phase)) {
            for ((cosine, slope), &age) in cosines.iter_mut().zip(slopes).zip(&row.ages) {
                let (sin, cos) = (frequency * age + phase).sin_cos();
                (*cosine, *slope) = (cos, -sin);
            }
        }
    }

    /// Adds the share of the edges to the scores of head `head`.
    pub(in crate::ops::gat) fn add_scores(&self, head: usize, row: &RowOfEdges<E>, scores: &mut [f32]) {
        let logit = &self.logit[head * self.columns..(head + 1) * self.columns];
        for (&logit, column) in logit.iter().zip(row.columns()) {
            axpy(scores, logit, column);
        }
    }
}

/// What a task of the reverse pass leaves of the gradients of what edges carry.
struct Found {
    /// The parameters' share, added up over few rows and so in f32.
    parameters: Vec<f32>,
    /// Edges and the gradients of their values, where asked for.
    edges: Vec<usize>,
    values: Vec<f32>,
}

/// The reverse pass with `dz_ij = a_ij l_ij (f_ij p_ij - c_i)`, `p_ij = <g_i, h_j> + <gv_i, e_ij>`, edge by edge.
pub(in crate::ops::gat) fn backward<E: Storage>(
    reverse: &View<FlexTensor>,
    inputs: &EdgeBackward<FlexTensor, FlexTensor>,
    args: GatArgs,
    targets: GatTargets<FlexTensor>,
) -> EdgeGradients<FlexTensor> {
    let (rows, width, heads) = (reverse.num_rows(), inputs.h_src.shape()[1], args.heads);
    let channels = width / heads;
    let [gs, hs] = [&inputs.g, &inputs.h_src].map(flex::slice::<E>);
    let scalars = &inputs.scalars;
    let (arrivals, t) = (flex::slice::<f32>(&scalars.arrivals), ScoreTable::of(&scalars.src_score));
    let sum_columns = inputs.sum_columns();
    let arrival_columns = arrival_columns(sum_columns);
    let arrival = |i: u32, h: usize| &arrivals[(i as usize * heads + h) * arrival_columns..][..arrival_columns];
    let row_entries = RowEntries::new(reverse, args.drop_edge.map(DropEdge::reverse));
    let (edges, carried) = (&inputs.edges, Carried::<E>::of(&inputs.edges, heads, true));
    let (columns, cosines, first_cosine) = (edges.columns(), edges.cosines, edges.first_cosine());
    let value_columns = edges.value_columns;
    // Whether somebody wants to know what the edges themselves get.
    let of_carried = inputs.of_values || cosines > 0;

    let block = ROWS_PER_TASK;
    let adds = targets.accumulate_features.is_some();
    let mut dh = targets.features.then(|| flex::target::<E>(targets.accumulate_features, [rows, width]));
    let mut dt = flex::target::<f32>(targets.accumulate_score, [rows, t.columns]);
    let mut dh_blocks: Vec<Option<&mut [E]>> = match &mut dh {
        Some(dh) => flex::slice_mut::<E>(dh).chunks_mut(block * width).map(Some).collect(),
        None => (0..rows.div_ceil(block)).map(|_| None).collect(),
    };
    let dt_blocks = flex::slice_mut::<f32>(&mut dt).par_chunks_mut(block * t.columns);
    let task = |task: usize, dt: &mut [f32], dh: &mut Option<&mut [E]>| {
        let (mut own, mut acc) = (vec![0f32; width], vec![0f32; width]);
        let (mut dz, mut of_columns) = (Vec::new(), Vec::new());
        let mut row_edges = RowOfEdges::new(0);
        let (mut targets, mut scores) = (Vec::new(), Vec::new());
        let (mut alphas, mut weights) = (vec![Vec::new(); heads], vec![Vec::new(); heads]);
        let (mut leans, mut products) = (vec![Vec::new(); heads], vec![Vec::new(); heads]);
        let mut factors = Factors::new(args.attention_dropout.map(Dropout::reverse), heads);
        let parameters = vec![0f32; heads * columns + 2 * cosines];
        let mut found = Found { parameters, edges: Vec::new(), values: Vec::new() };
        for (r, score_row) in dt.chunks_mut(t.columns).enumerate() {
            let j = task * block + r;
            let node = row_entries.node(j);
            carried.row(&row_entries, node, &mut targets, &mut row_edges);
            if targets.is_empty() {
                continue;
            }
            factors.of_row(node, &targets);
            row_entries.locate(&mut targets);
            E::widen(&hs[j * width..(j + 1) * width], &mut own);
            acc.fill(0.0);
            for h in 0..heads {
                scores.clear();
                scores.extend(targets.iter().map(|&i| arrival(i, h)[0] + t.get(j, h)));
                carried.add_scores(h, &row_edges, &mut scores);
                leans[h].clear();
                leans[h].extend(scores.iter().map(|&z| if z > 0.0 { 1.0 } else { args.negative_slope }));
                alphas[h].clear();
                let logits = scores.iter().zip(&targets);
                alphas[h].extend(logits.map(|(&z, &i)| leaky_relu(z, args.negative_slope) - arrival(i, h)[1]));
                exp_all(&mut alphas[h]);
                weights[h].clone_from(&alphas[h]);
                factors.apply(h, &mut weights[h]);
                products[h].resize(targets.len(), 0.0);
            }
            for run in runs(targets.len()) {
                for h in 0..heads {
                    let (from, head) = (h * channels, h * channels..(h + 1) * channels);
                    let ids = &targets[run.start..];
                    E::add_rows(&mut acc[head.clone()], gs, width, from, ids, &weights[h][run.clone()]);
                    E::dot_rows(&mut products[h][run.clone()], &own[head], gs, width, from, ids);
                }
            }
            let edges = targets.len();
            of_columns.clear();
            of_columns.resize(if of_carried { edges * columns } else { 0 }, 0f32);
            for h in 0..heads {
                // The gradient of what edges add up to, where it is not zero.
                let arrives = |k: usize| targets.iter().map(move |&i| arrival(i, h)[3 + k]);
                for (k, column) in row_edges.columns().enumerate().take(sum_columns) {
                    let terms = arrives(k).zip(column);
                    products[h].iter_mut().zip(terms).for_each(|(product, (a, value))| *product += a * value);
                }
                dz.clear();
                dz.extend(targets.iter().enumerate().map(|(k, &i)| {
                    let centre = alphas[h][k] * arrival(i, h)[2];
                    leans[h][k] * (weights[h][k] * products[h][k] - centre)
                }));
                score_row[t.first + h] += dz.iter().sum::<f32>();
                for (k, column) in row_edges.columns().enumerate() {
                    found.parameters[h * columns + k] += dot(&dz, column);
                }
                for (k, of_column) in of_columns.chunks_exact_mut(edges).enumerate() {
                    axpy(of_column, carried.logit[h * columns + k], &dz);
                    if k < sum_columns {
                        let terms = weights[h].iter().zip(arrives(k));
                        of_column.iter_mut().zip(terms).for_each(|(sum, (weight, a))| *sum += weight * a);
                    }
                }
            }
            let (frequency, phase) = found.parameters[heads * columns..].split_at_mut(cosines);
            for c in 0..cosines {
                let of_cosine = &of_columns[(first_cosine + c) * edges..][..edges];
                let slopes = &row_edges.slopes[c * edges..][..edges];
                for ((of_cosine, slope), age) in of_cosine.iter().zip(slopes).zip(&row_edges.ages) {
                    frequency[c] += of_cosine * slope * age;
                    phase[c] += of_cosine * slope;
                }
            }
            if inputs.of_values {
                found.edges.extend(row_edges.entries.iter().map(|&entry| carried.edge(entry)));
                let row = |k: usize| (0..value_columns).map(move |column| (column, k));
                found.values.extend((0..edges).flat_map(row).map(|(column, k)| of_columns[column * edges + k]));
            }
            if let Some(dh) = dh {
                let row = &mut dh[r * width..(r + 1) * width];
                if adds {
                    axpy(&mut acc, 1.0, E::row(row, &mut own));
                }
                E::narrow(&acc, row);
            }
        }
        found
    };
    let tasks = dt_blocks.zip(dh_blocks.par_iter_mut()).enumerate();
    let found: Vec<Found> = tasks.map(|(at, (dt, dh))| task(at, dt, dh)).collect();

    let mut parameters = vec![0f64; heads * columns + 2 * cosines];
    for of_task in &found {
        parameters.iter_mut().zip(&of_task.parameters).for_each(|(sum, &part)| *sum += f64::from(part));
    }
    let parameters: Vec<f32> = parameters.into_iter().map(|sum| sum as f32).collect();
    let values = inputs.of_values.then(|| {
        // Edges without a kept entry have no gradient.
        let all = edges.values.as_ref().map_or(0, |values| values.shape()[0]);
        let mut gradient = zeroed::<E>(all * value_columns);
        for of_task in &found {
            for (&edge, values) in of_task.edges.iter().zip(of_task.values.chunks(value_columns)) {
                E::narrow(values, &mut gradient[edge * value_columns..(edge + 1) * value_columns]);
            }
        }
        flex::tensor(gradient, [all, value_columns])
    });
    let len = parameters.len();
    EdgeGradients { features: dh, score: dt, parameters: flex::tensor(parameters, [len]), values }
}
