//! Layers that break a law are caught by it.

use std::sync::atomic::{AtomicU32, Ordering};

use burn::tensor::backend::Backend;

use super::*;
use crate::{SpmmConfig, linear, spmm};

#[derive(Module, Debug)]
struct Toy<B: Backend> {
    weight: Param<Tensor<B, 2>>,
}

const SHAPE: LayerShape = LayerShape { in_channels: 2, dst_channels: Some(2), edge_channels: None };

fn toy() -> Toy<Checked> {
    Toy { weight: Param::from_data([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7]], &Default::default()) }
}

fn sum(toy: &Toy<Checked>, input: &LayerInput) -> Tensor<Checked, 2> {
    spmm(&input.csr, linear(input.src.clone(), toy.weight.val(), None), None, SpmmConfig::default())
}

fn layer<'a, F: Fn(&Toy<Checked>, LayerInput) -> Tensor<Checked, 2>>(
    module: &'a Toy<Checked>,
    forward: &'a F,
) -> Layer<'a, Toy<Checked>, F> {
    Layer { name: "toy", module, shape: SHAPE, forward }
}

#[test]
fn a_right_layer_passes_all_laws() {
    assert_graph_layer_laws("toy", &toy(), SHAPE, |toy, input| sum(toy, &input));
    let shape = LayerShape { edge_channels: Some(1), ..SHAPE };
    assert_graph_layer_laws("toy with weights", &toy(), shape, |toy, input| {
        let weight = input.edges.clone().map(|e| e.reshape([input.csr.num_edges()]));
        spmm(&input.csr, linear(input.src, toy.weight.val(), None), weight, SpmmConfig::default())
    });
}

#[test]
#[should_panic(expected = "toy: mixed: the same input gave another result")]
fn a_layer_with_a_memory_is_caught() {
    let calls = AtomicU32::new(0);
    layer(&toy(), &|toy: &Toy<Checked>, input: LayerInput| {
        sum(toy, &input) + calls.fetch_add(1, Ordering::Relaxed) as f32
    })
    .repeats_itself();
}

#[test]
#[should_panic(expected = "toy: mixed: renaming nodes changed the result by")]
fn a_layer_that_knows_the_ids_of_nodes_is_caught() {
    layer(&toy(), &|toy: &Toy<Checked>, input: LayerInput| {
        let ids = Tensor::<Checked, 1, burn::tensor::Int>::arange(0..input.csr.num_rows() as i64, &input.src.device());
        let rows = ids.float().reshape([input.csr.num_rows(), 1]);
        sum(toy, &input) * rows
    })
    .follows_names_of_nodes();
}

#[test]
#[should_panic(expected = "toy: mixed: another order of entries changed the result by")]
fn a_layer_that_reads_the_order_of_entries_is_caught() {
    layer(&toy(), &|toy: &Toy<Checked>, input: LayerInput| {
        let edges = input.csr.num_edges() as i64;
        let order = Tensor::<Checked, 1, burn::tensor::Int>::arange(0..edges, &input.src.device()).float();
        spmm(&input.csr, linear(input.src, toy.weight.val(), None), Some(order), SpmmConfig::default())
    })
    .ignores_the_order_of_entries();
}

#[test]
#[should_panic(expected = "has NaN")]
fn a_layer_that_divides_by_no_neighbours_is_caught() {
    layer(&toy(), &|toy: &Toy<Checked>, input: LayerInput| {
        let degrees = input.csr.degrees().reshape([input.csr.num_rows(), 1]);
        sum(toy, &input) / degrees
    })
    .is_finite_without_edges();
}

#[test]
#[should_panic(expected = "rows for 4 destinations")]
fn a_layer_with_a_row_per_source_is_caught() {
    layer(&toy(), &|toy: &Toy<Checked>, input: LayerInput| linear(input.src, toy.weight.val(), None))
        .takes_two_kinds_of_nodes();
}

#[test]
#[should_panic(expected = "toy: mixed: gradient of sources at 0: got 0")]
fn a_layer_without_gradient_of_its_input_is_caught() {
    layer(&toy(), &|toy: &Toy<Checked>, mut input: LayerInput| {
        input.src = input.src.detach();
        sum(toy, &input)
    })
    .has_right_gradients();
}

#[test]
#[should_panic(expected = "toy: mixed: gradient of parameter 0 at 0")]
fn a_layer_with_half_the_gradient_of_a_parameter_is_caught() {
    layer(&toy(), &|toy: &Toy<Checked>, input: LayerInput| {
        let rest = Toy { weight: Param::from_tensor(toy.weight.val().detach()) };
        (sum(toy, &input) + sum(&rest, &input)) * 0.5
    })
    .has_right_gradients();
}
