//! Every layer against its loop, on graphs with parallel edges, loops, isolated nodes and a hub.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve::nn::*;
use graphsieve_kernels::testing::{Dtype, Fixture, Rng, assert_close, fixtures, relative_error, values, values_f16};
use graphsieve_kernels::{Csr, GraphBackend};

pub use super::attention::*;
use super::oracle::{self, Matrix, aggregate, edges, with_loops, with_weighted_loops};
pub use super::relations::*;

/// Fills every parameter with values of its own, exact in f16.
struct Fill(u64);

impl<B: Backend> ModuleMapper<B> for Fill {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        self.0 += 1;
        let values = values_f16(self.0, tensor.shape().num_elements()).into_iter().map(|v| 0.5 * v as f32).collect();
        let data = TensorData::new::<f32, _>(values, tensor.dims());
        Param::from_mapped_value(id, Tensor::from_data(data, &tensor.device()).require_grad(), mapper)
    }
}

pub fn filled<B: Backend, M: Module<B>>(module: M) -> M {
    module.map(&mut Fill(100))
}

pub fn host<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f64> {
    // A buffer of no bytes comes back from a GPU without the alignment of a float.
    if tensor.dims().contains(&0) {
        return Vec::new();
    }
    let values: Vec<f32> = tensor.into_data().convert::<f32>().into_vec().unwrap();
    values.into_iter().map(f64::from).collect()
}

pub fn matrix<B: Backend>(param: &Param<Tensor<B, 2>>) -> Matrix {
    Matrix::new(host(param.val()), param.dims()[1])
}

pub fn bias<B: Backend>(param: &Option<Param<Tensor<B, 1>>>) -> Vec<f64> {
    host(param.as_ref().unwrap().val())
}

pub fn features(seed: u64, rows: usize, width: usize) -> Matrix {
    Matrix::new(values(seed, rows * width), width)
}

pub fn upload<B: Backend>(x: &Matrix, device: &B::Device) -> Tensor<B, 2> {
    let values: Vec<f32> = x.values.iter().map(|&v| v as f32).collect();
    Tensor::from_data(TensorData::new(values, [x.rows(), x.width]), (device, DType::F32))
}

pub fn csr<B: Backend>(f: &Fixture, device: &B::Device) -> Csr<B> {
    Csr::from_host(&f.row_ptr, &f.col_idx, f.num_cols, device).unwrap()
}

#[track_caller]
pub fn check<B: Backend>(name: &str, f: &Fixture, got: Tensor<B, 2>, want: &Matrix) {
    assert_eq!(got.dims(), [want.rows(), want.width], "{name}: {}", f.name);
    let got: Vec<f32> = host(got).into_iter().map(|v| v as f32).collect();
    // Two projections around a sum over neighbours.
    assert_close(&format!("{name}: {}", f.name), &got, &want.values, Dtype::F32, 4 * (f.max_degree() + 16));
}

/// Graphs of one kind of nodes: small ones, and one with a row of 530 and parallel edges and loops by chance.
pub fn graphs() -> Vec<Fixture> {
    let rows: [&[u32]; 6] = [&[1, 4, 2], &[0, 0, 3], &[2, 5, 2], &[], &[4, 1, 4], &[0, 1, 2, 4, 5]];
    let mut hub = Rng::new(3);
    let degree = |i: usize| if i == 7 { 530 } else { i % 4 };
    let sources: Vec<Vec<u32>> = (0..90).map(|i| hub.indices(degree(i), 90)).collect();
    let small = fixtures().into_iter().filter(|f| f.num_rows == f.num_cols && (1..10).contains(&f.num_rows));
    let mixed = Fixture::from_rows("mixed", 6, &rows.map(|row| row.to_vec()));
    small.chain([mixed, Fixture::from_rows("hub", 90, &sources)]).collect()
}

/// Graphs between two kinds of nodes.
pub fn relations() -> Vec<Fixture> {
    let names =
        ["bipartite, wide", "bipartite, tall", "no edges", "duplicate edges", "hub row of 513", "heavy duplicates"];
    let found: Vec<_> = fixtures().into_iter().filter(|f| names.contains(&f.name.as_str())).collect();
    assert_eq!(found.len(), names.len());
    found
}

pub fn gcn_is_its_definition<B: GraphBackend>(device: &B::Device) {
    for f in graphs() {
        for (input, output) in [(5, 3), (3, 5)] {
            let x = features(1, f.num_cols, input);
            for loops in [true, false] {
                let conv = filled(GcnConvConfig::new(input, output).with_add_self_loops(loops).init::<B>(device));
                let edges = if loops { with_loops(&f, None) } else { edges(&f, None) };
                let want = oracle::gcn(&edges, &x).times(&matrix(&conv.weight)).plus_row(&bias(&conv.bias));
                check("gcn", &f, conv.forward(&csr(&f, device), upload(&x, device)), &want);
            }
        }
    }
}

pub fn gcn_between_two_kinds_of_nodes_has_degrees_of_both_ends<B: GraphBackend>(device: &B::Device) {
    for f in relations() {
        let (src, dst) = (features(1, f.num_cols, 4), features(2, f.num_rows, 7));
        let conv = filled(GcnConvConfig::new(4, 3).with_bias(false).init::<B>(device));
        let list = edges(&f, None);
        let degrees = [
            oracle::degrees(&list, f.num_rows, |e| e.dst), //
            oracle::degrees(&list, f.num_cols, |e| e.src),
        ];
        let want = oracle::normalised_sum(&list, &src, &degrees[0], &degrees[1]).times(&matrix(&conv.weight));
        let nodes = (upload(&src, device), upload(&dst, device));
        check("gcn between", &f, conv.forward(&csr(&f, device), nodes), &want);
    }
}

pub fn gcn_with_weights_is_its_definition<B: GraphBackend>(device: &B::Device) {
    for f in graphs() {
        let x = features(1, f.num_cols, 4);
        let weights = Matrix::new(values(2, f.num_edges()).into_iter().map(f64::abs).collect(), 1);
        let tensor = || upload::<B>(&weights, device).reshape([f.num_edges()]);
        for loops in [true, false] {
            let conv = filled(GcnConvConfig::new(4, 3).with_add_self_loops(loops).init::<B>(device));
            let edges = if loops { with_weighted_loops(&f, &weights) } else { edges(&f, Some(&weights)) };
            let want = oracle::gcn(&edges, &x).times(&matrix(&conv.weight)).plus_row(&bias(&conv.bias));
            check("weighted gcn", &f, conv.forward_weighted(&csr(&f, device), upload(&x, device), tensor()), &want);
        }
    }
}

pub fn sage_is_its_definition<B: GraphBackend>(device: &B::Device) {
    let settings = [("sum", Aggregation::Sum), ("mean", Aggregation::Mean), ("max", Aggregation::Max)];
    for f in relations() {
        let (src, dst) = (features(1, f.num_cols, 5), features(2, f.num_rows, 4));
        for (how, aggr) in settings {
            for (output, normalize) in [(3, false), (6, true)] {
                let config = SageConvConfig::new(5, output).with_dst_channels(Some(4)).with_aggr(aggr);
                let conv = filled(config.with_normalize(normalize).init::<B>(device));
                let own = dst.times(&matrix(conv.weight_root.as_ref().unwrap()));
                let mut want = aggregate(&f, &src, how).times(&matrix(&conv.weight)).plus(&own, 1.0);
                want = want.plus_row(&bias(&conv.bias));
                if normalize {
                    let length = |x: &[f64]| x.iter().map(|v| v * v).sum::<f64>().sqrt();
                    want = want.map_rows(output, |_, x| x.iter().map(|v| v / length(x)).collect());
                }
                let nodes = (upload(&src, device), upload(&dst, device));
                check(&format!("sage {how}"), &f, conv.forward(&csr(&f, device), nodes), &want);
            }
        }
    }
}

pub fn gin_is_its_definition<B: GraphBackend>(device: &B::Device) {
    for f in graphs() {
        let x = features(1, f.num_cols, 4);
        for (hidden, train_eps) in [(3, false), (6, false), (3, true), (6, true)] {
            let config = GinConvConfig::new(4, hidden, 2).with_eps(0.25).with_train_eps(train_eps);
            let conv = filled(config.init::<B>(device));
            let eps = conv.eps.as_ref().map_or(0.25, |eps| host(eps.val())[0]);
            let sum = aggregate(&f, &x, "sum").plus(&x, 1.0 + eps);
            let inner = sum.times(&matrix(&conv.weights[0])).plus_row(&host(conv.biases[0].val()));
            let relu = inner.map_rows(hidden, |_, x| x.iter().map(|v| v.max(0.0)).collect());
            let want = relu.times(&matrix(&conv.weights[1])).plus_row(&host(conv.biases[1].val()));
            check("gin", &f, conv.forward(&csr(&f, device), upload(&x, device)), &want);
        }
    }
}

pub fn appnp_is_its_definition<B: GraphBackend>(device: &B::Device) {
    for f in graphs() {
        let x = features(1, f.num_cols, 5);
        for loops in [true, false] {
            let conv = AppnpConvConfig::new(4, 0.2).with_add_self_loops(loops).init::<B>(device);
            let edges = if loops { with_loops(&f, None) } else { edges(&f, None) };
            let step = |z: Matrix, _| {
                let spread = oracle::gcn(&edges, &z);
                Matrix::new(spread.values.iter().zip(&x.values).map(|(a, b)| 0.8 * a + 0.2 * b).collect(), 5)
            };
            let want = (0..4).fold(x.clone(), step);
            check("appnp", &f, conv.forward(&csr::<B>(&f, device), upload(&x, device)), &want);
        }
    }
}

pub fn beta_wavelets_are_their_definition<B: GraphBackend>(device: &B::Device) {
    for f in graphs() {
        for (order, output) in [(0, 2), (1, 5), (2, 3), (3, 6)] {
            let x = features(1, f.num_cols, 4);
            let conv = filled(BwConvConfig::new(4, output).with_order(order).init::<B>(device));
            let weight = matrix(&conv.weight);
            let mut want = Matrix::zeros(f.num_rows, output).plus_row(&bias(&conv.bias));
            for p in 0..=order {
                let block = Matrix::new(weight.values[p * 4 * output..(p + 1) * 4 * output].to_vec(), output);
                want = want.plus(&oracle::beta_wavelet(&f, &x, p, order).times(&block), 1.0);
            }
            check(&format!("wavelets of order {order}"), &f, conv.forward(&csr(&f, device), upload(&x, device)), &want);
        }
    }
}

pub fn hetero_adds_up_what_arrives<B: GraphBackend>(device: &B::Device) {
    // Types: 0 has 9 nodes, 1 has 3, 2 none that a relation leads to.
    let into = Fixture::from_rows("0 to 1", 9, &[vec![8, 0, 4], vec![7, 3, 5, 1], vec![2]]);
    let among = Fixture::from_rows("1 to 1", 3, &[vec![0, 1], vec![], vec![0, 0, 2]]);
    let x = [features(1, 9, 4), features(2, 3, 5), features(3, 2, 6)];
    let tensors: Vec<Tensor<B, 2>> = x.iter().map(|x| upload(x, device)).collect();
    let sage = |input: usize| SageConvConfig::new(input, 3).with_dst_channels(Some(5));
    let csrs = [csr::<B>(&into, device), csr::<B>(&among, device), csr::<B>(&into, device)];
    let relations: Vec<_> =
        [(0, 0), (1, 1), (2, 0)].map(|(k, src)| TypedEdges { csr: &csrs[k], src, dst: 1 }).into_iter().collect();
    for aggr in [Aggregation::Sum, Aggregation::Mean, Aggregation::Max] {
        let configs = vec![sage(4), sage(5).with_aggr(Aggregation::Max), sage(4).with_seed(3)].into_iter();
        let config = HeteroConvConfig::new(configs.map(ConvConfig::Sage).collect()).with_aggr(aggr.into());
        let layer = filled(config.init::<B>(device));
        let got = layer.forward(&relations, &tensors, None);
        assert!(got[0].is_none() && got[2].is_none());
        let part = |conv: &Conv<B>, f: &Fixture, src: &Matrix, how: &str| {
            let Conv::Sage(conv) = conv else { unreachable!("all are") };
            let own = x[1].times(&matrix(conv.weight_root.as_ref().unwrap()));
            aggregate(f, src, how).times(&matrix(&conv.weight)).plus(&own, 1.0).plus_row(&bias(&conv.bias))
        };
        let parts = [
            part(&layer.convs[0], &into, &x[0], "mean"),
            part(&layer.convs[1], &among, &x[1], "max"),
            part(&layer.convs[2], &into, &x[0], "mean"),
        ];
        let reduce = |k: usize| {
            let of = |p: usize| parts[p].values[k];
            match aggr {
                Aggregation::Sum => of(0) + of(1) + of(2),
                Aggregation::Mean => (of(0) + of(1) + of(2)) / 3.0,
                Aggregation::Max => of(0).max(of(1)).max(of(2)),
            }
        };
        let want = Matrix::new((0..9).map(reduce).collect(), 3);
        check(&format!("hetero {aggr:?}"), &into, got[1].clone().unwrap(), &want);
    }
}

pub fn half_precision_stays_near<B: GraphBackend>(device: &B::Device) {
    for f in graphs() {
        let x = upload::<B>(&Matrix::new(values_f16(1, f.num_cols * 4), 4), device);
        let csr = csr::<B>(&f, device);
        let convs: Vec<Conv<B>> = [
            ConvConfig::Gcn(GcnConvConfig::new(4, 3)),
            ConvConfig::Sage(SageConvConfig::new(4, 5).with_normalize(true)),
            ConvConfig::Sage(SageConvConfig::new(4, 5).with_aggr(Aggregation::Max)),
            ConvConfig::Gin(GinConvConfig::new(4, 6, 3).with_train_eps(true)),
            ConvConfig::Gat(GatConvConfig::new(4, 3).with_heads(2).with_residual(true)),
            ConvConfig::Gat(GatConvConfig::new(4, 3).with_heads(2).with_concat(false)),
            ConvConfig::GatV2(GatV2ConvConfig::new(4, 3).with_heads(2)),
            ConvConfig::Appnp(AppnpConvConfig::new(3, 0.1)),
            ConvConfig::Bw(BwConvConfig::new(4, 3)),
        ]
        .map(|config| filled(config.init::<B>(device)))
        .into();
        let near = |name: &dyn std::fmt::Display, got: Tensor<B, 2>, want: Tensor<B, 2>| {
            assert_eq!(got.dtype(), DType::F16, "the result has the dtype of the features");
            let got: Vec<f32> = host(got).into_iter().map(|v| v as f32).collect();
            let error = relative_error(&got, &host(want));
            // A handful of roundings to half precision.
            assert!(error < 8.0 * Dtype::F16.unit_roundoff(), "{}: {error:e}: {name}", f.name);
        };
        let half = || x.clone().cast(DType::F16);
        for conv in convs {
            near(&conv, conv.forward(&csr, half().into(), None), conv.forward(&csr, x.clone().into(), None));
        }
        if f.num_edges() == 0 {
            continue; // Some devices do not cast nothing.
        }
        // Edges have a type of their own, or that of the features.
        let e = upload::<B>(&Matrix::new(values_f16(2, f.num_edges() * 3), 3), device);
        let conv = filled(GatConvConfig::new(4, 3).with_heads(2).with_edge_channels(Some(3)).init::<B>(device));
        let want = conv.forward_with_edges(&csr, x.clone(), e.clone(), None);
        near(&"gat with edges", conv.forward_with_edges(&csr, half(), e.clone(), None), want);
        let conv = filled(GatV2ConvConfig::new(4, 3).with_heads(2).with_edge_channels(Some(3)).init::<B>(device));
        let want = conv.forward_with_edges(&csr, x.clone(), e.clone(), None);
        near(&"gatv2 with edges", conv.forward_with_edges(&csr, half(), e.cast(DType::F16), None), want);
    }
}
