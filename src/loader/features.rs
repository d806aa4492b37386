//! The feature rows of the batch at hand, on the device.

use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{RowBuffer, RowBufferBackend};
use rayon::prelude::*;

use super::store::FeatureStore;
use super::window::{Update, Window};
use crate::error::Result;

/// What goes into the buffer of one node type.
#[derive(Debug)]
pub(super) struct Delivery {
    pub update: Update,
    /// Rows of the batch.
    pub rows: usize,
    /// The fetched rows, in the order of the fetches.
    pub fetched: TensorData,
}

/// The windows of all node types: the half of a loader that lives on the host.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    of_type: Vec<Window>,
    keeps: bool,
}

impl Windows {
    /// Windows of types of so many nodes; `hot` lists the rows of the cache by type, and without `keeps` a batch keeps nothing of
    /// the one before.
    pub fn new(counts: &[usize], hot: &[Vec<u32>], keeps: bool) -> Result<Self> {
        let of_type =
            counts.iter().zip(hot).map(|(&count, hot)| Window::new(count).with_hot(hot)).collect::<Result<_>>()?;
        Ok(Windows { of_type, keeps })
    }

    /// Goes on to a batch and gathers what has to be fetched for it.
    pub fn advance<B: RowBufferBackend>(
        &mut self,
        store: &FeatureStore<B>,
        nodes: &[Vec<u32>],
    ) -> Result<Vec<Delivery>> {
        let mut deliveries = Vec::with_capacity(nodes.len());
        for (t, (window, nodes)) in self.of_type.iter_mut().zip(nodes).enumerate() {
            if !self.keeps {
                window.forget();
            }
            let update = window.advance(nodes)?;
            let fetched = store.gather(t, update.fetches.par_iter().map(|&(node, _)| node));
            deliveries.push(Delivery { update, rows: nodes.len(), fetched });
        }
        Ok(deliveries)
    }

    /// `[type]`: the node of every slot.
    pub fn slot_to_node(&self) -> Vec<Vec<u32>> {
        self.of_type.iter().map(|window| window.slot_to_node().to_vec()).collect()
    }

    /// The slot of every node of the batch.
    pub fn slots(&self, nodes: &[Vec<u32>]) -> Vec<Vec<u32>> {
        let slot = |window: &Window, node: u32| {
            window.slot_of(node).unwrap_or_else(|| unreachable!("every node of the batch has a slot"))
        };
        let of_type = |(window, nodes): (&Window, &Vec<u32>)| nodes.iter().map(|&node| slot(window, node)).collect();
        self.of_type.iter().zip(nodes).map(of_type).collect()
    }
}

/// The buffers of all node types: the half of a loader that lives on the device.
pub struct FeatureBuffers<B: RowBufferBackend> {
    store: FeatureStore<B>,
    /// `[type]`: the rows of the hot cache.
    hot: Vec<Option<Tensor<B, 2>>>,
    buffers: Vec<RowBuffer<B>>,
}

impl<B: RowBufferBackend> FeatureBuffers<B> {
    /// Empty buffers, and a cache of the rows `hot` by type.
    pub(super) fn new(store: FeatureStore<B>, hot: &[Vec<u32>]) -> Self {
        let cache = |(t, nodes): (usize, &Vec<u32>)| {
            (!nodes.is_empty()).then(|| store.upload(store.gather(t, nodes.par_iter().copied())))
        };
        let hot = hot.iter().enumerate().map(cache).collect();
        let empty = |_| RowBuffer::new([0, store.width()], store.dtype(), store.device());
        let buffers = store.node_types().iter().map(empty).collect();
        FeatureBuffers { store, hot, buffers }
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.store.row_bytes()
    }

    /// Bytes of the buffers and of the cache.
    pub fn bytes(&self) -> usize {
        let cached = |rows: &Tensor<B, 2>| rows.dims()[0] * self.store.row_bytes();
        self.buffers.iter().map(RowBuffer::bytes).sum::<usize>() + self.hot.iter().flatten().map(cached).sum::<usize>()
    }

    /// Moves the rows of a batch to their slots; the result has a matrix per type.
    pub(super) fn update(&mut self, deliveries: Vec<Delivery>) -> Vec<Tensor<B, 2>> {
        let (store, hot) = (&self.store, &self.hot);
        let of_type = |(t, (buffer, delivery)): (usize, (&mut RowBuffer<B>, Delivery))| {
            let Delivery { update, rows, fetched } = delivery;
            // Rows move within what both sizes of the buffer have.
            let held = buffer.capacity();
            if update.capacity > held {
                buffer.resize(update.capacity, held);
            }
            buffer.shift(&update.moves);
            if update.capacity < held {
                buffer.resize(update.capacity, update.capacity);
            }
            if let Some(cache) = hot[t].as_ref().filter(|_| !update.copies.is_empty()) {
                let (from, to): (Vec<u32>, Vec<u32>) = update.copies.into_iter().unzip();
                buffer.put(cache.clone(), Some(&from), &to);
            }
            if !update.fetches.is_empty() {
                let to: Vec<u32> = update.fetches.into_iter().map(|(_, slot)| slot).collect();
                buffer.put(store.upload(fetched), None, &to);
            }
            buffer.rows(rows)
        };
        self.buffers.iter_mut().zip(deliveries).enumerate().map(of_type).collect()
    }
}
