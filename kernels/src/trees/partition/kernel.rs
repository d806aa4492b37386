//! A thread per row: the side that it goes to, and the way back of the parted rows.

use cubecl::prelude::*;

use crate::runtime::args::launch_args;

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

launch_args! {
    /// Where the bins of one feature stand.
    FeaturePlace, FeaturePlaceArgs {
        /// Of bytes and words: the first word of the column.
        first: usize,
        /// Of bytes: the bits below.
        shift: u32,
        /// Of entries: where the sums of the feature begin and end.
        start: i32,
        end: i32,
        /// Of entries: the bin of rows that have none.
        left_out: i32,
    }
}

launch_args! {
    /// The rows of a list, the bins of all rows, and the side of every bin.
    SidesInputs, SidesInputsArgs {
        rows: Array<i32>,
        bins: Array<u32>,
        row_ptr: Array<i32>,
        goes_left: Array<i32>,
    }
}

launch_args! {
    /// A copy of the rows of a span, and their sides.
    Sides, SidesArgs {
        copy: Array<i32>,
        flags: Array<i32>,
    }
}

launch_args! {
    /// A span of the list of rows.
    Span, SpanArgs {
        start: usize,
        len: usize,
    }
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
    inputs: &SidesInputs,
    sides: &mut Sides,
    place: &FeaturePlace,
    span: &Span,
    #[comptime] of: BinOf,
) {
    let mut k = ABSOLUTE_POS;
    while k < span.len {
        let id = inputs.rows[span.start + k];
        let row = usize::cast_from(id);
        let bin = match comptime!(of) {
            BinOf::Byte => i32::cast_from((inputs.bins[place.first + row] >> place.shift) & 255u32),
            BinOf::Word => i32::cast_from(inputs.bins[place.first + row]),
            BinOf::Entry => entry_of_row(&inputs.bins, &inputs.row_ptr, row, place),
        };
        sides.copy[k] = id;
        sides.flags[k] = inputs.goes_left[usize::cast_from(bin)];
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}

#[cube(launch_unchecked)]
pub(crate) fn copy_back_kernel(parted: &Array<i32>, rows: &mut Array<i32>, span: &Span) {
    let mut k = ABSOLUTE_POS;
    while k < span.len {
        rows[span.start + k] = parted[k];
        k += CUBE_COUNT * CUBE_DIM as usize;
    }
}
