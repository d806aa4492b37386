//! Where the adjacency lies while it is sampled, and whether a graph is trained as a whole: decided from sizes before a run.

use std::fmt;

use serde::Serialize;

/// Where the adjacency lies while it is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// In the shared memory of every block of threads.
    Shared,
    /// In device memory.
    Device,
    /// In host memory that the kernel reads.
    HostZeroCopy,
    /// In host memory, sampled by the processor.
    Host,
}

/// What a [`Placement`] is decided from; bytes.
///
/// # Example
/// ```
/// use graphsieve::loader::{Placement, PlacementInput};
/// let small = PlacementInput { csr: 40_000, shared: 48_000, free: 1 << 30, reserve: 0, kernel: true, zero_copy: true };
/// assert_eq!(small.decide(), Placement::Shared);
/// assert_eq!(PlacementInput { csr: 2 << 30, ..small }.decide(), Placement::HostZeroCopy);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PlacementInput {
    /// Row pointers and sources of all relations, and weights.
    pub csr: u64,
    /// Shared memory of a block of threads.
    pub shared: u64,
    /// Free device memory.
    pub free: u64,
    /// Of that, what the model and the batches need.
    pub reserve: u64,
    /// Whether the device has a kernel that samples.
    pub kernel: bool,
    /// Whether kernels of the device can read host memory.
    pub zero_copy: bool,
}

impl PlacementInput {
    /// The first place that is large enough.
    pub fn decide(&self) -> Placement {
        if !self.kernel {
            return Placement::Host;
        }
        // A tenth of the shared memory is left to the kernel.
        if self.csr <= self.shared - self.shared / 10 {
            return Placement::Shared;
        }
        match self.csr <= self.free.saturating_sub(self.reserve) {
            true => Placement::Device,
            false if self.zero_copy => Placement::HostZeroCopy,
            false => Placement::Host,
        }
    }
}

impl fmt::Display for PlacementInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (csr, free, reserve) = (Bytes(self.csr), Bytes(self.free), Bytes(self.reserve));
        match self.decide() {
            Placement::Shared => write!(f, "sampled in shared memory: the adjacency takes {csr}"),
            Placement::Device => {
                write!(f, "sampled in device memory: the adjacency takes {csr} of {free} free, {reserve} kept free")
            }
            Placement::HostZeroCopy => {
                write!(f, "sampled from host memory by the device: the adjacency takes {csr}, {free} are free")
            }
            Placement::Host if self.kernel => {
                write!(f, "sampled by the processor: the adjacency takes {csr}, {free} are free on the device")
            }
            Placement::Host => write!(f, "sampled by the processor: the adjacency takes {csr} of host memory"),
        }
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
