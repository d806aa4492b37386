//! Lists that are larger than the memory they may take: sorted on disk, and arrays that are written there.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::ops::Range;
use std::path::PathBuf;

use bytemuck::Pod;
use rayon::prelude::*;

use super::adjacency::{Adjacency, accumulate};
use super::array::Array;
use super::formats::map_unnamed;
use crate::error::{Error, Result};

/// Bytes that are read of a run at once, at least.
const LEAST_READ: u64 = 1 << 12;
/// Runs that are merged at a time, at most.
const MOST_RUNS: u64 = 512;
/// Bytes that are written at once.
const WRITE: usize = 1 << 20;

/// A directory for files without a name: nothing is left of them, however the program ends.
#[derive(Clone, Debug)]
pub struct Disk {
    dir: PathBuf,
}

impl Disk {
    /// Files in `dir`, which exists.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub(super) fn file(&self) -> Result<File> {
        tempfile::tempfile_in(&self.dir).map_err(|source| self.failed("make a temporary file", source))
    }

    pub(super) fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::io(&self.dir, action, source)
    }
}

/// What can be sorted on disk.
pub(crate) trait Record: Pod + Send + Sync {
    /// Records that are equal in it have to be the same.
    fn order(&self, other: &Self) -> Ordering;
}

impl Record for u64 {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

/// Records in sorted runs, one behind another in a file.
#[derive(Debug)]
pub(crate) struct Sorter<T> {
    disk: Disk,
    file: File,
    /// In records.
    runs: Vec<Range<u64>>,
    of: PhantomData<T>,
}

impl<T: Record> Sorter<T> {
    pub fn new(disk: &Disk) -> Result<Self> {
        Ok(Self { disk: disk.clone(), file: disk.file()?, runs: Vec::new(), of: PhantomData })
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// Records that fit a run where `room` bytes are free: the rest is for what brings them.
    pub fn in_room(room: u64) -> usize {
        (room / 3 / size_of::<T>() as u64).max(16) as usize
    }

    /// Takes all `records`, in runs that fit `room` bytes.
    pub fn take(&mut self, records: &mut Vec<T>, room: u64) -> Result<()> {
        for run in records.chunks_mut(Self::in_room(room)) {
            run.par_sort_unstable_by(T::order);
            self.append(|file| file.write_all(bytemuck::cast_slice(run)), run.len() as u64)?;
        }
        records.clear();
        Ok(())
    }

    /// Appends a run of so many records, which `write` writes.
    fn append(&mut self, write: impl FnOnce(&mut &File) -> io::Result<()>, records: u64) -> Result<()> {
        let start = self.len();
        let mut file = &self.file;
        let written = file.seek(SeekFrom::Start(start * size_of::<T>() as u64)).and_then(|_| write(&mut file));
        written.map_err(|source| self.disk.failed("write a temporary file", source))?;
        self.runs.push(start..start + records);
        Ok(())
    }

    fn read(&self, first: u64, into: &mut [T]) -> Result<()> {
        let mut file = &self.file;
        let read = file.seek(SeekFrom::Start(first * size_of::<T>() as u64));
        let read = read.and_then(|_| file.read_exact(bytemuck::cast_slice_mut(into)));
        read.map_err(|source| self.disk.failed("read a temporary file", source))
    }

    /// Calls `f` with all records, run by run.
    pub fn for_each(&self, mut f: impl FnMut(T)) -> Result<()> {
        let mut records = Vec::new();
        let most = WRITE / size_of::<T>();
        for first in (0..self.len()).step_by(most) {
            records.resize(most.min((self.len() - first) as usize), T::zeroed());
            self.read(first, &mut records)?;
            records.iter().for_each(|record| f(*record));
        }
        Ok(())
    }

    /// Puts what `f` makes of every record in its place; `None` leaves it out.
    pub fn rewrite(&mut self, f: impl Fn(T) -> Option<T>) -> Result<()> {
        let mut next = Self::new(&self.disk)?;
        for run in &self.runs {
            let mut records = vec![T::zeroed(); (run.end - run.start) as usize];
            self.read(run.start, &mut records)?;
            let mut kept: Vec<T> = records.into_iter().filter_map(&f).collect();
            next.take(&mut kept, u64::MAX)?;
        }
        *self = next;
        Ok(())
    }

    /// Calls `f` with all records in their order. Takes `room` bytes.
    ///
    /// # Errors
    /// [`Error::Io`]; the first of `f`.
    pub fn merged(mut self, room: u64, mut f: impl FnMut(T) -> Result<()>) -> Result<()> {
        let at_once = (room / LEAST_READ).clamp(2, MOST_RUNS) as usize;
        while self.runs.len() > at_once {
            let mut next = Self::new(&self.disk)?;
            for runs in self.runs.chunks(at_once) {
                let records = runs.iter().map(|run| run.end - run.start).sum();
                let mut fault = Ok(());
                next.append(
                    |file| {
                        let mut writer = BufWriter::with_capacity(WRITE, file);
                        let written = self.merge(runs, room, &mut |record| {
                            let written = writer.write_all(bytemuck::bytes_of(&record));
                            written.map_err(|source| self.disk.failed("write a temporary file", source))
                        });
                        fault = written;
                        writer.flush()
                    },
                    records,
                )?;
                fault?;
            }
            self = next;
        }
        self.merge(&self.runs, room, &mut f)
    }

    fn merge(&self, runs: &[Range<u64>], room: u64, f: &mut dyn FnMut(T) -> Result<()>) -> Result<()> {
        let bytes = (room / runs.len().max(1) as u64).clamp(LEAST_READ, 4 * WRITE as u64);
        let most = bytes / size_of::<T>() as u64;
        let mut readers: Vec<_> =
            runs.iter().map(|run| Reader { rest: run.clone(), read: Vec::new(), at: 0 }).collect();
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for (run, reader) in readers.iter_mut().enumerate() {
            heads.extend(reader.next(self, most)?.map(|record| Head { record, run }));
        }
        while let Some(mut head) = heads.peek_mut() {
            f(head.record)?;
            match readers[head.run].next(self, most)? {
                Some(record) => head.record = record,
                None => {
                    PeekMut::pop(head);
                }
            }
        }
        Ok(())
    }
}

/// Where a merge stands in a run.
struct Reader<T> {
    /// What is not read yet.
    rest: Range<u64>,
    read: Vec<T>,
    at: usize,
}

impl<T: Record> Reader<T> {
    fn next(&mut self, of: &Sorter<T>, most: u64) -> Result<Option<T>> {
        if self.at == self.read.len() {
            let count = most.min(self.rest.end - self.rest.start);
            self.read.resize(count as usize, T::zeroed());
            of.read(self.rest.start, &mut self.read)?;
            self.rest.start += count;
            self.at = 0;
        }
        self.at += 1;
        Ok(self.read.get(self.at - 1).copied())
    }
}

/// The first record that is left of a run; the heap has the greatest in front, which is the least of them.
struct Head<T> {
    record: T,
    run: usize,
}

impl<T: Record> Ord for Head<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.record.order(&self.record).then(other.run.cmp(&self.run))
    }
}

impl<T: Record> PartialOrd for Head<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Record> PartialEq for Head<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: Record> Eq for Head<T> {}

/// An array that is written from front to back.
pub(crate) struct ArrayWriter<T> {
    disk: Disk,
    file: BufWriter<File>,
    of: PhantomData<T>,
}

impl<T: Pod> ArrayWriter<T> {
    pub fn new(disk: &Disk) -> Result<Self> {
        Ok(Self { disk: disk.clone(), file: BufWriter::with_capacity(WRITE, disk.file()?), of: PhantomData })
    }

    pub fn write(&mut self, values: &[T]) -> Result<()> {
        self.file
            .write_all(bytemuck::cast_slice(values))
            .map_err(|source| self.disk.failed("write a temporary file", source))
    }

    pub fn finish(self) -> Result<Array<T>> {
        let file =
            self.file.into_inner().map_err(|fault| self.disk.failed("write a temporary file", fault.into_error()))?;
        map_unnamed(&file).map(Array::mapped).map_err(|source| self.disk.failed("read a temporary file", source))
    }
}

impl Adjacency {
    /// [`reverse`](Self::reverse) of lists, sorted on disk within `room` bytes; its entries stay there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn reverse_on(&self, disk: &Disk, room: u64) -> Result<Adjacency> {
        let mut sorter: Sorter<u64> = Sorter::new(disk)?;
        let most = Sorter::<u64>::in_room(room);
        let mut edges: Vec<u64> = Vec::new();
        let mut row = 0;
        let mut at = 0;
        for piece in self.entry_array().pieces() {
            for &col in piece {
                while self.entries(row).end <= at {
                    row += 1;
                }
                edges.push(u64::from(col) << 32 | row as u64);
                at += 1;
                if edges.len() == most {
                    sorter.take(&mut edges, room)?;
                }
            }
        }
        sorter.take(&mut edges, room)?;
        drop(edges);
        let mut row_ptr = vec![0; self.num_cols() + 1];
        let mut col_idx: ArrayWriter<u32> = ArrayWriter::new(disk)?;
        sorter.merged(room, |edge| {
            row_ptr[(edge >> 32) as usize + 1] += 1;
            col_idx.write(&[edge as u32])
        })?;
        accumulate(&mut row_ptr);
        Ok(Adjacency::lists_of(row_ptr, col_idx.finish()?, self.num_rows()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_in_order_however_little_room_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::new(dir.path());
        let mut expected: Vec<u64> = (0..20_000u64).map(|at| at * 7919 % 10_007).collect();
        for room in [0, 60_000, 1 << 30] {
            let mut sorter = Sorter::new(&disk).unwrap();
            for part in expected.chunks(3_000) {
                sorter.take(&mut part.to_vec(), room).unwrap();
            }
            sorter.rewrite(|record| (record != 5).then_some(record + 1)).unwrap();
            let (mut seen, mut sum) = (Vec::new(), 0u64);
            sorter.for_each(|record| sum += record).unwrap();
            let keep = |record| {
                seen.push(record);
                Ok(())
            };
            sorter.merged(room, keep).unwrap();
            let mut sorted: Vec<u64> = expected.iter().filter(|at| **at != 5).map(|at| at + 1).collect();
            sorted.sort_unstable();
            assert!(seen == sorted && sum == sorted.iter().sum::<u64>());
            expected.reverse();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_reverse_made_on_disk_is_that_of_memory() {
        let dir = tempfile::tempdir().unwrap();
        // Repeated edges, as those with times are, and rows without any.
        let row_ptr = vec![0, 0, 3, 3, 5, 900, 900];
        let cols: Vec<u32> = (0..900).map(|at| at * 31 % 7).collect();
        let adjacency = Adjacency::new(row_ptr, cols, 8).unwrap();
        let reverse = adjacency.reverse_on(&Disk::new(dir.path()), 0).unwrap();
        assert!(reverse.entry_array().is_mapped());
        assert_eq!(reverse, adjacency.reverse());
    }
}
