use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::error::{Error, Result};

const STAGE1: &str = "task = \"stage1\"\n[data]\npath = \"data\"\n";
const STAGE2: &str = "task = \"stage2\"\n[data]\npath = \"data\"\n";
const CLASSIFY: &str = "task = \"classify\"\n[data]\npath = \"data\"\n";
const STAGE3: &str = "task = \"stage3\"\n[data]\npath = \"data\"\n";
const PIPELINE: &str = "task = \"pipeline\"\n[data]\npath = \"data\"\n";

fn parse(text: &str, overrides: &[&str]) -> Result<RunConfig> {
    let overrides: Vec<_> = overrides.iter().map(|argument| argument.to_string()).collect();
    RunConfig::parse(text, Path::new("run.toml"), &overrides)
}

fn stage1(text: &str, overrides: &[&str]) -> Stage1Config {
    match parse(text, overrides) {
        Ok(RunConfig::Stage1(config)) => config,
        other => panic!("{other:?}"),
    }
}

fn stage2(text: &str, overrides: &[&str]) -> Stage2Config {
    match parse(text, overrides) {
        Ok(RunConfig::Stage2(config)) => config,
        other => panic!("{other:?}"),
    }
}

fn classify(text: &str, overrides: &[&str]) -> ClassifyConfig {
    match parse(text, overrides) {
        Ok(RunConfig::Classify(config)) => config,
        other => panic!("{other:?}"),
    }
}

/// Origin, key, found, expected and help of the error in `text`.
fn error(text: &str, overrides: &[&str]) -> [String; 5] {
    match parse(text, overrides) {
        Err(Error::Config { origin, key, found, expected, help }) => [origin.to_string(), key, found, expected, help],
        other => panic!("{overrides:?}: {other:?}"),
    }
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(name)
}

#[test]
fn a_file_with_only_the_required_keys_has_the_published_defaults() {
    assert_eq!(stage1(STAGE1, &[]), Stage1Config::new("data"));
    assert_eq!(stage2(STAGE2, &[]), Stage2Config::new("data"));
    assert_eq!(classify(CLASSIFY, &[]), ClassifyConfig::new(LayerKind::Gcn, "data"));
    assert_eq!(classify(CLASSIFY, &["model.layer=gat"]), ClassifyConfig::new(LayerKind::Gat, "data"));
    let Ok(RunConfig::Pipeline(config)) = parse(PIPELINE, &[]) else { panic!() };
    assert_eq!(config.stage1, Stage1Config { name: "pipeline-stage1".into(), ..Stage1Config::new("data") });
    assert_eq!(config.stage2, Stage2Config { name: "pipeline-stage2".into(), ..Stage2Config::new("data") });
}

#[test]
fn shipped_stage_files_hold_the_published_defaults() {
    let data = "artifacts/data/quickstart";
    let stage1 = RunConfig::load(&shipped("stage1.toml"), &[]).unwrap();
    assert_eq!(stage1, RunConfig::Stage1(Stage1Config::new(data)));
    let stage2 = RunConfig::load(&shipped("stage2.toml"), &["data.input=embeddings".to_string()]).unwrap();
    assert_eq!(stage2, RunConfig::Stage2(Stage2Config::new(data)));
    for (name, layer) in [("cora-gcn", LayerKind::Gcn), ("cora-gat", LayerKind::Gat)] {
        let published = ClassifyConfig { name: name.into(), ..ClassifyConfig::new(layer, "artifacts/data/cora.npz") };
        let read = RunConfig::load(&shipped(&format!("{name}.toml")), &[]).unwrap();
        assert_eq!(read, RunConfig::Classify(published));
    }
}

#[test]
fn the_quickstart_loads_its_stage_files_and_replaces_some_keys() {
    let Ok(RunConfig::Pipeline(config)) = RunConfig::load(&shipped("quickstart.toml"), &[]) else { panic!() };
    assert_eq!(config.data.path, config.stage1.data.path);
    assert_eq!(config.data.path, config.stage2.data.path);
    assert_ne!(config.stage1.train.epochs, TrainConfig::stage1().epochs, "the pipeline's own");
    assert_eq!(config.stage1.train.clip_norm, Some(1.0), "from stage1.toml");
    assert_eq!(config.stage2.data.input, Stage2Input::Embeddings);
}

fn unusual_loader(fanouts: Vec<usize>) -> LoaderConfig {
    LoaderConfig {
        mode: LoaderMode::Auto,
        fanouts,
        draw: Draw::Latest,
        batch_size: 3,
        kappa: 5,
        window: false,
        hot: 1.0,
        hot_by: HotBy::Degree,
        transfer: Transfer::Gathered,
        prefetch: 4,
        memory: 2.5,
        host_memory: 1.5,
    }
}

/// Values that differ from every default, so that a key which is written but not read (or the reverse) shows.
fn unusual() -> [RunConfig; 3] {
    let train = TrainConfig {
        epochs: 7,
        learning_rate: 0.02,
        learning_rate_min: 3e-7,
        schedule: Schedule::Cosine,
        clip_norm: Some(2.5),
        precision: Precision::F16,
        chunk_size: Some(2500),
        rows: Rows::All,
        validate_every: 3,
        checkpoint_every: 4,
        loss_scale: 8.0,
    };
    let output = OutputConfig { dir: "out \"x\" ü".into(), plots: false };
    let loader = unusual_loader(vec![0, 7]);
    let stage1 = Stage1Config {
        name: "a-b_c.d".into(),
        seed: i64::MAX as u64,
        data: Stage1Data { path: "C:\\data".into(), window: 2 },
        model: Stage1Model { hidden: 3, out: 5, edge_weights: false },
        train: TrainConfig { schedule: Schedule::Constant, learning_rate_min: 0.02, clip_norm: None, ..train.clone() },
        sampling: SamplingConfig {
            edges: [("pu", 1), ("ps", 2), ("uu", 3), ("co review", 4)].map(|(s, n)| (s.to_string(), n)).into(),
            default_edges: 5,
            negatives_per_positive: 6,
        },
        loader: LoaderConfig::default(),
        split: EdgeSplitConfig { held_out: 0.125, seed: 21 },
        temperature: TemperatureConfig { warmup_epochs: 0, start: 1.5, peak: 2.5, end: 0.5 },
        output: output.clone(),
    };
    let stage2 = Stage2Config {
        name: "e".into(),
        seed: 0,
        data: Stage2Data {
            path: "d".into(),
            window: 3,
            input: Stage2Input::Embeddings,
            embeddings: Some("z.npy".into()),
        },
        model: Stage2Model {
            hidden: 6,
            out: 9,
            negative_slope: 0.1,
            heads: 3,
            recompute: true,
            own: OwnTransform::Always,
            pieces: 6,
            edge_values: true,
            time_encoding: TimeEncodingKind::Learned,
            time_frequencies: 5,
            dropout: 0.35,
            residual: true,
            gate: true,
            norm: Norm::Layer,
            jump: Jump::Concat,
            labels: true,
            label_rate: 0.25,
        },
        train: TrainConfig { chunk_size: None, ..train },
        drop_edge: DropEdgeConfig { rate: 0.1 },
        loss: LossConfig { positive_weight: None, focal_gamma: 1.5, lambda_unsup: 0.25, samples_per_relation: 11 },
        early_stop: EarlyStopConfig { metric: RankingMetric::AveragePrecision, patience: Some(9) },
        loader: loader.clone(),
        split: SplitConfig { train: 0.5, validation: 0.3, test: 0.2, seed: 13 }.into(),
        output: output.clone(),
    };
    let data = stage1.data.clone();
    let inside = |stage: &str| (format!("p-{stage}"), 5, output.clone());
    let (name, seed, out) = inside("stage1");
    let first = Stage1Config {
        name,
        seed,
        output: out,
        model: Stage1Model { edge_weights: true, ..stage1.model.clone() },
        // Mini-batches have no chunks of rows.
        train: TrainConfig { chunk_size: None, ..stage1.train.clone() },
        loader,
        ..stage1.clone()
    };
    let (name, seed, out) = inside("stage2");
    let input =
        Stage2Data { path: data.path.clone(), window: data.window, input: Stage2Input::Features, embeddings: None };
    let second = Stage2Config { name, seed, output: out, data: input, ..stage2.clone() };
    let synth = PipelineSynth { preset: Preset::Electronics, scale: 0.5, seed: 17 };
    let pipeline = PipelineConfig {
        name: "p".into(),
        seed: 5,
        data,
        synth: Some(synth),
        stage1: first,
        stage2: second,
        stage3: None,
        output,
    };
    [RunConfig::Stage1(stage1), RunConfig::Stage2(stage2), RunConfig::Pipeline(pipeline)]
}

/// The same of node classification, with masks and with both kinds of random split.
fn unusual_classify() -> [RunConfig; 4] {
    let attention = ClassifyAttention {
        heads: 5,
        out_heads: 3,
        attention_dropout: 0.05,
        negative_slope: 0.15,
        edge_values: true,
        time_encoding: TimeEncodingKind::Learned,
        time_frequencies: 5,
    };
    let gat = ClassifyConfig {
        name: "c".into(),
        seed: 3,
        data: ClassifyData { path: "g.npz".into(), window: 4, row_normalise: false, directed: true },
        model: ClassifyModel {
            layer: LayerKind::Gat,
            layers: 4,
            hidden: 35,
            edge_weights: false,
            dropout: 0.15,
            residual: false,
            norm: Norm::Layer,
            jump: Jump::None,
            order: 2,
            two_hops: 64,
            cut: 0.015,
            attention: Some(attention),
        },
        loss: ClassifyLoss { positive_weight: None, focal_gamma: 1.25 },
        train: ClassifyTrain {
            epochs: 9,
            learning_rate: 0.25,
            weight_decay: 0.125,
            decayed_layers: DecayedLayers::First,
            patience: Some(8),
            best: Best::Accuracy,
            precision: Precision::F16,
            loss_scale: 16.0,
            validate_every: 2,
            checkpoint_every: 3,
        },
        loader: unusual_loader(vec![0, 7, 1, 2]),
        split: ClassifySplit::Masks { index: 6 },
        output: OutputConfig { dir: "o".into(), plots: false },
    };
    let shares = SplitConfig { train: 0.5, validation: 0.3, test: 0.2, seed: 8 };
    let split = ClassifySplit::Random { per_class: None, shares };
    let gcn = ClassifyConfig { split, ..ClassifyConfig::new(LayerKind::Gcn, "g.npz") };
    let shares = SplitConfig { train: 0.6, validation: 0.125, test: 0.25, seed: 8 };
    let split = ClassifySplit::Random { per_class: Some(20), shares };
    let counted = ClassifyConfig { split, ..gat.clone() };
    let shares = LabelShares { anomalous: 20, normal: 80, shares: SplitConfig { seed: 8, ..SplitConfig::new(42) } };
    let labels = ClassifyConfig { split: ClassifySplit::Labels(shares), ..gat.clone() };
    [gat, gcn, counted, labels].map(RunConfig::Classify)
}

/// The same of layers with keys of their own.
fn unusual_layers() -> [RunConfig; 4] {
    let layers = [LayerKind::H2gcn, LayerKind::Bw, LayerKind::Sage, LayerKind::Ghrn];
    let [mut h2gcn, mut bw, mut sage, mut ghrn] = layers.map(|layer| ClassifyConfig::new(layer, "g.npz"));
    (h2gcn.model.residual, h2gcn.model.jump, h2gcn.model.two_hops) = (true, Jump::None, 0);
    (bw.model.order, bw.model.layers) = (5, 3);
    bw.loader = LoaderConfig::classify(3);
    (sage.model.jump, sage.model.edge_weights, sage.model.dropout) = (Jump::Concat, true, 0.25);
    (ghrn.model.cut, ghrn.model.order) = (0.25, 3);
    [h2gcn, bw, sage, ghrn].map(RunConfig::Classify)
}

/// Stage 3 with values that no default has.
fn unusual_stage3() -> [RunConfig; 2] {
    let forest = Stage3Config { name: "woods".into(), seed: 7, ..Stage3Config::new("data") };
    let mut booster = Stage3Config::new("g.npz");
    booster.data.embeddings = Some("z".into());
    booster.features.embedding = true;
    booster.features.stage2_score = true;
    booster.features.stage2_folds = 3;
    booster.features.host_memory = 0.5;
    booster.features.neighbourhood.hops = 4;
    booster.features.neighbourhood.edge_values = true;
    booster.features.neighbourhood.quantiles = vec![0.25, 1.0];
    booster.features.label_share = true;
    booster.split = LabelSplit { source: SplitSource::Masks, index: 9, ..LabelSplit::new(42) };
    let mut model = BoosterConfig { patience: None, lambda_l2: 0.5, min_sum_hessian: 2.5, ..Default::default() };
    model.objective = TreeObjective::Focal;
    model.shared.monotone = [("mean1.x0", 1), ("the age", -1)].map(|(name, sign)| (name.to_string(), sign)).into();
    model.shared.categorical = vec!["code".into()];
    model.shared.interactions = vec![vec!["amount".into(), "x3".into()], vec!["mean1.x0".into()]];
    model.shared.refit = true;
    booster.model = TreeModel::Booster(model);
    let mut stage2 = Stage2Config { name: "stage3-stage2".into(), ..Stage2Config::new("g.npz") };
    stage2.data.embeddings = Some("z".into());
    stage2.split = booster.split.clone();
    stage2.train.epochs = 17;
    booster.stage2 = Some(stage2);
    [forest, booster].map(RunConfig::Stage3)
}

#[test]
fn resolved_text_loads_again_to_an_equal_configuration() {
    let shipped = [
        "stage1.toml",
        "stage2.toml",
        "quickstart.toml",
        "stage3.toml",
        "cora-gcn.toml",
        "cora-gat.toml",
        "payments.toml",
        "payments-stage2.toml",
        "payments-stages.toml",
        "auto.toml",
    ];
    let shipped = shipped.map(|f| RunConfig::load(&self::shipped(f), &[]).unwrap());
    for config in
        unusual().into_iter().chain(unusual_classify()).chain(unusual_layers()).chain(unusual_stage3()).chain(shipped)
    {
        let text = config.to_toml().unwrap();
        assert_eq!(parse(&text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}")), config, "{text}");
        assert!(!text.lines().any(|line| line.starts_with('[') && line.contains('.')), "two levels:\n{text}");
    }
}

#[test]
fn a_value_that_toml_cannot_hold_is_an_error() {
    let config = RunConfig::Stage1(Stage1Config { seed: u64::MAX, ..Stage1Config::new("data") });
    assert!(matches!(config.to_toml(), Err(Error::Config { .. })));
}

#[test]
fn the_reference_describes_every_key_and_shipped_files_comment_every_key() {
    let reference = fs::read_to_string(shipped("README.md")).unwrap();
    let [stage1, stage2, _] = unusual();
    let mut keys = vec!["synth.preset".to_string(), "synth.scale".into(), "synth.seed".into(), "stage1.config".into()];
    let [gat, _, random, _] = unusual_classify();
    let [forest, booster] = unusual_stage3();
    let auto = RunConfig::Auto(AutoConfig::new("data"));
    for config in [stage1, stage2, gat, random, forest, booster, auto] {
        for (section, value) in toml::Table::try_from(&config).unwrap() {
            match value {
                // Those of a stage are described with its own file.
                toml::Value::Table(_) if section == "stage2" => {}
                toml::Value::Table(inner) => keys.extend(inner.keys().map(|key| format!("{section}.{key}"))),
                _ => keys.push(section),
            }
        }
    }
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys {
        assert!(reference.contains(&format!("`{key}`")), "configs/README.md lacks `{key}`");
    }
    for file in [
        "quickstart.toml",
        "stage1.toml",
        "stage2.toml",
        "stage3.toml",
        "cora-gcn.toml",
        "cora-gat.toml",
        "payments.toml",
        "payments-stage2.toml",
        "payments-stages.toml",
        "auto.toml",
    ] {
        let text = fs::read_to_string(shipped(file)).unwrap();
        for line in text.lines().filter(|line| line.contains(" = ")) {
            assert!(line.contains('#'), "{file}: no comment on {line}");
        }
    }
}

#[test]
fn overrides_come_last_and_the_last_one_wins() {
    let config = stage1(STAGE1, &["train.epochs=3", "train.epochs = 5", "sampling.edges.pu=9", "name=7"]);
    assert_eq!((config.train.epochs, &*config.name), (5, "7"));
    assert_eq!((config.sampling.edges_of("pu"), config.sampling.edges_of("ps")), (9, 8_000));
    assert_eq!(stage1(STAGE1, &["data.path=other/dir"]).data.path, Path::new("other/dir"));
}

#[test]
fn unnamed_streams_take_the_default_number_of_edges() {
    let config = stage1(STAGE1, &["sampling.default_edges=77", "sampling.edges={ rur = 5 }"]).sampling;
    assert_eq!(["pu", "rur", "rtr"].map(|stream| config.edges_of(stream)), [30_000, 5, 77]);
}

#[test]
fn seeds_of_parts_follow_the_run_unless_given() {
    assert_eq!(stage2(STAGE2, &["seed=7"]).split.seed, 7);
    assert_eq!(stage2(STAGE2, &["seed=7", "split.seed=8"]).split.seed, 8);
    let Ok(RunConfig::Pipeline(config)) = parse(&format!("{PIPELINE}[synth]\n"), &["seed=7"]) else { panic!() };
    assert_eq!([config.synth.unwrap().seed, config.stage1.seed, config.stage2.split.seed], [7; 3]);
}

#[test]
fn draws_by_weight_of_stage_1_are_refused() {
    let [_, key, found, expected, help] = error(STAGE1, &["loader.mode=sampled", "loader.draw=weighted"]);
    assert_eq!([&*key, &*found], ["loader.draw", "\"weighted\""]);
    assert!(expected.contains("do not estimate") && help.contains("model.edge_weights"), "{expected}\n{help}");
}

#[test]
fn a_key_of_a_classification_that_would_be_ignored_is_refused() {
    let refused = |overrides: &[&str], key: &str, text: &str| {
        let [_, named, _, expected, _] = error(CLASSIFY, overrides);
        assert!(named == key && expected.contains(text), "{named}: {expected}");
    };
    refused(&["model.heads=2"], "model.heads", "has no attention");
    refused(&["model.layer=gat", "model.heads=3"], "model.heads", "multiple of model.heads = 3");
    refused(&["split.per_class=20"], "split.per_class", "takes the parts from the data");
    refused(&["split.use=random", "split.index=0"], "split.index", "no masks to choose from");
    refused(&["split.use=random", "split.test=0.3"], "split.test", "= 1");
    let counted = ["split.use=random", "split.per_class=20", "split.validation=0.6", "split.test=0.4"];
    refused(&counted, "split.test", "below 1");
    refused(&["train.weight_decay=-1"], "train.weight_decay", "[0, infinity)");
    refused(&["loader.fanouts=[5, 5]"], "loader.fanouts", "loader.mode = \"full\" samples nothing");
    refused(&["loader.mode=full", "loader.hot=0.5"], "loader.hot", "loader.mode = \"full\" samples nothing");
    refused(&["loader.mode=sampled", "model.layers=3", "loader.fanouts=[5, 5]"], "loader.fanouts", "3 fanouts");
    refused(&["loader.mode=sampled", "model.layers=1", "loader.fanouts=[5, 5]"], "loader.fanouts", "1 fanout");
    let by_weight = ["loader.mode=sampled", "loader.draw=weighted", "model.edge_weights=true", "loader.kappa=2"];
    refused(&by_weight[..2], "loader.draw", "with model.layer = \"gcn\" and model.edge_weights = false");
    refused(&by_weight, "loader.kappa", "0 with loader.draw = \"weighted\" and model.layer = \"gcn\"");
    for layer in ["gcn", "sage"] {
        let layer = format!("model.layer={layer}");
        let taken = [&by_weight[..3], &[layer.as_str()][..]].concat();
        assert!(parse(CLASSIFY, &taken).is_ok(), "{layer}");
    }
    refused(&["train.best=f1"], "train.best", "\"loss\" or \"accuracy\" or \"both\" or \"average_precision\"");
    refused(&["model.layer=sage", "model.jump=max"], "model.jump", "\"none\" or \"concat\"");
    refused(&["model.layer=sage", "model.heads=2"], "model.heads", "has no attention");
    refused(&["model.layer=bw", "model.order=9"], "model.order", "from 1 to 8");
    refused(&["model.layer=bw", "loader.mode=auto"], "loader.mode", "\"full\" with model.layer = \"bw\"");
    refused(&["model.layer=ghrn", "model.cut=1"], "model.cut", "[0, 1)");
    refused(&["model.layer=ghrn", "loader.mode=sampled"], "loader.mode", "with model.layer = \"ghrn\"");
    for layer in ["sage", "difference", "h2gcn"] {
        let layer = format!("model.layer={layer}");
        refused(&[layer.as_str(), by_weight[0], by_weight[1]], "loader.draw", "sums and means over all neighbours");
    }
    refused(&["loss.focal_gamma=-1"], "loss.focal_gamma", "[0, infinity)");
    refused(&["loss.lambda_unsup=0"], "loss.lambda_unsup", "a known key of [loss]: positive_weight, focal_gamma");
}

/// Keys that nothing reads under the settings before them, in every task that has them.
const UNREAD: &[(&str, &[&str], &str, &str)] = &[
    (STAGE2, &["loader.fanouts=[5, 5]"], "samples nothing", "loader.mode = \"sampled\" or \"auto\""),
    (STAGE2, &["loader.draw=latest"], "samples nothing", "which neighbours"),
    (STAGE2, &["loader.batch_size=7"], "samples nothing", "how many seeds"),
    (STAGE2, &["loader.kappa=7"], "samples nothing", "draw alike"),
    (STAGE2, &["loader.window=false"], "samples nothing", "mini-batch before"),
    (STAGE2, &["loader.hot=0.5"], "samples nothing", "stay on the device"),
    (STAGE2, &["loader.hot_by=degree"], "samples nothing", "are chosen"),
    (STAGE2, &["loader.transfer=gathered"], "samples nothing", "features"),
    (STAGE2, &["loader.mode=full", "loader.prefetch=7"], "samples nothing", "prepared ahead"),
    (STAGE2, &["loader.memory=7"], "samples nothing", "device memory"),
    (STAGE2, &["loader.mode=auto", "loader.transfer=resident", "loader.hot=0.5"], "keeps all", "\"zero_copy\""),
    (STAGE2, &["loader.mode=sampled", "loader.hot=0", "loader.hot_by=degree"], "chooses none", "above 0"),
    (STAGE2, &["loader.mode=sampled", "train.rows=all"], "computes mini-batches", "loader.mode = \"full\""),
    (STAGE2, &["loader.mode=sampled", "train.chunk_size=9"], "no chunks of rows", "loader.mode = \"full\""),
    (STAGE2, &["loader.mode=auto", "train.chunk_size=9"], "no chunks of rows", "rows of the whole graph"),
    (STAGE2, &["loader.mode=sampled", "drop_edge.rate=0.5"], "fanouts above 0", "a number of loader.fanouts to 0"),
    (STAGE2, &["train.loss_scale=8"], "only train.precision = \"f16\"", "train.precision = \"f16\""),
    (STAGE2, &["train.learning_rate_min=1e-6"], "has one step size", "train.schedule = \"cosine\""),
    (STAGE2, &["loss.lambda_unsup=0", "loss.samples_per_relation=7"], "leaves this term out", "lambda_unsup above 0"),
    (STAGE1, &["loader.fanouts=[5, 5]"], "samples nothing", "loader.mode = \"sampled\" or \"auto\""),
    (STAGE1, &["loader.batch_size=7"], "samples nothing", "how many seeds"),
    (STAGE1, &["loader.mode=sampled", "train.rows=all"], "computes mini-batches", "loader.mode = \"full\""),
    (STAGE1, &["loader.mode=auto", "train.chunk_size=9"], "no chunks of rows", "rows of the whole graph"),
    (STAGE1, &["loader.mode=auto", "loader.transfer=resident", "loader.hot=0.5"], "keeps all", "\"zero_copy\""),
    (STAGE1, &["train.precision=bf16", "train.loss_scale=8"], "only train.precision = \"f16\"", "against gradients"),
    (STAGE1, &["train.schedule=constant", "train.learning_rate_min=1e-6"], "has one step size", "\"cosine\""),
    (CLASSIFY, &["loader.batch_size=7"], "samples nothing", "how many seeds"),
    (CLASSIFY, &["model.layers=3", "loader.fanouts=[5, 5, 5]"], "[10, 10, 10], since", "neighbours of a node"),
    (CLASSIFY, &["loader.mode=auto", "loader.transfer=resident", "loader.hot=0.5"], "keeps all", "\"zero_copy\""),
    (CLASSIFY, &["train.loss_scale=8"], "only train.precision = \"f16\"", "train.precision = \"f16\""),
    (CLASSIFY, &["train.weight_decay=0", "train.decayed_layers=all"], "penalises none", "weight_decay above 0"),
    (CLASSIFY, &["split.use=random", "split.per_class=5", "split.train=0.5"], "counts the training", "per_class = 0"),
    (CLASSIFY, &["model.layer=gat", "model.edge_weights=true"], "learns what an edge counts", "\"gcn\""),
    (CLASSIFY, &["model.layer=h2gcn", "model.edge_weights=true"], "all edges the same", "\"sage\""),
    (CLASSIFY, &["model.layer=gcn", "model.residual=true"], "no transform of a node itself", "\"difference\""),
    (CLASSIFY, &["model.layer=gat", "model.jump=concat"], "no transform of a node itself", "\"sage\""),
    (CLASSIFY, &["model.layers=1", "model.norm=layer"], "has no activation", "model.layers above 1"),
    (CLASSIFY, &["model.layer=sage", "model.order=3"], "has none", "\"bw\""),
    (CLASSIFY, &["model.layer=bw", "model.cut=0.1"], "reads all edges", "\"ghrn\""),
    (CLASSIFY, &["model.layer=sage", "model.two_hops=3"], "neighbours alone", "\"h2gcn\""),
    (CLASSIFY, &["model.layer=gcn", "model.heads=2"], "has no attention", "model.layer = \"gat\""),
    (CLASSIFY, &["model.layer=sage", "model.edge_values=true"], "has no attention", "model.layer = \"gat\""),
    (CLASSIFY, &["model.layer=gat", "model.time_frequencies=3"], "reads no age", "model.time_encoding"),
    (CLASSIFY, &["split.seed=2"], "takes the parts from the data", "split.use = \"random\""),
    (STAGE2, &["split.use=masks", "split.anomalous=20"], "from the data", "split.use = \"random\""),
    (STAGE2, &["split.index=2"], "no masks to choose from", "split.use = \"masks\""),
    (STAGE3, &["split.anomalous=20", "split.normal=80", "split.train=0.5"], "count the nodes", "both to 0"),
    (STAGE3, &["model.bagging=0.5"], "model.kind = \"forest\"", "model.kind = \"booster\""),
    (STAGE3, &["model.kind=booster", "model.bootstrap=true"], "model.kind = \"booster\"", "model.kind = \"forest\""),
    (STAGE3, &["model.kind=booster", "model.focal_gamma=3"], "has none", "model.objective = \"focal\""),
    (STAGE3, &["model.kind=booster", "model.patience=0", "model.metric=auroc"], "builds all", "patience above 0"),
    (STAGE3, &["features.mean=false", "features.hops=3"], "are all false", "how far"),
    (STAGE3, &["features.wavelets=false", "features.wavelet_order=3"], "wavelets = false", "features.wavelets = true"),
    (STAGE3, &["features.stage2_folds=3"], "no section [stage2]", "add the section"),
    (PIPELINE, &["stage2.loader.hot=0.5"], "samples nothing", "\"sampled\" or \"auto\""),
    (PIPELINE, &["stage2.loader.mode=sampled", "stage2.train.rows=all"], "mini-batches", "\"full\" or \"auto\""),
    (PIPELINE, &["stage1.loader.hot=0.5"], "samples nothing", "\"sampled\" or \"auto\""),
    (PIPELINE, &["stage1.train.loss_scale=8"], "only train.precision", "train.precision = \"f16\""),
    (STAGE3, &["stage2.loader.mode=sampled", "stage2.train.chunk_size=9"], "mini-batches", "loader.mode = \"full\""),
];

#[test]
fn a_key_that_nothing_reads_is_refused_in_every_task_with_what_makes_it_work() {
    for (document, overrides, since, way_out) in UNREAD {
        let [_, key, _, expected, help] = error(document, overrides);
        assert_eq!(Some(&*key), overrides.last().unwrap().split('=').next(), "{overrides:?}: {expected}");
        assert!(expected.contains(since) && help.contains(way_out), "{overrides:?}: {expected}\n{help}");
    }
    // The line of a file is marked like that of any other error.
    let text = format!("{STAGE2}[loader]\nmode = \"full\"\nbatch_size = 7\n");
    let [origin, key, found, expected, help] = error(&text, &[]);
    assert_eq!([&*origin, &*key, &*found], ["run.toml:6", "loader.batch_size", "7"]);
    assert_eq!(expected, "its default 4096, since loader.mode = \"full\" samples nothing");
    assert!(help.starts_with("`loader.batch_size` is how many seeds a mini-batch has; set loader.mode"), "{help}");
}

#[test]
fn a_key_that_nothing_reads_may_say_its_default_and_works_where_something_reads_it() {
    let fine = |document: &str, overrides: &[&str]| {
        let read = parse(document, overrides);
        assert!(read.is_ok(), "{overrides:?}: {}", read.unwrap_err());
    };
    for (document, fanouts, batch) in
        [(STAGE1, "[15, 10]", 4096), (STAGE2, "[15, 10]", 4096), (CLASSIFY, "[10, 10]", 1024)]
    {
        let defaults =
            ["fanouts=".to_string() + fanouts, format!("batch_size={batch}"), "kappa=0".into(), "window=true".into()];
        let more = ["draw=uniform", "hot=0.2", "hot_by=presample", "transfer=auto", "prefetch=2", "memory=0"]
            .map(String::from);
        let defaults: Vec<String> = defaults.into_iter().chain(more).map(|set| format!("loader.{set}")).collect();
        fine(document, &defaults.iter().map(String::as_str).collect::<Vec<_>>());
        for mode in ["sampled", "auto"] {
            let mode = format!("loader.mode={mode}");
            fine(
                document,
                &[&mode, "loader.fanouts=[5, 5]", "loader.batch_size=7", "loader.hot=0.5", "loader.memory=3"],
            );
        }
    }
    fine(STAGE2, &["loader.mode=auto", "train.rows=all", "drop_edge.rate=0.5"]);
    fine(STAGE2, &["loader.mode=full", "train.chunk_size=9"]);
    fine(STAGE2, &["loader.mode=sampled", "loader.fanouts=[0, 5]", "drop_edge.rate=0.5"]);
    fine(STAGE2, &["loader.mode=sampled", "train.rows=reachable", "train.chunk_size=0", "drop_edge.rate=0.85"]);
    fine(STAGE1, &["train.precision=f16", "train.loss_scale=8", "train.rows=all", "train.chunk_size=9"]);
    fine(STAGE1, &["train.schedule=constant", "train.learning_rate_min=1e-5"]);
    fine(CLASSIFY, &["split.use=random", "split.per_class=5", "split.train=0.6", "split.test=0.3"]);
    fine(STAGE3, &["model.kind=booster", "model.objective=focal", "model.focal_gamma=3"]);
}

#[test]
fn what_a_run_has_kept_is_read_with_keys_that_nothing_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    for (document, overrides, since, _) in UNREAD.iter().filter(|row| !row.2.contains("model.kind")) {
        let is_of_another = since.starts_with("takes the parts") || *since == "has no attention";
        let section = |(key, value): (&str, &str)| match (key.rsplit_once('.').unwrap(), value.parse::<toml::Value>()) {
            ((section, name), Ok(_)) => format!("{section}.{name} = {value}"),
            ((section, name), Err(_)) => format!("{section}.{name} = \"{value}\""),
        };
        let settings = overrides.iter().map(|set| section(set.split_once('=').unwrap()));
        let (task, data) = document.split_once('\n').unwrap();
        let text = [task.to_string()].into_iter().chain(settings).chain([data.replace("[data]\npath", "data.path")]);
        fs::write(&path, text.collect::<Vec<_>>().join("\n")).unwrap();
        assert_eq!(
            RunConfig::load_kept(&path, &[]).is_ok(),
            !is_of_another,
            "{overrides:?}: {:?}",
            RunConfig::load_kept(&path, &[])
        );
        assert!(RunConfig::load(&path, &[]).is_err(), "{overrides:?}");
        let last = [overrides.last().unwrap().to_string()];
        assert!(RunConfig::load_kept(&path, &last).is_err(), "what is set now has to have an effect: {overrides:?}");
    }
}

#[test]
fn a_constant_schedule_ends_where_it_starts() {
    let train = stage1(STAGE1, &["train.schedule=constant", "train.learning_rate=0.01"]).train;
    assert_eq!((train.learning_rate, train.learning_rate_min), (0.01, 0.01));
    assert_eq!(stage2(STAGE2, &["train.schedule=cosine"]).train.learning_rate_min, 1e-5);
    assert_eq!(stage1(STAGE1, &["train.learning_rate=1e-7"]).train.learning_rate_min, 1e-7);
}

#[test]
fn zero_means_off_for_clipping_and_chunks() {
    let train = stage1(STAGE1, &["train.clip_norm=0", "train.chunk_size=0"]).train;
    assert_eq!((train.clip_norm, train.chunk_size), (None, None));
}

#[test]
fn embeddings_are_a_file_or_in_a_directory() {
    let file = |overrides: &[&str]| stage2(STAGE2, overrides).data.embeddings_file();
    assert_eq!(file(&[]), Path::new("data/Z_embeddings_stage1.npy"));
    assert_eq!(file(&["data.embeddings=runs/a"]), Path::new("runs/a/Z_embeddings_stage1.npy"));
    assert_eq!(file(&["data.embeddings=runs/z.npy"]), Path::new("runs/z.npy"));
}

#[test]
fn values_out_of_range_or_of_the_wrong_type_name_their_line() {
    let text = format!("{STAGE2}[drop_edge]\n# dense\nrate = 1.2\n");
    let [origin, key, found, expected, help] = error(&text, &[]);
    assert_eq!([origin, key, found, expected], ["run.toml:6", "drop_edge.rate", "1.2", "a number in [0, 1)"]);
    assert!(help.contains("0.85"), "{help}");

    for (override_, expected) in [
        ("train.epochs=0", "an integer of at least 1"),
        ("train.epochs=1.5", "an integer of at least 1"),
        ("train.epochs=99999999999999999999", "an integer of at least 1"),
        ("train.epochs=-1", "an integer of at least 1"),
        ("train.epochs={ a = 1 }", "an integer of at least 1"),
        ("seed=-1", "an integer from 0 to 2^63 - 1"),
        ("train.learning_rate=0", "a number in (0, 1]"),
        ("train.learning_rate=fast", "a number in (0, 1]"),
        ("train.clip_norm=inf", "a number in [0, infinity)"),
        ("loss.lambda_unsup=nan", "a number in [0, infinity)"),
        ("loss.positive_weight=-1", "a number in [0, infinity)"),
        ("loss.focal_gamma=-0.5", "a number in [0, infinity)"),
        ("model.dropout=1", "a number in [0, 1)"),
        ("model.label_rate=1", "a number in (0, 1)"),
        ("model.time_frequencies=17", "an integer from 1 to 16"),
        ("model.time_frequencies=0", "an integer from 1 to 16"),
        ("model.labels=1", "true or false"),
        ("early_stop.patience=-1", "an integer of at least 0"),
        ("output.plots=1", "true or false"),
        ("output.dir=''", "text that is not empty"),
        ("split.test=1", "a number in (0, 1)"),
        ("train=3", "a section"),
    ] {
        let [origin, key, _, found_expected, _] = error(STAGE2, &[override_]);
        assert_eq!((&*origin, &*found_expected), ("--set", expected), "{override_}");
        assert_eq!(key, override_.split('=').next().unwrap());
    }
    let [origin, _, found, expected, _] = error("task = \"stage1\"\nname = 3\n", &[]);
    assert_eq!([origin, found, expected], ["run.toml:2", "3", "text in quotes"]);
    let [_, key, ..] = error(STAGE1, &["name=../up"]);
    assert_eq!(key, "name");
    // What runs of stages are called has to fit, too.
    for (of, longest) in [(PIPELINE.to_owned(), 93), (format!("{PIPELINE}[stage3]\nmodel.trees = 9\n"), 86)] {
        assert!(parse(&of, &[&format!("name={}", "a".repeat(longest))]).is_ok(), "{of}");
        let [_, key, _, expected, help] = error(&of, &[&format!("name={}", "a".repeat(longest + 1))]);
        assert_eq!(key, "name");
        assert!(expected.contains(&format!("at most {longest}")) && help.contains("shorten it"), "{expected}: {help}");
    }
}

#[test]
fn unknown_keys_name_their_line_and_the_nearest_known_key() {
    let [origin, key, _, _, help] = error(&format!("{STAGE2}[drop_edge]\nrat = 0.5\n"), &[]);
    assert_eq!([origin, key, help], ["run.toml:5", "drop_edge.rat", "did you mean `drop_edge.rate`?"]);
    for (override_, help) in [
        ("epochs=3", "did you mean `train.epochs`?"),
        ("dropedge.rate=0.5", "did you mean `drop_edge.rate`?"),
        ("train.lr=0.5", "configs/README.md describes every key"),
        ("tasks=stage1", "did you mean `task`?"),
    ] {
        let [origin, key, _, _, found_help] = error(STAGE2, &[override_]);
        assert_eq!((&*origin, &*found_help), ("--set", help), "{override_}");
        assert_eq!(key, override_.split('=').next().unwrap());
    }
    let [_, key, ..] = error(STAGE1, &["drop_edge.rate=0.5"]);
    assert_eq!(key, "drop_edge.rate", "a key of the other stage is unknown");
    let [_, key, ..] = error(&format!("{STAGE1}[modle]\n"), &[]);
    assert_eq!(key, "modle", "even without keys");
    let [origin, ..] = error("task = \"stage1\"\n[data]\npaht = \"x\"\n", &[]);
    assert_eq!(origin, "run.toml:3", "the misspelt key, rather than the missing one");
}

#[test]
fn names_of_choices_are_suggested() {
    let [_, key, found, expected, help] = error(STAGE1, &["train.precision=fp16"]);
    assert_eq!([&*key, &*found], ["train.precision", "\"fp16\""]);
    assert_eq!((&*expected, &*help), ("\"f32\" or \"f16\" or \"bf16\"", "did you mean \"f16\"?"));
    let [origin, key, ..] = error("task = \"stage4\"\n", &[]);
    assert_eq!([origin, key], ["run.toml:1", "task"]);
}

#[test]
fn columns_of_trees_are_named_as_the_user_names_them() {
    let shared = |text: &str, overrides: &[&str]| match parse(&format!("{STAGE3}{text}"), overrides) {
        Ok(RunConfig::Stage3(config)) => config.model.shared().clone(),
        other => panic!("{other:?}"),
    };
    let text = "[model]\nmonotone = { amount = 1, \"mean1.x3\" = -1 }\ncategorical = [\"code\"]\n\
                interactions = [[\"amount\", \"age\"], [\"code\"]]\n";
    let read = shared(text, &["model.monotone.age=1", "model.monotone.\"mean1.x3\"=1"]);
    let monotone: Vec<(&str, i8)> = read.monotone.iter().map(|(name, &sign)| (name.as_str(), sign)).collect();
    assert_eq!(monotone, [("age", 1), ("amount", 1), ("mean1.x3", 1)]);
    assert_eq!((read.categorical, read.interactions.len()), (vec!["code".to_string()], 2));
    assert_eq!(shared("[model.monotone]\namount = -1\n", &[]).monotone["amount"], -1);
    for (override_, expected) in [
        ("model.monotone.amount=2", "1 or -1"),
        ("model.monotone=1", "a section"),
        ("model.categorical=code", "a list of names, such as [\"code\"]"),
        ("model.interactions=[\"amount\"]", "lists of names, such as [[\"amount\", \"age\"]]"),
        ("model.kind=booster model.min_sum_hessian=-1", "a number in [0, infinity)"),
        ("features.quantiles=[0.5,1.5]", "a list of at most 16 numbers in [0, 1], such as [0.25, 0.5, 0.75]"),
    ] {
        let found = error(STAGE3, &override_.split(' ').collect::<Vec<_>>());
        assert_eq!(found[3], expected, "{override_}");
    }
    let [_, key, _, expected, _] = error(STAGE3, &["model.monotone={ code = 1 }", "model.categorical=[\"code\"]"]);
    assert!(key == "model.categorical" && expected.contains("`code` in one of"), "{expected}");
    assert_eq!(error(STAGE3, &["model.monotne={ a = 1 }"])[4], "did you mean `model.monotone`?");
    assert_eq!(error(STAGE3, &["model.min_sum_hessian=1"])[1], "model.min_sum_hessian", "of a booster");
}

#[test]
fn missing_required_keys_are_named_with_a_way_out() {
    let [origin, key, found, ..] = error("name = \"a\"\n", &[]);
    assert_eq!([origin, key, found], ["run.toml", "task", "nothing"]);
    let [_, key, _, _, help] = error("task = \"stage1\"\n", &[]);
    assert_eq!(key, "data.path");
    assert!(help.contains("--set data.path="), "{help}");
}

#[test]
fn settings_that_contradict_each_other_are_rejected() {
    let [_, key, _, expected, _] = error(STAGE2, &["split.train=0.7"]);
    assert_eq!(key, "split.train");
    assert!(expected.contains("1.1"), "{expected}");
    assert_eq!(error(STAGE2, &["model.heads=3"])[1], "model.heads");
    assert_eq!(error(STAGE2, &["split.anomalous=20"])[1], "split.normal");
    assert_eq!(error(STAGE3, &["split.normal=20"])[1], "split.anomalous");
    assert_eq!(error(CLASSIFY, &["split.use=random", "split.anomalous=20"])[1], "split.anomalous", "of labels alone");
    assert_eq!(error(STAGE2, &["data.input=features", "data.embeddings=z.npy"])[1], "data.embeddings");
    assert_eq!(error(STAGE1, &["train.learning_rate_min=0.5"])[1], "train.learning_rate_min");
}

#[test]
fn a_pipeline_decides_what_its_stages_share() {
    for key in ["seed", "name", "data.path", "output.dir", "data.embeddings", "task"] {
        let [_, found, ..] = error(PIPELINE, &[&format!("stage2.{key}=1")]);
        assert!(format!("stage2.{key}").starts_with(&found), "{found}");
    }
    let [_, key, _, _, help] = error(PIPELINE, &["stage1.train.epoch=1"]);
    assert_eq!([&*key, &*help], ["stage1.train.epoch", "did you mean `stage1.train.epochs`?"]);
    let [_, key, ..] = error(PIPELINE, &["train.epochs=1"]);
    assert_eq!(key, "train.epochs");
}

#[test]
fn a_pipeline_may_have_a_third_stage_on_what_the_others_learned() {
    let third = |overrides: &[&str]| {
        let Ok(RunConfig::Pipeline(config)) = parse(PIPELINE, overrides) else { panic!("{overrides:?}") };
        config
    };
    assert_eq!(third(&[]).stage3, None);
    let config = third(&["stage3.model.trees=7", "stage2.train.epochs=3", "stage2.split.seed=9", "seed=5"]);
    let stage3 = config.stage3.clone().unwrap();
    let Stage3Features { embedding, reconstruction, stage2_score, .. } = stage3.features;
    assert_eq!([embedding, reconstruction, stage2_score], [true; 3]);
    assert_eq!((stage3.seed, stage3.split.seed, &stage3.data.path), (5, 9, &config.data.path));
    let folded = stage3.stage2.unwrap();
    assert_eq!((folded.train.epochs, folded.split), (3, config.stage2.split.clone()));
    let none = third(&["stage3.features.stage2_score=false"]).stage3.unwrap();
    assert_eq!(none.stage2, None);
    for config in [config, third(&["stage3.features.stage2_score=false", "stage3.model.kind=booster"])] {
        let text = RunConfig::Pipeline(config.clone()).to_toml().unwrap();
        assert_eq!(parse(&text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}")), RunConfig::Pipeline(config), "{text}");
    }
    for key in ["split.train", "stage2.train.epochs", "data.embeddings", "seed"] {
        let [_, found, ..] = error(PIPELINE, &[&format!("stage3.{key}=1")]);
        assert!(format!("stage3.{key}").starts_with(&found), "{found}");
    }
}

#[test]
fn a_pipeline_describes_its_marketplace() {
    let Ok(RunConfig::Pipeline(config)) = parse(PIPELINE, &["synth.preset=electronics", "synth.scale=0.5", "seed=3"])
    else {
        panic!()
    };
    let synth = config.synth.unwrap();
    assert_eq!((synth.preset, synth.scale, synth.seed), (Preset::Electronics, 0.5, 3));
    let [_, key, _, _, help] = error(PIPELINE, &["synth.preset=electronic"]);
    assert_eq!([&*key, &*help], ["synth.preset", "did you mean \"electronics\"?"]);
}

#[test]
fn errors_in_a_stage_file_name_that_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("one.toml"), "task = \"stage1\"\n[train]\nepochs = 0\n").unwrap();
    fs::write(path("run.toml"), format!("{PIPELINE}[stage1]\nconfig = \"one.toml\"\n")).unwrap();
    let load = |overrides: &[&str]| {
        RunConfig::load(&path("run.toml"), &overrides.iter().map(|o| o.to_string()).collect::<Vec<_>>())
    };
    let Err(Error::Config { origin, key, .. }) = load(&[]) else { panic!() };
    assert_eq!((origin.to_string(), &*key), (format!("{}:3", path("one.toml").display()), "train.epochs"));
    assert!(load(&["stage1.train.epochs=2"]).is_ok(), "the pipeline's own key replaces the bad one");

    let Err(Error::Config { key, help, .. }) = load(&["stage1.config=missing.toml"]) else { panic!() };
    assert_eq!((&*key, &*help), ("stage1.config", "there is no file missing.toml"));
    let swapped = format!("stage2.config='{}'", path("one.toml").display());
    let Err(Error::Config { key, expected, .. }) = load(&["stage1.train.epochs=2", &swapped]) else { panic!() };
    assert_eq!((&*key, &*expected), ("task", "\"stage2\""));
}

#[test]
fn a_missing_file_is_a_usage_error() {
    let error = RunConfig::load(Path::new("no/such.toml"), &[]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("no/such.toml"), "{error}");
}
