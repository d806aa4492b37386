//! Scores with a PyTorch state dict equal those of a dense float64 implementation (`golden/make_stage2.py`).

use std::path::PathBuf;

use burn_flex::Flex;
use graphsieve::graph::read_embeddings;
use graphsieve::models::Weights;
use graphsieve::run::evaluation::read_scores;
use graphsieve::score::{self, ScoreOptions, Scores};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/stage2").join(name)
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
}

fn assert_golden(checkpoint: PathBuf) {
    let options = ScoreOptions { embeddings: true, ..ScoreOptions::new(checkpoint, golden("")) };
    let computed = score::compute::<Flex>(&options, &Default::default()).unwrap();
    let Scores::Anomaly(got) = computed.scores else { panic!("class probabilities") };
    let want = read_scores(&golden("expected_scores.npy"), 45).unwrap();
    let spread = want.iter().copied().fold(f32::MIN, f32::max) - want.iter().copied().fold(f32::MAX, f32::min);
    assert!(spread > 0.1, "scores that are all alike would prove little");
    assert!(largest_difference(&got, &want) < 1e-5);
    let want = read_embeddings(golden("expected_embeddings.npy"), Some(45)).unwrap();
    let got = computed.embeddings.unwrap();
    assert!(largest_difference(got.as_f32().as_slice().unwrap(), want.as_slice().unwrap()) < 1e-5);
}

#[test]
fn a_pytorch_state_dict_gives_the_scores_of_the_dense_implementation() {
    assert_golden(golden("gat_stage2_best.pt"));
}

#[test]
fn native_and_safetensors_checkpoints_keep_the_scores() {
    let dir = tempfile::tempdir().unwrap();
    let (weights, _) = Weights::read(&golden("gat_stage2_best.pt")).unwrap();
    let (native, safetensors) = (dir.path().join("a.bpk"), dir.path().join("a.safetensors"));
    weights.write_native(&native).unwrap();
    weights.write_safetensors(&safetensors).unwrap();
    assert_golden(native);
    assert_golden(safetensors);
}
