//! Groups of ranks: those of a host, and those that have one place on all hosts.

use std::sync::OnceLock;

use burn::tensor::{DType, Int, Tensor, TensorData};

use super::communicator::Communicator;
use super::error::CollectiveError;
use super::handshake::hash;
use super::hosts::Hosts;
use super::link::CollectiveBackend;

impl<B: CollectiveBackend<Plain = B>> Communicator<B> {
    /// This rank, on the host that `name` tells from others. All ranks come, each with its own; threads of one process
    /// so stand for several hosts.
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault).
    pub fn on_host(mut self, name: &str) -> Result<Self, CollectiveError> {
        let half = |bytes: &[u8]| i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let name = hash(name.as_bytes());
        let name = TensorData::new(vec![half(&name[..4]), half(&name[4..])], [1, 2]);
        let name = Tensor::<B, 2, Int>::from_data(name, (self.device(), DType::I32));
        let names = self.all_gather_ids(name, &vec![1; self.ranks()])?;
        let names: Vec<i32> = names.into_data().iter().collect();
        self.hosts = Hosts::of_names(names.chunks(2));
        Ok(self)
    }

    /// The host of every rank: one for all, unless they have said otherwise.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The ranks of this one's host, a group of their own in the order of the ranks; this group where there is one
    /// host. All ranks come where it is asked for first. Errors name ranks by their numbers among all; a rank that
    /// fails ends every group. Backward passes are those of all ranks ([`Communicator::backward`]).
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault).
    ///
    /// # Example
    /// ```
    /// use burn::tensor::Tensor;
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{COLLECTIVE_DEADLINE, Communicator};
    /// let ranks = Communicator::<Flex>::threads(4, COLLECTIVE_DEADLINE, &Default::default());
    /// let sums = Communicator::on_threads(ranks, |rank| {
    ///     let host = ["a", "a", "b", "b"][rank.rank()];
    ///     let rank = rank.on_host(host).unwrap();
    ///     let own = Tensor::<Flex, 1>::from_data([rank.rank() as f32], rank.device());
    ///     let sum = |group: &Communicator<Flex>| group.all_reduce(own.clone()).unwrap().into_scalar();
    ///     (sum(rank.within_host().unwrap()), sum(rank.across_hosts().unwrap()))
    /// });
    /// assert_eq!(sums, [(1.0, 2.0), (1.0, 4.0), (5.0, 2.0), (5.0, 4.0)]);
    /// ```
    pub fn within_host(&self) -> Result<&Self, CollectiveError> {
        match self.hosts.count() {
            1 => Ok(self),
            _ => self.group(&self.within_host, self.hosts.of_ranks()),
        }
    }

    /// The ranks that have the place of this one among those of their hosts, in the order of the ranks; otherwise as
    /// [`within_host`](Self::within_host).
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault).
    pub fn across_hosts(&self) -> Result<&Self, CollectiveError> {
        self.group(&self.across_hosts, &self.hosts.places())
    }

    /// The ranks that have the number of this one in `numbers`, `[rank]`.
    fn group<'a>(&'a self, made: &'a OnceLock<Box<Self>>, numbers: &[usize]) -> Result<&'a Self, CollectiveError> {
        if let Some(group) = made.get() {
            return Ok(group);
        }
        let said: Vec<u8> = numbers.iter().flat_map(|&number| (number as u64).to_le_bytes()).collect();
        self.handshake(&[("division of the ranks into groups", &said)])?;
        let own = numbers[self.rank()];
        let members: Vec<usize> = (0..self.ranks()).filter(|&rank| numbers[rank] == own).collect();
        let link = self.link.split(&members)?;
        let hosts = Hosts::of_names(members.iter().map(|&rank| self.hosts.of_ranks()[rank]));
        let group = Self::of(link, self.device().clone(), self.turn.clone(), hosts);
        Ok(made.get_or_init(|| Box::new(group)))
    }
}
