//! `graphsieve import amazon`

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::{Console, check_new_directory, print};
use crate::data::amazon::{self, PrepareOptions, WeakLabelConfig};
use crate::error::{Error, Place, Result, Snippet, line_number, nearest_name};
use crate::run::progress::{StageProgress, Unit};

/// Amazon reviews and product metadata of 2014 or 2018
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Reviews, one JSON object per line, plain or gzip
    #[arg(long, value_name = "FILE")]
    reviews: PathBuf,

    /// Product metadata, likewise
    #[arg(long, value_name = "FILE")]
    metadata: PathBuf,

    /// Data directory to make; absent or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Sentence embeddings [products, d], rows in ascending order of the product ids [default: hashed TF-IDF]
    #[arg(long, value_name = "E.npy")]
    text_embeddings: Option<PathBuf>,

    /// Labels with the columns id and label (0 or 1) [default: weak labels by heuristics]
    #[arg(long, value_name = "L.csv")]
    labels: Option<PathBuf>,

    /// Stop at the first malformed line instead of skipping and counting it
    #[arg(long)]
    strict: bool,

    /// Seed of everything random
    #[arg(long, default_value_t = 42)]
    seed: u64,

    /// Reviewers of one product between whom co-review edges are made; more are sampled
    #[arg(long, value_name = "N", default_value_t = 25)]
    co_review_cap: usize,

    /// Thresholds of the weak labels, one `key = value` per line
    #[arg(long, value_name = "FILE.toml", conflicts_with = "labels")]
    thresholds: Option<PathBuf>,
}

pub(super) fn run(arguments: Arguments, console: Console) -> Result<()> {
    check_new_directory(&arguments.out)?;
    let options = PrepareOptions {
        thresholds: arguments.thresholds.as_deref().map(read_thresholds).transpose()?.unwrap_or_default(),
        text_embeddings: arguments.text_embeddings,
        labels: arguments.labels,
        seed: arguments.seed,
        strict: arguments.strict,
        co_review_cap: arguments.co_review_cap,
        ..PrepareOptions::new(arguments.reviews, arguments.metadata)
    };
    let [read, made] = [Unit::Bytes, Unit::Items].map(|unit| StageProgress::with_mode(unit, console.progress()));
    let (dataset, summary) = amazon::prepare(&options, &|progress| {
        let stages = if matches!(progress.stage, "metadata" | "reviews") { &read } else { &made };
        stages.report(progress.stage, progress.done, progress.total);
    })?;
    let files = dataset.write(&arguments.out)?;
    console.note(format_args!("wrote {} files to {}", files.len(), arguments.out.display()));
    print(&summary)
}

fn read_thresholds(path: &Path) -> Result<WeakLabelConfig> {
    let text = fs::read_to_string(path).map_err(|source| Error::io(path, "read", source))?;
    let file = path.display().to_string();
    let thresholds: WeakLabelConfig = toml::from_str(&text).map_err(|fault| syntax_error(&file, &text, &fault))?;
    match thresholds.validate() {
        Err(Error::Config { key, expected, found, help, .. }) => {
            Err(Error::Config { origin: file.into(), key, expected, found, help })
        }
        other => other.map(|()| thresholds),
    }
}

/// Names the line, the key, and the known key that an unknown one resembles.
fn syntax_error(file: &str, text: &str, fault: &toml::de::Error) -> Error {
    let known = toml::Table::try_from(WeakLabelConfig::default()).unwrap_or_default();
    let span = fault.span().unwrap_or(0..0);
    let line = line_number(text, span.start);
    let written = text.lines().nth(line - 1).unwrap_or_default();
    let (key, found) = written.split_once('=').map_or((written, ""), |(key, value)| (key, value));
    let (key, found) = (key.trim(), found.trim());
    let nearest = nearest_name(key, known.keys()).filter(|nearest| *nearest != key);
    let (expected, help) = match nearest {
        Some(nearest) => ("a known key".into(), format!("did you mean {nearest}?")),
        // Of a value the reader says what it is, too, which stands behind the key already.
        None => {
            let message = fault.message().replace('\n', ", ");
            let expected = match message.rsplit_once(", expected ") {
                Some((_, "f64")) => "a number",
                Some((_, "usize" | "u32")) => "a whole number of at least 0",
                _ => &message,
            };
            (expected.into(), "leave the key out for the default".into())
        }
    };
    let origin = Place::from(format!("{file}:{line}")).with_snippet(Snippet::of(text, span));
    Error::Config { origin, key: key.into(), expected, found: found.into(), help }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thresholds(text: &str) -> Result<WeakLabelConfig> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        read_thresholds(file.path())
    }

    #[test]
    fn thresholds_replace_single_defaults() {
        let expected = WeakLabelConfig { product_min_rating: 4.0, user_max_burst: 3, ..Default::default() };
        assert_eq!(thresholds("product_min_rating = 4\n# why\nuser_max_burst = 3\n").unwrap(), expected);
        assert_eq!(thresholds("").unwrap(), WeakLabelConfig::default());
    }

    #[test]
    fn a_wrong_threshold_is_named_with_its_line() {
        let cases = [
            (
                "# a\nuser_max_bursts = 3",
                ":2: user_max_bursts = 3: expected a known key",
                "did you mean user_max_burst?",
            ),
            (
                "user_max_burst = \"many\"",
                ":1: user_max_burst = \"many\": expected a whole number",
                "leave the key out",
            ),
            ("core_percentile = 101", "core_percentile = 101: expected 0 to 100", "default"),
            ("core_percentile = = 1", ":1: core_percentile = = 1: expected", "default"),
        ];
        for (text, what, help) in cases {
            let error = thresholds(text).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{error}");
            let error = error.to_string();
            assert!(error.contains(what) && error.contains(help), "{error}");
        }
    }
}
