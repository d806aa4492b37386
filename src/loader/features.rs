//! The feature rows of the batch at hand, on the device.

use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{Communicator, GraphBackend, RowBuffer, RowIds, RowNumbers, RowSource, SampleBackend};
use rayon::prelude::*;

use super::batch::BatchStats;
use super::divided::Request;
use super::store::FeatureStore;
use super::window::{Update, Window};
use crate::error::Result;
use crate::models::graph_part::failed;

/// What goes into the buffer of one node type.
#[derive(Debug)]
struct Delivery {
    /// Rows of the batch.
    rows: usize,
    /// Rows that stay, are moved, are on the device for good and are fetched.
    counts: [usize; 4],
    capacity: usize,
    /// Fetched rows that were gathered on the host.
    gathered: Option<TensorData>,
    /// Rows to read and to write of the moves, of the copies and of the fetches.
    lists: [[RowNumbers; 2]; 3],
}

impl Delivery {
    /// Gathers what `update` fetches for a batch of so many rows of a type. Where ranks have the rows, `answered` is
    /// where each stands in what they give, and how many of them are this rank's own.
    fn new<B: SampleBackend>(
        store: &FeatureStore<B>,
        node_type: usize,
        update: &Update,
        rows: usize,
        answered: Option<(Vec<u32>, usize)>,
    ) -> Self {
        let numbers = |pairs: &[(u32, u32)]| {
            let (from, to): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
            [from, to].map(|rows| RowNumbers::new(&rows))
        };
        let own = answered.as_ref().map_or(0, |(_, own)| *own);
        let (gathered, fetches) = match (answered, store.source()) {
            (Some((places, _)), _) => {
                let to: Vec<u32> = update.fetches.iter().map(|(_, slot)| *slot).collect();
                (None, [places, to].map(|rows| RowNumbers::new(&rows)))
            }
            (None, None) => {
                let (nodes, to): (Vec<u32>, Vec<u32>) = update.fetches.iter().copied().unzip();
                (Some(store.gather(node_type, &nodes)), [RowNumbers::default(), RowNumbers::new(&to)])
            }
            (None, Some(_)) => {
                let offset = store.node_types()[node_type].offset as u32;
                let global: Vec<(u32, u32)> =
                    update.fetches.iter().map(|&(node, slot)| (offset + node, slot)).collect();
                (None, numbers(&global))
            }
        };
        Delivery {
            rows,
            counts: [update.shared, update.moves.len(), update.copies.len() + own, update.fetches.len() - own],
            capacity: update.capacity,
            gathered,
            lists: [numbers(&update.moves), numbers(&update.copies), fetches],
        }
    }
}

/// What goes into the buffers of all types.
#[derive(Debug)]
pub(super) struct Deliveries {
    of_type: Vec<Delivery>,
    /// What ranks are asked for, where they have the rows.
    request: Option<Request>,
}

impl Deliveries {
    /// Gathers what `updates` fetch for a batch of `nodes`, both by type.
    pub fn new<B: SampleBackend>(store: &FeatureStore<B>, updates: &[Update], nodes: &[Vec<u32>]) -> Self {
        let (request, answered) = match store.part() {
            Some(part) => {
                let (request, answered) = Request::new(part.deal, updates, store.node_types());
                (Some(request), answered.into_iter().map(Some).collect())
            }
            None => (None, vec![None; updates.len()]),
        };
        let types = updates.par_iter().zip(nodes).zip(answered).enumerate();
        let deliver = |(t, ((update, nodes), answered)): (usize, ((&Update, &Vec<u32>), _))| {
            Delivery::new(store, t, update, nodes.len(), answered)
        };
        Self { of_type: types.map(deliver).collect(), request }
    }

    /// Moves the lists out, to be uploaded.
    pub fn take_lists(&mut self) -> impl Iterator<Item = RowNumbers> {
        self.of_type.iter_mut().flat_map(|of| std::mem::take(&mut of.lists).into_iter().flatten())
    }

    /// Of one batch, where its rows come from.
    pub fn stats<B: SampleBackend>(&self, store: &FeatureStore<B>, edges: usize) -> BatchStats {
        let mut stats = BatchStats { batches: 1, edges: edges as u64, ..BatchStats::default() };
        for Delivery { rows, counts: [shared, moved, hot, fetched], .. } in &self.of_type {
            stats.rows += *rows as u64;
            stats.shared += *shared as u64;
            stats.moved += *moved as u64;
            stats.hot += *hot as u64;
            stats.fetched += *fetched as u64;
        }
        stats.bytes = if store.is_resident() { 0 } else { stats.fetched * store.row_bytes() as u64 };
        stats
    }
}

/// The windows of all node types: the half of a loader that lives on the host.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    of_type: Vec<Window>,
    keeps: bool,
}

impl Windows {
    /// Windows of types of so many nodes; `hot` lists the rows of the cache by type, and without `keeps` a batch keeps
    /// nothing of the one before.
    pub fn new(counts: &[usize], hot: &[Vec<u32>], keeps: bool) -> Result<Self> {
        let of_type =
            counts.iter().zip(hot).map(|(&count, hot)| Window::new(count).with_hot(hot)).collect::<Result<_>>()?;
        Ok(Windows { of_type, keeps })
    }

    /// Goes on to a batch: what changes, and the slot of every node, by type.
    pub fn advance(&mut self, nodes: &[Vec<u32>]) -> Result<Vec<(Update, Vec<u32>)>> {
        let keeps = self.keeps;
        let types = self.of_type.par_iter_mut().zip(nodes);
        types
            .map(|(window, nodes)| {
                if !keeps {
                    window.forget();
                }
                let update = window.advance(nodes)?;
                Ok((update, window.slots().to_vec()))
            })
            .collect()
    }

    /// `[type]`: the node of every slot.
    pub fn slot_to_node(&self) -> Vec<Vec<u32>> {
        self.of_type.iter().map(|window| window.slot_to_node().to_vec()).collect()
    }
}

/// The buffers of all node types: the half of a loader that lives on the device.
pub(super) struct FeatureBuffers<B: SampleBackend> {
    store: FeatureStore<B>,
    /// `[type]`: the rows of the hot cache.
    hot: Vec<Option<Tensor<B, 2>>>,
    buffers: Vec<RowBuffer<B>>,
}

impl<B: SampleBackend> FeatureBuffers<B> {
    /// Empty buffers, and a cache of the rows `hot` by type.
    pub fn new(store: FeatureStore<B>, hot: &[Vec<u32>]) -> Self {
        let cache = |(t, nodes): (usize, &Vec<u32>)| (!nodes.is_empty()).then(|| store.upload(store.gather(t, nodes)));
        let hot = hot.iter().enumerate().map(cache).collect();
        let empty = |_| RowBuffer::new([0, store.width()], store.dtype(), store.device());
        let buffers = store.node_types().iter().map(empty).collect();
        FeatureBuffers { store, hot, buffers }
    }
}

impl<B: GraphBackend> FeatureBuffers<B> {
    /// Moves the rows of a batch to their slots; the result has a matrix per type. `ids` are the lists of the
    /// deliveries, `rank` is who asks others for rows.
    ///
    /// # Errors
    /// A rank that fails.
    ///
    /// # Panics
    /// Without a rank where ranks have the rows.
    pub fn update(
        &mut self,
        deliveries: Deliveries,
        ids: &mut impl Iterator<Item = RowIds<B>>,
        rank: Option<&Communicator<B::Plain>>,
    ) -> Result<Vec<Tensor<B, 2>>> {
        let Deliveries { of_type: deliveries, request } = deliveries;
        let (store, hot) = (&self.store, &self.hot);
        let answer = match store.part().zip(request) {
            Some((part, request)) => {
                let rank = rank.unwrap_or_else(|| panic!("Loader: divided features: expected a rank, got none"));
                Some(RowSource::Device(part.fetch(request, rank).map_err(failed)?))
            }
            None => None,
        };
        let source = answer.as_ref().or(store.source());
        let mut next = || ids.next().unwrap_or_else(|| unreachable!("every list comes back"));
        let of_type = |(t, (buffer, delivery)): (usize, (&mut RowBuffer<B>, Delivery))| {
            let [(from, to), copies, (fetch_from, fetch_to)] = [(); 3].map(|()| (next(), next()));
            // Rows move within what both sizes of the buffer have.
            let held = buffer.capacity();
            if delivery.capacity > held {
                buffer.resize(delivery.capacity, held);
            }
            buffer.shift_ids(from, to);
            if delivery.capacity < held {
                buffer.resize(delivery.capacity, delivery.capacity);
            }
            if let Some(cache) = hot[t].as_ref().filter(|_| !copies.0.is_empty()) {
                buffer.put_ids(cache.clone(), Some(copies.0), copies.1);
            }
            if !fetch_to.is_empty() {
                match (delivery.gathered, source) {
                    (Some(rows), _) => buffer.put_ids(store.upload(rows), None, fetch_to),
                    (None, Some(RowSource::Pinned(rows))) => buffer.fetch(rows, &fetch_from, &fetch_to),
                    (None, Some(RowSource::Device(rows))) => buffer.put_ids(rows.clone(), Some(fetch_from), fetch_to),
                    (None, None) => unreachable!("what is not gathered is read by the device"),
                }
            }
            buffer.rows(delivery.rows)
        };
        Ok(self.buffers.iter_mut().zip(deliveries).enumerate().map(of_type).collect())
    }
}
