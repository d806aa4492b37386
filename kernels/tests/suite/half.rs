//! Every operator with matrices in f16 and in bf16, forward and all gradients, by the bound that holds for f32.

use std::panic::AssertUnwindSafe;

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::testing::Dtype;
use graphsieve_kernels::testing::harness::{Requirement, Trial, hardware};
use graphsieve_kernels::{GraphBackend, row_dots};

use crate::support::turns;
use crate::{
    attention, dense, edge_attention, gatv2, gatv2_ages, messages, passes, selection, self_loops, spans, spmm, sums,
    support,
};

/// A module of trials per type, and what they need besides.
macro_rules! in_both_types {
    ($($name:ident $(($need:ident))?: $check:expr;)+) => {
        mod f16 {
            use super::*;
            fn stored<B: GraphBackend>() -> Requirement {
                let probe = || super::stored::<B>(Dtype::F16);
                Requirement { name: "storage in f16", demand: "GRAPHSIEVE_REQUIRE_F16", probe }
            }
            $(fn $name<B: GraphBackend>(device: &B::Device) { ($check)(Dtype::F16, device) })+
            pub fn trials() -> Vec<Trial> {
                graphsieve_kernels::on_every_backend!("f16"; $($name(stored $(, $need)?)),+)
            }
        }
        mod bf16 {
            use super::*;
            fn stored<B: GraphBackend>() -> Requirement {
                let probe = || super::stored::<B>(Dtype::Bf16);
                Requirement { name: "storage in bf16", demand: "GRAPHSIEVE_REQUIRE_BF16", probe }
            }
            $(fn $name<B: GraphBackend>(device: &B::Device) { ($check)(Dtype::Bf16, device) })+
            pub fn trials() -> Vec<Trial> {
                graphsieve_kernels::on_every_backend!("bf16"; $($name(stored $(, $need)?)),+)
            }
        }
    };
}

/// Whether the device stores matrices in a type.
fn stored<B: GraphBackend>(dtype: Dtype) -> Result<(), String> {
    match B::supports_dtype(&Default::default(), support::burn_dtype(dtype)) {
        true => Ok(()),
        false => Err("the device has no such type".into()),
    }
}

in_both_types! {
    spmm: spmm::check_half::<B>;
    gspmm: messages::check_half_gspmm::<B>;
    spans(hardware): spans::check::<B>;
    gsddmm: messages::check_half_gsddmm::<B>;
    segment_reduce: messages::check_segments::<B>;
    edge_softmax: |dtype, device| attention::check_edge_softmax::<B>(&[1, 8], dtype, device);
    edge_softmax_by_source: |dtype, device| messages::check_by_source::<B>(&[1, 3], dtype, device);
    gat: attention::check_half_gat::<B>;
    attend_inputs: attention::check_half_inputs::<B>;
    attend_edges: edge_attention::check_half::<B>;
    gatv2: gatv2::check_half::<B>;
    gatv2_ages: gatv2_ages::check_half::<B>;
    dropout: dense::check_dropout::<B>;
    pieces: dense::check_pieces::<B>;
    pair_dot: |dtype, device| dense::check_pair_dot::<B>(&[31, 128], dtype, device);
    gather_rows: |dtype, device| dense::check_gather::<B>(&[33, 128], dtype, device);
    linear: |dtype, device| dense::check_half_linear::<B>([dtype; 2], device);
    linear_of_f32_weights(hardware): |dtype, device| dense::check_half_linear::<B>([dtype, Dtype::F32], device);
    combine: dense::check_half_combine::<B>;
    gradient_of_a_bias: sums::check_half_bias::<B>;
    normalise_rows: |dtype, device| dense::check_normalised::<B>(&[31, 128], dtype, device);
    row_dots: |dtype, device| dense::check_row_dots::<B>(&[(500, 128, 2), (193, 31, 5)], dtype, device);
    select_rows: |dtype, device| selection::check_selected::<B>(&[128, 5], dtype, device);
    restricted_spmm_and_attend(hardware): |dtype, device| selection::check_restrictions::<B>(&[(1, 1), (3, 3)], dtype, device);
    values_of_self_loops: self_loops::check_values::<B>;
    sums_over_several_operators(hardware): |dtype, device| passes::check_sums::<B>(turns, 33, dtype, device);
    sums_over_several_attentions(hardware): |dtype, device| sums::check_sums::<B>(turns, 34, dtype, device);
}

/// That the device has no bf16.
fn no_bf16<B: GraphBackend>() -> Requirement {
    let probe = || match stored::<B>(Dtype::Bf16) {
        Ok(()) => Err("the device has it".into()),
        Err(_) => Ok(()),
    };
    Requirement { name: "a lack of bf16", demand: "GRAPHSIEVE_REQUIRE_NO_BF16", probe }
}

fn a_missing_type_is_refused_by_name<B: GraphBackend>(device: &B::Device) {
    let x = Tensor::<B, 2>::empty([4, 3], (device, DType::BF16));
    let vectors = Tensor::<B, 2>::ones([1, 3], device);
    let refused = std::panic::catch_unwind(AssertUnwindSafe(|| row_dots(x, vectors))).expect_err("bf16 is missing");
    let message = refused.downcast_ref::<String>().expect("a message in words");
    assert!(message.starts_with("row_dots: x: expected a type that") && message.ends_with("got BF16"), "{message}");
}

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    let missing = graphsieve_kernels::on_every_backend!("types"; a_missing_type_is_refused_by_name(no_bf16));
    f16::trials().into_iter().chain(bf16::trials()).chain(missing).collect()
}
