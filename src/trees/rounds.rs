//! Rounds of boosting: the gradients that a tree is grown on, and the margins that it changes.

use graphsieve_kernels::{BoostEngine, BoostTargets};
use rayon::prelude::*;

use super::booster_params::{BoosterParams, Fit};
use super::counter;
use super::dataset::Dataset;
use super::device;
use super::fixed_point::{Gradients, non_finite};
use super::grow::{Grown, grow, grow_on};
use super::objective::Objective;
use super::tree::Tree;
use crate::error::Result;

/// Rows that are worth a task of their own.
const TASK_ROWS: usize = 1 << 12;

/// What rounds hand on to each other.
pub(super) struct Rounds<'a, 'e> {
    data: &'a Dataset,
    fit: Fit<'a>,
    params: &'a BoosterParams,
    /// Weights of negative and positive rows.
    class: (f64, f64),
    start: f64,
    /// Grows the trees, where it is not the CPU.
    engine: Option<&'e mut dyn BoostEngine>,
    /// Whether the engine has the margins and computes the gradients.
    boosted: bool,
    margins: Vec<f64>,
    /// Kept from round to round: the system clears every page that it gives anew.
    pairs: Vec<(f64, f64)>,
    gradients: Gradients,
}

impl<'a, 'e> Rounds<'a, 'e> {
    pub fn new(
        data: &'a Dataset,
        fit: Fit<'a>,
        params: &'a BoosterParams,
        mut engine: Option<&'e mut dyn BoostEngine>,
    ) -> Result<Self> {
        let class = match params.objective {
            Objective::Binary { weight } => weight.resolve(fit.labels, fit.weights),
            _ => (1.0, 1.0),
        };
        let start = params.objective.start(fit.labels, |row| weight(&fit, class, row));
        let all_present = fit.weights.is_none_or(|w| w.iter().all(|&w| w > 0.0));
        let loss = params.objective.boost_loss().filter(|_| params.bagging.all() && all_present);
        let mut boosted = false;
        if let (Some(engine), Some(loss)) = (&mut engine, loss) {
            let (labels, weights) = (fit.labels, fit.weights);
            engine.boost(&BoostTargets { loss, labels, weights, class_weights: class, start });
            boosted = true;
        }
        let margins = if boosted { Vec::new() } else { vec![start; data.rows()] };
        let (pairs, gradients) = (Vec::new(), Gradients::new(&[], 0)?);
        Ok(Rounds { data, fit, params, class, start, engine, boosted, margins, pairs, gradients })
    }

    /// The margin before the first tree.
    pub fn start(&self) -> f64 {
        self.start
    }

    /// Grows a tree and adds it to the margins, the learning rate included.
    pub fn next(&mut self, round: usize) -> Result<Tree> {
        if self.boosted { self.boost(round) } else { self.grow(round) }
    }

    /// Margins and gradients stay where the trees grow.
    fn boost(&mut self, round: usize) -> Result<Tree> {
        let (fit, params, class) = (self.fit, self.params, self.class);
        let engine = self.engine.as_deref_mut().expect("only an engine boosts");
        let Some(begun) = engine.start_boosted() else {
            let margins = engine.margins();
            let pairs: Vec<_> = margins.iter().enumerate().map(|at| derivatives(&fit, params, class, at)).collect();
            return Err(non_finite(&pairs, round));
        };
        let (mut tree, spans, _) = grow_on(engine, self.data, begun, &params.grow, params.seed, round as u64);
        tree.shrink(params.learning_rate);
        let leaves: Vec<_> = spans.into_iter().zip(tree.leaves.iter().map(|leaf| leaf.value)).collect();
        engine.add_leaves(&leaves);
        device::check()?;
        Ok(tree)
    }

    /// Margins and gradients are here, and maybe the trees, too.
    fn grow(&mut self, round: usize) -> Result<Tree> {
        let (data, fit, params, class) = (self.data, self.fit, self.params, self.class);
        let (rule, seed, number) = (&params.grow, params.seed, round as u64);
        let margins = self.margins.par_iter().with_min_len(TASK_ROWS).enumerate();
        margins.map(|at| derivatives(&fit, params, class, at)).collect_into_vec(&mut self.pairs);
        self.gradients.refill(&self.pairs, round)?;
        let gradients = &self.gradients;
        let rows = bag(params, fit.labels, fit.weights, round);
        let seen_all = rows.len() == data.rows();
        let mut grown = match self.engine.as_deref_mut() {
            None => grow(data, gradients, rows, rule, seed, number),
            Some(engine) => {
                let sum = engine.start(&gradients.pairs, gradients.scale, &rows);
                let growth = grow_on(engine, data, (gradients.scale, sum), rule, seed, number);
                device::check()?;
                Grown::new(growth, engine.rows())
            }
        };
        grown.tree.shrink(params.learning_rate);
        add(&mut self.margins, data, &grown, seen_all);
        Ok(grown.tree)
    }
}

/// Weight of a row, that of its class included.
fn weight(fit: &Fit, class: (f64, f64), row: usize) -> f64 {
    let of_class = if fit.labels[row] > 0.5 { class.1 } else { class.0 };
    fit.weights.map_or(of_class, |w| w[row] as f64 * of_class)
}

/// Gradient and hessian of a row at its margin.
fn derivatives(fit: &Fit, params: &BoosterParams, class: (f64, f64), (row, &margin): (usize, &f64)) -> (f64, f64) {
    let (g, h) = params.objective.derivatives(margin, fit.labels[row] as f64);
    let w = weight(fit, class, row);
    (g * w, h * w)
}

/// Rows of this round's bag, ascending; rows of weight 0 are in none.
fn bag(params: &BoosterParams, labels: &[f32], weights: Option<&[f32]>, round: usize) -> Vec<u32> {
    let bagging = params.bagging;
    if bagging.all() && weights.is_none() {
        return (0..labels.len() as u32).collect();
    }
    let words = (round / bagging.every) as u64;
    let share = |row: usize| {
        if params.objective.is_binary() && labels[row] > 0.5 { bagging.positive } else { bagging.negative }
    };
    let drawn = |row: usize| bagging.all() || counter::uniform(params.seed, &[3, words, row as u64]) < share(row);
    let rows = (0..labels.len()).filter(|&row| weights.is_none_or(|w| w[row] > 0.0));
    rows.filter(|&row| drawn(row)).map(|row| row as u32).collect()
}

/// Adds a new tree to the training margins.
fn add(margins: &mut [f64], data: &Dataset, grown: &Grown, seen_all: bool) {
    if seen_all {
        for (leaf, span) in grown.tree.leaves.iter().zip(&grown.spans) {
            grown.rows[span.clone()].iter().for_each(|&row| margins[row as usize] += leaf.value);
        }
    } else {
        margins
            .par_iter_mut()
            .with_min_len(TASK_ROWS)
            .enumerate()
            .for_each(|(row, margin)| *margin += grown.tree.leaves[grown.leaf_of(data, row)].value);
    }
}
