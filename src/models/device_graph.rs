//! A typed graph on a device.

use std::any::Any;
use std::sync::Arc;

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Element, Int, Tensor};
use burn_flex::FlexDevice;
use bytemuck::Pod;
use graphsieve_kernels::device::{self, Failure};
use graphsieve_kernels::{Age, Csr, CsrArrays, CsrError, DropEdge, EdgeRows, upload as upload_array};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::graph::{Adjacency, Ages, FeatureValues, Features, HeteroGraph, NodeType, Relation, Rows};
use crate::nn::{
    Block, KeptRows, RelationEdges, ages_between, edge_ages, edge_values, edge_weights, inner_age, node_times,
};

/// The relations of a [`HeteroGraph`] as device adjacencies. A relation and its reverse share their arrays.
#[derive(Clone, Debug)]
pub struct DeviceGraph<B: Backend> {
    pub node_types: Vec<NodeType>,
    /// Weight-sharing groups in order of first use.
    pub streams: Vec<String>,
    /// Those with nodes at both ends.
    pub relations: Vec<DeviceRelation<B>>,
    /// The type that every relation of the graph on the host points at, and its stream.
    pub(super) arriving: Arc<[(usize, usize)]>,
    /// For every node type the number of distinct streams into it, those without any node at the other end included.
    pub streams_into: Arc<[usize]>,
}

/// One relation on the device.
#[derive(Clone, Debug)]
pub struct DeviceRelation<B: Backend> {
    /// Index of the source's node type.
    pub src: usize,
    /// Index of the destination's node type.
    pub dst: usize,
    /// Index into [`DeviceGraph::streams`].
    pub stream: usize,
    /// Rows are destinations, entries are sources, both local to their types.
    pub csr: Csr<B>,
    /// Index of the relation in the graph on the host.
    pub id: usize,
    /// Values of the edges, a row per entry, where the graph has any; f32 unless asked for in another data type.
    pub values: Option<EdgeRows<B>>,
    /// Ages of the edges in seconds, where the graph has any.
    pub age: Option<Age<B>>,
}

impl<B: Backend> DeviceRelation<B> {
    /// Its edges in a layer: those of `csr`, a part of its own, less what `drop_edge` leaves out.
    pub fn edges(&self, csr: Csr<B>, drop_edge: Option<DropEdge>) -> RelationEdges<B> {
        RelationEdges {
            relation: self.id,
            src: self.src,
            dst: self.dst,
            stream: self.stream,
            csr,
            drop_edge,
            values: self.values.clone(),
            age: self.age.clone(),
        }
    }

    /// The values of edges that have one each as weights, `[num_edges]`; none where there are no edges, of which a sum
    /// is the same either way. They are constants that nothing was computed for, so that gradients are added up in the
    /// order in which they are without weights.
    ///
    /// # Panics
    /// For edges with several values.
    pub fn weights(&self) -> Option<Tensor<B, 1>> {
        let values = self.values.as_ref().map(EdgeRows::tensor).filter(|values| values.dims()[0] > 0);
        edge_weights(values).map(Tensor::detach)
    }
}

/// Fails when the device failed on its own thread, for example for want of memory. Call it after a read, which waits
/// for everything queued before it.
///
/// # Errors
/// [`Error::DeviceFailed`] with the device's own words.
pub fn check_device() -> Result<()> {
    match device::failure() {
        None => Ok(()),
        Some(Failure { reason, kept }) => Err(Error::DeviceFailed { work: "of this run", reason, kept }),
    }
}

impl<B: Backend> DeviceGraph<B> {
    /// Uploads every adjacency once. Relations with a node type that has no nodes are left out.
    ///
    /// # Errors
    /// [`Error::Data`] when a relation does not fit what the kernels can index.
    pub fn upload(graph: &HeteroGraph, device: &B::Device) -> Result<Self> {
        Self::with_csrs(graph, device, upload::<B>)
    }

    /// The same for passes that no gradient follows: reverses are made where they are asked for after all.
    ///
    /// # Errors
    /// As for [`upload`](Self::upload).
    pub fn one_way(graph: &HeteroGraph, device: &B::Device) -> Result<Self> {
        Self::with_csrs(graph, device, |relation, device| match relation.forward.rows() {
            Rows::Lists { row_ptr } => {
                let (col_idx, num_cols) = (relation.forward.col_idx(), relation.forward.num_cols());
                let arrays = CsrArrays::one_way(row_ptr, col_idx, num_cols);
                arrays.map(|arrays| arrays.upload(device)).map_err(|problem| refused(relation, &problem))
            }
            Rows::Spans { .. } => upload(relation, device),
        })
    }

    fn with_csrs(
        graph: &HeteroGraph,
        device: &B::Device,
        csr_of: impl Fn(&Relation, &B::Device) -> Result<Csr<B>>,
    ) -> Result<Self> {
        let streams: Vec<String> = graph.streams().into_iter().map(String::from).collect();
        let arriving = arriving(graph, &streams);
        let mut uploaded: Vec<(Arc<Adjacency>, Csr<B>)> = Vec::new();
        let mut relations = Vec::new();
        let times: Vec<Option<Tensor<B, 1, Int>>> =
            (0..graph.node_types().len()).map(|t| Some(node_times(graph.times_of(t)?, device))).collect();
        for (id, relation) in graph.relations().iter().enumerate() {
            if relation.forward.num_rows() == 0 || relation.forward.num_cols() == 0 {
                continue;
            }
            // The partner's upload holds these arrays already, rows and columns exchanged.
            let partner = uploaded.iter().find(|(reverse, _)| Arc::ptr_eq(reverse, &relation.forward));
            let csr = match partner {
                Some((_, csr)) if !relation.is_symmetric() => csr.reverse(),
                _ => csr_of(relation, device)?,
            };
            uploaded.push((relation.reverse.clone(), csr.clone()));
            let stream = arriving[id].1;
            let values = relation.values.as_deref().map(|values| EdgeRows::kept(&csr, edge_values(values, device)));
            let age = match &relation.ages {
                Some(Ages::Edges(ages)) => Some(edge_ages(ages, device)),
                Some(Ages::Nodes) => ages_between([&times[relation.dst], &times[relation.src]]),
                None => None,
            };
            relations.push(DeviceRelation { src: relation.src, dst: relation.dst, stream, csr, id, values, age });
        }
        let streams_into = graph.streams_into().into();
        Ok(Self { node_types: graph.node_types().to_vec(), streams, relations, arriving, streams_into })
    }

    /// The relations into a type in the order of the host's graph: the stream of each, and what the device has of it,
    /// which is nothing where the type at its other end has no nodes.
    pub fn relations_into(
        &self,
        node_type: usize,
    ) -> impl Iterator<Item = (usize, Option<&DeviceRelation<B>>)> + Clone {
        let into = self.arriving.iter().enumerate().filter(move |(_, (dst, _))| *dst == node_type);
        into.map(move |(id, &(_, stream))| (stream, self.relations.iter().find(|relation| relation.id == id)))
    }

    /// A layer over all nodes and edges.
    pub fn whole(&self) -> Block<B> {
        let edges = self.relations.iter().map(|relation| relation.edges(relation.csr.clone(), None));
        let all = |t: &NodeType| KeptRows::Selected { before: None, after: None, of: t.count };
        Block {
            edges: edges.collect(),
            kept: self.node_types.iter().map(all).collect(),
            streams_into: self.streams_into.clone(),
            reads_data: false,
        }
    }

    /// The same graph, whose edges have their values in the data type of the rows that attention reads beside them.
    pub fn with_values_in(mut self, dtype: DType) -> Self {
        for DeviceRelation { csr, values, .. } in &mut self.relations {
            if let Some(given) = values.take_if(|values| values.tensor().dtype() != dtype) {
                let given = given.tensor();
                let cast = match given.dims() {
                    // No device takes a launch over nothing.
                    [0, width] => Tensor::empty([0, width], (&given.device(), dtype)),
                    _ => given.clone().cast(dtype),
                };
                *values = Some(EdgeRows::kept(csr, cast));
            }
        }
        self
    }

    /// Entries of all relations: the edges that one layer visits.
    pub fn num_edges(&self) -> usize {
        self.relations.iter().map(|r| r.csr.num_edges()).sum()
    }
}

impl<B: Backend> DeviceGraph<Autodiff<B>> {
    /// The same arrays for passes that record nothing.
    pub fn inner(&self) -> DeviceGraph<B> {
        let relation = |r: &DeviceRelation<Autodiff<B>>| DeviceRelation {
            src: r.src,
            dst: r.dst,
            stream: r.stream,
            csr: r.csr.clone().inner(),
            id: r.id,
            values: r.values.clone().map(EdgeRows::inner),
            age: r.age.clone().map(inner_age),
        };
        DeviceGraph {
            node_types: self.node_types.clone(),
            streams: self.streams.clone(),
            relations: self.relations.iter().map(relation).collect(),
            arriving: self.arriving.clone(),
            streams_into: self.streams_into.clone(),
        }
    }
}

/// What [`DeviceGraph::arriving`] has of a graph with these streams.
pub(super) fn arriving(graph: &HeteroGraph, streams: &[String]) -> Arc<[(usize, usize)]> {
    let stream = |of: &Relation| streams.iter().position(|stream| *stream == of.stream).unwrap_or_default();
    graph.relations().iter().map(|relation| (relation.dst, stream(relation))).collect()
}

/// Uploads an adjacency; the kernels make its reverse.
///
/// # Errors
/// When it does not fit what they can index.
pub fn csr<B: Backend>(adjacency: &Adjacency, device: &B::Device) -> Result<Csr<B>, CsrError> {
    let (col_idx, num_cols) = (adjacency.col_idx(), adjacency.num_cols());
    match adjacency.rows() {
        Rows::Lists { row_ptr } => Csr::from_host(row_ptr, col_idx, num_cols, device),
        Rows::Spans { start, end } => Csr::from_spans(start, &end, col_idx, num_cols, device),
    }
}

/// Uploads one relation.
///
/// # Errors
/// [`Error::Data`] when it does not fit what the kernels can index.
pub fn upload<B: Backend>(relation: &Relation, device: &B::Device) -> Result<Csr<B>> {
    let (forward, reverse) = (&relation.forward, &relation.reverse);
    let csr = match (forward.rows(), reverse.rows()) {
        (Rows::Lists { row_ptr }, _) if relation.is_symmetric() => {
            Csr::from_host_symmetric(row_ptr, forward.col_idx(), device)
        }
        (Rows::Lists { row_ptr }, Rows::Lists { row_ptr: reverse_ptr }) => {
            Csr::from_host_with_reverse((row_ptr, forward.col_idx()), (reverse_ptr, reverse.col_idx()), device)
        }
        _ => csr(forward, device),
    };
    csr.map_err(|problem| refused(relation, &problem))
}

/// The error of a relation that the kernels refused.
pub fn refused(relation: &Relation, problem: &CsrError) -> Error {
    Error::Data {
        what: format!("relation {}", relation.name),
        expected: "an adjacency that the kernels can index".into(),
        found: problem.to_string(),
        help: "split the graph".into(),
    }
}

/// Uploads a host matrix `[rows, width]`, one tensor per node type, stored as `dtype`.
pub fn upload_by_type<B: Backend>(
    node_types: &[NodeType],
    width: usize,
    dtype: DType,
    device: &B::Device,
    value: &(dyn Fn(usize) -> f32 + Sync),
) -> Vec<Tensor<B, 2>> {
    let of_type = |t: &NodeType| {
        let (start, shape) = (t.offset * width, [t.count, width]);
        match dtype {
            DType::F16 => upload_array(shape, device, |first, to| fill(to, start + first, value, f16::from_f32)),
            DType::BF16 => upload_array(shape, device, |first, to| fill(to, start + first, value, bf16::from_f32)),
            _ => upload_array(shape, device, |first, to| fill(to, start + first, value, |value| value)),
        }
    };
    node_types.iter().map(of_type).collect()
}

/// Writes the values from `first` on. Compiled once, not for every backend and every matrix.
fn fill<E>(to: &mut [E], first: usize, value: &(dyn Fn(usize) -> f32 + Sync), convert: fn(f32) -> E) {
    to.iter_mut().zip(first..).for_each(|(to, at)| *to = convert(value(at)));
}

/// Values that are widened on the host: a device takes longer to begin with so few.
const FEW: usize = 1 << 20;

/// Whether the device is the processor, whose backend widens on one thread.
fn is_processor<B: Backend>(device: &B::Device) -> bool {
    (device as &dyn Any).is::<FlexDevice>()
}

/// Uploads the features of all nodes, one tensor per node type, stored as `dtype`.
///
/// # Errors
/// [`Error::Data`] for a number that f16 does not hold, where that is asked for.
pub fn upload_features<B: Backend>(
    node_types: &[NodeType],
    features: &Features,
    dtype: DType,
    device: &B::Device,
) -> Result<Vec<Tensor<B, 2>>> {
    let width = features.dim();
    match features.values() {
        FeatureValues::Half(values) if dtype == DType::F32 && (values.len() <= FEW || is_processor::<B>(device)) => {
            let of_type = |t: &NodeType| {
                let part = &values[t.offset * width..(t.offset + t.count) * width];
                upload_array([t.count, width], device, |first, to: &mut [f32]| {
                    part[first..][..to.len()].convert_to_f32_slice(to);
                })
            };
            Ok(node_types.iter().map(of_type).collect())
        }
        FeatureValues::Half(values) if B::supports_dtype(device, DType::F16) => {
            Ok(upload_as_stored(node_types, width, dtype, device, values))
        }
        FeatureValues::Half(values) => Ok(upload_by_type(node_types, width, dtype, device, &|k| values[k].to_f32())),
        FeatureValues::Single(values) if dtype == DType::F32 => {
            Ok(upload_as_stored(node_types, width, dtype, device, values))
        }
        FeatureValues::Single(values) => {
            check_range(features, dtype)?;
            Ok(upload_by_type(node_types, width, dtype, device, &|k| values[k]))
        }
    }
}

/// Fails for features that f16 does not hold, where that is how they are stored.
///
/// # Errors
/// [`Error::Data`] with the row and column of the first.
pub fn check_range(features: &Features, dtype: DType) -> Result<()> {
    let (FeatureValues::Single(values), DType::F16) = (features.values(), dtype) else { return Ok(()) };
    match values.par_iter().position_first(|value| value.abs() > f16::MAX.to_f32()) {
        None => Ok(()),
        Some(at) => Err(Error::Data {
            what: format!("features, row {}, column {}", at / features.dim(), at % features.dim()),
            expected: "at most 65504, the largest number of f16".into(),
            found: values[at].to_string(),
            help: "scale the features, or train with --set train.precision=f32".into(),
        }),
    }
}

/// Uploads a host matrix, one tensor per node type; the device makes it `dtype`.
fn upload_as_stored<B: Backend, E: Element + Pod>(
    node_types: &[NodeType],
    width: usize,
    dtype: DType,
    device: &B::Device,
    values: &[E],
) -> Vec<Tensor<B, 2>> {
    node_types
        .iter()
        .map(|t| {
            let part = &values[t.offset * width..(t.offset + t.count) * width];
            if t.count == 0 {
                return Tensor::empty([0, width], (device, dtype));
            }
            // A file is read here, by several threads.
            let tensor = upload_array::<B, E, 2>([t.count, width], device, |first, to| {
                to.copy_from_slice(&part[first..][..to.len()]);
            });
            if dtype == E::dtype() { tensor } else { tensor.cast(dtype) }
        })
        .collect()
}
