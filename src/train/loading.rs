//! How trainings read their data, and what those on sampled mini-batches decide before they start and say afterwards.

use std::path::Path;

use graphsieve_kernels::GraphBackend;

use super::check::Check;
use super::ranks::{Rank, failed, on_any};
use crate::config::{HotBy, LoaderConfig, Transfer};
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::infer::plan::memory_of;
use crate::loader::{BatchStats, Deal, FeatureStore, Footprint, Hot, PlacementInput, undrawable};
use crate::sampler::NeighbourSampler;
use crate::timing::alongside;

/// Batches of the presampled epoch that decide which features stay on the device.
pub const PRESAMPLED: usize = 64;

/// Features may take one part in so many of the memory: the rest is for adjacencies and batches.
const RESIDENT_SHARE: u64 = 4;

/// Less than one part in so many of the memory is a small part: pages of the allocator are a sixteenth of it.
const TIGHT_SHARE: u64 = 4;

/// The data of a directory, read while the device starts and what `check` wants to know of it is found out.
///
/// # Errors
/// Those of `check`; as for [`Dataset::open`]. A device that does not start says so where it is used.
pub fn opened<B: GraphBackend>(data: &Path, check: &Check, device: &B::Device) -> Result<Dataset> {
    let start = || {
        let _ = B::sync(device);
        check.run()
    };
    let (checked, dataset) = alongside("starting the device", start, || Dataset::open(data));
    checked?;
    dataset
}

/// What `read` tells of the data, found while they are made ready by `open`; what ranks have `agreed` on is known.
///
/// # Errors
/// Those of both, of `read` first.
pub fn beside_digests<O: Send, T>(
    agreed: Option<O>,
    read: impl FnOnce() -> Result<O> + Send,
    open: impl FnOnce() -> Result<T>,
) -> Result<(O, T)> {
    let (known, opened) = match agreed {
        Some(known) => (Ok(known), open()),
        None => alongside("digests of the data", read, open),
    };
    Ok((known?, opened?))
}

/// The nodes whose features stay on the device for good.
pub fn hot(loader: &LoaderConfig) -> Hot {
    match (loader.hot, loader.hot_by) {
        (0.0, _) => Hot::None,
        (share, HotBy::Presample) => Hot::Presampled(share),
        (share, HotBy::Degree) => Hot::Degree(share),
    }
}

/// Whether a run has to keep to a small part of the device's memory. The allocator takes pages that are a share of all
/// of it, and a thread that has the device make batches takes pages of its own: then the processor makes them.
fn is_tight<B: GraphBackend>(loader: &LoaderConfig, device: &B::Device) -> bool {
    let allowed = (loader.memory * 1e9) as u64;
    allowed > 0 && B::available_memory(device).is_some_and(|free| allowed < free / TIGHT_SHARE)
}

/// What decides where neighbours are sampled.
pub fn placement<B: GraphBackend>(
    loader: &LoaderConfig,
    sampler: &NeighbourSampler,
    store: &FeatureStore<B>,
) -> PlacementInput {
    let graph = sampler.graph();
    let csr = graph.relations().iter().enumerate().map(|(at, of)| {
        let carried = [of.values.as_deref(), of.ages_of_edges()].into_iter().flatten();
        let carried: usize = carried.map(|rows| rows.values().len()).sum();
        4 * (of.forward.num_words() + carried + sampler.config().words_of_weights(at)) as u64
    });
    let csr = csr.sum();
    // What is free now is free beside the rows that are there already.
    let there = if loader.memory == 0.0 { 0 } else { store.bytes_on_device() as u64 };
    let hot = match store.is_resident() {
        true => 0,
        false => (store.num_rows() as f64 * loader.hot) as u64 * store.row_bytes() as u64,
    };
    let cached = there + hot;
    // A device that does not tell is taken to have enough: features or a share of them lie there anyhow.
    let free = memory_of::<B>(loader, store.device()).unwrap_or(4 * (cached + csr));
    PlacementInput {
        csr,
        free,
        // Half of the rest is for the batches.
        reserve: cached + free.saturating_sub(cached) / 2,
        no_kernel: undrawable::<B>(sampler, store.device()),
        reaches: (store.source().is_some() || store.is_divided()) && !is_tight::<B>(loader, store.device()),
        zero_copy: store.can_pin(),
    }
}

/// The store as rows are to leave it, and how that is.
///
/// # Errors
/// [`Error::Device`] for a transfer that is asked for and that the device does not have; as [`dealt`] where ranks
/// divide the rows.
pub fn transferred<B: GraphBackend>(
    store: FeatureStore<B>,
    loader: &LoaderConfig,
    rank: Option<&Rank<B>>,
) -> Result<(FeatureStore<B>, String)> {
    let all = store.bytes() as u64;
    let bytes = Footprint::bytes(all);
    let available = memory_of::<B>(loader, store.device());
    let may = B::SAMPLES && !is_tight::<B>(loader, store.device());
    let fits = may && available.is_some_and(|available| all <= available / RESIDENT_SHARE);
    if let (Transfer::Divided, Some(rank)) = (loader.transfer, rank.filter(|rank| rank.ranks() > 1)) {
        let (deal, how) = dealt::<B>(rank, all, available, store.device())?;
        return Ok((store.divided(deal), how));
    }
    match loader.transfer {
        Transfer::Gathered => return Ok((store, "features: gathered by the processor, as asked for".into())),
        Transfer::Resident => return Ok((store.resident(), format!("features: {bytes} on the device, as asked for"))),
        Transfer::Divided => {
            let how = format!("features: {bytes} on the device: there is one rank to divide them over");
            return Ok((store.resident(), how));
        }
        Transfer::Auto if fits => {
            let how = format!("features: {bytes} on the device, no more than a quarter of what it has");
            return Ok((store.resident(), how));
        }
        Transfer::Auto | Transfer::ZeroCopy => {}
    }
    match store.pin() {
        (store, None) => Ok((store, format!("features: {bytes} of page-locked memory that the device reads"))),
        (_, Some(reason)) if loader.transfer == Transfer::ZeroCopy => {
            let expected = format!("another way with this device: {reason}");
            let help = "set loader.transfer = \"gathered\", or \"auto\" to let the run choose";
            Err(Error::setting("loader.transfer", "\"zero_copy\"", expected, help))
        }
        (store, Some(reason)) => Ok((store, format!("features: gathered by the processor: {reason}"))),
    }
}

/// How ranks divide features of `all` bytes, and that in words. Of several hosts each has all rows where they take no
/// more than a share of what is `available` on its devices, and otherwise all together have them.
///
/// # Errors
/// [`Error::Usage`] for different numbers of ranks on hosts that have the rows together; a rank that fails.
fn dealt<B: GraphBackend>(
    rank: &Rank<B>,
    all: u64,
    available: Option<u64>,
    device: &B::Device,
) -> Result<(Deal, String)> {
    let (hosts, own, ranks, bytes) = (rank.hosts(), rank.rank(), rank.ranks(), Footprint::bytes(all));
    let (count, sizes) = (hosts.count(), hosts.sizes());
    let here = sizes[hosts.of_ranks()[own]];
    let part = |ranks: usize| all.div_ceil(ranks as u64);
    if count == 1 {
        let part = Footprint::bytes(part(ranks));
        let how = format!("features: {bytes} divided over {ranks} ranks, {part} on the device of each, as asked for");
        return Ok((Deal::within_hosts(hosts, own), how));
    }
    let lacks = available.is_some_and(|available| part(here) > available / RESIDENT_SHARE);
    let together = on_any::<B>(rank, lacks, device)?;
    if together && sizes.iter().any(|size| *size != here) {
        let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
        return Err(Error::Usage {
            argument: "loader.transfer = \"divided\"".into(),
            expected: format!("as many ranks on every host: {bytes} of features do not fit the devices of one"),
            found: format!("{} ranks on the hosts, in the order of their first ranks", sizes.join(", ")),
            help: "start as many ranks on each host, or set loader.transfer = \"zero_copy\" or \"gathered\"".into(),
        });
    }
    // What connects them is made before the run, and not in its first mini-batch.
    rank.within_host().map_err(failed)?;
    if !together {
        let where_they_are = if here == 1 {
            "whole on the device of this host's rank".to_string()
        } else {
            format!(
                "divided over the {here} ranks of this host, {} on the device of each",
                Footprint::bytes(part(here))
            )
        };
        let how = format!("features: {bytes} {where_they_are}: no row crosses hosts, as asked for");
        return Ok((Deal::within_hosts(hosts, own), how));
    }
    rank.across_hosts().map_err(failed)?;
    let part = Footprint::bytes(part(ranks));
    let how = format!(
        "features: {bytes} divided over {ranks} ranks of {count} hosts, {part} on the device of each: a row that a \
         mini-batch needs of another host crosses once for all ranks of a host, as asked for"
    );
    Ok((Deal::over_hosts(hosts, own), how))
}

/// What the mini-batches were made of.
pub fn loaded<B: GraphBackend>(stats: BatchStats, device: &B::Device) -> String {
    let share = |rows: u64| 100.0 * rows as f64 / stats.rows.max(1) as f64;
    let held = B::memory_probe(device).map_or(String::new(), |probe| {
        format!("; the device's allocator holds {}", Footprint::bytes(probe().reserved))
    });
    format!(
        "{} mini-batches of {} rows and {} edges on average; {:.1} % of the rows were there, {:.1} % hot, {:.1} % fetched \
         ({}){held}",
        stats.batches,
        stats.rows / stats.batches.max(1),
        stats.edges / stats.batches.max(1),
        share(stats.shared),
        share(stats.hot),
        share(stats.fetched),
        Footprint::bytes(stats.bytes),
    )
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};
    use graphsieve_kernels::{COLLECTIVE_DEADLINE, Communicator};

    use super::*;

    /// What every rank says of 12 kB of features, where each has so much available.
    fn said(hosts: &[&str], available: &[u64]) -> Vec<Result<(Deal, String)>> {
        let ranks = Communicator::<Flex>::threads(hosts.len(), COLLECTIVE_DEADLINE, &FlexDevice);
        Communicator::on_threads(ranks, |rank| {
            let (host, available) = (hosts[rank.rank()], available[rank.rank()]);
            let rank = rank.on_host(host).unwrap();
            dealt::<Flex>(&rank, 12_000, Some(available), &FlexDevice)
        })
    }

    #[test]
    fn hosts_have_all_features_where_their_devices_have_room_and_otherwise_have_them_together() {
        let hosts = ["a", "b", "a", "b"];
        let (room, none) = (4 * 6_000, 4 * 6_000 - 1);
        let words = [
            (["a"; 4], [room; 4], "12.0 kB divided over 4 ranks, 3.0 kB on"),
            (hosts, [room; 4], "12.0 kB divided over the 2 ranks of this host, 6.0 kB on the device of each: no"),
            (["a", "b", "c", "d"], [4 * 12_000; 4], "12.0 kB whole on the device of this host's rank: no"),
            (
                hosts,
                [room, room, none, room],
                "12.0 kB divided over 4 ranks of 2 hosts, 3.0 kB on the device of each: a",
            ),
        ];
        for (hosts, available, words) in words {
            let said = said(&hosts, &available);
            let decided: Vec<&(Deal, String)> = said.iter().map(|said| said.as_ref().unwrap()).collect();
            assert!(decided.iter().all(|(_, how)| how.contains(words)), "{decided:?}");
            let mut rows: Vec<u32> = decided.iter().flat_map(|(deal, _)| deal.own(10)).collect();
            rows.sort_unstable();
            let times = if words.contains("whole") {
                4
            } else if words.contains("this host") {
                2
            } else {
                1
            };
            assert_eq!(rows, (0..10).flat_map(|row| vec![row; times]).collect::<Vec<u32>>());
        }
    }

    #[test]
    fn hosts_with_different_numbers_of_ranks_cannot_have_features_together() {
        let hosts = ["a", "a", "b"];
        assert!(said(&hosts, &[4 * 12_000; 3]).iter().all(Result::is_ok));
        for said in said(&hosts, &[4 * 12_000 - 1; 3]) {
            let error = said.unwrap_err().to_string();
            for part in ["loader.transfer", "as many ranks on every host", "2, 1 ranks on the hosts", "zero_copy"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}
