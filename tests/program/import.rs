//! `import` and `export` through the program.

use std::fs;

use serde_json::Value;

use crate::support::Sandbox;

const DESCRIPTION: &str = "[[nodes]]\ntype = \"user\"\nfile = \"users.csv\"\nid = \"Id\"\nlabel = \"Fraud\"\n\
                           features = { Age = \"numeric\" }\n\
                           [[edges]]\nname = \"knows\"\nfile = \"edges.csv\"\nsrc = \"user.A\"\ndst = \"user.B\"\n\
                           weight = \"W\"\n";

fn tables() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("graph.toml", DESCRIPTION);
    sandbox.write("users.csv", "Id,Age,Fraud\nann,31,0\nbob,,1\n");
    sandbox.write("edges.csv", "A,B,W\nann,bob,2\nbob,cy,1\nann,bob,3\n");
    sandbox
}

#[test]
fn tables_are_imported_described_and_exported() {
    let sandbox = tables();
    let said = sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    assert!(said.stdout.starts_with("user: 3 nodes, 1 of them from edges only; labels: 1 anomalous, 1 normal"));
    assert!(said.stdout.contains("1 rows repeat an edge") && said.stderr.contains("wrote"), "{said:?}");
    let info = sandbox.succeeds(["info", "--data", "data", "--format", "json"]);
    let info: Value = serde_json::from_str(&info.stdout).unwrap();
    assert_eq!((&info["nodes"], &info["edges"]), (&Value::from(3), &Value::from(4)), "both directions of two edges");
    for format in ["csv", "parquet"] {
        let out = format!("out-{format}");
        sandbox.succeeds(["export", "tables", "data", "--out", &out, "--format", format]);
        assert!(sandbox.path(&format!("{out}/nodes_user.{format}")).is_file());
        let again = format!("again-{format}");
        sandbox.succeeds(["import", "tables", &format!("{out}/graph.toml"), "--strict", "--out", &again]);
        for file in
            ["knows_row_ptr.bin", "knows_col_idx.bin", "knows_weight.bin", "node_id_mappings.json", "labels.npy"]
        {
            assert_eq!(sandbox.read(&format!("{again}/{file}")), sandbox.read(&format!("data/{file}")), "{file}");
        }
    }
    assert_eq!(sandbox.read("out-csv/edges_knows.csv"), b"src,dst,weight\nann,bob,5\nbob,cy,1\n");
    assert_eq!(sandbox.read("out-csv/nodes_user.csv"), b"id,label\nann,0\nbob,1\ncy,\n");
}

#[test]
fn wrong_descriptions_and_tables_are_refused_and_nothing_is_left() {
    let sandbox = tables();
    let import = ["import", "tables", "graph.toml", "--out", "data"];
    let strict = [&import[..], &["--strict"]].concat();
    sandbox.refuses(&strict, 1, &["edges.csv: line 3, column `B`", "node table of `user`", "\"cy\""]);
    sandbox.refuses([&import[..], &["--max-bytes", "5"]].concat(), 1, &["users.csv: unpacked size"]);
    sandbox.write("graph.toml", DESCRIPTION.replace("weight", "wieght"));
    sandbox.refuses(import, 2, &["graph.toml:12: wieght", "did you mean `weight`?"]);
    sandbox.write("graph.toml", DESCRIPTION.replace("\"knows\"", "\"../knows\""));
    sandbox.refuses(import, 2, &["graph.toml: edges.name = \"../knows\""]);
    sandbox.write("graph.toml", DESCRIPTION.replace("edges.csv", "nowhere.csv"));
    sandbox.refuses(import, 1, &["nowhere.csv: cannot read"]);
    sandbox.write("graph.toml", DESCRIPTION);
    fs::create_dir(sandbox.path("data")).unwrap();
    sandbox.write("data/mine", "");
    sandbox.refuses(import, 1, &["data: exists already"]);
}

#[test]
fn weights_of_another_length_are_refused_when_they_are_read() {
    let sandbox = tables();
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    sandbox.edit("data/knows_weight.bin", |bytes| bytes.truncate(4));
    sandbox.refuses(
        ["export", "tables", "data", "--out", "out"],
        1,
        &["knows_weight.bin: file length: expected 8 bytes: 2 edges x 4 bytes, found 4 bytes"],
    );
    sandbox.edit("data/feature_names.json", |bytes| *bytes = b"[\"one\"]".to_vec());
    sandbox.refuses(["info", "--data", "data"], 1, &["feature_names.json: names of features: expected", "found 1"]);
}

#[test]
fn the_former_name_of_the_command_still_works() {
    let sandbox = Sandbox::new();
    let amazon = ["amazon", "--reviews", "r.json", "--metadata", "m.json", "--out", "data"];
    for command in ["prepare", "import"] {
        sandbox.refuses([&[command][..], &amazon].concat(), 1, &["m.json: cannot read"]);
    }
}
