//! DropEdge of a row of edges at a time.

use super::isa::{Kernel, dispatch};
use super::vector::{MAX_LANES, Vector};
use crate::runtime::hash::mix;

/// What decides whether an edge is kept; the fields are those of `DropEdge`.
#[derive(Clone, Copy)]
pub(crate) struct KeepKey {
    pub key0: u32,
    pub key1: u32,
    pub threshold: u32,
    pub row_base: u32,
    pub col_base: u32,
    /// Whether rows are the sources.
    pub reversed: bool,
}

/// Appends to `kept` those of the columns `cols` of `row` whose edges DropEdge keeps, in order.
pub(crate) fn keep_into(kept: &mut Vec<u32>, row: u32, cols: &[i32], key: KeepKey) {
    dispatch(Keep { kept, row, cols, key });
}

/// [`keep_into`].
struct Keep<'a> {
    kept: &'a mut Vec<u32>,
    row: u32,
    cols: &'a [i32],
    key: KeepKey,
}

impl Keep<'_> {
    /// The hashes of the edges to `cols`.
    #[inline(always)]
    fn hashes(&self, cols: &[i32; MAX_LANES]) -> [u32; MAX_LANES] {
        let key = &self.key;
        let row = self.row.wrapping_add(key.row_base);
        let mut hashes = [0; MAX_LANES];
        for l in 0..MAX_LANES {
            let col = (cols[l] as u32).wrapping_add(key.col_base);
            let (dst, src) = if key.reversed { (col, row) } else { (row, col) };
            hashes[l] = mix(dst ^ key.key0, src ^ key.key1);
        }
        hashes
    }
}

impl Kernel for Keep<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let (blocks, tail) = self.cols.as_chunks::<MAX_LANES>();
        let mut last = [0; MAX_LANES];
        last[..tail.len()].copy_from_slice(tail);
        let mut last_hashes = self.hashes(&last);
        // No threshold is above the greatest hash: the padding is not kept.
        last_hashes[tail.len()..].fill(u32::MAX);

        self.kept.reserve(self.cols.len() + MAX_LANES);
        let mut len = self.kept.len();
        // SAFETY: each block keeps at most its columns, so that there is room for all lanes of the next.
        unsafe {
            for block in blocks {
                let hashes = self.hashes(block);
                len += V::keep(block, &hashes, self.key.threshold, self.kept.as_mut_ptr().add(len));
            }
            len += V::keep(&last, &last_hashes, self.key.threshold, self.kept.as_mut_ptr().add(len));
            self.kept.set_len(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::isa::{Isa, run_on};
    use super::*;

    fn keeps(key: KeepKey, row: u32, col: u32) -> bool {
        let (row, col) = (row.wrapping_add(key.row_base), col.wrapping_add(key.col_base));
        let (dst, src) = if key.reversed { (col, row) } else { (row, col) };
        mix(dst ^ key.key0, src ^ key.key1) < key.threshold
    }

    #[test]
    fn a_row_keeps_what_its_edges_do() {
        let mut edges = 0;
        for (reversed, (row_base, col_base)) in
            [false, true].into_iter().flat_map(|r| [(0, 0), (1000, 77), (u32::MAX - 3, 1 << 31)].map(|b| (r, b)))
        {
            for threshold in [1, (0.15 * 4_294_967_296.0) as u32, 1 << 31, u32::MAX] {
                let key = KeepKey { key0: 0x1234_5678, key1: 0x9ABC_DEF1, threshold, row_base, col_base, reversed };
                for (row, len) in [0, 1, 7, 15, 16, 17, 31, 32, 62, 64, 200].into_iter().enumerate() {
                    let cols: Vec<i32> = (0..len).map(|i| (i * 7919 + row as i32 * 31) % 10_007).collect();
                    let expected = cols.iter().map(|&c| c as u32).filter(|&c| keeps(key, row as u32, c));
                    let expected: Vec<u32> = [42].into_iter().chain(expected).collect();
                    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
                        let mut kept = vec![42];
                        // SAFETY: the instruction set is available.
                        unsafe { run_on(isa, Keep { kept: &mut kept, row: row as u32, cols: &cols, key }) };
                        assert_eq!(kept, expected, "{isa:?}");
                    }
                    edges += cols.len();
                }
            }
        }
        assert!(edges > 10_000);
    }
}
