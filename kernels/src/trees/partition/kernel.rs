//! A thread per row: the side that it goes to, and the way back of the parted rows.

use cubecl::prelude::*;

/// How the bin of a row is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BinOf {
    /// A byte of a word.
    Byte,
    /// A word.
    Word,
    /// An entry of the row, or none.
    Entry,
}

/// Where the bins of one feature stand.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct FeaturePlace {
    /// Of bytes and words: the first word of the column.
    pub first: usize,
    /// Of bytes: the bits below.
    pub shift: u32,
    /// Of entries: where the sums of the feature begin and end.
    pub start: i32,
    pub end: i32,
    /// Of entries: the bin of rows that have none.
    pub left_out: i32,
}

/// The bin of a row that stores none but those that are not left out.
#[cube]
fn entry_of_row(entries: &Array<u32>, row_ptr: &Array<i32>, row: usize, place: &FeaturePlace) -> i32 {
    let mut bin = place.left_out;
    let last = usize::cast_from(row_ptr[row + 1]);
    let mut entry = usize::cast_from(row_ptr[row]);
    while entry < last {
        let at = i32::cast_from(entries[entry]);
        if at >= place.start && at < place.end {
            bin = at - place.start;
        }
        entry += 1;
    }
    bin
}

/// Copies the rows of a span and marks those that go left.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn sides_kernel(
    rows: &Array<i32>,
    bins: &Array<u32>,
    row_ptr: &Array<i32>,
    goes_left: &Array<i32>,
    copy: &mut Array<i32>,
    flags: &mut Array<i32>,
    place: &FeaturePlace,
    start: usize,
    len: usize,
    #[comptime] of: BinOf,
) {
    let mut k = ABSOLUTE_POS;
    while k < len {
        let id = rows[start + k];
        let row = usize::cast_from(id);
        let bin = match comptime!(of) {
            BinOf::Byte => i32::cast_from((bins[place.first + row] >> place.shift) & 255u32),
            BinOf::Word => i32::cast_from(bins[place.first + row]),
            BinOf::Entry => entry_of_row(bins, row_ptr, row, place),
        };
        copy[k] = id;
        flags[k] = goes_left[usize::cast_from(bin)];
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

#[cube(launch_unchecked)]
pub(crate) fn copy_back_kernel(parted: &Array<i32>, rows: &mut Array<i32>, start: usize, len: usize) {
    let mut k = ABSOLUTE_POS;
    while k < len {
        rows[start + k] = parted[k];
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
