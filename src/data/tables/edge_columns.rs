//! Values of edges: columns of an edge table, made by what makes the features of nodes and put in the order of entries.

use rayon::prelude::*;

use super::edge_list::{EdgeList, Merged, Origins};
use super::edges::RelationEdges;
use super::features::{Builder, Encoder, take_terms};
use super::nodes::FeatureColumn;
use crate::error::Result;
use crate::graph::{EdgeColumns, Values};

/// By relation, the rows of its table that scales may be learned from: those whose edges have a node at either end that
/// is learned from, so that nothing of a node that is held out gets in. `is_fitted` says of all nodes, of which there
/// are `counts` of each type.
///
/// # Errors
/// [`Error::Io`](crate::error::Error::Io) of edges on disk.
pub(super) fn fitted_rows(relations: &[RelationEdges], is_fitted: &[bool], counts: &[usize]) -> Result<Vec<Vec<bool>>> {
    let of_type = |node_type: usize| {
        let first: usize = counts[..node_type].iter().sum();
        &is_fitted[first..first + counts[node_type]]
    };
    let of_relation = |relation: &RelationEdges| {
        let mut fitted = vec![false; relation.columns.first().map_or(0, FeatureColumn::len)];
        if let (EdgeList::Valued(edges), true) = (&relation.edges, relation.carried.values) {
            let [src, dst] = [relation.src, relation.dst].map(of_type);
            edges.for_each(|edge| {
                fitted[edge.row as usize] = src[edge.key as u32 as usize] && dst[(edge.key >> 32) as usize];
            })?;
        }
        Ok(fitted)
    };
    relations.iter().map(of_relation).collect()
}

/// The values of the entries of every relation that has any. An entry that several rows were merged into has the mean
/// of their columns.
///
/// # Errors
/// A stored import that lacks a column.
pub(super) fn encode(
    relations: &mut [RelationEdges],
    merged: &[Merged],
    is_fitted: &[Vec<bool>],
    builder: &mut Builder,
) -> Result<Vec<Option<EdgeColumns>>> {
    let mut all = Vec::with_capacity(relations.len());
    // Relations that were made and not read come last and have none.
    let mut is_fitted = is_fitted.iter();
    for (relation, merged) in relations.iter_mut().zip(merged) {
        let is_fitted = is_fitted.next().map_or(&[][..], |rows| rows);
        let of = merged.origins.as_ref().map(|origins| encode_relation(relation, origins, is_fitted, builder));
        all.push(of.transpose()?);
    }
    Ok(all)
}

fn encode_relation(
    relation: &mut RelationEdges,
    origins: &Origins,
    is_fitted: &[bool],
    builder: &mut Builder,
) -> Result<EdgeColumns> {
    let terms: Vec<_> = relation.columns.iter_mut().map(take_terms).collect();
    // No node type has a name with a bracket: nothing else is called so.
    let prefix = format!("edges[{}].", relation.name);
    let before = std::mem::take(&mut builder.names);
    let encoders = relation
        .columns
        .iter()
        .zip(terms)
        .map(|(column, terms)| builder.column(column, format!("{prefix}{}", column.name), terms, is_fitted));
    let encoders = encoders.collect::<Result<Vec<Encoder>>>()?;
    let names = std::mem::replace(&mut builder.names, before);
    let names: Vec<String> = names.iter().map(|name| name[prefix.len()..].to_owned()).collect();
    let width = names.len();
    let mut values = vec![0.0; origins.len() * width];
    values.par_chunks_mut(width).with_min_len(64).enumerate().for_each_init(
        || (vec![0.0; width], vec![0.0; width]),
        |(row, sum), (entry, out)| {
            let rows = origins.of(entry);
            let write = |from: u32, out: &mut [f32]| {
                out.fill(0.0);
                encoders.iter().for_each(|encoder| encoder.write(from as usize, out));
            };
            if let [only] = rows {
                return write(*only, out);
            }
            sum.fill(0.0f64);
            for &from in rows {
                write(from, row);
                sum.iter_mut().zip(row.iter()).for_each(|(sum, &value)| *sum += f64::from(value));
            }
            out.iter_mut().zip(sum.iter()).for_each(|(out, sum)| *out = (sum / rows.len() as f64) as f32);
        },
    );
    Ok(EdgeColumns { names, values: Values::Made(values.into()) })
}
