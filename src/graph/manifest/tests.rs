use super::*;

fn read(name: &str, text: &str) -> Result<Manifest> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(name), text).unwrap();
    Manifest::read(dir.path()).map(|(manifest, _)| manifest)
}

const TOML: &str = r#"
[[node_types]]
name = "user"
count = 3
[[node_types]]
name = "item"
count = 4
[[relations]]
name = "buys"
src = "item"
dst = "user"
[[relations]]
name = "bought_by"
src = "user"
dst = "item"
reverse_of = "buys"
"#;

#[test]
fn toml_and_json_describe_the_same() {
    let manifest = read("graph.toml", TOML).unwrap();
    let json = serde_json::to_string(&manifest).unwrap();
    assert_eq!(read("graph.json", &json).unwrap(), manifest);
    assert_eq!(read("graph.toml", &toml::to_string(&manifest).unwrap()).unwrap(), manifest);
    assert_eq!(manifest.relations[1].ids, IdSpace::Global);
    assert_eq!(manifest.relations.iter().map(|r| manifest.stream_of(r)).collect::<Vec<_>>(), ["buys", "buys"]);
    let features = read("graph.toml", &format!("{TOML}[features]\ndim = 32")).unwrap().features.unwrap();
    assert_eq!((features.file, features.dim), (FEATURES_FILE.into(), 32));
}

#[test]
fn unknown_keys_and_values_are_refused_with_line_and_nearest_name() {
    let cases = [
        (
            "graph.toml",
            TOML.replace("reverse_of", "revers_of"),
            "line 16: expected a known key",
            "did you mean `reverse_of`?",
        ),
        ("graph.toml", TOML.replace("count = 4", "cuont = 4"), "line 7", "did you mean `count`?"),
        ("graph.toml", format!("{TOML}[feature]\n"), "line 17", "did you mean `features`?"),
        ("graph.toml", format!("{TOML}ids = \"locale\"\n"), "line 17: expected a known value", "did you mean `local`?"),
        ("graph.toml", format!("{TOML}[features]\ndtype = \"f116\""), "line 18", "did you mean `f16`?"),
        ("graph.json", "{\"node_types\": [],\n \"relation\": []}".into(), "line 2", "did you mean `relations`?"),
        (
            "graph.toml",
            TOML.replace("src = \"item\"", "src = \"itme\""),
            "relations[0] `buys`, src",
            "did you mean `item`?",
        ),
        (
            "graph.toml",
            TOML.replace("= \"buys\"\n\n", "").replace("of = \"buys\"", "of = \"bouys\""),
            "relations[1] `bought_by`, reverse_of",
            "did you mean `buys`?",
        ),
    ];
    for (name, text, place, help) in cases {
        let error = read(name, &text).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains(place) && error.contains(help),
            "{error}\nlacks {place} or {help}"
        );
    }
}

#[test]
fn contradictions_are_refused() {
    let cases = [
        (
            TOML.replace("name = \"bought_by\"", "name = \"buys\""),
            "relations[1] `buys`, name: expected every name once",
        ),
        (TOML.replace("reverse_of = \"buys\"", "reverse_of = \"bought_by\""), "expected the name of another relation"),
        (format!("{TOML}stream = \"other\"\n"), "relations[1] `bought_by`, stream: expected `buys`"),
        (TOML.replace("dst = \"item\"", "dst = \"user\""), "reverse_of: expected a relation user <- user"),
        (
            TOML.replace("dst = \"user\"\n", "dst = \"user\"\nreverse_of = \"bought_by\"\n"),
            "a relation without reverse_of",
        ),
        (TOML.replace("count = 4", "count = -4"), "line 7"),
        (TOML.replace("count = 4", "count = \"4\""), "line 7"),
        (TOML.replace("count = 4", "count = 4\ncount = 5"), "line 8"),
        (TOML.replace("name = \"item\"\n", ""), "missing field `name`"),
        ("node_types = []\nrelations = []".into(), "relations: expected at least one"),
    ];
    for (text, expected) in cases {
        let error = read("graph.toml", &text).unwrap_err().to_string();
        assert!(error.contains("graph.toml") && error.contains(expected), "{error}\nlacks {expected}");
    }
}

#[test]
fn node_counts_must_add_up() {
    let error = |text: &str| read("node_counts.json", text).unwrap_err().to_string();
    let wrong = error(r#"{"users": 3, "products": 4, "sellers": 2, "total": 10}"#);
    assert!(wrong.contains("total: expected 9 = 3 users + 4 products + 2 sellers, found 10"), "{wrong}");
    assert!(error("{\"users\": 3,\n\"products\": }").contains("line 2"));
    assert!(error(r#"{"users": 3, "products": 4, "total": 7}"#).contains("missing field `sellers`"));
    assert!(
        error(&format!(r#"{{"users": {0}, "products": {0}, "sellers": {0}, "total": 1}}"#, u64::MAX)).contains("total")
    );
}

#[test]
fn a_directory_needs_exactly_one_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let error = Manifest::read(dir.path()).unwrap_err().to_string();
    assert!(error.contains("graph.toml or graph.json or node_counts.json, found none"), "{error}");
    fs::write(dir.path().join("graph.toml"), TOML).unwrap();
    fs::write(dir.path().join("graph.json"), "{}").unwrap();
    assert!(Manifest::read(dir.path()).unwrap_err().to_string().contains("found both"));
}
