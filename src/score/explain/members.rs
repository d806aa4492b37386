//! The members of an ensemble, and the models within them that no explanation is about.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::run::ensemble::{Ensemble, Member};
use crate::score::ScoredRun;

/// Which models the explanations of an ensemble are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Names of its members, the best first.
    pub members: Vec<String>,
    /// Of members that are a mean themselves, the names of all models but the one that is explained.
    pub not_explained: Vec<String>,
}

impl Coverage {
    /// That of a run, if it is an ensemble.
    ///
    /// # Errors
    /// Runs of members that cannot be read.
    pub fn of(run: &ScoredRun) -> Result<Option<Self>> {
        run.ensemble.as_ref().map(|ensemble| Self::of_ensemble(run.run.path(), ensemble)).transpose()
    }

    fn of_ensemble(run: &Path, ensemble: &Ensemble) -> Result<Self> {
        let (mut members, mut not_explained) = (Vec::new(), Vec::new());
        for Member { name, run: member, .. } in &ensemble.members {
            members.push(name.clone());
            let path = run.join(member);
            if let Some(own) = Ensemble::of_run(&path)? {
                let own = Self::of_ensemble(&path, &own)?;
                not_explained.extend(own.members.into_iter().skip(1).chain(own.not_explained));
            }
        }
        Ok(Self { members, not_explained })
    }

    /// The member that [`explain_run`](super::explain_run) explains, and the models that it is not about.
    pub fn of_first(&self) -> Option<(&str, Vec<&str>)> {
        let (first, others) = self.members.split_first()?;
        Some((first, others.iter().chain(&self.not_explained).map(String::as_str).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::run::ensemble::ENSEMBLE_FILE;

    #[test]
    fn of_a_mean_within_an_ensemble_one_model_is_explained_and_the_others_are_named() {
        let runs = tempfile::tempdir().unwrap();
        let mean = |name: &str, of: &[&str]| {
            let ensemble = Ensemble::of_restarts(of.iter().map(|of| ((*of).into(), format!("../{of}").into())));
            fs::create_dir_all(runs.path().join(name)).unwrap();
            let file = runs.path().join(name).join(ENSEMBLE_FILE);
            fs::write(file, serde_json::to_string(&ensemble).unwrap()).unwrap();
            ensemble
        };
        mean("a", &["a-1", "a-2"]);
        mean("b", &["b-1", "a", "b-2"]);
        let ensemble = mean("all", &["b", "a", "a-2"]);
        let coverage = Coverage::of_ensemble(&runs.path().join("all"), &ensemble).unwrap();
        assert_eq!(coverage.members, ["b", "a", "a-2"]);
        assert_eq!(coverage.not_explained, ["a", "b-2", "a-2", "a-2"]);
        assert_eq!(coverage.of_first().unwrap(), ("b", vec!["a", "a-2", "a", "b-2", "a-2", "a-2"]));
    }
}
