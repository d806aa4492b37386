use super::*;

fn parsed(text: &str) -> Result<Description> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    Description::read(file.path())
}

#[test]
fn short_and_long_forms_say_the_same() {
    let short = "[[nodes]]\ntype = \"tx\"\nfile = \"t.csv\"\nlabel = \"L\"\n\
                 features = { A = \"numeric\", B = \"text\", C = \"timestamp\" }\n\
                 [[edges]]\nname = \"pays\"\nsrc = \"account.Source\"\ndst = \"tx\"\ntime = \"T\"\n";
    let long = "[split]\nseed = 42\n[[nodes]]\ntype = \"tx\"\nfile = [\"t.csv\"]\n\
                label = { column = \"L\", anomalous = [1, true], normal = [0, \"false\"] }\n\
                [nodes.features]\nA = { kind = \"numeric\", scale = \"robust\" }\n\
                B = { kind = \"text\", width = 64 }\nC = { kind = \"timestamp\", unit = \"s\" }\n\
                [[edges]]\nname = \"pays\"\nsrc = { type = \"account\", column = \"Source\" }\n\
                dst = { type = \"tx\" }\ntime = { column = \"T\" }\n";
    let description = parsed(short).unwrap();
    assert_eq!(description, parsed(long).unwrap());
    let columns: Vec<&str> = description.nodes[0].features.0.iter().map(|(column, _)| column.as_str()).collect();
    assert_eq!(columns, ["A", "B", "C"]);
}

#[test]
fn wrong_descriptions_are_named_by_line_with_the_nearest_key() {
    let edges = "[[edges]]\nname = \"r\"\nfile = \"e.csv\"\nsrc = \"a.x\"\ndst = \"a.y\"\n";
    let cases = [
        (format!("{edges}wieght = \"w\"\n"), ":6: wieght", "did you mean `weight`?"),
        ("[[edge]]\nname = \"r\"\n".into(), ":1: ", "did you mean `edges`?"),
        (
            format!("{edges}[[nodes]]\ntype = \"a\"\nfile = \"n.csv\"\nfeatures = {{ A = \"numerc\" }}\n"),
            ":9: features",
            "did you mean `numeric`?",
        ),
        (
            format!(
                "{edges}[[nodes]]\ntype = \"a\"\nfile = \"n.csv\"\n[nodes.features]\n\
                 A = {{ kind = \"text\", wdth = 8 }}\n"
            ),
            ":10: A",
            "did you mean `width`?",
        ),
        (
            format!("{edges}[[nodes]]\ntype = \"a\"\nfile = \"n\"\nfeatures.A = {{ kind = \"text\", width = 9 }}\n"),
            "nodes.features.A = 9: expected a width of 8 to 512",
            "64",
        ),
        ("[split]\ntrain = 0.9\n".into(), "split = train 0.9", "0.6, 0.2 and 0.2"),
        (String::new(), "edges = none", "[[edges]]"),
        (format!("{edges}src = \"b\"\n"), ":6: src", "example"),
        (format!("{edges}time = {{ column = \"t\", unit = \"sec\" }}\n"), ":6: time", "did you mean `s`?"),
    ];
    for (text, what, help) in cases {
        let error = parsed(&text).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        let error = error.to_string();
        assert!(error.contains(what) && error.contains(help), "{error}\nlacks {what} or {help}");
    }
}
