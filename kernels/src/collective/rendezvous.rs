//! Processes that find each other: rank 0 listens, the others come, and all get the same few bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::error::CollectiveFault;

/// What is handed out: the size of an id of NCCL.
pub(super) type Id = [u8; 128];

/// What a rank says first, followed by its number and the number of ranks: whoever says something else is a stranger.
const GREETING: [u8; 8] = *b"graphsv1";
const HELLO: usize = GREETING.len() + 8;

/// Between two looks for a connection.
const PAUSE: Duration = Duration::from_millis(10);

/// How long somebody who has connected may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a rank comes away with: what rank 0 handed out, and the connections that it keeps: of rank 0 to all others, of
/// another to rank 0.
type Met = (Id, Vec<(usize, TcpStream)>);

/// What `make` gives on rank 0, on every rank.
pub(super) fn share(
    address: &str,
    rank: usize,
    ranks: usize,
    deadline: Duration,
    make: impl FnOnce() -> Result<Id, CollectiveFault>,
) -> Result<Met, CollectiveFault> {
    let end = Instant::now() + deadline;
    match rank {
        0 => {
            let id = make()?;
            let listener = listen(address)?;
            Ok((id, hand_out(&listener, address, ranks, &id, end, deadline)?))
        }
        _ => ask(address, rank, ranks, end, deadline),
    }
}

fn at(address: &str, reason: impl ToString) -> CollectiveFault {
    CollectiveFault::Address { address: address.into(), reason: reason.to_string() }
}

fn listen(address: &str) -> Result<TcpListener, CollectiveFault> {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let port = port.ok_or_else(|| at(address, "expected host:port"))?;
    // On every interface: the name of a host may mean another than the one by which the others reach it.
    let listener = TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
    let listener = listener.map_err(|error| at(address, error))?;
    listener.set_nonblocking(true).map_err(|error| at(address, error))?;
    Ok(listener)
}

fn hand_out(
    listener: &TcpListener,
    address: &str,
    ranks: usize,
    id: &Id,
    end: Instant,
    deadline: Duration,
) -> Result<Vec<(usize, TcpStream)>, CollectiveFault> {
    let mut there: Vec<Option<TcpStream>> = (0..ranks).map(|_| None).collect();
    loop {
        let missing: Vec<usize> = (1..ranks).filter(|&rank| there[rank].is_none()).collect();
        if missing.is_empty() {
            break;
        }
        if Instant::now() >= end {
            return Err(CollectiveFault::Late { missing, after: deadline });
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(at(address, error)),
        };
        let Some((rank, count, stream)) = hello(stream) else { continue };
        if count != ranks || rank == 0 || rank >= ranks {
            return Err(at(
                address,
                format!("rank {rank} of {count} came, expected ranks 1 to {} of {ranks}", ranks - 1),
            ));
        }
        if there[rank].replace(stream).is_some() {
            return Err(at(address, format!("rank {rank} came twice")));
        }
    }
    let tell = |(rank, mut stream): (usize, TcpStream)| match stream.write_all(id) {
        Ok(()) => Ok((rank, stream)),
        Err(error) => Err(CollectiveFault::Lost { rank, reason: error.to_string() }),
    };
    there.into_iter().enumerate().filter_map(|(rank, stream)| Some((rank, stream?))).map(tell).collect()
}

/// Who has connected; `None` for a stranger.
fn hello(mut stream: TcpStream) -> Option<(usize, usize, TcpStream)> {
    let mut said = [0; HELLO];
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    stream.read_exact(&mut said).ok()?;
    let (greeting, numbers) = said.split_at(GREETING.len());
    let number = |bytes: &[u8]| bytes.try_into().ok().map(|bytes| u32::from_le_bytes(bytes) as usize);
    (greeting == GREETING).then_some(())?;
    Some((number(&numbers[..4])?, number(&numbers[4..])?, stream))
}

fn ask(address: &str, rank: usize, ranks: usize, end: Instant, deadline: Duration) -> Result<Met, CollectiveFault> {
    let connect = |left: Duration| {
        let mut last = None;
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| std::io::Error::from(ErrorKind::AddrNotAvailable)))
    };
    // Rank 0 may start later than this one.
    let mut stream = loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(CollectiveFault::Late { missing: vec![0], after: deadline });
        }
        match connect(left) {
            Ok(stream) => break stream,
            Err(error) if error.kind() == ErrorKind::InvalidInput => return Err(at(address, error)),
            Err(_) => std::thread::sleep(PAUSE.min(left)),
        }
    };
    let numbers = [rank, ranks].map(|number| (number as u32).to_le_bytes());
    let said = [&GREETING[..], &numbers.concat()].concat();
    let left = end.saturating_duration_since(Instant::now()).max(PAUSE);
    let mut id = [0; size_of::<Id>()];
    let answer = stream
        .set_read_timeout(Some(left))
        .and_then(|()| stream.write_all(&said))
        .and_then(|()| stream.read_exact(&mut id));
    match answer {
        Ok(()) => Ok((id, vec![(0, stream)])),
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
            Err(CollectiveFault::Late { missing: Vec::new(), after: deadline })
        }
        Err(error) => Err(CollectiveFault::Lost { rank: 0, reason: format!("it closed the connection ({error})") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address that was free a moment ago.
    fn free() -> String {
        TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().to_string()
    }

    fn together(who: &[(usize, usize)], deadline: Duration) -> Vec<Result<Id, CollectiveFault>> {
        let address = free();
        std::thread::scope(|scope| {
            let ask = |(rank, ranks)| {
                let address = address.clone();
                let id = move || share(&address, rank, ranks, deadline, || Ok([7; 128])).map(|(id, _)| id);
                scope.spawn(id)
            };
            let threads: Vec<_> = who.iter().copied().map(ask).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(300);

    #[test]
    fn every_rank_gets_what_rank_0_has() {
        assert_eq!(together(&[(2, 3), (0, 3), (1, 3)], LONG), vec![Ok([7; 128]); 3]);
        assert_eq!(together(&[(0, 1)], LONG), vec![Ok([7; 128])]);
    }

    #[test]
    fn ranks_that_do_not_come_are_named() {
        let missing = |missing| Err(CollectiveFault::Late { missing, after: SHORT });
        let results = together(&[(0, 4), (2, 4)], SHORT);
        assert_eq!(results[0], missing(vec![1, 3]));
        assert!(results[1].is_err());
        assert_eq!(together(&[(1, 2)], SHORT), [missing(vec![0])]);
    }

    #[test]
    fn ranks_that_count_otherwise_are_named_and_strangers_are_not_heard() {
        let results = together(&[(0, 3), (1, 2)], LONG);
        let Err(CollectiveFault::Address { reason, .. }) = &results[0] else { panic!("{results:?}") };
        assert_eq!(reason, "rank 1 of 2 came, expected ranks 1 to 2 of 3");
        assert!(matches!(results[1], Err(CollectiveFault::Lost { rank: 0, .. })));

        let address = free();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| share(&address, 0, 2, LONG, || Ok([7; 128])));
            while TcpStream::connect(&address).and_then(|mut stream| stream.write_all(&[1; HELLO])).is_err() {
                std::thread::sleep(PAUSE);
            }
            let (id, kept) = share(&address, 1, 2, LONG, || Ok([0; 128])).unwrap();
            assert_eq!((id, kept[0].0), ([7; 128], 0));
            let (id, kept) = first.join().unwrap().unwrap();
            assert_eq!((id, kept.len(), kept[0].0), ([7; 128], 1, 1));
        });
    }
}
