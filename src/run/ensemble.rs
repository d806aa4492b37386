//! The record of an ensemble: several models of one tournament, each with the calibration that makes their scores the
//! same thing. Its score is the mean of their probabilities. Models that differ in their seed alone need none.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::RunDir;
use super::tournament::{Model, Tournament};
use crate::error::{Error, Result};
use crate::graph::formats::atomic_write;
use crate::graph::json::read_json;
use crate::metrics::Calibration;

/// What to do about a record that is none.
const CHANGED: &str = "the file was changed; start a new run";

/// The record in the run of an ensemble.
pub const ENSEMBLE_FILE: &str = "ensemble.json";

/// Models that are averaged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ensemble {
    /// At least one, the best by validation first.
    pub members: Vec<Member>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Of the candidate.
    pub name: String,
    /// Its run, relative to that of the ensemble.
    pub run: PathBuf,
    /// From its scores to probabilities: Platt's sigmoid, which keeps their order, or the identity.
    pub calibration: Calibration,
}

impl Ensemble {
    /// The record of a run, if it is that of an ensemble. Who follows its members, and theirs, comes to an end.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io); [`Error::Format`](crate::error::Error::Format) for a file that is no
    /// such record, and for a member that is a mean of this run or this run itself.
    pub fn of_run(run: &Path) -> Result<Option<Self>> {
        Self::below(run, &[])
    }

    /// The same of a run that those of `above` are means of.
    fn below(run: &Path, above: &[PathBuf]) -> Result<Option<Self>> {
        let file = run.join(ENSEMBLE_FILE);
        if !file.is_file() {
            return Ok(None);
        }
        let ensemble: Self = read_json(&file, "the record of an ensemble", CHANGED)?;
        if ensemble.members.is_empty() {
            return Err(Error::format(file, "members", "at least one", "none", CHANGED));
        }
        let own = run.canonicalize().map_err(|source| Error::io(run, "open", source))?;
        let above = [above, &[own]].concat();
        for Member { name, run: member, .. } in &ensemble.members {
            let path = run.join(member);
            // What is not there, whoever needs it says.
            let model = match Tournament::of_run(&path)? {
                Some(Tournament { model: Some(Model { run: model, .. }), .. }) => path.join(model),
                _ => path,
            };
            if model.canonicalize().is_ok_and(|model| above.contains(&model)) {
                let (place, found) = (format!("member {name}"), member.display().to_string());
                return Err(Error::format(
                    file,
                    place,
                    "a run that is neither this one nor a mean of it",
                    found,
                    CHANGED,
                ));
            }
            Self::below(&model, &above)?;
        }
        Ok(Some(ensemble))
    }

    /// The best member.
    pub fn best(&self) -> &Member {
        &self.members[0]
    }

    /// Keeps the record in the run.
    ///
    /// # Errors
    /// [`Error::Io`](crate::error::Error::Io).
    pub fn write(&self, run: &RunDir) -> Result<()> {
        atomic_write(run.output(ENSEMBLE_FILE), |file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            file.write_all(b"\n")
        })
    }

    /// Of models that differ in their seed alone, whose scores are averaged as they are.
    pub fn of_restarts(members: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        let member = |(name, run)| Member { name, run, calibration: Calibration::IDENTITY };
        Self { members: members.into_iter().map(member).collect() }
    }

    /// `score = mean over members m of p_m(score_m)`, of the scores of each member in their order, one per node.
    pub fn mean(&self, scores: &[Vec<f32>]) -> Vec<f32> {
        mean_probability(&self.members.iter().map(|member| &member.calibration).zip(scores).collect::<Vec<_>>())
    }
}

/// The mean of scores that are probabilities, of equally many nodes; NaN where a score is.
pub fn mean_score(members: &[Vec<f32>]) -> Vec<f32> {
    let identity = Calibration::IDENTITY;
    mean_probability(&members.iter().map(|scores| (&identity, scores)).collect::<Vec<_>>())
}

/// The mean of calibrated scores, of equally many nodes; NaN where a score is.
pub fn mean_probability(members: &[(&Calibration, &Vec<f32>)]) -> Vec<f32> {
    let nodes = members.first().map_or(0, |(_, scores)| scores.len());
    let probability = |at: usize| {
        let of = |(calibration, scores): &(&Calibration, &Vec<f32>)| calibration.probability(scores[at]);
        members.iter().map(|member| of(member).unwrap_or(f64::NAN)).sum::<f64>() / members.len() as f64
    };
    (0..nodes).map(|at| probability(at) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Meta;

    #[test]
    fn models_that_differ_in_their_seed_alone_are_averaged_as_they_are() {
        // Down to scores that a logit in f32 could not tell apart.
        let tiny = 2.0f32.powi(-30);
        let scores = [vec![0.25, tiny, 0.0], vec![0.75, 4.0 * tiny, 0.0], vec![0.125, tiny, 1.0]];
        let members = (1..=3).map(|of| (format!("gcn-x3-{of}"), PathBuf::from(format!("../m{of}"))));
        let ensemble = Ensemble::of_restarts(members);
        assert_eq!(ensemble.mean(&scores), [0.375, 2.0 * tiny, 1.0 / 3.0]);
        assert_eq!(ensemble.mean(&scores), mean_score(&scores));
        assert_eq!(mean_score(&scores[..1]), scores[0], "one is itself");
        assert!(mean_score(&[vec![0.5, f32::NAN]])[1].is_nan());
        let text = serde_json::to_string(&ensemble).unwrap();
        assert_eq!(serde_json::from_str::<Ensemble>(&text).unwrap(), ensemble, "{text}");
    }

    #[test]
    fn members_that_lead_back_to_their_ensemble_are_refused() {
        let runs = tempfile::tempdir().unwrap();
        let write = |run: &str, members: &[&str]| {
            let ensemble = Ensemble::of_restarts(members.iter().map(|of| ((*of).into(), format!("../{of}").into())));
            std::fs::create_dir_all(runs.path().join(run)).unwrap();
            std::fs::write(runs.path().join(run).join(ENSEMBLE_FILE), serde_json::to_string(&ensemble).unwrap())
                .unwrap();
        };
        let read = |run: &str| Ensemble::of_run(&runs.path().join(run));
        let refused = |run: &str, place: &str| {
            let error = read(run).unwrap_err();
            assert_eq!(error.exit_code(), 1);
            let expected = format!("{place}: expected a run that is neither this one nor a mean of it, found ../");
            assert!(error.to_string().contains(&expected), "{error}\nlacks {expected}");
        };
        write("own", &["nowhere", "own"]);
        refused("own", "own/ensemble.json: member own");
        // By another path, and over others.
        write("long", &["own/../long"]);
        refused("long", "long/ensemble.json: member own/../long");
        write("first", &["second"]);
        write("second", &["third", "third"]);
        write("third", &["first"]);
        refused("first", "third/ensemble.json: member first");
        refused("second", "first/ensemble.json: member second");
        refused("third", "second/ensemble.json: member third");
        write("outside", &["first"]);
        refused("outside", "third/ensemble.json: member first");
        // One that several are a mean of is no ring.
        write("third", &["fourth", "fifth"]);
        write("fifth", &["fourth"]);
        assert!(["outside", "first", "second", "third"].iter().all(|run| read(run).unwrap().is_some()));
    }

    #[test]
    fn an_ensemble_is_the_mean_of_probabilities_and_is_read_as_it_was_written() {
        let labels = [0, 0, 1, 0, 1, 1];
        let scores = [vec![0.1f32, 0.2, 0.7, 0.4, 0.6, 0.9], vec![0.01, 0.03, 0.02, 0.01, 0.05, 0.04]];
        let calibrations = scores.clone().map(|scores| Calibration::platt(&scores, &labels).unwrap());
        let member = |(at, calibration): (usize, &Calibration)| Member {
            name: format!("m{at}"),
            run: format!("../m{at}").into(),
            calibration: calibration.clone(),
        };
        let ensemble = Ensemble { members: calibrations.iter().enumerate().map(member).collect() };
        let found = ensemble.mean(&scores);
        for at in 0..6 {
            let of = |member: usize| calibrations[member].probability(scores[member][at]).unwrap();
            assert!((f64::from(found[at]) - (of(0) + of(1)) / 2.0).abs() < 1e-6);
        }
        let runs = tempfile::tempdir().unwrap();
        let run = RunDir::create(runs.path(), "ensemble", "", Meta::now("cpu", 1)).unwrap();
        assert_eq!(Ensemble::of_run(run.path()).unwrap(), None);
        ensemble.write(&run).unwrap();
        assert_eq!(Ensemble::of_run(run.path()).unwrap(), Some(ensemble));
        std::fs::write(run.output(ENSEMBLE_FILE), "{}").unwrap();
        assert!(Ensemble::of_run(run.path()).unwrap_err().to_string().contains("an ensemble"));
    }
}
