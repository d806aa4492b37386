//! What a test of a sparse graph operator needs: fixture graphs, f64 oracles, gradients and tolerances.
//!
//! But for [`layer`] and [`exchanges`], nothing here names a Burn type or shares code with the operators under test: a
//! fixture is two vectors, an oracle is a loop over edges in f64, and a gradient is either a central difference of that
//! loop or a formula checked against one. A test reads like this:
//!
//! 1. take a graph from [`fixtures()`] and inputs from [`values_in`], exact in the type the operator stores;
//! 2. run the operator, and the function of the same name in [`oracle`] (backward: in [`gradient`]);
//! 3. compare with [`assert_close`], whose bound [`tolerance()`] derives from the type and the reduction length.
//!
//! Arrays are row-major slices. Shapes are written `[rows, columns]`; `E` is the number of edges, `H` of heads and `D`
//! of channels per head. These functions check shapes with `assert!`, as tests do: a wrong length panics.

#[cfg(feature = "vulkan")]
pub mod ahead;
pub mod edges;
pub mod exchanges;
pub mod fixtures;
pub mod gradient;
pub mod harness;
pub mod layer;
pub mod messages;
pub mod oracle;
pub mod pairs;
pub mod tolerance;

pub use crate::runtime::switches::{with_narrow_additions, with_tiled_products, with_wide_positions};
pub use edges::{EdgeInput, attend_edges, attend_edges_grad, attend_edges_grad_magnitude};
pub use fixtures::{
    Fixture, Rng, Spans, fixtures, small_fixtures, small_span_fixtures, span_fixtures, values, values_f16, values_in,
};
pub use gradient::{assert_gradient, central_difference, probe, weighted_sum};
pub use layer::{LayerInput, LayerShape, assert_graph_layer_laws};
pub use oracle::{AttendInput, Drop, GatInput, SpmmWeights, keep_all};
pub use pairs::{PairGrad, PairInput};
pub use tolerance::{Dtype, assert_close, assert_close_at_scale, relative_error, scaled_error, tolerance};
