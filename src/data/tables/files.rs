//! Files of a table: those that the description names, and of directories all parts below them.
//!
//! A directory is what Spark, Trino or BigQuery write: files of one layout, in the order of their names, at any depth.
//! A directory `key=value` among them is a partition, as Hive lays them out: it makes a column `key` of all rows below.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;

use super::input::{Layout, Limits, layout_of, open};
use super::{parquet, separated};
use crate::error::{Error, Result};

/// What a partition directory is called whose value is missing.
const MISSING: &str = "__HIVE_DEFAULT_PARTITION__";
/// Directories below each other; more are a link that leads back.
const MAX_DEPTH: usize = 32;

/// One file of a table.
#[derive(Debug, Clone)]
pub(super) struct TableFile {
    pub path: Arc<Path>,
    /// As records name it: without directories, of a part with those from the table's own one on.
    pub name: String,
    pub bytes: u64,
    pub layout: Layout,
    /// Columns that the directories above a part make, and their values; an empty one is missing.
    pub partition: Vec<(String, String)>,
}

/// The files behind the names of a description: every directory is replaced by its parts, whose columns agree.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for names and directories that hold no table, and for parts that disagree.
pub(super) fn files_of(paths: &[PathBuf], limits: Limits) -> Result<Vec<TableFile>> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let metadata = fs::metadata(path).map_err(|source| Error::io(path, "read", source))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if metadata.is_dir() {
            files.extend(parts_of(path, name, limits)?);
        } else {
            let layout = layout_of(path)?;
            let (path, bytes) = (path.as_path().into(), metadata.len());
            files.push(TableFile { path, name, bytes, layout, partition: Vec::new() });
        }
    }
    Ok(files)
}

fn parts_of(dir: &Path, name: String, limits: Limits) -> Result<Vec<TableFile>> {
    let mut parts = Vec::new();
    walk(dir, &name, &[], 0, &mut parts)?;
    let Some((first, others)) = parts.split_first() else {
        let help = "parts end in .parquet, .csv or .tsv; names that begin with a point or an underscore are left out";
        return Err(Error::format(dir, "directory", "files that are parts of a table", "none", help));
    };
    let columns = parts.par_iter().map(|part| columns_of(part, limits)).collect::<Vec<_>>();
    let mut columns = columns.into_iter();
    let of_first = columns.next().transpose()?.unwrap_or_default();
    for (part, columns) in others.iter().zip(columns) {
        agree(first, &of_first, part, &columns?)?;
    }
    Ok(parts)
}

/// Names that writers keep to themselves: `_SUCCESS`, `_temporary`, `.part-0.crc`. A partition may begin like them.
fn is_ignored(name: &str) -> bool {
    name.starts_with('.') || name.ends_with(".crc") || name.starts_with('_') && !name.contains('=')
}

fn walk(
    dir: &Path,
    name: &str,
    partition: &[(String, String)],
    depth: usize,
    parts: &mut Vec<TableFile>,
) -> Result<()> {
    if depth > MAX_DEPTH {
        let help = "look for a link that leads back to a directory above";
        return Err(Error::format(dir, "directory", format!("at most {MAX_DEPTH} above each other"), "more", help));
    }
    let failed = |source| Error::io(dir, "read", source);
    let entries = fs::read_dir(dir).map_err(failed)?.map(|entry| Ok(entry?.file_name()));
    let mut entries = entries.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    entries.sort_unstable();
    for entry in entries {
        let path = dir.join(&entry);
        let Some(text) = entry.to_str() else {
            let help = "write the table again: names of parts and partitions are UTF-8";
            return Err(Error::format(&path, "file name", "UTF-8 text", format!("{entry:?}"), help));
        };
        if text == "_delta_log" {
            let help = "rows may be deleted there; write the table as plain Parquet, to a directory of its own";
            return Err(Error::format(
                dir,
                "directory",
                "nothing but parts that count",
                "the log of a Delta table",
                help,
            ));
        }
        if is_ignored(text) {
            continue;
        }
        let metadata = fs::metadata(&path).map_err(|source| Error::io(&path, "read", source))?;
        let name = format!("{name}/{text}");
        if metadata.is_dir() {
            let mut partition = partition.to_vec();
            if let Some((key, value)) = text.split_once('=') {
                let [key, value] = [decoded(key, &path)?, decoded(value, &path)?];
                if partition.iter().any(|(known, _)| *known == key) {
                    let help = "rename one of the two directories";
                    let found = format!("`{key}` twice");
                    return Err(Error::format(&path, "file name", "every partition column once", found, help));
                }
                partition.push((key, if value == MISSING { String::new() } else { value }));
            }
            walk(&path, &name, &partition, depth + 1, parts)?;
        } else {
            let layout = layout_of_part(&path)?;
            let (path, bytes) = (path.as_path().into(), metadata.len());
            parts.push(TableFile { path, name, bytes, layout, partition: partition.to_vec() });
        }
    }
    Ok(())
}

/// The layout of a part: Trino gives its Parquet files no ending, so they are known by their first bytes.
fn layout_of_part(path: &Path) -> Result<Layout> {
    let by_name = layout_of(path);
    if by_name.is_ok() {
        return by_name;
    }
    let (file, _) = open(path)?;
    let mut magic = Vec::with_capacity(4);
    file.take(4).read_to_end(&mut magic).map_err(|source| Error::io(path, "read", source))?;
    if magic == b"PAR1" { Ok(Layout::Parquet) } else { by_name }
}

/// `%2F` and the like as what they stand for; a percent sign that no two digits follow stands for itself.
fn decoded(text: &str, path: &Path) -> Result<String> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let mut all = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                all.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                all.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(all).map_err(|_| {
        let help = "percent codes in names of partitions stand for bytes of UTF-8";
        Error::format(path, "file name", "UTF-8 text", format!("{text:?}"), help)
    })
}

/// A column of a part: its name, and its type where the layout has types.
type PartColumn = (String, Option<parquet::ColumnType>);

/// The columns of the rows of a part, without those of its partition.
fn columns_of(part: &TableFile, limits: Limits) -> Result<Vec<PartColumn>> {
    let mut columns: Vec<PartColumn> = match part.layout {
        Layout::Parquet => parquet::columns_of(&part.path)?.into_iter().map(|(name, of)| (name, Some(of))).collect(),
        Layout::Separated(separator) => {
            separated::header_of(&part.path, separator, limits)?.into_iter().map(|name| (name, None)).collect()
        }
    };
    columns.retain(|(name, _)| part.partition.iter().all(|(key, _)| key != name));
    Ok(columns)
}

/// Refuses a part that has other columns than the first, or columns of other types.
fn agree(first: &TableFile, expected: &[PartColumn], part: &TableFile, found: &[PartColumn]) -> Result<()> {
    let help =
        "all parts of a directory have the same columns; write the table again, or list directories of their own";
    let differ = |column: &str, expected: String, found: String| {
        let expected = format!("{expected}, as in {}", first.path.display());
        Err(Error::format(&*part.path, format!("column `{column}`"), expected, found, help))
    };
    if first.layout != part.layout {
        let expected = format!("a file written like {}", first.path.display());
        return Err(Error::format(&*part.path, "file name", expected, "another layout", help));
    }
    let lacks = |those: &[PartColumn], name: &str| those.iter().all(|(known, _)| known != name);
    if let Some((column, _)) = expected.iter().find(|(name, _)| lacks(found, name)) {
        return differ(column, "a column".into(), "no such column".into());
    }
    if let Some((column, _)) = found.iter().find(|(name, _)| lacks(expected, name)) {
        return differ(column, "no such column".into(), "one".into());
    }
    for (name, of) in found {
        let known = expected.iter().find(|(known, _)| known == name).and_then(|(_, known)| known.as_ref());
        if let (Some(known), Some(of)) = (known, of)
            && known != of
        {
            return differ(name, format!("values of the type {known}"), format!("values of the type {of}"));
        }
    }
    let keys = |part: &TableFile| part.partition.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    let (expected, found) = (keys(first), keys(part));
    if let Some(key) = expected.iter().find(|key| !found.contains(key)) {
        return differ(key, format!("a directory `{key}=...` above the part"), "none".into());
    }
    if let Some(key) = found.iter().find(|key| !expected.contains(key)) {
        return differ(key, format!("no directory `{key}=...` above the part"), "one".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str, content: &[u8]) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn parts(dir: &Path) -> Result<Vec<TableFile>> {
        files_of(&[dir.join("t")], Limits::new(1 << 30))
    }

    #[test]
    fn parts_lie_in_the_order_of_their_names_and_partitions_make_columns() {
        let sandbox = tempfile::tempdir().unwrap();
        let dir = sandbox.path();
        let files = ["day=2/b.csv", "day=2/a.csv", "day=1/z.csv.gz", "day=1/_temporary/0/x.csv", "_SUCCESS"];
        files.iter().for_each(|name| write(dir, &format!("t/{name}"), b"a,b\n1,2\n"));
        for name in [".z.csv.gz.crc", "z.csv.crc", ".hidden/x.csv", "_committed_17"] {
            write(dir, &format!("t/day=1/{name}"), b"no table");
        }
        write(dir, "t/day=__HIVE_DEFAULT_PARTITION__/c.csv", b"b,a\n2,1\n");
        write(dir, "t/day=50%25 off%2F%C3%A9%zz/d.csv", b"a,b\n");
        let found = parts(dir).unwrap();
        let names: Vec<&str> = found.iter().map(|part| part.name.as_str()).collect();
        let expected = [
            "t/day=1/z.csv.gz",
            "t/day=2/a.csv",
            "t/day=2/b.csv",
            "t/day=50%25 off%2F%C3%A9%zz/d.csv",
            "t/day=__HIVE_DEFAULT_PARTITION__/c.csv",
        ];
        assert_eq!(names, expected);
        let days: Vec<&str> = found.iter().map(|part| part.partition[0].1.as_str()).collect();
        assert_eq!(days, ["1", "2", "2", "50% off/é%zz", ""]);
        assert!(found.iter().all(|part| part.partition.len() == 1 && part.partition[0].0 == "day"));
    }

    #[test]
    fn parts_that_disagree_are_named_with_the_column() {
        let cases: [(&str, &[u8], &[&str]); 7] = [
            ("b.csv", b"a,c\n", &["b.csv: column `b`: expected a column, as in ", "a.csv, found no such column"]),
            ("b.csv", b"a,b,c\n", &["b.csv: column `c`: expected no such column, as in ", "a.csv, found one"]),
            ("day=1/b.csv", b"a,b\n", &["b.csv: column `day`: expected no directory `day=...` above the part"]),
            ("b.tsv", b"a\tb\n", &["b.tsv: file name: expected a file written like ", "a.csv, found another layout"]),
            ("b.txt", b"a,b\n", &["b.txt: file name: expected a name that ends in .csv"]),
            ("b.csv", b"", &["b.csv: file length: expected a table, found 0 bytes"]),
            ("_delta_log/0.json", b"{}", &["expected nothing but parts that count, found the log of a Delta table"]),
        ];
        for (name, content, expected) in cases {
            let sandbox = tempfile::tempdir().unwrap();
            write(sandbox.path(), "t/a.csv", b"a,b\n");
            write(sandbox.path(), &format!("t/{name}"), content);
            let error = parts(sandbox.path()).unwrap_err().to_string();
            assert!(expected.iter().all(|part| error.contains(part)), "{error}\nlacks one of {expected:?}");
        }
        let sandbox = tempfile::tempdir().unwrap();
        write(sandbox.path(), "t/_SUCCESS", b"");
        let error = parts(sandbox.path()).unwrap_err().to_string();
        assert!(error.contains("t: directory: expected files that are parts of a table, found none"), "{error}");
        write(sandbox.path(), "t/a=1/a=2/x.csv", b"b\n");
        let error = parts(sandbox.path()).unwrap_err().to_string();
        assert!(error.contains("a=2: file name: expected every partition column once, found `a` twice"), "{error}");
    }
}
