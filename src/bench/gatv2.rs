//! Attention with a score behind the non-linearity, on one relation.

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{EdgeProjection, GatConfig, GraphBackend, MemoryBackend, backward_from, gatv2};

use super::bytes;
use super::counted_heads;
use super::exact::pairs::PairAttention;
use super::exact::{self, Matrix};
use super::inputs::Stored;
use super::operators::{Bench, CHECKED_GRADIENTS, CHECKED_ROWS, EDGE_VALUES};
use crate::error::Result;
use crate::models::precision::dtype;
use crate::splitmix::mix;

impl<B: GraphBackend + MemoryBackend> Bench<'_, B> {
    /// One head, without values of edges and with them. Both ends are given: their projections are not timed.
    pub(super) fn gatv2(&mut self, with_values: bool) -> Result<()> {
        let relation = self.relation;
        if with_values && relation.forward.is_spans() {
            return Ok(());
        }
        let (channels, key) = (self.options.channels, mix(self.options.seed));
        let random = |shape: [usize; 2], dtype: DType, scale: f32, salt: u64| {
            Stored::<B>::random(shape, dtype, scale, key ^ salt, self.device)
        };
        let storage = dtype(self.options.precision);
        // Scores of about unit variance, as for `gat`.
        let attention = random([1, channels], DType::F32, 1.0 / (channels as f32).sqrt(), 6);
        let dst = random([relation.forward.num_rows(), channels], storage, 1.0, 7);
        let carried = with_values.then(|| {
            let values = random([relation.forward.num_entries(), EDGE_VALUES], storage, 1.0, 8);
            (values, random([EDGE_VALUES, channels], DType::F32, 0.5 / (EDGE_VALUES as f32).sqrt(), 9))
        });
        let exact = PairAttention {
            relation,
            negative_slope: f64::from(GatConfig::default().negative_slope),
            src: self.h_src.matrix(),
            dst: dst.matrix(),
            g: self.g_dst.matrix(),
            attention: attention.matrix(),
            edges: carried.as_ref().map(|(values, weight)| -> [Matrix; 2] { [values.matrix(), weight.matrix()] }),
        };
        let shape = self.shape(1, None);
        let columns = if with_values { EDGE_VALUES as u64 } else { 0 };
        let of_values = if with_values { format!(", {EDGE_VALUES} values an edge") } else { String::new() };
        let name = |pass: &str| format!("gatv2 {} {pass}{of_values}", counted_heads(1));

        let (csr, inner) = (self.csr.clone(), self.inner.clone());
        let (l, r, a) = (self.h_src.tensor.clone(), dst.tensor.clone(), attention.tensor.clone());
        let edges = carried.as_ref().map(|(values, weight)| (values.tensor.clone(), weight.tensor.clone()));
        let forward = || {
            let edges = edges.clone().map(projection);
            gatv2(&inner, l.clone(), r.clone(), a.clone(), edges, GatConfig::default())
        };
        let sample = self.destinations(CHECKED_ROWS);
        let want = exact::rows(&sample, &|i| exact.forward(i));
        let forward_error = exact::error(&self.read(forward(), &sample), &want);

        // Values are data; everything else needs its gradient, as in a training.
        let (src, dst, vectors) = (self.h_src.tracked(), dst.tracked(), attention.tracked());
        let edges = carried
            .as_ref()
            .map(|(values, weight)| (Tensor::<Autodiff<B>, 2>::from_inner(values.tensor.clone()), weight.tracked()));
        let g = self.g_dst.tensor.clone();
        let both = || {
            let edges = edges.clone().map(projection);
            let y = gatv2(&csr, src.clone(), dst.clone(), vectors.clone(), edges, GatConfig::default());
            backward_from(y, g.clone())
        };
        let gradients = both();
        let sample = self.sources(CHECKED_GRADIENTS);
        let want = exact::rows(&sample, &|j| exact.source_gradient(j));
        let of_sources = exact::error(&self.gradient(&src, &gradients, &sample), &want);
        let sample = self.destinations(CHECKED_GRADIENTS);
        let want = exact::rows(&sample, &|i| exact.destination_gradient(i));
        let of_destinations = exact::error(&self.gradient(&dst, &gradients, &sample), &want);
        drop(gradients);
        let error = of_sources.max(of_destinations);

        let forward_bytes = bytes::gatv2_forward(shape, columns);
        self.row(&name("forward"), forward_bytes, true, Some(forward_error), forward)?;
        let bytes = forward_bytes + bytes::gatv2_backward(shape, columns);
        self.row(&name("forward + backward"), bytes, true, Some(error), both)
    }
}

/// Values of edges and their weight, which are in scores alone.
fn projection<B: GraphBackend>((values, weight): (Tensor<B, 2>, Tensor<B, 2>)) -> EdgeProjection<B> {
    EdgeProjection { values: Some(values), time: None, weight, messages: false }
}
