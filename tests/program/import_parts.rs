//! `import tables` from directories of parts, ids that are whole numbers, and results that no number of threads
//! changes.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;

use parquet::data_type::{ByteArrayType, DoubleType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::{Said, Sandbox};

/// A payment: payer, payee, amount, channel.
type Row = (i64, i64, f64, &'static str);

const ROWS: [Row; 5] =
    [(7, -3, 1.5, "web"), (-3, i64::MAX, 2.0, "shop"), (i64::MIN, 7, 0.25, "web"), (7, 0, 8.0, ""), (0, 7, 4.0, "app")];

/// As Spark writes a part: nothing is required, texts are UTF-8.
fn part(payee: &str, rows: &[Row]) -> Vec<u8> {
    let schema = format!(
        "message spark_schema {{ optional int64 payer; optional {payee} payee; optional double amount;
         optional binary channel (UTF8); }}"
    );
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let levels = vec![1; rows.len()];
    for at in 0..4 {
        let mut column = group.next_column().unwrap().unwrap();
        match at {
            0 => {
                let payers: Vec<i64> = rows.iter().map(|row| row.0).collect();
                column.typed::<Int64Type>().write_batch(&payers, Some(&levels), None)
            }
            1 if payee == "int64" => {
                let payees: Vec<i64> = rows.iter().map(|row| row.1).collect();
                column.typed::<Int64Type>().write_batch(&payees, Some(&levels), None)
            }
            1 => {
                let payees: Vec<_> = rows.iter().map(|row| row.1.to_string().into_bytes().into()).collect();
                column.typed::<ByteArrayType>().write_batch(&payees, Some(&levels), None)
            }
            2 => {
                let amounts: Vec<f64> = rows.iter().map(|row| row.2).collect();
                column.typed::<DoubleType>().write_batch(&amounts, Some(&levels), None)
            }
            _ => {
                let named = |row: &&Row| !row.3.is_empty();
                let channels: Vec<_> = rows.iter().filter(named).map(|row| row.3.into()).collect();
                let levels: Vec<i16> = rows.iter().map(|row| i16::from(!row.3.is_empty())).collect();
                column.typed::<ByteArrayType>().write_batch(&channels, Some(&levels), None)
            }
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

fn write(sandbox: &Sandbox, name: &str, content: impl AsRef<[u8]>) {
    fs::create_dir_all(sandbox.path(name).parent().unwrap()).unwrap();
    sandbox.write(name, content);
}

/// Scored payments, whose day stands in the names of directories alone.
fn description(file: &str) -> String {
    format!(
        "[[nodes]]\ntype = \"payment\"\nfile = \"{file}\"\n\
         features = {{ amount = \"numeric\", channel = \"categorical\", day = \"timestamp\", \"in/out\" = \"categorical\" }}\n\
         [[edges]]\nname = \"pays\"\nsrc = \"account.payer\"\ndst = \"payment\"\n\
         [[edges]]\nname = \"paid\"\nsrc = \"payment\"\ndst = \"account.payee\"\n"
    )
}

/// Two days and one that is missing, as Spark, Trino and BigQuery lay them out, with what they leave beside them.
fn parts() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("graph.toml", description("payments"));
    let day = "payments/day=2024-05-0";
    write(&sandbox, &format!("{day}1/in%2Fout=50%25/part-00000-4f.c000.snappy.parquet"), part("int64", &ROWS[..2]));
    write(&sandbox, &format!("{day}1/in%2Fout=50%25/part-00001-4f.c000.snappy.parquet"), part("int64", &ROWS[2..3]));
    write(&sandbox, &format!("{day}2/in%2Fout=Z%C3%BCrich/20240502_101112_00007_x"), part("int64", &ROWS[3..4]));
    let missing = "payments/day=__HIVE_DEFAULT_PARTITION__/in%2Fout=__HIVE_DEFAULT_PARTITION__";
    write(&sandbox, &format!("{missing}/part-00000.parquet"), part("int64", &ROWS[4..]));
    write(&sandbox, &format!("{missing}/part-00001.parquet"), part("int64", &[]));
    for ignored in ["_SUCCESS", "._SUCCESS.crc", "_temporary/0/task/part-00000.parquet", ".hive-staging/x.csv"] {
        write(&sandbox, &format!("payments/{ignored}"), "no table");
    }
    sandbox
}

/// The rows of `parts()` as one table.
const ONE_TABLE: &str = "payer,payee,amount,channel,day,in/out\n\
                         7,-3,1.5,web,2024-05-01,50%\n\
                         -3,9223372036854775807,2,shop,2024-05-01,50%\n\
                         -9223372036854775808,7,0.25,web,2024-05-01,50%\n\
                         7,0,8,,2024-05-02,Zürich\n\
                         0,7,4,app,,\n";

fn import(sandbox: &Sandbox, description: &str, out: &str) -> Said {
    sandbox.succeeds(["import", "tables", description, "--out", out])
}

/// What an import wrote, without the record of its files.
fn written(sandbox: &Sandbox, out: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(sandbox.path(out)).unwrap().map(|entry| entry.unwrap());
    let files = entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    files.filter(|(name, _)| name != "import.json").collect()
}

fn record(sandbox: &Sandbox, out: &str) -> Value {
    serde_json::from_slice(&sandbox.read(&format!("{out}/import.json"))).unwrap()
}

#[test]
fn a_directory_of_parts_is_one_table() {
    let sandbox = parts();
    sandbox.write("one.csv", ONE_TABLE);
    sandbox.write("one.toml", description("one.csv"));
    let said = import(&sandbox, "graph.toml", "data");
    assert!(said.stdout.contains("payment: 5 nodes") && said.stdout.contains("account: 5 nodes"), "{}", said.stdout);
    import(&sandbox, "one.toml", "one");
    assert_eq!(written(&sandbox, "data"), written(&sandbox, "one"));

    // The record names every part that was read, and what was fitted does not depend on how the table was cut.
    let [of_parts, of_one] = ["data", "one"].map(|out| record(&sandbox, out));
    assert_eq!(of_parts["fitted"], of_one["fitted"]);
    assert_eq!(of_parts["description"]["nodes"][0]["file"], serde_json::json!(["payments"]));
    let names: Vec<&str> =
        of_parts["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    let missing = "payments/day=__HIVE_DEFAULT_PARTITION__/in%2Fout=__HIVE_DEFAULT_PARTITION__";
    let expected = [
        "payments/day=2024-05-01/in%2Fout=50%25/part-00000-4f.c000.snappy.parquet".to_owned(),
        "payments/day=2024-05-01/in%2Fout=50%25/part-00001-4f.c000.snappy.parquet".to_owned(),
        "payments/day=2024-05-02/in%2Fout=Z%C3%BCrich/20240502_101112_00007_x".to_owned(),
        format!("{missing}/part-00000.parquet"),
        format!("{missing}/part-00001.parquet"),
    ];
    assert_eq!(names, expected);
}

#[test]
fn what_was_fitted_to_parts_is_applied_to_parts_and_to_one_file() {
    let sandbox = parts();
    sandbox.write("one.csv", ONE_TABLE);
    sandbox.write("one.toml", description("one.csv"));
    import(&sandbox, "graph.toml", "data");
    for (description, out) in [("graph.toml", "parts-with"), ("one.toml", "one-with")] {
        sandbox.succeeds(["import", "tables", description, "--with", "data", "--out", out]);
        assert_eq!(written(&sandbox, out), written(&sandbox, "data"), "{out}");
    }
}

#[test]
fn parts_that_cannot_be_one_table_are_named() {
    let import = ["import", "tables", "graph.toml", "--out", "data"];
    let [day, rest] = ["payments/day=2024-05-02/in%2Fout=Z%C3%BCrich", "part-00000-4f.c000.snappy.parquet"];
    let first = format!("in%2Fout=50%25/{rest}");

    let sandbox = parts();
    write(&sandbox, &format!("{day}/b.parquet"), part("binary", &ROWS));
    let types = ["b.parquet: column `payee`: expected values of the type INT64, as in ", &first, "BYTE_ARRAY"];
    sandbox.refuses(import, 1, &types);

    write(&sandbox, &format!("{day}/b.parquet"), "PAR1 is how it begins");
    sandbox.refuses(import, 1, &["b.parquet: footer: expected Parquet data"]);
    fs::remove_file(sandbox.path(&format!("{day}/b.parquet"))).unwrap();

    write(&sandbox, &format!("{day}/b.csv"), "payer,payee,amount,channel\n");
    sandbox.refuses(import, 1, &["b.csv: file name: expected a file written like ", &first]);
    fs::remove_file(sandbox.path(&format!("{day}/b.csv"))).unwrap();

    write(&sandbox, "payments/region=eu/b.parquet", part("int64", &ROWS));
    sandbox.refuses(import, 1, &["b.parquet: column `day`: expected a directory `day=...` above the part, as in "]);

    let sandbox = Sandbox::new();
    sandbox.write("graph.toml", description("payments"));
    sandbox.refuses(import, 1, &["payments: cannot read"]);
    write(&sandbox, "payments/_SUCCESS", "");
    sandbox.refuses(import, 1, &["payments: directory: expected files that are parts of a table, found none"]);

    // Rows are named by their part.
    let header = "payer,payee,amount,channel,day,in/out\n";
    write(&sandbox, "payments/a.csv", format!("{header}1,2,3,web,,\n"));
    write(&sandbox, "payments/sub/b.csv", format!("{header}1,2,3,web,,\n1,2,much,web,,\n"));
    sandbox.refuses(import, 1, &["sub/b.csv: line 3, column `amount`: expected a number", "\"much\""]);
    let long = [&import[..], &["--max-bytes", "60"]].concat();
    sandbox.refuses(long, 1, &["sub/b.csv: unpacked size: expected at most 60 bytes"]);
}

#[test]
fn whole_numbers_and_texts_that_look_like_them_are_the_same_ids() {
    let sandbox = Sandbox::new();
    let ids = ["7", "-3", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "007", "+7", "-0"];
    let rows: String = ids.iter().map(|id| format!("{id},1\n")).collect();
    sandbox.write("accounts.csv", format!("id,age\n{rows}7,1\n"));
    write(&sandbox, "payments/part-00000.parquet", part("int64", &ROWS));
    sandbox.write(
        "graph.toml",
        "[[nodes]]\ntype = \"account\"\nfile = \"accounts.csv\"\nid = \"id\"\nfeatures = { age = \"numeric\" }\n\
         [[edges]]\nname = \"pays\"\nfile = \"payments\"\nsrc = \"account.payer\"\ndst = \"account.payee\"\n",
    );
    let said = import(&sandbox, "graph.toml", "data");
    // The row that repeats 7 is merged; 0 comes from the edges.
    assert!(said.stdout.contains("account: 9 nodes, 1 of them from edges only"), "{}", said.stdout);
    let maps: Value = serde_json::from_slice(&sandbox.read("data/node_id_mappings.json")).unwrap();
    let found = maps["account_map"].as_object().unwrap();
    assert!(ids.iter().chain(&["0"]).zip(0..).all(|(id, number)| found[*id] == number), "{found:?}");
    sandbox.write("accounts.csv", format!("id,age\n{rows}7,2\n"));
    sandbox.refuses(
        ["import", "tables", "graph.toml", "--out", "again"],
        1,
        &["accounts.csv: line 10, column `age`: expected what an earlier row of the id \"7\" says"],
    );
}

/// A table of nodes and one of edges with ids of every kind, many of them new in the edges.
fn mixed_ids() -> Sandbox {
    let mut state = 7u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let cell = |number: u64| match number % 5 {
        0 => format!("{number}"),
        1 => format!("-{number}"),
        2 => format!("A{number}"),
        3 => format!("0{number}"),
        _ => format!("{}", u64::MAX - number),
    };
    let mut accounts = "id,age,city\n".to_owned();
    for at in 0..1500 {
        let age = draw(90);
        accounts += &format!("{},{age},{}\n", cell(at * 7 % 1500), cell(draw(60)));
    }
    let mut edges = "src,dst,w,t\n".to_owned();
    for _ in 0..30_000 {
        let [src, dst, weight, time] = [4000, 4000, 1000, 1_000_000].map(&mut draw);
        edges += &format!("{},{},{}.{},{time}\n", cell(src), cell(dst), weight / 10, weight % 10);
    }
    let sandbox = Sandbox::new();
    sandbox.write("accounts.csv", accounts);
    sandbox.write("edges.csv", edges);
    sandbox.write(
        "graph.toml",
        "[[nodes]]\ntype = \"account\"\nfile = \"accounts.csv\"\nid = \"id\"\nfeatures = { age = \"numeric\" }\n\
         [[edges]]\nname = \"pays\"\nfile = \"edges.csv\"\nsrc = \"account.src\"\ndst = \"account.dst\"\n\
         weight = \"w\"\ntime = \"t\"\n\
         [[edges]]\nname = \"sums\"\nfile = \"edges.csv\"\nsrc = \"account.src\"\ndst = \"payee.dst\"\nweight = \"w\"\n\
         [[edges]]\nname = \"knows\"\nfile = \"edges.csv\"\nsrc = \"account.src\"\ndst = \"account.dst\"\none_way = true\n\
         [[shared]]\ncolumn = \"city\"\n",
    );
    sandbox
}

fn import_on(sandbox: &Sandbox, threads: usize, description: &str, out: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphsieve"));
    command.args(["--quiet", "import", "tables", description, "--out", out]).current_dir(sandbox.path(""));
    let said = Said::from(command.env("RAYON_NUM_THREADS", threads.to_string()).output().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

#[test]
fn nodes_and_edges_have_the_order_of_the_tables_on_any_number_of_threads_and_on_disk() {
    let sandbox = mixed_ids();
    for threads in [1, 2, 7] {
        import_on(&sandbox, threads, "graph.toml", &format!("data-{threads}"));
    }
    let files = written(&sandbox, "data-1");
    for threads in [2, 7] {
        let out = format!("data-{threads}");
        assert!(written(&sandbox, &out) == files, "{threads} threads");
        assert_eq!(sandbox.read(&format!("{out}/import.json")), sandbox.read("data-1/import.json"));
    }
    // Too little memory for the nodes is said and leaves nothing; the first that is enough leaves edges little of it.
    let names = || fs::read_dir(sandbox.path("")).unwrap().count();
    let (before, mut kib) = (names(), 64);
    let said = loop {
        let memory = format!("{kib}K");
        let said = sandbox.run(["import", "tables", "graph.toml", "--out", "data-disk", "--memory", &memory]);
        if said.code == Some(0) {
            break said;
        }
        assert_eq!((said.code, names()), (Some(2), before), "{}", said.stderr);
        assert!(said.stderr.contains("--memory: expected at least"), "{}", said.stderr);
        kib += kib / 4;
    };
    assert!(kib > 200 && written(&sandbox, "data-disk") == files, "{kib} KiB: {}", said.stderr);
    assert_eq!(sandbox.read("data-disk/import.json"), sandbox.read("data-1/import.json"));
    assert_eq!(names(), before + 1);
    // As the version wrote them that numbered ids on one thread.
    let mut digest = Sha256::new();
    for (name, content) in &files {
        if name == "node_id_mappings.json" || name.ends_with(".bin") {
            digest.update(content);
        }
    }
    let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, "eaf73267ef9e4670d2ab767718c1dae9bc93b3027f06157872e4cff99e542b90");
}

#[test]
fn tables_are_exported_in_parts_that_are_imported_again() {
    let sandbox = mixed_ids();
    import(&sandbox, "graph.toml", "data");
    for format in ["csv", "parquet"] {
        let [out, again] = ["out", "again"].map(|name| format!("{name}-{format}"));
        let export = ["export", "tables", "data", "--out", &out, "--format", format, "--part-rows", "9999"];
        let said = sandbox.succeeds(export);
        assert!(said.stdout.contains("in 15 files"), "{}", said.stdout);
        let part = |at: usize| sandbox.path(&format!("{out}/edges_pays/part-{at:05}.{format}"));
        assert!((0..4).all(|at| part(at).is_file()) && !part(4).exists());
        import_on(&sandbox, 3, &format!("{out}/graph.toml"), &again);
        let [before, after] = ["data", &again].map(|out| written(&sandbox, out));
        let same =
            ["node_id_mappings.json", "pays_row_ptr.bin", "pays_col_idx.bin", "pays_time.bin", "pays_weight.bin"];
        assert!(same.iter().all(|name| before[*name] == after[*name]), "{format}");
    }
    let none = ["export", "tables", "data", "--out", "none", "--part-rows", "0"];
    sandbox.refuses(none, 2, &["--part-rows"]);
}
