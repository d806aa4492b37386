//! The trees through their public interface.

mod binning;
mod boosting;
mod damage;
mod explain;
mod forests;
mod growing;
mod histograms;
mod laws;
mod lightgbm;
#[path = "../../support/made.rs"]
mod made;
mod refusals;
mod splits;
