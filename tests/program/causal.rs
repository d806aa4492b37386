//! Data that are split by time: what comes later changes no score of what was before, with weights that are fixed and
//! after a training that ended by then; and a leak of each kind is noticed by the same check.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn_flex::Flex;
use graphsieve::config::{
    ClassifyConfig, Draw, ForestConfig, LayerKind, LoaderMode, RunConfig, Stage1Config, Stage2Config, Stage2Input,
    Stage3Config, TreeModel,
};
use graphsieve::graph::{
    Adjacency, Dataset, Events, Features, HeteroGraph, Labels, RelationSpec, Spill, SplitRule, StoredSplit, TimeWindow,
};
use graphsieve::infer::embed::Stage1;
use graphsieve::run::evaluation::read_scores;
use graphsieve::sampler::{Fanout, NeighbourSampler, SamplerConfig};
use graphsieve::score::{self, ScoreOptions, ScoredRun, Scores};
use graphsieve::train::{self, RunOptions};
use tempfile::TempDir;

/// Payments, in all, four at a time.
const PAYMENTS: u32 = 480;
/// From here on, at weights that are fixed, everything is changed.
pub const LATER: i64 = 50;
/// Until the label of a payment is known.
const DELAY: i64 = 5;
pub const WINDOW: TimeWindow = TimeWindow { train: [0, 60], validation: [60, 80], test: [85, 120] };

#[derive(Clone)]
pub struct Payment {
    /// Its name: what it is found again by.
    id: u32,
    time: i64,
    customer: u32,
    terminal: u32,
    amount: f32,
    label: u8,
}

/// A number in [0, 1) out of two.
fn draw(a: u32, b: u32) -> f32 {
    let mixed = (a.wrapping_mul(2_654_435_761) ^ b.wrapping_mul(40_503)).wrapping_mul(2_246_822_519);
    (mixed >> 8) as f32 / (1 << 24) as f32
}

/// Four payments at a time.
pub fn payments() -> Vec<Payment> {
    payments_at(4)
}

/// So many payments at a time; a third are bad, by their amount or by their terminal.
pub fn payments_at(many: u32) -> Vec<Payment> {
    let payment = |id: u32| {
        let (customer, terminal) = ((draw(id, 1) * 30.0) as u32, (draw(id, 2) * 12.0) as u32);
        let amount = draw(id, 3);
        let label = u8::from(amount > 0.8 || (terminal < 3 && draw(id, 4) < 0.6));
        Payment { id, time: i64::from(id / many), customer, terminal, amount, label }
    };
    (0..PAYMENTS / 4 * many).map(payment).collect()
}

/// Everything from `time` on is another: values, labels, ends, some payments gone, others new, with new customers and
/// terminals. So are labels that nobody knew before `known`.
pub fn changed(payments: &[Payment], time: i64, known: i64) -> Vec<Payment> {
    let mut changed = Vec::new();
    for payment in payments {
        let mut payment = payment.clone();
        if payment.time + DELAY >= known {
            payment.label = 1 - payment.label;
        }
        if payment.time >= time {
            if payment.id % 5 == 0 {
                continue;
            }
            payment.amount = 1.0 - payment.amount;
            payment.customer = (payment.customer + 7) % 41;
            payment.terminal = (payment.terminal + 5) % 17;
            changed.push(Payment { id: payment.id + 10_000, customer: 99, ..payment.clone() });
        }
        changed.push(payment);
    }
    changed
}

/// What is wrong with the data.
#[derive(Clone, Copy, PartialEq)]
pub enum Leak {
    Nothing,
    /// A payment has the next one of its customer as a neighbour.
    LaterEdge,
    /// Customers have their payments as neighbours.
    EntityState,
    /// The share of fraud counts labels before they are known.
    EarlyLabel,
}

/// How payments have the earlier ones of the same customer and terminal.
#[derive(Clone, Copy)]
pub enum Past {
    /// Copies of the latest three.
    Copies,
    /// As spans of one list: so many of the latest.
    Spans(usize),
}

/// All of them, however many.
pub const ALL: Past = Past::Spans(usize::MAX);

/// Customers and terminals, in the order of their names, and payments, in that of time, with the latest three earlier
/// ones of the same customer and terminal.
fn dataset(payments: &[Payment], leak: Leak) -> Dataset {
    dataset_with(payments, leak, Past::Copies)
}

pub fn dataset_with(payments: &[Payment], leak: Leak, past: Past) -> Dataset {
    let mut payments = payments.to_vec();
    payments.sort_by_key(|payment| (payment.time, payment.id));
    let names = |of: fn(&Payment) -> u32| {
        let mut names: Vec<u32> = payments.iter().map(of).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let (customers, terminals) = (names(|p| p.customer), names(|p| p.terminal));
    let place = |names: &[u32], name: u32| names.binary_search(&name).unwrap() as u32;
    let counts = [customers.len(), terminals.len(), payments.len()];
    let relation =
        |name: &str, [src, dst]: [usize; 2], adjacency: Adjacency| RelationSpec::new(name, src, dst, adjacency);
    let spec = |name: &str, ends: [usize; 2], edges: Vec<(u32, u32)>| {
        relation(name, ends, Adjacency::from_edges(counts[ends[1]], counts[ends[0]], &edges))
    };
    let all = || payments.iter().zip(0u32..);
    let named = |names: &[u32], of: fn(&Payment) -> u32| all().map(|(p, at)| (at, place(names, of(p)))).collect();
    let earlier = |of: fn(&Payment) -> u32| -> Vec<(u32, u32)> {
        let before = |(payment, at): (&Payment, u32)| {
            let same = all().filter(|(other, _)| other.time < payment.time && of(other) == of(payment));
            let mut same: Vec<(u32, u32)> = same.map(|(_, other)| (at, other)).collect();
            same.split_off(same.len().saturating_sub(3))
        };
        all().flat_map(before).collect()
    };
    let spans = |of: fn(&Payment) -> u32, most: usize| {
        let mut order: Vec<u32> = (0..payments.len() as u32).collect();
        let key = |at: u32| (of(&payments[at as usize]), payments[at as usize].time);
        order.sort_by_key(|&at| key(at));
        let first = |least: (u32, i64)| order.partition_point(|&at| key(at) < least);
        let span = |payment: &Payment| {
            let end = first((of(payment), payment.time));
            (first((of(payment), i64::MIN)).max(end.saturating_sub(most)) as u64, end as u64)
        };
        let (start, end) = payments.iter().map(span).unzip();
        Adjacency::from_spans(start, end, order, payments.len()).unwrap()
    };
    let paid_by: Vec<(u32, u32)> = named(&customers, |p| p.customer);
    let mut earlier_by = earlier(|p| p.customer);
    if leak == Leak::LaterEdge {
        let next = |(payment, at): (&Payment, u32)| {
            all().find(|(other, _)| other.time > payment.time && other.customer == payment.customer).map(|o| (at, o.1))
        };
        earlier_by.extend(all().filter_map(next));
    }
    let mut relations = vec![
        spec("paid_by", [0, 2], paid_by.clone()),
        spec("paid_at", [1, 2], named(&terminals, |p| p.terminal)),
        spec("earlier_paid_by", [2, 2], earlier_by),
        spec("earlier_paid_at", [2, 2], earlier(|p| p.terminal)),
    ];
    if let Past::Spans(most) = past {
        relations.truncate(2);
        relations.push(relation("earlier_paid_by", [2, 2], spans(|p| p.customer, most)));
        relations.push(relation("earlier_paid_at", [2, 2], spans(|p| p.terminal, most)));
    }
    if leak == Leak::EntityState {
        relations.push(spec("paid", [2, 0], paid_by.iter().map(|&(payment, customer)| (customer, payment)).collect()));
    }
    let types = ["customer", "terminal", "payment"].into_iter().zip(counts).map(|(name, count)| (name.into(), count));
    let graph = HeteroGraph::new(types.collect(), relations).unwrap();

    let known_share = |payment: &Payment| {
        let delay = if leak == Leak::EarlyLabel { 0 } else { DELAY };
        let known = payments.iter().filter(|p| p.terminal == payment.terminal && p.time + delay < payment.time);
        let (bad, all) = known.fold((0.0, 1.0), |(bad, all), p| (bad + f32::from(p.label), all + 1.0));
        bad / all
    };
    let entities = customers.iter().map(|&name| [draw(name, 5), 0.0, 1.0]);
    let entities = entities.chain(terminals.iter().map(|&name| [0.0, draw(name, 6), 1.0]));
    let rows = entities.chain(payments.iter().map(|p| [p.amount, known_share(p), draw(p.id, 7)]));
    let nodes = graph.num_nodes();
    let features = Features::from_f32(rows.flatten().collect(), nodes, 3);

    let first = counts[0] + counts[1];
    let of_entities = |value: i64| std::iter::repeat_n(value, first);
    let time = of_entities(Events::NO_TIME).chain(payments.iter().map(|p| p.time)).collect();
    let known = of_entities(Events::NEVER).chain(payments.iter().map(|p| p.time + DELAY)).collect();
    let part = |payment: &Payment| -> u8 {
        let within = |[from, to]: [i64; 2]| (from..to).contains(&payment.time);
        let known = payment.time + DELAY <= WINDOW.test[0];
        match payment {
            _ if within(WINDOW.train) && known => 1,
            _ if within(WINDOW.validation) && known => 2,
            _ if within(WINDOW.test) => 3,
            _ => 0,
        }
    };
    let parts = std::iter::repeat_n(0, first).chain(payments.iter().map(part)).collect();
    let rule = SplitRule::Time { windows: vec![WINDOW], blocked: None };
    let entries = all().map(|(p, at)| (first as u32 + at, p.label)).collect();
    Dataset {
        events: Some(Events { time, known, amount: None, value: None, alert: None }),
        split: Some(StoredSplit { rule, windows: vec![parts], window: 0 }),
        ..Dataset::new(graph, Some(features), Some(Labels { entries }), None)
    }
}

/// A number per payment by its name, to the bit.
pub type ByName = BTreeMap<u32, u32>;

/// What the payments before `time` have.
pub fn before(payments: &[Payment], time: i64, scores: &[f32]) -> ByName {
    let mut payments = payments.to_vec();
    payments.sort_by_key(|payment| (payment.time, payment.id));
    let first = scores.len() - payments.len();
    let earlier = payments.iter().enumerate().filter(|(_, payment)| payment.time < time);
    earlier.map(|(at, payment)| (payment.id, scores[first + at].to_bits())).collect()
}

struct Trained {
    dir: TempDir,
    /// Of the stages, and of node classification.
    runs: [PathBuf; 4],
}

pub fn run(config: RunConfig) -> PathBuf {
    let options = RunOptions::quiet("test");
    let outcome = train::run::<Flex>(config, &options, &Default::default()).unwrap();
    let first = outcome.stage1.map(|stage| stage.run).or(outcome.stage2.map(|stage| stage.run));
    let classify = outcome.classify.map(|classify| classify.run);
    first.or(outcome.stage3.map(|stage| stage.run)).or(classify).unwrap()
}

pub fn stage2(dir: &Path, input: Stage2Input) -> Stage2Config {
    let mut config = Stage2Config::new(dir.join("data"));
    config.data.input = input;
    (config.output.dir, config.output.plots) = (dir.join("runs"), false);
    (config.model.hidden, config.model.out, config.model.heads) = (8, 8, 2);
    (config.train.epochs, config.train.learning_rate, config.train.learning_rate_min) = (12, 0.02, 0.02);
    (config.drop_edge.rate, config.train.validate_every) = (0.3, 3);
    config
}

pub fn stage1(dir: &Path) -> Stage1Config {
    let mut config = Stage1Config::new(dir.join("data"));
    (config.output.dir, config.output.plots) = (dir.join("runs"), false);
    (config.model.hidden, config.model.out, config.train.epochs) = (8, 8, 12);
    config
}

/// All stages on `data`, as if it had been imported.
fn trained(data: &Dataset) -> Trained {
    let dir = tempfile::tempdir().unwrap();
    data.write(&dir.path().join("data")).unwrap();
    let first = run(RunConfig::Stage1(stage1(dir.path())));
    let embeddings = |config: Stage2Config| {
        let mut config = config;
        config.data.embeddings = Some(first.clone());
        config
    };
    let second = embeddings(stage2(dir.path(), Stage2Input::Embeddings));
    let third = {
        let mut config = Stage3Config::new(dir.path().join("data"));
        config.data.embeddings = Some(first.clone());
        (config.output.dir, config.output.plots) = (dir.path().join("runs"), false);
        (config.features.embedding, config.features.reconstruction) = (true, true);
        (config.features.stage2_score, config.features.stage2_embedding, config.features.stage2_folds) =
            (true, true, 3);
        config.stage2 = Some(Stage2Config { name: "stage3-stage2".into(), ..second.clone() });
        let TreeModel::Forest(forest) = config.model else { panic!("forests are the default") };
        config.model = TreeModel::Forest(ForestConfig { trees: 15, ..forest });
        config
    };
    let second = run(RunConfig::Stage2(second));
    let third = run(RunConfig::Stage3(third));
    let classify = {
        let mut config = ClassifyConfig::new(LayerKind::Gat, dir.path().join("data"));
        (config.output.dir, config.output.plots) = (dir.path().join("runs"), false);
        (config.model.hidden, config.train.epochs) = (16, 12);
        run(RunConfig::Classify(config))
    };
    Trained { runs: [first, second, third, classify], dir }
}

pub fn computed(run: &Path, data: &Path) -> Vec<f32> {
    let options = ScoreOptions::new(run, data);
    match score::compute::<Flex>(&options, &Default::default()).unwrap().scores {
        Scores::Anomaly(scores) => scores,
        Scores::Classes(probabilities) => probabilities.column(1).to_vec(),
    }
}

/// What each stage wrote of all nodes: scores of Stage 1, 2 and 3, and the first column of the embeddings.
fn written(trained: &Trained, nodes: usize) -> Vec<Vec<f32>> {
    let [first, second, third, classify] = &trained.runs;
    let z = graphsieve::graph::read_embeddings(first.join("Z_embeddings_stage1.npy"), Some(nodes)).unwrap();
    vec![
        ScoredRun::open(first, None).unwrap().scores,
        read_scores(&second.join("anomaly_scores_stage2.npy"), nodes).unwrap(),
        read_scores(&third.join("anomaly_scores_stage3.npy"), nodes).unwrap(),
        z.column(0).to_vec(),
        ScoredRun::open(classify, Some(1)).unwrap().scores,
    ]
}

#[test]
fn what_comes_later_changes_no_earlier_score_of_any_stage_at_fixed_weights() {
    stays_at_fixed_weights(Past::Copies);
}

#[test]
fn what_comes_later_changes_no_earlier_score_where_a_payment_has_all_before_it() {
    stays_at_fixed_weights(ALL);
}

fn stays_at_fixed_weights(past: Past) {
    let dataset = |payments: &[Payment]| dataset_with(payments, Leak::Nothing, past);
    let now = payments();
    let trained = trained(&dataset(&now));
    let later = changed(&now, LATER, LATER);
    let other = trained.dir.path().join("other");
    dataset(&later).write(&other).unwrap();
    for (stage, run) in trained.runs.iter().enumerate() {
        let own = computed(run, &trained.dir.path().join("data"));
        let (want, got) = (before(&now, LATER, &own), before(&later, LATER, &computed(run, &other)));
        assert_eq!(want.len(), 4 * LATER as usize);
        assert!(want == got, "run {stage}");
        assert!(own.iter().any(|score| score != &own[own.len() - 1]), "run {stage} tells payments apart");
    }
    let model = Stage1::open(&trained.runs[0]).unwrap();
    let embed = |payments: &[Payment]| {
        let data = dataset(payments);
        let z = model.embed::<Flex>(&data, Path::new("data"), &Spill::default(), &Default::default()).unwrap();
        let z = z.as_f32();
        (0..z.ncols()).map(|column| before(payments, LATER, &z.column(column).to_vec())).collect::<Vec<_>>()
    };
    assert!(embed(&now) == embed(&later), "embeddings");
}

#[test]
fn a_training_that_ends_at_a_time_does_not_depend_on_what_comes_after_it() {
    training_does_not_depend_on_what_comes_after_it(Past::Copies);
}

#[test]
fn a_training_on_all_earlier_payments_does_not_depend_on_what_comes_after_it() {
    training_does_not_depend_on_what_comes_after_it(ALL);
}

/// Rows that are spans of shared entries get the scores of rows with copies of the same payments.
#[test]
fn scores_do_not_depend_on_how_earlier_payments_are_stored() {
    let now = payments();
    let [copies, spans] = [Past::Copies, Past::Spans(3)].map(|past| dataset_with(&now, Leak::Nothing, past));
    assert_eq!(spans.graph.num_edges(), copies.graph.num_edges());
    let entries =
        |data: &Dataset| data.graph.relations()[2..].iter().map(|r| r.forward.num_entries()).collect::<Vec<_>>();
    assert_eq!(entries(&spans), [PAYMENTS as usize; 2], "every payment is stored once for a customer and a terminal");
    assert!(entries(&copies).iter().all(|&entries| entries > 2 * PAYMENTS as usize));
    let trained = trained(&copies);
    let other = trained.dir.path().join("other");
    spans.write(&other).unwrap();
    for (stage, run) in trained.runs.iter().enumerate() {
        let scores = |data: &Path| computed(run, data).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert!(scores(&trained.dir.path().join("data")) == scores(&other), "run {stage}");
    }
}

fn training_does_not_depend_on_what_comes_after_it(past: Past) {
    let now = payments();
    let end = WINDOW.known_until();
    let later = changed(&now, end, WINDOW.test[0] + 1);
    let run = |payments: &[Payment]| {
        let data = dataset_with(payments, Leak::Nothing, past);
        let nodes = data.graph.num_nodes();
        let written = written(&trained(&data), nodes);
        written.iter().map(|scores| before(payments, end, scores)).collect::<Vec<_>>()
    };
    let (want, got) = (run(&now), run(&later));
    assert_eq!(want[0].len(), 4 * end as usize);
    for (at, what) in
        ["scores of stage 1", "scores of stage 2", "scores of stage 3", "embeddings", "classes"].iter().enumerate()
    {
        assert!(want[at] == got[at], "{what}");
    }
}

#[test]
fn a_training_on_the_latest_sampled_payments_does_not_depend_on_what_comes_after_it() {
    let config = |dir: &Path| {
        let mut config = stage2(dir, Stage2Input::Features);
        (config.loader.mode, config.loader.draw) = (LoaderMode::Sampled, Draw::Latest);
        (config.loader.fanouts, config.loader.batch_size, config.train.epochs) = (vec![3, 2], 96, 3);
        config
    };
    let now = payments();
    let end = WINDOW.known_until();
    let scores = |payments: &[Payment]| {
        let (dir, data) = (tempfile::tempdir().unwrap(), dataset_with(payments, Leak::Nothing, ALL));
        data.write(&dir.path().join("data")).unwrap();
        let run = run(RunConfig::Stage2(config(dir.path())));
        let scores = read_scores(&run.join("anomaly_scores_stage2.npy"), data.graph.num_nodes()).unwrap();
        before(payments, end, &scores)
    };
    assert!(scores(&now) == scores(&changed(&now, end, WINDOW.test[0] + 1)));
    // Copies have no order that says which are the latest.
    let dir = tempfile::tempdir().unwrap();
    dataset(&now, Leak::Nothing).write(&dir.path().join("data")).unwrap();
    let options = RunOptions::quiet("test");
    let refused = train::run::<Flex>(RunConfig::Stage2(config(dir.path())), &options, &Default::default());
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("loader.draw") && error.contains("import them again"), "{error}");
    assert!(!dir.path().join("runs").exists(), "what does not fit leaves no run");
}

#[test]
fn a_later_edge_a_state_of_an_entity_and_an_early_label_are_noticed() {
    let now = payments();
    let later = changed(&now, LATER, LATER);
    let stays = |leak: Leak| {
        let dir = tempfile::tempdir().unwrap();
        dataset(&now, leak).write(&dir.path().join("data")).unwrap();
        dataset(&later, leak).write(&dir.path().join("other")).unwrap();
        let run = run(RunConfig::Stage2(stage2(dir.path(), Stage2Input::Features)));
        let of = |payments: &[Payment], data: &str| before(payments, LATER, &computed(&run, &dir.path().join(data)));
        of(&now, "data") == of(&later, "other")
    };
    assert!(stays(Leak::Nothing));
    for (leak, name) in
        [(Leak::LaterEdge, "later edge"), (Leak::EntityState, "state of an entity"), (Leak::EarlyLabel, "early label")]
    {
        assert!(!stays(leak), "{name}");
    }
}

/// Scores of the second of three folds, by the model that its own run left.
fn scores_of_a_fold(data: &Dataset) -> Vec<f32> {
    let trained = trained(data);
    let folds = trained.runs[2].join("folds");
    let named = |path: &PathBuf| path.to_str().unwrap().ends_with("-fold-0");
    let fold = fs::read_dir(folds).unwrap().map(|entry| entry.unwrap().path()).find(named).unwrap();
    read_scores(&fold.join("anomaly_scores_stage2.npy"), data.graph.num_nodes()).unwrap()
}

#[test]
fn a_fold_is_scored_by_earlier_labels_alone_and_a_fold_by_chance_is_noticed() {
    // Labels of the third fold in time, [40, 60), are others. A share of known fraud would show that in later columns.
    let now = payments();
    let others =
        |p: &Payment| Payment { label: if p.time >= 40 && p.time < 60 { 1 - p.label } else { p.label }, ..p.clone() };
    let other: Vec<Payment> = now.iter().map(others).collect();
    let stays = |by_time: bool| {
        let scores = |payments: &[Payment]| {
            let mut data = dataset(payments, Leak::Nothing);
            let features = dataset(&now, Leak::Nothing).features;
            if let (false, Some(split)) = (by_time, &mut data.split) {
                split.rule = SplitRule::Random { seed: 42, train: 0.6, validation: 0.2, test: 0.2 };
            }
            before(payments, 40, &scores_of_a_fold(&Dataset { features, ..data }))
        };
        scores(&now) == scores(&other)
    };
    assert!(stays(true));
    assert!(!stays(false));
}

#[test]
fn no_sampled_neighbour_is_later_than_its_seed() {
    for past in [Past::Copies, ALL] {
        let [later, all] = sampled_neighbours(dataset_with(&payments(), Leak::Nothing, past));
        assert_eq!(later, 0, "a payment reads a later one");
        assert!(all > PAYMENTS, "{all} neighbours prove little");
    }
    // A sampler over an adjacency that looks ahead is noticed.
    assert_ne!(sampled_neighbours(dataset(&payments(), Leak::LaterEdge))[0], 0);
}

/// Payments that payments read through the sampler, over all ways to draw: the most that are not earlier, and the
/// fewest at all.
fn sampled_neighbours(data: Dataset) -> [u32; 2] {
    let (graph, events) = (std::sync::Arc::new(data.graph), data.events.unwrap());
    let first = graph.node_types()[2].offset;
    let mut configs = vec![(Fanout::All, Draw::Uniform), (Fanout::Most(2), Draw::Uniform)];
    configs.extend(graph.relations().iter().any(|r| r.forward.is_spans()).then_some((Fanout::Most(2), Draw::Latest)));
    let counts = configs.into_iter().map(|(fanout, draw)| {
        let config = SamplerConfig::new(&[fanout, fanout], graph.relations().len());
        let sampler = NeighbourSampler::new(graph.clone(), SamplerConfig { draw, ..config }).unwrap();
        let mut scratch = sampler.scratch();
        let [mut later, mut all] = [0; 2];
        for seed in 0..PAYMENTS {
            let batch = sampler.sample(&mut scratch, u64::from(seed), &[Vec::new(), Vec::new(), vec![seed]]).unwrap();
            let time = |node: u32| events.time[first + node as usize];
            let neighbours = batch.nodes[2].iter().filter(|&&node| node != seed);
            later += neighbours.clone().filter(|&&node| time(node) >= time(seed)).count() as u32;
            all += neighbours.count() as u32;
        }
        [later, all]
    });
    counts.reduce(|a, b| [a[0].max(b[0]), a[1].min(b[1])]).unwrap()
}

#[test]
fn the_part_that_is_known_has_its_own_numbering_and_nothing_of_later_entities() {
    for past in [Past::Copies, Past::Spans(3), ALL] {
        known_has_its_own_numbering(past);
    }
}

fn known_has_its_own_numbering(past: Past) {
    let now = payments();
    let later = changed(&now, LATER, LATER);
    let known = |payments: &Vec<Payment>| dataset_with(payments, Leak::Nothing, past).known_until(LATER).dataset;
    let [a, b] = [&now, &later].map(known);
    let counts = |data: &Dataset| data.graph.node_types().iter().map(|t| t.count).collect::<Vec<_>>();
    assert_eq!(counts(&a), counts(&b));
    for (a, b) in a.graph.relations().iter().zip(b.graph.relations()) {
        assert_eq!(a.forward, b.forward);
        assert!(a.reverse.is_reverse_of(&a.forward));
    }
    let values = |data: &Dataset| -> Vec<u32> {
        let features = data.features.as_ref().unwrap();
        (0..features.num_rows()).flat_map(|node| features.row(node).map(f32::to_bits).collect::<Vec<_>>()).collect()
    };
    assert_eq!(values(&a), values(&b));
    assert_eq!((a.labels.as_ref(), &a.events), (b.labels.as_ref(), &b.events));
    let events = a.events.unwrap();
    assert!(a.labels.unwrap().entries.iter().all(|&(node, _)| events.known[node as usize] < LATER));
    assert!(events.time.iter().all(|&time| time < LATER));
}
