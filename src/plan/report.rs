//! What is asked, what a plan says, and its table.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::grouped;

/// What to plan, and with which rates; GB are 10^9 bytes.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Numbers of devices.
    pub devices: Vec<usize>,
    /// Over which the largest of these numbers is spread.
    pub hosts: usize,
    /// Of a device, in GB.
    pub memory: Option<f64>,
    pub rates: Rates,
    /// A measured epoch on one device, in ms, of the data as they are.
    pub epoch: Option<f64>,
    /// Factor on nodes, edges and labels.
    pub scale: f64,
}

/// GB/s and microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rates {
    /// What a device copies in its memory.
    pub device: f64,
    /// What arrives at a device from others of its host; `None`: as measured, by their number.
    pub link: Option<f64>,
    /// What arrives at a device from other hosts.
    pub network: f64,
    /// Microseconds of the host for each kernel that it launches.
    pub launch: f64,
}

/// Milliseconds until even the smallest exchange has ended: 1 MiB summed up by 2 and by 4 H200.
pub(super) const EXCHANGE_MS: f64 = 0.05;

impl Default for Rates {
    fn default() -> Self {
        Self { device: 4050.0, link: None, network: 50.0, launch: 12.0 }
    }
}

impl Rates {
    /// Between so many devices of a host: measured on 2 and on 4 H200.
    pub(super) fn link_of(self, devices: usize) -> f64 {
        self.link.unwrap_or(if devices > 2 { 325.0 } else { 254.0 })
    }
}

/// How an epoch goes through the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// All rows, divided over the devices.
    AllRows,
    /// The rows that the loss reaches; each device has the graph and a part of the loss.
    ReachableRows,
    /// Mini-batches, of which each device has a part.
    MiniBatches,
}

/// What the fullest device holds, in bytes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    pub graph: f64,
    pub features: f64,
    /// Results of layers, gradients included, and rows of other devices.
    pub activations: f64,
    /// In all, while all nodes are scored, each device its rows; none where that goes layer by layer.
    pub scoring: Option<f64>,
}

impl Memory {
    /// In an epoch.
    pub fn epoch(&self) -> f64 {
        self.graph + self.features + self.activations
    }
}

/// All nodes scored, or embedded by a Stage 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scoring {
    pub ms: f64,
    pub nodes_per_s: f64,
}

/// Mini-batches of an epoch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Batches {
    pub count: f64,
    /// On all devices together.
    pub seeds_per_s: f64,
    /// Rows of features that a device reads for its part of a mini-batch, and bytes of those of an epoch.
    pub rows: f64,
    pub bytes: f64,
    /// Bytes of features that come to a device from other hosts in an epoch.
    pub crossing: f64,
}

/// What an epoch waits for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    DeviceMemory,
    /// What the host takes to launch kernels one by one, all of them for every device.
    SmallKernels,
    /// What every device does as if it were alone.
    Undivided,
    Link,
    Network,
}

/// An epoch on so many devices.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlanRow {
    pub devices: usize,
    pub hosts: usize,
    pub memory: Memory,
    /// Whether epoch and scoring fit the memory of a device, where that is given.
    pub fits: Option<bool>,
    /// Exchanges of a device in an epoch, and bytes of their results, as `bench scale` counts them.
    pub calls: f64,
    pub bytes: f64,
    pub compute_ms: f64,
    /// Of that, launches of kernels, which are as many on every device.
    pub launch_ms: f64,
    pub exchange_ms: f64,
    /// Of that, what crosses while the device computes.
    pub hidden_ms: f64,
    pub epoch_ms: f64,
    /// How many times as fast as on one device.
    pub speedup: f64,
    pub bottleneck: Bottleneck,
    /// Where the whole graph is scored at once.
    pub scoring: Option<Scoring>,
    /// Where an epoch goes through mini-batches.
    pub batches: Option<Batches>,
}

/// A plan; `Display` is a table with all that was assumed, `Serialize` the same for machines.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    pub data: PathBuf,
    /// The task, and what its layers are.
    pub model: String,
    pub nodes: f64,
    pub edges: f64,
    /// Labels and edges that an epoch learns from.
    pub labels: f64,
    pub loss_edges: f64,
    pub way: Way,
    /// In GB, where it is given.
    pub memory: Option<f64>,
    pub rates: Rates,
    pub rows: Vec<PlanRow>,
    pub assumptions: Vec<String>,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::AllRows => "all rows of the whole graph, divided",
            Way::ReachableRows => "reachable rows of the whole graph",
            Way::MiniBatches => "mini-batches",
        })
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bottleneck::DeviceMemory => "device memory bandwidth",
            Bottleneck::SmallKernels => "launches of kernels",
            Bottleneck::Undivided => "what is not divided",
            Bottleneck::Link => "link",
            Bottleneck::Network => "network",
        })
    }
}

/// A number with three digits at least.
fn shown(value: f64) -> String {
    let digits = if value >= 100.0 { 0 } else { 2 };
    format!("{value:.digits$}")
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [self.nodes, self.edges, self.labels, self.loss_edges];
        let [nodes, edges, labels, loss_edges] = counts.map(|count| grouped(count as usize));
        let data = self.data.display();
        writeln!(
            f,
            "{data}: {nodes} nodes, {edges} edges; an epoch learns from {labels} labels and {loss_edges} edges"
        )?;
        writeln!(f, "{}, {}; an epoch, on paper\n", self.model, self.way)?;
        writeln!(f, "{:>38}{:>34}{:>29}", "GB on the fullest device", "exchanged", "ms")?;
        writeln!(
            f,
            "devices hosts {:>8}{:>10}{:>12}{:>8}{:>8} {:>5} {:>6}{:>10} {:>9}{:>9}{:>8}{:>9} {:>7}  bottleneck",
            "graph",
            "features",
            "activations",
            "epoch",
            "scoring",
            "fits",
            "calls",
            "MB",
            "compute",
            "exchange",
            "hidden",
            "epoch",
            "speed"
        )?;
        for row in &self.rows {
            let PlanRow { devices, hosts, memory, calls, compute_ms, exchange_ms, hidden_ms, epoch_ms, .. } = row;
            let gb = |bytes: f64| shown(bytes / 1e9);
            let scoring = memory.scoring.map_or_else(|| "-".into(), gb);
            let fits = row.fits.map_or("-", |fits| if fits { "yes" } else { "no" });
            writeln!(
                f,
                "{devices:>7}{hosts:>6} {:>8}{:>10}{:>12}{:>8}{scoring:>8} {fits:>5} {calls:>6.0}{:>10} {:>9}{:>9}{:>8}{:>9} \
                 {:>7}  {}",
                gb(memory.graph),
                gb(memory.features),
                gb(memory.activations),
                gb(memory.epoch()),
                shown(row.bytes / 1e6),
                shown(*compute_ms),
                shown(*exchange_ms),
                shown(*hidden_ms),
                shown(*epoch_ms),
                format!("{:.2}x", row.speedup),
                row.bottleneck,
            )?;
        }
        writeln!(f)?;
        for PlanRow { devices, hosts, scoring, batches, .. } in &self.rows {
            if let Some(Scoring { ms, nodes_per_s }) = scoring {
                let million = shown(nodes_per_s / 1e6);
                writeln!(f, "on {devices}: all nodes forward alone in {} ms, {million} million a second", shown(*ms))?;
            }
            if let Some(Batches { count, seeds_per_s, rows, bytes, crossing }) = batches {
                let [count, seeds, rows] = [count, seeds_per_s, rows].map(|count| grouped(*count as usize));
                let (gb, crossing) = (shown(bytes / 1e9), shown(crossing / 1e9));
                let crossing = if *hosts > 1 { format!(", {crossing} GB from other hosts") } else { String::new() };
                writeln!(
                    f,
                    "on {devices}: {seeds} seeds a second; {count} mini-batches, of which a device reads {rows} rows of \
                     features each, {gb} GB an epoch{crossing}"
                )?;
            }
        }
        writeln!(f)?;
        self.assumptions.iter().try_for_each(|line| writeln!(f, "- {line}"))
    }
}
