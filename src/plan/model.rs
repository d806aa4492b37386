//! How memory, bytes and time of an epoch follow from sizes.

use super::field::{Nodes, Scaled};
use super::report::{Bottleneck, Memory, PlanOptions, PlanReport, PlanRow, Rates, Way};
use super::work::{Layer, Visited};
use crate::config::{LoaderMode, OwnTransform, Rows, Stage2Config, Stage2Input, Transfer};
use crate::graph::Sizes;
use crate::infer::plan::attention_activations;
use crate::models::precision::dtype;

/// Milliseconds that an epoch gets longer by an exchange besides its bytes: the rank waits for its device, and the
/// device then for what the host does. The one constant that is fitted, by least squares of the relative errors of the
/// five epochs on two H100 in `src/bench/RESULTS.md`, "Several devices": that they agree predicts nothing.
pub(super) const HOST_WAIT_MS: f64 = 1.25;

/// Features may take one part in so many of the memory to lie there in mini-batches, see `loader.transfer`.
const RESIDENT_SHARE: f64 = 4.0;

/// What is planned.
#[derive(Clone, Copy)]
pub(super) struct Model<'a> {
    pub config: &'a Stage2Config,
    pub sizes: &'a Sizes,
    /// Columns of the input.
    pub width: usize,
    pub scale: f64,
    /// Of a device, in GB.
    pub memory: Option<f64>,
}

/// What one device does in a step.
pub(super) struct Step {
    pub bytes: f64,
    /// Rows of features that mini-batches fetch, and bytes of results of layers.
    pub fetched: f64,
    pub activations: f64,
}

impl Model<'_> {
    fn scaled(&self) -> Scaled<'_> {
        Scaled { sizes: self.sizes, scale: self.scale }
    }

    fn element(&self) -> f64 {
        dtype(self.config.train.precision).size() as f64
    }

    fn nodes(&self) -> f64 {
        self.sizes.nodes() as f64 * self.scale
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

    /// What the layers make of the rows of one device, without gradients, and what all devices give each other of it.
    pub fn scoring_results(&self, ranks: f64) -> f64 {
        let own = attention_activations(self.config, (self.nodes() / ranks) as u64, self.width, Rows::Reachable);
        // Hidden rows of all nodes, then embeddings of all.
        let widest = self.config.model.hidden.max(self.config.model.out) as f64;
        own as f64 + if ranks > 1.0 { self.nodes() * (widest * self.element() + 4.0) } else { 0.0 }
    }

    pub fn way(&self) -> Way {
        let loader = &self.config.loader;
        let whole = match self.config.train.rows {
            Rows::All => Way::AllRows,
            Rows::Reachable => Way::ReachableRows,
        };
        let allowed = Some(loader.memory).filter(|memory| *memory > 0.0).or(self.memory);
        match loader.mode {
            LoaderMode::Full => whole,
            LoaderMode::Sampled => Way::MiniBatches,
            LoaderMode::Auto => {
                let results =
                    attention_activations(self.config, self.nodes() as u64, self.width, self.config.train.rows);
                let needed = self.graph_bytes() + self.feature_bytes() + results as f64;
                if allowed.is_some_and(|allowed| needed > 1e9 * allowed) { Way::MiniBatches } else { whole }
            }
        }
    }

    /// By type, labels that an epoch learns from.
    fn labels(&self) -> Vec<f64> {
        let all: f64 = self.sizes.labels.iter().sum::<usize>() as f64 * self.scale;
        let share = match self.config.split.drawn.few() {
            Some(few) => few.iter().sum::<usize>() as f64 / all.max(1.0),
            None => self.config.split.train,
        };
        self.sizes.labels.iter().map(|&count| share.min(1.0) * self.scale * count as f64).collect()
    }

    /// By relation, edges that the smoothness term samples.
    fn loss_edges(&self) -> Vec<(usize, f64)> {
        let most = if self.config.loss.lambda_unsup > 0.0 { self.config.loss.samples_per_relation as f64 } else { 0.0 };
        let primary = self.sizes.relations.iter().enumerate().filter(|(_, relation)| relation.primary);
        primary.map(|(at, of)| (at, most.min(of.degrees[0].edges() as f64 * self.scale))).collect()
    }

    /// Steps of an epoch.
    pub fn steps(&self) -> f64 {
        if self.way() != Way::MiniBatches {
            return 1.0;
        }
        let labels: f64 = self.labels().iter().sum();
        let edges = self.loss_edges();
        let seeds = labels + edges.iter().map(|(_, count)| 2.0 * count).sum::<f64>();
        let longest = edges.iter().map(|(_, count)| *count).fold(labels, f64::max);
        (seeds / self.config.loader.batch_size as f64).ceil().min(longest).max(1.0)
    }

    fn layer(&self, layer: usize, visited: &[Visited], rows: &[f64], before: &[f64]) -> f64 {
        let (hidden, output) = (self.config.model.hidden, self.config.model.out);
        let widths = [[self.width, hidden], [hidden, output]][layer];
        let (sizes, element) = (self.sizes, self.element() as u64);
        Layer { sizes, visited, rows, before, widths, element, reads_data: layer == 0 }.bytes()
    }

    /// What one of `ranks` devices does in a step.
    pub fn step(&self, ranks: f64) -> Step {
        let (way, scaled, types) = (self.way(), self.scaled(), self.sizes.node_types.len());
        let all: Vec<f64> = (0..types).map(|t| scaled.nodes(t)).collect();
        let (kept_share, config) = (1.0 - self.config.drop_edge.rate, self.config);
        let (hidden, out, element) = (config.model.hidden as f64, config.model.out as f64, self.element());
        if way == Way::AllRows {
            let part = |of: Visited| Visited { rows: of.rows / ranks, edges: of.edges / ranks, kept: of.kept / ranks };
            let visited: Vec<Visited> = scaled.all(|degree| kept_share * degree).into_iter().map(part).collect();
            let rows: Vec<f64> = all.iter().map(|count| count / ranks).collect();
            let bytes = [0, 1].map(|layer| self.layer(layer, &visited, &rows, &all)).iter().sum();
            let own = attention_activations(config, (self.nodes() / ranks) as u64, self.width, Rows::All) as f64;
            // The hidden rows of all devices, and gradients of them.
            let gathered = if ranks > 1.0 { 2.0 * self.nodes() * hidden * element } else { 0.0 };
            return Step { bytes, fetched: 0.0, activations: own + gathered };
        }
        let kept = |layer: usize| {
            // Fanouts count from the seeds on.
            let fanout = config.loader.fanouts.iter().rev().nth(layer).copied().unwrap_or(0) as f64;
            move |degree: f64| {
                if way == Way::MiniBatches && fanout > 0.0 { degree.min(fanout) } else { kept_share * degree }
            }
        };
        let part = 1.0 / (ranks * self.steps());
        let labels: Vec<f64> = self.labels().iter().map(|count| count * part).collect();
        let edges: Vec<_> = self.loss_edges().into_iter().map(|(relation, count)| (relation, count * part)).collect();
        let counts = |nodes: &[Nodes]| nodes.iter().map(|nodes| nodes.count).collect::<Vec<f64>>();
        let wanted = scaled.of_loss(&labels, &edges);
        let (second, reached) = scaled.visit(&wanted, kept(1));
        let (first, read) = scaled.visit(&reached, kept(0));
        let (wanted, reached) = (counts(&wanted), counts(&reached));
        let read = if way == Way::MiniBatches { counts(&read) } else { all };
        let bytes = self.layer(0, &first, &reached, &read) + self.layer(1, &second, &wanted, &reached);
        let sum = |counts: &[f64]| counts.iter().sum::<f64>();
        let channels = sum(&reached) * (self.width as f64 + 2.0 * hidden) + sum(&wanted) * 2.0 * out;
        let fetched = if way == Way::MiniBatches { sum(&read) } else { 0.0 };
        let rows = fetched * self.width as f64 * element;
        Step { bytes, fetched, activations: 2.0 * channels * element + rows }
    }

    /// Numbers that are learned.
    fn parameters(&self) -> f64 {
        let mut streams: Vec<&str> = self.sizes.relations.iter().map(|relation| relation.stream.as_str()).collect();
        streams.sort_unstable();
        streams.dedup();
        let (input, hidden, out) = (self.width, self.config.model.hidden, self.config.model.out);
        let own = if self.config.model.own == OwnTransform::Always { self.sizes.node_types.len() } else { 0 };
        let weights = (streams.len() + own) * (input * hidden + hidden * out);
        (weights + streams.len() * 2 * (hidden + out) + out + 1) as f64
    }

    /// Bytes of a row of features in mini-batches.
    fn row_bytes(&self) -> f64 {
        let value = match (self.config.data.input, self.sizes.features) {
            (Stage2Input::Features, Some([_, bytes])) => bytes as f64,
            _ => 4.0,
        };
        self.width as f64 * value
    }

    /// Whether so many bytes of features lie on a device by `loader.transfer = "auto"`.
    fn fits(&self, bytes: f64) -> bool {
        self.memory.is_none_or(|memory| bytes <= 1e9 * memory / RESIDENT_SHARE)
    }

    /// Whether mini-batches of `ranks` devices, `per_host` of them on a host, find features divided over all.
    fn divides(&self, ranks: usize, per_host: usize) -> bool {
        let stored = self.nodes() * self.row_bytes();
        let part = stored / ranks as f64 + self.config.loader.hot * stored;
        match self.config.loader.transfer {
            _ if ranks == 1 => false,
            Transfer::Divided => true,
            Transfer::Auto => ranks <= per_host && !self.fits(stored) && self.fits(part),
            _ => false,
        }
    }

    fn memory_of(&self, ranks: usize, per_host: usize, step: &Step) -> Memory {
        let divides = self.divides(ranks, per_host);
        let ranks = ranks as f64;
        let (whole, features, activations) = (self.graph_bytes(), self.feature_bytes(), step.activations);
        let graph = match self.way() {
            Way::AllRows if ranks > 1.0 => self.part_bytes(ranks),
            // A part beside the whole, to score.
            Way::ReachableRows => whole + self.part_bytes(ranks),
            Way::AllRows | Way::MiniBatches => whole,
        };
        match self.way() {
            Way::AllRows | Way::ReachableRows => {
                let scoring = Some(graph + features + self.scoring_results(ranks));
                Memory { graph, features, activations, scoring }
            }
            Way::MiniBatches => {
                let stored = self.nodes() * self.row_bytes();
                let hot = self.config.loader.hot * stored;
                let features = match self.config.loader.transfer {
                    _ if divides => stored / ranks + hot,
                    Transfer::Resident | Transfer::Divided => stored,
                    Transfer::Auto if self.fits(stored) => stored,
                    Transfer::Auto | Transfer::ZeroCopy | Transfer::Gathered => hot,
                };
                Memory { graph, features, activations, scoring: None }
            }
        }
    }

    /// Exchanges of an epoch: their number, bytes of their results, and milliseconds until these have arrived.
    fn exchanged(&self, ranks: usize, per_host: usize, rates: Rates, step: &Step) -> (f64, f64, f64) {
        let (all, here) = (ranks as f64, ranks.min(per_host) as f64);
        let (away, link) = (all - here, rates.link_of(ranks.min(per_host)));
        // Sums go round all devices, each host's over as many adapters as it has devices; 10^6 bytes a millisecond are
        // a GB/s.
        let sum = |bytes: f64| {
            let across = if away > 0.0 { bytes / (here * rates.network) } else { 0.0 };
            across.max(if here > 1.0 { bytes / link } else { 0.0 }) / 1e6
        };
        let steps = self.steps();
        let gradients = 4.0 * self.parameters();
        let (calls, bytes, ms) = (steps + 1.0, steps * gradients + 12.0, 2.0 * steps * sum(gradients));
        // What every other rank sends, of so many bytes that come from all.
        let sent = |bytes: f64| bytes / all * ((here - 1.0) / link + away / rates.network) / 1e6;
        if self.way() == Way::MiniBatches && self.divides(ranks, per_host) {
            // How many rows, which, and the rows.
            let rows = step.fetched * self.row_bytes();
            return (calls + 3.0 * steps, bytes + steps * rows, ms + steps * sent(rows));
        }
        if self.way() != Way::AllRows {
            return (calls, bytes, ms);
        }
        let rows = |element: f64| self.nodes() * (self.config.model.hidden as f64 * element + 4.0);
        let (forward, backward) = (rows(self.element()), rows(4.0));
        // Every device sends its rows to every other one; sums of gradients follow one rank behind the other.
        let gather = sent(forward);
        let types = self.sizes.node_types.len() as f64;
        (calls + 2.0 * (types + 1.0), bytes + forward + backward / all, ms + gather + sum(backward))
    }

    /// The epoch on `ranks` devices, `per_host` of them on a host; `one` is what it takes on one device, in ms.
    pub fn row(&self, ranks: usize, per_host: usize, rates: Rates, one: Option<f64>) -> PlanRow {
        let (way, step, alone) = (self.way(), self.step(ranks as f64), self.step(1.0));
        let by_bytes = self.steps() * alone.bytes / (1e6 * rates.device);
        let one = one.unwrap_or(by_bytes);
        // What mini-batches take longer than for their bytes is launches of small kernels: each device has all of them.
        let launches = if way == Way::MiniBatches { (one - by_bytes).max(0.0) } else { 0.0 };
        let compute_ms = launches + (one - launches) * step.bytes / alone.bytes.max(1.0);
        let (calls, bytes, exchange_ms) = match ranks {
            1 => (0.0, 0.0, 0.0),
            _ => self.exchanged(ranks, per_host, rates, &step),
        };
        let wait_ms = calls * HOST_WAIT_MS;
        let epoch_ms = compute_ms + exchange_ms + wait_ms;
        let divided = (one - launches) / ranks as f64;
        let hosts = ranks.div_ceil(per_host);
        let parts = [
            (divided, Bottleneck::DeviceMemory),
            (launches, Bottleneck::SmallKernels),
            (compute_ms - launches - divided, Bottleneck::Undivided),
            (exchange_ms, if hosts > 1 { Bottleneck::Network } else { Bottleneck::Link }),
            (wait_ms, Bottleneck::HostWaits),
        ];
        let longest = parts.into_iter().fold(parts[0], |longest, part| if part.0 > longest.0 { part } else { longest });
        let memory = self.memory_of(ranks, per_host, &step);
        let most = memory.scoring.unwrap_or(0.0).max(memory.epoch());
        PlanRow {
            devices: ranks,
            hosts,
            memory,
            fits: self.memory.map(|available| most <= 1e9 * available),
            calls,
            bytes,
            compute_ms,
            exchange_ms,
            wait_ms,
            epoch_ms,
            speedup: one / epoch_ms,
            bottleneck: longest.1,
        }
    }

    pub fn report(&self, options: &PlanOptions, assumptions: Vec<String>) -> PlanReport {
        let per_host = options.devices.iter().max().copied().unwrap_or(1).div_ceil(options.hosts.max(1)).max(1);
        let measured = |model: &Self| model.steps() * model.step(1.0).bytes;
        // A measured epoch is that of the data as they are.
        let grown = measured(self) / measured(&Model { scale: 1.0, ..*self }).max(1.0);
        let one = options.epoch.map(|ms| ms * grown);
        let rows = options.devices.iter().map(|&ranks| self.row(ranks, per_host, options.rates, one)).collect();
        PlanReport {
            data: self.config.data.path.clone(),
            nodes: self.nodes(),
            edges: self.sizes.edges() as f64 * self.scale,
            labels: self.labels().iter().sum(),
            way: self.way(),
            memory: self.memory,
            rates: options.rates,
            rows,
            assumptions,
        }
    }
}
