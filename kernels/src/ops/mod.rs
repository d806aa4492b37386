//! The operators, a folder each: checks and docs, CubeCL kernels and their launches, the CPU, autodiff.

pub(crate) mod adam;
pub(crate) mod combine;
pub(crate) mod dropout;
pub(crate) mod edge_softmax;
pub(crate) mod gat;
pub(crate) mod gather;
pub(crate) mod head;
pub(crate) mod in_chunks;
pub(crate) mod linear;
pub(crate) mod loss;
pub(crate) mod message;
pub(crate) mod normalise;
pub(crate) mod pair_dot;
pub(crate) mod pieces;
pub(crate) mod row_dots;
pub(crate) mod segments;
pub(crate) mod select;
mod self_loops;
pub(crate) mod spmm;
pub(crate) mod sum;
