//! The values of entries where an adjacency is given self-loops.

use burn::tensor::{DType, Tensor};

use crate::graph::csr::self_loops::{LoopValue, SelfLoops};
use crate::ops::gather::{GatherBackend, gather_rows};
use crate::ops::message::{Message, MessageBackend, Reduce, Strategy, gspmm};
use crate::runtime::check;
use crate::runtime::lists::UploadBackend;

impl<B: GatherBackend + MessageBackend + UploadBackend> SelfLoops<B> {
    /// The values of the entries of the adjacency that this was made from, with those of self-loops as `value` says.
    ///
    /// # Shapes
    /// `values` `[num_edges, k]` in f32, f16 or bf16, in the order of the adjacency that this was made from; result
    /// `[csr.num_edges(), k]` in the same dtype, in the order of [`SelfLoops::csr`].
    ///
    /// # Gradient
    /// Every value has that of its entry, and `1 / n` of that of the loop that is a mean of `n` with it. Deterministic.
    ///
    /// # Panics
    /// If `values` does not have a row per entry; for 2^31 entries or more; where rows are spans
    /// ([`Csr::from_spans`](crate::Csr::from_spans)).
    pub fn edge_values(&self, values: Tensor<B, 2>, value: LoopValue) -> Tensor<B, 2> {
        const OP: &str = "SelfLoops::edge_values";
        self.source().check_lists(OP, "values");
        let [rows, width] = values.dims();
        check::size(OP, "rows of values", self.source().num_edges(), rows);
        let nodes = self.source().num_rows();
        if nodes == 0 {
            return values;
        }
        let (index, averaged) = self.edge_sources(OP, value);
        let (device, dtype) = (values.device(), values.dtype());
        let mut loops = Tensor::zeros([nodes, width], (&device, dtype));
        let mut degrees = Tensor::zeros([nodes, 1], (&device, DType::F32));
        if let Some(averaged) = averaged {
            degrees = averaged.degrees().reshape([nodes, 1]);
            loops = gspmm(&averaged, Message::CopyU(values.clone()), Reduce::Mean, Strategy::Auto);
        }
        if let LoopValue::Kept(fill) = value {
            let missing = -degrees.clamp_max(1.0) + 1.0;
            loops = loops + (missing * fill).cast(dtype);
        }
        let all = if rows == 0 { loops } else { Tensor::cat(vec![values, loops], 0) };
        gather_rows(all, &index)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use burn_flex::Flex;

    use super::*;
    use crate::Csr;

    /// 0 <- {0, 1, 0}, 1 <- {}, 2 <- {0, 2, 1, 1}, 3 <- {3}
    fn csr() -> Csr<Flex> {
        Csr::from_host(&[0, 3, 3, 7, 8], &[0, 1, 0, 0, 2, 1, 1, 3], 4, &Default::default()).unwrap()
    }

    fn values(tensor: Tensor<Flex, 2>) -> Vec<f32> {
        tensor.into_data().into_vec().unwrap()
    }

    fn column(values: [f32; 8]) -> Tensor<Flex, 2> {
        Tensor::from_data(TensorData::new(values.to_vec(), [8, 1]), &Default::default())
    }

    #[test]
    fn values_follow_their_entries_in_both_directions() {
        let csr = csr();
        let v = column([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 9.0]);
        let looped = csr.with_self_loops();
        let mean = values(looped.edge_values(v.clone(), LoopValue::Mean));
        assert_eq!(mean, [2.0, 2.0, 0.0, 4.0, 6.0, 8.0, 6.0, 0.0]);
        let kept = values(looped.edge_values(v, LoopValue::Kept(0.5)));
        assert_eq!(kept, [2.0, 2.0, 0.5, 4.0, 6.0, 8.0, 5.0, 9.0]);
        // Reversed: 0 <- {0, 0, 2}, 1 <- {0, 2, 2}, 2 <- {2}, 3 <- {3}
        let v = column([1.0, 3.0, 4.0, 2.0, 6.0, 8.0, 5.0, 9.0]);
        let looped = csr.reverse().with_self_loops();
        // 0 <- {0, 2}, 1 <- {0, 1, 2, 2}, 2 <- {2}, 3 <- {3}
        let mean = values(looped.edge_values(v.clone(), LoopValue::Mean));
        assert!(mean.iter().zip([4.0, 4.0, 2.0, 16.0 / 3.0, 6.0, 8.0, 0.0, 0.0]).all(|(a, b)| (a - b).abs() < 1e-6));
        let kept = values(looped.edge_values(v, LoopValue::Kept(0.5)));
        assert_eq!(kept, [2.0, 4.0, 2.0, 0.5, 6.0, 8.0, 5.0, 9.0]);
    }

    #[test]
    fn edges_with_an_order_of_their_own_are_found_in_both_directions() {
        let device = Default::default();
        // 1 <- 0, 0 <- 1, 1 <- 1, 0 <- 0, 1 <- 0
        let csr = Csr::<Flex>::from_edges(&[1, 0, 1, 0, 1], &[0, 1, 1, 0, 0], [2, 2], &device).unwrap();
        let v = Tensor::<Flex, 2>::from_data([[1.0], [2.0], [4.0], [8.0], [16.0]], &device);
        // 0 <- {1, 0}, 1 <- {0, 0, 1}
        let kept = csr.with_self_loops().edge_values(v.clone(), LoopValue::Kept(0.0));
        assert_eq!(values(kept), [2.0, 8.0, 1.0, 16.0, 4.0]);
        // 0 <- {0, 1, 1}, 1 <- {0, 1}
        let mean = csr.reverse().with_self_loops().edge_values(v, LoopValue::Mean);
        assert_eq!(values(mean), [8.5, 1.0, 16.0, 2.0, 2.0]);
    }

    #[test]
    fn loops_of_a_graph_without_edges_have_values() {
        let csr = Csr::<Flex>::from_host(&[0, 0, 0], &[], 2, &Default::default()).unwrap();
        let looped = csr.with_self_loops();
        let none = || Tensor::zeros([0, 3], &Default::default());
        assert_eq!(values(looped.edge_values(none(), LoopValue::Mean)), [0.0; 6]);
        assert_eq!(values(looped.edge_values(none(), LoopValue::Kept(2.0))), [2.0; 6]);
    }
}
