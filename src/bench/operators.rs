//! The operators one by one on one relation.

use burn::backend::Autodiff;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{
    Activation, Csr, DropEdge, EdgeRows, EdgeTerm, GatConfig, GraphBackend, MemoryBackend, RowIndex, ScoreColumns,
    SpmmConfig, attend, attend_edges, backward_from, combine, gat, gather_rows, linear, row_dots, spmm,
};
use rayon::prelude::*;

use super::bytes::{self, Shape};
use super::clock::time;
use super::exact::{self, Attention};
use super::inputs::{Stored, choose, longest_row, sample_rows};
use super::memory::peak;
use super::report::{GraphFacts, Row, error_bound};
use super::{BenchOptions, Note, counted_heads};
use crate::error::Result;
use crate::graph::{Dataset, Relation, Rows};
use crate::models::device_graph;
use crate::models::parameters::to_host;
use crate::models::precision::dtype;
use crate::splitmix::mix;

/// Heads that attention is measured with.
const HEADS: [usize; 2] = [1, MOST_HEADS];
pub const MOST_HEADS: usize = 4;
/// Values of an edge.
pub const EDGE_VALUES: usize = 4;
/// Share of edges that DropEdge removes, as in the training of Stage 2.
const DROP_RATE: f64 = 0.85;
/// Rows of a result that are computed again in f64.
pub const CHECKED_ROWS: usize = 256;
/// Rows of a gradient of attention: each takes the softmax of all its neighbours.
pub const CHECKED_GRADIENTS: usize = 64;
/// Rows of a weight gradient: each takes all features.
const CHECKED_WEIGHTS: usize = 2;

type Gradients<B> = <Autodiff<B> as AutodiffBackend>::Gradients;

/// Measures every operator of the detector.
pub fn measure<B: GraphBackend + MemoryBackend>(
    dataset: &Dataset,
    options: &BenchOptions,
    bandwidth: f64,
    device: &B::Device,
    note: Note,
) -> Result<(GraphFacts, Vec<Row>)> {
    let mut bench = Bench::<B>::new(dataset, options, bandwidth, device, note)?;
    bench.copy()?;
    bench.spmm()?;
    for heads in HEADS {
        for drop_edge in [None, bench.drop_edge] {
            bench.gat(heads, drop_edge)?;
        }
    }
    bench.attend_edges()?;
    bench.gatv2(false)?;
    bench.gatv2(true)?;
    bench.spans()?;
    bench.linear()?;
    bench.elu()?;
    Ok((bench.facts(), bench.rows))
}

/// One relation with random features, and the rows measured on it so far.
pub(super) struct Bench<'a, B: GraphBackend> {
    pub options: &'a BenchOptions,
    pub device: &'a B::Device,
    note: Note<'a>,
    /// Bytes per second.
    bandwidth: f64,
    pub relation: &'a Relation,
    /// The row with most entries.
    longest: u32,
    drop_edge: Option<DropEdge>,
    pub csr: Csr<Autodiff<B>>,
    pub inner: Csr<B>,
    /// What names of rows say about the adjacency.
    stored: &'static str,
    pub h_src: Stored<B>,
    /// `None` where source and destination are of one type and share their features.
    pub h_dst: Option<Stored<B>>,
    /// Gradients of results with a row per destination, and per source.
    pub g_dst: Stored<B>,
    g_src: Stored<B>,
    weight: Stored<B>,
    pub rows: Vec<Row>,
}

impl<'a, B: GraphBackend + MemoryBackend> Bench<'a, B> {
    pub fn new(
        dataset: &'a Dataset,
        options: &'a BenchOptions,
        bandwidth: f64,
        device: &'a B::Device,
        note: Note<'a>,
    ) -> Result<Self> {
        let graph = &dataset.graph;
        let id = choose(graph, options)?;
        let relation = &graph.relations()[id];
        let (src, dst) = (&graph.node_types()[relation.src], &graph.node_types()[relation.dst]);
        note(&format!("uploading relation {}", relation.name));
        let storage = dtype(options.precision);
        let random = |rows: usize, salt: u64| {
            Stored::random([rows, options.channels], storage, 1.0, mix(options.seed) ^ salt, device)
        };
        let csr = device_graph::upload::<Autodiff<B>>(relation, device)?;
        Ok(Self {
            options,
            device,
            note,
            bandwidth,
            relation,
            longest: longest_row(&relation.forward),
            drop_edge: DropEdge::new(DROP_RATE, options.seed, 1, 0, id as u32)
                .map(|drop| drop.with_bases(dst.offset as u32, src.offset as u32)),
            inner: csr.clone().inner(),
            csr,
            stored: "",
            h_src: random(src.count, 1),
            h_dst: (relation.src != relation.dst).then(|| random(dst.count, 2)),
            g_dst: random(dst.count, 3),
            g_src: random(src.count, 4),
            weight: random(options.channels, 5),
            rows: Vec::new(),
        })
    }

    pub fn facts(&self) -> GraphFacts {
        let adjacency = &self.relation.forward;
        GraphFacts {
            data: self.options.data.clone(),
            relation: Some(self.relation.name.clone()),
            rows: adjacency.num_rows(),
            cols: adjacency.num_cols(),
            edges: adjacency.num_edges(),
            longest_row: adjacency.degree(self.longest as usize),
            channels: Some(self.options.channels),
        }
    }

    /// Times `run`, looks at its memory and adds the row.
    pub fn row<T>(
        &mut self,
        name: &str,
        bytes: u64,
        on_graph: bool,
        error: Option<f64>,
        run: impl Fn() -> T,
    ) -> Result<()> {
        (self.note)(&format!("measuring {name}"));
        let timed = || {
            run();
            Ok(())
        };
        let times = time::<B>(self.device, self.options.runs, timed)?;
        let peak = peak::<B, T>(self.device, || Ok(run()))?;
        let mut row = Row::new(name, times).with_bytes(bytes, self.bandwidth).with_peak(peak);
        if on_graph {
            row = row.with_edges(self.relation.forward.num_edges());
        }
        if let Some(error) = error {
            row = row.with_error(error, error_bound(self.options.precision));
        }
        self.rows.push(row);
        Ok(())
    }

    /// The features through a plain copy: what the size of this graph costs against a large array.
    fn copy(&mut self) -> Result<()> {
        let x = self.h_src.tensor.clone();
        let bytes = 2 * (x.shape().num_elements() as u64) * self.element();
        let run = || x.clone().mul_scalar(1.5);
        let sample = sample_rows(x.dims()[0], CHECKED_ROWS, None, self.options.seed);
        let values = self.h_src.matrix();
        let want = exact::rows(&sample, &|i| values.row(i).iter().map(|v| 1.5 * f64::from(*v)).collect());
        let error = exact::error(&self.read(run(), &sample), &want);
        self.row("copy of the features", bytes, false, Some(error), run)
    }

    fn spmm(&mut self) -> Result<()> {
        let (h, g) = (self.h_src.tensor.clone(), self.g_dst.tensor.clone());
        let (csr, inner) = (self.csr.clone(), self.inner.clone());
        let shape = self.shape(1, None);
        let forward = || spmm(&inner, h.clone(), None, SpmmConfig::default());
        let sample = self.destinations(CHECKED_ROWS);
        let want = exact::rows(&sample, &|i| exact::spmm(&self.relation.forward, self.h_src.matrix(), i));
        let error = exact::error(&self.read(forward(), &sample), &want);
        let name = format!("spmm forward{}", self.stored);
        self.row(&name, bytes::spmm_forward(shape), true, Some(error), forward)?;

        let both =
            |h: &Tensor<Autodiff<B>, 2>| backward_from(spmm(&csr, h.clone(), None, SpmmConfig::default()), g.clone());
        let sample = self.sources(CHECKED_ROWS);
        let want = exact::rows(&sample, &|j| exact::spmm(&self.relation.reverse, self.g_dst.matrix(), j));
        let tracked = self.h_src.tracked();
        let error = exact::error(&self.gradient(&tracked, &both(&tracked), &sample), &want);
        let bytes = bytes::spmm_forward(shape) + bytes::spmm_backward(shape);
        let name = format!("spmm forward + backward{}", self.stored);
        self.row(&name, bytes, true, Some(error), || both(&tracked))
    }

    /// Products and attention by the same rows with a start and an end each: what the end costs. A relation whose rows
    /// are spans has been measured so already.
    fn spans(&mut self) -> Result<()> {
        let forward = &self.relation.forward;
        let Rows::Lists { row_ptr } = forward.rows() else { return Ok(()) };
        let (start, end) = (&row_ptr[..forward.num_rows()], &row_ptr[1..]);
        let spans = Csr::from_spans(start, end, forward.col_idx(), forward.num_cols(), self.device);
        self.csr = spans.map_err(|problem| device_graph::refused(self.relation, &problem))?;
        self.inner = self.csr.clone().inner();
        self.stored = ", rows as spans";
        self.spmm()?;
        self.gat(1, None)
    }

    fn gat(&mut self, heads: usize, drop_edge: Option<DropEdge>) -> Result<()> {
        let channels = self.options.channels / heads;
        // Scores of unit variance: the softmax prefers some edges and ignores none.
        let scale = 1.0 / (2.0 * channels as f32).sqrt();
        let vector = |salt: u64| {
            Stored::<B>::random([heads, channels], DType::F32, scale, mix(self.options.seed) ^ salt, self.device)
        };
        let (a_src, a_dst) = (vector(6), vector(7));
        let (h_src, h_dst) = (self.h_src.tensor.clone(), self.h_dst.as_ref().unwrap_or(&self.h_src).tensor.clone());
        let (csr, inner) = (self.csr.clone(), self.inner.clone());
        let config = || GatConfig { drop_edge, ..GatConfig::default() };
        let shape = self.shape(heads as u64, drop_edge);
        let kept = if drop_edge.is_some() { ", 15 % kept" } else { "" };
        let stored = self.stored;
        let name = |pass: &str| format!("gat {} {pass}{kept}{stored}", counted_heads(heads));
        let attention = Attention {
            relation: self.relation,
            heads,
            negative_slope: f64::from(config().negative_slope),
            drop_edge,
            h_src: self.h_src.matrix(),
            h_dst: self.h_dst.as_ref().unwrap_or(&self.h_src).matrix(),
            g: self.g_dst.matrix(),
            attention_src: a_src.matrix(),
            attention_dst: a_dst.matrix(),
            edges: None,
        };

        let (iu, iv) = (a_src.tensor.clone(), a_dst.tensor.clone());
        let forward = || gat(&inner, h_src.clone(), h_dst.clone(), iu.clone(), iv.clone(), config());
        let sample = self.destinations(CHECKED_ROWS);
        let want = exact::rows(&sample, &|i| attention.forward(i));
        let forward_error = exact::error(&self.read(forward(), &sample), &want);

        // Every input needs its gradient, as in a training.
        let (u, v) = (a_src.tracked(), a_dst.tracked());
        let src = self.h_src.tracked();
        let dst = self.h_dst.as_ref().map_or_else(|| src.clone(), Stored::tracked);
        let g = self.g_dst.tensor.clone();
        let both = || backward_from(gat(&csr, src.clone(), dst.clone(), u.clone(), v.clone(), config()), g.clone());
        let gradients = both();
        let sample = self.sources(CHECKED_GRADIENTS);
        let shared = self.h_dst.is_none();
        let want = exact::rows(&sample, &|j| {
            let gradient = attention.source_gradient(j);
            if !shared {
                return gradient;
            }
            gradient.into_iter().zip(attention.destination_gradient(j)).map(|(a, b)| a + b).collect()
        });
        let mut backward_error = exact::error(&self.gradient(&src, &gradients, &sample), &want);
        if !shared {
            let sample = self.destinations(CHECKED_GRADIENTS);
            let want = exact::rows(&sample, &|i| attention.destination_gradient(i));
            let error = exact::error(&self.gradient(&dst, &gradients, &sample), &want);
            backward_error = backward_error.max(error);
        }
        drop(gradients);
        let forward_bytes = bytes::gat_forward(shape);
        self.row(&name("forward"), forward_bytes, true, Some(forward_error), forward)?;
        let bytes = forward_bytes + bytes::gat_backward(shape);
        self.row(&name("forward + backward"), bytes, true, Some(backward_error), both)
    }

    /// Attention by scores that are given, without values of edges and with them: what the values cost.
    fn attend_edges(&mut self) -> Result<()> {
        if self.relation.forward.is_spans() {
            return Ok(());
        }
        let (channels, entries) = (self.options.channels, self.relation.forward.num_entries());
        let key = mix(self.options.seed);
        // As for `gat`.
        let random = |shape: [usize; 2], dtype: DType, scale: f32, salt: u64| {
            Stored::<B>::random(shape, dtype, scale, key ^ salt, self.device)
        };
        let scale = 1.0 / (2.0 * channels as f32).sqrt();
        let [a_src, a_dst] = [6, 7].map(|salt| random([1, channels], DType::F32, scale, salt));
        let values = random([entries, EDGE_VALUES], dtype(self.options.precision), 1.0, 8);
        let logit = random([1, EDGE_VALUES], DType::F32, 0.5 / (EDGE_VALUES as f32).sqrt(), 9);
        let h_dst = self.h_dst.as_ref().unwrap_or(&self.h_src);
        let (csr, g) = (self.csr.clone(), self.g_dst.tensor.clone());
        let (src, dst) = (self.h_src.tracked(), h_dst.tracked());
        let (u, v, w) = (a_src.tracked(), a_dst.tracked(), logit.tracked());
        let score = |h: &Tensor<Autodiff<B>, 2>, vector: &Tensor<Autodiff<B>, 2>| ScoreColumns {
            scores: row_dots(h.clone(), vector.clone()),
            first: 0,
        };
        let plain = || attend(&csr, src.clone(), score(&dst, &v), score(&src, &u), 1, GatConfig::default());
        let carried = EdgeRows::kept(&csr, Tensor::from_inner(values.tensor.clone()));
        let with_values = || {
            let term = EdgeTerm { values: Some(carried.clone()), time: None, logit: w.clone() };
            attend_edges(&csr, src.clone(), score(&dst, &v), score(&src, &u), term, 1, GatConfig::default()).0
        };
        let shape = self.shape(1, None);
        let bytes = bytes::gat_forward(shape) + bytes::gat_backward(shape) + 2 * bytes::scores(shape);
        let of_values = bytes::edge_values(shape, EDGE_VALUES as u64);
        let attention = |edges| Attention {
            relation: self.relation,
            heads: 1,
            negative_slope: f64::from(GatConfig::default().negative_slope),
            drop_edge: None,
            h_src: self.h_src.matrix(),
            h_dst: h_dst.matrix(),
            g: self.g_dst.matrix(),
            attention_src: a_src.matrix(),
            attention_dst: a_dst.matrix(),
            edges,
        };
        let sample = self.sources(CHECKED_GRADIENTS);
        let error = |gradients: Gradients<B>, attention: Attention| {
            let want = exact::rows(&sample, &|j| attention.source_gradient(j));
            exact::error(&self.gradient(&src, &gradients, &sample), &want)
        };
        let plain_error = error(backward_from(plain(), g.clone()), attention(None));
        let both = Some([values.matrix(), logit.matrix()]);
        let error = error(backward_from(with_values(), g.clone()), attention(both));
        let name = "gat 1 head forward + backward";
        let timed = || backward_from(plain(), g.clone());
        self.row(&format!("{name}, scores given"), bytes, true, Some(plain_error), timed)?;
        let timed = || backward_from(with_values(), g.clone());
        self.row(&format!("{name}, {EDGE_VALUES} values an edge"), bytes + of_values, true, Some(error), timed)
    }

    fn linear(&mut self) -> Result<()> {
        let (x, w, g) = (self.h_src.tensor.clone(), self.weight.tensor.clone(), self.g_src.tensor.clone());
        let (rows, width) = (x.dims()[0] as u64, self.options.channels as u64);
        let forward = || linear(x.clone(), w.clone(), None);
        let sample = self.sources(CHECKED_ROWS);
        let want = exact::rows(&sample, &|i| exact::product(self.h_src.matrix(), self.weight.matrix(), i));
        let error = exact::error(&self.read(forward(), &sample), &want);
        let forward_bytes = bytes::linear_forward(rows, width, width, self.element());
        self.row("linear forward", forward_bytes, false, Some(error), forward)?;

        let (x, w) = (self.h_src.tracked(), self.weight.tracked());
        let both = || backward_from(linear(x.clone(), w.clone(), None), g.clone());
        let gradients = both();
        let want = exact::rows(&sample, &|i| exact::product_transposed(self.g_src.matrix(), self.weight.matrix(), i));
        let dx = exact::error(&self.gradient(&x, &gradients, &sample), &want);
        let sample = sample_rows(self.options.channels, CHECKED_WEIGHTS, None, self.options.seed);
        let want = exact::rows(&sample, &|k| exact::weight_gradient(self.h_src.matrix(), self.g_src.matrix(), k));
        let dw = exact::error(&self.gradient(&w, &gradients, &sample), &want);
        drop(gradients);
        let bytes = forward_bytes + bytes::linear_backward(rows, width, width, self.element());
        self.row("linear forward + dx + dw", bytes, false, Some(dx.max(dw)), both)
    }

    fn elu(&mut self) -> Result<()> {
        let (x, g) = (self.h_src.tracked(), self.g_src.tensor.clone());
        let both = || backward_from(combine(vec![x.clone()], None, 1.0, Activation::Elu), g.clone());
        let sample = self.sources(CHECKED_ROWS);
        let want = exact::rows(&sample, &|i| exact::elu_gradient(self.h_src.matrix(), self.g_src.matrix(), i));
        let error = exact::error(&self.gradient(&x, &both(), &sample), &want);
        let bytes = bytes::elu_both(x.dims()[0] as u64, self.options.channels as u64, self.element());
        self.row("elu forward + backward", bytes, false, Some(error), both)
    }

    /// Bytes per stored feature.
    pub fn element(&self) -> u64 {
        dtype(self.options.precision).size() as u64
    }

    pub fn shape(&self, heads: u64, drop_edge: Option<DropEdge>) -> Shape {
        let adjacency = &self.relation.forward;
        let edges = adjacency.num_edges() as u64;
        let kept_in = |drop: DropEdge, i: usize| adjacency.row(i).iter().filter(|&&j| drop.keeps(i as u32, j)).count();
        let kept = drop_edge
            .map_or(edges, |drop| (0..adjacency.num_rows()).into_par_iter().map(|i| kept_in(drop, i) as u64).sum());
        let (rows, cols) = (adjacency.num_rows() as u64, adjacency.num_cols() as u64);
        let bounds = if adjacency.is_spans() || !self.stored.is_empty() { 2 } else { 1 };
        let (channels, element) = (self.options.channels as u64, self.element());
        Shape { rows, cols, bounds, edges, kept, channels, heads, element }
    }

    /// Rows to check, the longest among them.
    pub fn destinations(&self, count: usize) -> Vec<u32> {
        sample_rows(self.relation.forward.num_rows(), count, Some(self.longest), self.options.seed)
    }

    pub fn sources(&self, count: usize) -> Vec<u32> {
        sample_rows(self.relation.forward.num_cols(), count, None, self.options.seed)
    }

    /// The listed rows of a result.
    pub fn read(&self, result: Tensor<B, 2>, rows: &[u32]) -> Vec<f32> {
        let index = RowIndex::new(rows, result.dims()[0], self.device);
        to_host(gather_rows(result, &index))
    }

    /// The listed rows of the gradient of `of`; a gradient that is missing is no number.
    pub fn gradient(&self, of: &Tensor<Autodiff<B>, 2>, gradients: &Gradients<B>, rows: &[u32]) -> Vec<f32> {
        match of.grad(gradients) {
            Some(gradient) => self.read(gradient, rows),
            None => vec![f32::NAN; rows.len() * of.dims()[1]],
        }
    }
}
