//! Rows of different lengths in two flat arrays.

/// `rows[i] = items[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::data) struct Ragged<T> {
    offsets: Vec<usize>,
    items: Vec<T>,
}

impl<T> Default for Ragged<T> {
    fn default() -> Self {
        Self { offsets: vec![0], items: Vec::new() }
    }
}

impl<T> Ragged<T> {
    pub fn num_rows(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn row(&self, i: usize) -> &[T] {
        &self.items[self.offsets[i]..self.offsets[i + 1]]
    }

    pub fn rows(&self) -> impl Iterator<Item = &[T]> {
        (0..self.num_rows()).map(|i| self.row(i))
    }

    pub fn items(&self) -> &[T] {
        &self.items
    }

    pub fn push_row(&mut self, row: impl IntoIterator<Item = T>) {
        self.items.extend(row);
        self.offsets.push(self.items.len());
    }
}

impl<T: Copy> Ragged<T> {
    /// The same rows in the order of `order` (`result.row(i) == self.row(order[i])`).
    pub fn reordered(&self, order: &[u32]) -> Self {
        let mut result = Self { offsets: Vec::with_capacity(order.len() + 1), items: Vec::new() };
        result.offsets.push(0);
        result.items.reserve_exact(self.items.len());
        for &from in order {
            result.push_row(self.row(from as usize).iter().copied());
        }
        result
    }
}

impl Ragged<u32> {
    /// Positions of `keys` grouped by key, ascending inside each group (counting sort); keys must be `< num_rows`.
    pub fn group(num_rows: usize, keys: impl Iterator<Item = u32> + Clone) -> Self {
        let mut offsets = vec![0_usize; num_rows + 1];
        keys.clone().for_each(|key| offsets[key as usize + 1] += 1);
        for i in 0..num_rows {
            offsets[i + 1] += offsets[i];
        }
        let mut next = offsets.clone();
        let mut items = vec![0_u32; offsets[num_rows]];
        for (position, key) in keys.enumerate() {
            items[next[key as usize]] = position as u32;
            next[key as usize] += 1;
        }
        Self { offsets, items }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouping_keeps_positions_in_order_and_allows_empty_rows() {
        let groups = Ragged::group(4, [2_u32, 0, 2, 3, 2].into_iter());
        let rows: Vec<&[u32]> = groups.rows().collect();
        assert_eq!(rows, [&[1][..], &[], &[0, 2, 4], &[3]]);
        assert_eq!(groups.reordered(&[2, 1]).items(), [0, 2, 4]);
    }
}
