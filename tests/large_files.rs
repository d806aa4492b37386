//! Files that 32 bits cannot address: sparse, so that they take no room on the disk, and read by way of a map.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ExitCode;

use graphsieve::graph::{Dataset, FeatureValues};
use graphsieve_kernels::testing::harness::{self, Requirement, trial};
use half::f16;

fn main() -> ExitCode {
    let needs = [Requirement {
        name: "a disk that keeps sparse files of 8 GiB",
        demand: "GRAPHSIEVE_REQUIRE_LARGE_FILES",
        probe: keeps_sparse_files,
    }];
    harness::run(vec![
        trial(None, "a_relation_of_2_31_entries_is_read", &needs, a_relation_of_2_31_entries_is_read),
        trial(None, "features_behind_4_gib_are_read", &needs, features_behind_4_gib_are_read),
    ])
}

const WHOLE: u64 = (1 << 33) + 4096;

fn keeps_sparse_files() -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = dir.path().join("sparse");
    sparse(&path, WHOLE, &[(WHOLE - 4, &[1, 0, 0, 0])]).map_err(|error| error.to_string())?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let taken = path.metadata().map_err(|error| error.to_string())?.blocks() * 512;
        if taken > 1 << 24 {
            return Err(format!("a file of 4 bytes behind a hole takes {taken} bytes"));
        }
    }
    Ok(())
}

/// A file of zeros but for some bytes.
fn sparse(path: &Path, length: u64, parts: &[(u64, &[u8])]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.set_len(length)?;
    for (at, bytes) in parts {
        file.seek(SeekFrom::Start(*at))?;
        file.write_all(bytes)?;
    }
    Ok(())
}

/// A row of 2^31 entries that are its node's own id, which readers pass over, and behind it a row with two sources:
/// nothing but the file is large.
fn a_relation_of_2_31_entries_is_read() {
    const OWN: u64 = 1 << 31;
    let dir = tempfile::tempdir().unwrap();
    let manifest = "
        [[node_types]]
        name = \"account\"
        count = 2
        [[node_types]]
        name = \"card\"
        count = 3
        [[relations]]
        name = \"uses\"
        src = \"card\"
        dst = \"account\"
        ids = \"global\"
        one_way = true
    ";
    std::fs::write(dir.path().join("graph.toml"), manifest).unwrap();
    let starts: Vec<u8> = [0, OWN as i64, OWN as i64 + 2].iter().flat_map(|start: &i64| start.to_le_bytes()).collect();
    std::fs::write(dir.path().join("uses_row_ptr.bin"), starts).unwrap();
    let entries = dir.path().join("uses_col_idx.bin");
    let sources = |ids: [i32; 2]| ids.map(i32::to_le_bytes).concat();
    sparse(&entries, (OWN + 2) * 4, &[(OWN * 4, &sources([3, 4]))]).unwrap();

    let dataset = Dataset::open(dir.path()).unwrap();
    let uses = &dataset.graph.relations()[0].forward;
    assert_eq!((uses.row(0), uses.row(1)), (&[][..], &[1, 2][..]));

    // What is wrong there is named by its place.
    let mut file = OpenOptions::new().write(true).open(&entries).unwrap();
    file.seek(SeekFrom::Start(OWN * 4)).unwrap();
    file.write_all(&sources([3, 5])).unwrap();
    let error = Dataset::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("entry {}, row 1", OWN + 1)) && error.contains("id out of range: 5"), "{error}");
}

fn features_behind_4_gib_are_read() {
    const DIM: u64 = (1 << 30) + 5;
    let dir = tempfile::tempdir().unwrap();
    let manifest = format!(
        "
        [[node_types]]
        name = \"card\"
        count = 3
        [[relations]]
        name = \"alike\"
        src = \"card\"
        dst = \"card\"
        [features]
        file = \"x.bin\"
        dim = {DIM}
        "
    );
    std::fs::write(dir.path().join("graph.toml"), manifest).unwrap();
    std::fs::write(dir.path().join("alike_row_ptr.bin"), [0; 4 * 4]).unwrap();
    std::fs::write(dir.path().join("alike_col_idx.bin"), []).unwrap();
    let values = dir.path().join("x.bin");
    let last = 3 * DIM - 1;
    let bits = |value: f32| f16::from_f32(value).to_le_bytes();
    sparse(&values, 3 * DIM * 2, &[(last * 2, &bits(2.5)), ((2 * DIM + 1) * 2, &bits(-1.5))]).unwrap();
    let features = Dataset::open(dir.path()).unwrap().features.expect("there is a file");
    let FeatureValues::Half(all) = features.values() else { panic!("f16 is what a file holds unless told otherwise") };
    assert_eq!((all.len() as u64, all[last as usize].to_f32()), (3 * DIM, 2.5));
    assert_eq!(features.row(2).take(3).collect::<Vec<_>>(), [0.0, -1.5, 0.0]);
    drop(features);

    let mut file = OpenOptions::new().write(true).open(&values).unwrap();
    file.seek(SeekFrom::Start(last * 2)).unwrap();
    file.write_all(&bits(f32::INFINITY)).unwrap();
    let error = Dataset::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("row 2, column {}", DIM - 1)) && error.contains("inf"), "{error}");
}
