//! Every operator against the f64 oracle, forward and all gradients, on every backend of the build: one body, one named
//! test per backend.

mod suite;

macro_rules! on_every_backend {
    ($($name:ident),+ $(,)?) => {
        mod cpu {
            $(#[test] fn $name() { super::suite::$name::<burn_flex::Flex>(&Default::default()); })+
        }
        #[cfg(feature = "vulkan")]
        mod vulkan {
            $(#[test] fn $name() {
                if super::suite::vulkan_or_skip(stringify!($name)) {
                    super::suite::$name::<graphsieve_kernels::Vulkan>(&Default::default());
                }
            })+
        }
        #[cfg(feature = "cuda")]
        mod cuda {
            $(#[test] fn $name() {
                if super::suite::cuda_or_skip(stringify!($name)) {
                    super::suite::$name::<graphsieve_kernels::Cuda>(&Default::default());
                }
            })+
        }
    };
}

on_every_backend!(
    spmm_matches_the_oracle_on_every_fixture,
    spmm_with_weights_matches_the_oracle,
    spmm_in_half_precision_stays_within_the_bound,
    gspmm_matches_the_oracle_for_every_message_and_reduction,
    gspmm_matches_the_oracle_on_every_fixture,
    gspmm_matches_the_oracle_for_every_width,
    gspmm_is_the_same_by_rows_and_by_edges,
    gspmm_of_sources_takes_restricted_adjacencies,
    gspmm_without_selected_sources_is_zero,
    symmetric_rows_in_any_order_have_right_gradients,
    gsddmm_matches_the_oracle_for_every_operation_and_target,
    gsddmm_matches_the_oracle_on_every_fixture,
    gsddmm_matches_the_oracle_for_every_width,
    segments_reduce_like_the_oracle,
    edge_softmax_matches_the_oracle_on_every_fixture,
    edge_softmax_by_source_is_that_of_the_reverse,
    edges_keep_an_order_of_their_own,
    gat_matches_the_oracle_on_every_fixture,
    gat_matches_the_oracle_for_every_shape_of_heads,
    gat_of_very_wide_rows_matches_the_oracle,
    gat_in_half_precision_stays_within_the_bound,
    gat_survives_huge_scores,
    gat_equals_edge_softmax_then_spmm,
    dropout_matches_the_oracle,
    pair_dot_matches_the_oracle,
    gather_matches_the_oracle,
    linear_matches_the_oracle_for_every_shape,
    masks_agree_with_the_host_in_every_pass,
    chunks_of_rows_change_nothing,
    recomputing_changes_nothing,
    combine_matches_its_definition,
    the_gradient_of_a_bias_is_a_column_sum,
    normalised_rows_match_their_definition,
    row_dots_match_the_oracle,
    selected_rows_move_between_sets,
    marks_find_the_sources_of_kept_edges,
    restricted_operators_match_the_oracle,
    attend_equals_gat,
    attended_inputs_match_the_oracle,
    gradients_of_several_operators_add_up,
    gradients_of_several_attentions_add_up,
    a_gradient_that_others_hold_is_not_changed,
    repeating_a_pass_gives_the_same_bytes,
    strided_and_transposed_inputs_are_read_correctly,
    sums_of_squares_match_the_oracle,
    cross_entropy_matches_the_oracle,
    smoothness_matches_the_oracle,
    losses_survive_huge_logits,
    adam_matches_the_oracle,
    segments_join_and_part_without_mixing,
);
