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
    /// The node itself less the mean of its in-neighbours.
    Difference,
    /// Beta wavelets.
    Wavelets,
    /// Logarithms of degrees.
    Degree,
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
            Block::Difference => "difference",
            Block::Wavelets => "wavelets",
            Block::Degree => "degree",
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
}
