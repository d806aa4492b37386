//! The report of a run on the disk.

use super::data::{Panel, ReportData, RunFacts, Series, Warning};
use super::gather::gather;
use super::parts::{BaselineScores, Parts};
use crate::error::{Error, Result};
use crate::run::baseline::{Baseline, OnValidation};
use crate::run::evaluation::Evaluation;
use crate::run::{History, Meta};
use crate::score::{ClassView, ScoredRun, Stage};

/// Everything that the report of `scored` says, but for the explanations; its list has the `top` highest scores, of
/// nodes without a label or of `all`.
///
/// # Errors
/// [`Error::Io`] for a run whose files cannot be read; [`Error::Data`] for labels that do not fit the graph.
pub fn of_run(scored: &ScoredRun, top: usize, all: bool) -> Result<ReportData> {
    let run = &scored.run;
    let config = run.config();
    let meta = run.meta();
    let class = scored.classes.as_ref().and_then(ClassView::class);
    let name = run.path().file_name().unwrap_or(run.path().as_os_str());
    // Labels of one class, or none in a part: then there is nothing to compare with. Classes are compared with the most
    // common one.
    let compared = scored.split.as_ref().filter(|_| scored.stage != Stage::Classes);
    let baseline = compared.and_then(|split| Baseline::of(&scored.dataset, split).ok().flatten());
    let mut report = gather(Parts {
        name: name.to_string_lossy().into_owned(),
        stage: match class {
            Some(class) => format!("{}, class {class}", scored.stage.title()),
            None => scored.stage.title().into(),
        },
        score_meaning: match class {
            Some(class) => format!("a score is the probability that the node classifier gives to class {class}"),
            None => meaning(scored.stage).into(),
        },
        run: RunFacts {
            directory: run.path().display().to_string(),
            version: meta.version.clone(),
            commit: meta.git_commit.clone(),
            device: meta.device.clone(),
            seed: meta.seed,
            command: command(meta),
            started: meta.started.clone(),
            config: std::fs::read_to_string(&config).map_err(|source| Error::io(&config, "read", source))?,
        },
        data_path: scored.data.display().to_string(),
        scored: scored.scored(),
        fitted_to_labels: scored.stage != Stage::Reconstruction,
        baseline: baseline.map_or(BaselineScores::Unknown, |baseline| BaselineScores::Scores(baseline.test_scores)),
        on_validation: OnValidation::read(run)?,
        refit: Evaluation::of_refit(run)?,
        // Trees log no epochs.
        training: run.history().map(|history| panels(scored.stage, &history)).unwrap_or_default(),
        top,
        all,
    })?;
    let changed = |text: &String| Warning { title: "The data changed since the training".into(), text: text.clone() };
    report.warnings.splice(..0, scored.warnings.iter().map(changed));
    Ok(report)
}

fn meaning(stage: Stage) -> &'static str {
    match stage {
        Stage::Reconstruction => {
            "a score is one minus the geometric mean of the probabilities that the embeddings give to a node's edges, \
             which they were made with; no label was used"
        }
        Stage::Attention => "a score is the sigmoid of the graph attention network's logit, higher is more anomalous",
        Stage::Classes => "a score is the probability of the class that the node classifier predicts of a node",
        Stage::Trees => "a score is what the trees predict, higher is more anomalous",
        Stage::Ensemble => {
            "a score is the mean of the probabilities that the members of the ensemble give, those of different \
             candidates calibrated on the validation labels; what is said of single nodes is what the first member says \
             that can be explained"
        }
    }
}

/// The command line as it can be typed, with the program by its name.
fn command(meta: &Meta) -> String {
    let quoted = |argument: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
        match !argument.is_empty() && argument.chars().all(plain) {
            true => argument.to_owned(),
            false => format!("'{}'", argument.replace('\'', r"'\''")),
        }
    };
    let words = meta.command.iter().enumerate().map(|(at, argument)| match at {
        0 => quoted(argument.rsplit(['/', '\\']).next().unwrap_or(argument)),
        _ => quoted(argument),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn panels(stage: Stage, history: &History) -> Vec<Panel> {
    let panel = |title: &str, unit: &str, keys: &[(&str, &str)]| -> Option<Panel> {
        let series = keys.iter().map(|(key, name)| Series { name: (*name).into(), points: history.series(key) });
        let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
        (!series.is_empty()).then(|| Panel { title: title.into(), unit: unit.into(), series })
    };
    let panels = match stage {
        Stage::Classes => vec![
            panel("Loss by epoch", "loss", &[("loss", "training"), ("validation_loss", "validation")]),
            panel("Validation nodes by epoch", "accuracy", &[("validation_accuracy", "validation")]),
            panel("Validation labels by epoch", "average precision", &[("validation_average_precision", "validation")]),
        ],
        Stage::Reconstruction => vec![
            panel("Loss by epoch", "loss", &[("loss", "reconstruction")]),
            panel("Edges trained on told from drawn pairs", "ROC-AUC", &[("edge_auc", "training pairs")]),
        ],
        // Its members have logs.
        Stage::Ensemble => Vec::new(),
        Stage::Attention | Stage::Trees => vec![
            panel("Loss by epoch", "loss", &[("supervised", "supervised"), ("unsupervised", "unsupervised")]),
            panel("Validation labels by epoch", "ROC-AUC", &[("validation_auc", "validation")]),
            panel(
                "Alerts about validation labels by epoch",
                "share",
                &[("validation_alerts", "alerts that are right"), ("validation_stopped", "amount that is stopped")],
            ),
        ],
    };
    panels.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let mut meta = Meta::now("cpu", 1);
        meta.command = ["/opt/bin/graphsieve", "train", "my file.toml", "--set", "name=it's"].map(String::from).into();
        assert_eq!(command(&meta), r"graphsieve train 'my file.toml' --set 'name=it'\''s'");
    }
}
