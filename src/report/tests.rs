//! The page of reports made by hand: what it says, what it escapes, what it leaves out.

use ndarray::Array2;

use super::*;
use crate::data::class_split::ClassSplit;
use crate::data::split::Split;
use crate::graph::{Classes, Dataset, HeteroGraph, IdMaps, Labels};
use crate::metrics::{Calibration, roc_auc};
use crate::run::calibration::calibrate_classes;
use crate::score::ClassView;
use crate::score::ranking::Scored;

/// Text that would run if it were not escaped.
const HOSTILE: [&str; 4] =
    ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "a & b", "';--</style><svg onload=alert(1)>"];

/// Forty users, every other one labelled, with the anomalous ones scored higher; ten shops without labels.
fn dataset(ids: impl Fn(usize) -> String) -> (Dataset, Vec<f32>, Split) {
    let graph = HeteroGraph::new(vec![("user".into(), 120), ("shop".into(), 10)], Vec::new()).unwrap();
    let scores = (0..130).map(|node| ((node * 37 % 100) as f32 + if node % 4 == 0 { 40.0 } else { 0.0 }) / 140.0);
    let entries: Vec<(u32, u8)> = (0..120).map(|node| (node, u8::from(node % 4 == 0))).collect();
    let split = Split::stratified(&entries, |_| 0, Default::default(), 1).unwrap();
    let ids = IdMaps(vec![(0..120).map(&ids).collect(), (0..10).map(|at| format!("shop {at}")).collect()]);
    (Dataset::new(graph, None, Some(Labels { entries }), Some(ids)), scores.collect(), split)
}

fn run_facts(text: &str) -> RunFacts {
    RunFacts {
        directory: text.into(),
        version: "0.1.0".into(),
        commit: None,
        device: text.into(),
        seed: 7,
        command: text.into(),
        started: text.into(),
        config: format!("# {text}\nseed = 7\n"),
    }
}

/// Of a run of Stage 2 of which little is known.
fn parts(scored: Scored<'_>, top: usize) -> Parts<'_> {
    Parts {
        name: "run".into(),
        stage: "Stage 2".into(),
        score_meaning: "a score".into(),
        run: run_facts("x"),
        data_path: "data".into(),
        scored,
        fitted_to_labels: true,
        baseline: BaselineScores::Unknown,
        on_validation: None,
        refit: None,
        training: Vec::new(),
        top,
        all: false,
    }
}

fn report(text: &str, ids: impl Fn(usize) -> String) -> ReportData {
    let (dataset, scores, split) = dataset(ids);
    let validation: Vec<f32> = split.validation.iter().map(|entry| scores[entry.0 as usize]).collect();
    let labels: Vec<u8> = split.validation.iter().map(|entry| entry.1).collect();
    let calibration = Calibration::fit(&validation, &labels).unwrap();
    let baseline = split.test.iter().map(|entry| (entry.0 % 7) as f32).collect();
    let series = Series { name: text.into(), points: (1..=5).map(|epoch| (f64::from(epoch), 0.5)).collect() };
    let (calibration, split) = (Some(&calibration), Some(&split));
    let mut data = gather(Parts {
        name: text.into(),
        stage: text.into(),
        score_meaning: text.into(),
        run: run_facts(text),
        data_path: text.into(),
        baseline: BaselineScores::Scores(baseline),
        training: vec![Panel { title: text.into(), unit: text.into(), series: vec![series] }],
        all: true,
        ..parts(Scored { dataset: &dataset, scores: &scores, calibration, split, classes: None }, 12)
    })
    .unwrap();
    let explained =
        Explained { svg: "<svg id=\"drawing\"></svg>".into(), reasons: vec![text.into(); 2], note: text.into() };
    data.explain([explained]);
    data
}

#[test]
fn no_text_of_the_user_becomes_markup() {
    for text in HOSTILE {
        let page = render(&report(text, |at| format!("{text}{at}")));
        assert!(!page.contains(text) || text == "';--", "{text}");
        for tag in ["<script>alert", "<img", "<svg onload"] {
            assert!(!page.contains(tag), "{tag} of {text}");
        }
        let shown = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
        assert!(page.contains(&shown), "{text} is shown");
    }
    assert_eq!(render(&report("x", |at| at.to_string())).matches("<script").count(), 1);
}

#[test]
fn a_page_asks_for_nothing() {
    let page = render(&report("x", |at| at.to_string()));
    for request in ["http://", "https://", "src=", "<link", "url(", "@import", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(request), "{request}");
    }
    assert!(page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"));
}

#[test]
fn the_figures_are_those_of_the_test_labels() {
    let (_, scores, split) = dataset(|at| at.to_string());
    let data = report("x", |at| at.to_string());
    let held_out = data.held_out.as_ref().unwrap();
    let (values, labels): (Vec<f32>, Vec<u8>) =
        split.test.iter().map(|&(node, label)| (scores[node as usize], label)).unzip();
    let area = held_out.overall.roc_auc.unwrap();
    assert!((area.value - roc_auc(&values, &labels).unwrap()).abs() < 1e-12);
    let counts = (held_out.overall.positives + held_out.overall.negatives) as usize;
    assert_eq!((counts, held_out.types.len()), (split.test.len(), 1), "shops have no labels");
    let page = render(&data);
    assert!(page.contains(&format!("{:.1}\u{a0}%</strong> of pairs", 100.0 * area.value)));
    assert!(held_out.baseline.as_ref().unwrap().difference.is_some());
    let all: u64 = data.histograms[0].all.iter().sum();
    let test: u64 = data.histograms[0].normal.iter().chain(&data.histograms[0].anomalous).sum();
    assert_eq!((all, test as usize, data.histograms.len()), (130, split.test.len(), 3));
}

#[test]
fn the_list_has_the_highest_scores_with_ties_by_number_and_says_what_is_known() {
    let (dataset, mut scores, split) = dataset(|at| format!("u{at}"));
    scores[5] = 0.99;
    scores[3] = 0.99;
    scores[125] = f32::NAN;
    let scored = Scored { dataset: &dataset, scores: &scores, calibration: None, split: Some(&split), classes: None };
    let data = gather(Parts { baseline: BaselineScores::Area(0.5), all: true, ..parts(scored, 200) }).unwrap();
    assert_eq!((data.anomalies.len(), data.scored_nodes), (129, 129), "a node without a score is not listed");
    let scores: Vec<f64> = data.anomalies.iter().map(|anomaly| anomaly.score).collect();
    assert!(scores.windows(2).all(|pair| pair[0] >= pair[1]));
    let at = |rank: usize| data.anomalies.iter().position(|anomaly| anomaly.node == rank as u32).unwrap();
    assert_eq!(at(5), at(3) + 1);
    let part = |node: u32| match split.train.iter().any(|entry| entry.0 == node) {
        true => Part::Train,
        false if split.test.iter().any(|entry| entry.0 == node) => Part::Test,
        false => Part::Validation,
    };
    for anomaly in &data.anomalies {
        let expected = (anomaly.node < 120).then(|| (anomaly.node % 4 == 0, Some(part(anomaly.node))));
        assert_eq!(anomaly.label, expected);
        let id = if anomaly.node < 120 { format!("u{}", anomaly.node) } else { format!("shop {}", anomaly.node - 120) };
        assert_eq!(anomaly.id, id);
    }
    assert!(data.warnings.iter().any(|warning| warning.title == "Nodes without a score"));
}

#[test]
fn labelled_nodes_are_left_out_of_the_list_unless_there_are_no_others_or_all_are_asked_for() {
    let list = |labelled: u32, all: bool| {
        let (mut dataset, scores, split) = dataset(|at| at.to_string());
        dataset.labels = Some(Labels { entries: (0..labelled).map(|node| (node, u8::from(node % 4 == 0))).collect() });
        let split = Some(&split);
        let scored = Scored { dataset: &dataset, scores: &scores, calibration: None, split, classes: None };
        gather(Parts { all, ..parts(scored, 6) }).unwrap()
    };
    let data = list(120, false);
    assert_eq!((data.left_out, data.anomalies.len()), (120, 6));
    assert!(data.anomalies.iter().all(|anomaly| anomaly.node >= 120 && anomaly.label.is_none()));
    assert!(data.anomalies.windows(2).all(|pair| pair[0].score >= pair[1].score && pair[0].rank + 1 == pair[1].rank));
    let page = render(&data);
    assert!(page.contains("6 highest of the 10 scores of nodes without a label; 120 labelled nodes are left out"));
    assert!(!page.contains("data-filter=\"label\""), "there is nothing to filter");
    let data = list(120, true);
    assert_eq!(data.left_out, 0);
    assert!(data.anomalies.iter().any(|anomaly| anomaly.label.is_some()));
    assert!(render(&data).contains("6 highest of 130 scores") && render(&data).contains("data-filter=\"label\""));
    let data = list(130, false);
    assert_eq!((data.left_out, data.anomalies.len()), (0, 6), "all are labelled");
}

#[test]
fn a_run_without_labels_has_a_report_without_figures() {
    let (mut dataset, scores, _) = dataset(|at| at.to_string());
    dataset.labels = None;
    let scored = Scored { dataset: &dataset, scores: &scores, calibration: None, split: None, classes: None };
    let data = gather(Parts { fitted_to_labels: false, ..parts(scored, 3) }).unwrap();
    assert_eq!((data.held_out.is_none(), data.calibration.is_none(), data.anomalies.len()), (true, true, 3));
    let page = render(&data);
    assert!(page.contains("Not evaluated") && !page.contains("ROC-AUC"), "{page}");
}

/// A report about a classifier of `classes` classes whose every fifth prediction is wrong.
fn class_report(classes: usize, class: Option<u32>) -> ReportData {
    const NODES: usize = 360;
    let graph = HeteroGraph::new(vec![("paper".into(), NODES)], Vec::new()).unwrap();
    let known: Vec<Option<u32>> = (0..NODES).map(|node| (node % 9 != 8).then_some((node % classes) as u32)).collect();
    let predicted = |node: usize| (node + usize::from(node.is_multiple_of(5))) % classes;
    let probabilities = Array2::from_shape_fn((NODES, classes), |(node, class)| {
        let sure = 0.5 + 0.4 * (node * 37 % 100) as f32 / 100.0;
        if class == predicted(node) { sure } else { (1.0 - sure) / (classes - 1) as f32 }
    });
    let labelled = |part: usize| {
        let nodes = (0..NODES as u32).filter(|node| *node as usize / 9 % 3 == part);
        nodes.filter_map(|node| Some((node, known[node as usize]?))).collect::<Vec<_>>()
    };
    let split = ClassSplit { train: labelled(0), validation: labelled(1), test: labelled(2) };
    let mut dataset = Dataset { classes: Some(Classes::new(known.clone())), ..Dataset::new(graph, None, None, None) };
    let mut view = ClassView::new(probabilities, class).unwrap();
    view.calibrations = calibrate_classes(view.probabilities(), &split);
    view.split = Some(split);
    view.relabel(&mut dataset);
    let (scores, binary) = (view.scores(), view.binary_split());
    let (calibration, split) = (view.calibration(), binary.as_ref());
    let scored = Scored { dataset: &dataset, scores: &scores, calibration, split, classes: Some(&view) };
    gather(parts(scored, 9)).unwrap()
}

#[test]
fn classes_have_their_figures_and_one_of_them_those_of_a_detector() {
    let data = class_report(4, None);
    let facts = data.classes.as_ref().unwrap();
    let test: u64 = 360 / 9 / 3 * 8;
    assert_eq!((facts.report.nodes, data.split.as_ref().unwrap().parts[2].labelled as u64), (test, test));
    assert!((facts.report.accuracy - 0.8).abs() < 0.03 && facts.estimates.accuracy.interval.is_some());
    assert!(data.held_out.is_none() && data.calibration.is_some() && data.question == Question::Predicted);
    assert_eq!((data.left_out, data.anomalies.len(), data.data.types[0].labelled), (320, 9, 320));
    assert!(data.anomalies.iter().all(|node| node.label.is_none() && node.class.is_some()));
    let right: u64 = data.histograms[0].normal.iter().sum();
    assert_eq!(right as f64, (facts.report.accuracy * test as f64).round(), "right predictions are the normal ones");
    let page = render(&data);
    assert!(page.contains("Predicted classes by actual class") && page.contains("data-filter=\"class\""));
    assert!(!page.contains("anomalous node") && !page.contains("ROC-AUC"));

    let one = class_report(4, Some(2));
    let held_out = one.held_out.as_ref().unwrap();
    assert_eq!(one.question, Question::OfClass(2));
    assert_eq!(held_out.overall.positives + held_out.overall.negatives, test);
    assert_eq!(held_out.overall.positives, facts.report.classes[2].nodes);
    assert_eq!(one.classes, data.classes, "the same classes, whichever is looked at");
    let page = render(&one);
    assert!(page.contains("Class 2 against the rest") && page.contains("share of nodes of other classes flagged"));
    assert!(!page.contains("anomalous node") && !page.contains("normal node"));
    assert_eq!(page.matches("class=\"number right\" style=\"--share:").count(), 4, "a cell for each class");
}

#[test]
fn of_very_many_classes_the_pairs_that_are_confused_most_are_shown() {
    let data = class_report(90, None);
    let confusion = &data.classes.as_ref().unwrap().report.confusion;
    let pairs = (0..90 * 90).filter(|pair| pair / 90 != pair % 90 && confusion.count(pair / 90, pair % 90) > 0).count();
    let page = render(&data);
    assert!(!page.contains("Predicted classes by actual class") && page.contains("Classes taken for others"));
    assert_eq!(page.matches("<th scope=\"row\">class ").count(), 90 + pairs, "every class, and every confusion");
    assert!(page.contains("Classes with few test labels"));
}

#[test]
fn the_same_run_makes_the_same_bytes_and_a_report_survives_json() {
    let data = report("x", |at| at.to_string());
    assert_eq!(render(&data), render(&report("x", |at| at.to_string())));
    let read: ReportData = serde_json::from_str(&serde_json::to_string(&data).unwrap()).unwrap();
    assert_eq!(render(&read), render(&data));
}
