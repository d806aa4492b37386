//! How large a data directory is: read without its features, and without its edges where that can be helped.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::classes::Classes;
use super::dataset::{CLASSES_FILE, Dataset, LABELS_FILE, MASKS_FILE, located};
use super::formats::{FEATURES_FILE, is_present};
use super::hetero::{HeteroGraph, NodeType};
use super::labels::Labels;
use super::manifest::{FEATURES_DIM, FeatureType, Manifest};
use crate::error::{Error, Result};

/// Node types, relations and labels of a data directory, in numbers.
#[derive(Clone, Debug)]
pub struct Sizes {
    pub node_types: Vec<NodeType>,
    /// Columns of the raw features and bytes of a value, where there are features.
    pub features: Option<[usize; 2]>,
    /// Those that a model sees, with the reverse relations that reading generates.
    pub relations: Vec<RelationSizes>,
    /// By node type: labelled nodes, where labels were read.
    pub labels: Vec<usize>,
    /// By split that the data come with, by node type: nodes of its training part.
    pub masks: Vec<Vec<usize>>,
    /// How many classes labels have.
    pub classes: usize,
}

/// Which labels are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLabels {
    None,
    /// Normal and anomalous ones.
    Binary,
    /// Those, or any classes.
    Classes,
}

/// A relation in numbers.
#[derive(Clone, Debug)]
pub struct RelationSizes {
    pub src: usize,
    pub dst: usize,
    pub stream: String,
    pub primary: bool,
    /// Of the destinations, and of the sources.
    pub degrees: [Degrees; 2],
    /// Numbers of 4 bytes that hold its adjacency, and the reverse where that is no relation of its own.
    pub words: u64,
    /// The relation that holds the same edges the other way round; itself where it is symmetric.
    pub partner: Option<usize>,
}

/// How many nodes there are of each degree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Degrees(pub Vec<(u64, u64)>);

impl Degrees {
    fn of(degrees: &[u64]) -> Self {
        // Most are small.
        let (mut small, mut large) = (vec![0u64; 1 << 12], BTreeMap::new());
        for &degree in degrees {
            match small.get_mut(degree as usize) {
                Some(nodes) => *nodes += 1,
                None => *large.entry(degree).or_insert(0) += 1,
            }
        }
        let small = (0..).zip(small).filter(|(_, nodes)| *nodes > 0);
        Self(small.chain(large).collect())
    }

    /// Edges of all nodes together.
    pub fn edges(&self) -> u64 {
        self.0.iter().map(|(degree, nodes)| degree * nodes).sum()
    }
}

impl Sizes {
    /// Reads manifest, row pointers and labels of a data directory. Source ids are read, too, where rows may hold loops
    /// that reading drops, or where a relation has no partner: it counts as symmetric where every node has as many
    /// edges in as out, else it gets a reverse, unless it is one way. Sources of rows that are spans count as having
    /// one degree.
    ///
    /// # Errors
    /// [`Error::Usage`] for an `.npz` file; [`Error::Io`] and [`Error::Format`] as for [`Dataset::open`], as far as
    /// files are read; [`Error::Format`] without such labels.
    pub fn read(dir: &Path, labels: ReadLabels) -> Result<Self> {
        let metadata = fs::metadata(dir).map_err(|source| Error::io(dir, "open", source))?;
        if metadata.is_file() && dir.extension().is_some_and(|extension| extension == "npz") {
            return Err(Error::Usage {
                argument: "--data".into(),
                expected: "a data directory, whose manifest tells sizes".into(),
                found: dir.display().to_string(),
                help: "`graphsieve import npz` makes a directory of the file".into(),
            });
        }
        if !metadata.is_dir() {
            return Err(Error::io(dir, "open", io::ErrorKind::NotADirectory.into()));
        }
        let (manifest, path) = Manifest::read(dir)?;
        let counts = manifest.node_types.iter().map(|t| (t.name.clone(), t.count)).collect();
        let nodes = HeteroGraph::new(counts, Vec::new()).map_err(|error| located(error, &path))?;
        let optional = |name: &str| Some(dir.join(name)).filter(|path| is_present(path));
        let features = match &manifest.features {
            Some(entry) => Some([entry.dim, entry.dtype.width()]),
            None => optional(FEATURES_FILE).map(|_| [FEATURES_DIM, FeatureType::F16.width()]),
        };
        let relations = read_relations(dir, &manifest, nodes.node_types())?;
        let node_types = nodes.node_types().to_vec();
        let unlabelled =
            Self { labels: vec![0; node_types.len()], node_types, features, relations, masks: Vec::new(), classes: 0 };
        if labels == ReadLabels::None {
            return Ok(unlabelled);
        }
        let total = nodes.num_nodes();
        let stored = optional(LABELS_FILE).map(|path| Labels::read_npy(&path, total)).transpose()?;
        let masks = optional(MASKS_FILE);
        let classes = optional(CLASSES_FILE).map(|path| Classes::read_npy(&path, masks.as_deref(), total));
        let classes = classes.transpose()?;
        let stored = stored.or_else(|| classes.as_ref()?.binary());
        let parts = Dataset { classes, ..Dataset::new(nodes, None, stored, None) };
        let by_type = |nodes: &mut dyn Iterator<Item = u32>| {
            let mut of_type = vec![0; unlabelled.node_types.len()];
            nodes.for_each(|node| of_type[parts.graph.type_of(node as usize)] += 1);
            of_type
        };
        let classes = match labels {
            ReadLabels::Classes => Some(parts.node_classes(dir)?),
            _ => None,
        };
        let labels = match &classes {
            Some(classes) => by_type(&mut classes.labelled().map(|(node, _)| node)),
            None => by_type(&mut parts.binary_labels(dir)?.entries.iter().map(|(node, _)| *node)),
        };
        let masks = parts.classes.iter().flat_map(Classes::masks);
        let masks = masks.map(|masks| by_type(&mut masks.train.iter().copied())).collect();
        Ok(Self { labels, masks, classes: classes.map_or(2, |classes| classes.count()), ..unlabelled })
    }

    /// Nodes of all types.
    pub fn nodes(&self) -> usize {
        self.node_types.iter().map(|t| t.count).sum()
    }

    /// Edges of all relations.
    pub fn edges(&self) -> u64 {
        self.relations.iter().map(|relation| relation.degrees[0].edges()).sum()
    }
}

fn read_relations(dir: &Path, manifest: &Manifest, types: &[NodeType]) -> Result<Vec<RelationSizes>> {
    let mut relations: Vec<RelationSizes> = Vec::new();
    let mut generated = Vec::new();
    for (at, entry) in manifest.relations.iter().enumerate() {
        let (Some(src), Some(dst)) = (manifest.type_index(&entry.src), manifest.type_index(&entry.dst)) else {
            continue;
        };
        let is_partner = |other: &&super::manifest::RelationEntry| {
            entry.reverse_of.as_ref() == Some(&other.name) || other.reverse_of.as_ref() == Some(&entry.name)
        };
        let declared = manifest.relations.iter().position(|other| is_partner(&other));
        let files = entry.files(dir, &types[src], &types[dst]);
        let ([into, from], entries) = files.degrees(declared.is_none())?;
        let is_symmetric = declared.is_none() && src == dst && into == from;
        let degrees = match from.is_empty() {
            true => [Degrees::of(&into), even(&into, types[src].count)],
            false => [Degrees::of(&into), Degrees::of(&from)],
        };
        let words = entries + into.len() as u64 + 1;
        let reverse = entries.max(degrees[0].edges()) + types[src].count as u64 + 1;
        let stream = manifest.stream_of(entry).to_owned();
        let primary = entry.primary.unwrap_or(entry.reverse_of.is_none());
        let mut relation = RelationSizes { src, dst, stream, primary, degrees, words, partner: declared };
        if is_symmetric {
            relation.partner = Some(at);
        } else if declared.is_none() {
            match manifest.is_complete(&entry.name) {
                true => relation.words += reverse,
                false => generated.push((at, reverse)),
            }
        }
        relations.push(relation);
    }
    for at in 0..relations.len() {
        // What the sources of one have, the destinations of the other do.
        if let Some(partner) = relations[at].partner {
            relations[at].degrees[1] = relations[partner].degrees[0].clone();
        }
    }
    for (of, words) in generated {
        let RelationSizes { src, dst, stream, degrees: [into, from], .. } = relations[of].clone();
        relations[of].partner = Some(relations.len());
        let (degrees, partner) = ([from, into], Some(of));
        relations.push(RelationSizes { src: dst, dst: src, stream, primary: false, degrees, words, partner });
    }
    Ok(relations)
}

/// As many edges as `degrees` have together, dealt out evenly to so many nodes.
fn even(degrees: &[u64], nodes: usize) -> Degrees {
    let (edges, nodes) = (degrees.iter().sum::<u64>(), nodes as u64);
    let each = edges.checked_div(nodes).unwrap_or(0);
    let more = edges - each * nodes;
    Degrees(vec![(each, nodes - more), (each + 1, more)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Statistics;

    #[test]
    fn sizes_are_those_of_the_graph_that_is_read() {
        use crate::graph::{Adjacency, RelationSpec};
        let dir = tempfile::tempdir().unwrap();
        let spec = |name: &str, src, dst, rows, cols, edges: &[(u32, u32)]| {
            RelationSpec::new(name, src, dst, Adjacency::from_edges(rows, cols, edges))
        };
        let specs = vec![
            spec("buys", 0, 1, 3, 4, &[(0, 1), (0, 2), (2, 2)]),
            spec("knows", 0, 0, 4, 4, &[(0, 1), (1, 0), (2, 2)]),
            spec("cites", 1, 1, 3, 3, &[(0, 1), (1, 2)]),
        ];
        let types = vec![("user".to_owned(), 4), ("paper".to_owned(), 3)];
        let graph = HeteroGraph::with_reverse_relations(types, specs, |name| name == "cites").unwrap();
        let labels = Labels { entries: vec![(0, 1), (5, 0), (6, 1)] };
        let made = Dataset::new(graph, None, Some(labels), None);
        let path = dir.path().join("data");
        made.write(&path).unwrap();
        // The reverse is generated where it is not declared.
        let text = fs::read_to_string(path.join("graph.toml")).unwrap();
        let first = text.find("[[relations]]").unwrap();
        let [head, relations] = [&text[..first], &text[first..]];
        let tables = relations.split("[[relations]]").filter(|table| !table.trim().is_empty());
        let kept: Vec<String> =
            tables.filter(|table| !table.contains("_T\"")).map(|table| format!("[[relations]]{table}")).collect();
        for text in [text.clone(), head.to_owned() + &kept.concat()] {
            fs::write(path.join("graph.toml"), &text).unwrap();
            let (read, sizes) = (Dataset::open(&path).unwrap(), Sizes::read(&path, ReadLabels::Binary).unwrap());
            assert_eq!((&sizes.labels[..], sizes.classes), (&[1, 2][..], 2));
            assert_eq!(Sizes::read(&path, ReadLabels::Classes).unwrap().labels, [1, 2]);
            assert_eq!(Sizes::read(&path, ReadLabels::None).unwrap().labels, [0, 0]);
            let statistics = Statistics::of(&read);
            assert_eq!((sizes.nodes(), sizes.edges() as usize), (statistics.nodes, statistics.edges), "{text}");
            assert_eq!((sizes.relations.len(), sizes.edges()), (4, 11));
            let mut words: Vec<_> =
                read.graph.relations().iter().flat_map(|r| [r.forward.clone(), r.reverse.clone()]).collect();
            words.sort_by_key(std::sync::Arc::as_ptr);
            words.dedup_by(|a, b| std::sync::Arc::ptr_eq(a, b));
            let words: usize = words.iter().map(|adjacency| adjacency.num_words()).sum();
            assert_eq!(sizes.relations.iter().map(|relation| relation.words).sum::<u64>(), words as u64);
            let buys = &sizes.relations[0];
            assert_eq!(buys.degrees, [Degrees(vec![(0, 1), (1, 1), (2, 1)]), Degrees(vec![(0, 2), (1, 1), (2, 1)])]);
        }
    }
}
