//! What the choice of a tournament is worth, through `graphsieve bench auto`: few labels, masks of the data, and splits
//! side by side.

use graphsieve::graph::{Classes, Dataset, Masks};

use crate::auto::json;
use crate::support::Sandbox;

#[test]
fn few_labels_and_the_regret_of_a_choice_are_measured() {
    let sandbox = Sandbox::with_data();
    let bench = ["bench", "auto", "--data", "data", "--splits", "2", "--minutes", "0.1", "--device", "cpu"];
    let more = [
        "--set",
        "auto.candidates=[\"forest-means\", \"booster-small\"]",
        "--set",
        "split.anomalous=10",
        "--set",
        "split.normal=12",
        "--json",
        "auto.json",
    ];
    let said = sandbox.succeeds([&bench[..], &more].concat());
    assert!(said.stdout.contains("regret: ") && said.stdout.contains("booster-small"), "{}", said.stdout);
    let report = json(&sandbox.read("auto.json"));
    let splits = report["splits"].as_array().unwrap();
    assert_eq!((splits.len(), &splits[0]["split"], &splits[1]["split"]), (2, &42.into(), &43.into()));
    assert!(report["candidates"].as_array().unwrap().len() >= 2 && report["regret"]["mean"].is_f64(), "{report}");
    sandbox.refuses([&bench[..], &["--set", "split.anomalous=20"]].concat(), 2, &["split.normal"]);
}

#[test]
fn splits_in_processes_side_by_side_have_the_figures_of_splits_in_turn() {
    let sandbox = Sandbox::with_data();
    let bench = |splits: &'static str, jobs: &'static str| {
        let fixed = ["bench", "auto", "--data", "data", "--minutes", "10", "--device", "cpu", "--splits", splits];
        [&fixed[..], &["--jobs", jobs]].concat()
    };
    let set = ["--set", r#"auto.candidates=["forest-raw", "forest-means"]"#, "--set", "seed=7"];
    let figures = |jobs: &'static str| {
        let file = format!("of-{jobs}.json");
        let said = sandbox.succeeds([&bench("3", jobs)[..], &set, &["--json", &file]].concat()).stdout;
        let mut report = json(&sandbox.read(&file));
        assert_eq!(report["jobs"].to_string(), jobs);
        assert!(
            report["splits"].as_array().unwrap().iter().all(|split| split["seconds"].as_f64() > Some(0.0)),
            "{report}"
        );
        // All but the time.
        for split in report["splits"].as_array_mut().unwrap() {
            split["seconds"].take();
            split["candidates"].as_array_mut().unwrap().iter_mut().for_each(|of| drop(of["seconds"].take()));
        }
        (said, report["splits"].take(), [report["picked"].take(), report["regret"].take(), report["best"].take()])
    };
    let ((alone, splits, sums), (beside, same, again)) = (figures("1"), figures("2"));
    assert_eq!((&splits, sums), (&same, again));
    assert_eq!((&splits[0]["split"], &splits[2]["split"]), (&7.into(), &9.into()), "in their order");
    assert!(alone.contains("one after the other") && beside.contains("2 at a time on the same device"), "{beside}");
    sandbox.refuses(bench("1", "0"), 2, &["--jobs", "at least 1"]);
    // What one of the processes runs into is told, with its split.
    let many = ["--set", "split.anomalous=9000", "--set", "split.normal=9000"];
    sandbox.refuses([&bench("1", "2")[..], &many].concat(), 1, &["split 42", "split.normal = 9000", "--jobs 1"]);
}

#[test]
fn the_regret_over_the_masks_of_the_data_is_measured() {
    let sandbox = Sandbox::with_data();
    let made = Dataset::open(&sandbox.path("data")).unwrap();
    let labels = made.labels.clone().unwrap();
    let nodes = |shift: usize, parts: &[usize]| -> Vec<u32> {
        let of = |(at, &(node, _)): (usize, &(u32, u8))| parts.contains(&((at + shift) % 5)).then_some(node);
        labels.entries.iter().enumerate().filter_map(of).collect()
    };
    let mask =
        |shift| Masks { train: nodes(shift, &[0, 1, 2]), validation: nodes(shift, &[3]), test: nodes(shift, &[4]) };
    let classes = Classes::of_labels(&labels, made.graph.num_nodes()).with_masks(vec![mask(0), mask(1), mask(2)]);
    Dataset { classes: Some(classes), ..made }.write(&sandbox.path("masked")).unwrap();
    let set = ["--set", "split.use=masks", "--set", "split.index=1", "--set", "auto.candidates=[\"forest-raw\"]"];
    let bench = |splits: &'static str| {
        let fixed = ["bench", "auto", "--data", "masked", "--minutes", "0.1", "--device", "cpu", "--splits", splits];
        [&fixed[..], &set].concat()
    };
    sandbox.succeeds([&bench("2")[..], &["--json", "auto.json"]].concat());
    let report = json(&sandbox.read("auto.json"));
    let splits = report["splits"].as_array().unwrap();
    assert_eq!((splits.len(), &splits[0]["split"], &splits[1]["split"]), (2, &1.into(), &2.into()));
    let tests = splits.iter().map(|split| split["candidates"][0]["test"].as_f64().unwrap());
    let mean = tests.sum::<f64>() / 2.0;
    assert!((report["picked"]["mean"].as_f64().unwrap() - mean).abs() < 1e-12, "{report}");
    for of in ["regret", "regret_of_each"] {
        assert_eq!((&report[of]["mean"], &report[of]["standard_deviation"]), (&0.0.into(), &0.0.into()), "{report}");
    }
    sandbox.refuses(bench("3"), 2, &["--splits", "at most 2", "3 masks"]);
}
