//! Where the adjacency lies while it is sampled, and whether a graph is trained as a whole: decided from sizes before a
//! run.

use std::fmt;

use serde::Serialize;

/// Where the adjacency lies while it is sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// In device memory, sampled by the device. What is small is in its caches then.
    Device,
    /// In host memory, which kernels of the device read.
    HostZeroCopy,
    /// In host memory, sampled by the processor.
    #[default]
    Host,
}

/// What a [`Placement`] is decided from; bytes.
///
/// # Example
/// ```
/// use graphsieve::loader::{Placement, PlacementInput};
/// let (no_kernel, reaches, zero_copy) = (None, true, true);
/// let small = PlacementInput { csr: 1 << 20, free: 1 << 30, reserve: 1 << 29, no_kernel, reaches, zero_copy };
/// assert_eq!(small.decide(), Placement::Device);
/// assert_eq!(PlacementInput { csr: 2 << 30, ..small }.decide(), Placement::HostZeroCopy);
/// let no_kernel = Some("fanouts above 1024 have no kernel");
/// assert_eq!(PlacementInput { no_kernel, ..small }.decide(), Placement::Host);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PlacementInput {
    /// Row pointers and sources of all relations, with weights, values and own ages of their edges.
    pub csr: u64,
    /// Free device memory.
    pub free: u64,
    /// Of that, what the model and the batches need.
    pub reserve: u64,
    /// Why the device has no kernel for what is to be drawn, where it has none.
    pub no_kernel: Option<&'static str>,
    /// Whether kernels of the device reach the features, and there is memory for batches that it makes beside the
    /// training.
    pub reaches: bool,
    /// Whether kernels of the device can read host memory.
    pub zero_copy: bool,
}

impl PlacementInput {
    /// The first place that is large enough.
    pub fn decide(&self) -> Placement {
        match self.csr <= self.free.saturating_sub(self.reserve) {
            _ if self.no_kernel.is_some() || !self.reaches => Placement::Host,
            true => Placement::Device,
            false if self.zero_copy => Placement::HostZeroCopy,
            false => Placement::Host,
        }
    }
}

impl fmt::Display for PlacementInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [csr, free, reserve] = [self.csr, self.free, self.reserve].map(Bytes);
        let who = match self.decide() {
            Placement::Device => "sampled by the device in its memory",
            Placement::HostZeroCopy => "sampled by the device from page-locked host memory",
            Placement::Host if self.no_kernel.is_none() && self.reaches => "sampled by the processor",
            Placement::Host => {
                let beside = "the device does not reach the features, or has no memory for batches of its own";
                let reason = self.no_kernel.unwrap_or(beside);
                return write!(f, "neighbours: sampled by the processor from {csr} of adjacencies: {reason}");
            }
        };
        write!(f, "neighbours: {who}: adjacencies take {csr}; {free} are free, of which {reserve} are kept")
    }
}

/// What training the whole graph at once takes on the device, estimated from sizes; bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Adjacencies in both directions.
    pub graph: u64,
    /// Input features.
    pub features: u64,
    /// Results of layers of all nodes, gradients included.
    pub activations: u64,
}

impl Footprint {
    /// The sum.
    pub fn total(&self) -> u64 {
        self.graph + self.features + self.activations
    }

    /// A number of bytes for people.
    pub fn bytes(count: u64) -> impl fmt::Display {
        Bytes(count)
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [total, graph, features, activations] =
            [self.total(), self.graph, self.features, self.activations].map(Bytes);
        write!(f, "about {total} ({graph} adjacencies, {features} features, {activations} results of layers)")
    }
}

/// A number of bytes for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["B", "kB", "MB", "GB"];
        let power = (self.0.max(1).ilog10() as usize / 3).min(3);
        match power {
            0 => write!(f, "{} B", self.0),
            _ => write!(f, "{:.1} {}", self.0 as f64 / 1000f64.powi(power as i32), UNITS[power]),
        }
    }
}
