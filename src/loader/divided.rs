//! Feature rows that lie on the devices of several ranks, a part on each.
//!
//! Every rank asks all of its host for the rows that a batch lacks and answers what they ask of it: how many, which,
//! the rows. That is in the thread that trains, where the batch is taken, on the communicator of the gradients: threads
//! of the loader only make the lists, so that all ranks call the same in the same order.
//!
//! A host whose devices hold all rows needs no other. Else the rows of a rank are once more divided, over the ranks
//! that have its place on their hosts, and before it answers it asks these, in the same way, for each row once, however
//! many ranks of its host ask for it. A row so crosses between hosts at most once for a host and a batch.

use burn::tensor::{DType, Int, Tensor, TensorData};
use graphsieve_kernels::{CollectiveError, Communicator, GraphBackend, Hosts, SampleBackend, autodiff_turn};

use super::window::Update;
use crate::graph::NodeType;

/// Rows that are dealt out over some ranks, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    own: usize,
    ranks: usize,
}

impl Share {
    /// Who has a row, and its number there.
    fn place(self, row: u32) -> (usize, u32) {
        let ranks = self.ranks as u32;
        ((row % ranks) as usize, row / ranks)
    }
}

/// Which rank has which rows: they are dealt out over the ranks of a host, and where hosts divide them what a rank
/// would have so over the ranks that have its place on all hosts. Each has as many of every type.
///
/// # Example
/// ```
/// use graphsieve::loader::Deal;
/// use graphsieve_kernels::Hosts;
/// let hosts = Hosts::of_names(["a", "a", "b", "b"]);
/// assert_eq!(Deal::within_hosts(&hosts, 2).own(6), [0, 2, 4]);
/// assert_eq!(Deal::over_hosts(&hosts, 2).own(6), [2]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    within: Share,
    across: Share,
}

impl Deal {
    /// What `rank` has where every host has all rows.
    ///
    /// # Panics
    /// For a rank that does not exist.
    pub fn within_hosts(hosts: &Hosts, rank: usize) -> Self {
        let within = Share { own: hosts.places()[rank], ranks: hosts.sizes()[hosts.of_ranks()[rank]] };
        Self { within, across: Share { own: 0, ranks: 1 } }
    }

    /// What `rank` has where all hosts together have the rows once.
    ///
    /// # Panics
    /// For a rank that does not exist, and for hosts with different numbers of ranks.
    pub fn over_hosts(hosts: &Hosts, rank: usize) -> Self {
        let (sizes, places) = (hosts.sizes(), hosts.places());
        assert!(
            sizes.iter().all(|size| *size == sizes[0]),
            "Deal: expected as many ranks on every host, got {sizes:?}"
        );
        let own = places[..rank].iter().filter(|place| **place == places[rank]).count();
        Self { across: Share { own, ranks: sizes.len() }, ..Self::within_hosts(hosts, rank) }
    }

    /// The nodes of this rank among `nodes`, by their global ids, in the order of its rows.
    pub fn own(self, nodes: usize) -> Vec<u32> {
        let of_place = (self.within.own as u32..nodes as u32).step_by(self.within.ranks);
        of_place.skip(self.across.own).step_by(self.across.ranks).collect()
    }

    /// The place on this host of the rank that is asked for a node, the row that is asked for, and whether this rank
    /// has it.
    fn place(self, node: u32) -> (usize, u32, bool) {
        let (rank, row) = self.within.place(node);
        (rank, row, rank == self.within.own && self.across.place(row).0 == self.across.own)
    }
}

/// The rows that ranks are asked for, this one included.
#[derive(Debug)]
pub(super) struct Request {
    /// `[rank]`: rows of its part.
    asked: Vec<Vec<u32>>,
}

impl Request {
    fn of(ranks: usize) -> Self {
        Self { asked: vec![Vec::new(); ranks] }
    }

    /// Asks for one more; who gives it, and as which of its answers.
    fn ask(&mut self, (rank, row): (usize, u32)) -> (usize, u32) {
        self.asked[rank].push(row);
        (rank, self.asked[rank].len() as u32 - 1)
    }

    /// `[rank]`: the first row of its answer, as the answers follow one another.
    fn first(&self) -> Vec<u32> {
        let mut next = 0;
        let first = |rows: &Vec<u32>| {
            next += rows.len() as u32;
            next - rows.len() as u32
        };
        self.asked.iter().map(first).collect()
    }

    /// What the types `updates` fetch together. Also, `[type]`, the row of each of them in the answer, and how many of
    /// them are this rank's own.
    pub fn new(deal: Deal, updates: &[Update], types: &[NodeType]) -> (Self, Vec<(Vec<u32>, usize)>) {
        let mut request = Self::of(deal.within.ranks);
        let of_type = |(update, of): (&Update, &NodeType)| -> (Vec<(usize, u32)>, usize) {
            let mut own = 0;
            let place = |&(node, _): &(u32, u32)| {
                let (rank, row, has) = deal.place(of.offset as u32 + node);
                own += usize::from(has);
                request.ask((rank, row))
            };
            let places = update.fetches.iter().map(place).collect();
            (places, own)
        };
        let places: Vec<(Vec<(usize, u32)>, usize)> = updates.iter().zip(types).map(of_type).collect();
        let first = request.first();
        let in_answer = |(places, own): (Vec<(usize, u32)>, usize)| {
            (places.into_iter().map(|(rank, at)| first[rank] + at).collect(), own)
        };
        (request, places.into_iter().map(in_answer).collect())
    }

    /// What asks for each of the rows `wanted` of a share once, and the row of each of them in the answer.
    fn once(share: Share, wanted: &[u32]) -> (Self, Vec<u32>) {
        let mut rows = wanted.to_vec();
        rows.sort_unstable();
        rows.dedup();
        let mut request = Self::of(share.ranks);
        let places: Vec<(usize, u32)> = rows.iter().map(|&row| request.ask(share.place(row))).collect();
        let first = request.first();
        let in_answer = |row: &u32| {
            let (rank, at) = places[rows.partition_point(|other| other < row)];
            first[rank] + at
        };
        let places = wanted.iter().map(in_answer).collect();
        (request, places)
    }
}

/// The part of a rank.
#[derive(Clone, Debug)]
pub(super) struct Part<B: SampleBackend> {
    pub deal: Deal,
    pub rows: Tensor<B, 2>,
}

impl<B: GraphBackend> Part<B> {
    /// The rows of `request`, those of the first rank of this host first. All ranks come with a request, which may be
    /// empty. The host waits for the counts alone, and where rows cross between hosts for what this rank is asked; a
    /// failure of what comes behind them is told where the ranks settle.
    ///
    /// # Errors
    /// A rank that fails.
    pub fn fetch(&self, request: Request, rank: &Communicator<B::Plain>) -> Result<Tensor<B, 2>, CollectiveError> {
        // Also what needs no gradient is recorded.
        let _turn = autodiff_turn();
        let host = rank.within_host()?;
        if self.deal.across.ranks == 1 {
            return self.answered(request, host, |rows| Ok(selected(&self.rows, rows)));
        }
        let hosts = rank.across_hosts()?;
        self.answered(request, host, |wanted| {
            let wanted: Vec<u32> = match wanted.dims()[0] {
                0 => Vec::new(),
                _ => {
                    host.settled()?;
                    wanted.into_data().iter().collect()
                }
            };
            let (request, places) = Request::once(self.deal.across, &wanted);
            let rows = self.answered(request, hosts, |rows| Ok(selected(&self.rows, rows)))?;
            Ok(selected(&rows, column::<B>(places.into_iter(), &rows.device())))
        })
    }

    /// What the ranks of `group` answer to `request`; `answer` gives the rows that they ask of this one.
    fn answered(
        &self,
        request: Request,
        group: &Communicator<B::Plain>,
        answer: impl FnOnce(Tensor<B, 2, Int>) -> Result<Tensor<B, 2>, CollectiveError>,
    ) -> Result<Tensor<B, 2>, CollectiveError> {
        let (device, ranks) = (self.rows.device(), group.ranks());
        let asked: Vec<usize> = request.asked.iter().map(Vec::len).collect();
        let counts = column::<B>(asked.iter().map(|&count| count as u32), &device).reshape([1, ranks]);
        let counts: Vec<u32> = group.all_gather_ids(counts, &vec![1; ranks])?.into_data().iter().collect();
        let wanted: Vec<usize> = (0..ranks).map(|of| counts[of * ranks + group.rank()] as usize).collect();
        let rows = column::<B>(request.asked.into_iter().flatten(), &device);
        let rows = group.all_to_all_ids_queued(rows, &asked, &wanted)?;
        group.all_to_all_rows_queued(answer(rows)?, &wanted, &asked)
    }
}

/// Some of `rows`, by a column of their numbers.
fn selected<B: GraphBackend>(rows: &Tensor<B, 2>, numbers: Tensor<B, 2, Int>) -> Tensor<B, 2> {
    let (count, width) = (numbers.dims()[0], rows.dims()[1]);
    match count * width {
        // No device takes a launch over nothing.
        0 => Tensor::empty([count, width], (&rows.device(), rows.dtype())),
        _ => rows.clone().select(0, numbers.reshape([count])),
    }
}

/// A column of `numbers`.
fn column<B: SampleBackend>(numbers: impl Iterator<Item = u32>, device: &B::Device) -> Tensor<B, 2, Int> {
    let numbers: Vec<i32> = numbers.map(|number| number as i32).collect();
    let options = (device, DType::I32);
    match numbers.len() {
        0 => Tensor::empty([0, 1], options),
        rows => Tensor::from_data(TensorData::new(numbers, [rows, 1]), options),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use burn_flex::{Flex, FlexDevice};
    use graphsieve_kernels::COLLECTIVE_DEADLINE;

    use super::*;
    use crate::models::parameters::to_host;

    const NODES: usize = 999;

    /// What every rank asks for of two types, one batch after the other, on `hosts`, where each has what `deal` gives
    /// it; the bytes that crossed between hosts.
    fn assert_answered(hosts: &[&str], wanted: &[[Vec<u32>; 2]], deal: impl Fn(&Hosts, usize) -> Deal + Sync) -> u64 {
        let types = [("a", 0, 5), ("b", 5, NODES - 5)].map(|(name, offset, count)| NodeType {
            name: name.into(),
            offset,
            count,
        });
        let count = hosts.len();
        let ranks = Communicator::<Flex>::threads(count, COLLECTIVE_DEADLINE, &FlexDevice);
        let crossed = Communicator::on_threads(ranks, |rank| {
            let host = hosts[rank.rank()];
            let rank = rank.on_host(host).unwrap();
            let deal = deal(rank.hosts(), rank.rank());
            let of_rank = deal.own(NODES);
            let own: Vec<f32> = of_rank.iter().map(|&node| node as f32).collect();
            let rows = Tensor::<Flex, 2>::from_data(TensorData::new(own.clone(), [own.len(), 1]), &FlexDevice);
            let fetched =
                |nodes: &Vec<u32>| Update { fetches: nodes.iter().copied().zip(0..).collect(), ..Update::default() };
            let none = [vec![], vec![]];
            for wanted in [&wanted[rank.rank()], &wanted[(rank.rank() + 1) % count], &none] {
                let updates: Vec<Update> = wanted.iter().map(fetched).collect();
                let (request, places) = Request::new(deal, &updates, &types);
                let answer = to_host(Part { deal, rows: rows.clone() }.fetch(request, &rank).unwrap());
                for ((places, own), (nodes, of)) in places.into_iter().zip(wanted.iter().zip(&types)) {
                    let got: Vec<f32> = places.iter().map(|&at| answer[at as usize]).collect();
                    let globals: Vec<u32> = nodes.iter().map(|&node| of.offset as u32 + node).collect();
                    assert_eq!(got, globals.iter().map(|&node| node as f32).collect::<Vec<_>>());
                    assert_eq!(own, globals.iter().filter(|node| of_rank.contains(node)).count());
                }
            }
            rank.across_hosts().unwrap().traffic().bytes
        });
        crossed.into_iter().sum()
    }

    #[test]
    fn every_rank_gets_the_rows_that_it_asks_for_in_the_order_of_its_nodes() {
        let last = NODES as u32 - 6;
        let wanted = [[vec![4, 0, 1], vec![last, 7, 0]], [vec![], vec![]], [vec![2], vec![last - 1]]];
        assert_answered(&["a"; 3], &wanted, Deal::within_hosts);
    }

    #[test]
    fn hosts_with_all_rows_ask_no_other_and_others_ask_once_for_what_several_of_their_ranks_want() {
        let many = |from: u32| (from..from + 40).collect::<Vec<u32>>();
        let wanted =
            [[vec![4, 0], many(3)], [vec![4], many(20)], [vec![], many(900)], [vec![1, 2, 3], vec![22, 901, 21]]];
        for hosts in [["a", "a", "b", "b"], ["a", "b", "b", "a"], ["a", "b", "a", "b"]] {
            assert_eq!(assert_answered(&hosts, &wanted, Deal::within_hosts), 0, "{hosts:?}");
            // Of two hosts each asks once for what its two ranks want.
            let of_batch = |batch: usize| {
                let of_host = |host: &str| {
                    let ranks = (0..4).filter(|&rank| hosts[rank] == host);
                    let nodes = ranks.flat_map(|rank| {
                        let [of_a, of_b] = &wanted[(rank + batch) % 4];
                        of_a.iter().copied().chain(of_b.iter().map(|node| node + 5))
                    });
                    nodes.collect::<BTreeSet<u32>>().len()
                };
                (of_host("a") + of_host("b")) as u64
            };
            // Numbers and rows of four bytes; before each of three batches four ranks get four counts.
            let bytes = 8 * (of_batch(0) + of_batch(1)) + 3 * 4 * 4 * 4;
            assert_eq!(assert_answered(&hosts, &wanted, Deal::over_hosts), bytes, "{hosts:?}");
        }
        // Of three hosts with a rank each all rows but its own come from others.
        assert_answered(&["a", "b", "c"], &wanted[..3], Deal::over_hosts);
    }
}
