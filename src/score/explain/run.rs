//! Explanations of the scores of a run.

use std::path::Path;

use graphsieve_kernels::GraphBackend;

use super::explanation::Explanation;
use crate::config::{RunConfig, Stage2Config, Stage2Input, Stage3Config};
use crate::data::tables::RowTables;
use crate::error::Result;
use crate::graph::Dataset;
use crate::run::RunDir;
use crate::run::calibration::{read_calibration, read_class_calibrations};
use crate::run::ensemble::{Ensemble, Member};
use crate::run::model::model_of;
use crate::score::{ClassView, Computed, ScoreOptions, ScoredRun, Scores, Stage, check_class, compute, kinds};

/// Opens a run of Stage 1, 2 or 3 or of node classification: with the data and the scores that it has, or with the
/// scores that its model gives to other `data` or from other embeddings of Stage 1 (`input`: a `.npy` file or a run).
/// `class` is the class of a node classifier that is looked at, see [`ClassView::new`]. Of other data there is no split
/// of the labels, so there are no known anomalies to compare with.
///
/// # Errors
/// As for [`ScoredRun::open`]; data and input that do not fit the model; input with a run of Stage 1 and with a node
/// classifier.
pub fn open_run<B: GraphBackend>(
    path: &Path,
    class: Option<u32>,
    data: Option<&Path>,
    input: Option<&Path>,
    device: &B::Device,
) -> Result<ScoredRun> {
    if data.is_none() && input.is_none() {
        return ScoredRun::open(path, class);
    }
    let path = &model_of(path)?;
    let run = RunDir::open(path)?;
    let ensemble = Ensemble::of_run(path)?;
    let mut config = RunConfig::load_kept(&run.config(), &[])?;
    // That says what is wrong with it.
    let Some((stage, _)) = Stage::of(&config, ensemble.is_some()) else { return ScoredRun::open(path, class) };
    if let Some(data) = data {
        config.set_data_path(data.to_path_buf());
    }
    match (&mut config, input) {
        (RunConfig::Stage2(Stage2Config { data, .. }), Some(input)) => {
            (data.input, data.embeddings) = (Stage2Input::Embeddings, Some(input.to_path_buf()));
        }
        (RunConfig::Stage3(Stage3Config { data, .. }), Some(input)) => data.embeddings = Some(input.to_path_buf()),
        _ => {}
    }
    check_class(class, stage == Stage::Classes)?;
    let data = config.data_path().to_path_buf();
    let options = ScoreOptions { input: input.map(Path::to_path_buf), ..ScoreOptions::new(path, data.clone()) };
    let Computed { dataset, scores, .. } = compute::<B>(&options, device)?;
    match scores {
        Scores::Anomaly(scores) => {
            let calibration = read_calibration(&run)?;
            let (split, classes, warnings) = (None, None, Vec::new());
            Ok(ScoredRun { run, config, stage, data, dataset, scores, split, calibration, classes, ensemble, warnings })
        }
        Scores::Classes(probabilities) => {
            let mut view = ClassView::new(probabilities, class)?;
            view.calibrations = read_class_calibrations(&run, view.num_classes())?.unwrap_or_default();
            Ok(ScoredRun { ensemble, ..ScoredRun::of_classes(run, config, data, dataset, view) })
        }
    }
}

/// Explains the scores of some nodes, of a node classifier the class that is looked at; model and input are read once.
///
/// # Errors
/// A checkpoint or an input that cannot be read or does not fit the data; a node without a score.
pub fn explain_run<B: GraphBackend>(run: &ScoredRun, nodes: &[u32], device: &B::Device) -> Result<Vec<Explanation>> {
    if let Some(ensemble) = &run.ensemble {
        return explain_run::<B>(&member_at::<B>(run, ensemble.best(), device)?, nodes, device);
    }
    let mut explained = kinds::open::<B>(run.run.path())?.explain(run, nodes, device)?;
    let Dataset { feature_names: Some(names), features: Some(features), .. } = &run.dataset else {
        return Ok(explained);
    };
    if let Some(tables) = RowTables::of_data(&run.data, run.run.path(), Some(names))? {
        for of in &mut explained {
            of.add_written(&tables, names, &features.row(of.node as usize).collect::<Vec<_>>());
        }
    }
    Ok(explained)
}

/// What each member of an ensemble says of some nodes, by its name; of any other run what it says itself, without a
/// name.
///
/// # Errors
/// As for [`explain_run`].
pub fn explain_members<B: GraphBackend>(
    run: &ScoredRun,
    nodes: &[u32],
    device: &B::Device,
) -> Result<Vec<(String, Vec<Explanation>)>> {
    let Some(ensemble) = &run.ensemble else {
        return Ok(vec![(String::new(), explain_run::<B>(run, nodes, device)?)]);
    };
    let explained = |member: &Member| {
        Ok((member.name.clone(), explain_run::<B>(&member_at::<B>(run, member, device)?, nodes, device)?))
    };
    ensemble.members.iter().map(explained).collect()
}

/// A member of the ensemble `run`, on its data.
fn member_at<B: GraphBackend>(run: &ScoredRun, member: &Member, device: &B::Device) -> Result<ScoredRun> {
    let member = &run.run.path().join(&member.run);
    let class = run.classes.as_ref().and_then(ClassView::class);
    // Scores that were computed now are of other data.
    if run.split.is_none() && run.classes.as_ref().is_none_or(|view| view.split.is_none()) {
        return open_run::<B>(member, class, Some(&run.data), None, device);
    }
    let own = RunConfig::load_kept(&member.join("config.toml"), &[])?;
    ScoredRun::open_at(member, class, (own.data_path() != run.data).then_some(&run.data))
}
