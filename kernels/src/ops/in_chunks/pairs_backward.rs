//! The gradients of attention with a score behind the non-linearity, chunk by chunk.

use std::ops::Range;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, TensorMetadata};
use burn_autodiff::grads::Gradients;

use super::backward::{ByRows, Pass, register_or_zero, stacked};
use super::pairs::Pairs;
use super::{ChunkBackend, Destinations, add_to, beside, chunks, own_rows, put_rows, rows_of};
use crate::ops::gat::v2::{V2Backward, V2Inputs, V2Wanted};
use crate::ops::head::column_sum;

impl<B: ChunkBackend> Pass<'_, B> {
    /// By destinations: everything but the gradient of the sources, and what these want to know of a destination, its
    /// projection included. By sources: theirs.
    pub(super) fn pairs(&self, pairs: &Pairs<B>, grads: &mut Gradients) {
        let Pairs { csr, heads, x, from, .. } = pairs;
        let (nodes, transposed, rows) = (self.nodes, self.transposed(), self.layer.to.len());
        let groups: Vec<Range<usize>> = heads.groups().collect();
        let wanted = V2Wanted { values: nodes.values.is_some(), angles: nodes.angles.is_some() };
        let (mut dw, mut db, mut dvalues, mut dangles) = (None, None, None, None);
        let mut dparameters = vec![None; groups.len()];
        let mut dx = ByRows::<B>::of(nodes.x, (x.shape()[0], from.is_none()), self.g, grads);
        let (mut log_sums, mut deltas, mut projected) = (Vec::new(), Vec::new(), None);
        for range in chunks(rows, self.layer.chunk_rows) {
            let (part, g) = (self.part(&range), rows_of::<B>(self.g, &range));
            let (view, own) = (csr.view_of(&part), own_rows::<B>(x, from.as_ref(), &part));
            let dst = pairs.projected(own.clone(), &self.term.weight);
            let (mut of_dst, mut of_log, mut of_delta) = (Vec::new(), Vec::new(), Vec::new());
            for (group, dparameters) in groups.iter().zip(&mut dparameters) {
                let (inputs, args) = heads.part::<B>(&dst, group);
                let (inputs, g) = (inputs.of_rows(csr), heads.columns::<B>(&g, group));
                let forward = B::gatv2_forward(&view, inputs.clone(), args);
                let delta = B::head_dot(g.clone(), forward.out, args.heads);
                of_log.push(forward.log_sum_exp.clone());
                of_delta.push(delta.clone());
                let inputs = V2Backward { g, inputs, log_sum_exp: forward.log_sum_exp, delta };
                let found = B::gatv2_row_gradients(&view, inputs, args, wanted);
                of_dst.push(found.dst);
                add_to::<B>(dparameters, found.parameters);
                found.values.into_iter().for_each(|values| add_to::<B>(&mut dvalues, values));
                found.angles.into_iter().for_each(|angles| add_to::<B>(&mut dangles, angles));
            }
            let of_dst = beside::<B>(of_dst);
            if nodes.weight.is_some() {
                add_to::<B>(&mut dw, B::weight_gradient(own, of_dst.clone(), DType::F32));
            }
            if nodes.bias.is_some() {
                add_to::<B>(&mut db, column_sum::<B>(of_dst.clone()));
            }
            self.add_own(&mut dx, from.as_ref(), &part, &range, || B::product(of_dst, transposed.clone()));
            log_sums.push(beside::<B>(of_log));
            deltas.push(beside::<B>(of_delta));
            if nodes.src.is_some() {
                projected = Some(put_rows::<B>(projected, rows, &range, dst, false));
            }
        }
        self.register_weight(dw, grads);
        dx.into_iter().for_each(|dx| dx.register(grads));
        let dparameters: Option<Vec<FloatTensor<B>>> = dparameters.into_iter().collect();
        for (node, of, gradient) in [
            (nodes.bias, pairs.bias.as_ref(), db),
            (nodes.parameters, Some(&heads.parameters), dparameters.map(beside::<B>)),
            (nodes.angles, Some(&heads.edges.parameters), dangles),
            (nodes.values, heads.edges.values.as_ref(), dvalues),
        ] {
            register_or_zero::<B>(grads, node, of, gradient);
        }
        let (Some(dst), Some(log_sum_exp), Some(delta)) = (projected, stacked::<B>(log_sums), stacked::<B>(deltas))
        else {
            return;
        };
        let src = (heads.src.shape()[0], csr.sides()[1].is_none());
        let Some(mut dsrc) = ByRows::<B>::of(nodes.src, src, self.g, grads) else { return };
        let reverse = csr.reverse();
        let sources = Destinations { nodes: csr.topology().num_cols, set: csr.sides()[1].cloned() };
        for range in chunks(sources.len(), self.layer.chunk_rows) {
            let view = reverse.view_of(&sources.part(&range, &B::float_device(self.g)));
            let of_group = |group: &Range<usize>| {
                let (inputs, args) = heads.part::<B>(&dst, group);
                let inputs = V2Inputs { src: rows_of::<B>(&inputs.src, &range), ..inputs.of_reverse(csr) };
                let [g, log_sum_exp, delta] =
                    [self.g, &log_sum_exp, &delta].map(|matrix| heads.columns::<B>(matrix, group));
                B::gatv2_source_gradient(&view, V2Backward { g, inputs, log_sum_exp, delta }, args)
            };
            dsrc.add(&range, beside::<B>(groups.iter().map(of_group).collect()));
        }
        dsrc.register(grads);
    }
}
