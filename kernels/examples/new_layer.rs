//! A layer of one's own in forty lines, and a check that it is one.
//!
//! cargo run --release -p graphsieve-kernels --no-default-features --example new_layer

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_flex::Flex;
use graphsieve_kernels::testing::layer::{LayerShape, assert_graph_layer_laws};
use graphsieve_kernels::{
    Activation, Csr, EdgeValue, GraphBackend, Message, Reduce, Strategy, Target, combine, edge_softmax, gsddmm, gspmm,
    linear,
};

/// Attention by dot products: `y_i = elu(sum_j softmax_j(<x_i Q, x_j K>) x_j V)`.
#[derive(Module, Debug)]
struct DotAttention<B: Backend> {
    query: Param<Tensor<B, 2>>,
    key: Param<Tensor<B, 2>>,
    value: Param<Tensor<B, 2>>,
    heads: usize,
}

impl<B: GraphBackend> DotAttention<B> {
    fn new(channels: usize, heads: usize, device: &B::Device) -> Self {
        let weight = |phase: usize| {
            let values = (0..channels * channels).map(|k| ((k + phase) as f32).sin() / channels as f32);
            let values = Tensor::<B, 1>::from_floats(values.collect::<Vec<f32>>().as_slice(), device);
            Param::from_tensor(values.reshape([channels, channels]))
        };
        Self { query: weight(1), key: weight(2), value: weight(3), heads }
    }

    fn forward(&self, csr: &Csr<B>, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [query, key, value] = [&self.query, &self.key, &self.value].map(|w| linear(x.clone(), w.val(), None));
        let ends = EdgeValue::dot(Target::Destination(query), Target::Source(key), self.heads);
        let attention = edge_softmax(csr, gsddmm(csr, ends, Strategy::Auto));
        let sum = gspmm(csr, Message::u_mul_e(value, attention), Reduce::Sum, Strategy::Auto);
        combine(vec![sum], None, 1.0, Activation::Elu)
    }
}

fn main() {
    let layer = DotAttention::new(6, 2, &Default::default());
    let shape = LayerShape { in_channels: 6, dst_channels: None, edge_channels: None };
    // Renamed nodes, shuffled edges, nodes without any, repeated runs, gradients of features and of all parameters.
    assert_graph_layer_laws("DotAttention", &layer, shape, |layer, input| layer.forward(&input.csr, input.src));
    println!("DotAttention keeps the laws of a graph layer");

    let device = Default::default();
    let csr = Csr::<Flex>::from_host(&[0, 2, 3, 4], &[1, 2, 0, 0], 3, &device).expect("rows of a graph");
    let layer = DotAttention::<Flex>::new(4, 1, &device);
    println!("{}", layer.forward(&csr, Tensor::ones([3, 4], &device)));
}
