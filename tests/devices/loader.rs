//! Sampled mini-batches: the right rows in the right slots on every backend, and steps that are those of the whole
//! graph where every neighbour is taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor};
use burn_flex::Flex;
use graphsieve::config::{Draw, Jump, LoaderMode, Norm, OwnTransform, Stage2Config, Stage2Model};
use graphsieve::data::synth::{self, Preset, SynthConfig};
use graphsieve::graph::{
    Adjacency, Ages, Dataset, EdgeMatrix, Features, HeteroGraph, Relation, RelationSpec, Rows, Spill,
};
use graphsieve::infer::{
    attention::{attention_scores, edge_inputs, own_types},
    layerwise,
};
use graphsieve::loader::{Batch, BatchStats, Deal, DropRule, FeatureStore, Hot, Job, Loader, LoaderOptions, Placement};
use graphsieve::models::attention::{AttentionSpec, Connections};
use graphsieve::models::device_graph::upload_features;
use graphsieve::models::parameters::{Parameters, to_host};
use graphsieve::models::{DeviceGraph, TripleStreamGat};
use graphsieve::run::splits::split_of;
use graphsieve::sampler::{EdgePlace, Fanout, NeighbourSampler, SamplerConfig, weights_of};
use graphsieve::train::runner::Runner;
use graphsieve::train::task::Task;
use graphsieve::train::tasks::attention::Attention;
use graphsieve_kernels::on_every_backend;
use graphsieve_kernels::testing::harness::{Requirement, Trial};
use graphsieve_kernels::{
    Age, COLLECTIVE_DEADLINE, Communicator, DeviceSampler, DropEdge, GraphBackend, Hosts, Message, NodeDraw,
    PinnedRows, Reduce, RowBuffer, RowIds, SampleBackend, SampleRelation, SampleRows, SampleWeights, Strategy, gspmm,
};

use crate::gradients::{assert_same, gradients};
use crate::valued::Carried;

pub fn trials() -> Vec<Trial> {
    use bodies::*;
    let mut trials = on_every_backend!(
        "loader";
        every_slot_holds_the_row_of_its_node_after_every_batch,
        rows_are_put_and_moved_in_place_and_what_was_handed_out_stays,
        one_batch_of_all_neighbours_has_the_loss_and_gradients_of_the_whole_graph,
        layer_by_layer_inference_is_that_of_the_whole_graph,
        a_device_draws_what_the_host_draws,
        page_locked_memory_is_there_or_it_says_why_not,
        rows_are_read_from_page_locked_memory(page_locked),
        a_loader_has_the_same_batches_wherever_they_are_made,
        batches_that_are_kept_do_not_change,
    );
    trials.extend(on_cpu!(
        "loader";
        an_error_of_any_thread_is_the_last_item_and_names_the_batch,
        a_loader_that_nobody_reads_ends,
        caches_of_no_row_and_of_one_row_work,
        settings_that_cannot_work_are_refused,
        a_layer_of_the_library_runs_on_a_batch,
    ));
    trials
}

pub fn marketplace(scale: f64) -> Dataset {
    synth::generate(&SynthConfig::preset(Preset::Quickstart).scaled(scale), &|_, _, _| ()).unwrap()
}

pub fn sampler(graph: &Arc<HeteroGraph>, fanouts: &[Fanout], dependency: Option<u32>) -> NeighbourSampler {
    let config = SamplerConfig::new(fanouts, graph.relations().len());
    NeighbourSampler::new(graph.clone(), SamplerConfig { dependency, ..config }).unwrap()
}

/// Batches that grow, shrink, repeat themselves, have nothing in common and are empty.
fn trace(graph: &HeteroGraph) -> Vec<Job> {
    let counts: Vec<u32> = graph.node_types().iter().map(|t| t.count as u32).collect();
    let sizes = [3u32, 40, 41, 2, 0, 60, 60, 1, 25, 25, 0, 0, 7, 80, 4, 4];
    let seeds = |(number, &size): (usize, &u32)| {
        let of_type = |&count: &u32| -> Vec<u32> {
            let start = if number % 3 == 0 { 0 } else { number as u32 * 37 };
            (0..size.min(count)).map(|k| (start + k) % count).collect()
        };
        Job { number: number as u64 / 2, seeds: counts.iter().map(of_type).collect(), payload: () }
    };
    sizes.iter().enumerate().map(seeds).collect()
}

fn bits(values: Vec<f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

/// Payments of some cards at some shops, each with all earlier ones of its card and of its shop.
fn histories() -> HeteroGraph {
    let counts = [12usize, 5, 400];
    let of = |payment: usize, entity: usize| (payment * 31 + payment * payment / 7) % counts[entity];
    let relation = |name: &str, [src, dst]: [usize; 2], adjacency| RelationSpec::new(name, src, dst, adjacency);
    let mut relations = Vec::new();
    for entity in [0, 1] {
        let named: Vec<(u32, u32)> = (0..counts[2]).map(|at| (at as u32, of(at, entity) as u32)).collect();
        relations.push(relation(
            &format!("of{entity}"),
            [entity, 2],
            Adjacency::from_edges(400, counts[entity], &named),
        ));
        let mut order: Vec<u32> = (0..400).collect();
        order.sort_by_key(|&at| of(at as usize, entity));
        let place = |wanted: (usize, usize)| {
            order.partition_point(|&at| (of(at as usize, entity), at as usize) < wanted) as u64
        };
        let (start, end) = (0..400).map(|at| (place((of(at, entity), 0)), place((of(at, entity), at)))).unzip();
        let earlier = Adjacency::from_spans(start, end, order, 400).unwrap();
        relations.push(relation(&format!("earlier_of{entity}"), [2, 2], earlier));
    }
    let types = ["card", "shop", "payment"].iter().zip(counts).map(|(name, count)| ((*name).into(), count)).collect();
    HeteroGraph::new(types, relations).unwrap()
}

pub mod bodies {
    use super::*;

    /// What is told apart in a batch.
    pub type Facts = Vec<BTreeMap<u32, Vec<f32>>>;

    pub fn every_slot_holds_the_row_of_its_node_after_every_batch<B: GraphBackend>(device: &B::Device) {
        let data = marketplace(0.2);
        let graph = Arc::new(data.graph.clone());
        let features = data.features.unwrap();
        let wide =
            Features::from_f32((0..graph.num_nodes() * 33).map(|k| (k % 9973) as f32).collect(), graph.num_nodes(), 33);
        for features in [features, wide] {
            let store = FeatureStore::<B>::new(features, &graph, device).unwrap();
            let degree = Hot::Degree(0.1).nodes(&graph, &sampler(&graph, &[Fanout::Most(2)], None), []).unwrap();
            for (window, hot) in [(true, Vec::new()), (true, degree.clone()), (false, degree), (false, Vec::new())] {
                let of = sampler(&graph, &[Fanout::Most(3), Fanout::Most(2)], None);
                let options = LoaderOptions { window, hot: hot.clone(), prefetch: 1, ..LoaderOptions::default() };
                let mut loader = Loader::new(trace(&graph), of, store.clone(), options).unwrap();
                let mut batches = 0;
                for batch in loader.by_ref() {
                    let Batch { x, nodes, blocks, stats, .. } = batch.unwrap();
                    for (t, (x, nodes)) in x.into_iter().zip(&nodes.to_host()).enumerate() {
                        assert_eq!(x.dims(), [nodes.len(), store.width()]);
                        let offset = graph.node_types()[t].offset as u32;
                        let globals: Vec<u32> = nodes.iter().map(|node| offset + node).collect();
                        if !globals.is_empty() {
                            assert_eq!(bits(to_host(x)), bits(to_host(&store & &globals)), "type {t}");
                        }
                        assert_eq!(blocks[0].rows_before(t), nodes.len());
                    }
                    assert_eq!(stats.rows, stats.shared + stats.hot + stats.fetched);
                    assert!(window || stats.shared == 0);
                    assert!(!hot.is_empty() || stats.hot == 0);
                    batches += 1;
                }
                assert_eq!(batches, 16);
                let stats = loader.stats();
                assert!(stats.fetched > 0 && (!window || stats.shared > 0) && (hot.is_empty() || stats.hot > 0));
            }
        }
    }

    pub fn rows_are_put_and_moved_in_place_and_what_was_handed_out_stays<B: GraphBackend>(device: &B::Device) {
        for width in [1usize, 3, 32, 33, 128] {
            let row = |value: f32| vec![value; width];
            let matrix = |values: &[f32]| {
                let data: Vec<f32> = values.iter().flat_map(|&v| row(v)).collect();
                Tensor::<B, 2>::from_data(burn::tensor::TensorData::new(data, [values.len(), width]), device)
            };
            let first_column = |buffer: &RowBuffer<B>, rows: usize| -> Vec<f32> {
                to_host(buffer.rows(rows)).chunks(width).map(|row| row[width - 1]).collect()
            };
            let mut buffer = RowBuffer::<B>::new([4, width], DType::F32, device);
            buffer.put(matrix(&[1.0, 2.0, 3.0, 4.0]), None, &[3, 2, 1, 0]);
            assert_eq!(first_column(&buffer, 4), [4.0, 3.0, 2.0, 1.0]);
            buffer.put(matrix(&[7.0, 8.0, 9.0]), Some(&[2, 0]), &[0, 2]);
            let held = buffer.rows(3);
            assert_eq!(first_column(&buffer, 4), [9.0, 3.0, 7.0, 1.0]);
            buffer.shift(&[(3, 1), (2, 0)]);
            assert_eq!(first_column(&buffer, 2), [7.0, 1.0]);
            let held: Vec<f32> = to_host(held).chunks(width).map(|row| row[0]).collect();
            assert_eq!(held, [9.0, 3.0, 7.0], "a matrix that was handed out does not change");
            buffer.resize(9, 4);
            buffer.put(matrix(&[5.0]), None, &[8]);
            assert_eq!(first_column(&buffer, 4)[..2], [7.0, 1.0]);
            buffer.resize(1, 1);
            assert_eq!((buffer.capacity(), first_column(&buffer, 1)), (1, vec![7.0]));
            // Nothing to do, and nothing to hold.
            buffer.put(matrix(&[]), None, &[]);
            buffer.shift(&[]);
            assert_eq!(buffer.rows(0).dims(), [0, width]);
        }
    }

    pub fn one_batch_of_all_neighbours_has_the_loss_and_gradients_of_the_whole_graph<B: GraphBackend>(
        device: &B::Device,
    ) {
        let data = marketplace(0.2);
        let features = data.features.as_ref().unwrap();
        for (heads, carried, connections) in cases::<B>(3) {
            let host = &carried.on(&data.graph);
            let spec = AttentionSpec { connections, ..spec(host, features.dim(), heads, carried) };
            let model = TripleStreamGat::<Autodiff<B>>::new(&spec, &mut Parameters::from_seed(4, device)).unwrap();
            let mut config = Stage2Config::new("unused");
            config.train.epochs = 2;
            config.loss.samples_per_relation = 20;
            config.loader.mode = LoaderMode::Sampled;
            config.loader.fanouts = vec![0, 0];
            config.loader.batch_size = 1 << 30;
            let Connections { residual, gate, norm, jump } = connections;
            config.model = Stage2Model { residual, gate, norm, jump, ..config.model };
            let labels = &data.labels.as_ref().unwrap().entries;
            let split = split_of(&data, labels, &config.split, config.seed).unwrap();
            let some = &split.train[..30];
            let graph = DeviceGraph::upload(host, device).unwrap();
            let x = upload_features(host.node_types(), features, DType::F32, device).unwrap();
            let whole = Attention::<B>::on_device(&config, host, graph, x, some, device);
            let mut full = whole.runner(config.seed, 1).unwrap();
            let store = FeatureStore::new(features.clone(), host, device).unwrap();
            let mut stores = vec![(store.clone(), Placement::Host)];
            if B::SAMPLES {
                stores.push((store.resident(), Placement::Device));
            }
            let parts = stores.into_iter().map(|(store, placement)| {
                let parts = Attention::<B>::on_host(&config, host, features.clone(), store, some, device);
                let sampled = parts.runner(config.seed, 1).unwrap();
                let Runner::Sampled(batches) = &sampled else { panic!("mini-batches were asked for") };
                assert_eq!(batches.placement.no_kernel.is_none(), B::SAMPLES);
                assert_eq!(batches.placement.decide(), placement);
                assert!(sampled.note().unwrap().starts_with("neighbours: sampled by the"));
                (parts, sampled)
            });
            let mut parts: Vec<_> = parts.collect();
            for epoch in 1..=2 {
                let all = full.next(&whole, &model, None).unwrap().losses.loss;
                let (loss, want) = (to_host(all.clone())[0], gradients::<B>(&model, all));
                for (at, (parts, sampled)) in parts.iter_mut().enumerate() {
                    let step = sampled.next(parts, &model, None).unwrap();
                    assert!(step.last && step.share == 1.0);
                    let got = to_host(step.losses.loss.clone())[0];
                    let name = format!("{heads} heads, {carried:?}, {connections:?}, place {at}, epoch {epoch}");
                    assert!((loss - got).abs() <= 4e-6 * loss.abs(), "{name}: {got} for {loss}");
                    assert_same(&name, &gradients::<B>(&model, step.losses.loss), &want, 1e-6);
                }
            }
        }
    }

    pub fn layer_by_layer_inference_is_that_of_the_whole_graph<B: GraphBackend>(device: &B::Device) {
        let data = marketplace(0.3);
        let features = data.features.as_ref().unwrap();
        for (heads, carried, connections) in cases::<B>(2) {
            let host = carried.on(&data.graph);
            let spec = AttentionSpec { connections, ..spec(&host, features.dim(), heads, carried) };
            let model = TripleStreamGat::<B>::new(&spec, &mut Parameters::from_seed(5, device)).unwrap();
            let graph = DeviceGraph::<B>::upload(&host, device).unwrap();
            let f32 = DType::F32;
            let x: Vec<Tensor<B, 2>> = upload_features(host.node_types(), features, f32, device).unwrap();
            let want = attention_scores(&model, &graph, &x, None);
            let (replicas, host) = (vec![(model.clone(), device.clone()); 2], Arc::new(host));
            let [got, in_files] = [None, Some(1)].map(|most| {
                let spill = Spill::new(most, std::env::temp_dir());
                layerwise::scores(&replicas, &host, features, f32, None, &spill).unwrap()
            });
            assert!(got.scores == in_files.scores && in_files.embeddings.bytes_in_memory() == 0);
            assert!(got.embeddings.as_f32() == in_files.embeddings.as_f32());
            assert!(
                got.scores.iter().zip(&want.scores).all(|(a, b)| (a - b).abs() < 1e-6),
                "{heads} heads, {connections:?}"
            );
            let embeddings = want.embedding_matrix();
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
            assert!(got.embeddings.as_f32().iter().zip(&embeddings).all(close), "{heads} heads");
        }
    }

    pub fn a_device_draws_what_the_host_draws<B: GraphBackend + SampleBackend>(device: &B::Device) {
        draws_alike::<B>(marketplace(0.4).graph, Draw::Uniform, device);
        for draw in [Draw::Uniform, Draw::Latest] {
            draws_alike::<B>(histories(), draw, device);
        }
    }

    fn draws_alike<B: GraphBackend + SampleBackend>(graph: HeteroGraph, rule: Draw, device: &B::Device) {
        let graph = Arc::new(graph);
        let counts: Vec<usize> = graph.node_types().iter().map(|t| t.count).collect();
        // Some relations have weights, some of which are 0.
        let weights = |(at, of): (usize, &Relation)| -> Option<Arc<[f32]>> {
            let weight = |entry: usize| (entry % 7) as f32 / 3.0;
            (at % 2 == 0 && !of.forward.is_spans()).then(|| (0..of.forward.num_entries()).map(weight).collect())
        };
        let weights: Vec<_> = graph.relations().iter().enumerate().map(weights).collect();
        for pinned in [false, true] {
            let rows: Vec<Rows<'_>> = graph.relations().iter().map(|of| of.forward.rows()).collect();
            fn relation<'a>((of, rows): (&'a Relation, &'a Rows<'_>)) -> SampleRelation<'a> {
                let rows = match rows {
                    Rows::Lists { row_ptr } => SampleRows::Lists(row_ptr),
                    Rows::Spans { start, end } => SampleRows::Spans { start, end },
                };
                SampleRelation::new(of.src, of.dst, rows, of.forward.col_idx())
            }
            let relations: Vec<SampleRelation<'_>> = graph.relations().iter().zip(&rows).map(relation).collect();
            let weighted = relations.iter().zip(&weights).map(|(of, weights)| {
                let weights = weights.as_deref().map(|weights| SampleWeights { weights, replace: true });
                SampleRelation { weights, ..*of }
            });
            let weighted: Vec<SampleRelation<'_>> = weighted.collect();
            let made = |relations| DeviceSampler::<B>::new(relations, &counts, pinned, device);
            let mut samplers = match made(&relations) {
                Ok(sampler) => vec![sampler],
                // Only CUDA reads host memory, and the processor samples without any kernel.
                Err(reason) if pinned || !B::SAMPLES => {
                    eprintln!("not sampled there, page-locked {pinned}: {reason}");
                    continue;
                }
                Err(reason) => panic!("{reason}"),
            };
            match made(&weighted) {
                Ok(sampler) => samplers.push(sampler),
                Err(reason) => assert!(!B::has_doubles(device) && reason.contains("double precision"), "{reason}"),
            }
            let plain = |fanouts: Vec<u32>, replace: bool| (fanouts, replace, false, None);
            let rules = [
                plain(vec![3, 2], false),
                plain(vec![15, 10, 5], false),
                plain(vec![64, 1], false),
                plain(vec![100, 5], false),
                plain(vec![0, 4], false),
                plain(vec![4, 0], true),
                plain(vec![20, 3], true),
                plain(vec![90, 3], true),
                (vec![3, 2], false, false, Some(3)),
                (vec![3, 2], false, true, None),
                (vec![0, 70], false, true, None),
                (vec![5, 4], true, true, None),
                (vec![3, 70], false, true, Some(2)),
            ];
            for (fanouts, replace, by_weight, dependency) in rules {
                let Some(sampler) = samplers.get_mut(usize::from(by_weight)) else { continue };
                let fanout = |&most: &u32| if most == 0 { Fanout::All } else { Fanout::Most(most) };
                let per_layer: Vec<Fanout> = fanouts.iter().map(fanout).collect();
                let config = SamplerConfig::new(&per_layer, graph.relations().len());
                let weights = if by_weight { weights.clone() } else { Vec::new() };
                let config = SamplerConfig { draw: rule, replace, weights, dependency, seed: 11, ..config };
                let host = NeighbourSampler::new(graph.clone(), config).unwrap();
                let mut scratch = host.scratch();
                // The same sampler again and again: it forgets every batch.
                for (number, job) in trace(&graph).into_iter().enumerate().take(8) {
                    // Every other batch leaves edges out.
                    let rate = if number % 2 == 0 { 0.0 } else { 0.6 };
                    let drop_of = |layer: usize, relation: usize| {
                        let drop = DropEdge::new(rate, 5, number as u32, layer as u32, relation as u32)?;
                        Some(drop.with_bases(relation as u32 * 100, 7))
                    };
                    let kept = |place: EdgePlace| {
                        let drop = drop_of(place.layer, place.relation)?;
                        Some(move |row: u32, col: u32| drop.keeps(row, col))
                    };
                    let want = host.sample_kept(&mut scratch, number as u64, &job.seeds, kept).unwrap();
                    let draw = |layer: usize, relation: usize| NodeDraw {
                        fanout: (fanouts[layer] > 0).then_some(fanouts[layer]),
                        replace,
                        latest: host.config().takes_last(&graph.relations()[relation]),
                        by_source: dependency.is_some(),
                        key: host.key(number as u64, layer, relation, graph.relations()[relation].src),
                        drop_edge: drop_of(layer, relation),
                    };
                    let got = sampler.sample(&job.seeds, fanouts.len(), draw, |_| false);
                    let how = format!("weights {by_weight}, kappa {dependency:?}, replace {replace}");
                    let name = format!("{fanouts:?}, {rule:?}, {how}, pinned {pinned}, batch {number}");
                    assert_eq!(got.counts, want.counts, "{name}");
                    assert_eq!(got.nodes_to_host(), want.nodes, "{name}");
                    assert_eq!(got.num_edges(), want.num_edges(), "{name}");
                    let blocks = got.blocks_to_host();
                    for (got, want) in blocks.iter().flatten().zip(want.blocks.iter().flatten()) {
                        let edges: Vec<u64> = got.edges.iter().copied().map(u64::from).collect();
                        assert_eq!(
                            (&got.row_ptr, &got.cols, edges),
                            (&want.row_ptr, &want.cols, want.edges.clone()),
                            "{name}"
                        );
                    }
                }
            }
        }
    }

    /// What a batch says of its nodes, whatever the order of its rows: features, edges of every layer in both
    /// directions with their values, and seeds.
    pub fn facts<B: GraphBackend>(graph: &HeteroGraph, batch: Batch<B>) -> Facts {
        let device = batch.x[0].device();
        let column = |nodes: &[u32]| {
            let values: Vec<f32> = nodes.iter().map(|&node| node as f32).collect();
            Tensor::<B, 2>::from_data(burn::tensor::TensorData::new(values, [nodes.len(), 1]), &device)
        };
        let host = |x: Tensor<B, 2>| if x.dims()[0] == 0 { Vec::new() } else { to_host(x) };
        let nodes = batch.nodes.to_host();
        let mut facts = Facts::new();
        for (nodes, x) in nodes.iter().zip(batch.x) {
            let width = x.dims()[1];
            facts.push(nodes.iter().copied().zip(host(x).chunks(width.max(1)).map(<[f32]>::to_vec)).collect());
        }
        let mut ids: Vec<Tensor<B, 2>> = nodes.iter().map(|nodes| column(nodes)).collect();
        for block in batch.blocks {
            let after: Vec<Tensor<B, 2>> =
                block.kept.iter().zip(&ids).map(|(kept, ids)| kept.select(ids.clone())).collect();
            for (index, relation) in graph.relations().iter().enumerate() {
                let Some(csr) = block.csr(index) else {
                    facts.push(BTreeMap::new());
                    continue;
                };
                for (csr, from, to) in [
                    (csr.clone(), &ids[relation.src], &after[relation.dst]),
                    (csr.reverse(), &after[relation.dst], &ids[relation.src]),
                ] {
                    let of = |reduce| host(gspmm(&csr, Message::CopyU(from.clone()), reduce, Strategy::Auto));
                    let (sum, max, degree) = (of(Reduce::Sum), of(Reduce::Max), to_host(csr.degrees()));
                    let row = |(k, node): (usize, f32)| (node as u32, vec![sum[k], max[k], degree[k]]);
                    facts.push(host(to.clone()).into_iter().enumerate().map(row).collect());
                }
                let edges = block.edges.iter().find(|edges| edges.relation == index).unwrap();
                assert_eq!(edges.values.is_some(), relation.values.is_some());
                let ages = match edges.age.clone() {
                    Some(Age::Edges(ages)) => {
                        let edges = ages.dims()[0];
                        Some(ages.reshape([edges, 1]) / 100.0)
                    }
                    _ => None,
                };
                assert_eq!(ages.is_some(), relation.ages_of_edges().is_some());
                let values = edges.values.as_ref().map(|values| values.tensor().clone());
                for values in [values, ages].into_iter().flatten() {
                    let width = values.dims()[1];
                    // Which edge has which value. Of whole numbers the sum is exact in any order.
                    let values = ((values + 1.0) * 50.0).round();
                    let message = Message::u_mul_e(ids[relation.src].clone().repeat_dim(1, width), values);
                    let sum = host(gspmm(csr, message, Reduce::Sum, Strategy::Auto));
                    let rows = host(after[relation.dst].clone()).into_iter().zip(sum.chunks(width));
                    facts.push(rows.map(|(node, sum)| (node as u32, sum.to_vec())).collect());
                }
            }
            ids = after;
        }
        for (ids, rows) in ids.into_iter().zip(&batch.seed_rows) {
            let ids = host(ids);
            facts.push(rows.iter().zip(0u32..).map(|(&row, seed)| (seed, vec![ids[row as usize]])).collect());
        }
        facts
    }

    pub fn a_loader_has_the_same_batches_wherever_they_are_made<B: GraphBackend>(device: &B::Device) {
        let data = marketplace(0.2);
        let mut graph = Carried::ValuesAndAges.on(&data.graph);
        // Some edges have both, and weights, by which they are drawn where the device can.
        let edges = graph.relations().iter().find(|of| of.name == "epu").unwrap().forward.num_edges();
        let column = |of: fn(usize) -> f32| Arc::new(EdgeMatrix::new((0..edges).map(of).collect(), 1));
        graph.set_ages("epu", Ages::Edges(column(|entry| (entry * 31 % 89) as f32)));
        graph.set_edge_weights("epu", column(|entry| (entry % 4) as f32));
        let draw = if B::SAMPLES && B::has_doubles(device) { Draw::Weighted } else { Draw::Uniform };
        let graph = Arc::new(graph);
        let weights = if draw == Draw::Weighted { weights_of(&graph) } else { Vec::new() };
        let store = FeatureStore::<B>::new(data.features.unwrap(), &graph, device).unwrap();
        let hot = Hot::Degree(0.1).nodes(&graph, &sampler(&graph, &[Fanout::Most(2)], None), []).unwrap();
        let mut stores = vec![store.clone()];
        if B::SAMPLES {
            stores.push(store.clone().resident());
        }
        match store.clone().pin() {
            (store, None) => stores.push(store),
            (_, Some(reason)) => eprintln!("without page-locked memory: {reason}"),
        }
        // One rank asks itself.
        let mut ranks = Communicator::<B::Plain>::threads(1, COLLECTIVE_DEADLINE, &Default::default());
        let rank = ranks.pop();
        if B::SAMPLES {
            stores.push(store.clone().divided(Deal::within_hosts(&Hosts::one(1), 0)));
        }
        for store in stores {
            let load = |placement: Placement, window: bool, first_reverse: bool| {
                let config = SamplerConfig::new(&[Fanout::Most(4), Fanout::All], graph.relations().len());
                let config = SamplerConfig { draw, weights: weights.clone(), ..config };
                let of = NeighbourSampler::new(graph.clone(), config);
                let of = of.unwrap();
                let rule = |number: u64, place: EdgePlace| {
                    DropEdge::new(0.4, 3, number as u32, place.layer as u32, place.relation as u32)
                };
                let drop_edge = Some(Arc::new(rule) as DropRule);
                let hot = hot.clone();
                let options =
                    LoaderOptions { placement, drop_edge, window, hot, first_reverse, ..LoaderOptions::default() };
                Loader::new(trace(&graph), of, store.clone(), options).map_err(|error| error.to_string())
            };
            for (placement, window, first_reverse) in [
                (Placement::Device, true, true),
                (Placement::Device, false, false),
                (Placement::HostZeroCopy, true, true),
            ] {
                let mut on_device = match load(placement, window, first_reverse) {
                    Ok(loader) => loader,
                    Err(error) => {
                        let can = B::SAMPLES && store.source().is_some() && placement == Placement::Device;
                        assert!(!can && error.contains("help: let the processor sample"), "{error}");
                        eprintln!("refused, as it has to be: {error}");
                        continue;
                    }
                };
                let mut on_host = load(Placement::Host, window, true).unwrap();
                let mut batches = 0;
                while let (Some(got), Some(want)) = (on_device.next_of(rank.as_ref()), on_host.next_of(rank.as_ref())) {
                    let (got, want) = (got.unwrap(), want.unwrap());
                    let name = format!("{placement:?}, window {window}, batch {}", got.number);
                    let counts = |batch: &Batch<B>| (batch.number, batch.stats.rows, batch.stats.edges);
                    assert_eq!(counts(&got), counts(&want), "{name}");
                    if !store.is_resident() && !store.is_divided() {
                        let moved = |batch: &Batch<B>| {
                            let BatchStats { shared, hot, fetched, bytes, .. } = batch.stats;
                            (shared, hot, fetched, bytes)
                        };
                        assert_eq!(moved(&got), moved(&want), "{name}");
                    }
                    assert_eq!(facts(&graph, got), facts(&graph, want), "{name}");
                    batches += 1;
                }
                assert_eq!(batches, 16);
                assert!(on_device.stats().bytes > 0 || store.is_resident() || store.is_divided());
            }
        }
    }

    pub fn batches_that_are_kept_do_not_change<B: GraphBackend>(device: &B::Device) {
        let data = marketplace(0.3);
        let graph = Arc::new(data.graph.clone());
        let store = FeatureStore::<B>::new(data.features.unwrap(), &graph, device).unwrap();
        let store = if B::SAMPLES { store.resident() } else { store };
        let placement = if B::SAMPLES { Placement::Device } else { Placement::Host };
        let load = || {
            let jobs = (0..24u64).map(|number| Job {
                number,
                seeds: vec![(0..30).map(|k| k * 3 + number as u32).collect(), vec![], vec![]],
                payload: (),
            });
            let of = sampler(&graph, &[Fanout::Most(5), Fanout::Most(4)], None);
            let options = LoaderOptions { placement, ..LoaderOptions::default() };
            Loader::new(jobs, of, store.clone(), options).unwrap().map(Result::unwrap)
        };
        // Memory of batches that were dropped is taken again while those that were kept are still there.
        let kept: Vec<Batch<B>> = load().enumerate().filter(|(at, _)| at % 3 != 1).map(|(_, batch)| batch).collect();
        let read: Vec<_> = load().map(|batch| (batch.number, facts(&graph, batch))).collect();
        assert!(kept.len() == 16 && read.len() == 24);
        for batch in kept {
            let number = batch.number;
            assert_eq!(read[number as usize], (number, facts(&graph, batch)));
        }
    }

    /// Host memory that the device reads.
    pub fn page_locked<B: GraphBackend>() -> Requirement {
        Requirement {
            name: "page-locked memory",
            demand: "GRAPHSIEVE_REQUIRE_PAGE_LOCKED",
            probe: || PinnedRows::<B>::new([1, 1], DType::F32, &Default::default(), |bytes| bytes.fill(0)).map(drop),
        }
    }

    pub fn page_locked_memory_is_there_or_it_says_why_not<B: GraphBackend>(device: &B::Device) {
        let graph = HeteroGraph::new(vec![("node".into(), 2)], vec![]).unwrap();
        let features = Features::from_f32(vec![0.0; 6], 2, 3);
        match FeatureStore::<B>::new(features, &graph, device).unwrap().pin() {
            (store, None) => assert!(store.pinned().is_some()),
            (store, Some(reason)) => assert!(store.source().is_none() && !reason.is_empty()),
        }
    }

    pub fn rows_are_read_from_page_locked_memory<B: GraphBackend>(device: &B::Device) {
        for (dtype, widths) in [(DType::F32, [1usize, 3, 32, 33, 128]), (DType::F16, [2, 8, 40, 64, 128])] {
            if !B::supports_dtype(device, dtype) {
                continue;
            }
            for width in widths {
                let graph = HeteroGraph::new(vec![("node".into(), 1000)], vec![]).unwrap();
                let value = |k: usize| (k % 1999) as f32;
                let features = match dtype {
                    DType::F16 => Features::from_vec(
                        (0..1000 * width).map(|k| half::f16::from_f32(value(k))).collect(),
                        1000,
                        width,
                    ),
                    _ => Features::from_f32((0..1000 * width).map(value).collect(), 1000, width),
                };
                let store = FeatureStore::<B>::new(features, &graph, device).unwrap();
                let (store, reason) = store.pin();
                assert_eq!(reason, None);
                let pinned: &PinnedRows<B> = store.pinned().unwrap();
                let rows: Vec<u32> = (0..700u32).map(|k| (k * k + 3) % 1000).collect();
                let to: Vec<u32> = (0..700u32).rev().collect();
                let mut buffer = RowBuffer::<B>::new([700, width], dtype, device);
                buffer.fetch(pinned, &RowIds::new(&rows, device), &RowIds::new(&to, device));
                let mut want = to_host(&store & &rows);
                let want: Vec<f32> = want.chunks_mut(width).rev().flat_map(|row| row.to_vec()).collect();
                assert_eq!(to_host(buffer.rows(700)), want, "{width} columns in {dtype:?}");
            }
        }
    }

    /// With one head and with `heads`: whatever edges carry, twice with all that joins layers. Each of it once where
    /// kernels are compiled, which takes most of the time there.
    fn cases<B: GraphBackend>(heads: usize) -> Vec<(usize, Carried, Connections)> {
        let all = Connections { residual: true, gate: true, norm: Norm::Layer, jump: Jump::Concat };
        let none = Connections::default();
        let mut cases = vec![
            (heads, Carried::Nothing, all),
            (1, Carried::Values, none),
            (heads, Carried::Times, none),
            (1, Carried::ValuesAndAges, all),
        ];
        if !B::SAMPLES {
            let others = [(1, Carried::Nothing), (heads, Carried::Values), (1, Carried::Times)];
            cases.extend(others.map(|(own, carried)| (own, carried, none)));
            cases.push((heads, Carried::ValuesAndAges, none));
        }
        cases
    }

    fn spec(graph: &HeteroGraph, input: usize, heads: usize, carried: Carried) -> AttentionSpec {
        // With and without what a node has of itself.
        let own = own_types(if heads > 1 { OwnTransform::Always } else { OwnTransform::Auto }, graph);
        let edges = edge_inputs(graph, carried.time().as_ref());
        AttentionSpec { own, edges, ..AttentionSpec::new(graph.streams(), input, [24, 12], heads) }
    }
}

/// A loader on the processor.
fn load<P: Send + 'static>(
    jobs: impl IntoIterator<Item = Job<P>, IntoIter: Send + 'static>,
    options: LoaderOptions,
) -> Loader<Flex, P> {
    let data = marketplace(0.2);
    let graph = Arc::new(data.graph.clone());
    let store = FeatureStore::new(data.features.unwrap(), &graph, &Default::default()).unwrap();
    Loader::new(jobs, sampler(&graph, &[Fanout::Most(3)], None), store, options).unwrap()
}

fn job(number: u64, users: Vec<u32>) -> Job<u64> {
    Job { number, seeds: vec![users, vec![], vec![]], payload: number * 10 }
}

fn an_error_of_any_thread_is_the_last_item_and_names_the_batch() {
    let bad_seed = [job(1, vec![0]), job(2, vec![1_000_000]), job(3, vec![2])];
    let mut loader = load(bad_seed, LoaderOptions::default());
    assert_eq!(loader.next().unwrap().unwrap().payload, 10);
    let error = loader.next().unwrap().unwrap_err();
    assert!(error.to_string().contains("batch 2") && error.exit_code() == 1, "{error}");
    assert!(loader.next().is_none() && loader.next().is_none());

    let panics = (0..10).map(|number| {
        assert!(number != 2, "no seeds of number {number}");
        job(number, vec![number as u32])
    });
    let items: Vec<_> = load(panics, LoaderOptions::default()).collect();
    assert_eq!(items.len(), 3);
    let error = items[2].as_ref().unwrap_err().to_string();
    assert!(error.contains("after batch 1") && error.contains("no seeds of number 2"), "{error}");
    assert!(items[..2].iter().all(Result::is_ok));
}

fn a_loader_that_nobody_reads_ends() {
    // More batches than the queues hold.
    let endless = (0u64..).map(|number| job(number, vec![number as u32 % 50]));
    let mut loader = load(endless, LoaderOptions { prefetch: 1, ..LoaderOptions::default() });
    assert!(loader.next().unwrap().is_ok());
    drop(loader);
    drop(load((0u64..).map(|number| job(number, vec![0])), LoaderOptions::default()));
}

fn caches_of_no_row_and_of_one_row_work() {
    for hot in [vec![vec![], vec![], vec![]], vec![vec![7], vec![], vec![]]] {
        let jobs = (0..20).map(|number| job(number, vec![7, number as u32 + 8]));
        let mut loader = load(jobs, LoaderOptions { window: false, hot: hot.clone(), ..LoaderOptions::default() });
        assert_eq!(loader.by_ref().filter(|batch| batch.is_ok()).count(), 20);
        assert_eq!(loader.stats().hot >= 20, !hot[0].is_empty());
    }
}

fn settings_that_cannot_work_are_refused() {
    let data = marketplace(0.2);
    let graph = Arc::new(data.graph.clone());
    let store = FeatureStore::<Flex>::new(data.features.unwrap(), &graph, &Default::default()).unwrap();
    let refused = |options: LoaderOptions, part: &str| {
        let of = sampler(&graph, &[Fanout::All], None);
        let error = Loader::<Flex, u64>::new([], of, store.clone(), options).err().expect("it is refused").to_string();
        assert!(error.contains(part) && error.contains("help"), "{error}");
    };
    refused(LoaderOptions { prefetch: 0, ..LoaderOptions::default() }, "prefetch = 0: expected at least 1");
    refused(LoaderOptions { hot: vec![vec![0]], ..LoaderOptions::default() }, "3 lists, one per node type");
    let unknown = vec![vec![u32::MAX], vec![], vec![]];
    refused(LoaderOptions { hot: unknown, ..LoaderOptions::default() }, "hot nodes");
    let few = Features::from_f32(vec![0.0; 4], 2, 2);
    let error = FeatureStore::<Flex>::new(few, &graph, &Default::default()).unwrap_err().to_string();
    assert!(error.contains("one per node") && error.contains("found 2"), "{error}");
}

fn a_layer_of_the_library_runs_on_a_batch() {
    use graphsieve::nn::SageConvConfig;
    let jobs = [job(0, vec![3, 1, 4])];
    let batch = load(jobs, LoaderOptions::default()).next().unwrap().unwrap();
    let block = &batch.blocks[0];
    let width = batch.x[0].dims()[1];
    let conv = SageConvConfig::new(width, 5).init::<Flex>(&Default::default());
    let x: Vec<Tensor<Flex, 2>> = batch.x.iter().map(|x| x.clone().cast(DType::F32)).collect();
    // The last relation of a marketplace is between users.
    let relations = marketplace(0.2).graph.relations().iter().position(|r| r.src == 0 && r.dst == 0).unwrap();
    let csr = block.csr(relations).unwrap();
    let y = conv.forward(csr, block.nodes(x[0].clone()));
    assert_eq!(y.dims(), [3, 5]);
    let mut rows = batch.seed_rows[0].clone();
    rows.sort_unstable();
    assert_eq!(rows, [0, 1, 2]);
}
