//! A part of a graph that has no node of some type: its nodes have the rows that they have in the whole graph.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use graphsieve_kernels::download;

use super::attention::{AttentionSpec, Connections, Pass, TripleStreamGat};
use super::auto_encoder::{AutoEncoderSpec, HostNormalisation, Inputs, Normalisation, TripleStreamGae};
use super::device_graph::DeviceGraph;
use super::parameters::{Export, Parameters};
use super::receptive_field::ReceptiveField;
use crate::config::{Jump, Norm, Stage1Model};
use crate::graph::{Adjacency, HeteroGraph, RelationSpec};
use crate::splitmix::mix;

const COLUMNS: usize = 5;
/// Cards and payments that have nothing to do with shops; the numbers of a graph that has others, too.
const PART: [usize; 3] = [3, 20, 0];
const WHOLE: [usize; 3] = [6, 40, 4];

/// A number in [-1, 1).
fn number(at: usize) -> f32 {
    (mix(at as u64) % 2_000) as f32 / 1_000.0 - 1.0
}

/// Payments from 20 on have cards of their own, and shops.
fn graph(counts: [usize; 3]) -> HeteroGraph {
    let [cards, payments, shops] = counts.map(|count| count as u32);
    let is_other = |at: u32| u32::from(at >= 20);
    let used = (0..payments).map(|at| (at, at % 3 + 3 * is_other(at))).collect();
    let next = (0..payments).map(|at| (at, (at * 7 + 3) % 20 + 20 * is_other(at))).collect();
    let paid_at = (20..payments).map(|at| (at, at % shops)).collect();
    let relation = |name: &str, src: usize, sources: u32, edges: Vec<(u32, u32)>| RelationSpec {
        name: name.into(),
        src,
        dst: 1,
        stream: name.into(),
        primary: true,
        adjacency: Adjacency::from_edges(payments as usize, sources as usize, &edges),
    };
    let relations = vec![
        relation("used", 0, cards, used),
        relation("paid_at", 2, shops, paid_at),
        relation("next", 1, payments, next),
    ];
    let types = ["card", "payment", "shop"].map(String::from).into_iter().zip(counts);
    HeteroGraph::with_reverse_relations(types.collect(), relations, |name| name == "next").unwrap()
}

/// Features, the same of a node in both graphs.
fn features(counts: [usize; 3]) -> Vec<Tensor<Flex, 2>> {
    let of_type = |(t, count): (usize, usize)| {
        let values: Vec<f32> = (0..count * COLUMNS).map(|at| number(1_000 * t + at)).collect();
        Tensor::from_data(TensorData::new(values, [count, COLUMNS]), &FlexDevice)
    };
    counts.into_iter().enumerate().map(of_type).collect()
}

/// The parameters with other values, biases and gates too.
fn drawn(mut export: Export) -> Export {
    for (of, tensor) in export.0.values_mut().enumerate() {
        tensor.values.iter_mut().enumerate().for_each(|(at, value)| *value = 0.8 * number(10_000 * (of + 1) + at));
    }
    export
}

fn assert_same_rows(name: &str, whole: &[Tensor<Flex, 2>], part: &[Tensor<Flex, 2>]) {
    for t in 0..2 {
        let [whole, part] = [&whole[t], &part[t]].map(|rows| download(vec![rows.clone()]));
        assert!(!part.is_empty() && part.iter().any(|value| value.abs() > 1e-2), "{name}: {part:?}");
        let off = whole.iter().zip(&part).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // Sums over a few neighbours, in f32.
        assert!(off < 1e-5, "{name}: type {t} is off by {off}");
    }
}

#[test]
fn stage1_embeds_the_nodes_of_a_part_as_the_whole_graph_does() {
    let device = FlexDevice;
    for causal in [false, true] {
        let model = Stage1Model { hidden: 8, out: 4, edge_weights: false };
        let spec = AutoEncoderSpec::of(&model, &graph(WHOLE), COLUMNS, causal);
        assert_eq!(spec.streams, AutoEncoderSpec::of(&model, &graph(PART), COLUMNS, causal).streams);
        let seeded = TripleStreamGae::<Flex>::new(&spec, &mut Parameters::from_seed(1, &device)).unwrap();
        let tensors = drawn(seeded.export(&spec)).0;
        let mut parameters = Parameters::from_tensors(&tensors, Path::new("best.bpk"), &device);
        let model = TripleStreamGae::<Flex>::new(&spec, &mut parameters).unwrap();
        let embedded = |counts: [usize; 3], chunk_rows: Option<usize>| {
            let graph = graph(counts);
            let on_device = DeviceGraph::<Flex>::upload(&graph, &device).unwrap();
            let normalisation = Normalisation::of(&graph, causal, &device);
            let inputs = Inputs::new(&on_device, &normalisation, features(counts), chunk_rows);
            model.embed(&on_device, &ReceptiveField::all(&on_device), &normalisation, &inputs)
        };
        let in_batches = |counts: [usize; 3]| {
            let graph = graph(counts);
            let blocks = [(); 2].map(|()| DeviceGraph::<Flex>::upload(&graph, &device).unwrap().whole());
            let nodes = counts.map(|count| (0..count as u32).collect::<Vec<_>>());
            let normalisation = HostNormalisation::of(Arc::new(graph), causal).of_blocks(&nodes, &blocks, &device);
            model.embed_blocks(&blocks, &normalisation, features(counts))
        };
        let whole = embedded(WHOLE, None);
        assert_same_rows("all rows", &whole, &embedded(PART, None));
        assert_same_rows("chunks of rows", &whole, &embedded(PART, Some(7)));
        assert_same_rows("batches", &whole, &in_batches(PART));
    }
}

#[test]
fn stage2_embeds_the_nodes_of_a_part_as_the_whole_graph_does() {
    let device = FlexDevice;
    let gated = Connections { residual: true, gate: true, norm: Norm::Layer, jump: Jump::Concat };
    for (heads, connections) in [(1, Connections::default()), (2, Connections::default()), (2, gated)] {
        let own = if connections == gated { vec![None, Some("payment".into()), None] } else { Vec::new() };
        let spec = AttentionSpec {
            streams: graph(WHOLE).streams().into_iter().map(String::from).collect(),
            input: COLUMNS,
            hidden: 8,
            output: 8,
            heads,
            negative_slope: 0.2,
            own,
            edges: Vec::new(),
            connections,
            labels: false,
            pieces: None,
        };
        let seeded = TripleStreamGat::<Flex>::new(&spec, &mut Parameters::from_seed(1, &device)).unwrap();
        let tensors = drawn(seeded.export(&spec)).0;
        let mut parameters = Parameters::from_tensors(&tensors, Path::new("best.bpk"), &device);
        let model = TripleStreamGat::<Flex>::new(&spec, &mut parameters).unwrap();
        let embedded = |counts: [usize; 3], chunk_rows: Option<usize>| {
            let on_device = DeviceGraph::<Flex>::upload(&graph(counts), &device).unwrap();
            let field = ReceptiveField::all(&on_device);
            model.embed(&on_device, &field, &features(counts), Pass { chunk_rows, ..Pass::default() })
        };
        for chunk_rows in [None, Some(7)] {
            let [whole, part] = [WHOLE, PART].map(|counts| embedded(counts, chunk_rows));
            assert_same_rows(&format!("{heads} heads, {chunk_rows:?}"), &whole, &part);
        }
    }
}
