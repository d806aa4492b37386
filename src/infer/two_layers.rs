//! Networks of two layers over a part, with the rows between the layers that are kept.

use burn::tensor::{DType, Tensor};
use graphsieve_kernels::{GraphBackend, NodeSet, download};

use crate::error::Result;
use crate::graph::{Features, NodeType};
use crate::live::{Layer, MadeRows, Part};
use crate::models::device_graph::upload_features;
use crate::models::receptive_field::{Nodes, ReceptiveField};

/// A pass for some nodes of a part, of which no more is computed than they need.
pub struct TwoLayers<'a> {
    part: &'a Part,
    /// Under what the rows behind the first layer are kept, where they are.
    layer: Option<Layer>,
    /// The nodes, and these with what leads to them, in ascending order.
    wanted: &'a [u32],
    hidden: Vec<u32>,
}

impl<'a> TwoLayers<'a> {
    /// For the nodes `wanted` in ascending order, at least one.
    pub fn new(part: &'a Part, layer: Option<Layer>, wanted: &'a [u32]) -> Self {
        Self { part, layer: layer.filter(|_| !part.made.is_empty()), wanted, hidden: part.around(wanted, 1) }
    }

    /// The result of the wanted nodes by type: `first` and `second` make the rows that a field wants. Rows that are
    /// kept come from a part in which the node had the same around it, and a row is the same to the bit in any company.
    ///
    /// # Errors
    /// Rows that do not fit the data type.
    pub fn pass<B: GraphBackend>(
        &self,
        (dtype, device): (DType, &B::Device),
        first: impl FnOnce(&ReceptiveField<B>) -> Vec<Tensor<B, 2>>,
        second: impl FnOnce(&ReceptiveField<B>, &[Tensor<B, 2>]) -> Vec<Tensor<B, 2>>,
    ) -> Result<Vec<Tensor<B, 2>>> {
        let kept = |node: u32| self.part.made.get(&node)?.get(self.layer?);
        let new: Vec<u32> = self.hidden.iter().copied().filter(|&node| kept(node).is_none()).collect();
        let made = if new.is_empty() { Vec::new() } else { first(&self.field([&new, self.wanted], device)) };
        let field = self.field([&self.hidden, self.wanted], device);
        let Some(layer) = self.layer else { return Ok(second(&field, &made)) };
        let values = download(made.clone());
        let width = match new.len() {
            0 => self.hidden.first().and_then(|&node| kept(node)).map_or(0, <[f32]>::len),
            rows => values.len() / rows,
        };
        for (node, row) in new.iter().zip(values.chunks_exact(width.max(1))) {
            self.part.made.get(node).into_iter().for_each(|rows: &MadeRows| rows.put(layer, row));
        }
        if new.len() == self.hidden.len() {
            return Ok(second(&field, &made));
        }
        let (mut rows, mut of_new) = (Vec::with_capacity(self.hidden.len() * width), values.chunks_exact(width));
        let mut left = new.iter().copied().peekable();
        for &node in &self.hidden {
            let own = if left.next_if_eq(&node).is_some() { of_new.next() } else { kept(node) };
            rows.extend_from_slice(own.unwrap_or_default());
        }
        let rows = Features::from_f32(rows, self.hidden.len(), width);
        let of_types = by_type(self.types(), &self.hidden).into_iter().zip(self.types());
        let types = of_types.scan(0, |offset, (nodes, of)| {
            let of = NodeType { offset: *offset, count: nodes.len(), ..of.clone() };
            *offset += nodes.len();
            Some(of)
        });
        let h = upload_features(&types.collect::<Vec<_>>(), &rows, dtype, device)?;
        Ok(second(&field, &h))
    }

    fn types(&self) -> &[NodeType] {
        self.part.dataset.graph.node_types()
    }

    /// All nodes before the first layer, and these behind the layers.
    fn field<B: GraphBackend>(&self, [hidden, wanted]: [&[u32]; 2], device: &B::Device) -> ReceptiveField<B> {
        let sets = |nodes: &[u32]| -> Nodes<B> {
            let of_types = by_type(self.types(), nodes).into_iter().zip(self.types());
            of_types.map(|(nodes, of)| Some(NodeSet::new(&nodes, of.count, device))).collect()
        };
        ReceptiveField { levels: [vec![None; self.types().len()], sets(hidden), sets(wanted)] }
    }
}

/// Nodes in ascending order of their global ids by type, numbered within it.
pub fn by_type(types: &[NodeType], nodes: &[u32]) -> Vec<Vec<u32>> {
    let of_type = |t: &NodeType| {
        let [first, end] = [t.offset, t.offset + t.count].map(|id| nodes.partition_point(|&node| (node as usize) < id));
        nodes[first..end].iter().map(|&node| node - t.offset as u32).collect()
    };
    types.iter().map(of_type).collect()
}
