//! A model text that was damaged is refused, or read as some model that predicts; it is never a panic or a hang.

use graphsieve::trees::{Booster, BoosterParams, Fit, Forest, ForestParams, Matrix};
use proptest::prelude::*;

use super::made::Made;

/// A booster and a forest as JSON and as LightGBM's text, all with category sets.
fn texts() -> &'static [String; 4] {
    static TEXTS: std::sync::OnceLock<[String; 4]> = std::sync::OnceLock::new();
    TEXTS.get_or_init(|| {
        let made = Made::mixed(400, 81);
        let mut params = BoosterParams { rounds: 3, ..BoosterParams::default() };
        params.grow.num_leaves = Some(6);
        let booster = Booster::fit(&made.data(), Fit::labels(&made.labels), &params).unwrap();
        let mut params = ForestParams { trees: 2, ..ForestParams::sklearn_like(4) };
        params.grow.num_leaves = Some(6);
        let forest = Forest::fit(&made.data(), &made.labels, None, &params).unwrap();
        [booster.to_json(), forest.to_json(), booster.to_lightgbm_text(), forest.to_lightgbm_text()]
    })
}

/// Reads `text` in every way and uses what comes out.
fn read(text: &str) {
    let values = [0.5, f64::NAN, 0.0, 3.0, -1.0, 0.2, 0.3, f64::NAN];
    let x = Matrix::f64(&values, 4).unwrap();
    for booster in [Booster::from_json(text), Booster::from_lightgbm_text(text)].into_iter().flatten() {
        if booster.features() == 4 {
            booster.predict(&x).unwrap();
            booster.shap(&x).unwrap();
        }
        booster.to_json();
        booster.to_lightgbm_text();
    }
    for forest in [Forest::from_json(text), Forest::from_lightgbm_text(text)].into_iter().flatten() {
        if forest.features() == 4 {
            forest.predict(&x).unwrap();
            forest.shap(&x).unwrap();
        }
        forest.to_json();
        forest.to_lightgbm_text();
    }
}

/// What a number may be replaced by.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "3",
    "5",
    "4294967295",
    "4294967297",
    "18446744073709551615",
    "-9223372036854775808",
    "1e999",
    "nan",
    "0.5",
];

/// Byte ranges of the numbers in `text`.
fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let is_part = |byte: u8| byte.is_ascii_digit() || b".-".contains(&byte);
    let bytes = text.as_bytes();
    let starts = (0..bytes.len()).filter(|&at| is_part(bytes[at]) && (at == 0 || !is_part(bytes[at - 1])));
    starts.map(|start| start..start + bytes[start..].iter().take_while(|&&byte| is_part(byte)).count()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_number_that_was_replaced_does_no_harm(which in 0usize..4, at: prop::sample::Index, by in 0usize..12) {
        let text = &texts()[which];
        let spans = numbers(text);
        let span = spans[at.index(spans.len())].clone();
        read(&format!("{}{}{}", &text[..span.start], NUMBERS[by], &text[span.end..]));
    }

    #[test]
    fn bytes_that_were_changed_or_lost_do_no_harm(
        which in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        lost in any::<Option<(prop::sample::Index, u8)>>(),
    ) {
        let mut bytes = texts()[which].clone().into_bytes();
        let len = bytes.len();
        changes.iter().for_each(|(at, byte)| bytes[at.index(len)] = byte & 0x7f);
        if let Some((at, count)) = lost {
            let start = at.index(len);
            bytes.drain(start..(start + count as usize).min(len));
        }
        read(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_text_that_was_cut_off_is_refused() {
    for (which, text) in texts().iter().enumerate() {
        let end = text.find("end of trees").unwrap_or(text.len() - 1);
        for cut in (0..end).step_by(97) {
            let cut = &text[..cut];
            let refused = match which {
                0 => Booster::from_json(cut).is_err(),
                1 => Forest::from_json(cut).is_err(),
                2 => Booster::from_lightgbm_text(cut).is_err(),
                _ => Forest::from_lightgbm_text(cut).is_err(),
            };
            assert!(refused, "{cut}");
        }
    }
}

#[test]
fn children_that_lead_in_circles_and_sizes_that_are_lies_are_refused_by_tree() {
    let [_, _, text, _] = texts();
    let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap();
    for (from, to) in [
        (line("left_child="), "left_child=0 0 0 0 0".to_string()),
        (line("left_child="), "left_child=9 9 9 9 9".to_string()),
        (line("left_child="), "left_child=4294967297 1 2 3 4".to_string()),
        (line("num_leaves="), "num_leaves=18446744073709551615".to_string()),
        (line("split_feature="), "split_feature=4 4 4 4 4".to_string()),
        (line("num_cat="), "num_cat=4294967295".to_string()),
        (line("leaf_value="), "leaf_value=nan 0 0 0 0 0".to_string()),
        (line("decision_type="), "decision_type=14 14 14 14 14".to_string()),
    ] {
        let error = Booster::from_lightgbm_text(&text.replacen(from, &to, 1)).unwrap_err().to_string();
        assert!(error.contains("tree ") && error.contains("help"), "{to}: {error}");
    }
    let wide = text.replacen("max_feature_idx=3", "max_feature_idx=4294967294", 1);
    assert!(Booster::from_lightgbm_text(&wide).unwrap_err().to_string().contains("max_feature_idx"));
}

#[test]
fn a_chain_of_a_hundred_thousand_nodes_is_explained_without_a_deep_stack() {
    let inner = 100_000;
    let join = |of: &dyn Fn(usize) -> String, count: usize| (0..count).map(of).collect::<Vec<_>>().join(" ");
    let text = format!(
        "tree\nversion=v4\nmax_feature_idx=0\nobjective=regression\nfeature_names=a\nfeature_infos=none\n\nTree=0\n\
         num_leaves={}\nsplit_feature={}\nthreshold={}\nleft_child={}\nright_child={}\nleaf_value={}\nleaf_count={}\n\n\
         end of trees\n",
        inner + 1,
        join(&|_| "0".into(), inner),
        join(&|at| at.to_string(), inner),
        join(&|at| (!(at as i64)).to_string(), inner),
        join(&|at| if at + 1 < inner { (at + 1).to_string() } else { (!(inner as i64)).to_string() }, inner),
        join(&|at| at.to_string(), inner + 1),
        join(&|_| "1".into(), inner + 1),
    );
    let booster = Booster::from_lightgbm_text(&text).unwrap();
    let values = [77_000.0];
    let x = Matrix::f64(&values, 1).unwrap();
    assert_eq!(booster.predict(&x).unwrap(), [77_000.0]);
    let shap = booster.shap(&x).unwrap();
    assert!((shap.base + shap.values[0] - 77_000.0).abs() < 1e-3, "{} {}", shap.base, shap.values[0]);
}
