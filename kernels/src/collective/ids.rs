//! Whole numbers that ranks give each other.

use burn::tensor::{Int, Tensor};

use super::communicator::Communicator;
use super::error::CollectiveError;
use super::link::CollectiveBackend;
use super::operation::CollectiveOperation;

impl<B: CollectiveBackend<Plain = B>> Communicator<B> {
    /// [`all_gather_rows`](Self::all_gather_rows) of whole numbers in i32, which have no gradient.
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault).
    pub fn all_gather_ids<A: CollectiveBackend<Plain = B>>(
        &self,
        x: Tensor<A, 2, Int>,
        rows: &[usize],
    ) -> Result<Tensor<A, 2, Int>, CollectiveError> {
        let out = self.queued_ids(&CollectiveOperation::AllGather { rows: rows.to_vec() }, x)?;
        self.settled()?;
        Ok(out)
    }

    /// [`all_to_all_rows_queued`](Self::all_to_all_rows_queued) of whole numbers in i32, which have no gradient.
    ///
    /// # Errors
    /// For every [`CollectiveFault`](crate::CollectiveFault).
    ///
    /// # Example
    /// ```
    /// use burn::tensor::{DType, Int, Tensor};
    /// use burn_flex::Flex;
    /// use graphsieve_kernels::{COLLECTIVE_DEADLINE, Communicator};
    /// let ranks = Communicator::<Flex>::threads(2, COLLECTIVE_DEADLINE, &Default::default());
    /// let ids = Communicator::on_threads(ranks, |rank| {
    ///     let own = [[1 << 30], [7 + rank.rank() as i32]];
    ///     let own = Tensor::<Flex, 2, Int>::from_data(own, (rank.device(), DType::I32));
    ///     let ids = rank.all_to_all_ids_queued(own, &[1, 1], &[1, 1]).unwrap();
    ///     ids.into_data().to_vec::<i32>().unwrap()
    /// });
    /// assert_eq!(ids, [[1 << 30, 1 << 30], [7, 8]]);
    /// ```
    pub fn all_to_all_ids_queued<A: CollectiveBackend<Plain = B>>(
        &self,
        x: Tensor<A, 2, Int>,
        send: &[usize],
        receive: &[usize],
    ) -> Result<Tensor<A, 2, Int>, CollectiveError> {
        self.queued_ids(&CollectiveOperation::AllToAll { send: send.to_vec(), receive: receive.to_vec() }, x)
    }

    fn queued_ids<A: CollectiveBackend<Plain = B>>(
        &self,
        operation: &CollectiveOperation,
        x: Tensor<A, 2, Int>,
    ) -> Result<Tensor<A, 2, Int>, CollectiveError> {
        Ok(Tensor::from_primitive(A::exchange_ids(&self.link, operation, x.into_primitive())?))
    }
}
