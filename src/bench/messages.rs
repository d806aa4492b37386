//! General message passing on one relation.

use burn::tensor::Tensor;
use graphsieve_kernels::{
    EdgeValue, GraphBackend, MemoryBackend, Message, Reduce, Strategy, Target, backward_from, edge_softmax, gsddmm,
    gspmm,
};

use super::inputs::Stored;
use super::operators::{Bench, CHECKED_ROWS, MOST_HEADS};
use super::report::{GraphFacts, Row};
use super::{BenchOptions, Note, bytes, counted_heads, exact, usage};
use crate::error::Result;
use crate::graph::Dataset;
use crate::models::precision::dtype;
use crate::splitmix::mix;

/// Measures message passing by sources, by sources and edges, and between the ends of edges.
pub fn measure<B: GraphBackend + MemoryBackend>(
    dataset: &Dataset,
    options: &BenchOptions,
    bandwidth: f64,
    device: &B::Device,
    note: Note,
) -> Result<(GraphFacts, Vec<Row>)> {
    let mut bench = Bench::<B>::new(dataset, options, bandwidth, device, note)?;
    if bench.relation.forward.is_spans() {
        let name = format!("{:?}, whose rows share entries", bench.relation.name);
        return Err(usage(
            "--relation",
            "a relation with a list per row",
            &name,
            "here edges have values of their own",
        ));
    }
    bench.sums_of_sources()?;
    for columns in [1, MOST_HEADS] {
        bench.weighted_sums(columns)?;
    }
    bench.maxima()?;
    for heads in [1, MOST_HEADS] {
        bench.dots(heads)?;
        bench.sums_of_ends(heads)?;
        bench.softmax(heads)?;
    }
    Ok((bench.facts(), bench.rows))
}

impl<B: GraphBackend + MemoryBackend> Bench<'_, B> {
    /// Random values of edges.
    fn of_edges(&self, columns: usize) -> Stored<B> {
        let shape = [self.relation.forward.num_edges(), columns];
        Stored::random(shape, dtype(self.options.precision), 1.0, mix(self.options.seed) ^ 8, self.device)
    }

    fn sums_of_sources(&mut self) -> Result<()> {
        let (csr, u) = (self.inner.clone(), self.h_src.tensor.clone());
        let forward = || gspmm(&csr, Message::CopyU(u.clone()), Reduce::Sum, Strategy::Auto);
        let sample = self.destinations(CHECKED_ROWS);
        let want = exact::rows(&sample, &|i| exact::spmm(&self.relation.forward, self.h_src.matrix(), i));
        let error = exact::error(&self.read(forward(), &sample), &want);
        let bytes = bytes::spmm_forward(self.shape(1, None));
        self.row("gspmm copy_u sum", bytes, true, Some(error), forward)
    }

    fn weighted_sums(&mut self, columns: usize) -> Result<()> {
        let (csr, u, e) = (self.inner.clone(), self.h_src.tensor.clone(), self.of_edges(columns));
        let of_edges = e.tensor.clone();
        let forward = || gspmm(&csr, Message::u_mul_e(u.clone(), of_edges.clone()), Reduce::Sum, Strategy::Auto);
        let sample = self.destinations(CHECKED_ROWS);
        let want =
            exact::rows(&sample, &|i| exact::weighted_sum(&self.relation.forward, self.h_src.matrix(), e.matrix(), i));
        let error = exact::error(&self.read(forward(), &sample), &want);
        let bytes = bytes::weighted_sum(self.shape(1, None), columns as u64);
        let name = if columns == 1 { "a value".into() } else { format!("{columns} values") };
        self.row(&format!("gspmm u_mul_e sum, {name} per edge"), bytes, true, Some(error), forward)?;

        let (csr, g) = (self.csr.clone(), self.g_dst.tensor.clone());
        let (u, tracked) = (self.h_src.tracked(), e.tracked());
        let both = || {
            let message = Message::u_mul_e(u.clone(), tracked.clone());
            backward_from(gspmm(&csr, message, Reduce::Sum, Strategy::Auto), g.clone())
        };
        let shape = self.shape(columns as u64, None);
        // Forwards, backwards to the sources, and a product per edge and share of the channels.
        let bytes = 2 * bytes + bytes::edge_dot(shape);
        self.row(&format!("gspmm u_mul_e sum, {name} per edge, both passes"), bytes, true, None, both)
    }

    fn maxima(&mut self) -> Result<()> {
        let (csr, u, g) = (self.csr.clone(), self.h_src.tracked(), self.g_dst.tensor.clone());
        let inner = (self.inner.clone(), self.h_src.tensor.clone());
        let forward = || gspmm(&inner.0, Message::CopyU(inner.1.clone()), Reduce::Max, Strategy::Auto);
        let sample = self.destinations(CHECKED_ROWS);
        let want = exact::rows(&sample, &|i| exact::maximum(&self.relation.forward, self.h_src.matrix(), i));
        let error = exact::error(&self.read(forward(), &sample), &want);
        let shape = self.shape(1, None);
        // The winning entry of every element beside the result.
        let bytes = bytes::spmm_forward(shape) + 4 * shape.rows * shape.channels;
        self.row("gspmm copy_u max", bytes, true, Some(error), forward)?;
        let both = || {
            let max = gspmm(&csr, Message::CopyU(u.clone()), Reduce::Max, Strategy::Auto);
            backward_from(max, g.clone())
        };
        let winners = 4 * shape.edges * shape.channels;
        let bytes = bytes + bytes::spmm_backward(shape) + winners;
        self.row("gspmm copy_u max, both passes", bytes, true, None, both)
    }

    /// The features of both ends of an edge.
    fn ends(&self) -> [Tensor<B, 2>; 2] {
        [&self.h_src, self.h_dst.as_ref().unwrap_or(&self.h_src)].map(|h| h.tensor.clone())
    }

    fn dots(&mut self, heads: usize) -> Result<()> {
        let (csr, [u, v]) = (self.inner.clone(), self.ends());
        let value = |u: &Tensor<B, 2>, v: &Tensor<B, 2>| {
            EdgeValue::dot(Target::Source(u.clone()), Target::Destination(v.clone()), heads)
        };
        let forward = || gsddmm(&csr, value(&u, &v), Strategy::Auto);
        let sample = self.sampled_edges();
        let ends = [self.h_src.matrix(), self.h_dst.as_ref().unwrap_or(&self.h_src).matrix()];
        let want = exact::rows(&sample, &|e| exact::edge_dot(&self.relation.forward, ends, heads, e));
        let error = exact::error(&self.read(forward(), &sample), &want);
        let bytes = bytes::edge_dot(self.shape(heads as u64, None));
        self.row(&format!("gsddmm u_dot_v, {}", counted_heads(heads)), bytes, true, Some(error), forward)
    }

    fn sums_of_ends(&mut self, heads: usize) -> Result<()> {
        let csr = self.inner.clone();
        let storage = dtype(self.options.precision);
        let random = |nodes: usize, salt: u64| {
            Stored::<B>::random([nodes, heads], storage, 1.0, mix(self.options.seed) ^ salt, self.device)
        };
        let (rows, cols) = (self.relation.forward.num_rows(), self.relation.forward.num_cols());
        let (u, v) = (random(cols, 9), random(rows, 10));
        let (source, destination) = (u.tensor.clone(), v.tensor.clone());
        let forward = || {
            let ends = (Target::Source(source.clone()), Target::Destination(destination.clone()));
            gsddmm(&csr, EdgeValue::add(ends.0, ends.1), Strategy::Auto)
        };
        let sample = self.sampled_edges();
        let want = exact::rows(&sample, &|e| exact::edge_sum(&self.relation.forward, [u.matrix(), v.matrix()], e));
        let error = exact::error(&self.read(forward(), &sample), &want);
        let bytes = bytes::edge_sum(self.shape(heads as u64, None));
        self.row(&format!("gsddmm u_add_v, {}", counted_heads(heads)), bytes, true, Some(error), forward)
    }

    fn softmax(&mut self, heads: usize) -> Result<()> {
        let (csr, logits) = (self.inner.clone(), self.of_edges(heads));
        let of_edges = logits.tensor.clone();
        let forward = || edge_softmax(&csr, of_edges.clone());
        let sample = self.sampled_edges();
        let want = exact::rows(&sample, &|e| exact::edge_softmax(&self.relation.forward, logits.matrix(), e));
        let error = exact::error(&self.read(forward(), &sample), &want);
        let bytes = bytes::edge_softmax(self.shape(heads as u64, None));
        self.row(&format!("edge softmax, {}", counted_heads(heads)), bytes, true, Some(error), forward)?;

        let (csr, tracked) = (self.csr.clone(), logits.tracked());
        let g = logits.tensor.clone();
        let both = || backward_from(edge_softmax(&csr, tracked.clone()), g.clone());
        self.row(&format!("edge softmax, {}, both passes", counted_heads(heads)), bytes * 5 / 2, true, None, both)
    }

    /// Some entries of the adjacency.
    fn sampled_edges(&self) -> Vec<u32> {
        super::inputs::sample_rows(self.relation.forward.num_edges(), CHECKED_ROWS, None, self.options.seed)
    }
}
