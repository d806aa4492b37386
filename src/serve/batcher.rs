//! Jobs that wait, and threads that take several of them at a time.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use rayon::ThreadPoolBuilder;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::refusal::Refusal;

/// How jobs are put together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batching {
    pub threads: usize,
    /// Sum of the weights of the jobs of a batch; a heavier job is a batch alone.
    pub size: usize,
    /// How long a job waits for others while a thread is idle.
    pub delay: Duration,
    /// Jobs that wait, at most.
    pub queue: usize,
    /// Whether the jobs of a batch that panicked are done again, each alone. Only of jobs that change nothing.
    pub again_alone: bool,
}

/// An answer, how long its job waited, and how many jobs were in its batch.
pub(super) struct Answered<A> {
    pub answer: A,
    pub queued: Duration,
    pub batch: usize,
}

/// A bounded queue and its threads, each the only one of a pool of `rayon`: a batch wakes no other. They end when it is
/// closed and everything is done.
pub(super) struct Batcher<J, A> {
    shared: Arc<Shared<J, A>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared<J, A> {
    batching: Batching,
    queue: Mutex<Queue<J, A>>,
    changed: Condvar,
}

struct Queue<J, A> {
    waiting: VecDeque<Waiting<J, A>>,
    closed: bool,
    /// Mean seconds that a job took of late.
    seconds: f64,
}

struct Waiting<J, A> {
    job: J,
    weight: usize,
    since: Instant,
    deadline: Instant,
    answer: oneshot::Sender<Result<Answered<A>, Refusal>>,
}

impl<J: Send + 'static, A: Send + 'static> Batcher<J, A> {
    /// Starts threads that do `work`: an answer for each job, in their order.
    pub fn start(
        name: &str,
        batching: Batching,
        work: impl Fn(&[J]) -> Vec<Result<A, Refusal>> + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let queue = Queue { waiting: VecDeque::new(), closed: false, seconds: 0.0 };
        let shared = Arc::new(Shared { batching, queue: Mutex::new(queue), changed: Condvar::new() });
        let work = Arc::new(work);
        let start = |number: usize| {
            let (shared, work, name) = (shared.clone(), work.clone(), format!("{name}-{number}"));
            let builder = ThreadPoolBuilder::new().num_threads(1);
            let alone = builder.thread_name(move |_| name.clone()).build().map_err(std::io::Error::other)?;
            thread::Builder::new().spawn(move || {
                alone.install(|| {
                    while let Some(batch) = shared.take() {
                        shared.run(batch, work.as_ref());
                    }
                })
            })
        };
        let threads = (0..batching.threads).map(start).collect::<std::io::Result<_>>()?;
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    /// Waits for a job to be done, until `deadline`.
    pub async fn submit(&self, job: J, weight: usize, deadline: Instant) -> Result<Answered<A>, Refusal> {
        let (answer, answered) = oneshot::channel();
        self.shared.add(Waiting { job, weight, since: Instant::now(), deadline, answer })?;
        match timeout_at(deadline.into(), answered).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(stopping()),
            Err(_) => Err(late()),
        }
    }

    /// Jobs that wait.
    pub fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }

    /// Takes no more jobs and waits until those that wait are done.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A thread catches what its work does; nothing of it is left to tell.
            let _ = thread.join();
        }
    }
}

impl<J, A> Shared<J, A> {
    fn lock(&self) -> MutexGuard<'_, Queue<J, A>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, job: Waiting<J, A>) -> Result<(), Refusal> {
        let mut queue = self.lock();
        if queue.closed {
            return Err(stopping());
        }
        let length = queue.waiting.len();
        if length >= self.batching.queue {
            let seconds = queue.seconds * length as f64 / self.batching.threads as f64;
            let full = format!("{length} requests are waiting already");
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "busy", full)
                .help("ask again later, with fewer requests at a time")
                .after((seconds.ceil() as u32).clamp(1, 60)));
        }
        queue.waiting.push_back(job);
        drop(queue);
        self.changed.notify_one();
        Ok(())
    }

    /// The next batch; `None` when there will be no more.
    fn take(&self) -> Option<Vec<Waiting<J, A>>> {
        let Batching { size, delay, .. } = self.batching;
        let mut queue = self.lock();
        loop {
            let Some(first) = queue.waiting.front() else {
                if queue.closed {
                    return None;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = delay.saturating_sub(first.since.elapsed());
            let is_full = || queue.waiting.iter().map(|job| job.weight).sum::<usize>() >= size;
            if left.is_zero() || queue.closed || is_full() {
                break;
            }
            queue = self.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let (mut batch, mut weight) = (Vec::new(), 0);
        while let Some(next) = queue.waiting.front() {
            if !batch.is_empty() && weight + next.weight > size {
                break;
            }
            weight += next.weight;
            batch.extend(queue.waiting.pop_front());
        }
        if !queue.waiting.is_empty() {
            self.changed.notify_one();
        }
        Some(batch)
    }

    fn run(&self, batch: Vec<Waiting<J, A>>, work: &impl Fn(&[J]) -> Vec<Result<A, Refusal>>) {
        let started = Instant::now();
        let (mut jobs, mut clients) = (Vec::new(), Vec::new());
        for Waiting { job, since, deadline, answer, .. } in batch {
            if started >= deadline {
                // Whoever waited for it has been told.
                let _ = answer.send(Err(late()));
            } else if !answer.is_closed() {
                jobs.push(job);
                clients.push((answer, started - since));
            }
        }
        let done = |jobs: &[J]| catch_unwind(AssertUnwindSafe(|| work(jobs))).ok();
        let refused =
            |count: usize| -> Vec<Result<A, Refusal>> { (0..count).map(|_| Err(Refusal::panicked())).collect() };
        let answers = match done(&jobs) {
            Some(answers) => answers,
            None if self.batching.again_alone && jobs.len() > 1 => {
                jobs.chunks(1).flat_map(|job| done(job).unwrap_or_else(|| refused(1))).collect()
            }
            None => refused(jobs.len()),
        };
        for ((client, queued), answer) in clients.into_iter().zip(answers) {
            // A client that has gone needs no answer.
            let _ = client.send(answer.map(|answer| Answered { answer, queued, batch: jobs.len() }));
        }
        if !jobs.is_empty() {
            let seconds = started.elapsed().as_secs_f64() / jobs.len() as f64;
            let mut queue = self.lock();
            queue.seconds += 0.1 * (seconds - queue.seconds);
        }
    }
}

fn late() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "late", "the answer was not ready in time")
        .help("ask again; a write may have been done, so repeat it with the same Idempotency-Key")
        .after(1)
}

fn stopping() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the server is stopping").after(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batching(threads: usize, size: usize, queue: usize) -> Batching {
        Batching { threads, size, delay: Duration::ZERO, queue, again_alone: true }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn waiting_jobs_share_a_batch_up_to_its_size_and_a_full_queue_says_when_to_come_again() {
        let (open, gate) = std::sync::mpsc::channel();
        let gate = Mutex::new(gate);
        let batcher = Batcher::start("test", batching(1, 3, 4), move |jobs: &[usize]| {
            gate.lock().unwrap().recv().unwrap();
            jobs.iter().map(|job| Ok(job * 10)).collect()
        });
        let batcher = Arc::new(batcher.unwrap());
        let ask = |job| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.submit(job, 1, soon()).await })
        };
        let mut asked = vec![ask(0)];
        tokio::task::yield_now().await;
        while batcher.waiting() > 0 {
            thread::yield_now();
        }
        for job in 1..=4 {
            asked.push(ask(job));
            tokio::task::yield_now().await;
        }
        assert_eq!(batcher.waiting(), 4);
        let refused = batcher.submit(5, 1, soon()).await.err().unwrap();
        assert_eq!((refused.status, refused.retry_after), (StatusCode::TOO_MANY_REQUESTS, Some(1)));
        (0..3).for_each(|_| open.send(()).unwrap());
        let mut batches = Vec::new();
        for (job, asked) in asked.into_iter().enumerate() {
            let answered = asked.await.unwrap().unwrap();
            assert_eq!(answered.answer, job * 10);
            batches.push(answered.batch);
        }
        assert_eq!(batches, [1, 3, 3, 3, 1]);
    }

    #[tokio::test]
    async fn a_job_that_panics_fails_alone_and_one_that_is_late_is_not_done() {
        let batcher = Batcher::start(
            "test",
            Batching { delay: Duration::from_millis(50), ..batching(1, 2, 8) },
            |jobs: &[usize]| {
                assert!(!jobs.contains(&7), "planted");
                jobs.iter().map(|job| Ok(*job)).collect()
            },
        )
        .unwrap();
        let (good, bad) = tokio::join!(batcher.submit(1, 1, soon()), batcher.submit(7, 1, soon()));
        assert_eq!(good.unwrap().answer, 1);
        assert_eq!(bad.err().unwrap().code, "panic");
        assert_eq!(batcher.submit(2, 1, Instant::now()).await.err().unwrap().code, "late");
        assert_eq!(batcher.submit(3, 1, soon()).await.unwrap().answer, 3);
        batcher.close();
        assert_eq!(batcher.submit(4, 1, soon()).await.err().unwrap().code, "stopping");
    }
}
