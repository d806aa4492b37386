//! `task = "auto"`: candidates of all kinds on the same labels, and the best of them by the validation part, together
//! or alone.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::candidates::Candidate;
use super::ranges::*;
use super::reader::{Document, MAX_NAME};
use super::sections::{LabelSplit, OutputConfig, Stage1Data};
use crate::error::{Result, nearest_name};

/// What may stand behind the name of a tournament: the longest name of a candidate, and that of a stage of its own.
const MAX_BEHIND: usize = "-booster-leaf20-random-stage2".len();

/// Settings of a tournament.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutoConfig {
    /// Part of the run directory's name. Default `auto`.
    pub name: String,
    /// Seed of every random choice of all candidates, 0 to 2^63 - 1. Default 42.
    #[serde(deserialize_with = "seed")]
    pub seed: u64,
    /// `[data]`
    pub data: Stage1Data,
    /// `[auto]`
    pub auto: AutoSettings,
    /// `[split]`: the same for all candidates.
    pub split: LabelSplit,
    /// `[output]`
    pub output: OutputConfig,
}

/// `[auto]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutoSettings {
    /// Time for all trainings together, in minutes, above 0. Default 10.
    #[serde(deserialize_with = "positive")]
    pub minutes: f64,
    /// Names of the candidates that are tried; none stands for all that suit the data. Default none.
    pub candidates: Vec<String>,
    /// What becomes the model. Default `ensemble`.
    pub prefer: Prefer,
    /// Most candidates that an ensemble averages, 1 to 10; 1 makes none, and classes have none. Default 5.
    #[serde(deserialize_with = "between::<1, 10, _>")]
    pub ensemble: usize,
}

/// What becomes the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prefer {
    /// The one with the highest validation figure.
    Best,
    /// The simplest one whose validation figure is at most a standard error below the highest.
    Simplest,
    /// The ensemble, where there is one, else the one with the highest validation figure.
    Ensemble,
}

impl AutoConfig {
    /// All candidates for ten minutes, on the data at `data`.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            name: "auto".into(),
            seed: 42,
            data: Stage1Data { path: data.into(), window: 1 },
            auto: AutoSettings { minutes: 10.0, candidates: Vec::new(), prefer: Prefer::Ensemble, ensemble: 5 },
            split: LabelSplit::new(42),
            output: OutputConfig::default(),
        }
    }
}

/// Reads a document of this task.
pub(super) fn read(document: &Document) -> Result<AutoConfig> {
    const KEY: &str = "auto.candidates";
    let mut default = AutoConfig::new("");
    default.split.seed = document.integer("seed").unwrap_or(default.seed);
    let config: AutoConfig = document.read(&default, &[], &[])?;
    document.check_name(&config.name, MAX_NAME - MAX_BEHIND)?;
    document.check_path(&config.data.path)?;
    config.split.check(document)?;
    document.check_read(&config, &default, &config.split.unread())?;
    let known: Vec<&str> = Candidate::ALL.iter().map(|candidate| candidate.name).collect();
    for (at, name) in config.auto.candidates.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            let help = match nearest_name(name, known.iter().copied()) {
                Some(near) => format!("there is no candidate \"{name}\"; did you mean \"{near}\"?"),
                None => format!("there is no candidate \"{name}\"; configs/README.md describes all of them"),
            };
            return Err(document.error(KEY, format!("names out of {}", known.join(", ")), help));
        }
        if config.auto.candidates[..at].contains(name) {
            return Err(document.error(KEY, "every name once", format!("\"{name}\" is there twice")));
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{RunConfig, SplitSource};
    use crate::error::Error;

    const AUTO: &str = "task = \"auto\"\n[data]\npath = \"data\"\n";

    fn parse(overrides: &[&str]) -> Result<RunConfig> {
        let overrides: Vec<String> = overrides.iter().map(|argument| argument.to_string()).collect();
        RunConfig::parse(AUTO, Path::new("run.toml"), &overrides)
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(parse(&[]).unwrap(), RunConfig::Auto(AutoConfig::new("data")));
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/auto.toml");
        let shipped = RunConfig::load(&shipped, &[]).unwrap();
        assert_eq!(shipped, RunConfig::Auto(AutoConfig::new("artifacts/data/quickstart")), "all keys, as they are");
        let auto = AutoConfig {
            name: "a".into(),
            seed: 3,
            data: Stage1Data { path: "d".into(), window: 2 },
            auto: AutoSettings {
                minutes: 0.5,
                candidates: vec!["stage2-long".into(), "gcn".into()],
                prefer: Prefer::Simplest,
                ensemble: 7,
            },
            split: LabelSplit { source: SplitSource::Masks, index: 3, ..LabelSplit::new(42) },
            output: OutputConfig { dir: "o".into(), plots: false },
        };
        let config = RunConfig::Auto(auto);
        let text = config.to_toml().unwrap();
        assert_eq!(RunConfig::parse(&text, Path::new("kept"), &[]).unwrap(), config, "{text}");
    }

    #[test]
    fn a_list_of_candidates_names_those_that_there_are() {
        let fault = |set: &str| match parse(&[set]) {
            Err(Error::Config { key, expected, help, .. }) => [key, expected, help],
            other => panic!("{other:?}"),
        };
        let [key, expected, help] = fault("auto.candidates=[\"boster-all\"]");
        assert_eq!(key, "auto.candidates");
        assert!(expected.contains("forest-raw, booster-raw") && help.contains("did you mean \"booster-all\"?"));
        assert!(fault("auto.candidates=[\"gcn\", \"gcn\"]")[2].contains("twice"));
        assert_eq!(fault("auto.candidates=gcn")[0], "auto.candidates", "a list");
        assert_eq!(fault("auto.minutes=0")[0], "auto.minutes");
        assert!(fault("auto.prefer=simple")[2].contains("simplest"));
        assert_eq!(fault("auto.ensemble=0")[0], "auto.ensemble");
        assert_eq!(fault("auto.ensemble=11")[0], "auto.ensemble");
    }

    #[test]
    fn a_name_leaves_room_for_the_names_of_all_candidates() {
        let longest = "a".repeat(MAX_NAME - MAX_BEHIND);
        let Ok(RunConfig::Auto(config)) = parse(&[&format!("name={longest}")]) else { panic!("a tournament") };
        assert_eq!(config.name, longest);
        // What the run of every candidate keeps is read again.
        let are_read = |config: &AutoConfig| {
            let trainings = Candidate::ALL.iter().flat_map(|candidate| candidate.trainings(config).unwrap());
            let stage1 = RunConfig::Stage1(Candidate::stage1(config).unwrap());
            let mut all = trainings.map(|training| training.config).chain([stage1]);
            all.all(|own| RunConfig::parse(&own.to_toml().unwrap(), Path::new("kept"), &[]).is_ok())
        };
        assert!(are_read(&config));
        let longer = format!("{longest}a");
        assert!(!are_read(&AutoConfig { name: longer.clone(), ..config }), "there is no more room");
        match parse(&[&format!("name={longer}")]) {
            Err(Error::Config { key, expected, help, .. }) => {
                assert_eq!(key, "name");
                assert!(expected.contains("at most 71") && help.contains("shorten it"), "{expected} {help}");
            }
            other => panic!("{other:?}"),
        }
    }
}
