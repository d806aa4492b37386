//! Typed heterogeneous graphs: node types in one global id space, relations between them.

mod ages;
mod edge_values;
mod histories;
mod induced;
mod pairs;
mod rows;
mod two_hops;
mod unlike;

use std::cell::LazyCell;
use std::collections::HashSet;
use std::sync::Arc;

use rayon::prelude::*;

pub use self::ages::Ages;
pub(crate) use self::histories::Histories;
use super::adjacency::Adjacency;
use super::disk::Disk;
use super::edge_values::EdgeMatrix;
use crate::error::{Error, Result};

/// A node type: the global ids `[offset, offset + count)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeType {
    /// Name, unique in the graph.
    pub name: String,
    /// Global id of the first node.
    pub offset: usize,
    /// Number of nodes.
    pub count: usize,
}

/// What sanitising found about the self-loops of a relation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct LoopReport {
    /// Entries equal to their row inside the source type's range (only where source = destination); they are kept.
    pub in_range: usize,
    /// Entries that carried the row's own global id outside the source type's range; they were removed.
    pub removed: usize,
}

impl LoopReport {
    /// Whether the data carried self-loops at all.
    pub fn found(&self) -> bool {
        self.in_range + self.removed > 0
    }
}

/// One relation as it is handed to [`HeteroGraph::new`].
#[derive(Debug, Clone)]
pub struct RelationSpec {
    /// Name and file stem: letters, digits, `_`, `-` and `.`, unique in the graph.
    pub name: String,
    /// Index of the source node type.
    pub src: usize,
    /// Index of the destination node type.
    pub dst: usize,
    /// Weight-sharing group.
    pub stream: String,
    /// Whether loss terms sample edges from this relation.
    pub primary: bool,
    /// In-neighbours of the destination nodes.
    pub adjacency: Adjacency,
}

impl RelationSpec {
    /// A relation in a stream of its own name, from whose edges losses sample.
    pub fn new(name: impl Into<String>, src: usize, dst: usize, adjacency: Adjacency) -> Self {
        let name = name.into();
        Self { stream: name.clone(), name, src, dst, primary: true, adjacency }
    }
}

/// One relation of a [`HeteroGraph`], with both directions at hand.
#[derive(Debug, Clone)]
pub struct Relation {
    /// Name and file stem, e.g. `epu_T`.
    pub name: String,
    /// Index of the source node type.
    pub src: usize,
    /// Index of the destination node type.
    pub dst: usize,
    /// Weight-sharing group, e.g. `pu`; a relation and its reverse share one.
    pub stream: String,
    /// Rows = destination nodes, entries = sources.
    pub forward: Arc<Adjacency>,
    /// Rows = source nodes, entries = destinations. Shared with the `forward` of the relation that is exactly the
    /// reverse, or with this relation's own `forward` when it is symmetric.
    pub reverse: Arc<Adjacency>,
    /// True for one direction of each pair: loss terms sample edges from these.
    pub primary: bool,
    /// Self-loops found and removed.
    pub loops: LoopReport,
    /// Values of the edges, a row per entry of `forward`, where a model was given any.
    pub values: Option<Arc<EdgeMatrix>>,
    /// Weights of the edges, one per entry of `forward`, where a model or a sampler was given any.
    pub weights: Option<Arc<EdgeMatrix>>,
    /// Where ages of the edges come from, where a model was given any.
    pub ages: Option<Ages>,
}

impl Relation {
    /// Whether every edge has its mirror image, so that one array serves both directions.
    pub fn is_symmetric(&self) -> bool {
        Arc::ptr_eq(&self.forward, &self.reverse)
    }
}

/// A graph with one or many node types and relations, on the host.
///
/// Global ids are `u32`; node types lie one behind another. Inside an [`Adjacency`] ids are local to their type:
/// local = global - offset of the type.
#[derive(Debug, Clone)]
pub struct HeteroGraph {
    node_types: Vec<NodeType>,
    relations: Vec<Relation>,
    /// By global id, where a model was given any; see [`times_of`](Self::times_of).
    times: Option<Arc<[i32]>>,
    /// By relation; see [`reverse_of`](Self::reverse_of).
    reverses: Arc<[Option<usize>]>,
}

/// Names, source, destination and stream of the marketplace preset; types are user, product, seller.
const MARKETPLACE: [(&str, usize, usize, &str); 5] =
    [("epu", 1, 0, "pu"), ("epu_T", 0, 1, "pu"), ("eps", 2, 1, "ps"), ("eps_T", 1, 2, "ps"), ("euu", 0, 0, "uu")];
const MARKETPLACE_TYPES: [&str; 3] = ["user", "product", "seller"];

impl HeteroGraph {
    /// Builds a graph of `(name, count)` node types and of relations.
    ///
    /// Each relation's reverse is shared with the relation that holds exactly the same edges the other way round (one
    /// of the same stream first), with itself when it is symmetric, and built otherwise.
    ///
    /// # Errors
    /// [`Error::Data`] for a repeated or unusable name, an unknown node type, more nodes than `u32` can number, or an
    /// adjacency whose shape is not (destination count, source count).
    pub fn new(node_types: Vec<(String, usize)>, relations: Vec<RelationSpec>) -> Result<Self> {
        Self::assemble(node_types, relations, |_| false, None)
    }

    /// Like [`new`](Self::new), and adds `{name}_T` behind every relation that is not symmetric, that no other relation
    /// reverses and for which `one_way(name)` is false: the same stream, not primary.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_reverse_relations(
        node_types: Vec<(String, usize)>,
        relations: Vec<RelationSpec>,
        one_way: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        Self::assemble(node_types, relations, |spec| !one_way(&spec.name), None)
    }

    /// Like [`with_reverse_relations`](Self::with_reverse_relations), with reverses that are sorted on disk, within so
    /// many bytes, where there is one.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Io`].
    pub(crate) fn with_reverse_relations_on(
        node_types: Vec<(String, usize)>,
        relations: Vec<RelationSpec>,
        one_way: impl Fn(&str) -> bool,
        disk: Option<(&Disk, u64)>,
    ) -> Result<Self> {
        Self::assemble(node_types, relations, |spec| !one_way(&spec.name), disk)
    }

    /// The marketplace preset: types user, product, seller; relations `epu` (user <- product), `epu_T`
    /// (product <- user), `eps` (product <- seller), `eps_T` (seller <- product) and `euu` (user <- user, expected to
    /// be symmetric with one self-loop per user); streams `pu`, `ps`, `uu`. The `_T` relations are built by reversing.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn marketplace(
        users: usize,
        products: usize,
        sellers: usize,
        epu: Adjacency,
        eps: Adjacency,
        euu: Adjacency,
    ) -> Result<Self> {
        let types = MARKETPLACE_TYPES.map(String::from).into_iter().zip([users, products, sellers]).collect();
        let given = [(0, epu), (2, eps), (4, euu)].map(|(at, adjacency)| {
            let (name, src, dst, stream) = MARKETPLACE[at];
            RelationSpec { name: name.into(), src, dst, stream: stream.into(), primary: true, adjacency }
        });
        Self::assemble(types, given.into(), |spec| spec.src != spec.dst, None)
    }

    /// Node types in the order of their ids.
    pub fn node_types(&self) -> &[NodeType] {
        &self.node_types
    }

    /// Relations in the order of declaration.
    pub fn relations(&self) -> &[Relation] {
        &self.relations
    }

    /// The relation that is the reverse of another one, given by its place; itself where every edge has its mirror
    /// image. Of a part of a graph ([`with_rows`](Self::with_rows)) that is what they are in the whole.
    pub fn reverse_of(&self, relation: usize) -> Option<usize> {
        self.reverses.get(relation).copied().flatten()
    }

    /// Number of nodes of all types.
    pub fn num_nodes(&self) -> usize {
        self.node_types.last().map_or(0, |last| last.offset + last.count)
    }

    /// Number of edges of all relations, both directions of a pair counted.
    pub fn num_edges(&self) -> usize {
        self.relations.iter().map(|relation| relation.forward.num_edges()).sum()
    }

    /// Index of the node type that a global id belongs to.
    ///
    /// # Panics
    /// When `global` is not below [`num_nodes`](Self::num_nodes).
    pub fn type_of(&self, global: usize) -> usize {
        assert!(global < self.num_nodes(), "node {global} is out of range: there are {} nodes", self.num_nodes());
        self.node_types.partition_point(|node_type| node_type.offset <= global) - 1
    }

    /// Names of the weight-sharing groups in the order of first use.
    pub fn streams(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        self.relations.iter().map(|relation| relation.stream.as_str()).filter(|stream| seen.insert(*stream)).collect()
    }

    /// For every node type the number of distinct streams into it.
    pub fn streams_into(&self) -> Vec<usize> {
        let mut into = vec![HashSet::new(); self.node_types.len()];
        for relation in &self.relations {
            into[relation.dst].insert(relation.stream.as_str());
        }
        into.iter().map(HashSet::len).collect()
    }

    /// By node type, whether a relation into it holds a loop for every node, so that a sum over in-neighbours has the
    /// nodes themselves. The files of the marketplace preset do: its types all count as such, made or read.
    pub fn looped_types(&self) -> Vec<bool> {
        let mut looped = vec![self.is_marketplace(); self.node_types.len()];
        for relation in &self.relations {
            let LoopReport { in_range, removed } = relation.loops;
            looped[relation.dst] |= in_range + removed >= relation.forward.num_rows().max(1);
        }
        looped
    }

    /// Whether node types and relations are those of the marketplace preset.
    pub fn is_marketplace(&self) -> bool {
        self.node_types.iter().map(|t| t.name.as_str()).eq(MARKETPLACE_TYPES)
            && self.relations.iter().map(|r| (r.name.as_str(), r.src, r.dst, r.stream.as_str())).eq(MARKETPLACE)
    }

    /// Records what sanitising removed from a relation's file.
    pub(crate) fn record_removed_loops(&mut self, name: &str, removed: usize) {
        if let Some(relation) = self.relations.iter_mut().find(|relation| relation.name == name) {
            relation.loops.removed = removed;
        }
    }

    fn assemble(
        node_types: Vec<(String, usize)>,
        specs: Vec<RelationSpec>,
        generate_reverse: impl Fn(&RelationSpec) -> bool,
        disk: Option<(&Disk, u64)>,
    ) -> Result<Self> {
        let node_types = lay_out(node_types)?;
        check(&node_types, &specs)?;
        let generate: Vec<bool> = specs.iter().map(generate_reverse).collect();
        let partners = find_partners(&specs);
        let split = |spec: RelationSpec| {
            let RelationSpec { name, src, dst, stream, primary, adjacency } = spec;
            (Arc::new(adjacency), (name, src, dst, stream, primary))
        };
        let (forwards, heads): (Vec<Arc<Adjacency>>, Vec<_>) = specs.into_iter().map(split).unzip();

        let mut relations: Vec<Relation> = Vec::with_capacity(heads.len());
        for (at, (name, src, dst, stream, primary)) in heads.into_iter().enumerate() {
            let forward = forwards[at].clone();
            let reverse = match partners[at] {
                Some(partner) => forwards[partner].clone(),
                None => Arc::new(match disk.filter(|_| !forward.is_spans()) {
                    Some((disk, room)) => forward.reverse_on(disk, room)?,
                    None => forward.reverse(),
                }),
            };
            let in_range = if src == dst { forward.num_loops() } else { 0 };
            let loops = LoopReport { in_range, removed: 0 };
            let generated = (partners[at].is_none() && generate[at]).then(|| Relation {
                name: format!("{name}_T"),
                src: dst,
                dst: src,
                stream: stream.clone(),
                forward: reverse.clone(),
                reverse: forward.clone(),
                primary: false,
                loops,
                values: None,
                weights: None,
                ages: None,
            });
            let (values, weights, ages) = (None, None, None);
            relations.push(Relation {
                name,
                src,
                dst,
                stream,
                forward,
                reverse,
                primary,
                loops,
                values,
                weights,
                ages,
            });
            relations.extend(generated);
        }
        let mut names = HashSet::new();
        if let Some(relation) = relations.iter().find(|relation| !names.insert(relation.name.as_str())) {
            return Err(Error::Data {
                what: "relations".into(),
                expected: "every name once, generated reverse relations included".into(),
                found: format!("`{}` twice", relation.name),
                help: "rename one of them; `{name}_T` is generated for a relation that no other one reverses exactly"
                    .into(),
            });
        }
        let reverse_of =
            |relation: &Relation| relations.iter().position(|other| Arc::ptr_eq(&other.forward, &relation.reverse));
        let reverses = relations.iter().map(reverse_of).collect();
        Ok(Self { node_types, relations, times: None, reverses })
    }
}

/// Gives every node type its offset.
fn lay_out(node_types: Vec<(String, usize)>) -> Result<Vec<NodeType>> {
    let data = |expected: &str, found: String, help: &str| Error::Data {
        what: "node types".into(),
        expected: expected.into(),
        found,
        help: help.into(),
    };
    if node_types.is_empty() {
        return Err(data("at least one", "none".into(), "declare the node types and their counts"));
    }
    let mut names = HashSet::new();
    let mut offset = 0usize;
    let mut laid_out = Vec::with_capacity(node_types.len());
    for (name, count) in &node_types {
        check_name("node type", name)?;
        if !names.insert(name) {
            return Err(data("every name once", format!("`{name}` twice"), "rename one of them"));
        }
        laid_out.push(NodeType { name: name.clone(), offset, count: *count });
        offset = offset.checked_add(*count).filter(|&sum| sum <= u32::MAX as usize).ok_or_else(|| {
            data(
                &format!("at most {} nodes in total", u32::MAX),
                format!("{count} of type `{name}` behind {offset} others"),
                "check the counts; node ids have 32 bits",
            )
        })?;
    }
    Ok(laid_out)
}

/// Names become file names, so they must not leave the directory.
pub(crate) fn check_name(kind: &str, name: &str) -> Result<()> {
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !name.is_empty() && !name.starts_with('.') && name.len() <= 100 && name.chars().all(usable) {
        return Ok(());
    }
    Err(Error::Data {
        what: format!("name of a {kind}"),
        expected: "1 to 100 letters, digits, `_`, `-` and `.`, not starting with `.`".into(),
        found: format!("{name:?}"),
        help: "the name becomes part of file names; choose a plain one".into(),
    })
}

fn check(node_types: &[NodeType], specs: &[RelationSpec]) -> Result<()> {
    for RelationSpec { name, src, dst, stream, adjacency, .. } in specs {
        check_name("relation", name)?;
        check_name("stream", stream)?;
        let node_type = |index: usize| {
            node_types.get(index).ok_or_else(|| Error::Data {
                what: format!("relation `{name}`"),
                expected: format!("node types below {}", node_types.len()),
                found: index.to_string(),
                help: "src and dst are indices into the list of node types".into(),
            })
        };
        let (src, dst) = (node_type(*src)?, node_type(*dst)?);
        if (adjacency.num_rows(), adjacency.num_cols()) != (dst.count, src.count) {
            return Err(Error::Data {
                what: format!("relation `{name}` ({} <- {})", dst.name, src.name),
                expected: format!("{} rows and {} columns, the counts of the two types", dst.count, src.count),
                found: format!("{} rows and {} columns", adjacency.num_rows(), adjacency.num_cols()),
                help: "rows are destination nodes, columns are source nodes".into(),
            });
        }
    }
    Ok(())
}

/// For every relation the one that holds exactly its reverse: itself, one of its stream, or any other.
fn find_partners(specs: &[RelationSpec]) -> Vec<Option<usize>> {
    // Asked for where sizes do not decide: the edges of long spans take long.
    let hashes: Vec<LazyCell<u64, _>> = specs.iter().map(|spec| LazyCell::new(|| spec.adjacency.edge_hash())).collect();
    let reverse_hashes: Vec<LazyCell<u64, _>> =
        specs.iter().map(|spec| LazyCell::new(|| spec.adjacency.reverse_edge_hash())).collect();
    let may_reverse = |at: usize, other: usize| {
        (specs[at].src, specs[at].dst) == (specs[other].dst, specs[other].src)
            && specs[at].adjacency.may_reverse(&specs[other].adjacency)
    };
    let count = specs.len();
    let possible: Vec<bool> =
        (0..count * count).into_par_iter().map(|pair| may_reverse(pair / count, pair % count)).collect();
    let reverses = |at: usize, other: usize| possible[at * count + other] && *hashes[at] == *reverse_hashes[other];
    let partner_of = |at: usize| {
        let candidates = || (0..count).filter(|&other| reverses(at, other));
        let of_stream = || candidates().find(|&other| specs[other].stream == specs[at].stream);
        if reverses(at, at) { Some(at) } else { of_stream().or_else(|| candidates().next()) }
    };
    (0..count).map(partner_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, src: usize, dst: usize, stream: &str, adjacency: Adjacency) -> RelationSpec {
        RelationSpec { name: name.into(), src, dst, stream: stream.into(), primary: true, adjacency }
    }

    fn types(counts: &[(&str, usize)]) -> Vec<(String, usize)> {
        counts.iter().map(|&(name, count)| (name.into(), count)).collect()
    }

    fn marketplace() -> HeteroGraph {
        let epu = Adjacency::from_edges(3, 4, &[(0, 1), (0, 3), (2, 1)]);
        let eps = Adjacency::from_edges(4, 2, &[(0, 1), (3, 0)]);
        let euu = Adjacency::from_edges(3, 3, &[(0, 0), (1, 1), (2, 2), (0, 2), (2, 0)]);
        HeteroGraph::marketplace(3, 4, 2, epu, eps, euu).unwrap()
    }

    #[test]
    fn the_marketplace_has_five_relations_in_three_streams() {
        let graph = marketplace();
        let names: Vec<&str> = graph.relations().iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["epu", "epu_T", "eps", "eps_T", "euu"]);
        assert_eq!(graph.streams(), ["pu", "ps", "uu"]);
        let primary: Vec<bool> = graph.relations().iter().map(|r| r.primary).collect();
        assert_eq!(primary, [true, false, true, false, true]);
        assert_eq!((graph.num_nodes(), graph.num_edges()), (9, 15));
        assert!(graph.is_marketplace());
        assert_eq!(graph.relations()[4].loops, LoopReport { in_range: 3, removed: 0 });
    }

    #[test]
    fn pairs_and_symmetric_relations_share_their_arrays() {
        let graph = marketplace();
        let [epu, epu_t, _, _, euu] = graph.relations() else { panic!("five relations") };
        assert!(Arc::ptr_eq(&epu.reverse, &epu_t.forward) && Arc::ptr_eq(&epu_t.reverse, &epu.forward));
        assert!(euu.is_symmetric() && !epu.is_symmetric());
        assert_eq!(epu_t.forward.row(1), [0, 2]);
    }

    #[test]
    fn type_of_knows_the_borders_and_skips_empty_types() {
        let graph = HeteroGraph::new(types(&[("a", 2), ("none", 0), ("b", 3)]), vec![]).unwrap();
        assert_eq!([0, 1, 2, 4].map(|node| graph.type_of(node)), [0, 0, 2, 2]);
    }

    #[test]
    fn an_existing_reverse_is_found_and_no_second_one_generated() {
        let cites = Adjacency::from_edges(3, 3, &[(0, 1), (1, 2)]);
        let specs = vec![spec("cites", 0, 0, "c", cites.clone()), spec("cited_by", 0, 0, "c", cites.reverse())];
        let graph = HeteroGraph::with_reverse_relations(types(&[("paper", 3)]), specs, |_| false).unwrap();
        let [cites, cited_by] = graph.relations() else { panic!("two relations") };
        assert!(Arc::ptr_eq(&cites.reverse, &cited_by.forward));
    }

    #[test]
    fn a_missing_reverse_is_generated_unless_one_way() {
        let specs = || vec![spec("cites", 0, 0, "c", Adjacency::from_edges(3, 3, &[(0, 1), (1, 2)]))];
        let both = HeteroGraph::with_reverse_relations(types(&[("paper", 3)]), specs(), |_| false).unwrap();
        let generated = &both.relations()[1];
        assert_eq!((generated.name.as_str(), generated.stream.as_str(), generated.primary), ("cites_T", "c", false));
        let one = HeteroGraph::with_reverse_relations(types(&[("paper", 3)]), specs(), |_| true).unwrap();
        assert_eq!(one.relations().len(), 1);
        assert_eq!(*one.relations()[0].reverse, one.relations()[0].forward.reverse());
    }

    #[test]
    fn contradictions_are_errors_that_name_the_relation_or_type() {
        let error = |counts: &[(&str, usize)], specs| HeteroGraph::new(types(counts), specs).unwrap_err().to_string();
        let square = || Adjacency::from_edges(2, 2, &[(0, 1)]);
        assert!(error(&[], vec![]).contains("at least one"));
        assert!(error(&[("a", 1), ("a", 2)], vec![]).contains("`a` twice"));
        assert!(error(&[("../a", 1)], vec![]).contains("\"../a\""));
        assert!(error(&[("a", usize::MAX), ("b", 1)], vec![]).contains("type `a`"));
        assert!(error(&[("a", u32::MAX as usize), ("b", 1)], vec![]).contains("type `b` behind 4294967295"));
        assert!(error(&[("a", 2)], vec![spec("r", 0, 1, "s", square())]).contains("relation `r`"));
        assert!(error(&[("a", 3)], vec![spec("r", 0, 0, "s", square())]).contains("found 2 rows and 2 columns"));
        let twice = vec![spec("r", 0, 0, "s", square()), spec("r", 0, 0, "t", square())];
        assert!(error(&[("a", 2)], twice).contains("`r` twice"));
    }
}
