use burn_flex::Flex;

use crate::Csr;
use crate::graph::csr::parts::Host;

/// Rows of both directions, each sorted.
fn rows(csr: &Csr<Flex>) -> Vec<Vec<u32>> {
    let host = Host::of::<Flex>(csr.topology());
    let mut rows: Vec<Vec<u32>> = host.bounds().rows().map(|(_, entries)| host.col_idx[entries].to_vec()).collect();
    rows.iter_mut().for_each(|row| row.sort_unstable());
    rows
}

fn csr(spans: &[(u64, u64)], col_idx: &[u32], num_cols: usize) -> Csr<Flex> {
    let (start, end): (Vec<u64>, Vec<u64>) = spans.iter().copied().unzip();
    Csr::from_spans(&start, &end, col_idx, num_cols, &Default::default()).unwrap()
}

/// The reverse by definition.
fn turned(csr: &Csr<Flex>) -> Vec<Vec<u32>> {
    let mut turned = vec![Vec::new(); csr.num_cols()];
    for (row, sources) in rows(csr).into_iter().enumerate() {
        sources.into_iter().for_each(|source| turned[source as usize].push(row as u32));
    }
    turned
}

fn check(csr: &Csr<Flex>, spans: bool) {
    assert_eq!(csr.reverse().topology().spans, spans, "{csr:?}");
    assert_eq!(rows(&csr.reverse()), turned(csr), "{csr:?}");
    assert_eq!(csr.reverse().num_edges(), csr.num_edges());
    assert_eq!(rows(&csr.reverse().reverse()), rows(csr));
}

#[test]
fn the_reverse_of_prefixes_and_windows_is_spans() {
    // Two lists, {5, 1, 4} and {0, 2}: prefixes, the latest two, in any order of the rows; 3 stands nowhere.
    let entries = [5, 1, 4, 0, 2];
    check(&csr(&[(0, 0), (0, 1), (0, 2), (0, 3), (3, 3), (3, 4), (3, 5)], &entries, 6), true);
    check(&csr(&[(3, 5), (1, 3), (0, 2), (0, 0), (0, 1), (3, 4), (5, 5)], &entries, 6), true);
    // Rows alike, and rows that see nothing but the last.
    check(&csr(&[(0, 2), (0, 2), (4, 5), (4, 5)], &entries, 6), true);
    check(&csr(&[], &[], 3), true);
    check(&csr(&[(0, 0), (0, 0)], &[], 3), true);
}

#[test]
fn other_reverses_have_a_list_per_row() {
    // A span within another one; a source that stands twice, in one row or where no row sees it.
    check(&csr(&[(0, 4), (1, 3)], &[0, 1, 2, 3], 4), false);
    check(&csr(&[(0, 2), (1, 3)], &[0, 1, 0], 3), false);
    check(&csr(&[(0, 3), (1, 3)], &[0, 1, 1], 3), false);
    check(&csr(&[(0, 1)], &[0, 0], 3), false);
}
