//! Files of rows that are spans of the entries.

use std::io::Write;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::{AdjacencyFiles, check_ids, map_file, put_offset, write_new};
use crate::error::{Error, Result};
use crate::graph::{Adjacency, Array};

const HELP: &str = "write the directory again: a file is damaged, or they do not belong together";

impl AdjacencyFiles<'_> {
    /// Reads rows as spans. There are no self-loops outside the range of the source type: rows share entries.
    pub(super) fn read_spans(&self, start_path: &Path, end_path: &Path) -> Result<Adjacency> {
        let (start, end) = (self.read_offsets(start_path, 0)?, self.read_offsets(end_path, 0)?);
        let map = map_file(&self.col_idx)?;
        if !map.len().is_multiple_of(4) {
            let found = format!("{} bytes", map.len());
            return Err(Error::format(&self.col_idx, "file length", "a multiple of 4 bytes", found, HELP));
        }
        let ids: &[i32] = bytemuck::cast_slice(&map);
        let entries = ids.len() as i64;
        let bad = |(start, end): (&i64, &i64)| *start < 0 || end < start || *end > entries;
        if let Some(row) = start.par_iter().zip(&end).with_min_len(1 << 14).position_first(bad) {
            let (start, end) = (start[row], end[row]);
            let (path, expected, found) = if start < 0 {
                (start_path, "a start of at least 0".into(), start)
            } else if end < start {
                (end_path, format!("an end of at least {start}, its start"), end)
            } else {
                (end_path, format!("an end of at most {entries}, the entries of {}", self.col_idx.display()), end)
            };
            return Err(Error::format(path, format!("row {row}"), expected, found.to_string(), HELP));
        }
        let outside = |id: &i32| usize::try_from(*id).map_or(true, |id| !self.src_ids.contains(&id));
        if let Some(entry) = ids.par_iter().with_min_len(1 << 14).position_first(outside) {
            let expected = format!("a `{}` id in [{}, {})", self.src, self.src_ids.start, self.src_ids.end);
            let found = format!("id out of range: {}", ids[entry]);
            let help =
                "check the node counts, the source type, and whether ids are \"global\" or \"local\" in graph.toml";
            return Err(Error::format(&self.col_idx, format!("entry {entry}"), expected, found, help));
        }
        let col_idx = match self.src_ids.start {
            // The same as i32 and as u32.
            0 => Array::mapped(map),
            first => ids.par_iter().map(|&id| (id as usize - first) as u32).collect::<Vec<_>>().into(),
        };
        let [start, end] = [start, end].map(|offsets| offsets.into_iter().map(|offset| offset as u64).collect());
        let adjacency = Adjacency::spans_of(start, end, col_idx, self.src_ids.len());
        adjacency.map_err(|problem| Error::format(start_path, "rows", "spans", problem.to_string(), HELP))
    }
}

/// Writes starts and ends of the rows of an adjacency and its entries, without temporary names: for directories that
/// appear as a whole.
pub(crate) fn write_spans(paths: &[PathBuf; 3], [start, end]: [&[u64]; 2], adjacency: &Adjacency) -> Result<()> {
    let [start_path, end_path, col_idx_path] = paths;
    check_ids(adjacency.num_cols().max(adjacency.num_rows()), col_idx_path)?;
    let wide = adjacency.num_entries() > i32::MAX as usize;
    for (path, offsets) in [(start_path, start), (end_path, end)] {
        write_new(path, |file| offsets.iter().try_for_each(|&offset| put_offset(file, offset, wide)))?;
    }
    write_new(col_idx_path, |file| file.write_all(bytemuck::cast_slice(adjacency.col_idx())))
}
