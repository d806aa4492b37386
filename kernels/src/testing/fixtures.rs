//! Small graphs that between them reach every branch of a sparse kernel, and deterministic inputs to run on them.

use super::tolerance::Dtype;

/// A sparse graph on the host: the in-neighbours of every destination row.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixture {
    /// What the graph is there to test; quote it in assertion messages.
    pub name: String,
    /// Destination nodes.
    pub num_rows: usize,
    /// Source nodes.
    pub num_cols: usize,
    /// Edges of row `i` are `row_ptr[i]..row_ptr[i + 1]`; `num_rows + 1` entries.
    pub row_ptr: Vec<u64>,
    /// Source of every edge, in no particular order within a row; duplicates are separate edges.
    pub col_idx: Vec<u32>,
    /// How the rows are stored where they share entries.
    pub spans: Option<Spans>,
}

/// Rows that share entries: row `i` is `entries[start[i]..end[i]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spans {
    pub start: Vec<u64>,
    pub end: Vec<u64>,
    pub entries: Vec<u32>,
}

impl Fixture {
    /// The graph whose row `i` has the sources `rows[i]`, in that order. Panics if a source is not below `num_cols`.
    pub fn from_rows(name: &str, num_cols: usize, rows: &[Vec<u32>]) -> Self {
        let mut row_ptr = vec![0];
        for row in rows {
            row_ptr.push(row_ptr[row_ptr.len() - 1] + row.len() as u64);
        }
        let col_idx = rows.concat();
        assert!(col_idx.iter().all(|&j| (j as usize) < num_cols), "{name}: a source is outside 0..{num_cols}");
        Fixture { name: name.to_string(), num_rows: rows.len(), num_cols, row_ptr, col_idx, spans: None }
    }

    /// The graph whose row `i` has the sources `entries[spans[i]]`, stored as such.
    pub fn from_spans(name: &str, num_cols: usize, spans: &[(usize, usize)], entries: Vec<u32>) -> Self {
        let rows: Vec<Vec<u32>> = spans.iter().map(|&(start, end)| entries[start..end].to_vec()).collect();
        let (start, end) = spans.iter().map(|&(start, end)| (start as u64, end as u64)).unzip();
        Fixture { spans: Some(Spans { start, end, entries }), ..Self::from_rows(name, num_cols, &rows) }
    }

    /// The same graph with a list of its own for every row.
    pub fn as_lists(&self) -> Self {
        Fixture { spans: None, ..self.clone() }
    }

    /// A graph whose row `i` has `degrees[i]` random sources, distinct as long as `num_cols` allows.
    pub fn with_degrees(name: &str, seed: u64, num_cols: usize, degrees: &[usize]) -> Self {
        let mut rng = Rng::new(seed);
        let rows: Vec<Vec<u32>> = (degrees.iter())
            .map(|&degree| rng.permutation(num_cols).into_iter().cycle().take(degree).collect())
            .collect();
        Self::from_rows(name, num_cols, &rows)
    }

    /// `num_edges` edges between uniformly drawn nodes: duplicates, self-loops and empty rows occur by chance.
    /// Any seed gives a valid graph, so property tests can draw one.
    pub fn random(seed: u64, num_rows: usize, num_cols: usize, num_edges: usize) -> Self {
        let mut rng = Rng::new(seed);
        let mut rows = vec![Vec::new(); num_rows];
        if num_rows > 0 && num_cols > 0 {
            for _ in 0..num_edges {
                let i = rng.below(num_rows);
                rows[i].push(rng.below(num_cols) as u32);
            }
        }
        Self::from_rows(&format!("random {num_rows} x {num_cols}, seed {seed}"), num_cols, &rows)
    }

    /// A simple graph of `n` nodes whose in-degrees and out-degrees both follow a power law: few hubs, many leaves.
    pub fn power_law(seed: u64, n: usize) -> Self {
        let mut rng = Rng::new(seed);
        let row = |_| {
            let degree = (rng.uniform(1)[0].max(1e-9).powf(-0.8) as usize).min(n);
            let mut sources: Vec<u32> = rng.uniform(degree).iter().map(|u| (u.powi(3) * n as f64) as u32).collect();
            sources.sort_unstable();
            sources.dedup();
            sources
        };
        let rows: Vec<Vec<u32>> = (0..n).map(row).collect();
        Self::from_rows("power law", n, &rows)
    }

    /// Number of edges, duplicates counted.
    pub fn num_edges(&self) -> usize {
        self.col_idx.len()
    }

    /// Number of entries that are stored: of edges, unless rows share them.
    pub fn num_entries(&self) -> usize {
        self.spans.as_ref().map_or(self.num_edges(), |spans| spans.entries.len())
    }

    /// The entry of every edge.
    fn entries(&self) -> Vec<usize> {
        match &self.spans {
            None => (0..self.num_edges()).collect(),
            Some(Spans { start, end, .. }) => {
                start.iter().zip(end).flat_map(|(&start, &end)| start as usize..end as usize).collect()
            }
        }
    }

    /// `columns` numbers of every edge: those of its entry.
    pub fn by_edge(&self, of_entries: &[f64], columns: usize) -> Vec<f64> {
        let row = |entry: usize| &of_entries[entry * columns..(entry + 1) * columns];
        self.entries().into_iter().flat_map(row).copied().collect()
    }

    /// `columns` numbers of every entry: the sums over the edges that share it.
    pub fn by_entry(&self, of_edges: &[f64], columns: usize) -> Vec<f64> {
        let mut sums = vec![0.0; self.num_entries() * columns];
        for (edge, entry) in self.entries().into_iter().enumerate() {
            for c in 0..columns {
                sums[entry * columns + c] += of_edges[edge * columns + c];
            }
        }
        sums
    }

    /// Number of sources of row `i`.
    pub fn degree(&self, i: usize) -> usize {
        (self.row_ptr[i + 1] - self.row_ptr[i]) as usize
    }

    /// The largest number of sources of a row: the reduction length of a sum over in-neighbours.
    pub fn max_degree(&self) -> usize {
        (0..self.num_rows).map(|i| self.degree(i)).max().unwrap_or(0)
    }

    /// Every edge as (edge id, destination, source), in storage order.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        (0..self.num_rows).flat_map(move |i| {
            (self.row_ptr[i] as usize..self.row_ptr[i + 1] as usize).map(move |e| (e, i, self.col_idx[e] as usize))
        })
    }

    /// Destination of every edge, the counterpart of `col_idx`.
    pub fn row_idx(&self) -> Vec<u32> {
        self.edges().map(|(_, i, _)| i as u32).collect()
    }

    /// The out-neighbours: rows become columns. Entry `k` of the result is edge `edge_ids[k]` of `self`; within a
    /// row of the result, edges keep the order they have in `self`.
    pub fn reverse(&self) -> (Fixture, Vec<u32>) {
        let mut by_source: Vec<(usize, usize, usize)> = self.edges().collect();
        by_source.sort_by_key(|&(_, _, j)| j); // stable
        let mut rows = vec![Vec::new(); self.num_cols];
        for &(_, i, j) in &by_source {
            rows[j].push(i as u32);
        }
        let reversed = Self::from_rows(&format!("{}, reversed", self.name), self.num_rows, &rows);
        (reversed, by_source.iter().map(|&(e, _, _)| e as u32).collect())
    }
}

/// The graphs every operator is tested on. Names are unique.
///
/// Kernels branch on the row length: an empty row, one shorter than a plane (8, 32 or 64 lanes), a partial last tile,
/// a row split over several planes (above 512 entries). Each threshold is here exactly, one below and one above.
pub fn fixtures() -> Vec<Fixture> {
    let mut all = small_fixtures();
    for degree in [31, 32, 33, 511, 512, 513, 1500] {
        // Ordinary and empty neighbours of the hub show a split that writes into the wrong row.
        all.push(Fixture::with_degrees(&format!("hub row of {degree}"), 7, degree + 9, &[2, 0, degree, 1, 3]));
    }
    all.push(Fixture::with_degrees("several hub rows", 8, 1600, &[513, 0, 1500, 512, 5, 511, 1025, 33, 0]));
    let hub_column: Vec<Vec<u32>> = (0..1500).map(|i| if i % 3 == 0 { vec![1, i % 5] } else { vec![1] }).collect();
    all.push(Fixture::from_rows("hub column of 1500", 5, &hub_column));
    let ladder = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257];
    all.push(Fixture::with_degrees("degree ladder", 9, 300, &ladder));
    all.push(Fixture::with_degrees("heavy duplicates", 10, 3, &[70, 0, 600, 33]));
    all.push(Fixture::power_law(11, 300));
    all.push(Fixture::random(12, 400, 90, 2000));
    all
}

/// The fixtures small enough (at most 9 nodes on a side, 20 edges) to differentiate numerically or to print.
pub fn small_fixtures() -> Vec<Fixture> {
    let graph = |name: &str, num_cols: usize, rows: &[&[u32]]| {
        Fixture::from_rows(name, num_cols, &rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>())
    };
    vec![
        graph("empty graph", 0, &[]),
        graph("no rows", 4, &[]),
        graph("no columns", 0, &[&[], &[], &[]]),
        graph("no edges", 5, &[&[], &[], &[], &[]]),
        graph("one node", 1, &[&[]]),
        graph("one node with a self-loop", 1, &[&[0]]),
        graph("isolated rows", 6, &[&[], &[3, 1], &[], &[], &[0, 4, 5], &[]]),
        graph("self-loops", 4, &[&[0, 1], &[1], &[3, 2, 0], &[3, 1]]),
        graph("duplicate edges", 3, &[&[2, 0, 2], &[1, 1, 1, 1], &[], &[0, 2, 0, 1]]),
        graph("bipartite, wide", 9, &[&[8, 0, 4], &[7, 3, 5, 1], &[2]]),
        graph("bipartite, tall", 2, &[&[0], &[1], &[], &[1, 0], &[0], &[], &[1], &[0, 1], &[1]]),
        graph("trailing empty rows", 5, &[&[1, 4], &[0, 2, 3], &[4], &[], &[], &[]]),
        graph("unused columns", 8, &[&[6, 2], &[2], &[6, 3]]),
    ]
}

/// Graphs whose rows share entries: prefixes, windows, and spans whose reverse has an entry per edge. Their lengths are
/// those that kernels branch on, in both directions.
pub fn span_fixtures() -> Vec<Fixture> {
    let mut rng = Rng::new(41);
    let mut all = small_span_fixtures();
    // Two lists, of 1500 and of 40 entries; rows of both in turn.
    let ends = [0, 1, 2, 31, 32, 33, 511, 512, 513, 1025, 1500, 1500];
    let mut spans: Vec<(usize, usize)> = ends.iter().map(|&end| (0, end)).collect();
    [0, 5, 40].iter().enumerate().for_each(|(at, &end)| spans.insert(3 * at, (1500, 1500 + end)));
    all.push(Fixture::from_spans("prefixes of a long list", 1600, &spans, rng.permutation(1600)[..1540].to_vec()));
    let latest = |most: usize, step: usize| {
        move |len: usize| (0..=len).step_by(step).map(move |end| (end.saturating_sub(most), end))
    };
    let windows: Vec<(usize, usize)> = latest(600, 90)(1300).collect();
    all.push(Fixture::from_spans("long windows", 1300, &windows, rng.permutation(1300)));
    // Events of three cards, each of which sees those before it on its card; or the latest seven of these.
    for (name, most) in [("all that came before", usize::MAX), ("the latest seven", 7)] {
        let (mut spans, mut first) = (Vec::new(), 0);
        for len in [9, 60, 33] {
            spans.extend(latest(most, 1)(len - 1).map(|(start, end)| (first + start, first + end)));
            first += len;
        }
        // Numbered by time: entries of a list ascend, rows of a list do not stand together.
        let order = rng.permutation(first);
        let mut of_card = order.clone();
        [0..9, 9..69, 69..102].into_iter().for_each(|card| of_card[card].sort_unstable());
        let mut by_event = vec![(0, 0); first];
        of_card.iter().zip(spans).for_each(|(&event, span)| by_event[event as usize] = span);
        all.push(Fixture::from_spans(name, first, &by_event, of_card));
    }
    all.push(Fixture::from_spans("a list that 700 rows share", 5, &[(1, 4); 700], vec![4, 0, 3, 2]));
    let any = |k: usize| {
        let len = rng.below(800) / if k.is_multiple_of(3) { 1 } else { 8 };
        let start = rng.below(801 - len);
        (start, start + len)
    };
    let spans: Vec<(usize, usize)> = (0..40).map(any).collect();
    all.push(Fixture::from_spans("any spans", 900, &spans, rng.permutation(900)[..800].to_vec()));
    let entries = rng.indices(800, 12);
    all.push(Fixture::from_spans("spans of repeated sources", 12, &spans, entries));
    let lists = Fixture::power_law(42, 200);
    let spans: Vec<(usize, usize)> = lists.row_ptr.windows(2).map(|row| (row[0] as usize, row[1] as usize)).collect();
    all.push(Fixture::from_spans("spans that share nothing", 200, &spans, lists.col_idx));
    all
}

/// Those small enough to differentiate numerically.
pub fn small_span_fixtures() -> Vec<Fixture> {
    let graph = |name: &str, num_cols: usize, spans: &[(usize, usize)], entries: &[u32]| {
        Fixture::from_spans(name, num_cols, spans, entries.to_vec())
    };
    vec![
        graph("spans without rows", 4, &[], &[1, 2]),
        graph("spans of nothing", 3, &[(0, 0), (0, 0)], &[]),
        graph("spans without entries", 3, &[(1, 1), (0, 0), (2, 2)], &[2, 0]),
        graph("one row that is a span", 3, &[(1, 3)], &[1, 2, 0]),
        graph("two lists", 6, &[(0, 0), (0, 1), (3, 4), (0, 2), (3, 3), (1, 3), (3, 5)], &[5, 1, 4, 0, 2]),
        graph("spans within spans", 5, &[(0, 4), (1, 3), (2, 2), (3, 4)], &[3, 1, 4, 0]),
        graph("a source twice", 3, &[(0, 3), (1, 4), (2, 4)], &[1, 0, 1, 2]),
    ]
}

/// SplitMix64: a counter hashed to 64 bits. Small enough to trust, the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A uniform integer in `0..bound`; `bound` must be positive. Its bias, `bound` / 2^64, is nil for a test.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound as u64) as usize
    }

    /// `n` uniform numbers in [0, 1).
    pub fn uniform(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| (self.next_u64() >> 11) as f64 * (-53f64).exp2()).collect()
    }

    /// `n` standard normal numbers (Box-Muller).
    pub fn normal(&mut self, n: usize) -> Vec<f64> {
        let radius: Vec<f64> = self.uniform(n).iter().map(|u| (-2.0 * (1.0 - u).ln()).sqrt()).collect();
        radius.iter().zip(self.uniform(n)).map(|(r, u)| r * (std::f64::consts::TAU * u).cos()).collect()
    }

    /// `n` indices in `0..bound`, with repetition: an index list for gathers and pairs.
    pub fn indices(&mut self, n: usize, bound: usize) -> Vec<u32> {
        (0..n).map(|_| self.below(bound) as u32).collect()
    }

    /// The numbers `0..n` in random order (Fisher-Yates).
    pub fn permutation(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for k in (1..n).rev() {
            order.swap(k, self.below(k + 1));
        }
        order
    }
}

/// `n` standard normal numbers, each exactly an f32: the operator under test and the oracle see the same inputs.
pub fn values(seed: u64, n: usize) -> Vec<f64> {
    values_in(Dtype::F32, seed, n)
}

/// `n` standard normal numbers, each exactly an f16.
pub fn values_f16(seed: u64, n: usize) -> Vec<f64> {
    values_in(Dtype::F16, seed, n)
}

/// `n` standard normal numbers, each exactly representable in `dtype`.
pub fn values_in(dtype: Dtype, seed: u64, n: usize) -> Vec<f64> {
    Rng::new(seed).normal(n).into_iter().map(|x| dtype.round(x)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_fixture_is_a_valid_graph_with_a_unique_name() {
        let mut names = HashSet::new();
        for f in fixtures() {
            assert!(names.insert(f.name.clone()), "{} occurs twice", f.name);
            assert_eq!(f.row_ptr.len(), f.num_rows + 1, "{}", f.name);
            assert_eq!((f.row_ptr[0], f.row_ptr[f.num_rows]), (0, f.num_edges() as u64), "{}", f.name);
            assert!(f.row_ptr.is_sorted(), "{}", f.name);
            assert!(f.col_idx.iter().all(|&j| (j as usize) < f.num_cols), "{}", f.name);
            assert_eq!(f.edges().count(), f.num_edges(), "{}", f.name);
        }
    }

    #[test]
    fn the_fixtures_cover_every_row_length_a_kernel_branches_on() {
        let all = fixtures();
        let degrees: HashSet<usize> = all.iter().flat_map(|f| (0..f.num_rows).map(|i| f.degree(i))).collect();
        for plane in [8, 32, 64, 512] {
            assert!([plane - 1, plane, plane + 1].iter().all(|d| degrees.contains(d)), "around {plane}");
        }
        assert!([0, 1, 1500].iter().all(|d| degrees.contains(d)));
        assert!(all.iter().any(|f| f.reverse().0.max_degree() >= 1500), "no hub column");
        assert!(all.iter().any(|f| f.num_rows > f.num_cols) && all.iter().any(|f| f.num_rows < f.num_cols));
        assert!(all.iter().any(|f| f.edges().any(|(_, i, j)| i == j)), "no self-loop");
        let unsorted = |f: &Fixture| (0..f.num_rows).any(|i| !row(f, i).is_sorted());
        assert!(all.iter().any(unsorted), "every row is sorted");
        let duplicated = |f: &Fixture| f.edges().map(|(_, i, j)| (i, j)).collect::<HashSet<_>>().len() < f.num_edges();
        assert!(all.iter().any(duplicated) && !all.iter().all(duplicated));
        assert!(all.iter().all(|f| f.num_edges() < 6000), "a fixture is too large for a quick test");
        assert!(small_fixtures().iter().all(|f| f.num_edges() <= 20 && f.num_rows.max(f.num_cols) <= 9));
    }

    #[test]
    fn spans_are_those_of_their_rows_and_reach_every_length_in_both_directions() {
        let (all, mut names) = (span_fixtures(), HashSet::new());
        for f in &all {
            assert!(names.insert(f.name.clone()), "{} occurs twice", f.name);
            let Spans { start, end, entries } = f.spans.as_ref().unwrap();
            assert_eq!((start.len(), end.len()), (f.num_rows, f.num_rows), "{}", f.name);
            for i in 0..f.num_rows {
                assert_eq!(row(f, i), &entries[start[i] as usize..end[i] as usize], "{}: row {i}", f.name);
            }
        }
        let has = |lists: &dyn Fn(&Fixture) -> Fixture, degree: usize| {
            all.iter().map(lists).any(|f| (0..f.num_rows).any(|i| f.degree(i) == degree))
        };
        assert!([0, 1, 31, 32, 33, 511, 512, 513, 1500].iter().all(|&degree| has(&Fixture::clone, degree)));
        assert!([0, 1, 700].iter().all(|&degree| has(&|f| f.reverse().0, degree)));
        assert!(all.iter().any(|f| f.num_edges() > 3 * f.spans.as_ref().unwrap().entries.len()));
    }

    fn row(f: &Fixture, i: usize) -> &[u32] {
        &f.col_idx[f.row_ptr[i] as usize..f.row_ptr[i + 1] as usize]
    }

    #[test]
    fn the_power_law_graph_is_simple_and_has_hubs_and_leaves_on_both_sides() {
        let f = Fixture::power_law(11, 300);
        for side in [f.clone(), f.reverse().0] {
            let mut degrees: Vec<usize> = (0..side.num_rows).map(|i| side.degree(i)).collect();
            degrees.sort_unstable();
            assert!(degrees[150] <= 5 && degrees[299] >= 30, "median {}, max {}", degrees[150], degrees[299]);
        }
        assert!((0..300).all(|i| row(&f, i).windows(2).all(|w| w[0] < w[1])));
    }

    #[test]
    fn reversing_maps_every_edge_to_itself_and_keeps_the_order_within_a_row() {
        for f in fixtures() {
            let (reversed, edge_ids) = f.reverse();
            assert_eq!((reversed.num_rows, reversed.num_cols), (f.num_cols, f.num_rows), "{}", f.name);
            let forward: Vec<_> = f.edges().collect();
            for (k, j, i) in reversed.edges() {
                assert_eq!(forward[edge_ids[k] as usize], (edge_ids[k] as usize, i, j), "{}", f.name);
            }
            for j in 0..f.num_cols {
                let ids = &edge_ids[reversed.row_ptr[j] as usize..reversed.row_ptr[j + 1] as usize];
                assert!(ids.windows(2).all(|w| w[0] < w[1]), "{}: column {j} is not stable", f.name);
            }
            assert_eq!(edge_ids.iter().collect::<HashSet<_>>().len(), f.num_edges(), "{}", f.name);
        }
    }

    #[test]
    fn the_rng_has_the_published_stream_and_the_right_moments() {
        // First outputs of SplitMix64 for seed 1234567, from the reference implementation.
        let mut rng = Rng::new(1234567);
        assert_eq!([rng.next_u64(), rng.next_u64()], [6457827717110365317, 3203168211198807973]);
        let n = 100_000;
        let moments = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / n as f64;
            (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64)
        };
        let uniform = Rng::new(1).uniform(n);
        assert!(uniform.iter().all(|u| (0.0..1.0).contains(u)));
        let (mean, variance) = moments(&uniform);
        assert!((mean - 0.5).abs() < 0.005 && (variance - 1.0 / 12.0).abs() < 0.002, "{mean} {variance}");
        let (mean, variance) = moments(&Rng::new(2).normal(n));
        assert!(mean.abs() < 0.016 && (variance - 1.0).abs() < 0.025, "{mean} {variance}");
        let mut order = Rng::new(3).permutation(50);
        assert!(!order.is_sorted());
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<u32>>());
    }

    #[test]
    fn values_are_exact_in_their_type_and_depend_on_the_seed_only() {
        assert!(values(5, 1000).iter().all(|&x| x as f32 as f64 == x));
        assert!(values_f16(5, 1000).iter().all(|&x| Dtype::F16.round(x) == x && x as f32 as f64 == x));
        assert_eq!(values(5, 100), values(5, 100));
        assert_ne!(values(5, 100), values(6, 100));
    }
}
