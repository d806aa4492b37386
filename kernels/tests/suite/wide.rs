//! Adjacencies with 64-bit positions, as those of 2^31 edges and more have: every operator that takes one, by the
//! oracle.

use burn::tensor::DType;
use graphsieve_kernels::testing::Dtype;
use graphsieve_kernels::testing::harness::{Requirement, Trial, hardware};
use graphsieve_kernels::testing::with_wide_positions;
use graphsieve_kernels::{GraphBackend, on_every_backend};

use crate::support::turns;
use crate::{attention, edge_attention, gatv2, messages, passes, selection, self_loops, spans, spmm, sums};

/// A device that computes with what positions are stored in.
fn wide_integers<B: GraphBackend>() -> Requirement {
    Requirement {
        name: "integers of 64 bits",
        demand: "GRAPHSIEVE_REQUIRE_I64",
        probe: || match B::supports_dtype(&Default::default(), DType::I64) {
            true => Ok(()),
            false => Err("the device has none, and takes no adjacency of 2^31 entries".into()),
        },
    }
}

/// Trials of bodies that make their adjacencies wide, and what they need besides.
macro_rules! wide {
    ($($name:ident $(($need:ident))?: $check:expr;)+) => {
        $(fn $name<B: GraphBackend>(device: &B::Device) { with_wide_positions(|| ($check)(device)); })+

        /// The trials of this file.
        pub fn trials() -> Vec<Trial> {
            on_every_backend!("wide"; $($name(wide_integers $(, $need)?)),+)
        }
    };
}

wide! {
    spmm: spmm::spmm_matches_the_oracle_on_every_fixture::<B>;
    spmm_with_weights(hardware): spmm::spmm_with_weights_matches_the_oracle::<B>;
    gspmm: messages::gspmm_matches_the_oracle_on_every_fixture::<B>;
    gspmm_by_rows_and_by_edges(hardware): messages::gspmm_is_the_same_by_rows_and_by_edges::<B>;
    gspmm_between_selected_nodes(hardware): messages::gspmm_takes_restricted_adjacencies::<B>;
    gsddmm: messages::gsddmm_matches_the_oracle_on_every_fixture::<B>;
    segment_reduce: |device| messages::check_segments::<B>(Dtype::F32, device);
    edge_softmax: |device| attention::check_edge_softmax::<B>(&[1, 3], Dtype::F32, device);
    edge_softmax_by_source: |device| messages::check_by_source::<B>(&[3], Dtype::F32, device);
    lists_of_edges(hardware): messages::edges_keep_an_order_of_their_own::<B>;
    symmetric_adjacencies(hardware): messages::symmetric_rows_in_any_order_have_right_gradients::<B>;
    spans(hardware): spans::check_wide::<B>;
    gat: attention::gat_matches_the_oracle_on_every_fixture::<B>;
    gat_of_wide_rows: |device| attention::check_very_wide::<B>(&[(2, 515)], device);
    attend_inputs: attention::attended_inputs_match_the_oracle::<B>;
    attend_edges: edge_attention::edges_match_the_oracle_on_every_fixture::<B>;
    attend_edges_between_selected_nodes(hardware): edge_attention::edges_match_the_oracle_between_selected_nodes::<B>;
    attend_edges_with_kept_values(hardware): |device| edge_attention::check_kept_values::<B>(&[0, 2], device);
    gatv2: gatv2::pairs_match_the_oracle_on_every_fixture::<B>;
    gatv2_between_selected_nodes(hardware): gatv2::pairs_match_the_oracle_between_selected_nodes::<B>;
    attend_and_spmm_between_selected_nodes(hardware): selection::restricted_operators_match_the_oracle::<B>;
    marks_of_sources: selection::marks_find_the_sources_of_kept_edges::<B>;
    masks: passes::masks_agree_with_the_host_in_every_pass::<B>;
    sums_over_several_operators(hardware): |device| passes::check_sums::<B>(turns, 12, Dtype::F32, device);
    sums_over_several_attentions(hardware): |device| sums::check_sums::<B>(turns, 12, Dtype::F32, device);
    self_loops: |device| self_loops::check_values::<B>(Dtype::F32, device);
}
