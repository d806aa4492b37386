//! What makes the figures of a report worth less than they look.

use super::data::{CalibrationFacts, ClassFacts, HeldOut, Part, Question, SplitFacts, TypeFacts, Warning};
use super::question::capital;
use crate::metrics::{FEWEST, KolmogorovSmirnov};
use crate::run::baseline::OnValidation;

/// Anomalous labels of a part below which its figures are mostly chance.
const FEW_POSITIVES: usize = 30;

/// Labels below which a calibration is a rough guide.
const FEW_CALIBRATION_LABELS: usize = 100;

/// Significance and distance from which scores of training and test nodes count as different.
const P_VALUE: f64 = 0.01;
const DISTANCE: f64 = 0.25;

/// What the warnings are drawn from.
pub(super) struct Grounds<'a> {
    pub question: Question,
    /// Nodes, and how many of them have a score.
    pub nodes: usize,
    pub scored: usize,
    /// Whether the stage has no score for a node without edges.
    pub edges_needed: bool,
    pub types: &'a [TypeFacts],
    pub split: Option<&'a SplitFacts>,
    pub held_out: Option<&'a HeldOut>,
    pub on_validation: Option<OnValidation>,
    pub calibration: Option<&'a CalibrationFacts>,
    pub classes: Option<&'a ClassFacts>,
    /// Scores of the training and of the test nodes: normal, then anomalous.
    pub scores: [[Vec<f32>; 2]; 2],
    /// Whether the run was fitted to the training labels.
    pub fitted_to_labels: bool,
}

pub(super) fn warnings(grounds: &Grounds) -> Vec<Warning> {
    let mut found = Vec::new();
    let question = grounds.question;
    let mut warn = |title: &str, text: String| found.push(Warning { title: title.into(), text });
    if grounds.scored < grounds.nodes {
        let missing = grounds.nodes - grounds.scored;
        let text = format!("{missing} of {} nodes have no finite score and are left out everywhere. ", grounds.nodes);
        let why = match grounds.edges_needed {
            true => "This stage scores edges: a node without any has no score.",
            false => "A model that diverged makes such scores; lower its learning rate or check its features.",
        };
        warn("Nodes without a score", text + why);
    }
    match grounds.split {
        None => {
            let text = "There are no labels, or too few to divide. Nothing here says how good the scores are.";
            warn("Not evaluated", text.into());
        }
        // Of predicted classes there are no two kinds of labels.
        Some(_) if question == Question::Predicted => {}
        Some(split) => {
            for part in split.parts.iter().filter(|part| part.anomalous < FEW_POSITIVES) {
                let use_of = match part.part {
                    Part::Train => "The model has seen few examples of what it looks for.",
                    Part::Validation => "Checkpoint, threshold and calibration were chosen on them and follow chance.",
                    Part::Test => "The figures depend on a few nodes; read the intervals, not the values.",
                };
                let title = match question {
                    Question::Anomalous => format!("Few anomalous {} labels", part.part.name()),
                    _ => format!("Few {} labels {}", part.part.name(), question.predicate()),
                };
                warn(&title, format!("{} of {}. {use_of}", part.anomalous, part.labelled));
            }
        }
    }
    if let (Some(held_out), Some(_)) = (grounds.held_out, grounds.split) {
        baseline_warning(held_out, &mut warn);
        perfect_warning(held_out, question, &mut warn);
    }
    if let Some(text) = grounds.on_validation.and_then(|figures| figures.warning()) {
        warn("No better than the baseline on the validation labels", text);
    }
    if let Some(classes) = grounds.classes {
        class_warnings(classes, &mut warn);
    }
    if grounds.fitted_to_labels && question != Question::Predicted {
        let [training, test] = &grounds.scores;
        let of = match question {
            Question::OfClass(_) => ["of other classes".into(), question.predicate()],
            _ => ["with the label normal".into(), "with the label anomalous".to_owned()],
        };
        for (class, of) in of.iter().enumerate() {
            let Some(found) = KolmogorovSmirnov::of(&training[class], &test[class]) else { continue };
            if found.p_value < P_VALUE && found.statistic > DISTANCE {
                let text = format!(
                    "Training and test nodes {of} are scored differently (two-sample \
                     Kolmogorov-Smirnov: D = {:.2}, p {}). The model knows its training nodes by heart, or the test \
                     nodes are of another kind: new data may fare worse than the figures say.",
                    found.statistic,
                    p_text(found.p_value)
                );
                warn("Training and test scores differ", text);
            }
        }
    }
    if let Some(calibration) = grounds.calibration.filter(|fitted| fitted.labels < FEW_CALIBRATION_LABELS) {
        let description = &calibration.description;
        let text = match question {
            Question::Anomalous => format!(
                "{description}. Take the probabilities as a rough guide, and mind that anomalies are rarer among all \
                 nodes than among labels."
            ),
            Question::OfClass(_) => format!("{}. Take the probabilities as a rough guide.", capital(description)),
            Question::Predicted => format!("Probabilities {description}. Take them as a rough guide."),
        };
        warn("Probabilities rest on few labels", text);
    }
    let labelled = |node_type: &TypeFacts| node_type.labelled > 0;
    let unlabelled: Vec<&TypeFacts> = grounds.types.iter().filter(|t| t.nodes > 0 && !labelled(t)).collect();
    if grounds.types.iter().any(labelled) && !unlabelled.is_empty() {
        let names: Vec<String> = unlabelled.iter().map(|t| format!("{} ({} nodes)", t.name, t.nodes)).collect();
        let text = format!("No label for: {}. Their scores were never checked.", names.join(", "));
        warn("Node types without labels", text);
    }
    found
}

fn baseline_warning(held_out: &HeldOut, warn: &mut impl FnMut(&str, String)) {
    let Some(baseline) = &held_out.baseline else { return };
    let area = held_out.overall.roc_auc;
    let reached = match (baseline.difference.and_then(|difference| difference.interval), area) {
        (Some(difference), _) => difference.low <= 0.0,
        (None, Some(area)) => area.interval.is_some_and(|interval| interval.low <= baseline.roc_auc.value),
        (None, None) => false,
    };
    if reached {
        let text = format!(
            "A logistic regression that sees no graph reaches a test ROC-AUC of {:.3}, which lies within the \
             uncertainty of this run. Where it does as well, the graph is not worth its cost.",
            baseline.roc_auc.value
        );
        warn("Not clearly better than the baseline", text);
    }
}

fn perfect_warning(held_out: &HeldOut, question: Question, warn: &mut impl FnMut(&str, String)) {
    let overall = &held_out.overall;
    let enough = overall.positives.min(overall.negatives) >= FEWEST;
    if enough && overall.roc_auc.is_some_and(|area| area.value == 1.0) {
        let every = match question {
            Question::Anomalous => "Every anomalous test node scores above every normal one.".into(),
            _ => format!("Every test node {} scores above every other one.", question.predicate()),
        };
        let text = " The bootstrap cannot show an uncertainty then (its interval is [1, 1]); check that no feature gives \
                    the label away.";
        warn("A perfect ranking", every + text);
    }
}

fn class_warnings(classes: &ClassFacts, warn: &mut impl FnMut(&str, String)) {
    let ClassFacts { report, estimates } = classes;
    let common = report.most_common().1 as f64 / report.nodes as f64;
    if estimates.accuracy.interval.map_or(report.accuracy, |interval| interval.low) <= common {
        let text = format!(
            "Predicting the most common class of every node would be right for {:.1} % of the test nodes, which lies \
             within the uncertainty of this run.",
            100.0 * common
        );
        warn("Not clearly better than the most common class", text);
    }
    let with = |nodes: fn(u64) -> bool| -> Vec<String> {
        let classes = report.classes.iter().enumerate().filter(|(_, class)| nodes(class.nodes));
        classes.map(|(class, _)| class.to_string()).collect()
    };
    let few = with(|nodes| (1..FEWEST).contains(&nodes));
    if !few.is_empty() {
        let text = format!("Fewer than {FEWEST} test labels of: {}. Their figures are mostly chance.", shortened(&few));
        warn("Classes with few test labels", text);
    }
    let none = with(|nodes| nodes == 0);
    if !none.is_empty() {
        let text = format!("No test label of: {}. Nothing says how well these classes are found.", shortened(&none));
        warn("Classes without test labels", text);
    }
}

/// `class 1, 3, 4 and 12 more`
fn shortened(classes: &[String]) -> String {
    const SHOWN: usize = 12;
    let names = classes[..classes.len().min(SHOWN)].join(", ");
    match classes.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("class {names} and {more} more"),
        _ => format!("class {names}"),
    }
}

/// `= 0.003`, or `< 0.001`.
fn p_text(p: f64) -> String {
    if p < 0.001 { "< 0.001".into() } else { format!("= {p:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RankingMetric;
    use crate::metrics::{Bootstrap, Confusion, ConfusionMatrix, Estimate, Interval, Reliability};
    use crate::report::data::{Baseline, PartFacts};

    fn split(counts: [(usize, usize); 3]) -> SplitFacts {
        let parts = [Part::Train, Part::Validation, Part::Test].into_iter().zip(counts);
        SplitFacts {
            rule: None,
            refit: None,
            parts: parts
                .map(|(part, (anomalous, normal))| PartFacts { part, labelled: anomalous + normal, anomalous, normal })
                .collect(),
        }
    }

    fn held_out(low: f64, baseline: f64) -> HeldOut {
        let mut overall = Bootstrap::default().estimate(&[0.9, 0.1], &[1, 0], 0.5, &[]).unwrap();
        overall.roc_auc = Some(Estimate { value: 0.9, interval: Some(Interval { low, high: 0.95 }) });
        let roc_auc = Estimate { value: baseline, interval: None };
        HeldOut {
            threshold: 0.5,
            overall,
            confusion: Confusion::default(),
            types: Vec::new(),
            baseline: Some(Baseline { roc_auc, average_precision: None, difference: None }),
            curves: None,
            alerts: None,
        }
    }

    fn titles(grounds: &Grounds) -> Vec<String> {
        warnings(grounds).into_iter().map(|warning| warning.title).collect()
    }

    fn sound<'a>(split: &'a SplitFacts, held_out: &'a HeldOut, types: &'a [TypeFacts]) -> Grounds<'a> {
        let spread = |shift: f32| -> Vec<f32> { (0..100).map(|at| at as f32 / 100.0 + shift).collect() };
        Grounds {
            question: Question::Anomalous,
            nodes: 10,
            scored: 10,
            edges_needed: false,
            types,
            split: Some(split),
            held_out: Some(held_out),
            on_validation: Some(OnValidation { metric: RankingMetric::Auroc, model: 0.9, baseline: 0.8 }),
            calibration: None,
            classes: None,
            scores: [[spread(0.0), spread(0.3)], [spread(0.02), spread(0.3)]],
            fitted_to_labels: true,
        }
    }

    #[test]
    fn sound_figures_have_no_warning() {
        let (split, held_out) = (split([(90, 90), (30, 30), (30, 30)]), held_out(0.8, 0.7));
        let types = [TypeFacts { name: "user".into(), nodes: 10, labelled: 10, anomalous: 5, normal: 5 }];
        assert_eq!(titles(&sound(&split, &held_out, &types)), [""; 0]);
    }

    #[test]
    fn every_weakness_has_its_warning() {
        let (split, held_out) = (split([(90, 90), (30, 30), (29, 300)]), held_out(0.69, 0.7));
        let type_of = |name: &str, anomalous| TypeFacts {
            name: name.into(),
            nodes: 10,
            labelled: anomalous,
            anomalous,
            normal: 0,
        };
        let types = [type_of("user", 5), type_of("shop", 0)];
        let reliability = Reliability::of(&[0.5], &[1], 1).unwrap();
        let calibration = CalibrationFacts {
            description: "Platt's sigmoid, fitted to 60 validation labels (30 anomalous)".into(),
            labels: 60,
            anomalous: 30,
            raw: reliability.clone(),
            calibrated: reliability,
        };
        let mut grounds = sound(&split, &held_out, &types);
        grounds.scored = 9;
        grounds.on_validation = Some(OnValidation { metric: RankingMetric::Auroc, model: 0.6, baseline: 0.7 });
        grounds.calibration = Some(&calibration);
        grounds.scores[1][1] = vec![0.1; 50];
        let expected = [
            "Nodes without a score",
            "Few anomalous test labels",
            "Not clearly better than the baseline",
            "No better than the baseline on the validation labels",
            "Training and test scores differ",
            "Probabilities rest on few labels",
            "Node types without labels",
        ];
        assert_eq!(titles(&grounds), expected);
        grounds.fitted_to_labels = false;
        assert!(!titles(&grounds).contains(&"Training and test scores differ".to_owned()));
    }

    #[test]
    fn without_labels_the_report_says_that_nothing_was_checked() {
        let held_out = held_out(0.8, 0.7);
        let split = split([(0, 0); 3]);
        let types = [TypeFacts { name: "user".into(), nodes: 10, labelled: 0, anomalous: 0, normal: 0 }];
        let grounds = Grounds { split: None, held_out: None, ..sound(&split, &held_out, &types) };
        assert_eq!(titles(&grounds), ["Not evaluated"]);
    }

    #[test]
    fn classes_have_warnings_of_their_own() {
        let facts = |pairs: &[(u32, u32, usize)], classes| {
            let pairs = pairs.iter().flat_map(|&(actual, as_class, n)| std::iter::repeat_n((actual, as_class), n));
            let report = ConfusionMatrix::of(pairs, classes).unwrap().report().unwrap();
            ClassFacts { estimates: Bootstrap::default().estimate_classes(&report), report }
        };
        let types = [TypeFacts { name: "user".into(), nodes: 10, labelled: 10, anomalous: 0, normal: 0 }];
        let split = split([(0, 90), (0, 30), (0, 30)]);
        let held_out = held_out(0.8, 0.7);
        let titles = |classes: &ClassFacts| {
            let sound = sound(&split, &held_out, &types);
            titles(&Grounds { question: Question::Predicted, held_out: None, classes: Some(classes), ..sound })
        };
        assert_eq!(titles(&facts(&[(0, 0, 40), (1, 1, 40)], 2)), [""; 0]);
        let expected = [
            "Not clearly better than the most common class",
            "Classes with few test labels",
            "Classes without test labels",
        ];
        assert_eq!(titles(&facts(&[(0, 0, 40), (0, 1, 5), (1, 0, 10), (1, 1, 5), (3, 3, 2)], 5)), expected);
        let many: Vec<String> = (0..20).map(|class| class.to_string()).collect();
        assert!(shortened(&many).ends_with("10, 11 and 8 more"), "{}", shortened(&many));
        assert_eq!(shortened(&many[..2]), "class 0, 1");
    }
}
