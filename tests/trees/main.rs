//! The trees through their public interface.

#[macro_use]
#[path = "../../kernels/tests/backends/mod.rs"]
mod backends;
mod binning;
mod boosting;
mod damage;
mod devices;
mod explain;
mod forests;
mod growing;
mod histograms;
mod laws;
mod lightgbm;
mod made;
mod refusals;
mod splits;
