use std::path::Path;

use super::*;
use crate::config::{Candidate, RunConfig, SplitSource};
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
