//! Preparation of small inline files, from the text to the data set.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use ndarray::Array2;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::graph::write_npy_f32;

const META_2018: &str = r#"
{"asin": "P2", "title": "Acme charger", "description": ["A <b>charger</b> for phones"], "brand": " ACME ", "category": ["Electronics", "Chargers"], "price": "$1,000.00", "also_buy": ["P1", "P3", "P1"]}
{"asin": "P1", "title": "Red case", "description": [], "brand": "Generic", "category": ["Electronics", "Cases"], "price": "$8.00 - $12.00", "also_buy": []}
{"asin": "P3", "title": "Cable", "description": "Long cable", "brand": "Zed", "category": ["Electronics", "Chargers"], "price": ".a-box{1}"}
"#;
const META_2014: &str = r#"
{'asin': 'P2', 'title': 'Acme charger', 'description': "A <b>charger</b> for phones", 'brand': 'Acme', 'categories': [['Electronics', 'Chargers']], 'price': 1000.0, 'related': {'also_bought': ['P1', 'P3']}}
{"asin": "P1", "title": "Red case", "brand": "generic", "categories": [["Electronics", "Cases"], ["Electronics"]], "price": 10.0}
{"asin": "P3", "title": "Cable", "description": "Long cable", "brand": "Zed", "categories": [["Electronics"], ["Chargers"]]}
"#;
const REVIEWS_2018: &str = r#"
{"reviewerID": "B", "asin": "P1", "overall": 5.0, "verified": true, "unixReviewTime": 1529193600, "reviewText": "Great case, love it", "vote": "1,234"}
{"reviewerID": "A", "asin": "P1", "overall": 2, "verified": false, "unixReviewTime": 1529280000, "reviewText": "Bad case"}
{"reviewerID": "A", "asin": "P2", "overall": 4, "verified": false, "reviewTime": "06 17, 2018", "reviewText": "Fine"}
{"reviewerID": "C", "asin": "P9", "overall": 4, "verified": false, "unixReviewTime": 1529193600, "reviewText": "Fine"}
{"reviewerID": "A", "asin": "P2", "overall": 4, "verified": false, "reviewTime": "06 17, 2018", "reviewText": "Fine"}
"#;
const REVIEWS_2014: &str = r#"
{"reviewerID": "B", "asin": "P1", "overall": 5.0, "unixReviewTime": 1529193600, "reviewText": "Great case, love it", "helpful": [1234, 1300]}
{"reviewerID": "A", "asin": "P1", "overall": 2.0, "unixReviewTime": 1529280000, "reviewText": "Bad case", "helpful": [0, 0]}
{"reviewerID": "A", "asin": "P2", "overall": 4.0, "unixReviewTime": 1529193600, "reviewText": "Fine", "helpful": [0, 0]}
"#;

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn add(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn options(files: &Files, metadata: impl AsRef<[u8]>, reviews: impl AsRef<[u8]>) -> PrepareOptions {
    PrepareOptions::new(files.add("reviews", reviews), files.add("metadata", metadata))
}

fn run(options: &PrepareOptions) -> Result<(Dataset, PrepareSummary)> {
    prepare(options, &|_| {})
}

fn message(options: &PrepareOptions) -> String {
    run(options).err().unwrap().to_string()
}

fn row(dataset: &Dataset, global: usize) -> Vec<f32> {
    dataset.features.as_ref().unwrap().row(global).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[test]
fn ids_edges_and_counts_follow_from_the_records() {
    let files = Files::new();
    let (dataset, summary) = run(&options(&files, META_2018, REVIEWS_2018)).unwrap();
    let ids = &dataset.ids.as_ref().unwrap().0;
    assert_eq!(ids[..], [vec!["A", "B"], vec!["P1", "P2", "P3"], vec!["acme", "zed"]]);
    let rows = |name: &str| -> Vec<Vec<u32>> {
        let relation = dataset.graph.relations().iter().find(|relation| relation.name == name).unwrap();
        (0..relation.forward.num_rows()).map(|i| relation.forward.row(i).to_vec()).collect()
    };
    assert_eq!(rows("epu"), [vec![0, 1], vec![0]]);
    assert_eq!(rows("epu_T"), [vec![0, 1], vec![0], vec![]]);
    assert_eq!(rows("eps"), [vec![], vec![0], vec![1]]);
    assert_eq!(rows("eps_T"), [vec![1], vec![2]]);
    assert_eq!(rows("euu"), [vec![0, 1], vec![0, 1]]);
    assert_eq!((summary.reviews.lines, summary.unknown_product_reviews, summary.duplicate_reviews), (5, 1, 1));
    assert_eq!((summary.used_reviews, summary.users, summary.products, summary.sellers), (3, 2, 3, 2));
}

#[test]
fn both_vintages_give_the_same_graph_and_features() {
    let files = Files::new();
    let (new, _) = run(&options(&files, META_2018, REVIEWS_2018)).unwrap();
    let (old, _) = run(&options(&files, gzip(META_2014), gzip(REVIEWS_2014))).unwrap();
    assert_eq!(new.ids, old.ids);
    assert_eq!(new.features.unwrap().as_f16(), old.features.unwrap().as_f16());
}

#[test]
fn features_lie_in_the_documented_columns() {
    let files = Files::new();
    let (dataset, _) = run(&options(&files, META_2018, REVIEWS_2018)).unwrap();
    let (user_a, user_b) = (row(&dataset, 0), row(&dataset, 1));
    let (p1, p2, p3) = (row(&dataset, 2), row(&dataset, 3), row(&dataset, 4));
    let (acme, zed) = (row(&dataset, 5), row(&dataset, 6));

    assert!(dot(&p2[..96], &p2[..96]) > 0.1, "a product with words has text columns");
    let same = dot(&p2[96..120], &p3[96..120]);
    assert!((same - dot(&p2[96..120], &p2[96..120])).abs() < 1e-3, "same categories, same columns");
    // Price (10, 1000, unknown), reviews (2, 1, 0), mean rating (3.5, 4, none), votes (1234, 0, 0).
    assert_eq!([p1[120], p2[120], p3[120]], [0.0, 1.0, 0.0]);
    assert_eq!([p1[121], p2[121], p3[121]], [1.0, 0.5, 0.0]);
    assert_eq!([p1[122], p2[122], p3[122]], [0.0, 1.0, 0.0]);
    assert_eq!([p1[125], p2[125], p3[125]], [1.0, 0.0, 0.0]);

    assert!((0.8..1.2).contains(&dot(&user_b[..112], &user_b[..112]).sqrt()));
    assert_eq!([user_a[112], user_b[112]], [1.0, 0.0], "number of reviews");
    assert_eq!([user_a[115], user_b[115]], [0.0, 1.0], "share of ratings >= 4");
    assert!(user_a[122..].iter().chain(&acme[117..]).all(|&x| x == 0.0), "unused columns are zero");

    assert!(dot(&acme[..112], &acme[..112]) > 0.1);
    assert_eq!([acme[115], zed[115]], [1.0, 0.0], "number of reviews of the catalogue");
}

#[test]
fn malformed_lines_are_counted_or_under_strict_named() {
    let files = Files::new();
    let mut reviews = REVIEWS_2018.trim_start().as_bytes().to_vec();
    reviews.extend(b"{\"asin\": \"P1\", \"overall\": NaN}\n{\"asin\": \"P1\"}\n{\"reviewerID\": \"X\xff\", \"asin\": \"P1\"}\n\n[1]");
    let mut options = options(&files, META_2018, &reviews);
    let (_, summary) = run(&options).unwrap();
    assert_eq!((summary.reviews.lines, summary.reviews.malformed), (9, 4));
    assert_eq!(summary.reviews.first_malformed, [6, 7, 8, 10]);
    assert!(summary.to_string().contains("4 malformed skipped (line 6, 7, 8, 10)"), "{summary}");
    options.strict = true;
    let text = message(&options);
    assert!(text.contains("reviews: line 6: expected a JSON object with a review"), "{text}");
}

#[test]
fn odd_field_values_read_as_absent() {
    let files = Files::new();
    let metadata =
        META_2018.to_owned() + r#"{"asin": "P4", "price": "NaN", "category": 3, "brand": null, "title": {}}"#;
    let reviews = REVIEWS_2018.to_owned()
        + r#"{"reviewerID": "D", "asin": "P4", "overall": "NaN", "vote": "many", "unixReviewTime": -5, "reviewText": null}"#;
    let (dataset, summary) = run(&options(&files, metadata, reviews)).unwrap();
    assert_eq!((summary.metadata.malformed, summary.reviews.malformed), (0, 0));
    assert!(dataset.features.unwrap().as_f16().iter().all(|x| x.is_finite()));
}

#[test]
fn a_truncated_gzip_names_file_and_byte() {
    let files = Files::new();
    let long: String = (0..2000).map(|i| format!("{{\"asin\": \"P{i}\", \"title\": \"{}\"}}\n", i * i)).collect();
    let whole = gzip(&long);
    let cut = &whole[..whole.len() / 2];
    let text = message(&options(&files, cut, REVIEWS_2018));
    assert!(text.contains(&format!("metadata: compressed byte {}", cut.len())), "{text}");
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 40].fill(0xff);
    assert!(message(&options(&files, damaged, REVIEWS_2018)).contains("metadata: near compressed byte"));
}

#[test]
fn empty_and_unrelated_files_are_refused_with_the_counts() {
    let files = Files::new();
    assert!(message(&options(&files, "", REVIEWS_2018)).contains("found 0 lines"));
    assert!(message(&options(&files, META_2018, "")).contains("0 such reviews (0 lines"));
    let text = message(&options(&files, META_2018, r#"{"reviewerID": "A", "asin": "Q", "overall": 4}"#));
    assert!(text.contains("1 lines, 0 malformed, 1 of unknown products"), "{text}");
    let swapped = options(&files, REVIEWS_2018, META_2018);
    assert!(message(&swapped).contains("not swapped"));
    let missing = PrepareOptions::new("no/such/reviews", "no/such/metadata");
    assert!(matches!(run(&missing), Err(Error::Io { .. })));
}

#[test]
fn embeddings_replace_the_text_columns_and_must_fit() {
    let files = Files::new();
    let mut options = options(&files, META_2018, REVIEWS_2018);
    let path = files.0.path().join("text.npy");
    let table = Array2::from_shape_vec((3, 2), vec![1.0_f32, 0.0, -1.0, 0.0, 0.0, 0.5]).unwrap();
    write_npy_f32(&path, &table).unwrap();
    options.text_embeddings = Some(path.clone());
    let (dataset, _) = run(&options).unwrap();
    let distance = |a: usize, b: usize| {
        let (a, b) = (row(&dataset, a), row(&dataset, b));
        a[..96].iter().zip(&b[..96]).map(|(x, y)| (x - y).powi(2)).sum::<f32>().sqrt()
    };
    // Distances survive the rotation, up to the common scale: 2 to sqrt(1.25).
    assert!((distance(2, 3) / distance(2, 4) - 2.0 / 1.25_f32.sqrt()).abs() < 1e-2);

    fs::remove_file(&path).unwrap();
    write_npy_f32(&path, &Array2::<f32>::zeros((4, 2))).unwrap();
    let text = message(&options);
    assert!(text.contains("text.npy") && text.contains('3') && text.contains('4'), "{text}");
}

#[test]
fn the_users_labels_take_precedence() {
    let files = Files::new();
    let mut options = options(&files, META_2018, REVIEWS_2018);
    options.labels = Some(files.add("labels.csv", "id,label\nB,1\nzed,0\n2,1\n"));
    let (dataset, summary) = run(&options).unwrap();
    let mut entries = dataset.labels.unwrap().entries;
    entries.sort_unstable();
    assert_eq!(entries, [(1, 1), (2, 1), (6, 0)]);
    assert!(!summary.labels.weak && summary.labels.reasons.is_none());
}

/// A market in which every heuristic finds exactly the nodes it is meant for.
fn suspicious_market() -> (String, String) {
    let mut metadata = String::new();
    let mut add_product = |id: &str, price: f64, title: &str, also_buy: usize| {
        let also: Vec<String> = (0..also_buy).map(|i| format!("X{i}")).collect();
        let record = json!({"asin": id, "price": price, "title": title, "brand": "Acme", "category": ["All", "Phones"],
            "also_buy": also});
        metadata += &format!("{record}\n");
    };
    for i in 0..300 {
        add_product(&format!("normal{i:03}"), 100.0, "Acme phone", 3);
    }
    add_product("cheap-no-brand", 10.0, "Phone", 0);
    add_product("cheap-brand", 10.0, "ACME phone", 0);
    add_product("listed", 100.0, "Acme phone", 90);
    let mut reviews = String::new();
    let mut add_review = |user: &str, asin: &str, stars: f64, verified: bool, time: u32| {
        let record = json!({"reviewerID": user, "asin": asin, "overall": stars, "verified": verified,
            "unixReviewTime": time, "reviewText": format!("{user} {asin}")});
        reviews += &format!("{record}\n");
    };
    for i in 0..300_u32 {
        add_review(&format!("honest{i:03}"), &format!("normal{i:03}"), 4.0, true, i);
    }
    add_review("honest000", "cheap-no-brand", 5.0, true, 1);
    add_review("honest001", "cheap-brand", 5.0, true, 1);
    add_review("honest002", "listed", 4.0, false, 1);
    // A ring of three users and three products, one of the users verified; and 36 reviews at one moment.
    for (u, user) in ["ring0", "ring1", "ring-verified"].into_iter().enumerate() {
        for p in 0..3 {
            add_review(user, &format!("normal{p:03}"), 4.0, u == 2, 1000 + p);
        }
    }
    for p in 100..136 {
        add_review("burst", &format!("normal{p:03}"), 3.0, true, 7);
    }
    (metadata, reviews)
}

#[test]
fn every_heuristic_finds_its_nodes_and_no_others() {
    let files = Files::new();
    let (metadata, reviews) = suspicious_market();
    let (dataset, summary) = run(&options(&files, metadata, reviews)).unwrap();
    let reasons = summary.labels.reasons.unwrap();
    let expected = ReasonCounts {
        product_too_cheap: 1,
        product_unverified: 1,
        product_dense_core: 3,
        user_dense_core: 2,
        user_burst: 1,
        product_core_threshold: reasons.product_core_threshold,
        user_core_threshold: reasons.user_core_threshold,
    };
    assert!((1.0..=3.0).contains(&reasons.product_core_threshold), "{reasons:?}");
    assert_eq!(reasons, expected);
    let ids = dataset.ids.unwrap().0.concat();
    let entries = dataset.labels.unwrap().entries;
    let anomalous: Vec<&str> =
        entries.iter().filter(|(_, class)| *class == 1).map(|(id, _)| ids[*id as usize].as_str()).collect();
    let expected = ["burst", "ring0", "ring1", "cheap-no-brand", "listed", "normal000", "normal001", "normal002"];
    assert_eq!(anomalous, expected);
    let counts: Vec<(usize, usize)> = summary.labels.by_type.iter().map(|c| (c.anomalous, c.normal)).collect();
    assert_eq!(counts, [(3, 3), (5, 5), (0, 0)]);
    assert!(summary.labels.weak && summary.to_string().contains("labels are weak"));
}

#[test]
fn the_number_of_threads_does_not_change_a_byte_but_the_seed_does() {
    let files = Files::new();
    let (metadata, reviews) = suspicious_market();
    let mut options = options(&files, metadata, reviews);
    let bytes = |options: &PrepareOptions, threads: usize, name: &str| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let dir = files.0.path().join(name);
        pool.install(|| run(options).unwrap().0.write(&dir).unwrap());
        read_all(&dir)
    };
    let one = bytes(&options, 1, "one");
    assert_eq!(one, bytes(&options, 5, "five"));
    options.seed = 43;
    assert_ne!(one, bytes(&options, 2, "other"));
}

fn read_all(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn progress_of_every_stage_ends_at_its_total() {
    let files = Files::new();
    let seen = std::cell::RefCell::new(Vec::<Progress>::new());
    prepare(&options(&files, META_2018, REVIEWS_2018), &|p| seen.borrow_mut().push(p)).unwrap();
    let seen = seen.into_inner();
    for stage in ["metadata", "reviews", "edges", "text", "features", "labels"] {
        let of_stage: Vec<&Progress> = seen.iter().filter(|p| p.stage == stage).collect();
        assert!(of_stage.is_sorted_by_key(|p| p.done), "{stage}");
        let last = of_stage.last().unwrap();
        assert_eq!(last.done, last.total, "{stage}");
    }
}
