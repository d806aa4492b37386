//! The members of an ensemble: which of them are explained.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::error::Result;
use crate::run::ensemble::{Ensemble, Member};
use crate::score::ScoredRun;

/// Which models the explanations of an ensemble are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Names of its members, the best first.
    pub members: Vec<String>,
    /// Names of those that [`explain_members`](super::explain_members) explains.
    pub explained: Vec<String>,
    /// Names of the others; of a member that is a mean itself those of all its models but the one that is explained.
    pub not_explained: Vec<String>,
}

impl Coverage {
    /// That of a run, if it is an ensemble.
    ///
    /// # Errors
    /// Runs of members that cannot be read.
    pub fn of(run: &ScoredRun) -> Result<Option<Self>> {
        let Some(ensemble) = &run.ensemble else { return Ok(None) };
        let Members { explained, others: not_explained } = members_of(run.run.path(), ensemble)?;
        let explained = explained.into_iter().map(|(name, _)| name).collect();
        let members = ensemble.members.iter().map(|member| member.name.clone()).collect();
        Ok(Some(Self { members, explained, not_explained }))
    }

    /// The member that [`explain_run`](super::explain_run) explains, and the models that it is not about.
    pub fn of_first(&self) -> Option<(&str, Vec<&str>)> {
        let (first, others) = self.explained.split_first()?;
        Some((first, others.iter().chain(&self.not_explained).map(String::as_str).collect()))
    }
}

/// Whether the results of its layers are sums over neighbours with coefficients of their own.
pub(super) fn has_explained_layers(config: &RunConfig) -> bool {
    !matches!(config, RunConfig::Classify(config) if !config.model.layer.adds_up())
}

/// The models that an ensemble averages.
pub(super) struct Members {
    /// Name and run of the members that can be explained, the best first.
    pub(super) explained: Vec<(String, PathBuf)>,
    /// Names of the models that no explanation is about.
    others: Vec<String>,
}

/// Of the ensemble of `run`.
///
/// # Errors
/// Runs of members that cannot be read.
pub(super) fn members_of(run: &Path, ensemble: &Ensemble) -> Result<Members> {
    let (mut explained, mut others) = (Vec::new(), Vec::new());
    for Member { name, run: member, .. } in &ensemble.members {
        let (name, path) = (name.clone(), run.join(member));
        match Ensemble::of_run(&path)? {
            // A member can be a mean itself, of which one model is explained.
            Some(own) => match members_of(&path, &own)? {
                its if its.explained.is_empty() => others.push(name),
                its => {
                    explained.push((name, path));
                    others.extend(its.explained.into_iter().skip(1).map(|(name, _)| name).chain(its.others));
                }
            },
            None if has_explained_layers(&RunConfig::load_kept(&path.join("config.toml"), &[])?) => {
                explained.push((name, path));
            }
            None => others.push(name),
        }
    }
    Ok(Members { explained, others })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::{ClassifyConfig, LayerKind};
    use crate::run::ensemble::ENSEMBLE_FILE;

    #[test]
    fn members_that_cannot_be_explained_are_named_and_so_are_all_models_of_a_mean_but_one() {
        let runs = tempfile::tempdir().unwrap();
        let write = |name: &str, file: &str, text: String| {
            fs::create_dir_all(runs.path().join(name)).unwrap();
            fs::write(runs.path().join(name).join(file), text).unwrap();
        };
        for (name, layer) in [("a-1", LayerKind::Sage), ("a-2", LayerKind::Gcn), ("b-1", LayerKind::Bw)] {
            let config = RunConfig::Classify(ClassifyConfig::new(layer, "graph.npz"));
            write(name, "config.toml", config.to_toml().unwrap());
        }
        let mean = |name: &str, of: &[&str]| {
            let ensemble = Ensemble::of_restarts(of.iter().map(|of| ((*of).into(), format!("../{of}").into())));
            write(name, ENSEMBLE_FILE, serde_json::to_string(&ensemble).unwrap());
            ensemble
        };
        mean("a", &["b-1", "a-1", "a-2"]);
        mean("b", &["b-1"]);
        let ensemble = mean("all", &["b", "a", "a-2"]);
        let Members { explained, others } = members_of(&runs.path().join("all"), &ensemble).unwrap();
        let explained: Vec<&str> = explained.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((&explained[..], &others[..]), (&["a", "a-2"][..], &["b", "a-2", "b-1"].map(String::from)[..]));
    }
}
