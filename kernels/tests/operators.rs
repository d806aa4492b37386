//! Every operator against the f64 oracle, forward and all gradients, on every backend of the build: one body, one named
//! test per backend.

#[macro_use]
mod backends;
mod suite;

on_every_backend!(
    crate::suite;
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

/// Burn frees what no tensor refers to in the graphs of *all* threads after every backward pass: an operator that lets go of
/// its inputs before it is recorded loses their gradients now and then.
#[test]
fn gradients_survive_backward_passes_of_other_threads() {
    use burn::backend::Autodiff;
    use burn::tensor::Tensor;
    use burn_flex::Flex;
    use graphsieve_kernels::{Activation, combine};
    use std::sync::atomic::{AtomicBool, Ordering};
    type Ad = Autodiff<Flex>;
    let device = Default::default();
    let done = AtomicBool::new(false);
    let other = || {
        while !done.load(Ordering::Relaxed) {
            let x = Tensor::<Ad, 1>::from_data([1.0, 2.0], &device).require_grad();
            (x.clone() * x).sum().backward();
        }
    };
    let leaf = |values: [[f32; 2]; 2]| Tensor::<Ad, 2>::from_data(values, &device).require_grad();
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(other)));
        let lost = (0..2000).filter(|_| {
            let leaves: Vec<_> = (0..6).map(|_| leaf([[1.0, 2.0], [3.0, 4.0]])).collect();
            let bias = Tensor::<Ad, 1>::from_data([1.0, 1.0], &device).require_grad();
            let layer = |x: Tensor<Ad, 2>, y: &Tensor<Ad, 2>| {
                combine(vec![x, y.clone() + 1.0], Some(bias.clone()), 1.0, Activation::Relu)
            };
            // One graph after the other joins those before.
            let first = leaves[0].clone();
            let out = leaves[1..].iter().fold(first, layer);
            let grads = out.sum().backward();
            // The bias counts once per layer.
            let sum = bias.grad(&grads).map(|g| g.into_data().into_vec::<f32>().unwrap());
            sum != Some(vec![10.0; 2]) || leaves.iter().any(|leaf| leaf.grad(&grads).is_none())
        });
        let lost = lost.count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(lost, 0, "passes of 2000 that lost a gradient");
    });
}
