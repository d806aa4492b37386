//! All gradients of a module, and whether those of two ways to compute them are the same.

use std::marker::PhantomData;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use graphsieve::models::parameters::to_host;
use graphsieve_kernels::GraphBackend;

struct Collect<'a, B: GraphBackend>(&'a GradientsParams, Vec<Vec<f32>>, PhantomData<B>);

impl<B: GraphBackend> ModuleVisitor<Autodiff<B>> for Collect<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Autodiff<B>, D>>) {
        self.1.push(to_host(self.0.get::<B, D>(param.id).expect("every parameter has a gradient")));
    }
}

/// Every gradient of a module, in its own order.
pub fn gradients<B: GraphBackend>(
    module: &impl AutodiffModule<Autodiff<B>>,
    loss: Tensor<Autodiff<B>, 1>,
) -> Vec<Vec<f32>> {
    let grads = GradientsParams::from_grads(loss.backward(), module);
    let mut all = Collect(&grads, Vec::new(), PhantomData);
    module.visit(&mut all);
    all.1
}

/// Each gradient may be off by 2e-5 of its length and by `of_all` of the length of all: one that is zero but for
/// rounding (attention over a single source) has no scale of its own.
pub fn assert_same(name: &str, got: &[Vec<f32>], want: &[Vec<f32>], of_all: f64) {
    let length = |v: &[f32]| v.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let total = want.iter().map(|b| length(b).powi(2)).sum::<f64>().sqrt();
    assert!(total > 0.0 && got.len() == want.len(), "{name}: {} gradients of {}", got.len(), want.len());
    let off = got.iter().zip(want).enumerate().filter_map(|(k, (a, b))| {
        let difference: Vec<f32> = a.iter().zip(b).map(|(a, b)| a - b).collect();
        let (off, of) = (length(&difference), length(b));
        // What is no number is off, too.
        let same = off <= 2e-5 * of + of_all * total;
        (!same).then(|| format!("{k} of {} values by {off} of {of}", b.len()))
    });
    let off: Vec<String> = off.collect();
    assert!(off.is_empty(), "{name}: gradients are off: {}", off.join("; "));
}
