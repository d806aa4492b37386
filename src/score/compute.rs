//! Scores of a data directory with a checkpoint.

use std::path::Path;

use graphsieve_kernels::GraphBackend;
use ndarray::Array2;

use super::fits::bundle_of;
use super::model::check_unused;
use super::{Computed, ScoreOptions, Scores, kinds};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::run::ensemble::{ENSEMBLE_FILE, Ensemble, Member};

/// Scores the graph of a data directory with a checkpoint.
///
/// # Errors
/// A checkpoint, data or input that cannot be read or do not fit each other.
pub fn compute<B: GraphBackend>(options: &ScoreOptions, device: &B::Device) -> Result<Computed> {
    compute_on::<B>(options, std::slice::from_ref(device))
}

/// The same on several devices: layer by layer, every device a part of the nodes.
///
/// # Errors
/// As for [`compute`]; [`Error::Usage`](crate::error::Error::Usage) for several devices and a model that is not a
/// network of Stage 2 or of a node classification.
///
/// # Panics
/// Without a device.
pub fn compute_on<B: GraphBackend>(options: &ScoreOptions, devices: &[B::Device]) -> Result<Computed> {
    graphsieve_kernels::device::watch();
    // Before its files are read.
    let bundle = bundle_of(options)?;
    match Ensemble::of_run(&options.checkpoint)? {
        Some(ensemble) => members::<B>(options, &ensemble, devices),
        None => kinds::open::<B>(&options.checkpoint)?.compute(options, bundle.as_ref(), devices),
    }
}

/// The mean of what the members of an ensemble say: of classifiers whose mean is one, of all classes.
fn members<B: GraphBackend>(options: &ScoreOptions, ensemble: &Ensemble, devices: &[B::Device]) -> Result<Computed> {
    let unused = [("--input", options.input.is_some()), ("--embeddings", options.embeddings)];
    let help = format!("give the run of a member: they lie beside {}", options.checkpoint.display());
    check_unused(&unused, "an ensemble", help)?;
    let is_classifier =
        matches!(RunConfig::load_kept(&options.checkpoint.join("config.toml"), &[])?, RunConfig::Classify(_));
    let (mut last, mut scores) = (None, Vec::with_capacity(ensemble.members.len()));
    for member in &ensemble.members {
        let checkpoint = options.checkpoint.join(&member.run);
        let computed = compute_on::<B>(&ScoreOptions { checkpoint, ..options.clone() }, devices)?;
        let own: Vec<f32> = match computed.scores {
            Scores::Anomaly(scores) => scores,
            Scores::Classes(probabilities) if is_classifier => probabilities.iter().copied().collect(),
            Scores::Classes(probabilities) => probabilities.column(1).to_vec(),
        };
        let of_first = scores.first().map_or(own.len(), Vec::len);
        check_length(&options.checkpoint, [ensemble.best(), member], [of_first, own.len()])?;
        scores.push(own);
        last = Some(computed.dataset);
    }
    let dataset = last.unwrap_or_else(|| unreachable!("an ensemble has a member"));
    let (mean, nodes) = (ensemble.mean(&scores), dataset.graph.num_nodes());
    let scores = match is_classifier {
        true => {
            let shape = (nodes, mean.len() / nodes.max(1));
            let rows = Array2::from_shape_vec(shape, mean);
            Scores::Classes(rows.unwrap_or_else(|e| unreachable!("one row per node: {e}")))
        }
        false => Scores::Anomaly(mean),
    };
    Ok(Computed { dataset, scores, embeddings: None })
}

/// Refuses a member of the ensemble in `run` that scores more or fewer nodes or classes than the first one does.
fn check_length(run: &Path, [first, member]: [&Member; 2], [expected, found]: [usize; 2]) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let (place, expected) =
        (format!("member {}", member.name), format!("{expected} scores, as many as of {}", first.name));
    let help = "members are models of one kind on the same data; give these by --data, or start a new run";
    Err(Error::format(run.join(ENSEMBLE_FILE), place, expected, found.to_string(), help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Calibration;

    #[test]
    fn members_that_score_other_nodes_are_refused_by_their_name() {
        let member = |name: &str| Member { name: name.into(), run: name.into(), calibration: Calibration::IDENTITY };
        let (first, other) = (member("gcn"), member("gat"));
        let check = |lengths| check_length(Path::new("run"), [&first, &other], lengths);
        check([500, 500]).unwrap();
        let error = check([500, 499]).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        let told = "run/ensemble.json: member gat: expected 500 scores, as many as of gcn, found 499\n  help: ";
        assert!(error.to_string().starts_with(told), "{error}");
    }
}
