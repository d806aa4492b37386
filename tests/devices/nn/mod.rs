//! Graph layers: against loops in f64 on every backend of the build, the laws of a layer, and what they refuse.

use graphsieve_kernels::on_every_backend;
use graphsieve_kernels::testing::harness::Trial;

mod attention;
mod laws;
mod layers;
mod oracle;
mod refusals;
mod relations;

pub fn trials() -> Vec<Trial> {
    use layers::*;
    let mut trials = on_every_backend!(
        "nn";
        gcn_is_its_definition,
        gcn_between_two_kinds_of_nodes_has_degrees_of_both_ends,
        gcn_with_weights_is_its_definition,
        sage_is_its_definition,
        gin_is_its_definition,
        gat_is_its_definition,
        gat_with_features_of_edges_is_its_definition,
        gat_drops_what_the_masks_say,
        gatv2_is_its_definition,
        appnp_is_its_definition,
        beta_wavelets_are_their_definition,
        hetero_adds_up_what_arrives,
        attention_over_relations_is_its_definition,
        hetero_weighs_relations_by_attention,
        rgcn_is_its_definition,
        rgcn_over_some_rows_and_edges_is_its_definition,
        rgcn_of_one_relation_is_sage,
        relations_in_half_precision_stay_near,
        half_precision_stays_near,
    );
    trials.extend(laws::trials());
    trials.extend(refusals::trials());
    trials
}
