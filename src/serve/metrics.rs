//! Figures of the server in the text format of Prometheus.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::engine::{Engine, Figure};
use crate::memory::of_status;

type Labels<const N: usize> = [(&'static str, String); N];
type Histograms = Family<Labels<1>, Histogram, fn() -> Histogram>;

/// What is counted.
pub(super) struct Metrics {
    registry: Registry,
    /// By route, method and status.
    requests: Family<Labels<3>, Counter>,
    /// By route.
    durations: Histograms,
    /// By part of a score request: queue, extract, forward.
    parts: Histograms,
    /// Requests in a batch, of scores and of writes.
    batches: Histograms,
    /// Rows that were written, by kind.
    rows: Family<Labels<1>, Counter>,
    panics: Counter,
    /// By task: seconds of the last run, when it ended, and how many failed.
    task_seconds: Family<Labels<1>, Gauge<f64, AtomicU64>>,
    task_ended: Family<Labels<1>, Gauge>,
    task_failures: Family<Labels<1>, Counter>,
}

impl Metrics {
    /// Of a server whose engine is `engine`.
    pub fn of(
        engine: Arc<dyn Engine>,
        waiting: impl Fn() -> [(&'static str, usize); 2] + Send + Sync + 'static,
    ) -> Self {
        // 100 microseconds to 6.5 seconds.
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(1e-4, 2.0, 17));
        let sizes: fn() -> Histogram = || Histogram::new(exponential_buckets(1.0, 2.0, 10));
        let mut metrics = Self {
            registry: Registry::with_prefix("graphsieve"),
            requests: Family::default(),
            durations: Family::new_with_constructor(seconds),
            parts: Family::new_with_constructor(seconds),
            batches: Family::new_with_constructor(sizes),
            rows: Family::default(),
            panics: Counter::default(),
            task_seconds: Family::default(),
            task_ended: Family::default(),
            task_failures: Family::default(),
        };
        let to = &mut metrics.registry;
        to.register("http_requests", "Requests", metrics.requests.clone());
        let took = "From the headers of a request to its answer";
        to.register_with_unit("http_request_duration", took, Unit::Seconds, metrics.durations.clone());
        let part = "Parts of score requests";
        to.register_with_unit("score_part_duration", part, Unit::Seconds, metrics.parts.clone());
        to.register("batch_requests", "Requests in a batch", metrics.batches.clone());
        to.register("written_rows", "Rows that were made durable", metrics.rows.clone());
        to.register("panics", "Requests that met a bug", metrics.panics.clone());
        let last = "What the last run of a task took";
        to.register_with_unit("task_duration", last, Unit::Seconds, metrics.task_seconds.clone());
        to.register("task_ended_timestamp_seconds", "When the last run of a task ended", metrics.task_ended.clone());
        to.register("task_failures", "Runs of a task that failed", metrics.task_failures.clone());
        to.register_collector(Box::new(Scraped { engine, waiting: Box::new(waiting) }));
        metrics
    }

    pub fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let labels = [("route", route.into()), ("method", method.into()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
        self.durations.get_or_create(&[("route", route.into())]).observe(took.as_secs_f64());
    }

    pub fn panicked(&self) {
        self.panics.inc();
    }

    pub fn part(&self, part: &str, took: Duration) {
        self.parts.get_or_create(&[("part", part.into())]).observe(took.as_secs_f64());
    }

    pub fn batch(&self, of: &str, requests: usize) {
        self.batches.get_or_create(&[("of", of.into())]).observe(requests as f64);
    }

    pub fn rows(&self, kind: &str, count: usize) {
        self.rows.get_or_create(&[("kind", kind.into())]).inc_by(count as u64);
    }

    /// A task of the background has ended.
    pub fn task(&self, name: &str, took: Duration, failed: bool) {
        let labels = [("task", name.to_owned())];
        self.task_seconds.get_or_create(&labels).set(took.as_secs_f64());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.task_ended.get_or_create(&labels).set(now.as_secs() as i64);
        let failures = self.task_failures.get_or_create(&labels);
        failures.inc_by(u64::from(failed));
    }

    /// All figures as text.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// What is asked for when somebody looks.
struct Scraped {
    engine: Arc<dyn Engine>,
    waiting: Box<dyn Fn() -> [(&'static str, usize); 2] + Send + Sync>,
}

impl fmt::Debug for Scraped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scraped")
    }
}

impl Collector for Scraped {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let state = self.engine.state();
        let waiting = (self.waiting)().map(|(of, count)| (vec![("of", of.to_owned())], count as f64));
        let waiting =
            Figure { name: "waiting_requests", help: "Requests that wait for a thread", values: waiting.into() };
        let resident = of_status("VmRSS:")
            .map(|bytes| Figure::one("resident_memory_bytes", "Memory of the process that is in use", bytes as f64));
        let writable = Figure::one("writable", "Whether changes are taken", f64::from(u8::from(state.writable)));
        let own = [waiting, writable].into_iter().chain(resident);
        for Figure { name, help, values } in own.chain(state.figures) {
            let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, value) in values {
                match labels.is_empty() {
                    true => encoder.encode_gauge(&value)?,
                    false => encoder.encode_family(&labels)?.encode_gauge(&value)?,
                }
            }
        }
        Ok(())
    }
}
