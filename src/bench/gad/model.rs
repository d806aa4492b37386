//! Models: a learner on some blocks of features, fitted to one split.

use std::time::Instant;

use super::candidates::{Settings, candidates};
use super::report::{Figures, SplitReport};
use crate::data::split::Split;
use crate::error::Result;
use crate::features::{Block, FeatureTable, NeighbourhoodConfig};
use crate::metrics::average_precision;
use crate::trees::{BinRule, Booster, Dataset, Fit, Forest, Matrix};

/// What is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learner {
    /// A random forest with the settings that GADBench measures scikit-learn's with.
    GadbenchForest,
    /// Gradient-boosted trees with the settings that GADBench measures XGBoost with.
    GadbenchBooster,
    /// A random forest with settings that validation nodes choose.
    Forest,
    /// Gradient-boosted trees with settings that validation nodes choose.
    Booster,
    /// The mean of the ranks that the chosen forest and the chosen booster give.
    Ensemble,
}

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
        match self {
            Inputs::Raw => NeighbourhoodConfig { raw: true, ..NeighbourhoodConfig::none() },
            Inputs::Means => NeighbourhoodConfig { raw: true, mean: true, ..NeighbourhoodConfig::none() },
            Inputs::All => NeighbourhoodConfig::default(),
        }
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

/// A learner on some blocks of features, as `--models` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    learner: Learner,
    inputs: Inputs,
}

impl Model {
    /// Every model, learner by learner.
    pub const ALL: [Model; 15] = {
        let mut all = [Model { learner: Learner::Forest, inputs: Inputs::Raw }; 15];
        use Learner::*;
        let learners = [GadbenchForest, GadbenchBooster, Forest, Booster, Ensemble];
        let mut at = 0;
        while at < all.len() {
            all[at] = Model { learner: learners[at / 3], inputs: Inputs::ALL[at % 3] };
            at += 1;
        }
        all
    };

    /// What is fitted.
    pub fn learner(self) -> Learner {
        self.learner
    }

    /// What it is fitted to.
    pub fn inputs(self) -> Inputs {
        self.inputs
    }

    /// The name on the command line: of the learner, with the blocks unless it has all of them.
    pub fn name(self) -> &'static str {
        match (self.learner, self.inputs) {
            (Learner::GadbenchForest, Inputs::Raw) => "gadbench-forest-raw",
            (Learner::GadbenchForest, Inputs::Means) => "gadbench-forest-means",
            (Learner::GadbenchForest, Inputs::All) => "gadbench-forest",
            (Learner::GadbenchBooster, Inputs::Raw) => "gadbench-booster-raw",
            (Learner::GadbenchBooster, Inputs::Means) => "gadbench-booster-means",
            (Learner::GadbenchBooster, Inputs::All) => "gadbench-booster",
            (Learner::Forest, Inputs::Raw) => "forest-raw",
            (Learner::Forest, Inputs::Means) => "forest-means",
            (Learner::Forest, Inputs::All) => "forest",
            (Learner::Booster, Inputs::Raw) => "booster-raw",
            (Learner::Booster, Inputs::Means) => "booster-means",
            (Learner::Booster, Inputs::All) => "booster",
            (Learner::Ensemble, Inputs::Raw) => "ensemble-raw",
            (Learner::Ensemble, Inputs::Means) => "ensemble-means",
            (Learner::Ensemble, Inputs::All) => "ensemble",
        }
    }
}

/// Rows of one part of a split.
struct Part {
    values: Vec<f32>,
    columns: usize,
    labels: Vec<u8>,
}

impl Part {
    fn new(table: &FeatureTable, nodes: &[(u32, u8)]) -> Self {
        Self {
            values: nodes.iter().flat_map(|&(node, _)| table.row(node as usize)).copied().collect(),
            columns: table.columns().len(),
            labels: nodes.iter().map(|&(_, label)| label).collect(),
        }
    }

    fn matrix(&self) -> Result<Matrix<'_>> {
        Matrix::f32(&self.values, self.columns)
    }
}

/// Scores of one model.
#[derive(Clone)]
struct Scored {
    setting: String,
    validation: Vec<f32>,
    test: Vec<f32>,
    seconds: f64,
}

/// Models on the same features and the same split.
pub(super) struct Fitting {
    train: Dataset,
    targets: Vec<f32>,
    validation: Part,
    test: Part,
    seed: u64,
    forest: Option<Scored>,
    booster: Option<Scored>,
}

impl Fitting {
    pub fn new(table: &FeatureTable, split: &Split, seed: u64) -> Result<Self> {
        let [train, validation, test] = [&split.train, &split.validation, &split.test].map(|p| Part::new(table, p));
        Ok(Self {
            train: Dataset::new(&train.matrix()?, &BinRule::default())?,
            targets: train.labels.iter().map(|&label| f32::from(label)).collect(),
            validation,
            test,
            seed,
            forest: None,
            booster: None,
        })
    }

    /// Fits a learner and measures it.
    pub fn model(&mut self, learner: Learner) -> Result<SplitReport> {
        let scored = self.scored(learner)?;
        Ok(SplitReport {
            seed: self.seed,
            validation: Figures::of(&scored.validation, &self.validation.labels)?,
            test: Figures::of(&scored.test, &self.test.labels)?,
            setting: scored.setting,
            seconds: scored.seconds,
        })
    }

    fn scored(&mut self, learner: Learner) -> Result<Scored> {
        let known = match learner {
            Learner::Forest => self.forest.clone(),
            Learner::Booster => self.booster.clone(),
            Learner::GadbenchForest | Learner::GadbenchBooster => None,
            Learner::Ensemble => {
                let (forest, booster) = (self.scored(Learner::Forest)?, self.scored(Learner::Booster)?);
                return Ok(Scored {
                    setting: format!("forest: {}; booster: {}", forest.setting, booster.setting),
                    validation: mean_rank(&forest.validation, &booster.validation),
                    test: mean_rank(&forest.test, &booster.test),
                    seconds: forest.seconds + booster.seconds,
                });
            }
        };
        if let Some(scored) = known {
            return Ok(scored);
        }
        let scored = self.chosen(learner)?;
        match learner {
            Learner::Forest => self.forest = Some(scored.clone()),
            Learner::Booster => self.booster = Some(scored.clone()),
            _ => {}
        }
        Ok(scored)
    }

    /// The candidate with the highest average precision on the validation nodes; the first of equal ones.
    fn chosen(&self, learner: Learner) -> Result<Scored> {
        let started = Instant::now();
        let mut best: Option<(f64, String, Vec<f32>, Fitted)> = None;
        let anomalous = self.targets.iter().filter(|&&target| target > 0.5).count() as f64;
        let normal_per_anomalous = (self.targets.len() as f64 - anomalous) / anomalous;
        for candidate in candidates(learner, self.validation.columns, normal_per_anomalous, self.seed) {
            let fitted = self.fit(&candidate.settings)?;
            let scores = fitted.predict(&self.validation)?;
            let value = average_precision(&scores, &self.validation.labels)?;
            if best.as_ref().is_none_or(|(best, ..)| value > *best) {
                best = Some((value, candidate.name, scores, fitted));
            }
        }
        let (setting, validation, test) = match best {
            Some((_, setting, validation, fitted)) => (setting, validation, fitted.predict(&self.test)?),
            None => (String::new(), Vec::new(), Vec::new()),
        };
        Ok(Scored { setting, validation, test, seconds: started.elapsed().as_secs_f64() })
    }

    fn fit(&self, settings: &Settings) -> Result<Fitted> {
        match settings {
            Settings::Forest(params) => Ok(Fitted::Forest(Forest::fit(&self.train, &self.targets, None, params)?)),
            Settings::Booster(params) => {
                Ok(Fitted::Booster(Booster::fit(&self.train, Fit::labels(&self.targets), params)?))
            }
        }
    }
}

enum Fitted {
    Forest(Forest),
    Booster(Booster),
}

impl Fitted {
    fn predict(&self, part: &Part) -> Result<Vec<f32>> {
        let x = part.matrix()?;
        let scores = match self {
            Fitted::Forest(forest) => forest.predict(&x)?,
            // Margins: probabilities close to 0 are equal in f32 sooner.
            Fitted::Booster(booster) => booster.margins(&x)?,
        };
        Ok(scores.into_iter().map(|score| score as f32).collect())
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
    fn every_model_has_a_name_of_its_own() {
        let mut names = Model::ALL.map(Model::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Model::ALL.len());
    }
}
