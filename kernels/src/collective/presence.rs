//! Processes that notice each other's end: every rank keeps its connection to rank 0 until it leaves.
//!
//! NCCL does not say that a process of the same host was killed; its peers would wait for their deadline. The end of a
//! connection is seen at once.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::{CollectiveError, CollectiveFault};

/// What a rank knows of the others.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// Why the group has ended.
    pub failed: Option<CollectiveError>,
    /// Ranks that call no more: how many calls they made, and why.
    pub left: Vec<(usize, u64, &'static str)>,
}

/// A message: what it says, and a number.
type Message = [u8; 9];

/// The sender calls no more; the number is that of its calls.
const LEFT: u8 = b'e';

/// A rank has ended without a word; the number is the rank.
const LOST: u8 = b'l';

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No invariant of what is shared spans a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of rank 0 the connections to all others, of another that to rank 0.
#[derive(Debug)]
pub(super) struct Presence {
    streams: Arc<Vec<(usize, TcpStream)>>,
    closed: Arc<AtomicBool>,
}

impl Presence {
    /// Watches the ranks at the other ends, each on a thread that ends with its connection; tells `peers` of those that
    /// leave or are lost.
    pub fn watch(own: usize, streams: Vec<(usize, TcpStream)>, peers: &Arc<Mutex<Peers>>) -> std::io::Result<Self> {
        let presence = Self { streams: Arc::new(streams), closed: Arc::default() };
        for at in 0..presence.streams.len() {
            let (streams, closed, peers) = (presence.streams.clone(), presence.closed.clone(), peers.clone());
            streams[at].1.set_read_timeout(None)?;
            std::thread::Builder::new().name(format!("presence of rank {}", streams[at].0)).spawn(move || {
                let Some(lost) = read(&streams[at], &peers) else { return };
                if closed.load(Ordering::Relaxed) {
                    return;
                }
                let fault = CollectiveFault::Lost { rank: lost, reason: "its process ended".into() };
                lock(&peers).failed.get_or_insert(CollectiveError { rank: own, operation: "watch", fault });
                let others = streams.iter().enumerate().filter(|(other, _)| *other != at);
                others.for_each(|(_, (_, stream))| send(stream, LOST, lost as u64));
            })?;
        }
        Ok(presence)
    }

    /// Says that this rank calls no more, after so many calls.
    pub fn leave(&self, calls: u64) {
        self.streams.iter().for_each(|(_, stream)| send(stream, LEFT, calls));
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        for (_, stream) in self.streams.iter() {
            // One that is closed already needs nothing more.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Who is lost, once the connection ends; `None` where the rank at its other end has left.
fn read((rank, stream): &(usize, TcpStream), peers: &Mutex<Peers>) -> Option<usize> {
    let mut message: Message = [0; 9];
    let mut from = stream;
    if from.read_exact(&mut message).is_err() {
        return Some(*rank);
    }
    let number = message[1..].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    if message[0] == LOST {
        return Some(number as usize);
    }
    lock(peers).left.push((*rank, number, "it left"));
    None
}

/// Whoever cannot be told is gone, which its own connection says.
fn send(mut stream: &TcpStream, what: u8, number: u64) {
    let mut message: Message = [what; 9];
    message[1..].copy_from_slice(&number.to_le_bytes());
    let _ = stream.write_all(&message);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::*;

    /// Two ranks beside rank 0: what each of the three knows, and its connections.
    fn three() -> [(Arc<Mutex<Peers>>, Presence); 3] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let pair = |rank: usize| {
            let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            ((rank, listener.accept().unwrap().0), vec![(0, there)])
        };
        let (of_first, first) = pair(1);
        let (of_second, second) = pair(2);
        let ranks = [vec![of_first, of_second], first, second];
        let mut rank = 0..3;
        ranks.map(|streams| {
            let peers = Arc::default();
            let presence = Presence::watch(rank.next().unwrap(), streams, &peers).unwrap();
            (peers, presence)
        })
    }

    fn soon<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "nothing was seen");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_process_that_ends_is_named_on_all_others() {
        let [zero, one, two] = three();
        drop(two.1);
        for (rank, peers) in [(0, &zero.0), (1, &one.0)] {
            let fault = CollectiveFault::Lost { rank: 2, reason: "its process ended".into() };
            let failed = soon(|| lock(peers).failed.clone());
            assert_eq!(failed, CollectiveError { rank, operation: "watch", fault });
        }
        assert!(lock(&two.0).failed.is_none(), "it closed its connections itself");
    }

    #[test]
    fn a_rank_that_leaves_is_not_lost() {
        let [zero, one, two] = three();
        two.1.leave(7);
        assert_eq!(soon(|| lock(&zero.0).left.first().copied()), (2, 7, "it left"));
        drop(two.1);
        zero.1.leave(9);
        assert_eq!(soon(|| lock(&one.0).left.first().copied()), (0, 9, "it left"));
        drop(zero.1);
        std::thread::sleep(Duration::from_millis(50));
        assert!(lock(&one.0).failed.is_none() && lock(&zero.0).failed.is_none());
    }
}
