//! A classifier over rows that are divided over ranks.

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::{CollectiveError, Communicator, Dropout, GraphBackend};

use super::{ClassifierSpec, NodeClassifier, NodeLayer, Training, drop_of, pass_of};
use crate::error::Result;
use crate::graph::{Features, HeteroGraph, NodeType, Relation};
use crate::models::graph_part::{Division, GraphPart};
use crate::models::node_input::{BatchRows, NodeInput};

/// What a rank has on its device of a graph and of the features of its nodes.
#[derive(Clone, Debug)]
pub struct ClassifierPart<B: Backend> {
    graph: GraphPart<B>,
    /// By type: the features of the nodes of this rank, and how dropout counts the first of them among those of all.
    own: Vec<NodeInput<B>>,
    first: Vec<usize>,
    /// By type: the features of all nodes, where layers read them unprojected.
    all: Option<Vec<NodeInput<B>>>,
    /// Of all nodes, see [`BatchRows`].
    degree: Option<Tensor<B, 2>>,
    neighbours: Option<Tensor<B, 2>>,
    /// Of wavelets, by relation: in-degrees of all nodes.
    in_degrees: Vec<Tensor<B, 1>>,
}

impl<B: GraphBackend> ClassifierPart<B> {
    /// Uploads the part of a rank. `graph` is that of blocks, see
    /// [`graph_of_blocks`](crate::infer::sampled_input::graph_of_blocks).
    ///
    /// # Errors
    /// Relations or features that do not fit what the kernels can index or `dtype` can hold.
    pub fn upload(
        spec: &ClassifierSpec,
        graph: &HeteroGraph,
        (rank, division): (usize, Division),
        features: &Features,
        dtype: DType,
        device: &B::Device,
    ) -> Result<Self> {
        let upload = |types: &[NodeType]| NodeInput::<B>::upload(types, features, spec.row_normalise, dtype, device);
        let of_rank = |(t, of): (usize, &NodeType)| {
            let own = division.nodes(t, rank);
            NodeType { name: of.name.clone(), offset: of.offset + own.start, count: own.len() }
        };
        let types: Vec<NodeType> = graph.node_types().iter().enumerate().map(of_rank).collect();
        let own = upload(&types)?;
        let behind = own.iter().zip(graph.node_types().iter().zip(&types));
        let first = behind
            .map(|(own, (all, of_rank))| own.first_behind(features, spec.row_normalise, all.offset..of_rank.offset))
            .collect();
        let reads_all = spec.has_own() && spec.order.is_none();
        let all = reads_all.then(|| upload(graph.node_types())).transpose()?;
        let column = |values: Vec<f32>| {
            let shape = [values.len(), 1];
            Tensor::<B, 2>::from_data(TensorData::new(values, shape), device)
        };
        let in_degrees = |relation: &Relation| {
            let degrees = (0..relation.forward.num_rows()).map(|node| relation.forward.degree(node) as f32);
            column(degrees.collect()).reshape([relation.forward.num_rows()])
        };
        let wavelets = graph.relations().iter().filter(|_| spec.order.is_some());
        let in_degrees = wavelets.map(in_degrees).collect();
        let (mut degree, mut neighbours) = (None, None);
        if !spec.has_own() && spec.attention.is_none() && spec.order.is_none() {
            let relation = &graph.relations()[0];
            let (adjacency, nodes) = (&relation.forward, 0..relation.forward.num_rows());
            let counts: Vec<f32> = nodes.clone().map(|node| adjacency.degree(node) as f32).collect();
            let sums = relation.values.as_ref().map(|weights| {
                let of = |node| weights.values()[adjacency.entries(node)].iter().map(|&weight| f64::from(weight));
                nodes.map(|node| (of(node).sum::<f64>() + 1.0) as f32).collect()
            });
            neighbours = sums.is_some().then(|| column(counts.clone()));
            degree = Some(column(sums.unwrap_or_else(|| counts.iter().map(|count| count + 1.0).collect())));
        }
        let graph = GraphPart::upload(graph, division, rank, device)?;
        let graph = if spec.attention.is_some() { graph.with_values_in(dtype) } else { graph };
        Ok(Self { graph, own, first, all, degree, neighbours, in_degrees })
    }

    /// The nodes of this rank, and the edges into them.
    pub fn graph(&self) -> &GraphPart<B> {
        &self.graph
    }

    /// Edges into the nodes of this rank.
    pub fn num_edges(&self) -> usize {
        self.graph.num_edges()
    }
}

impl<B: GraphBackend> ClassifierPart<Autodiff<B>> {
    /// The same arrays for passes that record nothing.
    pub fn inner(&self) -> ClassifierPart<B> {
        let inputs = |x: &Vec<NodeInput<Autodiff<B>>>| x.iter().map(NodeInput::inner).collect();
        ClassifierPart {
            graph: self.graph.inner(),
            own: inputs(&self.own),
            first: self.first.clone(),
            all: self.all.as_ref().map(inputs),
            degree: self.degree.clone().map(Tensor::inner),
            neighbours: self.neighbours.clone().map(Tensor::inner),
            in_degrees: self.in_degrees.iter().cloned().map(Tensor::inner).collect(),
        }
    }
}

impl<B: GraphBackend> NodeClassifier<B> {
    /// Logits `[nodes, classes]` of all nodes on every rank, those of one rank behind those of another: the logits of
    /// [`NodeClassifier::forward`], which drops the same. On one node type with one relation every rank projects its
    /// own rows before they are gathered.
    ///
    /// # Errors
    /// A rank that fails.
    pub fn forward_divided(
        &self,
        part: &ClassifierPart<B>,
        training: Training,
        rank: &Communicator<B::Plain>,
    ) -> Result<Tensor<B, 2>, CollectiveError> {
        let from = |drop: Option<Dropout>, first: usize| drop.map(|drop| drop.with_bases(first as u32, 0));
        let (mut own, mut gathered, mut joined) = (part.own.clone(), Vec::new(), Vec::new());
        for (at, layer) in self.layers.iter().enumerate() {
            let block = part.graph.block(at, |_, _| None);
            let first = |t: usize| if at == 0 { part.first[t] } else { part.graph.own(t).start };
            let dropped = |(t, x): (usize, NodeInput<B>)| x.dropped(from(drop_of(at, t, training), first(t)));
            own = own.into_iter().enumerate().map(dropped).collect();
            let y: Vec<Tensor<B, 2>> = match layer {
                NodeLayer::Gcn(_) | NodeLayer::Gat(_) => {
                    let projected = own.into_iter().map(|x| self.projected(at, x)).collect();
                    gathered = part.graph.gathered(projected, &gathered, rank)?;
                    let (degree, neighbours) = (part.degree.clone(), part.neighbours.clone());
                    self.propagate(at, &block, BatchRows { x: gathered.clone(), degree, neighbours }, training).x
                }
                NodeLayer::Typed(layer) => {
                    let all: Vec<NodeInput<B>> = match part.all.as_ref().filter(|_| at == 0) {
                        Some(all) => {
                            let all = all.iter().cloned().enumerate();
                            all.map(|(t, x)| x.dropped(drop_of(at, t, training))).collect()
                        }
                        None => {
                            let rows = own.iter().cloned().map(NodeInput::dense).collect();
                            gathered = part.graph.gathered(rows, &gathered, rank)?;
                            gathered.iter().cloned().map(NodeInput::Dense).collect()
                        }
                    };
                    let y = layer.forward_to(&block, (&all, &own), self.edges.get(at), pass_of(at, training));
                    y.into_iter().map(|y| self.activate(at, y)).collect()
                }
                NodeLayer::Dense(layer) => vec![self.activate(at, layer.of(&own[0]))],
                NodeLayer::Wavelets(layer) => {
                    let y = layer.forward_part(&block, &part.in_degrees, &own.swap_remove(0).dense(), |rows| {
                        gathered = part.graph.gathered(vec![rows], &gathered, rank)?;
                        Ok(gathered[0].clone())
                    })?;
                    vec![self.activate(at, y)]
                }
            };
            joined = self.joined(joined, |_, before| before, &y);
            own = y.into_iter().map(NodeInput::Dense).collect();
        }
        let last = if self.head.is_some() { joined } else { own.into_iter().map(NodeInput::dense).collect() };
        let read_out = |(t, h): (usize, Tensor<B, 2>)| match &self.head {
            Some(head) if h.dims()[0] > 0 => {
                let drop = from(drop_of(self.layers.len(), 0, training), part.graph.first_id(t));
                head.of(&NodeInput::Dense(h).dropped(drop))
            }
            _ => h,
        };
        let logits = last.into_iter().enumerate().map(read_out).collect();
        part.graph.gathered_at_last(logits, &gathered, rank)
    }
}
