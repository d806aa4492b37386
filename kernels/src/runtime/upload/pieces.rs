//! An array in pieces that several threads write and send.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::Fill;

/// A thread's own memory for a piece.
pub(super) trait Room: Send {
    type Error: Send;

    /// The memory, as soon as what was sent from it last is read.
    fn free(&mut self) -> Result<&mut [u8], Self::Error>;

    /// Sends the first bytes of it, which are so many units of the array from `first` on; they may be read later.
    fn send(&mut self, first: usize, units: usize) -> Result<(), Self::Error>;
}

/// Sends an array of `count` units, of which none is divided, of `unit` bytes each, on a thread for each of `rooms`.
///
/// The threads are no task of a pool: there, each piece would wait for what others have queued.
pub(super) fn send<R: Room>(
    rooms: impl Iterator<Item = R>,
    [room, unit, count]: [usize; 3],
    fill: &Fill<'_>,
) -> Result<(), R::Error> {
    let (at_once, next) = (room / unit, AtomicUsize::new(0));
    let work = |mut own: R| -> Result<(), R::Error> {
        loop {
            let first = next.fetch_add(at_once, Ordering::Relaxed);
            if first >= count {
                return Ok(());
            }
            let units = at_once.min(count - first);
            fill(first * unit, &mut own.free()?[..units * unit]);
            own.send(first, units)?;
        }
    };
    on_threads(rooms.take(count.div_ceil(at_once)), work)
}

/// Lets `work` have each of `rooms` on a thread of its own. The first error.
pub(super) fn on_threads<R: Send, E: Send>(
    rooms: impl Iterator<Item = R>,
    work: impl Fn(R) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = rooms.map(|own| scope.spawn(move || work(own))).collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        // All are joined, also behind one that failed.
        ends.fold(Ok(()), Result::and)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Puts what is sent where it belongs.
    struct ToHost<'a> {
        memory: Vec<u8>,
        unit: usize,
        array: &'a Mutex<Vec<u8>>,
    }

    impl Room for ToHost<'_> {
        type Error = usize;

        fn free(&mut self) -> Result<&mut [u8], usize> {
            Ok(&mut self.memory)
        }

        fn send(&mut self, first: usize, units: usize) -> Result<(), usize> {
            let mut array = self.array.lock().unwrap();
            match array.get_mut(first * self.unit..(first + units) * self.unit) {
                Some(to) => to.copy_from_slice(&self.memory[..units * self.unit]),
                None => return Err(first),
            }
            Ok(())
        }
    }

    fn value(at: usize) -> u8 {
        (at % 251) as u8 + 1
    }

    fn fill(first: usize, bytes: &mut [u8]) {
        bytes.iter_mut().zip(first..).for_each(|(to, at)| *to = value(at));
    }

    #[test]
    fn every_unit_is_sent_once_whatever_the_pieces() {
        const ROOM: usize = 24;
        for (unit, threads) in [(1, 1), (1, 3), (4, 2), (7, 3), (24, 2)] {
            let at_once = ROOM / unit;
            for count in [0, 1, at_once - 1, at_once, at_once + 1, 5 * at_once + 1] {
                let array = Mutex::new(vec![0; count * unit]);
                let rooms = (0..threads).map(|_| ToHost { memory: vec![0; ROOM], unit, array: &array });
                assert_eq!(send(rooms, [ROOM, unit, count], &fill), Ok(()));
                assert!(array.into_inner().unwrap().into_iter().eq((0..count * unit).map(value)), "{unit} {count}");
            }
        }
    }

    #[test]
    fn a_piece_that_is_refused_ends_it() {
        let array = Mutex::new(vec![0; 8]);
        let rooms = (0..2).map(|_| ToHost { memory: vec![0; 8], unit: 1, array: &array });
        assert_eq!(send(rooms, [8, 1, 16], &fill), Err(8));
    }
}
