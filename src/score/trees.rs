//! Stage 3: scores and explanations of a tree ensemble.

use std::path::{Path, PathBuf};

use graphsieve_kernels::GraphBackend;

use super::explain::Explanation;
use super::explain::names::Names;
use super::explain::similar::Known;
use super::explain::stage3::{self, Forest};
use super::fits::check_data;
use super::model::{Model, OfAll, PartModel, Place, Reach, check_one, check_unused, other_task};
use super::{Computed, ScoreOptions, ScoredRun, Scores};
use crate::config::RunConfig;
use crate::error::Result;
use crate::features::FeatureTable;
use crate::graph::{Dataset, Spill};
use crate::infer::embed::Growing;
use crate::infer::tree_table::{TableModel, TableOptions, table};
use crate::infer::uploaded::Uploaded;
use crate::live::Part;
use crate::models::tree_ensemble::TreeCheckpoint;
use crate::run::bundle::{Bundle, Reads};
use crate::trees::Matrix;

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

    fn prepared(self: Box<Self>, place: &Place<'_, B>) -> Result<Box<dyn PartModel<B>>> {
        let Place { run, dataset, data, device, .. } = *place;
        place.check(Reads::Features)?;
        let options = TableOptions { checkpoint: run, run: Some(run), data, input: None, spill: &Spill::default() };
        let tables = TableModel::<B>::open(&options, &self.0, dataset, device)?.for_parts_of(dataset.features.as_ref());
        place.check_ages(tables.reads_ages())?;
        let growing = match tables.reads_embeddings() {
            true => {
                let (source, weights) = (tables.source().clone(), tables.weights().map(Path::to_owned));
                Some(Growing::open(source, weights, (dataset, data), device)?)
            }
            false => None,
        };
        let (of_events, data, device) = (dataset.events.is_some(), data.to_owned(), device.clone());
        Ok(Box::new(TreeParts { checkpoint: self.0, tables, growing, of_events, data, device }))
    }
}

/// Trees that score parts of a graph.
struct TreeParts<B: GraphBackend> {
    checkpoint: TreeCheckpoint,
    tables: TableModel<B>,
    growing: Option<Growing<B>>,
    /// Whether nodes hear of earlier ones alone.
    of_events: bool,
    data: PathBuf,
    device: B::Device,
}

impl<B: GraphBackend> TreeParts<B> {
    /// What makes those of Stage 1.
    fn embeddings(&self) -> &Growing<B> {
        self.growing.as_ref().unwrap_or_else(|| unreachable!("embeddings are asked for where they are read"))
    }

    /// The table of all nodes of a part, which explanations read.
    fn table(&self, part: &Part, all: &OfAll) -> Result<FeatureTable> {
        let labels = all.labels.of_part(&part.refreshed, part.dataset.events.as_ref());
        let z = |_: &Spill| self.embeddings().of_part(part, all.rows(), None, &Uploaded::new(&self.device));
        let table = self.tables.table(&part.dataset, &self.data, &labels, z, (&Spill::default(), false))?;
        self.checkpoint.check_columns(table.columns(), &self.data)?;
        Ok(table)
    }
}

impl<B: GraphBackend> PartModel<B> for TreeParts<B> {
    fn layers(&self) -> usize {
        self.tables.layers()
    }

    fn reach(&self) -> Reach {
        let within = self.tables.embeddings_within();
        let networks = if self.of_events { self.tables.networks() } else { 0 };
        Reach::of(self.tables.reach(), self.growing.as_ref().map(|growing| (growing, within)), networks)
    }

    fn of_all(&self, dataset: &Dataset) -> Result<OfAll> {
        let embeddings = self.growing.as_ref().map(|growing| growing.of_all(dataset, &self.device)).transpose()?;
        Ok(OfAll { embeddings, labels: self.tables.labels(dataset, &self.data)? })
    }

    fn joins(&self, part: &Part) -> bool {
        self.tables.joins(part.dataset.features.as_ref())
    }

    fn scores(&self, part: &Part, all: &OfAll) -> Result<Vec<f32>> {
        let labels = all.labels.of_part(&part.refreshed, part.dataset.events.as_ref());
        let uploaded = &Uploaded::new(&self.device);
        let z = |nodes: Option<&[u32]>| match nodes {
            Some(_) => self.embeddings().of_part(part, all.rows(), nodes, uploaded),
            None => self.embeddings().within(self.tables.embeddings_within(), part, all.rows(), uploaded),
        };
        let table = self.tables.rows(part, &self.data, &labels, z, uploaded)?;
        self.checkpoint.check_columns(table.columns(), &self.data)?;
        let rows: Vec<f32> = (0..table.num_rows()).flat_map(|row| table.row(row)).collect();
        self.checkpoint.ensemble.predict(&Matrix::f32(&rows, table.columns().len())?)
    }

    fn explain(
        &self,
        part: &Part,
        all: &OfAll,
        names: &Names,
        node: u32,
        probability: Option<f64>,
    ) -> Result<Explanation> {
        let table = self.table(part, all)?;
        let forest = Forest { names, checkpoint: &self.checkpoint, table: &table, data: &self.data, known: None };
        forest.explain::<B>(probability, node, &self.device)
    }
}
