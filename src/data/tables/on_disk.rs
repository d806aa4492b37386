//! Edges that were sorted on disk become what edges in memory do, one after another.

use super::budget::{of_types, of_values};
use super::edge_list::{Carried, EdgeList, EndFigures, Entries, Item, Merged};
use super::edges::RelationEdges;
use super::nodes::NodeType;
use super::spilled::Items;
use crate::error::Result;
use crate::graph::{Adjacency, ArrayWriter, Disk, Sorter};

/// Entries that are written at once.
const AT_ONCE: usize = 1 << 16;

/// Bytes that are held beside the edges once all tables are read, without the matrix of features.
pub(super) fn held(types: &[NodeType], relations: &[RelationEdges]) -> u64 {
    of_types(types) + relations.iter().map(|relation| of_relation(types, relation)).sum::<u64>()
}

/// Bytes of the starts of rows, in both directions, of the figures of both ends and of the values of edges.
fn of_relation(types: &[NodeType], relation: &RelationEdges) -> u64 {
    let Carried { weight, time, .. } = relation.carried;
    let valued = u64::from(weight || time) * 4;
    let of_node = 8 + 4 + valued + u64::from(weight) * 12 + u64::from(time) * 8;
    let [src, dst] = [relation.src, relation.dst].map(|end| types[end].ids.len() as u64);
    (src + dst) * of_node + src * 4 + of_values(&relation.columns, relation.edges.len())
}

/// What the edges of a list become: [`EdgeList::merge`] of those in memory, and of those on disk the same, which takes
/// `room` bytes and stays there.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io) of edges on disk.
pub(super) fn merge(list: EdgeList, ends: [usize; 2], carried: Carried, room: u64) -> Result<Merged> {
    match list {
        EdgeList::Plain(Items { sorter: Some((sorter, disk)), .. }) => merge_sorted(sorter, &disk, ends, carried, room),
        EdgeList::Valued(Items { sorter: Some((sorter, disk)), .. }) => {
            merge_sorted(sorter, &disk, ends, carried, room)
        }
        in_memory => Ok(in_memory.merge(ends, carried)),
    }
}

/// Entries on their way to disk.
struct Lists {
    col_idx: ArrayWriter<u32>,
    weight: Option<ArrayWriter<f32>>,
    time: Option<ArrayWriter<i64>>,
    written: u64,
}

impl Lists {
    fn new(disk: &Disk, carried: Carried) -> Result<Self> {
        Ok(Self {
            col_idx: ArrayWriter::new(disk)?,
            weight: carried.weight.then(|| ArrayWriter::new(disk)).transpose()?,
            time: carried.time.then(|| ArrayWriter::new(disk)).transpose()?,
            written: 0,
        })
    }

    /// Takes what is there; where entries come from stays.
    fn write(&mut self, entries: &mut Entries) -> Result<()> {
        self.written += entries.col_idx.len() as u64;
        self.col_idx.write(&entries.col_idx)?;
        self.weight.as_mut().map_or(Ok(()), |weight| weight.write(&entries.weight))?;
        self.time.as_mut().map_or(Ok(()), |time| time.write(&entries.time))?;
        entries.col_idx.clear();
        entries.weight.clear();
        entries.time.clear();
        Ok(())
    }
}

/// Merges edges one after another.
fn merge_sorted<T: Item>(
    sorter: Sorter<T>,
    disk: &Disk,
    [num_dst, num_src]: [usize; 2],
    carried: Carried,
    room: u64,
) -> Result<Merged> {
    let mut lists = Lists::new(disk, carried)?;
    let mut entries = Entries::default();
    let mut row_ptr: Vec<u64> = Vec::with_capacity(num_dst + 1);
    let [mut src, mut dst] = [num_src, num_dst].map(|nodes| EndFigures::new(nodes, carried.weight, carried.time));
    let [mut of_src, mut of_dst] = [&mut src, &mut dst].map(EndFigures::whole);
    // By source, the last row that it is in. No node has that number.
    let mut last_row = vec![u32::MAX; num_src];
    sorter.merged(room, |item| {
        let edge = item.edge();
        let (row, col) = ((edge.key >> 32) as u32, edge.key as u32);
        while row_ptr.len() <= row as usize {
            row_ptr.push(lists.written + entries.col_idx.len() as u64);
        }
        let is_first = std::mem::replace(&mut last_row[col as usize], row) != row;
        // What is followed by another entry is complete.
        if entries.col_idx.len() >= AT_ONCE && (carried.time || is_first) {
            lists.write(&mut entries)?;
        }
        entries.push(edge, is_first, carried);
        of_dst.add(row as usize, edge.weight, edge.time, is_first);
        of_src.add(col as usize, edge.weight, edge.time, is_first);
        Ok(())
    })?;
    lists.write(&mut entries)?;
    row_ptr.resize(num_dst + 1, lists.written);
    let Entries { origins, repeated, .. } = entries;
    Ok(Merged {
        adjacency: Adjacency::lists_of(row_ptr, lists.col_idx.finish()?, num_src),
        weight: lists.weight.map(ArrayWriter::finish).transpose()?,
        time: lists.time.map(ArrayWriter::finish).transpose()?,
        origins: carried.values.then_some(origins),
        repeated,
        src,
        dst,
    })
}

#[cfg(test)]
mod tests {
    use super::super::edge_list::{Edge, key};
    use super::*;

    #[test]
    fn edges_become_the_same_in_memory_and_on_disk() {
        const ROOM: u64 = 40_000;
        let draw = |of: u64, below: u64| (of.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % below;
        // One destination has a third of the edges, the last ones none.
        let dst = |at: u64| if at.is_multiple_of(3) { 4_242 } else { draw(at, 5_000) as u32 };
        let edge = |at: u64, carried: Carried| Edge {
            key: key(dst(at), draw(at + 7, 700) as u32),
            time: if carried.time { draw(at * 3, 50) as i64 } else { 0 },
            weight: draw(at * 5, 1_000) as f32 * 0.1 - 20.0,
            row: at as u32,
        };
        let dir = tempfile::tempdir().unwrap();
        let carried = |weight, time, values| Carried { weight, time, values };
        for carried in [carried(true, true, true), carried(true, false, true), carried(false, true, false)] {
            let edges = || EdgeList::Valued((0..200_000).map(|at| edge(at, carried)).collect::<Vec<_>>().into());
            let mut spilled = edges();
            spilled.spill(&Disk::new(dir.path()), ROOM, true).unwrap();
            let [in_memory, on_disk] = [edges(), spilled].map(|list| merge(list, [5_003, 701], carried, ROOM).unwrap());
            assert!(in_memory == on_disk, "{carried:?}");
        }
        let keys = || {
            EdgeList::Plain(
                (0..200_000).map(|at| edge(at, carried(false, false, false)).key).collect::<Vec<_>>().into(),
            )
        };
        let mut spilled = keys();
        spilled.spill(&Disk::new(dir.path()), ROOM, true).unwrap();
        let [in_memory, on_disk] =
            [keys(), spilled].map(|list| merge(list, [5_003, 701], Carried::default(), ROOM).unwrap());
        assert!(in_memory == on_disk);
    }
}
