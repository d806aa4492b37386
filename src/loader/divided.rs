//! Feature rows that lie on the devices of several ranks, a part on each.
//!
//! Every rank asks all for the rows that a batch lacks and answers what they ask of it: how many, which, the rows. That
//! is in the thread that trains, where the batch is taken, on the communicator of the gradients: threads of the loader
//! only make the lists, so that all ranks call the same in the same order.

use burn::tensor::{DType, Int, Tensor, TensorData};
use graphsieve_kernels::{CollectiveError, Communicator, GraphBackend, SampleBackend, autodiff_turn};

use super::window::Update;
use crate::graph::NodeType;

/// Which rank has which rows: they are dealt out, so that each has as many of every type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deal {
    pub rank: usize,
    pub ranks: usize,
}

impl Deal {
    /// The nodes of this rank among `nodes`, by their global ids.
    pub fn own(self, nodes: usize) -> Vec<u32> {
        (self.rank as u32..nodes as u32).step_by(self.ranks).collect()
    }

    /// The rank that has a node, and the node's row there.
    fn place(self, node: u32) -> (usize, u32) {
        let ranks = self.ranks as u32;
        ((node % ranks) as usize, node / ranks)
    }
}

/// The rows of a batch that lie on the ranks, this one included.
#[derive(Debug)]
pub(super) struct Request {
    /// `[rank]`: rows of its part.
    asked: Vec<Vec<u32>>,
}

impl Request {
    /// What the types `updates` fetch together. Also, `[type]`, the row of each of them in the answer, and how many of
    /// them are this rank's own.
    pub fn new(deal: Deal, updates: &[Update], types: &[NodeType]) -> (Self, Vec<(Vec<u32>, usize)>) {
        let mut asked = vec![Vec::new(); deal.ranks];
        let of_type = |(update, of): (&Update, &NodeType)| -> Vec<(usize, u32)> {
            let place = |&(node, _): &(u32, u32)| {
                let (rank, row) = deal.place(of.offset as u32 + node);
                asked[rank].push(row);
                (rank, asked[rank].len() as u32 - 1)
            };
            update.fetches.iter().map(place).collect()
        };
        let places: Vec<Vec<(usize, u32)>> = updates.iter().zip(types).map(of_type).collect();
        // The answers of the ranks follow one another.
        let mut first = vec![0; deal.ranks];
        (1..deal.ranks).for_each(|rank| first[rank] = first[rank - 1] + asked[rank - 1].len() as u32);
        let in_answer = |places: Vec<(usize, u32)>| {
            let own = places.iter().filter(|(rank, _)| *rank == deal.rank).count();
            (places.into_iter().map(|(rank, at)| first[rank] + at).collect(), own)
        };
        let places = places.into_iter().map(in_answer).collect();
        (Self { asked }, places)
    }
}

/// The part of a rank.
#[derive(Clone, Debug)]
pub(super) struct Part<B: SampleBackend> {
    pub deal: Deal,
    pub rows: Tensor<B, 2>,
}

impl<B: GraphBackend> Part<B> {
    /// The rows of `request`, those of rank 0 first. All ranks come with a request, which may be empty. The host waits
    /// for the counts alone; a failure of what comes behind them is told where the ranks settle.
    ///
    /// # Errors
    /// A rank that fails.
    pub fn fetch(&self, request: Request, rank: &Communicator<B::Plain>) -> Result<Tensor<B, 2>, CollectiveError> {
        // Also what needs no gradient is recorded.
        let _turn = autodiff_turn();
        let (device, ranks) = (self.rows.device(), self.deal.ranks);
        let asked: Vec<usize> = request.asked.iter().map(Vec::len).collect();
        let counts = column::<B>(asked.iter().map(|&count| count as u32), &device).reshape([1, ranks]);
        let counts: Vec<u32> = rank.all_gather_ids(counts, &vec![1; ranks])?.into_data().iter().collect();
        let wanted: Vec<usize> = (0..ranks).map(|of| counts[of * ranks + self.deal.rank] as usize).collect();
        let rows = column::<B>(request.asked.into_iter().flatten(), &device);
        let rows = rank.all_to_all_ids_queued(rows, &asked, &wanted)?;
        let (all, width) = (wanted.iter().sum(), self.rows.dims()[1]);
        let rows = match all * width {
            // No device takes a launch over nothing.
            0 => Tensor::empty([all, width], (&device, self.rows.dtype())),
            _ => self.rows.clone().select(0, rows.reshape([all])),
        };
        rank.all_to_all_rows_queued(rows, &wanted, &asked)
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
    use burn_flex::{Flex, FlexDevice};
    use graphsieve_kernels::COLLECTIVE_DEADLINE;

    use super::*;
    use crate::models::parameters::to_host;

    #[test]
    fn every_rank_gets_the_rows_that_it_asks_for_in_the_order_of_its_nodes() {
        let nodes = 999;
        let types = [("a", 0, 5), ("b", 5, nodes - 5)].map(|(name, offset, count)| NodeType {
            name: name.into(),
            offset,
            count,
        });
        let wanted =
            [[vec![4, 0, 1], vec![nodes as u32 - 6, 7, 0]], [vec![], vec![]], [vec![2], vec![nodes as u32 - 7]]];
        let ranks = Communicator::<Flex>::threads(3, COLLECTIVE_DEADLINE, &FlexDevice);
        Communicator::on_threads(ranks, |rank| {
            let deal = Deal { rank: rank.rank(), ranks: 3 };
            let own: Vec<f32> = deal.own(nodes).into_iter().map(|node| node as f32).collect();
            let rows = Tensor::<Flex, 2>::from_data(TensorData::new(own.clone(), [own.len(), 1]), &FlexDevice);
            let fetched =
                |nodes: &Vec<u32>| Update { fetches: nodes.iter().copied().zip(0..).collect(), ..Update::default() };
            for wanted in [&wanted[rank.rank()], &wanted[(rank.rank() + 1) % 3], &[vec![], vec![]]] {
                let updates: Vec<Update> = wanted.iter().map(fetched).collect();
                let (request, places) = Request::new(deal, &updates, &types);
                let answer = to_host(Part { deal, rows: rows.clone() }.fetch(request, &rank).unwrap());
                for ((places, own), (nodes, of)) in places.into_iter().zip(wanted.iter().zip(&types)) {
                    let got: Vec<f32> = places.iter().map(|&at| answer[at as usize]).collect();
                    let globals: Vec<usize> = nodes.iter().map(|&node| of.offset + node as usize).collect();
                    assert_eq!(got, globals.iter().map(|&node| node as f32).collect::<Vec<_>>());
                    assert_eq!(own, globals.iter().filter(|node| **node % 3 == deal.rank).count());
                }
            }
        });
    }
}
