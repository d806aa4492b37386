//! The union of adjacencies whose rows are spans, without a list of its edges.

use rayon::prelude::*;

use crate::graph::Adjacency;

/// Stands for a node that is no entry.
const NOWHERE: usize = usize::MAX;

/// Adjacencies that a union is made of at most: those of six relations that all have edges in common.
const MOST_PARTS: usize = 63;

/// The place of every column among the entries, in which it stands at most once.
pub(super) fn places(adjacency: &Adjacency) -> Vec<usize> {
    let mut places = vec![NOWHERE; adjacency.num_cols()];
    adjacency.col_idx().iter().enumerate().for_each(|(at, &col)| places[col as usize] = at);
    places
}

/// Two lists of adjacencies of spans: an edge of any of `all` is in one more of the first than of the second, any other
/// edge in as many. These are `all`, less what two have in common, and so on. `None` where that is no span, or for too
/// many adjacencies.
pub(super) fn unite(all: &[Adjacency]) -> Option<[Vec<Adjacency>; 2]> {
    let mut signed: [Vec<Adjacency>; 2] = Default::default();
    for next in all {
        let mut twice: [Vec<Adjacency>; 2] = Default::default();
        for (sign, of) in signed.iter().enumerate() {
            for one in of {
                twice[1 - sign].push(common(one, next)?);
            }
        }
        signed[0].push(next.clone());
        for (of, twice) in signed.iter_mut().zip(twice) {
            of.extend(twice.into_iter().filter(|adjacency| adjacency.num_edges() > 0));
        }
        if signed[0].len() + signed[1].len() > MOST_PARTS {
            return None;
        }
    }
    Some(signed)
}

/// By entry the number of the list that it is of: no row goes from one list to the next.
fn lists(adjacency: &Adjacency) -> Vec<usize> {
    let mut furthest = vec![0; adjacency.num_entries()];
    for span in (0..adjacency.num_rows()).map(|row| adjacency.entries(row)).filter(|span| !span.is_empty()) {
        furthest[span.start] = span.end.max(furthest[span.start]);
    }
    let (mut list, mut end) = (0, 0);
    let number = |(at, &furthest): (usize, &usize)| {
        list += usize::from(at >= end);
        end = end.max(furthest);
        list
    };
    furthest.iter().enumerate().map(number).collect()
}

/// The edges of both, as spans: entries are sorted by their lists in both and, where these are in the same order, as
/// lists of events in the order of time are, a row has neighbours of them. `None` where they are not.
fn common(a: &Adjacency, b: &Adjacency) -> Option<Adjacency> {
    let ([lists_a, lists_b], places_b) = ([a, b].map(lists), places(b));
    // Lists and places in both, and the column.
    let in_both = |(at, &col): (usize, &u32)| {
        let there = places_b[col as usize];
        (there != NOWHERE).then(|| ([lists_a[at], lists_b[there]], [at, there], col))
    };
    let mut entries: Vec<([usize; 2], [usize; 2], u32)> = a.col_idx().iter().enumerate().filter_map(in_both).collect();
    entries.par_sort_unstable();
    if entries.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[0].1[1] > pair[1].1[1]) {
        return None;
    }
    let span = |row: usize| {
        let [of_a, of_b] = [a, b].map(|adjacency| adjacency.entries(row));
        if of_a.is_empty() || of_b.is_empty() {
            return (0, 0);
        }
        let lists = [lists_a[of_a.start], lists_b[of_b.start]];
        let begins = |[at, there]: [usize; 2]| at >= of_a.start && there >= of_b.start;
        let ends = |[at, there]: [usize; 2]| at >= of_a.end || there >= of_b.end;
        let start = entries.partition_point(|(of, places, _)| *of < lists || *of == lists && !begins(*places));
        let end = entries.partition_point(|(of, places, _)| *of < lists || *of == lists && !ends(*places));
        (start as u64, end.max(start) as u64)
    };
    let (start, end): (Vec<u64>, Vec<u64>) = (0..a.num_rows()).into_par_iter().map(span).unzip();
    let col_idx = entries.into_iter().map(|(.., col)| col).collect();
    Some(Adjacency::from_checked_spans(start, &end, col_idx, a.num_cols()))
}
