//! What a device samples is what the rule says, on every backend of the build that samples.

use std::collections::BTreeSet;

use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::testing::harness::{Requirement, Trial};
use graphsieve_kernels::{
    Csr, DeviceSampler, DropEdge, GraphBackend, MAX_FANOUT, Message, NodeDraw, PackedSample, PinnedRows, Reduce,
    RowCollector, RowSource, SampleBackend, SampleRelation, SampleRows, SampleValues, SampleWeights, SampledRelation,
    Strategy, distinct, gspmm, hash, on_every_backend, repeated, repeated_by_weight, smallest, weighted_key,
};

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    on_every_backend!(
        "sampling";
        rows_are_drawn_by_the_rule(kernels),
        rows_are_drawn_from_page_locked_memory(kernels, page_locked),
        rows_are_drawn_by_weights(kernels, doubles),
        rows_are_drawn_by_weights_in_page_locked_memory(kernels, page_locked, doubles),
        weights_that_do_not_fit_are_refused(kernels, doubles),
        spans_are_drawn_like_their_lists(kernels),
        the_last_entries_of_rows_are_taken(kernels),
        more_entries_than_can_be_counted_are_refused(kernels),
        new_nodes_are_listed_in_the_order_of_their_first_edge(kernels),
        a_packed_sample_is_the_sample_with_its_reverse_its_values_and_its_rows(kernels),
        a_packed_sample_has_values_and_rows_of_page_locked_memory(kernels, page_locked),
    )
}

/// Rows of so many entries; sources are `7 k % sources`.
fn graph(degrees: &[usize], sources: usize) -> (Vec<u64>, Vec<u32>) {
    let mut row_ptr = vec![0];
    for degree in degrees {
        row_ptr.push(row_ptr[row_ptr.len() - 1] + *degree as u64);
    }
    let entries = row_ptr[degrees.len()] as usize;
    (row_ptr, (0..entries).map(|k| (k * 7 % sources) as u32).collect())
}

/// A device that samples.
fn kernels<B: SampleBackend>() -> Requirement {
    Requirement {
        name: "a sampler of the device",
        demand: "GRAPHSIEVE_REQUIRE_SAMPLER",
        probe: || if B::SAMPLES { Ok(()) } else { Err("samples are drawn on the host".into()) },
    }
}

/// A device that draws by weights.
fn doubles<B: SampleBackend>() -> Requirement {
    Requirement {
        name: "double precision",
        demand: "GRAPHSIEVE_REQUIRE_F64",
        probe: || if B::has_doubles(&Default::default()) { Ok(()) } else { Err("there is none".into()) },
    }
}

/// Host memory that the device reads.
fn page_locked<B: SampleBackend>() -> Requirement {
    Requirement {
        name: "page-locked memory",
        demand: "GRAPHSIEVE_REQUIRE_PAGE_LOCKED",
        probe: || PinnedRows::<B>::new([1, 1], DType::F32, &Default::default(), |bytes| bytes.fill(0)).map(drop),
    }
}

/// A sampler of one relation between two types.
fn sampler<B: SampleBackend>(degrees: &[usize], sources: usize, pinned: bool, device: &B::Device) -> DeviceSampler<B> {
    let (row_ptr, col_idx) = graph(degrees, sources);
    let relation = SampleRelation::new(1, 0, SampleRows::Lists(&row_ptr), &col_idx);
    DeviceSampler::new(&[relation], &[degrees.len(), sources], pinned, device).expect("a device that samples")
}

fn rows_are_drawn_by_the_rule<B: SampleBackend>(device: &B::Device) {
    check_rows::<B>(false, device);
}

fn rows_are_drawn_from_page_locked_memory<B: SampleBackend>(device: &B::Device) {
    check_rows::<B>(true, device);
}

/// Rows of no entry, of a few, and of about as many as are drawn.
fn degrees() -> Vec<usize> {
    (0..300).map(|row| [0, 1, 2, 5, 40, 63, 64, 65, 1000][row % 9] + row % 4).collect()
}

fn check_rows<B: SampleBackend>(pinned: bool, device: &B::Device) {
    let fanouts = [1, 5, 64, 65, 300, 1000, MAX_FANOUT].map(|fanout| (Some(fanout), false));
    let others = [(None, false), (Some(7), true), (Some(500), true), (None, true)];
    for sources in [5000, 90] {
        check_drawn::<B>(sources, None, &[&fanouts[..], &others].concat(), false, pinned, device);
        // Of 90 sources rows have some more than once, and so some variates.
        check_drawn::<B>(sources, None, &fanouts, true, pinned, device);
    }
}

fn rows_are_drawn_by_weights<B: SampleBackend>(device: &B::Device) {
    check_weights::<B>(false, device);
}

fn rows_are_drawn_by_weights_in_page_locked_memory<B: SampleBackend>(device: &B::Device) {
    check_weights::<B>(true, device);
}

fn check_weights<B: SampleBackend>(pinned: bool, device: &B::Device) {
    let (row_ptr, _) = graph(&degrees(), 1);
    // Of all sizes, among them what single precision has below its normal numbers, and rows where none is positive.
    let weight = |row: usize, k: usize| match row % 4 {
        0 => (k * 31 % 17) as f32 / 4.0,
        1 => [1e-45, 2.0, 0.0, 3e-39, 1e30, -0.0, f32::MAX, 1e-30, 0.5][k % 9],
        2 => [0.0, -0.0][k % 2],
        _ => 1.0,
    };
    let of_row = |row: usize| (0..(row_ptr[row + 1] - row_ptr[row]) as usize).map(move |k| weight(row, k));
    let weights: Vec<f32> = (0..300).flat_map(of_row).collect();
    let fanouts = [Some(1), Some(5), Some(64), Some(70), Some(500), None];
    let drawn = |replace: bool| fanouts.map(|fanout| (fanout, replace));
    for sources in [5000, 90] {
        let all = [drawn(false), drawn(true)].concat();
        check_drawn::<B>(sources, Some(&weights), &all, false, pinned, device);
        check_drawn::<B>(sources, Some(&weights), &drawn(false), true, pinned, device);
    }
}

/// The places that a row gives by the rule, in ascending order.
fn taken(draw: &NodeDraw, row: u32, sources: &[u32], weights: Option<&[f32]>) -> Vec<u32> {
    let of_row = hash(draw.key, row.into());
    let weight = |at: u32| weights.map_or(1.0, |weights| weights[at as usize]);
    let positive = || (0..sources.len() as u32).filter(|&at| weight(at) > 0.0);
    let available = positive().count();
    let count = match draw.fanout {
        None => available,
        Some(fanout) if draw.replace => fanout as usize * usize::from(available > 0),
        Some(fanout) => available.min(fanout as usize),
    };
    let mut taken = vec![0; count];
    if count == 0 {
        return taken;
    }
    let bits = |at: u32| match draw.by_source {
        true => hash(draw.key, sources[at as usize].into()),
        false => hash(of_row, at.into()),
    };
    match (weights, draw.replace && draw.fanout.is_some()) {
        (None, true) => repeated(&mut taken, sources.len(), of_row),
        (Some(weights), true) => repeated_by_weight(&mut taken, weights, of_row, &mut Vec::new()),
        (None, false) if !draw.by_source => distinct(&mut taken, sources.len(), of_row),
        (None, false) => smallest(&mut taken, positive().map(|at| (bits(at), at)), &mut Vec::new()),
        (Some(_), false) => {
            let keys = positive().map(|at| (weighted_key(bits(at), weight(at)), at));
            smallest(&mut taken, keys, &mut Vec::new());
        }
    }
    taken
}

/// Checks what is drawn of rows of [`degrees`] entries with each of `fanouts`, with replacement or without.
fn check_drawn<B: SampleBackend>(
    sources: usize,
    weights: Option<&[f32]>,
    fanouts: &[(Option<u32>, bool)],
    by_source: bool,
    pinned: bool,
    device: &B::Device,
) {
    let degrees = degrees();
    let (row_ptr, col_idx) = graph(&degrees, sources);
    let relation = SampleRelation {
        weights: weights.map(|weights| SampleWeights { weights, replace: true }),
        ..SampleRelation::new(1, 0, SampleRows::Lists(&row_ptr), &col_idx)
    };
    let sampler = DeviceSampler::<B>::new(&[relation], &[degrees.len(), sources], pinned, device);
    let mut sampler = sampler.expect("a device that samples");
    for &(fanout, replace) in fanouts {
        for (rate, key) in [(0.0, 3u64), (0.5, u64::MAX - 4)] {
            let drop_edge = DropEdge::new(rate, 2, 1, 0, 0);
            let rows: Vec<u32> = (0..300).rev().collect();
            let seeds = [rows.clone(), vec![]];
            let draw = NodeDraw { fanout, replace, latest: false, by_source, key, drop_edge };
            let sample = sampler.sample(&seeds, 1, |_, _| draw, |_| false);
            let SampledRelation { row_ptr: starts, cols, edges } = sample.blocks_to_host().remove(0).remove(0);
            let nodes = &sample.nodes_to_host()[1];
            assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), nodes.len(), "distinct");
            let weighted = weights.is_some();
            let name = format!("{draw:?}, {sources} sources, weights {weighted}, pinned {pinned}");
            let mut at = 0;
            for (k, &row) in rows.iter().enumerate() {
                let of = row_ptr[row as usize] as usize..row_ptr[row as usize + 1] as usize;
                let taken = taken(&draw, row, &col_idx[of.clone()], weights.map(|weights| &weights[of.clone()]));
                let kept = |edge: &u32| drop_edge.is_none_or(|drop| drop.keeps(row, col_idx[*edge as usize]));
                let want: Vec<u32> = taken.into_iter().map(|place| of.start as u32 + place).filter(kept).collect();
                assert_eq!(starts[k] as usize, at, "{name}: start of row {row}");
                assert_eq!(edges[at..at + want.len()], want, "{name}: row {row} of {} entries", of.len());
                for entry in at..at + want.len() {
                    assert_eq!(nodes[cols[entry] as usize], col_idx[edges[entry] as usize], "{name}");
                }
                at += want.len();
            }
            assert_eq!((starts[300] as usize, edges.len()), (at, at), "{name}");
        }
    }
}

/// Rows that share entries, of 900 sources each of which stands once.
fn histories() -> (Vec<u64>, Vec<u64>, Vec<u32>) {
    let ends = [0u64, 1, 2, 5, 40, 63, 64, 65, 512, 700, 900];
    let (start, end) =
        (0..330).map(|row| (ends[row % 11], row as u64)).map(|(end, row)| (end.saturating_sub(3 * row), end)).unzip();
    (start, end, (0..900).map(|k| k * 7 % 900).collect())
}

/// Two relations between the same types: one of spans, and one of the same rows with a list each.
/// With `weighted` entries have weights, too.
fn both<B: SampleBackend>(weighted: bool, device: &B::Device) -> DeviceSampler<B> {
    let (start, end, entries) = histories();
    let weights: Vec<f32> = (0..900).map(|entry| (entry % 5) as f32).collect();
    let listed: Vec<f32> =
        start.iter().zip(&end).flat_map(|(&start, &end)| weights[start as usize..end as usize].to_vec()).collect();
    let of = |weights| weighted.then_some(SampleWeights { weights, replace: false });
    let spans = || start.iter().zip(&end).map(|(&start, &end)| start as usize..end as usize);
    let col_idx: Vec<u32> = spans().flat_map(|span| entries[span].to_vec()).collect();
    let mut row_ptr = vec![0];
    spans().for_each(|span| row_ptr.push(row_ptr[row_ptr.len() - 1] + span.len() as u64));
    let of_lists = SampleRelation::new(1, 0, SampleRows::Lists(&row_ptr), &col_idx);
    let of_lists = SampleRelation { weights: of(&listed), ..of_lists };
    let rows = SampleRows::Spans { start: &start, end: &end };
    let of_spans = SampleRelation { weights: of(&weights), ..SampleRelation::new(1, 0, rows, &entries) };
    DeviceSampler::new(&[of_spans, of_lists], &[330, 900], false, device).expect("a device that samples")
}

fn spans_are_drawn_like_their_lists<B: SampleBackend>(device: &B::Device) {
    for (weighted, fanout, replace, latest, rate) in [
        (false, Some(5), false, false, 0.0),
        (false, Some(64), false, false, 0.5),
        (false, Some(200), false, false, 0.5),
        (false, None, false, false, 0.0),
        (false, Some(7), true, false, 0.0),
        (false, Some(9), false, true, 0.0),
        (false, Some(9), true, true, 0.4),
        (true, Some(5), false, false, 0.0),
        (true, Some(200), false, false, 0.5),
        (true, None, false, false, 0.0),
    ] {
        if weighted && !B::has_doubles(device) {
            continue;
        }
        let mut sampler = both::<B>(weighted, device);
        let drop_edge = DropEdge::new(rate, 2, 1, 0, 0);
        let draw = NodeDraw { fanout, replace, latest, by_source: false, key: 17, drop_edge };
        let sample = sampler.sample(&[(0..330).rev().collect(), vec![]], 1, |_, _| draw, |_| true);
        let blocks = sample.blocks_to_host().remove(0);
        assert_eq!(blocks[0].row_ptr, blocks[1].row_ptr, "{draw:?}");
        assert_eq!(blocks[0].cols, blocks[1].cols, "{draw:?}");
        // Entries are numbered as they are stored.
        let (_, _, entries) = histories();
        let nodes = &sample.nodes_to_host()[1];
        let sources =
            |block: &SampledRelation| -> Vec<u32> { block.cols.iter().map(|&at| nodes[at as usize]).collect() };
        let stored: Vec<u32> = blocks[0].edges.iter().map(|&entry| entries[entry as usize]).collect();
        assert!(!stored.is_empty() && sources(&blocks[0]) == stored, "{draw:?}");
    }
}

fn the_last_entries_of_rows_are_taken<B: SampleBackend>(device: &B::Device) {
    let mut sampler = both::<B>(false, device);
    let (start, end, _) = histories();
    for (fanout, replace) in [(Some(1), false), (Some(10), false), (Some(64), true), (Some(600), false), (None, true)] {
        // The other relation is drawn from.
        let draw = |_: usize, relation: usize| NodeDraw {
            fanout,
            replace,
            latest: relation == 0,
            by_source: false,
            key: 3,
            drop_edge: None,
        };
        let rows: Vec<u32> = (0..330).collect();
        let sample = sampler.sample(&[rows.clone(), vec![]], 1, draw, |_| false);
        let blocks = sample.blocks_to_host().remove(0);
        let SampledRelation { row_ptr, edges, .. } = &blocks[0];
        for row in 0..330 {
            let first = start[row].max(end[row].saturating_sub(fanout.map_or(u64::MAX, u64::from)));
            let want: Vec<u32> = (first as u32..end[row] as u32).collect();
            assert_eq!(edges[row_ptr[row] as usize..row_ptr[row + 1] as usize], want, "{fanout:?}, row {row}");
        }
        let lens = blocks[1].row_ptr.windows(2).map(|w| w[1] - w[0]);
        let count = |row: usize| match (fanout, (end[row] - start[row]) as u32) {
            (Some(fanout), 1..) if replace => fanout,
            (Some(fanout), degree) => degree.min(fanout),
            (None, degree) => degree,
        };
        assert!(lens.eq((0..330).map(count)), "{fanout:?}");
    }
}

fn weights_that_do_not_fit_are_refused<B: SampleBackend>(device: &B::Device) {
    let (start, end, entries) = histories();
    let rows = SampleRows::Spans { start: &start, end: &end };
    let weights = SampleWeights { weights: &[1.0; 900], replace: true };
    let of_spans = SampleRelation { weights: Some(weights), ..SampleRelation::new(1, 0, rows, &entries) };
    let refused = DeviceSampler::<B>::new(&[of_spans], &[330, 900], false, device).expect_err("rows share entries");
    assert!(refused.contains("no kernel for rows that share entries"), "{refused}");
    let mut sampler = both::<B>(true, device);
    let draw = NodeDraw { fanout: Some(2), replace: true, latest: false, by_source: false, key: 1, drop_edge: None };
    let mut message = |draw: NodeDraw| {
        let sample = || drop(sampler.sample(&[vec![1], vec![]], 1, |_, _| draw, |_| false));
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(sample)).expect_err("it is refused");
        found.downcast_ref::<String>().expect("a message in words").clone()
    };
    assert!(message(draw).contains("replace: expected weights that are meant for it"));
    assert!(message(NodeDraw { replace: false, latest: true, ..draw }).contains("latest: expected false"));
    assert!(message(NodeDraw { by_source: true, ..draw }).contains("replace: expected false"));
    let most = NodeDraw { replace: false, fanout: Some(MAX_FANOUT + 1), ..draw };
    assert!(message(most).contains("fanout: expected 1 to 1024, got 1025"));
}

fn more_entries_than_can_be_counted_are_refused<B: SampleBackend>(device: &B::Device) {
    let entries = vec![0u32; 100_000];
    let (start, end) = (vec![0u64; 50_000], vec![100_000u64; 50_000]);
    let rows = SampleRows::Spans { start: &start, end: &end };
    let relation = SampleRelation::new(1, 0, rows, &entries);
    let mut sampler = DeviceSampler::<B>::new(&[relation], &[50_000, 1], false, device).expect("a device that samples");
    let draw = |fanout| NodeDraw { fanout, replace: false, latest: true, by_source: false, key: 3, drop_edge: None };
    let seeds = [(0..50_000).collect::<Vec<u32>>(), vec![]];
    let few = sampler.sample(&seeds, 1, |_, _| draw(Some(2)), |_| false);
    assert_eq!(few.num_edges(), 100_000);
    let all = || sampler.sample(&seeds, 1, |_, _| draw(None), |_| false);
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(all)).expect_err("too many");
    let found = found.downcast_ref::<String>().expect("a message in words");
    assert!(found.contains("fanout: expected fewer than 2^32 entries of a layer, got up to 5000000000"), "{found}");
}

fn new_nodes_are_listed_in_the_order_of_their_first_edge<B: SampleBackend>(device: &B::Device) {
    let degrees = vec![40; 5000];
    let mut sampler = sampler::<B>(&degrees, 900, false, device);
    let draw = NodeDraw { fanout: Some(6), replace: false, latest: false, by_source: false, key: 9, drop_edge: None };
    // Again and again: nothing is left of the batch before.
    for seeds in [4000u32, 3, 5000, 0, 900] {
        let known = vec![17, 899, 0];
        let sample = sampler.sample(&[(0..seeds).collect(), known.clone()], 1, |_, _| draw, |_| false);
        let SampledRelation { cols, edges, .. } = sample.blocks_to_host().remove(0).remove(0);
        let mut nodes = known;
        for (&col, &edge) in cols.iter().zip(&edges) {
            let source = edge * 7 % 900;
            let place = nodes.iter().position(|&node| node == source).unwrap_or_else(|| {
                nodes.push(source);
                nodes.len() - 1
            });
            assert_eq!(col as usize, place);
        }
        assert_eq!(sample.nodes_to_host()[1], nodes);
        assert_eq!(sample.counts, [[seeds as usize, 3], [seeds as usize, nodes.len()]]);
    }
}

/// Two types and three relations, one of them without entries and one with a source that all rows have. Entries have
/// `WIDTHS` values.
struct Typed {
    counts: [usize; 2],
    relations: Vec<(usize, usize, Vec<u64>, Vec<u32>)>,
    values: [Vec<f32>; 3],
}

const WIDTHS: [usize; 3] = [3, 2, 0];

impl Typed {
    fn new() -> Self {
        let counts = [700, 900];
        let (ptr, idx) = graph(&vec![9; 700], 900);
        let star = (
            (0..=900).map(|row| 3 * row as u64).collect(),
            (0..2700).map(|k| if k % 3 == 0 { 5 } else { k * 11 % 700 }).collect(),
        );
        let relations = vec![(1, 0, ptr, idx), (0, 0, vec![0; 701], Vec::new()), (0, 1, star.0, star.1)];
        let values = |at: usize| (0..relations[at].3.len() * WIDTHS[at]).map(|k| k as f32 - 0.25).collect();
        Typed { counts, values: [0, 1, 2].map(values), relations }
    }

    fn sampler<B: SampleBackend>(&self, pinned: bool, device: &B::Device) -> DeviceSampler<B> {
        let values = self.values.iter().zip(WIDTHS);
        let values = values.map(|(values, width)| (width > 0).then_some(SampleValues { values, width }));
        let relations: Vec<SampleRelation<'_>> = self
            .relations
            .iter()
            .zip(values)
            .map(|(of, values)| {
                let (src, dst, row_ptr, col_idx) = of;
                SampleRelation { values, ..SampleRelation::new(*src, *dst, SampleRows::Lists(row_ptr), col_idx) }
            })
            .collect();
        DeviceSampler::new(&relations, &self.counts, pinned, device).expect("a device that samples")
    }

    /// The values of entries of a relation.
    fn values_of(&self, relation: usize, edges: &[u32]) -> Vec<f32> {
        let width = WIDTHS[relation];
        let row = |&edge: &u32| &self.values[relation][edge as usize * width..(edge as usize + 1) * width];
        edges.iter().flat_map(row).copied().collect()
    }
}

/// Destination and source of every entry, read by sums over ids.
fn entries<B: GraphBackend>(csr: &Csr<B>) -> Vec<Vec<f32>> {
    // Powers of two would overflow: each row adds up a number that its sources alone make.
    let numbers: Vec<f32> = (0..csr.num_cols()).map(|col| (col * col % 4093) as f32).collect();
    let x = Tensor::<B, 2>::from_data(TensorData::new(numbers, [csr.num_cols(), 1]), &B::Device::default());
    let of =
        |reduce| gspmm(csr, Message::CopyU(x.clone()), reduce, Strategy::Auto).into_data().to_vec::<f32>().unwrap();
    [of(Reduce::Sum), of(Reduce::Max), of(Reduce::Min), csr.degrees().into_data().to_vec::<f32>().unwrap()].to_vec()
}

fn a_packed_sample_is_the_sample_with_its_reverse_its_values_and_its_rows<B: GraphBackend>(device: &B::Device) {
    check_packed::<B>(false, device);
}

fn a_packed_sample_has_values_and_rows_of_page_locked_memory<B: GraphBackend>(device: &B::Device) {
    check_packed::<B>(true, device);
}

fn check_packed<B: GraphBackend>(pinned: bool, device: &B::Device) {
    let typed = Typed::new();
    for width in [1usize, 6, 32] {
        let mut sampler = typed.sampler::<B>(pinned, device);
        let value = |node: usize, column: usize| (node * 7 + column) as f32;
        let values: Vec<f32> = (0..1600 * width).map(|k| value(k / width, k % width)).collect();
        let all = Tensor::<B, 2>::from_data(TensorData::new(values.clone(), [1600, width]), device);
        let listed: Vec<u32> = (0..400).map(|k| k * 4).collect();
        let cache = Tensor::cat(listed.iter().map(|&node| all.clone().narrow(0, node as usize, 1)).collect(), 0);
        let source = match pinned {
            false => RowSource::Device(all.clone()),
            true => {
                let fill = |bytes: &mut [u8]| bytes.copy_from_slice(bytemuck::cast_slice(&values));
                let rows = PinnedRows::<B>::new([1600, width], DType::F32, device, fill);
                RowSource::Pinned(std::sync::Arc::new(rows.expect("page-locked memory")))
            }
        };
        for (cached, window) in [(false, false), (false, true), (true, true)] {
            let cache = cached.then(|| (&listed[..], cache.clone()));
            let mut collector = RowCollector::<B>::new(source.clone(), cache, window, device);
            let mut before: BTreeSet<(usize, u32)> = BTreeSet::new();
            // Growing, shrinking, alike, nothing in common, empty.
            for (number, seeds) in [0..40u32, 0..600, 0..600, 300..310, 0..0, 0..0, 650..700].into_iter().enumerate() {
                let fanouts = [Some(3), if number % 2 == 0 { None } else { Some(64) }];
                let rate = if number == 2 { 0.4 } else { 0.0 };
                let draw = |layer: usize, relation: usize| NodeDraw {
                    fanout: fanouts[layer],
                    replace: false,
                    latest: false,
                    by_source: false,
                    key: number as u64 * 100 + layer as u64 * 10 + relation as u64,
                    drop_edge: DropEdge::new(rate, 5, layer as u32, relation as u32, 0),
                };
                let seeds = [seeds.collect(), vec![]];
                let sample = sampler.sample(&seeds, 2, draw, |_| true);
                let (nodes, blocks) = (sample.nodes_to_host(), sample.blocks_to_host());
                let made = sample.pack(Some(&mut collector));
                let got = made.copied();
                PackedSample::wait_for(&got);
                drop(made);
                let name = format!("width {width}, {source:?}, cached {cached}, window {window}, batch {number}");
                for (layer, blocks) in blocks.iter().enumerate() {
                    for (at, block) in blocks.iter().enumerate() {
                        let values = got.values(layer, at);
                        assert_eq!(values.is_some(), WIDTHS[at] > 0, "{name}");
                        if let Some(values) = values {
                            assert_eq!(values.dims(), [block.edges.len(), WIDTHS[at]], "{name}");
                            let values: Vec<f32> = match block.edges.len() {
                                0 => Vec::new(),
                                _ => values.into_data().to_vec().unwrap(),
                            };
                            assert_eq!(values, typed.values_of(at, &block.edges), "{name}, layer {layer}, values");
                        }
                        let (src, dst, ..) = typed.relations[at];
                        let (rows, cols) = (got.counts[layer][dst], got.counts[layer + 1][src]);
                        let Some(csr) = got.csr(layer, at) else {
                            assert!(rows == 0 || cols == 0, "{name}");
                            continue;
                        };
                        let row_ptr: Vec<u64> = block.row_ptr.iter().map(|&at| at.into()).collect();
                        let want = Csr::<B>::from_host(&row_ptr, &block.cols, cols, device).unwrap();
                        assert_eq!((csr.num_rows(), csr.num_cols(), csr.num_edges()), (rows, cols, block.cols.len()));
                        assert_eq!(entries(&csr), entries(&want), "{name}, layer {layer}, relation {at}");
                        let (csr, want) = (csr.reverse(), want.reverse());
                        assert_eq!(entries(&csr), entries(&want), "{name}, layer {layer}, relation {at}, reverse");
                    }
                }
                let mut listed_now = BTreeSet::new();
                for (t, nodes) in nodes.iter().enumerate() {
                    assert_eq!(&got.nodes_to_host(t), nodes, "{name}");
                    let x = got.x(t);
                    assert_eq!(x.dims(), [nodes.len(), width]);
                    let x = if nodes.is_empty() { Vec::new() } else { x.into_data().to_vec::<f32>().unwrap() };
                    let base = [0, 700][t];
                    let of = |&node: &u32| (0..width).map(move |column| value(base + node as usize, column));
                    assert_eq!(x, nodes.iter().flat_map(of).collect::<Vec<f32>>(), "{name}, rows of type {t}");
                    listed_now.extend(nodes.iter().map(|&node| (t, node)));
                }
                let is_hot = |&&(t, node): &&(usize, u32)| cached && ([0, 700][t] + node) % 4 == 0;
                let shared = if window { listed_now.intersection(&before).count() } else { 0 };
                let fresh = listed_now.iter().filter(|node| !window || !before.contains(node));
                assert_eq!((got.shared, got.cached), (shared, fresh.filter(is_hot).count()), "{name}");
                before = listed_now;
            }
        }
    }
}
