//! Stage 1: how badly embeddings explain the edges of each node, and which edges.

use graphsieve_kernels::GraphBackend;

use super::explain::Explanation;
use super::explain::names::Names;
use super::explain::similar::Known;
use super::explain::stage1;
use super::fits::check_data;
use super::model::{Model, OfAll, PartModel, Place, Reach, check_one, check_unused};
use super::{Computed, ScoreOptions, ScoredRun, Scores};
use crate::error::Result;
use crate::graph::{Dataset, Spill};
use crate::infer::embed::{Growing, Source};
use crate::infer::tree_table::{reconstruction_error, reconstruction_scores, score_of_error};
use crate::infer::uploaded::Uploaded;
use crate::live::Part;
use crate::run::bundle::{Bundle, Reads};

/// A graph auto-encoder, see [`Stage::Reconstruction`](super::Stage::Reconstruction).
pub(super) struct Reconstruction;

impl<B: GraphBackend> Model<B> for Reconstruction {
    fn compute(&self, options: &ScoreOptions, bundle: Option<&Bundle>, devices: &[B::Device]) -> Result<Computed> {
        check_one(devices, "a model of Stage 1")?;
        if let Some(input) = &options.input {
            let help = "Stage 1 makes its embeddings itself, from the features of the data";
            check_unused(&[(&format!("--input {}", input.display()), true)], "a run of Stage 1", help)?;
        }
        let dataset = Dataset::open(&options.data)?;
        check_data(bundle, options, &dataset, Reads::Features)?;
        let source = Source::of_stage1(&options.checkpoint, &options.data);
        let z = source.read::<B>(&dataset, &options.data, &options.spill, &devices[0])?;
        let scores = reconstruction_scores(&dataset.graph, z.as_f32());
        Ok(Computed { dataset, scores: Scores::Anomaly(scores), embeddings: options.embeddings.then_some(z) })
    }

    fn explain(&self, run: &ScoredRun, nodes: &[u32], device: &B::Device) -> Result<Vec<Explanation>> {
        let names = &Names::new(&run.dataset, &run.scores);
        let source = Source::of_stage1(run.run.path(), &run.data);
        let z = source.read::<B>(&run.dataset, &run.data, &Spill::default(), device)?;
        let known = Known::of(run, &z);
        let explain = |&node: &u32| stage1::explain(names, z.as_f32(), run.probability(node), known.as_ref(), node);
        nodes.iter().map(explain).collect()
    }

    fn prepared(self: Box<Self>, place: &Place<'_, B>) -> Result<Box<dyn PartModel<B>>> {
        let Place { run, dataset, data, device, .. } = *place;
        place.check(Reads::Features)?;
        let source = Source::of_stage1(run, data);
        let growing = Growing::open(source, Some(run.to_owned()), (dataset, data), device)?;
        Ok(Box::new(ReconstructionParts { growing, device: device.clone() }))
    }
}

/// A graph auto-encoder that scores parts of a graph.
struct ReconstructionParts<B: GraphBackend> {
    growing: Growing<B>,
    device: B::Device,
}

impl<B: GraphBackend> PartModel<B> for ReconstructionParts<B> {
    fn reach(&self) -> Reach {
        Reach::of(1, Some((&self.growing, 1)), 0)
    }

    fn of_all(&self, dataset: &Dataset) -> Result<OfAll> {
        Ok(OfAll { embeddings: Some(self.growing.of_all(dataset, &self.device)?), ..OfAll::default() })
    }

    /// NaN for a target without edges.
    fn scores(&self, part: &Part, all: &OfAll) -> Result<Vec<f32>> {
        let z = self.growing.within(1, part, all.rows(), &Uploaded::new(&self.device))?;
        let error = reconstruction_error(&part.dataset.graph, z.as_f32());
        Ok(part.targets.iter().map(|&node| score_of_error(error(node as usize))).collect())
    }

    fn explain(
        &self,
        part: &Part,
        all: &OfAll,
        names: &Names,
        node: u32,
        probability: Option<f64>,
    ) -> Result<Explanation> {
        let z = self.growing.of_part(part, all.rows(), None, &Uploaded::new(&self.device))?;
        stage1::explain(names, z.as_f32(), probability, None, node)
    }
}
