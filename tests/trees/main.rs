//! The trees through their public interface.

mod binning;
mod boosting;
mod explain;
mod forests;
mod growing;
mod histograms;
mod lightgbm;
mod made;
mod splits;
