//! Results that are numbers. What overflows on the way through a network leaves an infinity or NaN, of which no score
//! may be made.

use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::graph::first_non_finite;
use crate::graph::{Dataset, Features};
use crate::live::Part;

/// Fails where a network leaves a node anything else than finite numbers. `values` are rows of so many `columns`, one
/// for each node of `dataset`, and `what` is said of them.
///
/// # Errors
/// [`Error::Data`] with the first such node and their number.
pub fn check_finite_rows(what: &str, values: &[f32], columns: usize, dataset: &Dataset) -> Result<()> {
    let Some(at) = first_non_finite(values, |value| !value.is_finite()) else { return Ok(()) };
    let bad = values.par_chunks(columns).filter(|row| row.iter().any(|value| !value.is_finite())).count();
    let (graph, node) = (&dataset.graph, at / columns);
    let name = format!("{} {}", graph.node_types()[graph.type_of(node)].name, dataset.id_of(node as u32));
    Err(refused(what, &name, format!("{}, and so of {bad} of {} nodes", values[at], graph.num_nodes())))
}

/// The same of a matrix in f32.
///
/// # Errors
/// As for [`check_finite_rows`].
pub fn check_finite_features(what: &str, rows: &Features, dataset: &Dataset) -> Result<()> {
    check_finite_rows(what, rows.as_f32().as_slice().unwrap_or_default(), rows.dim(), dataset)
}

/// The same of the targets of a part, which have so many `columns` each; the nodes of a part have no ids.
///
/// # Errors
/// [`Error::Data`] with the type of the first such target.
pub fn check_finite_targets(what: &str, values: &[f32], columns: usize, part: &Part) -> Result<()> {
    let Some(at) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    let graph = &part.dataset.graph;
    let node_type = &graph.node_types()[graph.type_of(part.targets[at / columns] as usize)].name;
    Err(refused(what, &format!("a node of type {node_type}"), values[at].to_string()))
}

fn refused(what: &str, node: &str, found: String) -> Error {
    Error::Data {
        what: format!("{what} of {node}"),
        expected: "a finite number".into(),
        found,
        help: "its features, or those of nodes around it, are too large for this network: scale them as for its \
               training, or train with train.precision = \"f32\" or a lower train.learning_rate"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{HeteroGraph, IdMaps};

    #[test]
    fn the_first_row_that_is_not_finite_is_named_by_its_id() {
        let graph = HeteroGraph::new(vec![("card".into(), 1), ("payment".into(), 2)], Vec::new()).unwrap();
        let ids = IdMaps(vec![vec!["c".into()], vec!["p".into(), "q".into()]]);
        let dataset = Dataset::new(graph, None, None, Some(ids));
        let check = |values: [f32; 6]| check_finite_rows("the embedding", &values, 2, &dataset);
        assert!(check([0.0, f32::MAX, -1.0, 1e-40, 0.0, 5.0]).is_ok());
        let refused = check([0.0, 1.0, 2.0, f32::NAN, f32::INFINITY, 5.0]).unwrap_err().to_string();
        assert!(
            refused.contains("the embedding of payment p") && refused.contains("NaN, and so of 2 of 3"),
            "{refused}"
        );
    }
}
