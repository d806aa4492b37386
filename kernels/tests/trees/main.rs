//! Operators of tree growing against plain loops on the host, on every backend of the build.

#[macro_use]
#[path = "../backends/mod.rs"]
mod backends;
mod growth;
mod histograms;
mod splits;
mod table;

/// All bodies.
mod bodies {
    pub use crate::growth::*;
    pub use crate::histograms::*;
    pub use crate::splits::*;
}

on_every_backend!(
    crate::bodies;
    histograms_equal_a_loop_over_rows,
    sparse_histograms_equal_dense_ones,
    the_larger_child_is_the_parent_less_the_smaller,
    the_most_skewed_and_largest_gradients_do_not_overflow,
    a_leaf_without_rows_has_an_empty_histogram,
    rows_part_stably_by_any_feature,
    sparse_rows_part_like_dense_ones,
    a_tree_grows_as_by_plain_loops,
    boosting_leaves_the_margins_and_gradients_of_plain_loops,
    margins_beyond_all_bounds_are_told,
    every_feature_splits_as_on_the_host_under_every_rule,
    only_the_drawn_threshold_wins,
    leaves_choose_among_all_features_as_on_the_host,
    equal_gains_go_to_the_first_feature,
    a_leaf_that_nothing_improves_is_not_split,
);
