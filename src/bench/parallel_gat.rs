//! The cases of a report on parallel graph attention: a layer as wide as its input on dense graphs of 2,048 nodes, and
//! with four heads on a graph of the user's.

use std::path::Path;

use burn::backend::Autodiff;
use burn::module::Param;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::{Csr, GraphBackend, MemoryBackend, backward_from};
use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

use super::clock::time;
use super::exact;
use super::inputs::{Stored, sample_rows};
use super::memory::peak;
use super::report::{GraphFacts, Row, error_bound};
use super::{BenchOptions, Note, counted_heads};
use crate::error::{Error, Result};
use crate::graph::{Adjacency, Dataset};
use crate::models::device_graph::{self, upload_features};
use crate::models::parameters::to_host;
use crate::models::precision::dtype;
use crate::nn::{GatConv, GatConvConfig};
use crate::splitmix::mix;

const NODES: usize = 2048;
/// Neighbours of every node of the regular graph beside itself.
const NEIGHBOURS: usize = 800;
/// Width of the input, and of the output of a head.
const CHANNELS: usize = 2048;
const HEADS: [usize; 2] = [1, 4];
/// Heads on the user's graph.
const GIVEN_HEADS: usize = 4;
/// Rows and channels of the result that are computed again in f64.
const CHECKED_ROWS: usize = 64;
const CHECKED_CHANNELS: usize = 8;

/// Measures the layer with its projection: on the regular and on the random graph, and on `options.data` where that is
/// given.
pub fn measure<B: GraphBackend + MemoryBackend>(
    options: &BenchOptions,
    device: &B::Device,
    note: Note,
) -> Result<(GraphFacts, Vec<Row>)> {
    let mut rows = Vec::new();
    let storage = dtype(options.precision);
    let graphs = [("regular", regular()), ("random", random(options.seed))];
    let edges = graphs[0].1.num_edges();
    for (name, adjacency) in graphs {
        let x = Stored::random([NODES, CHANNELS], storage, 1.0, mix(options.seed), device);
        for heads in HEADS {
            let name = format!("{name}, {}", counted_heads(heads));
            rows.extend(layer::<B>(&name, &adjacency, &x, (heads, CHANNELS), options, device, note)?);
        }
    }
    let mut facts = GraphFacts {
        data: "made here".into(),
        relation: None,
        rows: NODES,
        cols: NODES,
        edges,
        longest_row: NEIGHBOURS + 1,
        channels: Some(CHANNELS),
    };
    if options.data != Path::new("") {
        let dataset = Dataset::open(&options.data)?;
        let (adjacency, x) = given::<B>(&dataset, options, device)?;
        let name = format!("{}, {}", options.data.display(), counted_heads(GIVEN_HEADS));
        let width = x.tensor.dims()[1];
        rows.extend(layer::<B>(&name, &adjacency, &x, (GIVEN_HEADS, width), options, device, note)?);
        facts.data = options.data.clone();
    }
    Ok((facts, rows))
}

/// Every node with itself and the nodes that follow it.
fn regular() -> Adjacency {
    let row_ptr = (0..=NODES as u64).map(|row| row * (NEIGHBOURS as u64 + 1)).collect();
    let cols = (0..NODES).flat_map(|row| (0..=NEIGHBOURS).map(move |k| ((row + k) % NODES) as u32));
    Adjacency::from_checked(row_ptr, cols.collect(), NODES)
}

/// As many edges between random pairs, every node with itself.
fn random(seed: u64) -> Adjacency {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let pairs = index::sample(&mut rng, NODES * (NODES - 1), NODES * NEIGHBOURS);
    let mut rows: Vec<Vec<u32>> = (0..NODES as u32).map(|node| vec![node]).collect();
    for pair in pairs {
        let (row, col) = (pair / (NODES - 1), pair % (NODES - 1));
        // The node itself is left out of the count.
        rows[row].push((col + usize::from(col >= row)) as u32);
    }
    let mut row_ptr = vec![0];
    let mut col_idx = Vec::with_capacity(NODES * (NEIGHBOURS + 1));
    for mut row in rows {
        row.sort_unstable();
        col_idx.extend(row);
        row_ptr.push(col_idx.len() as u64);
    }
    Adjacency::from_checked(row_ptr, col_idx, NODES)
}

/// The first relation of a graph of one node type with every node its own neighbour, and its features.
fn given<B: GraphBackend>(
    dataset: &Dataset,
    options: &BenchOptions,
    device: &B::Device,
) -> Result<(Adjacency, Stored<B>)> {
    let (graph, path) = (&dataset.graph, &options.data);
    let relation = graph.relations().iter().find(|relation| relation.src == relation.dst);
    let (Some(relation), Some(features)) = (relation, &dataset.features) else {
        return Err(Error::Data {
            what: path.display().to_string(),
            expected: "features, and a relation of a node type with itself".into(),
            found: "none".into(),
            help: "a citation graph such as cora.npz has them".into(),
        });
    };
    let forward = &relation.forward;
    let mut row_ptr = vec![0];
    let mut col_idx = Vec::with_capacity(forward.num_edges() + forward.num_rows());
    for i in 0..forward.num_rows() {
        col_idx.extend(forward.row(i).iter().filter(|&&j| j as usize != i));
        col_idx.push(i as u32);
        row_ptr.push(col_idx.len() as u64);
    }
    let adjacency = Adjacency::from_checked(row_ptr, col_idx, forward.num_cols());
    let mut x = upload_features::<B>(graph.node_types(), features, dtype(options.precision), device)?;
    Ok((adjacency, Stored::of(x.remove(relation.src))))
}

/// One layer of `heads` heads of `channels`: forwards, forwards with everything copied to the device and the result
/// back, and both passes.
fn layer<B: GraphBackend + MemoryBackend>(
    name: &str,
    adjacency: &Adjacency,
    x: &Stored<B>,
    (heads, channels): (usize, usize),
    options: &BenchOptions,
    device: &B::Device,
    note: Note,
) -> Result<Vec<Row>> {
    let upload = || -> Result<Csr<B>> {
        device_graph::csr(adjacency, device).map_err(|problem| {
            let [what, expected, help] = ["graph", "an adjacency", "report this"].map(String::from);
            Error::Data { what, expected, found: problem.to_string(), help }
        })
    };
    let csr = upload()?;
    let config = GatConvConfig::new(x.tensor.dims()[1], channels)
        .with_heads(heads)
        .with_add_self_loops(false)
        .with_bias(false)
        .with_seed(options.seed);
    let conv: GatConv<B> = config.init(device);
    let forward = || conv.forward(&csr, x.tensor.clone(), None);
    let edges = adjacency.num_edges();
    let measure = |name: String, run: &dyn Fn() -> Result<()>| -> Result<Row> {
        note(&format!("measuring {name}"));
        let times = time::<B>(device, options.runs, run)?;
        let peak = peak::<B, ()>(device, run)?;
        Ok(Row::new(&name, times).with_edges(edges).with_peak(peak))
    };
    let error = check(&conv, forward(), adjacency, x, options.seed);
    let bound = error_bound(options.precision);
    let plain = measure(format!("{name}, forward"), &|| {
        forward();
        Ok(())
    })?;
    let (values, shape) = (x.matrix().values, x.tensor.dims());
    // Parameters lie on the host like everything else.
    let parameters = [conv.weight.val(), conv.att_src.val(), conv.att_dst.val()].map(|p| (p.dims(), to_host(p)));
    let copied = measure(format!("{name}, forward with copies"), &|| {
        let csr = upload()?;
        let put = |values: &[f32], shape: [usize; 2]| {
            Tensor::<B, 2>::from_data(TensorData::new(values.to_vec(), shape), (device, DType::F32))
        };
        let mut conv = conv.clone();
        [conv.weight, conv.att_src, conv.att_dst] =
            [0, 1, 2].map(|k| Param::from_tensor(put(&parameters[k].1, parameters[k].0)));
        to_host(conv.forward(&csr, put(values, shape).cast(dtype(options.precision)), None));
        Ok(())
    })?;
    let recorded: GatConv<Autodiff<B>> = config.init(device);
    let csr = device_graph::csr::<Autodiff<B>>(adjacency, device);
    let csr = csr.unwrap_or_else(|problem| unreachable!("uploaded before: {problem}"));
    let (tracked, g) = (x.tracked(), forward());
    let both = measure(format!("{name}, forward + backward"), &|| {
        backward_from(recorded.forward(&csr, tracked.clone(), None), g.clone());
        Ok(())
    })?;
    Ok(vec![plain.with_error(error, bound), copied, both])
}

/// The largest error of some channels of some rows.
fn check<B: GraphBackend>(
    conv: &GatConv<B>,
    got: Tensor<B, 2>,
    adjacency: &Adjacency,
    x: &Stored<B>,
    seed: u64,
) -> f64 {
    let [heads, channels] = conv.att_src.dims();
    let [weight, src, dst] = [conv.weight.val(), conv.att_src.val(), conv.att_dst.val()].map(to_host);
    let (x, width) = (x.matrix(), heads * channels);
    let column = |c: usize| -> Vec<f32> { weight.iter().skip(c).step_by(width).copied().collect() };
    let dot = |a: &[f32], b: &[f64]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * b).sum::<f64>();
    // `<a, x W>` is `<W a, x>`.
    let folded = |vectors: &[f32], head: usize| -> Vec<f64> {
        let own = head * channels..(head + 1) * channels;
        let rows = weight.chunks_exact(width);
        rows.map(|row| {
            row[own.clone()].iter().zip(&vectors[own.clone()]).map(|(w, a)| f64::from(*w) * f64::from(*a)).sum()
        })
        .collect()
    };
    let nodes = adjacency.num_rows();
    let got = to_host(got);
    let sample = sample_rows(nodes, CHECKED_ROWS, None, seed);
    let (mut read, mut want) = (Vec::new(), Vec::new());
    for head in 0..heads {
        let (a_src, a_dst) = (folded(&src, head), folded(&dst, head));
        let score: Vec<f64> = (0..nodes).map(|j| dot(x.row(j), &a_src)).collect();
        let cols = sample_rows(channels, CHECKED_CHANNELS, None, seed ^ head as u64);
        let cols: Vec<usize> = cols.into_iter().map(|c| head * channels + c as usize).collect();
        let projected: Vec<Vec<f64>> = cols
            .iter()
            .map(|&c| {
                let column: Vec<f64> = column(c).into_iter().map(f64::from).collect();
                (0..nodes).map(|j| dot(x.row(j), &column)).collect()
            })
            .collect();
        for &i in &sample {
            let i = i as usize;
            let own = dot(x.row(i), &a_dst);
            let logit = |j: u32| {
                let z = own + score[j as usize];
                if z > 0.0 { z } else { conv.negative_slope() * z }
            };
            let logits: Vec<f64> = adjacency.row(i).iter().map(|&j| logit(j)).collect();
            let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = logits.iter().map(|logit| (logit - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            for (column, &c) in projected.iter().zip(&cols) {
                let sum: f64 = adjacency.row(i).iter().zip(&weights).map(|(&j, w)| w * column[j as usize]).sum();
                want.push(if total > 0.0 { sum / total } else { 0.0 });
                read.push(got[i * width + c]);
            }
        }
    }
    exact::error(&read, &want)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graphs_are_those_of_the_report() {
        let (regular, random) = (regular(), random(1));
        for graph in [&regular, &random] {
            // Undirected edges of the report: neighbours of both ends and half a loop per node.
            assert_eq!((graph.num_rows(), graph.num_edges()), (2048, 2 * 820_224));
            for i in (0..NODES).step_by(97) {
                let row = graph.row(i);
                assert_eq!(row.iter().filter(|&&j| j as usize == i).count(), 1, "node {i} is its own neighbour once");
                let mut distinct = row.to_vec();
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!(distinct.len(), row.len(), "no edge of node {i} repeats");
            }
        }
        assert!((0..NODES).all(|i| regular.degree(i) == NEIGHBOURS + 1));
    }
}
