//! The laws of a graph layer, whatever it computes.
//!
//! [`assert_graph_layer_laws`] runs a layer on small graphs and panics with the law that it breaks. A layer is a Burn
//! module and a function of it; the laws know nothing else of it.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Tensor, TensorData};
use burn_autodiff::Autodiff;
use burn_flex::Flex;

use super::fixtures::{Fixture, Rng, small_fixtures, values};
use super::gradient::{probe, weighted_sum};
use super::tolerance::{Dtype, relative_error, tolerance};
use crate::graph::csr::Csr;

/// The backend that laws are checked on.
pub type Checked = Autodiff<Flex>;

/// What a layer reads.
#[derive(Clone, Debug)]
pub struct LayerInput {
    /// Rows are destinations.
    pub csr: Csr<Checked>,
    /// `[num_cols, in_channels]`; of all nodes where `dst` is `None`.
    pub src: Tensor<Checked, 2>,
    /// `[num_rows, dst_channels]`, where destinations are nodes of another kind.
    pub dst: Option<Tensor<Checked, 2>>,
    /// `[num_edges, edge_channels]`, where the layer has features of edges.
    pub edges: Option<Tensor<Checked, 2>>,
}

/// What a layer asks for.
#[derive(Clone, Copy, Debug)]
pub struct LayerShape {
    /// Width of the nodes.
    pub in_channels: usize,
    /// Width of destinations of another kind; `None` where the layer knows one kind of nodes only.
    pub dst_channels: Option<usize>,
    /// Width of the features of edges; `None` where the layer has none.
    pub edge_channels: Option<usize>,
}

/// Asserts all laws: the same input gives the same bytes; renaming nodes renames the result; the order of the entries
/// of a row does not matter; nodes without edges have finite results; destinations may be other nodes than sources
/// (where `dst_channels` is given); gradients of features and of every parameter are central differences.
#[track_caller]
pub fn assert_graph_layer_laws<M: Module<Checked>>(
    name: &str,
    module: &M,
    shape: LayerShape,
    layer: impl Fn(&M, LayerInput) -> Tensor<Checked, 2>,
) {
    let layer = Layer { name, module, shape, forward: &layer };
    layer.repeats_itself();
    layer.follows_names_of_nodes();
    layer.ignores_the_order_of_entries();
    layer.is_finite_without_edges();
    layer.takes_two_kinds_of_nodes();
    layer.has_right_gradients();
}

/// A layer under test; every method is a law.
pub struct Layer<'a, M, F> {
    /// Quoted in messages.
    pub name: &'a str,
    pub module: &'a M,
    pub shape: LayerShape,
    pub forward: &'a F,
}

/// An input on the host.
#[derive(Clone)]
struct Case {
    graph: Fixture,
    /// Sources, destinations of another kind, edges; each with its width.
    matrices: [Option<(Vec<f64>, usize)>; 3],
}

const NAMES: [&str; 3] = ["sources", "destinations", "features of edges"];

impl Case {
    fn new(graph: Fixture, shape: LayerShape, two_kinds: bool) -> Self {
        let rows = [graph.num_cols, graph.num_rows, graph.num_edges()];
        let widths = [Some(shape.in_channels), shape.dst_channels.filter(|_| two_kinds), shape.edge_channels];
        let matrix = |k: usize| widths[k].map(|width| (values(40 + k as u64, rows[k] * width), width));
        Self { graph, matrices: [matrix(0), matrix(1), matrix(2)] }
    }

    fn input(&self, track: bool) -> LayerInput {
        let device = Default::default();
        let f = &self.graph;
        let csr = Csr::from_host(&f.row_ptr, &f.col_idx, f.num_cols, &device).expect("a fixture is a graph");
        let tensor = |k: usize| {
            let (values, width) = self.matrices[k].as_ref()?;
            let data = values.iter().map(|&v| v as f32).collect::<Vec<f32>>();
            let shape = [data.len() / width, *width];
            let tensor = Tensor::from_data(TensorData::new(data, shape), &device);
            Some(if track { tensor.require_grad() } else { tensor })
        };
        let src = tensor(0).expect("there are sources");
        LayerInput { csr, src, dst: tensor(1), edges: tensor(2) }
    }

    /// Node `i` becomes `rows[i]` as a destination and `cols[i]` as a source; the entries of a row keep their order
    /// unless `shuffle` is given.
    fn renamed(&self, rows: &[u32], cols: &[u32], mut shuffle: Option<Rng>) -> Self {
        let f = &self.graph;
        let mut entries: Vec<Vec<(u32, usize)>> = vec![Vec::new(); f.num_rows];
        for (e, i, j) in f.edges() {
            entries[rows[i] as usize].push((cols[j], e));
        }
        if let Some(rng) = &mut shuffle {
            for row in &mut entries {
                let order = rng.permutation(row.len());
                *row = order.into_iter().map(|k| row[k as usize]).collect();
            }
        }
        let sources: Vec<Vec<u32>> = entries.iter().map(|row| row.iter().map(|&(j, _)| j).collect()).collect();
        let moved = |k: usize, from: Vec<usize>| {
            let (values, width) = self.matrices[k].as_ref()?;
            Some((from.into_iter().flat_map(|r| values[r * width..(r + 1) * width].to_vec()).collect(), *width))
        };
        let edges = entries.concat().into_iter().map(|(_, e)| e).collect();
        let graph = Fixture::from_rows(&format!("{}, renamed", f.name), f.num_cols, &sources);
        Self { graph, matrices: [moved(0, inverse(cols)), moved(1, inverse(rows)), moved(2, edges)] }
    }
}

fn inverse(permutation: &[u32]) -> Vec<usize> {
    let mut inverse = vec![0; permutation.len()];
    permutation.iter().enumerate().for_each(|(old, &new)| inverse[new as usize] = old);
    inverse
}

fn identity(n: usize) -> Vec<u32> {
    (0..n as u32).collect()
}

/// A graph of six nodes with everything that a graph can have: parallel edges, loops, a node without edges.
fn mixed() -> Fixture {
    let rows: [&[u32]; 6] = [&[1, 4, 2], &[0, 0, 3], &[2, 5], &[], &[4, 1, 4], &[0, 1, 2, 4, 5]];
    Fixture::from_rows("mixed", 6, &rows.map(|row| row.to_vec()))
}

fn two_kinds() -> Fixture {
    Fixture::from_rows("two kinds", 3, &[vec![2, 0], vec![], vec![1, 1, 0], vec![2], vec![0, 1, 2]])
}

impl<M: Module<Checked>, F: Fn(&M, LayerInput) -> Tensor<Checked, 2>> Layer<'_, M, F> {
    fn run(&self, case: &Case) -> (Vec<f32>, [usize; 2]) {
        let out = (self.forward)(self.module, case.input(false));
        let dims = out.dims();
        (out.into_data().into_vec().expect("results are f32"), dims)
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = vec![Case::new(mixed(), self.shape, false)];
        if self.shape.dst_channels.is_some() {
            cases.push(Case::new(two_kinds(), self.shape, true));
        }
        cases
    }

    /// The same input gives the same bytes.
    #[track_caller]
    pub fn repeats_itself(&self) {
        for case in self.cases() {
            let (first, again) = (self.run(&case).0, self.run(&case).0);
            let same = first.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{}: {}: the same input gave another result", self.name, case.graph.name);
        }
    }

    /// The result follows when nodes change places.
    #[track_caller]
    pub fn follows_names_of_nodes(&self) {
        for case in self.cases() {
            let f = &case.graph;
            let rows = Rng::new(5).permutation(f.num_rows);
            let cols = if case.matrices[1].is_some() { Rng::new(6).permutation(f.num_cols) } else { rows.clone() };
            let (want, [_, width]) = self.run(&case);
            let (got, _) = self.run(&case.renamed(&rows, &cols, None));
            let back: Vec<f32> =
                rows.iter().flat_map(|&r| got[r as usize * width..(r as usize + 1) * width].to_vec()).collect();
            self.assert_same(f, "renaming nodes changed the result by", &back, &want);
        }
    }

    /// The order of the entries within a row, which features of edges follow, does not matter.
    #[track_caller]
    pub fn ignores_the_order_of_entries(&self) {
        for case in self.cases() {
            let f = &case.graph;
            let shuffled = case.renamed(&identity(f.num_rows), &identity(f.num_cols), Some(Rng::new(7)));
            assert_ne!(shuffled.graph.col_idx, f.col_idx, "the shuffle moves something");
            let (want, got) = (self.run(&case).0, self.run(&shuffled).0);
            self.assert_same(f, "another order of entries changed the result by", &got, &want);
        }
    }

    /// Nodes without edges, graphs without edges and graphs without nodes have finite results of the right size.
    #[track_caller]
    pub fn is_finite_without_edges(&self) {
        let alone = |n: usize| Fixture::from_rows(&format!("{n} nodes, no edges"), n, &vec![Vec::new(); n]);
        let isolated = small_fixtures().into_iter().filter(|f| f.num_rows == f.num_cols && f.num_rows > 0);
        for f in isolated.chain([mixed(), alone(5)]) {
            self.assert_finite(&Case::new(f, self.shape, false));
        }
    }

    /// Sources and destinations may be different nodes, more of one or of the other.
    #[track_caller]
    pub fn takes_two_kinds_of_nodes(&self) {
        if self.shape.dst_channels.is_none() {
            return;
        }
        let graphs = small_fixtures().into_iter().filter(|f| f.num_rows > 0 && f.num_cols > 0);
        for f in graphs.filter(|f| f.num_rows != f.num_cols) {
            self.assert_finite(&Case::new(f, self.shape, true));
        }
    }

    /// Gradients of features and parameters agree with central differences of the result.
    #[track_caller]
    pub fn has_right_gradients(&self) {
        for case in self.cases() {
            self.check_gradients(&case);
        }
    }

    #[track_caller]
    fn assert_finite(&self, case: &Case) {
        let (out, [rows, width]) = self.run(case);
        let (name, graph) = (self.name, &case.graph.name);
        assert!(rows == case.graph.num_rows, "{name}: {graph}: {rows} rows for {} destinations", case.graph.num_rows);
        if let Some(at) = out.iter().position(|v| !v.is_finite()) {
            panic!("{name}: {graph}: row {} has {}", at / width, out[at]);
        }
    }

    /// Sums over the few entries of these graphs may be taken in any order.
    #[track_caller]
    fn assert_same(&self, f: &Fixture, what: &str, got: &[f32], want: &[f32]) {
        let want: Vec<f64> = want.iter().map(|&v| v.into()).collect();
        let error = relative_error(got, &want);
        assert!(error <= tolerance(Dtype::F32, 1000), "{}: {}: {what} {error:.1e}", self.name, f.name);
    }

    fn loss(&self, module: &M, case: &Case) -> f64 {
        let out = (self.forward)(module, case.input(false)).into_data().into_vec::<f32>().expect("results are f32");
        let out: Vec<f64> = out.into_iter().map(f64::from).collect();
        weighted_sum(&out, &probe(out.len()))
    }

    #[track_caller]
    fn check_gradients(&self, case: &Case) {
        let input = case.input(true);
        let leaves = [Some(input.src.clone()), input.dst.clone(), input.edges.clone()];
        let out = (self.forward)(self.module, input);
        let probe: Vec<f32> = probe(out.dims()[0] * out.dims()[1]).into_iter().map(|v| v as f32).collect();
        let probe = Tensor::from_data(TensorData::new(probe, out.dims()), &out.device());
        let grads = (out * probe).sum().backward();
        let host = |grad: Option<Vec<f32>>, len: usize| grad.unwrap_or_else(|| vec![0.0; len]);
        for (k, leaf) in leaves.into_iter().enumerate() {
            let Some(leaf) = leaf else { continue };
            let len = leaf.dims()[0] * leaf.dims()[1];
            let got = host(leaf.grad(&grads).map(|g| g.into_data().into_vec().expect("gradients are f32")), len);
            self.check_gradient(case, NAMES[k], &got, |at, step| {
                let mut moved = case.clone();
                if let Some((values, _)) = &mut moved.matrices[k] {
                    values[at] += step;
                }
                self.loss(self.module, &moved)
            });
        }
        let mut parameters = Gradients { grads: &grads, found: Vec::new() };
        self.module.visit(&mut parameters);
        for (k, (id, got)) in parameters.found.into_iter().enumerate() {
            self.check_gradient(case, &format!("parameter {k}"), &got, |at, step| {
                let module = self.module.clone().map(&mut Move { id, at, step: step as f32 });
                self.loss(&module, case)
            });
        }
    }

    /// Differences of f32 results are off by the rounding of the results divided by the step, and by a power of the
    /// step; next to a kink only that to the other side is right. A gradient is wrong when it is far from all of them.
    #[track_caller]
    fn check_gradient(&self, case: &Case, of: &str, got: &[f32], loss: impl Fn(usize, f64) -> f64) {
        // From where, to where.
        const STEPS: [[f64; 2]; 4] = [[-2e-2, 2e-2], [-4e-3, 4e-3], [0.0, 2e-3], [-2e-3, 0.0]];
        let difference = |at: usize, [from, to]: [f64; 2]| (loss(at, to) - loss(at, from)) / (to - from);
        let differences: Vec<[f64; 4]> = (0..got.len()).map(|at| STEPS.map(|step| difference(at, step))).collect();
        let scale = differences.iter().fold(0.1, |scale: f64, d| scale.max(d[1].abs()));
        for (at, (&got, want)) in got.iter().zip(&differences).enumerate() {
            let close = want.iter().any(|want| (f64::from(got) - want).abs() <= 1e-2 * scale);
            let (name, graph) = (self.name, &case.graph.name);
            assert!(close, "{name}: {graph}: gradient of {of} at {at}: got {got}, differences are {want:.4?}");
        }
    }
}

/// Reads the gradients of parameters.
struct Gradients<'a> {
    grads: &'a <Checked as burn::tensor::backend::AutodiffBackend>::Gradients,
    found: Vec<(ParamId, Vec<f32>)>,
}

impl ModuleVisitor<Checked> for Gradients<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Checked, D>>) {
        let value = param.val();
        let grad = value.grad(self.grads).map(|g| g.into_data().into_vec().expect("gradients are f32"));
        self.found.push((param.id, grad.unwrap_or_else(|| vec![0.0; value.shape().num_elements()])));
    }
}

/// Moves one element of one parameter.
struct Move {
    id: ParamId,
    at: usize,
    step: f32,
}

impl ModuleMapper<Checked> for Move {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<Checked, D>>) -> Param<Tensor<Checked, D>> {
        let (id, tensor, mapper) = param.consume();
        if id != self.id {
            return Param::from_mapped_value(id, tensor, mapper);
        }
        let (shape, device) = (tensor.dims(), tensor.device());
        let mut values: Vec<f32> = tensor.into_data().into_vec().expect("parameters are f32");
        values[self.at] += self.step;
        let tensor = Tensor::from_data(TensorData::new(values, shape), &device).require_grad();
        Param::from_mapped_value(id, tensor, mapper)
    }
}

#[cfg(test)]
mod tests;
