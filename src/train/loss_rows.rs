//! The rows that a loss reads, numbered anew.

/// Some nodes of every type. Numbers are places in the ascending list of a type's nodes.
#[derive(Clone, Debug)]
pub struct LossRows {
    types: Vec<Numbering>,
}

#[derive(Clone, Debug)]
enum Numbering {
    /// Every node keeps its number.
    All(usize),
    /// One bit per node, and the number of ones before each word.
    Some { words: Vec<u64>, before: Vec<u32>, len: usize },
}

impl LossRows {
    /// All nodes of types with these numbers of nodes.
    pub fn all(counts: &[usize]) -> Self {
        Self { types: counts.iter().map(|&count| Numbering::All(count)).collect() }
    }

    /// The nodes in `lists`, each with the type of its nodes.
    pub fn of<'a>(counts: &[usize], lists: impl IntoIterator<Item = (usize, &'a [u32])>) -> Self {
        let mut marked: Vec<Vec<u64>> = counts.iter().map(|count| vec![0; count.div_ceil(64)]).collect();
        for (t, list) in lists {
            for &node in list {
                marked[t][node as usize / 64] |= 1 << (node % 64);
            }
        }
        let number = |words: Vec<u64>| {
            let mut len = 0;
            let before = words
                .iter()
                .map(|word| {
                    let first = len;
                    len += word.count_ones();
                    first
                })
                .collect();
            Numbering::Some { words, before, len: len as usize }
        };
        Self { types: marked.into_iter().map(number).collect() }
    }

    /// Number of rows of type `t`.
    pub fn len(&self, t: usize) -> usize {
        match &self.types[t] {
            Numbering::All(count) => *count,
            Numbering::Some { len, .. } => *len,
        }
    }

    /// The number of `node` of type `t`, which is among the rows.
    pub fn number(&self, t: usize, node: u32) -> u32 {
        match &self.types[t] {
            Numbering::All(_) => node,
            Numbering::Some { words, before, .. } => {
                let word = node as usize / 64;
                before[word] + (words[word] & ((1 << (node % 64)) - 1)).count_ones()
            }
        }
    }

    /// The numbers of `nodes`.
    pub fn numbers(&self, t: usize, nodes: &[u32]) -> Vec<u32> {
        nodes.iter().map(|&node| self.number(t, node)).collect()
    }

    /// The nodes of every type in ascending order; `None` when these are all nodes of all types.
    pub fn nodes(&self) -> Option<Vec<Vec<u32>>> {
        let list = |numbering: &Numbering| match numbering {
            Numbering::All(_) => None,
            Numbering::Some { words, len, .. } => {
                let mut nodes = Vec::with_capacity(*len);
                for (k, &word) in words.iter().enumerate() {
                    let mut rest = word;
                    while rest != 0 {
                        nodes.push(k as u32 * 64 + rest.trailing_zeros());
                        rest &= rest - 1;
                    }
                }
                Some(nodes)
            }
        };
        self.types.iter().map(list).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_numbered_in_ascending_order_without_repetition() {
        let rows = LossRows::of(&[200, 3], [(0, &[130, 5, 63][..]), (1, &[2][..]), (0, &[64, 5][..])]);
        assert_eq!(rows.nodes().unwrap(), [vec![5, 63, 64, 130], vec![2]]);
        assert_eq!((rows.len(0), rows.len(1)), (4, 1));
        assert_eq!(rows.numbers(0, &[130, 5, 63, 64, 5]), [3, 0, 1, 2, 0]);
        assert_eq!(rows.number(1, 2), 0);
    }

    #[test]
    fn all_nodes_keep_their_numbers() {
        let rows = LossRows::all(&[7, 0]);
        assert_eq!(rows.nodes(), None);
        assert_eq!((rows.len(0), rows.len(1), rows.number(0, 6)), (7, 0, 6));
    }
}
