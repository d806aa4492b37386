//! Matrices that may need more than the memory they may take: those lie in files without a name.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::PathBuf;

use super::disk::Disk;
use super::features::Features;
use super::formats::map_unnamed;
use crate::error::{Error, Result};

/// How much host memory matrices may take that a computation makes on its way, and where those go that need more.
#[derive(Clone, Debug)]
pub struct Spill {
    /// Bytes that are left.
    most: Option<u64>,
    dir: PathBuf,
}

impl Default for Spill {
    /// Takes what there is; where a limit is given later, files lie where the system has temporary ones.
    fn default() -> Self {
        Self { most: None, dir: std::env::temp_dir() }
    }
}

impl Spill {
    /// At most so many bytes, where a number is given; files lie in `dir`, which is made with the first.
    pub fn new(most: Option<u64>, dir: impl Into<PathBuf>) -> Self {
        Self { most, dir: dir.into() }
    }

    /// The same in GB (10^9 bytes); 0 takes what there is.
    pub fn of_gigabytes(gigabytes: f64, dir: impl Into<PathBuf>) -> Self {
        Self::new((gigabytes > 0.0).then_some((gigabytes * 1e9) as u64), dir)
    }

    /// These, or so many GB where nothing was said.
    pub fn or_gigabytes(&self, gigabytes: f64) -> Self {
        if self.most.is_some() { self.clone() } else { Self::of_gigabytes(gigabytes, &self.dir) }
    }

    /// Whether a number was given.
    pub fn is_limited(&self) -> bool {
        self.most.is_some()
    }

    /// What is left beside so many bytes.
    pub fn beside(&self, held: u64) -> Self {
        Self { most: self.most.map(|most| most.saturating_sub(held)), ..self.clone() }
    }

    /// A matrix that is written piece by piece and holds zeros until then.
    ///
    /// # Errors
    /// [`Error::Io`] for a directory that cannot be written.
    pub fn zeros(&self, rows: usize, dim: usize) -> Result<MatrixWriter> {
        let (values, bytes) = (rows * dim, (rows * dim * size_of::<f32>()) as u64);
        let place = match self.most {
            Some(most) if bytes > most => {
                fs::create_dir_all(&self.dir).map_err(|source| Error::io(&self.dir, "create", source))?;
                let disk = Disk::new(&self.dir);
                let file = disk.file()?;
                file.set_len(bytes).map_err(|source| disk.failed("write a temporary file", source))?;
                Place::File(file, disk)
            }
            _ => Place::Memory(vec![0.0; values]),
        };
        Ok(MatrixWriter { place, rows, dim })
    }

    /// A matrix that was made: moved to a file where it takes more than there is.
    ///
    /// # Errors
    /// As for [`zeros`](Self::zeros).
    ///
    /// # Panics
    /// Unless there are `rows * dim` values.
    pub fn keep(&self, values: Vec<f32>, rows: usize, dim: usize) -> Result<Features> {
        if self.most.is_none_or(|most| size_of_val(&*values) as u64 <= most) {
            return Ok(Features::from_f32(values, rows, dim));
        }
        let mut matrix = self.zeros(rows, dim)?;
        matrix.fill(0..rows, |to| to.copy_from_slice(&values))?;
        matrix.finish()
    }
}

/// A matrix of f32 in memory or in a file, of which any rows can be written.
#[derive(Debug)]
pub struct MatrixWriter {
    place: Place,
    rows: usize,
    dim: usize,
}

#[derive(Debug)]
enum Place {
    Memory(Vec<f32>),
    File(File, Disk),
}

impl MatrixWriter {
    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Writes some rows: `fill` writes all of their values.
    ///
    /// # Errors
    /// [`Error::Io`].
    ///
    /// # Panics
    /// For rows that are not there.
    pub fn fill(&mut self, rows: Range<usize>, fill: impl FnOnce(&mut [f32])) -> Result<()> {
        let write = |values: &mut [f32]| {
            fill(values);
            Ok(())
        };
        self.change_part(rows, false, write)
    }

    /// Changes what was written of some rows.
    ///
    /// # Errors
    /// [`Error::Io`]; that of `change`.
    ///
    /// # Panics
    /// For rows that are not there.
    pub fn change(&mut self, rows: Range<usize>, change: impl FnOnce(&mut [f32]) -> Result<()>) -> Result<()> {
        self.change_part(rows, true, change)
    }

    fn change_part(
        &mut self,
        rows: Range<usize>,
        reads: bool,
        change: impl FnOnce(&mut [f32]) -> Result<()>,
    ) -> Result<()> {
        assert!(rows.end <= self.rows, "MatrixWriter: expected rows up to {}, got {}", self.rows, rows.end);
        let at = rows.start * self.dim..rows.end * self.dim;
        let (file, disk) = match &mut self.place {
            Place::Memory(values) => return change(&mut values[at]),
            Place::File(file, disk) => (file, disk),
        };
        let start = SeekFrom::Start((at.start * size_of::<f32>()) as u64);
        let mut part = vec![0f32; at.len()];
        if reads {
            let read = file.seek(start).and_then(|_| file.read_exact(bytemuck::cast_slice_mut(&mut part)));
            read.map_err(|source| disk.failed("read a temporary file", source))?;
        }
        change(&mut part)?;
        let written = file.seek(start).and_then(|_| file.write_all(bytemuck::cast_slice(&part)));
        written.map_err(|source| disk.failed("write a temporary file", source))
    }

    /// The matrix, mapped where it lies in a file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(self) -> Result<Features> {
        let Self { place, rows, dim } = self;
        match place {
            Place::Memory(values) => Ok(Features::from_f32(values, rows, dim)),
            Place::File(file, disk) => {
                let map = map_unnamed(&file).map_err(|source| disk.failed("read a temporary file", source))?;
                Ok(Features::mapped_f32(map, 0, rows, dim))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_in_a_file_is_that_in_memory_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let written = |most| {
            let mut matrix = Spill::new(most, dir.path()).beside(8).zeros(5, 3).unwrap();
            matrix.fill(3..5, |to| to.iter_mut().zip(0u8..).for_each(|(to, at)| *to = f32::from(at))).unwrap();
            matrix.fill(0..1, |to| to.fill(7.0)).unwrap();
            let double = |values: &mut [f32]| {
                values.iter_mut().for_each(|value| *value *= 2.0);
                Ok(())
            };
            matrix.change(2..4, double).unwrap();
            matrix.finish().unwrap()
        };
        let want = [[7.0; 3], [0.0; 3], [0.0; 3], [0.0, 2.0, 4.0], [3.0, 4.0, 5.0]];
        for (most, held) in [(None, 60), (Some(68), 60), (Some(67), 0)] {
            let matrix = written(most);
            assert_eq!(matrix.bytes_in_memory(), held);
            assert!(matrix.as_f32() == ndarray::arr2(&want), "{most:?}");
        }
        let kept = Spill::new(Some(3), dir.path()).keep(vec![1.0, 2.0], 1, 2).unwrap();
        assert_eq!((kept.bytes_in_memory(), kept.row(0).collect::<Vec<_>>()), (0, vec![1.0, 2.0]));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(Spill::new(Some(0), dir.path().join("file")).zeros(1, 1).is_err());
        assert!(!Spill::of_gigabytes(0.0, "").or_gigabytes(0.0).is_limited());
    }
}
