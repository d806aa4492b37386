//! Names of columns and the blocks that they belong to.

use std::fmt;

/// What a column is made of; importance and explanations are summed over blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// The features of the node itself.
    Raw,
    /// Means over in-neighbours.
    Mean,
    /// Largest values among in-neighbours.
    Max,
    /// Sums over in-neighbours.
    Sum,
    /// Quantiles over in-neighbours.
    Quantiles,
    /// The node itself less the mean of its in-neighbours.
    Difference,
    /// Beta wavelets.
    Wavelets,
    /// Logarithms of degrees.
    Degree,
    /// Values of the edges to a node.
    Edges,
    /// Known labels of in-neighbours.
    Labels,
    /// Columns that came from elsewhere, under this name: an embedding, a reconstruction error, a score.
    Given(String),
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Block::Raw => "raw",
            Block::Mean => "mean",
            Block::Max => "max",
            Block::Sum => "sum",
            Block::Quantiles => "quantiles",
            Block::Difference => "difference",
            Block::Wavelets => "wavelets",
            Block::Degree => "degree",
            Block::Edges => "edges",
            Block::Labels => "labels",
            Block::Given(name) => name,
        })
    }
}

/// One column of a feature matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Unique, e.g. `x3`, `mean1.x3`, `euu.log_degree`.
    pub name: String,
    /// The block that it belongs to.
    pub block: Block,
    /// What the user calls it, where that is not told by the names of features.
    pub title: Option<String>,
}

impl Column {
    /// One whose name tells what it is.
    pub fn new(name: impl Into<String>, block: Block) -> Self {
        Self { name: name.into(), block, title: None }
    }

    /// The name with that of the feature that it is made of, where `features` are named: `mean1.amount` for `mean1.x3`.
    pub fn named(&self, features: &[String]) -> String {
        if let Some(title) = &self.title {
            return title.clone();
        }
        let (prefix, last) = self.name.rfind('.').map_or(("", &*self.name), |dot| self.name.split_at(dot + 1));
        let own = last.strip_prefix('x').and_then(|number| features.get(number.parse::<usize>().ok()?));
        own.map_or_else(|| self.name.clone(), |own| format!("{prefix}{own}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_names_of_the_features_that_they_are_made_of() {
        let named = |name: &str, features: &[String]| Column::new(name, Block::Raw).named(features);
        let names = ["amount".to_owned(), "x.y".to_owned()];
        let found =
            ["x0", "mean1.x1", "review.max2.x0", "x2", "euu.log_degree", "xray"].map(|name| named(name, &names));
        assert_eq!(found, ["amount", "mean1.x.y", "review.max2.amount", "x2", "euu.log_degree", "xray"]);
        assert_eq!(named("x0", &[]), "x0");
    }
}
