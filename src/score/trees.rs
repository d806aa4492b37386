//! Stage 3: scores and explanations of a tree ensemble.

use graphsieve_kernels::GraphBackend;

use super::explain::Explanation;
use super::explain::names::Names;
use super::explain::similar::Known;
use super::explain::stage3::{self, Forest};
use super::fits::check_data;
use super::model::{Model, check_one, check_unused, other_task};
use super::{Computed, ScoreOptions, ScoredRun, Scores};
use crate::config::RunConfig;
use crate::error::Result;
use crate::graph::{Dataset, Spill};
use crate::infer::tree_table::{TableOptions, table};
use crate::models::tree_ensemble::TreeCheckpoint;
use crate::run::bundle::{Bundle, Reads};

/// Trees.
pub(super) struct Trees(pub TreeCheckpoint);

impl<B: GraphBackend> Model<B> for Trees {
    fn compute(&self, options: &ScoreOptions, bundle: Option<&Bundle>, devices: &[B::Device]) -> Result<Computed> {
        check_one(devices, "a model of trees")?;
        let help = "trees refine no embeddings; score with a Stage-2 checkpoint for those";
        check_unused(&[("--embeddings", options.embeddings)], "a run of Stage 3", help)?;
        let mut dataset = Dataset::open(&options.data)?;
        check_data(bundle, options, &dataset, Reads::Features)?;
        let place = TableOptions {
            checkpoint: &options.checkpoint,
            run: options.checkpoint.is_dir().then_some(options.checkpoint.as_path()),
            data: &options.data,
            input: options.input.as_deref(),
            spill: &options.spill,
        };
        let table = table::<B>(&place, &self.0, &dataset, &devices[0])?;
        if self.0.inputs.neighbourhood.edge_values {
            dataset.load_edge_values()?;
        }
        let scores = Scores::Anomaly(self.0.ensemble.predict_table(&table)?);
        Ok(Computed { dataset, scores, embeddings: None })
    }

    fn explain(&self, run: &ScoredRun, nodes: &[u32], device: &B::Device) -> Result<Vec<Explanation>> {
        let RunConfig::Stage3(config) = &run.config else { return Err(other_task(run, "Stage 3")) };
        let (path, names) = (run.run.path(), &Names::new(&run.dataset, &run.scores));
        let trained = match RunConfig::load_kept(&run.run.config(), &[])? {
            RunConfig::Stage3(trained) => trained.data.embeddings,
            _ => None,
        };
        let input = config.data.embeddings.as_deref().filter(|given| trained.as_deref() != Some(*given));
        let spill = &Spill::default();
        let options = TableOptions { checkpoint: path, run: Some(path), data: &run.data, input, spill };
        let table = table::<B>(&options, &self.0, &run.dataset, device)?;
        let embeddings = stage3::embeddings_of(&table);
        let known = embeddings.as_ref().and_then(|z| Known::of(run, z));
        let forest = Forest { names, checkpoint: &self.0, table: &table, data: &run.data, known: known.as_ref() };
        nodes.iter().map(|&node| forest.explain::<B>(run.probability(node), node, device)).collect()
    }
}
