//! What the edges of a data set carry, read when it is asked for.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::Dataset;
use crate::error::{Error, Result};
use crate::graph::{EdgeMatrix, EdgeValues, HeteroGraph, Relation};

impl Dataset {
    /// Weights of the edges of a relation in the order of its `col_idx`; `None` when it has none.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] when the file has another length than the relation.
    pub fn edge_weights(&self, relation: &str) -> Result<Option<Cow<'_, [f32]>>> {
        let values = self.values_of(relation).and_then(|values| values.weight.as_ref());
        values.map(|values| values.read(self.num_entries(relation))).transpose()
    }

    /// Times of the edges of a relation, in seconds since 1970, in the order of its `col_idx`; `None` when it has none.
    ///
    /// # Errors
    /// As [`edge_weights`](Self::edge_weights).
    pub fn edge_times(&self, relation: &str) -> Result<Option<Cow<'_, [i64]>>> {
        let values = self.values_of(relation).and_then(|values| values.time.as_ref());
        values.map(|values| values.read(self.num_entries(relation))).transpose()
    }

    /// Values of the edges of a relation, a row per entry of its `col_idx`; `None` when it has none of its own.
    ///
    /// # Errors
    /// As [`edge_weights`](Self::edge_weights), and for a value that is not finite.
    pub fn edge_columns(&self, relation: &str) -> Result<Option<EdgeMatrix>> {
        let columns = self.values_of(relation).and_then(|values| values.columns.as_ref());
        columns.map(|columns| columns.read(relation, self.num_entries(relation))).transpose()
    }

    /// Names of the columns of values of a relation's edges; none when it has none of its own.
    pub fn value_names(&self, relation: &str) -> &[String] {
        self.values_of(relation).and_then(|values| values.columns.as_ref()).map_or(&[], |columns| &columns.names)
    }

    /// Whether any relation has values for models, read or not.
    pub fn has_edge_values(&self) -> bool {
        self.graph.has_edge_values() || self.edge_values.iter().any(|values| values.columns.is_some())
    }

    /// The graph with the values of its edges, from where models take them; a generated reverse has the same values in
    /// its own order.
    ///
    /// # Errors
    /// As [`edge_columns`](Self::edge_columns).
    pub fn graph_with_edge_values(&self) -> Result<HeteroGraph> {
        let mut graph = self.graph.clone();
        let relations = self.graph.relations().iter().filter(|relation| relation.values.is_none());
        let read = relations.map(|relation| Ok((relation.name.clone(), self.edge_columns(&relation.name)?)));
        for (relation, values) in read.collect::<Result<Vec<_>>>()? {
            if let Some(values) = values {
                graph.set_edge_values(&relation, Arc::new(values));
            }
        }
        graph.mirror_edge_values();
        Ok(graph)
    }

    /// Gives the graph the values of its edges, see [`graph_with_edge_values`](Self::graph_with_edge_values).
    ///
    /// # Errors
    /// As [`edge_columns`](Self::edge_columns).
    pub fn load_edge_values(&mut self) -> Result<()> {
        self.graph = self.graph_with_edge_values()?;
        Ok(())
    }

    /// The graph with the weights of its edges, from where models and samplers take them; a generated reverse has the
    /// same weights in its own order.
    ///
    /// # Errors
    /// As [`edge_weights`](Self::edge_weights), and for a weight below 0 or above
    /// [`MAX_EDGE_WEIGHT`](crate::graph::MAX_EDGE_WEIGHT).
    pub fn graph_with_edge_weights(&self) -> Result<HeteroGraph> {
        let mut graph = self.graph.clone();
        for relation in self.graph.relations().iter().filter(|relation| relation.weights.is_none()) {
            let of = self.values_of(&relation.name);
            let weights = of.map_or(Ok(None), |of| of.read_weights(relation.forward.num_edges()))?;
            weights.into_iter().for_each(|weights| graph.set_edge_weights(&relation.name, Arc::new(weights)));
        }
        graph.mirror_edge_weights();
        Ok(graph)
    }

    /// The graph for a model whose layers read the weights of the relations `read`, by name; `place` is where it or the
    /// data are stored. With none it is the graph as it is.
    ///
    /// # Errors
    /// As [`graph_with_edge_weights`](Self::graph_with_edge_weights); [`Error::Format`] for a relation whose edges lack
    /// weights that the model reads, or have some where it was trained without.
    pub fn graph_with_weights_of(&self, read: &[&str], place: &Path) -> Result<HeteroGraph> {
        if read.is_empty() {
            return Ok(self.graph.clone());
        }
        let graph = self.graph_with_edge_weights()?;
        let relation = |name: &str| format!("relation `{name}`");
        let has_weights = |name: &&str| graph.relations().iter().any(|of| of.name == **name && of.weights.is_some());
        if let Some(name) = read.iter().find(|name| !has_weights(name)) {
            let expected = "weights of its edges, as the model was trained with";
            let help = "give data whose [[edges]] table has a `weight`, too, or train without model.edge_weights";
            return Err(Error::format(place, relation(name), expected, "none", help));
        }
        let is_more = |of: &&Relation| of.weights.is_some() && !read.contains(&of.name.as_str());
        if let Some(of) = graph.relations().iter().find(is_more) {
            let expected = "no weights of its edges, since the model was trained without those of this relation";
            let help = "leave `weight` out of its [[edges]] table and import it again, or train with these weights";
            return Err(Error::format(place, relation(&of.name), expected, "some", help));
        }
        Ok(graph)
    }

    /// Gives the graph the weights of its edges, see [`graph_with_edge_weights`](Self::graph_with_edge_weights).
    /// `setting` asks for them.
    ///
    /// # Errors
    /// As [`graph_with_edge_weights`](Self::graph_with_edge_weights); [`Error::Config`] where no edge has a weight.
    pub fn load_edge_weights(&mut self, setting: &str) -> Result<()> {
        self.graph = self.graph_with_edge_weights()?;
        self.check_edge_weights(setting)
    }

    /// Fails unless the graph has weights of edges, which `setting` asks for.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn check_edge_weights(&self, setting: &str) -> Result<()> {
        if self.graph.relations().iter().any(|relation| relation.weights.is_some()) {
            return Ok(());
        }
        let help =
            "name the column of weights (`weight`) of an [[edges]] table and import it again, or leave the key out";
        Err(Error::setting(setting, "no relation that has any", "data with weights of edges", help))
    }

    /// By relation of the graph, the names of the values that its edges have there: a generated reverse has those of
    /// the relation that it reverses.
    pub fn edge_value_names(&self) -> Vec<Vec<String>> {
        let relations = self.graph.relations();
        let of = |relation: &Relation| {
            let own = self.value_names(&relation.name);
            let partner = relations.iter().find(|other| {
                other.stream == relation.stream
                    && Arc::ptr_eq(&other.reverse, &relation.forward)
                    && !self.value_names(&other.name).is_empty()
            });
            let of_partner = partner.map_or(&[][..], |partner| self.value_names(&partner.name));
            if own.is_empty() { of_partner.to_vec() } else { own.to_vec() }
        };
        relations.iter().map(of).collect()
    }

    pub(super) fn values_of(&self, relation: &str) -> Option<&EdgeValues> {
        self.edge_values.iter().find(|values| values.relation == relation)
    }

    pub(super) fn num_entries(&self, relation: &str) -> usize {
        let relation = self.graph.relations().iter().find(|known| known.name == relation);
        relation.map_or(0, |relation| relation.forward.num_edges())
    }
}
