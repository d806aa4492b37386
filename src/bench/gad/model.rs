//! Models: what they are called, and what they say about one split.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use graphsieve_kernels::{GraphBackend, TreeBackend};

use super::reference::{Learner, Reference, Scored};
use super::report::{Figures, SplitReport};
use crate::config::{AutoConfig, Candidate, DataKind, RunConfig, Stage2Input};
use crate::data::split::Split;
use crate::error::Result;
use crate::features::{Block, FeatureTable, Neighbourhood, NeighbourhoodConfig, label_shares};
use crate::graph::Dataset;
use crate::infer::tree_table::Tables;
use crate::metrics::average_precision;
use crate::run::{Meta, RunDir};
use crate::train::RunOptions;
use crate::train::auto::{Known, Trainings};
use crate::train::stretch::{Judged, Stretch, Validated};

/// Blocks of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Inputs {
    /// The features of the node alone.
    Raw,
    /// With means over one and two hops.
    Means,
    /// With differences, wavelets and degrees as well.
    All,
}

impl Inputs {
    /// Each, from the smallest to the largest, which holds the others.
    pub const ALL: [Inputs; 3] = [Inputs::Raw, Inputs::Means, Inputs::All];

    /// The blocks as a configuration.
    pub fn blocks(self) -> NeighbourhoodConfig {
        let blocks = match self {
            Inputs::Raw => NeighbourhoodConfig { raw: true, ..NeighbourhoodConfig::none() },
            Inputs::Means => NeighbourhoodConfig { raw: true, mean: true, ..NeighbourhoodConfig::none() },
            Inputs::All => NeighbourhoodConfig::default(),
        };
        NeighbourhoodConfig { self_loops: true, ..blocks }
    }

    /// The name in an export.
    pub(super) fn name(self) -> &'static str {
        match self {
            Inputs::Raw => "raw",
            Inputs::Means => "means",
            Inputs::All => "all",
        }
    }

    pub(super) fn has(self, block: &Block) -> bool {
        match self {
            Inputs::Raw => *block == Block::Raw,
            Inputs::Means => matches!(block, Block::Raw | Block::Mean),
            Inputs::All => true,
        }
    }
}

/// A row of the table, as `--models` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Trees with the settings of GADBench on some blocks.
    Gadbench(Learner, Inputs),
    /// A candidate of tournaments.
    Candidate(&'static Candidate),
    /// Of several candidates the one with the highest average precision on the validation nodes.
    Chosen(&'static str, &'static [&'static str]),
    /// The mean of the ranks that the chosen forest and the chosen booster give.
    Ensemble,
}

impl Model {
    const FOREST: Model = Model::Chosen("forest", &["forest-leaf1", "forest-leaf5", "forest-leaf10", "forest-leaf20"]);
    const BOOSTER: Model =
        Model::Chosen("booster", &["booster-leaf5", "booster-leaf5-random", "booster-leaf20", "booster-leaf20-random"]);

    /// Every model: those of the benchmark, what validation chooses, and all candidates.
    pub fn all() -> &'static [Model] {
        static ALL: LazyLock<Vec<Model>> = LazyLock::new(|| {
            let learners = [Learner::GadbenchForest, Learner::GadbenchBooster].into_iter();
            let gadbench = learners.flat_map(|of| Inputs::ALL.map(|inputs| Model::Gadbench(of, inputs)));
            let chosen = [Model::FOREST, Model::BOOSTER, Model::Ensemble];
            gadbench.chain(chosen).chain(Candidate::ALL.iter().map(Model::Candidate)).collect()
        });
        &ALL
    }

    /// The model of that name.
    pub fn named(name: &str) -> Option<Model> {
        Self::all().iter().copied().find(|model| model.name() == name)
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Model::Gadbench(Learner::GadbenchForest, Inputs::Raw) => "gadbench-forest-raw",
            Model::Gadbench(Learner::GadbenchForest, Inputs::Means) => "gadbench-forest-means",
            Model::Gadbench(Learner::GadbenchForest, Inputs::All) => "gadbench-forest",
            Model::Gadbench(Learner::GadbenchBooster, Inputs::Raw) => "gadbench-booster-raw",
            Model::Gadbench(Learner::GadbenchBooster, Inputs::Means) => "gadbench-booster-means",
            Model::Gadbench(Learner::GadbenchBooster, Inputs::All) => "gadbench-booster",
            Model::Candidate(candidate) => candidate.name,
            Model::Chosen(name, _) => name,
            Model::Ensemble => "ensemble",
        }
    }

    /// The candidates that it is made of.
    pub fn candidates(self) -> Vec<&'static Candidate> {
        match self {
            Model::Gadbench(..) => Vec::new(),
            Model::Candidate(candidate) => vec![candidate],
            Model::Chosen(_, names) => names.iter().filter_map(|name| Candidate::named(name)).collect(),
            Model::Ensemble => [Self::FOREST.candidates(), Self::BOOSTER.candidates()].concat(),
        }
    }

    /// Whether it is made for such data.
    pub fn suits(self, data: DataKind) -> bool {
        self.candidates().iter().all(|candidate| candidate.suits.fits(data))
    }

    /// Whether its layers take them.
    pub fn takes(self, data: DataKind) -> bool {
        self.candidates().iter().all(|candidate| candidate.takes(data))
    }
}

/// Columns that a candidate sees.
pub(super) fn columns_of(candidate: &'static Candidate, dataset: &Dataset) -> Result<usize> {
    let Some(features) = &dataset.features else { return Ok(0) };
    let config = AutoConfig::new("data");
    let embedding = Candidate::stage1(&config)?.model.out;
    match candidate.config(&config)? {
        RunConfig::Stage2(config) if config.data.input == Stage2Input::Embeddings => Ok(embedding),
        RunConfig::Stage3(config) => {
            let of = &config.features;
            let columns = Neighbourhood::new(&dataset.graph, features, &of.neighbourhood)?.columns().len();
            let of_labels = match of.label_share {
                true => label_shares(&dataset.graph, &of.neighbourhood, &[], 1)?.0.len(),
                false => 0,
            };
            let of_stages = [of.reconstruction, of.stage2_score].map(usize::from).iter().sum::<usize>();
            Ok(columns + of_labels + of_stages + if of.embedding { embedding } else { 0 })
        }
        _ => Ok(features.dim()),
    }
}

/// What all splits share.
pub(super) struct Common<'a, B: GraphBackend> {
    pub config: AutoConfig,
    pub options: RunOptions,
    pub device: &'a B::Device,
    pub tables: Tables,
    /// The columns of the models of the benchmark, where there are any.
    pub features: Option<FeatureTable>,
}

/// Models on the same split.
pub(super) struct Fitting<'a, B: GraphBackend> {
    common: &'a Common<'a, B>,
    known: Known,
    split: &'a Split,
    run: RunDir,
    seed: u64,
    scored: BTreeMap<&'static str, Scored>,
}

impl<'a, B: GraphBackend + TreeBackend> Fitting<'a, B> {
    /// `dataset` is that of the split; the labels of its test nodes are taken away.
    pub fn new(common: &'a Common<'a, B>, dataset: Dataset, split: &'a Split, seed: u64) -> Result<Self> {
        let config = AutoConfig { seed, ..common.config.clone() };
        let toml = RunConfig::Auto(config).to_toml()?;
        let meta = Meta::now(common.options.device.clone(), seed);
        let run = RunDir::create(&common.config.output.dir, "gad", &toml, meta)?;
        Ok(Self { common, known: Known::of_split(dataset, split), split, run, seed, scored: BTreeMap::new() })
    }

    /// Fits a model and measures it.
    pub fn model(&mut self, model: Model) -> Result<SplitReport> {
        let scored = self.scored(model)?;
        let labels = |part: &[(u32, u8)]| part.iter().map(|&(_, label)| label).collect::<Vec<_>>();
        Ok(SplitReport {
            seed: self.seed,
            validation: Figures::of(&scored.validation, &labels(&self.split.validation))?,
            test: Figures::of(&scored.test, &labels(&self.split.test))?,
            setting: scored.setting,
            seconds: scored.seconds,
        })
    }

    fn scored(&mut self, model: Model) -> Result<Scored> {
        match model {
            Model::Gadbench(learner, inputs) => {
                let features = self.common.features.as_ref();
                let table = features.map(|table| table.select(|column| inputs.has(&column.block)));
                let table = table.unwrap_or_else(|| unreachable!("made where a model asks for it"));
                Reference::new(&table, self.split, self.seed)?.scored(learner)
            }
            Model::Candidate(candidate) => self.candidate(candidate),
            Model::Chosen(..) => {
                let labels: Vec<u8> = self.split.validation.iter().map(|&(_, label)| label).collect();
                let mut best: Option<(f64, Scored)> = None;
                let mut seconds = 0.0;
                for candidate in model.candidates() {
                    let scored = self.candidate(candidate)?;
                    seconds += scored.seconds;
                    let value = average_precision(&scored.validation, &labels)?;
                    if best.as_ref().is_none_or(|(best, _)| value > *best) {
                        best = Some((value, scored));
                    }
                }
                let (_, best) = best.unwrap_or_else(|| unreachable!("a choice of at least one candidate"));
                Ok(Scored { seconds, ..best })
            }
            Model::Ensemble => {
                let (forest, booster) = (self.scored(Model::FOREST)?, self.scored(Model::BOOSTER)?);
                Ok(Scored {
                    setting: format!("{} and {}", forest.setting, booster.setting),
                    validation: mean_rank(&forest.validation, &booster.validation),
                    test: mean_rank(&forest.test, &booster.test),
                    seconds: forest.seconds + booster.seconds,
                })
            }
        }
    }

    /// Trains a candidate to its end, once.
    fn candidate(&mut self, candidate: &'static Candidate) -> Result<Scored> {
        if let Some(scored) = self.scored.get(candidate.name) {
            return Ok(scored.clone());
        }
        let Common { config, options, device, tables, .. } = self.common;
        let (started, own) = (Instant::now(), [candidate]);
        let config = AutoConfig { seed: self.seed, ..config.clone() };
        let trainings = Trainings::<B>::new(&config, &self.known, &own, &self.run, options, device, tables)?;
        let test: Vec<u32> = self.split.test.iter().map(|&(node, _)| node).collect();
        let Validated { judged, also, .. } = trainings.validated(0, Stretch { share: 1.0, deadline: None }, &test)?;
        let Judged::Anomalies { scores, .. } = judged else { unreachable!("labels that are anomalous or normal") };
        let seconds = Duration::as_secs_f64(&started.elapsed());
        let scored = Scored { setting: candidate.name.into(), validation: scores, test: also, seconds };
        self.scored.insert(candidate.name, scored.clone());
        Ok(scored)
    }
}

/// Mean of the ranks in two lists of scores, scaled to (0, 1); equal scores share the mean of their places.
fn mean_rank(a: &[f32], b: &[f32]) -> Vec<f32> {
    let largest = a.len() as f64 + 1.0;
    ranks(a).into_iter().zip(ranks(b)).map(|(a, b)| ((a + b) / (2.0 * largest)) as f32).collect()
}

fn ranks(scores: &[f32]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&i, &j| scores[i].total_cmp(&scores[j]));
    let mut ranks = vec![0.0; scores.len()];
    let mut before = 0;
    for tied in order.chunk_by(|&i, &j| scores[i] == scores[j]) {
        let middle = before as f64 + (tied.len() as f64 + 1.0) / 2.0;
        tied.iter().for_each(|&i| ranks[i] = middle);
        before += tied.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_share_a_rank() {
        assert_eq!(ranks(&[0.5, 0.1, 0.5, 0.9]), [2.5, 1.0, 2.5, 4.0]);
        assert_eq!(mean_rank(&[1.0, 2.0, 3.0], &[30.0, 20.0, 10.0]), [0.5; 3]);
        assert_eq!(mean_rank(&[], &[]), [0.0f32; 0]);
    }

    #[test]
    fn every_model_has_a_name_of_its_own_and_candidates_that_there_are() {
        let mut names: Vec<&str> = Model::all().iter().map(|model| model.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Model::all().len());
        assert!(Candidate::ALL.iter().all(|candidate| Model::named(candidate.name).is_some()));
        assert_eq!(Model::Ensemble.candidates().len(), 8);
    }
}
