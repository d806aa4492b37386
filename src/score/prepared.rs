//! Models that stay loaded and score parts of a graph.

use std::path::Path;
use std::sync::Arc;

use graphsieve_kernels::GraphBackend;

use super::explain::Explanation;
use super::explain::names::Names;
use super::kinds;
use super::model::{OfAll, PartModel, Place};
use crate::config::RunConfig;
use crate::data::tables::RowTables;
use crate::error::{Error, Result};
use crate::graph::{Dataset, digest};
use crate::live::{Makes, Part, RowReader};
use crate::metrics::Calibration;
use crate::run::RunDir;
use crate::run::bundle::Bundle;
use crate::run::calibration::{read_calibration, read_class_calibrations};
use crate::run::ensemble::Ensemble;
use crate::run::evaluation::Evaluation;
use crate::run::model::model_of;

/// Digits of the digest in a name.
const DIGITS: usize = 12;

/// The model of a run, read once, that scores parts of a graph.
///
/// Threads share it: what it holds is only read. It computes with the threads of `rayon`'s pool that it is called in.
/// These take longer to wake up than a part takes, so that a pool of one thread for each that asks is best: one batch
/// takes one core.
pub struct Prepared<B: GraphBackend> {
    /// The members of an ensemble, or one model.
    models: Vec<Box<dyn PartModel<B>>>,
    ensemble: Option<Ensemble>,
    /// Of each model by itself.
    calibrations: Vec<Option<Calibration>>,
    calibration: Option<Calibration>,
    threshold: Option<f64>,
    /// What tells how the columns of the data were made, for explanations.
    tables: Option<Arc<RowTables>>,
    name: String,
}

/// What was read or made for all nodes at once, and stays until it is made again. Clones share it.
#[derive(Clone, Debug)]
pub struct Refreshed(Arc<Vec<OfAll>>);

impl Refreshed {
    /// Whether embeddings of Stage 1 are in it.
    pub fn has_embeddings(&self) -> bool {
        self.0.iter().any(|of| of.embeddings.is_some())
    }
}

impl<B: GraphBackend> Prepared<B> {
    /// Reads the model of a finished run; of a tournament that of its candidate, of a pipeline that of its last stage.
    /// `dataset`, which was read from `data`, is what is served first: its nodes and relations are those that parts
    /// have.
    ///
    /// # Errors
    /// As for [`compute`](super::compute) with these data; [`Error::Usage`] for a model
    /// that looks at more than a part of a graph: more classes than two, edges that are cut or neighbours that are
    /// drawn by all of it, and ages up to its latest edge.
    pub fn open(run: &Path, data: &Path, dataset: &Dataset, device: &B::Device) -> Result<Self> {
        graphsieve_kernels::device::watch();
        let run = &RunDir::open(&model_of(run)?)?;
        let bundle = Bundle::open(run.path())?;
        let ensemble = Ensemble::of_run(run.path())?;
        let (mut models, mut calibrations) = (Vec::new(), Vec::new());
        let mut add = |run: &RunDir, bundle: Option<&Bundle>| -> Result<()> {
            let place = Place { run: run.path(), bundle, dataset, data, device };
            models.push(kinds::open::<B>(run.path())?.prepared(&place)?);
            calibrations.push(calibration_of(run)?);
            Ok(())
        };
        match &ensemble {
            None => add(run, bundle.as_ref())?,
            Some(ensemble) => ensemble.members.iter().try_for_each(|member| {
                let run = RunDir::open(&run.path().join(&member.run))?;
                add(&run, Bundle::open(run.path())?.as_ref())
            })?,
        }
        Ok(Self {
            models,
            ensemble,
            calibrations,
            calibration: calibration_of(run)?,
            threshold: Evaluation::of_run(run)?.map(|evaluation| evaluation.threshold),
            tables: None,
            name: name_of(run, bundle.as_ref()),
        })
    }

    /// With the tables that `reader` reads rows of: explanations say what is written there.
    pub fn with_tables_of(self, reader: &RowReader) -> Self {
        Self { tables: reader.tables().cloned(), ..self }
    }

    /// The name of the run and the begin of a digest of what the model is made of, which tells it from others.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many edges a part has to reach from its targets so that, with all neighbours in it, they have the scores
    /// that they have in the whole graph: one for each layer or step over neighbours, one more where the degrees of far
    /// ends count, and those that Stage 1 looks from a new node.
    pub fn hops(&self) -> usize {
        self.models.iter().map(|model| model.reach().whole()).max().unwrap_or_default()
    }

    /// The same of a part that need not have what is around nodes of which was kept what the model makes of them
    /// ([`Draw::makes`](crate::live::Draw::makes)). What it makes of others stays with the graph, until other nodes or
    /// another model are refreshed.
    pub fn reach(&self) -> (usize, Makes) {
        match &self.models[..] {
            [model] => (model.reach().hops, model.reach().makes),
            // Each member makes its own.
            _ => (self.hops(), Makes::default()),
        }
    }

    /// Refuses draws of neighbours for fewer layers than the model has: the last ones would see none.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check_fanouts(&self, fanouts: &[usize]) -> Result<()> {
        let layers = self.models.iter().map(|model| model.layers()).max().unwrap_or_default();
        if fanouts.len() >= layers {
            return Ok(());
        }
        Err(Error::Usage {
            argument: "--fanouts".into(),
            expected: format!("{layers} numbers, one for each layer of the model"),
            found: fanouts.len().to_string(),
            help: "say how many neighbours to draw at each step from a node, such as 15,10".into(),
        })
    }

    /// Reads or makes what is made for all nodes of `dataset` at once: embeddings of Stage 1, as `score` takes them,
    /// and the labels that the model reads. [`Part::refreshed`] is then by the numbers of this `dataset`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn refresh(&self, dataset: &Dataset) -> Result<Refreshed> {
        let of_models = self.models.iter().map(|model| model.of_all(dataset));
        of_models.collect::<Result<_>>().map(Arc::new).map(Refreshed)
    }

    /// By part the score of every target, in [0, 1]: of a model of Stage 1 NaN for a target without edges. On the
    /// processor the scores of a part are the same to the bit alone and among any others; a GPU may take another way
    /// through a product of other size.
    ///
    /// # Errors
    /// Parts that do not fit the model; a new node that needs an embedding where there are no weights for one; a device
    /// that failed.
    pub fn scores(&self, parts: &[Part], refreshed: &Refreshed) -> Result<Vec<Vec<f32>>> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let scores = self.of_all_parts(parts, refreshed)?;
        let mut left = scores.into_iter();
        Ok(parts.iter().map(|part| left.by_ref().take(part.targets.len()).collect()).collect())
    }

    /// The scores of all targets, one part behind another.
    fn of_all_parts(&self, parts: &[Part], refreshed: &Refreshed) -> Result<Vec<f32>> {
        let joins = |model: &dyn PartModel<B>| parts.len() > 1 && parts.iter().all(|part| model.joins(part));
        let joins: Vec<bool> = self.models.iter().map(|model| joins(&**model)).collect();
        let joined = joins.contains(&true).then(|| Part::join(parts)).transpose()?;
        let of_model = |((model, all), joins): ((&dyn PartModel<B>, &OfAll), &bool)| match &joined {
            Some(joined) if *joins => model.scores(joined, all),
            _ => Ok(parts.iter().map(|part| model.scores(part, all)).collect::<Result<Vec<_>>>()?.concat()),
        };
        let models = self.models.iter().map(|model| &**model);
        let mut scores = models.zip(&*refreshed.0).zip(&joins).map(of_model).collect::<Result<Vec<_>>>()?;
        Ok(match &self.ensemble {
            Some(ensemble) => ensemble.mean(&scores),
            None => scores.swap_remove(0),
        })
    }

    /// Why a target of a part, given by its place in [`Part::targets`], has its score, in the terms of the data; of an
    /// ensemble what its best member says.
    ///
    /// # Errors
    /// As for [`scores`](Self::scores); [`Error::Data`] for a target without a score.
    ///
    /// # Panics
    /// For a target that there is not.
    pub fn explain(&self, part: &Part, refreshed: &Refreshed, target: usize) -> Result<Explanation> {
        let (model, all, node) = (&self.models[0], &refreshed.0[0], part.targets[target]);
        let one = Part { targets: vec![node], ..part.clone() };
        let score = model.scores(&one, all)?[0];
        // What is around it is cut somewhere: others have no score here.
        let mut scores = vec![f32::NAN; part.dataset.graph.num_nodes()];
        scores[node as usize] = score;
        let probability = self.calibrations[0].as_ref().and_then(|calibration| calibration.probability(score));
        let mut explained = model.explain(part, all, &Names::new(&part.dataset, &scores), node, probability)?;
        if let (Some(tables), Some(features)) = (&self.tables, &part.dataset.features) {
            explained.add_written(tables, tables.columns(), &features.row(node as usize).collect::<Vec<_>>());
        }
        Ok(explained)
    }

    /// The probability that a score means, as the calibration of the run tells it.
    pub fn probability(&self, score: f32) -> Option<f64> {
        self.calibration.as_ref()?.probability(score)
    }

    /// The score from which on the run takes a node for anomalous, where it has chosen one.
    pub fn threshold(&self) -> Option<f64> {
        self.threshold
    }
}

/// From the scores of a run to probabilities; of a classifier from those of class 1.
fn calibration_of(run: &RunDir) -> Result<Option<Calibration>> {
    match RunConfig::load_kept(&run.config(), &[])? {
        RunConfig::Classify(_) => Ok(read_class_calibrations(run, 2)?.and_then(|mut of_class| of_class.swap_remove(1))),
        _ => read_calibration(run),
    }
}

fn name_of(run: &RunDir, bundle: Option<&Bundle>) -> String {
    let name = run.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(bundle) = bundle.filter(|bundle| !bundle.files.is_empty()) else { return name };
    let files: Vec<&str> = bundle.files.values().map(|file| file.sha256.as_str()).collect();
    let digest = digest::of_bytes(files.join(" ").as_bytes());
    format!("{name} {}", digest.chars().filter(char::is_ascii_hexdigit).take(DIGITS).collect::<String>())
}

#[cfg(test)]
mod tests;
