//! The part of every loss that a rank computes.

use std::ops::Range;

use graphsieve_kernels::hash;

/// One of equal parts of whatever there is, the same part of every mini-batch and of every pass over the whole graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The number of the part, from 0.
    pub rank: usize,
    /// How many parts there are.
    pub ranks: usize,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { rank: 0, ranks: 1 };

    /// Which of `len` things it has: those of all parts follow one another, and their numbers differ by at most one.
    pub fn of(self, len: usize) -> Range<usize> {
        let start = |rank: usize| rank * len / self.ranks;
        start(self.rank)..start(self.rank + 1)
    }

    /// The seed of what is drawn by rows of the part instead of by nodes: two parts must not draw the same.
    pub fn seed(self, seed: u64) -> u64 {
        match self.rank {
            0 => seed,
            rank => hash(seed, rank as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_and_differ_by_at_most_one() {
        for (len, ranks) in [(0, 3), (2, 4), (7, 3), (12, 4), (1000, 7)] {
            let parts: Vec<Range<usize>> = (0..ranks).map(|rank| Shard { rank, ranks }.of(len)).collect();
            let all: Vec<usize> = parts.iter().cloned().flatten().collect();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
            assert!(parts.iter().all(|part| part.len() == len / ranks || part.len() == len.div_ceil(ranks)));
        }
        assert_eq!(Shard::WHOLE.of(5), 0..5);
    }

    #[test]
    fn rank_0_draws_what_one_rank_draws_and_the_others_something_else() {
        let seeds: Vec<u64> = (0..4).map(|rank| Shard { rank, ranks: 4 }.seed(42)).collect();
        assert_eq!(seeds[0], Shard::WHOLE.seed(42));
        assert!((1..4).all(|rank| seeds[..rank].iter().all(|seed| *seed != seeds[rank])), "{seeds:?}");
    }
}
