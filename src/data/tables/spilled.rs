//! Lists that go to disk when they fill the memory that they may take.

use crate::error::Result;
use crate::graph::{Disk, Record, Sorter};

/// Edges in memory, and those that lie on disk.
#[derive(Debug)]
pub(super) struct Items<T> {
    pub rest: Vec<T>,
    pub sorter: Option<(Sorter<T>, Disk)>,
}

impl<T> From<Vec<T>> for Items<T> {
    fn from(rest: Vec<T>) -> Self {
        Self { rest, sorter: None }
    }
}

impl<T: Record> Items<T> {
    pub fn len(&self) -> usize {
        self.sorter.as_ref().map_or(0, |(sorter, _)| sorter.len() as usize) + self.rest.len()
    }

    pub fn spill(&mut self, disk: &Disk, room: u64, at_end: bool) -> Result<()> {
        if !at_end && self.rest.len() < Sorter::<T>::in_room(room) {
            return Ok(());
        }
        let (sorter, _) = match &mut self.sorter {
            Some(sorter) => sorter,
            none => none.insert((Sorter::new(disk)?, disk.clone())),
        };
        sorter.take(&mut self.rest, room)?;
        if at_end {
            self.rest = Vec::new();
        }
        Ok(())
    }

    pub fn for_each(&self, mut f: impl FnMut(T)) -> Result<()> {
        if let Some((sorter, _)) = &self.sorter {
            sorter.for_each(&mut f)?;
        }
        self.rest.iter().for_each(|item| f(*item));
        Ok(())
    }

    /// Puts what `f` makes of every edge in its place; `None` leaves it out.
    pub fn rewrite(&mut self, f: impl Fn(T) -> Option<T>) -> Result<()> {
        if let Some((sorter, _)) = &mut self.sorter {
            sorter.rewrite(&f)?;
        }
        self.rest = std::mem::take(&mut self.rest).into_iter().filter_map(f).collect();
        Ok(())
    }
}
