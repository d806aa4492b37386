//! Whether data belong to a model.

use std::path::Path;

use super::ScoreOptions;
use crate::config::RunConfig;
use crate::data::tables::{earlier_in_words, fitted_times, looks_ahead, unknown_categories};
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::run::RunDir;
use crate::run::bundle::{Bundle, Reads, drift};

/// What the run of a checkpoint says of its model. A bare checkpoint says nothing, and so does a run of an earlier
/// version.
///
/// # Errors
/// As for [`Bundle::open`].
pub fn bundle_of(options: &ScoreOptions) -> Result<Option<Bundle>> {
    if options.checkpoint.is_dir() { Bundle::open(&options.checkpoint) } else { Ok(None) }
}

/// Refuses data that do not belong to the model of a run, by what the run says of it.
///
/// # Errors
/// As for [`Bundle::check`].
pub fn check_data(bundle: Option<&Bundle>, options: &ScoreOptions, dataset: &Dataset, reads: Reads) -> Result<()> {
    bundle.map_or(Ok(()), |bundle| bundle.check(&options.checkpoint, dataset, &options.data, reads))
}

/// Refuses data of a run that are not where it read them.
///
/// # Errors
/// [`Error::Format`].
pub fn check_place(run: &RunDir, data: &Path) -> Result<()> {
    if data.exists() {
        return Ok(());
    }
    let help = "give --data DIR: the directory where they are now";
    let expected = format!("the data that {} was trained on", run.path().display());
    Err(Error::format(data, "path", expected, "nothing", help))
}

/// Looks whether the data of a run, read from `data`, are still those that it was trained on, and says in words what
/// changed. Where the user `says` that they are, a change is an error.
///
/// # Errors
/// As for [`check_data`]; [`Error::Format`] for other data.
pub fn check_own(run: &RunDir, dataset: &Dataset, data: &Path, reads: Reads, says: bool) -> Result<Vec<String>> {
    let Some(bundle) = Bundle::open(run.path())? else { return Ok(Vec::new()) };
    bundle.check(run.path(), dataset, data, reads)?;
    let changes = bundle.changes(dataset)?;
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let (what, place) = (changes.join(" and "), run.path().display());
    if says {
        let help = "score other data with the model instead: graphsieve score RUN --data DIR";
        return Err(Error::format(
            data,
            "data",
            format!("those that {place} was trained on"),
            format!("other {what}"),
            help,
        ));
    }
    let means = match changes[..] {
        ["labels"] => "what is said of labels (known, held-out figures) is not what the training saw",
        _ => "the scores of the run are those of the data as they were",
    };
    let data = data.display();
    Ok(vec![format!(
        "{data}: the {what} changed since {place} was trained: {means}. For scores of the data as they are: graphsieve \
         score {place} --data {data}"
    )])
}

/// What data that are scored have in common with those of the training.
#[derive(Debug, Default)]
pub struct Comparison {
    /// They are those of the training.
    pub same_data: bool,
    /// What has moved since, in words.
    pub warnings: Vec<String>,
}

/// Compares data, read from `data`, and their `scores` with those of the training of a run: of events since `since`
/// where it is given. A run of an earlier version knows nothing of its data but their place.
///
/// # Errors
/// As for [`Bundle::open`]; files of the run or the import that were changed.
pub fn compare(run: &RunDir, dataset: &Dataset, scores: &[f32], data: &Path, since: Option<i64>) -> Result<Comparison> {
    let Some(bundle) = Bundle::open(run.path())? else {
        let own = RunConfig::load_kept(&run.config(), &[])?;
        return Ok(Comparison { same_data: own.data_path() == data, warnings: Vec::new() });
    };
    let same_data = bundle.changes(dataset)?.is_empty();
    let mut warnings = Vec::new();
    if since.is_some() && looks_ahead(run.path())? {
        let place = run.path().display();
        warnings.push(format!(
            "{place} reads windows of later events (ahead = true): scores of the latest events change with what comes \
             next"
        ));
    }
    if !same_data {
        warnings.extend(earlier_in_words(fitted_times(run.path())?, dataset.events.as_ref()));
    }
    // Of the data of the training that is no news.
    if !same_data && let Some(profile) = bundle.profile(run.path())? {
        let time = |node| dataset.events.as_ref().and_then(|events| events.time_of(node));
        let is_new = |node| since.is_none_or(|since| time(node).is_none_or(|time| time >= since));
        let shifts = profile.shifts(dataset, scores, &is_new);
        warnings.extend(drift::in_words(&shifts));
        let [known, now] = [run.path(), data].map(unknown_categories);
        warnings.extend(drift::unknown_in_words(&known?, &now?));
    }
    Ok(Comparison { same_data, warnings })
}
