//! How memory, bytes and time of an epoch follow from sizes.

use super::field::{Nodes, Scaled};
use super::network::Network;
use super::report::{Batches, Bottleneck, EXCHANGE_MS, Memory, PlanOptions, PlanReport, PlanRow, Rates, Scoring, Way};
use super::work::{Layer, Visited, bytes_of_marks, launches_of_layers, launches_of_loss};
use crate::config::{LoaderMode, Rows, RunConfig, Transfer};
use crate::error::Result;
use crate::graph::Sizes;

/// In mini-batches all features lie on the device where they take its memory divided by this at most, see
/// `loader.transfer`.
const RESIDENT_SHARE: f64 = 4.0;

/// Of what can cross beside computation, what is counted as hidden by it: on two H200 it was nothing of 58 M edges and
/// three quarters of 464 M, see `src/bench/results/devices.md`, "On paper".
pub(super) const HIDDEN_SHARE: f64 = 0.5;

/// What is planned: a model on a graph, and how it goes through it.
pub(super) struct Model<'a> {
    pub network: Network<'a>,
    pub way: Way,
    sizes: &'a Sizes,
    /// Columns of the input.
    width: usize,
    scale: f64,
    /// Of a device, in GB.
    memory: Option<f64>,
}

/// What one device does in a step.
pub(super) struct Step {
    pub bytes: f64,
    /// Rows of features that mini-batches fetch, and bytes of results of layers.
    pub fetched: f64,
    pub activations: f64,
}

impl<'a> Model<'a> {
    /// On a graph `scale` times as large as `sizes` say, with `width` columns of input and devices of `memory` GB.
    ///
    /// # Errors
    /// As [`Network::of`].
    pub fn of(config: &'a RunConfig, sizes: &'a Sizes, width: usize, scale: f64, memory: Option<f64>) -> Result<Self> {
        let network = Network::of(config, sizes, width, scale)?;
        let whole = match network.rows {
            Rows::All => Way::AllRows,
            Rows::Reachable => Way::ReachableRows,
        };
        let (mode, allowed) = (network.loader.mode, network.loader.memory);
        let mut model = Self { network, way: whole, sizes, width, scale, memory };
        let allowed = Some(allowed).filter(|memory| *memory > 0.0).or(memory);
        // As trainings reckon it, whose reachable rows may be all rows without gradients.
        let results = |nodes| if whole == Way::AllRows { model.trained(nodes) } else { model.results(nodes) };
        let needed = || model.graph_bytes() + model.feature_bytes() + results(model.nodes());
        model.way = match mode {
            LoaderMode::Full => whole,
            LoaderMode::Sampled => Way::MiniBatches,
            LoaderMode::Auto if allowed.is_some_and(|allowed| needed() > 1e9 * allowed) => Way::MiniBatches,
            LoaderMode::Auto => whole,
        };
        Ok(model)
    }

    fn scaled(&self) -> Scaled<'_> {
        Scaled { sizes: self.sizes, scale: self.scale }
    }

    fn element(&self) -> f64 {
        self.network.element as f64
    }

    pub fn nodes(&self) -> f64 {
        self.sizes.nodes() as f64 * self.scale
    }

    /// By type.
    fn all(&self) -> Vec<f64> {
        (0..self.sizes.node_types.len()).map(|t| self.scaled().nodes(t)).collect()
    }

    pub fn graph_bytes(&self) -> f64 {
        4.0 * self.scale * self.sizes.relations.iter().map(|relation| relation.words).sum::<u64>() as f64
    }

    pub fn feature_bytes(&self) -> f64 {
        self.nodes() * self.width as f64 * self.element()
    }

    /// The edges into the rows of one of several devices, by rows and by columns: a reverse is not shared there.
    fn part_bytes(&self, ranks: f64) -> f64 {
        if ranks > 1.0 { 2.0 * self.graph_bytes() / ranks } else { 0.0 }
    }

    /// Bytes of what is made of the features of so many rows for all epochs, and of what the layers make.
    pub fn results(&self, rows: f64) -> f64 {
        let columns: f64 = self.network.layers.iter().map(|layer| layer.columns).sum();
        rows * (self.network.at_hand + columns) * self.element()
    }

    /// The same in a training of all rows, with gradients.
    pub fn trained(&self, rows: f64) -> f64 {
        rows * (self.network.at_hand * self.element() + self.network.trained)
    }

    /// What the layers make of the rows of one device, without gradients, and what all devices give each other of it.
    pub fn scoring_results(&self, ranks: f64) -> f64 {
        // Rows of all nodes between layers, then what the last one makes of all.
        let widest = self.network.layers.iter().map(|layer| layer.output).max().unwrap_or(0) as f64;
        let gathered = if ranks > 1.0 { self.nodes() * (widest * self.element() + 4.0) } else { 0.0 };
        self.results(self.nodes() / ranks) + gathered
    }

    /// Steps of an epoch.
    pub fn steps(&self) -> f64 {
        let loss = &self.network.loss;
        match self.way {
            Way::AllRows | Way::ReachableRows => 1.0,
            Way::MiniBatches => {
                (loss.seeds / self.network.loader.batch_size as f64).ceil().min(loss.most_batches).max(1.0)
            }
        }
    }

    /// What of an epoch on one device launches take, in ms: no more than it was measured with. Of mini-batches, whose
    /// kernels are small, all that it takes longer than for its bytes.
    pub fn launch_ms(&self, measured: Option<f64>, rates: Rates) -> f64 {
        if let (Way::MiniBatches, Some(ms)) = (self.way, measured) {
            return (ms - self.epoch_bytes() / (1e6 * rates.device)).max(0.0);
        }
        let of_layers = launches_of_layers(self.sizes, self.network.layers.len(), true);
        let launches = of_layers + launches_of_loss(self.way == Way::AllRows);
        (1e-3 * rates.launch * self.steps() * launches).min(measured.unwrap_or(f64::INFINITY))
    }

    /// An epoch on one device, in ms, where `measured` takes `ms`.
    pub fn on_one(&self, ms: f64, measured: &Self, rates: Rates) -> f64 {
        let launches = measured.launch_ms(Some(ms), rates);
        let larger = self.epoch_bytes() / measured.epoch_bytes().max(1.0);
        launches * self.steps() / measured.steps() + (ms - launches) * larger
    }

    /// Bytes of an epoch on one device.
    pub fn epoch_bytes(&self) -> f64 {
        self.steps() * self.step(1.0).bytes
    }

    /// Bytes of layer `at` on one of so many devices that share what is projected before rows are exchanged.
    fn layer(&self, at: usize, visited: &[Visited], [rows, before]: [&[f64]; 2], shared_by: f64, trains: bool) -> f64 {
        let (sizes, element, shape) = (self.sizes, self.network.element, self.network.layers[at]);
        let reads_data = at == 0;
        let sums_at_hand = reads_data && trains && self.network.at_hand > 0.0 && self.way != Way::MiniBatches;
        Layer { sizes, shape, visited, rows, before, shared_by, element, reads_data, sums_at_hand }.bytes(trains)
    }

    /// Bytes of all layers over the rows of one of `ranks` devices.
    fn all_rows(&self, ranks: f64, trains: bool) -> f64 {
        let (all, kept) = (self.all(), if trains { self.network.kept } else { 1.0 });
        let part = |of: Visited| Visited { rows: of.rows / ranks, edges: of.edges / ranks, kept: of.kept / ranks };
        let visited: Vec<Visited> = self.scaled().all(|degree| kept * degree).into_iter().map(part).collect();
        let rows: Vec<f64> = all.iter().map(|count| count / ranks).collect();
        (0..self.network.layers.len()).map(|at| self.layer(at, &visited, [&rows, &all], ranks, trains)).sum()
    }

    /// What one of `ranks` devices does in a step.
    pub fn step(&self, ranks: f64) -> Step {
        let (way, scaled, network, element) = (self.way, self.scaled(), &self.network, self.element());
        if way == Way::AllRows {
            // The rows between layers of all devices. Their gradients cross type by type, and leave as they have
            // crossed.
            let gathered = self.nodes() * network.gathered.iter().sum::<usize>() as f64 * element;
            let gathered = if ranks > 1.0 { gathered } else { 0.0 };
            let activations = self.trained(self.nodes() / ranks) + gathered;
            return Step { bytes: self.all_rows(ranks, true), fetched: 0.0, activations };
        }
        let kept = |layer: usize| {
            // Fanouts count from the seeds on.
            let fanout = network.loader.fanouts.iter().rev().nth(layer).copied().unwrap_or(0) as f64;
            move |degree: f64| {
                if way == Way::MiniBatches && fanout > 0.0 { degree.min(fanout) } else { network.kept * degree }
            }
        };
        let counts = |nodes: &[Nodes]| nodes.iter().map(|nodes| nodes.count).collect::<Vec<f64>>();
        let mut wanted = scaled.of_loss(&network.loss, 1.0 / (ranks * self.steps()));
        let (mut bytes, mut results, mut fetched) = (0.0, 0.0, 0.0);
        for (at, layer) in network.layers.iter().enumerate().rev() {
            let (visited, reached) = scaled.visit(&wanted, kept(at));
            let (rows, mut before) = (counts(&wanted), counts(&reached));
            match (at, way) {
                (0, Way::MiniBatches) => fetched = before.iter().sum(),
                (0, _) => before = self.all(),
                _ => {}
            }
            bytes += self.layer(at, &visited, [&rows, &before], 1.0, true);
            results += 2.0 * rows.iter().sum::<f64>() * layer.columns * element;
            wanted = reached;
        }
        let inputs = match way {
            Way::MiniBatches => fetched * self.width as f64,
            _ => self.nodes() * network.at_hand,
        };
        if way == Way::ReachableRows {
            bytes += bytes_of_marks(self.nodes());
        }
        Step { bytes, fetched, activations: results + inputs * element }
    }

    /// Bytes of a row of features in mini-batches.
    fn row_bytes(&self) -> f64 {
        (self.width as u64 * self.network.stored) as f64
    }

    /// Whether so many bytes of features lie on a device by `loader.transfer = "auto"`.
    fn fits(&self, bytes: f64) -> bool {
        self.memory.is_none_or(|memory| bytes <= 1e9 * memory / RESIDENT_SHARE)
    }

    /// The devices over which mini-batches of `ranks` devices find features divided, where they do: those of a host
    /// where these have room for them, else all.
    fn divided_over(&self, ranks: usize, per_host: usize) -> Option<usize> {
        if ranks == 1 || self.way != Way::MiniBatches || self.network.loader.transfer != Transfer::Divided {
            return None;
        }
        let here = ranks.min(per_host);
        Some(if self.fits(self.nodes() * self.row_bytes() / here as f64) { here } else { ranks })
    }

    /// Bytes of features that come to each of `ranks` devices in a step: of those of its host, and of other hosts. A
    /// row crosses between hosts once for all devices of a host, to the one of them that is asked for it.
    fn features_exchanged(&self, ranks: usize, per_host: usize, step: &Step) -> [f64; 2] {
        let within = step.fetched * self.row_bytes();
        match self.divided_over(ranks, per_host) {
            None => [0.0, 0.0],
            Some(over) if over <= per_host => [within, 0.0],
            Some(over) => {
                let here = ranks.min(per_host) as f64;
                [within, self.step(over as f64 / here).fetched * self.row_bytes() / here]
            }
        }
    }

    /// Of `bytes` that come from all hosts alike, those that cross between hosts.
    fn from_others(bytes: f64, ranks: usize, per_host: usize) -> f64 {
        bytes * (1.0 - ranks.min(per_host) as f64 / ranks as f64)
    }

    fn memory_of(&self, ranks: usize, per_host: usize, step: &Step) -> Memory {
        let divided_over = self.divided_over(ranks, per_host);
        let ranks = ranks as f64;
        let (whole, features, activations) = (self.graph_bytes(), self.feature_bytes(), step.activations);
        let graph = match self.way {
            Way::AllRows if ranks > 1.0 => self.part_bytes(ranks),
            // A part beside the whole, to score.
            Way::ReachableRows => whole + self.part_bytes(ranks),
            Way::AllRows | Way::MiniBatches => whole,
        };
        match self.way {
            Way::AllRows | Way::ReachableRows => {
                let scoring = Some(graph + features + self.scoring_results(ranks));
                Memory { graph, features, activations, scoring }
            }
            Way::MiniBatches => {
                let stored = self.nodes() * self.row_bytes();
                let hot = self.network.loader.hot * stored;
                let features = match (divided_over, self.network.loader.transfer) {
                    (Some(over), _) => stored / over as f64 + hot,
                    (None, Transfer::Resident | Transfer::Divided) => stored,
                    (None, Transfer::Auto) if self.fits(stored) => stored,
                    (None, Transfer::Auto | Transfer::ZeroCopy | Transfer::Gathered) => hot,
                };
                Memory { graph, features, activations, scoring: None }
            }
        }
    }

    /// Milliseconds until results of `bytes` in all have come from the others, of which each has as much.
    fn gather_ms(&self, bytes: f64, ranks: usize, per_host: usize, rates: Rates) -> f64 {
        let (all, here) = (ranks as f64, ranks.min(per_host) as f64);
        let link = rates.link_of(ranks.min(per_host));
        bytes / all * ((here - 1.0) / link + (all - here) / rates.network) / 1e6
    }

    /// Exchanges of an epoch: their number, bytes of their results, and milliseconds until all have begun and sums of
    /// gradients of the parameters have arrived, and until rows have.
    fn exchanged(&self, ranks: usize, per_host: usize, rates: Rates, step: &Step) -> (f64, f64, [f64; 2]) {
        let (all, here) = (ranks as f64, ranks.min(per_host) as f64);
        let (away, link) = (all - here, rates.link_of(ranks.min(per_host)));
        // Sums go round all devices, each host's over as many adapters as it has devices; 10^6 bytes a millisecond are
        // a GB/s.
        let sum = |bytes: f64| {
            let across = if away > 0.0 { bytes / (here * rates.network) } else { 0.0 };
            across.max(if here > 1.0 { bytes / link } else { 0.0 }) / 1e6
        };
        let steps = self.steps();
        let gradients = 4.0 * self.network.parameters;
        let (calls, bytes, ms) = (steps + 1.0, steps * gradients + 12.0, 2.0 * steps * sum(gradients));
        let [within, across] = self.features_exchanged(ranks, per_host, step);
        if within > 0.0 {
            // How many rows, which, and the rows; between hosts once more.
            let each = if across > 0.0 { 6.0 } else { 3.0 };
            let crossing = Self::from_others(across, ranks, per_host) / rates.network / 1e6;
            let sent = self.gather_ms(within, ranks.min(per_host), per_host, rates) + crossing;
            let (calls, bytes) = (calls + each * steps, bytes + steps * (within + across));
            return (calls, bytes, [ms + calls * EXCHANGE_MS, steps * sent]);
        }
        if self.way != Way::AllRows {
            return (calls, bytes, [ms + calls * EXCHANGE_MS, 0.0]);
        }
        // Every device sends its rows to every other one, and gradients of a device's rows come to it from all others.
        let rows = self.rows_exchanged();
        let exchanges = (self.network.gathered.len() * self.sizes.node_types.len() + 1) as f64;
        let both = 2.0 * self.gather_ms(rows, ranks, per_host, rates);
        let calls = calls + 2.0 * exchanges;
        (calls, bytes + rows + rows / all, [ms + calls * EXCHANGE_MS, both])
    }

    /// Bytes of the rows of all nodes that devices give each other in a pass.
    fn rows_exchanged(&self) -> f64 {
        let between = self.network.gathered.iter().sum::<usize>() as f64;
        self.nodes() * (between * self.element() + 4.0 * self.network.result as f64)
    }

    /// Of `ms` in which rows cross between layers, what `compute_ms` hides.
    fn hidden(&self, ms: f64, compute_ms: f64) -> f64 {
        if self.network.crosses_beside { HIDDEN_SHARE * ms.min(compute_ms) } else { 0.0 }
    }

    /// Scores of all nodes, forward alone over all edges; none where that goes layer by layer through host memory.
    fn scoring(&self, ranks: usize, per_host: usize, rates: Rates) -> Option<Scoring> {
        let launches = launches_of_layers(self.sizes, self.network.layers.len(), false);
        let compute = self.all_rows(ranks as f64, false) / (1e6 * rates.device) + 1e-3 * rates.launch * launches;
        let exchange = match ranks {
            1 => 0.0,
            _ => self.gather_ms(self.rows_exchanged(), ranks, per_host, rates),
        };
        let ms = compute + exchange - self.hidden(exchange, compute);
        (self.way != Way::MiniBatches).then_some(Scoring { ms, nodes_per_s: 1e3 * self.nodes() / ms })
    }

    /// The epoch on `ranks` devices, `per_host` of them on a host; `one` is what it takes on one device, in ms.
    pub fn row(&self, ranks: usize, per_host: usize, rates: Rates, one: Option<f64>) -> PlanRow {
        let (way, step, alone) = (self.way, self.step(ranks as f64), self.step(1.0));
        let launches = self.launch_ms(one, rates);
        let one = one.unwrap_or(launches + self.epoch_bytes() / (1e6 * rates.device));
        let compute_ms = launches + (one - launches) * step.bytes / alone.bytes.max(1.0);
        let (calls, bytes, [sums_ms, rows_ms]) = match ranks {
            1 => (0.0, 0.0, [0.0; 2]),
            _ => self.exchanged(ranks, per_host, rates, &step),
        };
        let exchange_ms = sums_ms + rows_ms;
        let hidden_ms = if way == Way::AllRows { self.hidden(rows_ms, compute_ms) } else { 0.0 };
        let epoch_ms = compute_ms + exchange_ms - hidden_ms;
        let divided = (one - launches) / ranks as f64;
        let hosts = ranks.div_ceil(per_host);
        let parts = [
            (divided, Bottleneck::DeviceMemory),
            (launches, Bottleneck::SmallKernels),
            (compute_ms - launches - divided, Bottleneck::Undivided),
            (exchange_ms - hidden_ms, if hosts > 1 { Bottleneck::Network } else { Bottleneck::Link }),
        ];
        let longest = parts.into_iter().fold(parts[0], |longest, part| if part.0 > longest.0 { part } else { longest });
        let memory = self.memory_of(ranks, per_host, &step);
        let most = memory.scoring.unwrap_or(0.0).max(memory.epoch());
        let crossing = Self::from_others(self.features_exchanged(ranks, per_host, &step)[1], ranks, per_host);
        let batches = (way == Way::MiniBatches).then(|| Batches {
            count: self.steps(),
            seeds_per_s: 1e3 * self.network.loss.seeds / epoch_ms,
            rows: step.fetched,
            bytes: self.steps() * step.fetched * self.row_bytes(),
            crossing: self.steps() * crossing,
        });
        PlanRow {
            devices: ranks,
            hosts,
            memory,
            fits: self.memory.map(|available| most <= 1e9 * available),
            calls,
            bytes,
            compute_ms,
            launch_ms: launches,
            exchange_ms,
            hidden_ms,
            epoch_ms,
            speedup: one / epoch_ms,
            bottleneck: longest.1,
            scoring: self.scoring(ranks, per_host, rates),
            batches,
        }
    }

    /// A row for every number of devices; `one` is what an epoch takes on one device, in ms, where that was measured.
    pub fn report(&self, options: &PlanOptions, one: Option<f64>, assumptions: Vec<String>) -> PlanReport {
        let per_host = options.devices.iter().max().copied().unwrap_or(1).div_ceil(options.hosts.max(1)).max(1);
        let rows = options.devices.iter().map(|&ranks| self.row(ranks, per_host, options.rates, one)).collect();
        let loss = &self.network.loss;
        PlanReport {
            data: self.network.data.to_path_buf(),
            model: self.network.title.clone(),
            nodes: self.nodes(),
            edges: self.sizes.edges() as f64 * self.scale,
            labels: loss.labels.iter().sum(),
            loss_edges: loss.edges.iter().map(|(_, count)| count).sum(),
            way: self.way,
            memory: self.memory,
            rates: options.rates,
            rows,
            assumptions,
        }
    }
}
