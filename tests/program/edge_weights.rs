//! Weights of edges: in the layers of a classifier and of the auto-encoder and in draws of neighbours, from a table to
//! scores.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use burn_flex::Flex;
use graphsieve::config::{Draw, LayerKind, RunConfig};
use graphsieve::graph::{
    Adjacency, Dataset, EdgeMatrix, EdgeValues, Features, HeteroGraph, RelationSpec, Spill, Values, read_embeddings,
};
use graphsieve::infer::embed::Stage1;
use graphsieve::infer::sampled_input::SampledInput;
use graphsieve::models::node_classifier::{AttentionShape, ClassifierSpec};
use graphsieve::sampler::{Fanout, NeighbourSampler, SamplerConfig, weights_of};
use graphsieve::score::explain::Explanation;
use ndarray::Array2;
use ndarray_npy::ReadNpyExt;

use crate::causal::{
    ALL, ByName, LATER, Leak, Past, Payment, WINDOW, before, changed, dataset_with, payments, run, stage1,
};
use crate::explain::assert_adds_up;
use crate::support::Sandbox;

const NODES: &str = "[[nodes]]\ntype = \"account\"\nfile = \"accounts.csv\"\nid = \"id\"\nlabel = \"fraud\"\n\
                     features = { kind = \"numeric\" }\n";
const EDGES: &str = "[[edges]]\nname = \"pays\"\nfile = \"payments.csv\"\nsrc = \"account.from\"\n\
                     dst = \"account.to\"\none_way = true\n";
const ACCOUNTS: usize = 240;

/// Accounts of two kinds, each paid by three of either kind. What tells fraud is which kind pays much; how much is paid
/// in all is the same. Import's own columns (`mean_weight`, `max_weight`) of the payers tell it, too.
fn told_by_weights(sandbox: &Sandbox) {
    let is_fraud = |account: usize| account / 2 % 4 == 1;
    let mut nodes = String::from("id,kind,fraud\n");
    let mut edges = String::from("from,to,amount\n");
    for account in 0..ACCOUNTS {
        writeln!(nodes, "a{account},{},{}", account % 2, u8::from(is_fraud(account))).unwrap();
        for at in 1..=6 {
            let from = (account * 5 + at * 17) / 2 * 2 % ACCOUNTS + at % 2;
            let amount = if (at % 2 == 1) == is_fraud(account) { 40 } else { 1 };
            writeln!(edges, "a{from},a{account},{amount}").unwrap();
        }
    }
    sandbox.write("accounts.csv", nodes);
    sandbox.write("payments.csv", edges);
    import(sandbox, "weight = \"amount\"\n", "data");
}

fn import(sandbox: &Sandbox, weight: &str, out: &str) {
    sandbox.write("graph.toml", format!("{NODES}{EDGES}{weight}"));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", out]);
}

const CLASSIFY: &str = "task = \"classify\"\nname = \"weights\"\n[data]\npath = \"data\"\nrow_normalise = false\n[model]\n\
                        hidden = 8\nlayers = 1\ndropout = 0.0\nedge_weights = true\n[train]\nepochs = 150\n\
                        learning_rate = 0.1\n[split]\nuse = \"labels\"\n[output]\ndir = \"runs\"\nplots = false\n";

fn probabilities(sandbox: &Sandbox, file: &str) -> Array2<f32> {
    Array2::read_npy(fs::File::open(sandbox.path(file)).unwrap()).unwrap()
}

#[test]
fn a_classifier_reads_weights_and_its_run_scores_and_explains_with_them() {
    let sandbox = Sandbox::new();
    told_by_weights(&sandbox);
    sandbox.write("classify.toml", CLASSIFY);
    let trained = |dir: &str, more: &[&str]| {
        let dir = format!("output.dir={dir}");
        let train = ["--quiet", "train", "classify.toml", "--device", "cpu", "--set", &dir];
        sandbox.succeeds([&train[1..], more].concat());
        let run = sandbox.only_run(&dir[11..]);
        let evaluation = sandbox.read(&format!("{run}/evaluation.json"));
        let evaluation: serde_json::Value = serde_json::from_slice(&evaluation).unwrap();
        (run, evaluation["test"]["macro_f1"].as_f64().unwrap())
    };
    let (run, with) = trained("with", &[]);
    let in_batches = ["--set", "loader.mode=sampled", "--set", "loader.fanouts=[0]", "--set", "loader.batch_size=50"];
    let (sampled_run, sampled) = trained("sampled", &in_batches);
    assert!(with > 0.95 && sampled > 0.95, "{with} on the whole graph, {sampled} in batches");

    // Scores of the run are those of its training, of the same data given anew, and of the other way to compute them.
    for run in [&run, &sampled_run] {
        let score = ["--quiet", "score", run, "--data", "data", "--out", "again.npy", "--force", "--device", "cpu"];
        sandbox.succeeds(score);
        assert_eq!(probabilities(&sandbox, "again.npy"), probabilities(&sandbox, &format!("{run}/probabilities.npy")));
    }
    // What explains a score adds up to it.
    let explain = ["--quiet", "explain", &run, "--class", "1", "--node", "account:a3", "--format", "json"];
    let found: Explanation = serde_json::from_str(&sandbox.succeeds(explain).stdout).unwrap();
    let probability = f64::from(probabilities(&sandbox, &format!("{run}/probabilities.npy"))[[3, 1]]);
    assert_adds_up(&found, (probability / (1.0 - probability)).ln());

    // Data whose edges have no weights are no data of this model, and cannot train one.
    import(&sandbox, "", "plain");
    let plain = ["score", &run, "--data", "plain", "--out", "plain.npy", "--device", "cpu"];
    sandbox.refuses(
        plain,
        1,
        &["feature columns: expected the 11 of the training", "without", "`pays.in_mean_weight`"],
    );
    let plain = ["train", "classify.toml", "--device", "cpu", "--set", "data.path=plain"];
    sandbox.refuses(plain, 2, &["model.edge_weights", "weights of edges", "[[edges]]"]);
}

#[test]
fn a_weight_below_zero_is_refused_with_its_place() {
    let sandbox = Sandbox::new();
    told_by_weights(&sandbox);
    sandbox.write("classify.toml", CLASSIFY);
    sandbox.edit("payments.csv", |table| {
        let text = String::from_utf8(table.clone()).unwrap();
        *table = text.replacen(",40\n", ",-40\n", 1).into_bytes();
    });
    import(&sandbox, "weight = \"amount\"\n", "negative");
    let train = ["train", "classify.toml", "--device", "cpu", "--set", "data.path=negative"];
    sandbox.refuses(train, 1, &["pays_weight.bin", "weight of entry", "0 to 1e12", "found -40"]);
    let stays = fs::read_dir(sandbox.path("runs")).map_or(0, Iterator::count);
    assert_eq!(stays, 0, "no run was begun");
}

const STAGE1: &str = "task = \"stage1\"\n[data]\npath = \"data\"\n[model]\nhidden = 8\nout = 4\nedge_weights = true\n\
                      [train]\nepochs = 2\n[output]\ndir = \"runs\"\nplots = false\n";

/// Gives the edges of `pays` in a data directory their weights in the opposite order.
fn turn_weights(sandbox: &Sandbox, data: &str) {
    fs::remove_file(sandbox.path(&format!("{data}/SHA256SUMS"))).unwrap();
    sandbox.edit(&format!("{data}/pays_weight.bin"), |bytes| {
        let turned: Vec<u8> = bytes.chunks_exact(4).rev().flatten().copied().collect();
        assert!(turned != *bytes);
        *bytes = turned;
    });
}

#[test]
fn an_auto_encoder_reads_weights_and_embeds_other_data_with_theirs() {
    let sandbox = Sandbox::new();
    told_by_weights(&sandbox);
    sandbox.write("stage1.toml", STAGE1);
    let trained = |dir: &str, more: &[&str]| {
        let dir = format!("output.dir={dir}");
        sandbox.succeeds([&["train", "stage1.toml", "--device", "cpu", "--set", &dir], more].concat());
        let run = sandbox.only_run(&dir[11..]);
        let z = sandbox.read(&format!("{run}/Z_embeddings_stage1.npy"));
        (run, z)
    };
    let (run, z) = trained("with", &[]);
    let (_, plain) = trained("without", &["--set", "model.edge_weights=false"]);
    assert!(plain != z);
    let (in_chunks, of_chunks) = trained("chunks", &["--set", "train.chunk_size=9"]);

    // The same data imported anew, and with other weights alone.
    let embedded = |run: &str, data: &str| {
        sandbox.succeeds(["--quiet", "embed", run, "--device", "cpu", "--out", "z.npy", "--force", "--data", data]);
        sandbox.read("z.npy")
    };
    import(&sandbox, "weight = \"amount\"\n", "again");
    for (run, z) in [(&run, &z), (&in_chunks, &of_chunks)] {
        assert!(embedded(run, "data") == *z && embedded(run, "again") == *z, "{run}");
    }
    turn_weights(&sandbox, "again");
    for (run, z) in [(&run, &z), (&in_chunks, &of_chunks)] {
        assert!(embedded(run, "again") != *z, "{run}");
    }

    // Data whose edges have no weights are no data of this model, and cannot train one.
    import(&sandbox, "", "plain");
    let checkpoint = format!("{run}/checkpoint/best.bpk");
    let embed = ["embed", &checkpoint, "--device", "cpu", "--out", "p.npy", "--data", "plain"];
    sandbox.refuses(embed, 1, &["plain: relation `pays`", "expected weights of its edges", "found none", "[[edges]]"]);
    let train = ["train", "stage1.toml", "--device", "cpu", "--set", "output.dir=refused", "--set"];
    sandbox.refuses([&train[..], &["data.path=plain"]].concat(), 2, &["model.edge_weights", "[[edges]]"]);
    sandbox.edit("again/pays_weight.bin", |bytes| bytes[8..12].copy_from_slice(&(-1f32).to_le_bytes()));
    let parts = ["pays_weight.bin", "weight of entry 2 of `pays`", "0 to 1e12", "found -1"];
    sandbox.refuses([&train[..], &["data.path=again"]].concat(), 1, &parts);
}

#[test]
fn relations_without_weights_pass_as_they_are_and_stay_so() {
    let sandbox = Sandbox::new();
    told_by_weights(&sandbox);
    let rows: String = (0..ACCOUNTS).map(|at| format!("a{at},a{},2\n", (at + 7) % ACCOUNTS)).collect();
    sandbox.write("knows.csv", format!("from,to,strength\n{rows}"));
    let knows = EDGES.replace("pays", "knows").replace("payments.csv", "knows.csv");
    for (weight, out) in [("", "one"), ("weight = \"strength\"\n", "both")] {
        sandbox.write("graph.toml", format!("{NODES}{EDGES}weight = \"amount\"\n{knows}{weight}"));
        sandbox.succeeds(["import", "tables", "graph.toml", "--out", out]);
    }
    sandbox.write("stage1.toml", STAGE1);
    sandbox.succeeds(["--quiet", "train", "stage1.toml", "--device", "cpu", "--set", "data.path=one"]);
    let run = sandbox.only_run("runs");
    let checkpoint = format!("{run}/checkpoint/best.bpk");
    let embed = ["--quiet", "embed", &checkpoint, "--device", "cpu", "--out", "z.npy", "--data"];
    sandbox.succeeds([&embed[..], &["one"]].concat());
    assert!(sandbox.read("z.npy") == sandbox.read(&format!("{run}/Z_embeddings_stage1.npy")));
    let parts = ["both: relation `knows`", "expected no weights of its edges", "found some"];
    sandbox.refuses([&embed[..], &["both", "--force"]].concat(), 1, &parts);
}

#[test]
fn a_pipeline_scores_other_data_with_embeddings_by_their_weights() {
    let sandbox = Sandbox::new();
    told_by_weights(&sandbox);
    let text = "task = \"pipeline\"\n[data]\npath = \"data\"\n[output]\nplots = false\ndir = \"runs\"\n[stage1]\n\
                train.epochs = 2\nmodel.hidden = 8\nmodel.out = 8\nmodel.edge_weights = true\n[stage2]\n\
                train.epochs = 2\nmodel.hidden = 8\nmodel.out = 8\n";
    sandbox.write("pipeline.toml", text);
    sandbox.succeeds(["--quiet", "train", "pipeline.toml", "--device", "cpu"]);
    let mut runs =
        fs::read_dir(sandbox.path("runs")).unwrap().map(|run| run.unwrap().file_name().into_string().unwrap());
    let run = format!("runs/{}", runs.find(|run| run.ends_with("-pipeline-stage2")).unwrap());
    let scored = |data: &str| {
        let score = ["--quiet", "score", &run, "--device", "cpu", "--out", "s.npy", "--force", "--data", data];
        sandbox.succeeds(score);
        sandbox.read("s.npy")
    };
    import(&sandbox, "weight = \"amount\"\n", "again");
    let scores = sandbox.read(&format!("{run}/anomaly_scores_stage2.npy"));
    assert!(scored("again") == scores);
    turn_weights(&sandbox, "again");
    assert!(scored("again") != scores);
}

/// Payments that weigh by their amounts: among those of their customers, and among the earlier ones of later payments,
/// where these are no spans.
fn by_amounts(payments: &[Payment], past: Past) -> Dataset {
    let mut data = dataset_with(payments, Leak::Nothing, past);
    let (features, first) = (data.features.as_ref().unwrap(), data.graph.node_types()[2].offset);
    let amount = |payment: u32| 1.0 + 9.0 * features.row(first + payment as usize).next().unwrap();
    let weights = |relation: usize, weight: &dyn Fn(u32, u32) -> f32| {
        let of = &data.graph.relations()[relation];
        let rows = 0..of.forward.num_rows() as u32;
        let of_row = |row: u32| of.forward.row(row as usize).iter().map(move |&source| weight(row, source));
        let weight = Some(Values::Made(rows.flat_map(of_row).collect()));
        EdgeValues { relation: of.name.clone(), weight, time: None, columns: None }
    };
    let mut values = vec![weights(0, &|payment, _| amount(payment))];
    if !data.graph.relations()[2].forward.is_spans() {
        values.push(weights(2, &|_, earlier| amount(earlier)));
    }
    data.edge_values = values;
    data
}

#[test]
fn weights_of_later_edges_change_no_earlier_embedding() {
    for past in [Past::Copies, ALL] {
        let (now, end) = (payments(), WINDOW.known_until());
        let columns = |payments: &[Payment], time: i64, z: &Array2<f32>| -> Vec<ByName> {
            z.columns().into_iter().map(|column| before(payments, time, &column.to_vec())).collect()
        };
        let trained = |payments: &[Payment]| {
            let (dir, data) = (tempfile::tempdir().unwrap(), by_amounts(payments, past));
            data.write(&dir.path().join("data")).unwrap();
            let mut config = stage1(dir.path());
            config.model.edge_weights = true;
            let run = run(RunConfig::Stage1(config));
            let z = read_embeddings(run.join("Z_embeddings_stage1.npy"), Some(data.graph.num_nodes())).unwrap();
            (columns(payments, end, &z), run, dir)
        };
        // Of a training that ended before them, and by a model as it is.
        let (z, run, _dir) = trained(&now);
        assert!(z == trained(&changed(&now, end, WINDOW.test[0] + 1)).0, "a training");
        let model = Stage1::open(&run).unwrap();
        let embed = |data: &Dataset| {
            let z = model.embed::<Flex>(data, Path::new("data"), &Spill::default(), &Default::default())?;
            Ok::<_, graphsieve::Error>(z.as_f32().to_owned())
        };
        let of = |payments: &[Payment]| columns(payments, LATER, &embed(&by_amounts(payments, past)).unwrap());
        assert!(of(&now) == of(&changed(&now, LATER, LATER)), "a model");

        // They count, and none is an error.
        let mut data = by_amounts(&now, past);
        for values in &mut data.edge_values {
            let Some(Values::Made(weights)) = &mut values.weight else { panic!("weights were made") };
            *weights = weights.iter().rev().copied().collect();
        }
        assert!(columns(&now, LATER, &embed(&data).unwrap()) != of(&now));
        data.edge_values.clear();
        let error = embed(&data).unwrap_err().to_string();
        assert!(error.contains("data: relation `paid_by`: expected weights of its edges"), "{error}");
    }
}

const STAGE2: &str = "task = \"stage2\"\n[data]\npath = \"data\"\ninput = \"features\"\n[model]\nhidden = 8\nout = 8\n[train]\n\
                      epochs = 2\n[loss]\nsamples_per_relation = 50\n[loader]\nmode = \"sampled\"\nfanouts = [2, 2]\n\
                      draw = \"weighted\"\n[output]\ndir = \"runs\"\nplots = false\n";

#[test]
fn mini_batches_are_drawn_by_weights_of_data_that_have_any() {
    let sandbox = Sandbox::new();
    told_by_weights(&sandbox);
    sandbox.write("stage2.toml", STAGE2);
    let trained = |dir: &str, more: &[&str]| {
        let dir = format!("output.dir={dir}");
        let train = ["train", "stage2.toml", "--device", "cpu", "--set", &dir];
        sandbox.succeeds([&train[..], more].concat());
        sandbox.read(&format!("{}/anomaly_scores_stage2.npy", sandbox.only_run(&dir[11..])))
    };
    let weighted = trained("weighted", &[]);
    assert!(weighted == trained("again", &[]) && weighted != trained("even", &["--set", "loader.draw=uniform"]));
    import(&sandbox, "", "plain");
    let plain = ["train", "stage2.toml", "--device", "cpu", "--set", "data.path=plain"];
    sandbox.refuses(plain, 2, &["loader.draw", "weights of edges", "[[edges]]"]);
    // Attention takes what is drawn; sums and means over all neighbours need edges that count by their weight.
    sandbox.write("classify.toml", CLASSIFY.replace("edge_weights = true\n", ""));
    let classify = ["train", "classify.toml", "--device", "cpu", "--set", "loader.mode=sampled", "--set"];
    let classify = [&classify[..], &["loader.draw=weighted", "--set", "loader.fanouts=[2]", "--set", "train.epochs=2"]];
    let classify = classify.concat();
    sandbox.refuses(classify.clone(), 2, &["loader.draw", "model.layer = \"gcn\""]);
    let gat = ["--set", "model.layer=gat", "--set", "model.heads=2", "--set", "output.dir=gat"];
    sandbox.succeeds([&classify[..], &gat].concat());
    for layer in ["gcn", "sage"] {
        let (layer, dir) = (format!("model.layer={layer}"), format!("output.dir={layer}"));
        let more = ["--set", &layer, "--set", &dir, "--set", "model.edge_weights=true"];
        sandbox.succeeds([&classify[..], &more].concat());
    }
}

/// A ring with chords, some of which weigh nothing, and others much; a few nodes have an edge to themselves.
fn ring(nodes: u32) -> HeteroGraph {
    let chords = (0..nodes).flat_map(|node| (1..12).map(move |step| (node, (node + step * step) % nodes)));
    let edges: Vec<(u32, u32)> = chords.chain([(0, 0), (4, 4)]).collect();
    let adjacency = Adjacency::from_edges(nodes as usize, nodes as usize, &edges);
    let weights = (0..adjacency.num_edges()).map(|entry| [0.0, 1.0, 1e9, 0.5][entry % 4]).collect();
    let spec = RelationSpec::new("edge", 0, 0, adjacency);
    let mut graph = HeteroGraph::new(vec![("node".into(), nodes as usize)], vec![spec]).unwrap();
    graph.set_edge_weights("edge", Arc::new(EdgeMatrix::new(weights, 1)));
    graph
}

#[test]
fn an_edge_that_weighs_nothing_is_never_drawn_and_attention_draws_itself() {
    let nodes = 200;
    let graph = ring(nodes);
    let forward = graph.relations()[0].forward.clone();
    let weight_of = |row: u32, col: u32| {
        let entries = forward.entries(row as usize).zip(forward.row(row as usize));
        let weights = graph.relations()[0].weights.as_ref().unwrap();
        entries.filter(|(_, of)| **of == col).map(|(entry, _)| weights.row(entry)[0]).sum::<f32>()
    };
    let seeds: Vec<u32> = (0..nodes).collect();
    let attention = Some(AttentionShape { heads: 1, out_heads: 1, negative_slope: 0.2, dropout: 0.0 });
    let spec = ClassifierSpec { attention, directed: true, ..ClassifierSpec::new(LayerKind::Gat, [1, 4, 2], 1) };
    let features = Features::from_f32(vec![1.0; nodes as usize], nodes as usize, 1);
    let input = SampledInput::new(&spec, &graph, &features, burn::tensor::DType::F32).unwrap();
    let shared = Arc::new(graph.clone());
    for kappa in [0, 3] {
        let dependency = (kappa > 0).then_some(kappa as u32);
        let settings = SamplerConfig {
            draw: Draw::Weighted,
            dependency,
            weights: weights_of(&graph),
            ..SamplerConfig::new(&[Fanout::Most(4)], 1)
        };
        let plain = NeighbourSampler::new(shared.clone(), settings).unwrap();
        for (sampler, draws_itself) in
            [(plain, false), (input.sampler(&[4], (Draw::Weighted, kappa), 0).unwrap(), true)]
        {
            let mut scratch = sampler.scratch();
            let (mut drawn, mut heavy) = (HashSet::new(), 0);
            for number in 0..40 {
                let batch = sampler.sample(&mut scratch, number, std::slice::from_ref(&seeds)).unwrap();
                let block = &batch.blocks[0][0];
                for row in 0..nodes {
                    let cols = block.cols[block.row(row as usize)].iter().map(|&place| batch.nodes[0][place as usize]);
                    let (own, others): (Vec<u32>, Vec<u32>) = cols.partition(|&col| draws_itself && col == row);
                    assert_eq!((own.len(), others.len()), (usize::from(draws_itself), 4), "node {row}");
                    assert!(others.iter().all(|&col| weight_of(row, col) > 0.0), "node {row}: {others:?}");
                    heavy += others.iter().filter(|&&col| weight_of(row, col) >= 1e9).count();
                    drawn.extend(others.into_iter().map(|col| (row, col)));
                }
            }
            // Of eleven or twelve edges a quarter is heavy: they come first, and light ones take turns.
            assert!(heavy as f64 > 0.6 * 160.0 * f64::from(nodes), "{heavy}");
            assert!(drawn.len() > 6 * nodes as usize, "{}", drawn.len());
        }
    }
    let without = Dataset::new(HeteroGraph::new(vec![("node".into(), 1)], Vec::new()).unwrap(), None, None, None);
    assert!(without.check_edge_weights("loader.draw").unwrap_err().to_string().contains("loader.draw"));
    let config = SamplerConfig { draw: Draw::Weighted, ..SamplerConfig::new(&[Fanout::Most(4)], 0) };
    let error = NeighbourSampler::new(Arc::new(without.graph), config).unwrap_err().to_string();
    assert!(error.contains("without weights of edges"), "{error}");
}
