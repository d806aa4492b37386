//! The run that is meant where a model is asked for: a tournament and a pipeline have runs of their own, and their
//! models lie in others.

use std::fs;
use std::path::{Path, PathBuf};

use super::RunDir;
use super::bundle::{Bundle, STAGE1_DIR};
use super::ensemble::Ensemble;
use super::stages::{Pipeline, STAGES};
use super::tournament::Tournament;
use crate::config::{PipelineConfig, RunConfig};
use crate::error::{Error, Result};

/// The run that holds the model of `run`: of a tournament that of its candidate, of a pipeline that of its last stage.
/// Any other run, and what is no run, is itself.
///
/// # Errors
/// [`Error::Usage`] for a tournament and a pipeline that have none yet; [`Error::Format`] for a pipeline without the
/// runs of its stages.
pub fn model_of(run: &Path) -> Result<PathBuf> {
    match Tournament::of_run(run)? {
        None => {}
        Some(Tournament { model: Some(model), .. }) => return Ok(run.join(model.run)),
        Some(_) => {
            let found = "one that ended before its first candidate was trained";
            return Err(unfinished(run, "a tournament that has a model", found));
        }
    }
    match pipeline(run)? {
        Some(config) => stage_of(run, last_stage(&config)),
        None => Ok(run.to_path_buf()),
    }
}

/// The run that embeds nodes: of a pipeline that of its Stage 1, of an ensemble the first member that holds one, else
/// as for [`model_of`].
///
/// # Errors
/// As for [`model_of`].
pub fn embedder_of(run: &Path) -> Result<PathBuf> {
    if pipeline(run)?.is_some() {
        return stage_of(run, "stage1");
    }
    let model = model_of(run)?;
    let members = Ensemble::of_run(&model)?.into_iter().flat_map(|ensemble| ensemble.members);
    let embedder = members.map(|member| model.join(member.run)).find(|run| run.join(STAGE1_DIR).is_dir());
    Ok(embedder.unwrap_or(model))
}

/// The run that a training of `config` begins with when it is told to begin with `from`: a pipeline with the pipeline
/// whose run or last stage that is, a stage with this stage of a pipeline.
///
/// # Errors
/// As for [`model_of`].
pub fn start_of(from: &Path, config: &RunConfig) -> Result<PathBuf> {
    let is_pipeline = pipeline(from)?.is_some();
    match config {
        RunConfig::Pipeline(_) if is_pipeline => Ok(from.to_path_buf()),
        RunConfig::Pipeline(_) => Ok(pipeline_of(from)?.unwrap_or_else(|| from.to_path_buf())),
        RunConfig::Stage1(_) if is_pipeline => stage_of(from, "stage1"),
        RunConfig::Stage2(_) if is_pipeline => stage_of(from, "stage2"),
        _ => model_of(from),
    }
}

/// The settings of a run, if it is that of a pipeline.
fn pipeline(run: &Path) -> Result<Option<PipelineConfig>> {
    let file = run.join("config.toml");
    if !file.is_file() {
        return Ok(None);
    }
    match RunConfig::load_kept(&file, &[])? {
        RunConfig::Pipeline(config) => Ok(Some(config)),
        _ => Ok(None),
    }
}

fn last_stage(config: &PipelineConfig) -> &'static str {
    if config.stage3.is_some() { "stage3" } else { "stage2" }
}

/// The run of a stage of the pipeline whose run is `run`.
fn stage_of(run: &Path, stage: &'static str) -> Result<PathBuf> {
    let expected = format!("a pipeline that came to the end of its {stage}");
    let Some(path) = Pipeline::stage(&RunDir::open(run)?, stage).begun()? else {
        return Err(unfinished(run, &expected, "one that ended before it"));
    };
    if !path.is_dir() {
        let expected = format!("the run of the {stage} of {}, beside it", run.display());
        return Err(Error::format(path, "path", expected, "nothing", "move a pipeline with the runs of its stages"));
    }
    if !Bundle::is_finished(&path)? {
        return Err(unfinished(run, &expected, "one that ended within it"));
    }
    Ok(path)
}

/// The pipeline whose last stage is the run `stage`, if there is one beside it.
fn pipeline_of(stage: &Path) -> Result<Option<PathBuf>> {
    let (Some(runs), Some(name)) = (stage.parent(), stage.file_name()) else { return Ok(None) };
    let runs = if runs.as_os_str().is_empty() { Path::new(".") } else { runs };
    for entry in fs::read_dir(runs).map_err(|source| Error::io(runs, "read", source))? {
        let run = entry.map_err(|source| Error::io(runs, "read", source))?.path();
        if !run.join(STAGES).is_file() {
            continue;
        }
        if let Some(config) = pipeline(&run)?
            && let Some(last) = Pipeline::stage(&RunDir::open(&run)?, last_stage(&config)).begun()?
            && last.file_name() == Some(name)
        {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

fn unfinished(run: &Path, expected: &str, found: &str) -> Error {
    Error::Usage {
        argument: run.display().to_string(),
        expected: expected.into(),
        found: found.into(),
        help: format!("go on with it: graphsieve train --resume {}", run.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AutoConfig;
    use crate::run::Meta;

    #[test]
    fn of_an_ensemble_the_member_with_a_stage_1_embeds() {
        let runs = tempfile::tempdir().unwrap();
        let toml = RunConfig::Auto(AutoConfig::new("data")).to_toml().unwrap();
        let run = RunDir::create(runs.path(), "ensemble", &toml, Meta::now("cpu", 1)).unwrap();
        assert_eq!(embedder_of(run.path()).unwrap(), run.path());
        Ensemble::of_restarts(["a", "b", "c"].map(|of| (of.into(), Path::new("..").join(of)))).write(&run).unwrap();
        assert_eq!(embedder_of(run.path()).unwrap(), run.path(), "no member holds one");
        for of in ["b", "c"] {
            fs::create_dir_all(runs.path().join(of).join(STAGE1_DIR)).unwrap();
        }
        assert_eq!(embedder_of(run.path()).unwrap(), run.path().join("../b"));
        assert_eq!(model_of(run.path()).unwrap(), run.path());
    }
}
