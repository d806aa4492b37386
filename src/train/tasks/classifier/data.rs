//! What a classification reads, and what it refuses.

use std::path::Path;
use std::sync::Arc;

use crate::config::{Best, ClassifyAttention, ClassifyConfig, ClassifyLoss, LayerKind};
use crate::data::class_split::ClassSplit;
use crate::error::{Error, Result};
use crate::graph::{Dataset, EdgeReading, Features, Filling};
use crate::models::attention::{Connections, read_edges};
use crate::models::node_classifier::{AttentionShape, ClassifierSpec, EdgeCut};
use crate::run::splits::{class_split_of, classes_within};
use crate::train::session::part_note;

/// What a classification reads: data with features and classes, and how they are divided.
pub struct ClassifierData {
    pub dataset: Arc<Dataset>,
    /// Those of the data, with what stands for missing values.
    pub(super) features: Features,
    pub(super) filling: Filling,
    pub(super) spec: ClassifierSpec,
    pub(super) split: ClassSplit,
}

impl ClassifierData {
    /// Reads what a configuration names, for a training that goes on with the run `begun` or begins with it.
    ///
    /// # Errors
    /// Data that cannot be read, that lack features or labels, or that do not fit the split.
    pub fn read(config: &ClassifyConfig, begun: Option<&Path>) -> Result<Self> {
        let path = &config.data.path;
        let edges = EdgeReading { directed: config.data.directed };
        let mut dataset = Dataset::open_with(path, edges)?.in_window(config.data.window)?;
        load_edges(config, &mut dataset)?;
        let split = class_split_of(&dataset, &*dataset.node_classes(path)?, &config.split, config.seed)?;
        Self::of(config, Arc::new(dataset), split, begun)
    }

    /// Of data that are read and divided already, but for what the settings ask of edges.
    ///
    /// # Errors
    /// Data that lack features or labels; what edges carry that cannot be read.
    pub fn of_known(
        config: &ClassifyConfig,
        dataset: &Arc<Dataset>,
        split: ClassSplit,
        begun: Option<&Path>,
    ) -> Result<Self> {
        let mut dataset = dataset.clone();
        let of_attention = config.model.attention.as_ref().is_some_and(|attention| attention.edges().any());
        if of_attention || config.model.edge_weights || config.loader.draws_by_weight() {
            load_edges(config, Arc::make_mut(&mut dataset))?;
        }
        Self::of(config, dataset, split, begun)
    }

    /// With the weights, values and ages of edges that are asked for.
    fn of(config: &ClassifyConfig, dataset: Arc<Dataset>, split: ClassSplit, begun: Option<&Path>) -> Result<Self> {
        let path = &config.data.path;
        let classes = dataset.node_classes(path)?;
        let filling = dataset.filling(begun)?;
        let features = dataset.filled(filling.as_ref(), path)?;
        let (Some(filling), Some(features)) = (filling, features) else {
            let help = "node classification learns from features; add them to the data";
            return Err(Error::format(path, "features", "a feature file", "none", help));
        };
        if classes.count() < 2 {
            let help = "there is nothing to tell apart; look at the labels";
            return Err(Error::format(path, "labels", "at least two classes", classes.count().to_string(), help));
        }
        check_two_classes(config, classes.count(), &split)?;
        let model = &config.model;
        let spec = ClassifierSpec {
            attention: AttentionShape::of(model),
            row_normalise: config.data.row_normalise,
            directed: config.data.directed,
            connections: Connections {
                residual: model.residual,
                norm: model.norm,
                jump: model.jump,
                ..Connections::default()
            },
            order: model.layer.is_wavelets().then_some(model.order),
            two_hops: (model.layer == LayerKind::H2gcn).then_some(model.two_hops),
            ..ClassifierSpec::new(model.layer, [features.dim(), model.hidden, classes.count()], model.layers)
        };
        let spec = spec.over(&dataset.graph)?;
        let cut = |features: &Features, train: &[(u32, u32)]| EdgeCut::fit(config.model.cut, features, train);
        let cut = match spec.layer {
            LayerKind::Ghrn => Some(match dataset.training_part() {
                None => cut(&features, &split.train)?,
                // By no label that came later than what training may see.
                Some(known) => cut(&known.rows_of(&features), &classes_within(&split, &known, &dataset).train)?,
            }),
            _ => None,
        };
        let spec = ClassifierSpec { cut, ..spec };
        let spec = match config.model.edge_weights {
            true => {
                dataset.check_edge_weights("model.edge_weights")?;
                spec.with_weights_of(&dataset.graph)
            }
            false => spec,
        };
        let reads = config.model.attention.as_ref().map(ClassifyAttention::edges).filter(|reads| reads.any());
        let spec = match reads {
            None => spec,
            // Periods of ages that begin with what training may see.
            Some(reads) => match dataset.training_part() {
                None => spec.with_edges_of(reads, &dataset.graph),
                Some(known) => spec.with_edges_of(reads, &known.dataset.graph),
            },
        };
        drop(classes);
        Ok(Self { dataset, features, filling, spec, split })
    }

    /// Of data that are split by time what training may see, and a note about it.
    pub(super) fn known(&self) -> Option<(Self, String)> {
        let known = self.dataset.training_part()?;
        let (split, note) = (classes_within(&self.split, &known, &self.dataset), part_note(&known, &self.dataset));
        let (features, filling, spec) = (known.rows_of(&self.features), self.filling.clone(), self.spec.clone());
        Some((Self { split, features, filling, spec, dataset: Arc::new(known.dataset) }, note))
    }
}

/// Gives the graph of some data what a training of these settings reads of its edges.
///
/// # Errors
/// Values, weights or times that cannot be read; ages that are asked for of edges without times, and weights.
fn load_edges(config: &ClassifyConfig, dataset: &mut Dataset) -> Result<()> {
    let by_weight = (config.loader.draws_by_weight(), "loader.draw");
    for (asked, key) in [(config.model.edge_weights, "model.edge_weights"), by_weight] {
        if asked {
            dataset.load_edge_weights(key)?;
        }
    }
    config.model.attention.as_ref().map_or(Ok(()), |attention| read_edges(attention.edges(), dataset))
}

/// Refuses settings that are for labels which are anomalous or normal where there are other classes, and a choice by
/// average precision on validation labels of one class.
fn check_two_classes(config: &ClassifyConfig, classes: usize, split: &ClassSplit) -> Result<()> {
    let by_precision = config.train.best == Best::AveragePrecision;
    let cuts = config.model.layer == LayerKind::Ghrn;
    let asked = [
        ("model.layer", "\"ghrn\"", cuts, "set model.layer = \"bw\", which reads all edges"),
        ("train.best", "\"average_precision\"", by_precision, "set train.best = \"accuracy\", \"loss\" or \"both\""),
        (
            "[loss]",
            "given",
            config.loss != ClassifyLoss::default(),
            "leave out loss.positive_weight and loss.focal_gamma",
        ),
    ];
    if let Some((key, found, _, help)) = asked.into_iter().find(|(_, _, asked, _)| *asked && classes != 2) {
        let expected = format!("two classes, 0 (normal) and 1 (anomalous), not {classes}");
        return Err(Error::setting(key, found, expected, help));
    }
    let anomalous = split.validation.iter().filter(|(_, class)| *class == 1).count();
    let normal = split.validation.len() - anomalous;
    if by_precision && (anomalous == 0 || normal == 0) {
        let expected = format!("anomalous and normal validation nodes, not {anomalous} and {normal}");
        let help = "label more nodes, or give validation a larger share (split.validation)";
        return Err(Error::setting("train.best", "\"average_precision\"", expected, help));
    }
    Ok(())
}
