//! The threads of a loader under stress: many short pipelines, read to the end, slowly, in part or not at all, with
//! threads that fail midway. Whatever happens, batches come in order and are those of one thread, a failure is the last
//! item, nothing hangs and no thread is left.

use std::fs;
use std::panic;
use std::sync::{Arc, mpsc};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use burn_flex::Flex;
use graphsieve::graph::HeteroGraph;
use graphsieve::loader::{Batch, DropRule, FeatureStore, Job, Loader, LoaderOptions};
use graphsieve::sampler::{EdgePlace, Fanout};
use graphsieve_kernels::testing::harness::Trial;

use crate::loader::bodies::{Facts, facts};
use crate::loader::{marketplace, sampler};

pub fn trials() -> Vec<Trial> {
    on_cpu!(
        "threads";
        loaders_come_to_their_end_however_they_are_used,
    )
}

/// Batches of a pipeline: more than eight workers and their queues hold.
const BATCHES: u64 = 40;

/// What takes longer hangs.
const LONGEST: Duration = Duration::from_secs(60);

/// What goes wrong on the way to a batch.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The iterator of the jobs panics.
    Jobs,
    /// A job asks for a node that does not exist.
    Seed,
    /// The thread that samples panics.
    Sampler,
}

struct Pipelines {
    graph: Arc<HeteroGraph>,
    store: FeatureStore<Flex>,
    /// Every batch, made by a single worker.
    want: Vec<(u64, Vec<Vec<u32>>, Facts)>,
}

impl Pipelines {
    fn new() -> Self {
        let data = marketplace(0.1);
        let graph = Arc::new(data.graph);
        let store = FeatureStore::new(data.features.unwrap(), &graph, &Default::default()).unwrap();
        let mut pipelines = Self { graph, store, want: Vec::new() };
        let of_one: Vec<_> = pipelines.start(1, None).map(|batch| pipelines.seen(batch.unwrap())).collect();
        // No thread but this one.
        let direct = sampler(&pipelines.graph, &[Fanout::Most(2)], None);
        let mut scratch = direct.scratch();
        for (job, (number, nodes, _)) in jobs(None).zip(&of_one) {
            let mut want = direct.sample(&mut scratch, job.number, &job.seeds).unwrap().nodes;
            let mut got = nodes.clone();
            want.iter_mut().chain(&mut got).for_each(|nodes| nodes.sort_unstable());
            assert_eq!((*number, got), (job.number, want));
        }
        assert_eq!(of_one.len() as u64, BATCHES);
        pipelines.want = of_one;
        pipelines
    }

    fn start(&self, prefetch: usize, fault: Option<(Fault, u64)>) -> Loader<Flex, u64> {
        let rule = fault.filter(|(fault, _)| matches!(fault, Fault::Sampler)).map(|(_, at)| {
            let rule = move |number: u64, _: EdgePlace| {
                assert!(number != at, "no rule for number {number}");
                None
            };
            Arc::new(rule) as DropRule
        });
        let options = LoaderOptions { prefetch, drop_edge: rule, ..LoaderOptions::default() };
        let sampler = sampler(&self.graph, &[Fanout::Most(2)], None);
        Loader::new(jobs(fault), sampler, self.store.clone(), options).unwrap()
    }

    fn seen(&self, batch: Batch<Flex, u64>) -> (u64, Vec<Vec<u32>>, Facts) {
        let Batch { number, x, blocks, seed_rows, nodes, payload, stats } = batch;
        assert_eq!(payload, number * 10);
        let of_nodes = nodes.to_host();
        let batch = Batch { number, x, blocks, seed_rows, nodes, payload: (), stats };
        (number, of_nodes, facts(&self.graph, batch))
    }

    /// Reads so many batches, which are right, with a pause before each.
    fn read(&self, loader: &mut Loader<Flex, u64>, count: u64, pause: Duration, name: &str) {
        for want in &self.want[..count as usize] {
            sleep(pause);
            let got = loader.next().unwrap_or_else(|| panic!("{name}: no batch {}", want.0));
            let got = self.seen(got.unwrap_or_else(|error| panic!("{name}: {error}")));
            assert!(got == *want, "{name}: batch {} is another one", want.0);
        }
    }

    fn stress(&self, prefetch: usize) {
        let (none, slow) = (Duration::ZERO, Duration::from_micros(300));
        for pause in [none, slow] {
            let (mut loader, name) = (self.start(prefetch, None), format!("{prefetch} workers, {pause:?}"));
            self.read(&mut loader, BATCHES, pause, &name);
            assert!(loader.next().is_none() && loader.next().is_none(), "{name}");
        }
        // Cancelled before the first batch, while queues fill, and just before the end.
        for (count, pause) in [(0, none), (0, slow), (1, none), (3, slow), (9, none), (20, none), (BATCHES - 1, none)] {
            let (mut loader, name) = (self.start(prefetch, None), format!("{prefetch} workers, {count} batches"));
            self.read(&mut loader, count, pause, &name);
        }
        for fault in [Fault::Jobs, Fault::Seed, Fault::Sampler] {
            for at in [0, 1, prefetch as u64, 17] {
                let (mut loader, name) =
                    (self.start(prefetch, Some((fault, at))), format!("{prefetch} workers, {fault:?} {at}"));
                self.read(&mut loader, at, none, &name);
                let error = loader.next().unwrap().map(|batch| batch.number).unwrap_err().to_string();
                let place = match (fault, at) {
                    (Fault::Jobs, 0) => "before the first batch".to_owned(),
                    (Fault::Jobs, _) => format!("after batch {}", at - 1),
                    _ => format!("batch {at}"),
                };
                assert!(error.contains(&place), "{name}: {error}");
                assert!(loader.next().is_none() && loader.next().is_none(), "{name}");
                // And with nobody who reads the failure.
                self.read(&mut self.start(prefetch, Some((fault, at))), at, none, &name);
            }
        }
    }
}

fn jobs(fault: Option<(Fault, u64)>) -> impl Iterator<Item = Job<u64>> + Send + 'static {
    (0..BATCHES).map(move |number| {
        let mut user = number as u32 % 7;
        match fault {
            Some((Fault::Jobs, at)) => assert!(number != at, "no job of number {number}"),
            Some((Fault::Seed, at)) if number == at => user = 1_000_000,
            _ => {}
        }
        Job { number, seeds: vec![vec![user, 9], vec![number as u32], vec![]], payload: number * 10 }
    })
}

/// Threads of this process; none where the system does not tell.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn loaders_come_to_their_end_however_they_are_used() {
    // Threads of a loader have no name: what they say of a panic on purpose comes as an item, too.
    let usual = Arc::new(panic::take_hook());
    let named = usual.clone();
    panic::set_hook(Box::new(move |panic| {
        if thread::current().name().is_some() {
            named(panic);
        }
    }));
    let (done, ended) = mpsc::channel();
    let stress = thread::Builder::new().name("stress".into()).spawn(move || {
        // Starts the threads that stay.
        let pipelines = Pipelines::new();
        let before = threads();
        for prefetch in 1..=8 {
            pipelines.stress(prefetch);
            // The system counts a thread for a moment longer than it can be waited for.
            let until = Instant::now() + Duration::from_secs(10);
            while threads() > before {
                let left = threads() - before;
                assert!(Instant::now() < until, "{prefetch} workers: {left} threads are left");
                sleep(Duration::from_millis(1));
            }
        }
        // Refused where nobody waits any more.
        let _ = done.send(());
    });
    let hangs = ended.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout);
    assert!(!hangs, "a loader hangs");
    let outcome = stress.unwrap().join();
    panic::set_hook(Box::new(move |panic| usual(panic)));
    if let Err(panic) = outcome {
        panic::resume_unwind(panic);
    }
}
