//! On which hosts ranks are.

use std::sync::Arc;

/// The host of every rank, numbered in the order of the ranks.
///
/// # Example
/// ```
/// use graphsieve_kernels::Hosts;
/// let hosts = Hosts::of_names(["b", "a", "b"]);
/// assert_eq!(hosts.of_ranks(), [0, 1, 0]);
/// assert_eq!((hosts.count(), hosts.sizes(), hosts.places()), (2, vec![2, 1], vec![0, 0, 1]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts(Arc<[usize]>);

impl Hosts {
    /// Of ranks that are on one host.
    pub fn one(ranks: usize) -> Self {
        Self(vec![0; ranks].into())
    }

    /// Of ranks that name their hosts.
    pub fn of_names<T: PartialEq>(names: impl IntoIterator<Item = T>) -> Self {
        let mut known: Vec<T> = Vec::new();
        let number = |name: T| match known.iter().position(|other| *other == name) {
            Some(host) => host,
            None => {
                known.push(name);
                known.len() - 1
            }
        };
        Self(names.into_iter().map(number).collect())
    }

    /// `[rank]`: the number of its host.
    pub fn of_ranks(&self) -> &[usize] {
        &self.0
    }

    /// How many hosts there are.
    pub fn count(&self) -> usize {
        self.0.iter().max().map_or(0, |last| last + 1)
    }

    /// `[host]`: how many ranks it has.
    pub fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.count()];
        self.0.iter().for_each(|&host| sizes[host] += 1);
        sizes
    }

    /// `[rank]`: its place among the ranks of its host, from 0.
    pub fn places(&self) -> Vec<usize> {
        let mut next = vec![0; self.count()];
        let place = |&host: &usize| {
            next[host] += 1;
            next[host] - 1
        };
        self.0.iter().map(place).collect()
    }
}

/// What a call of a group says beside what it is.
pub(super) fn among(members: Option<&[usize]>, said: String) -> String {
    match members {
        Some(members) => format!("{said}, among ranks {members:?}"),
        None => said,
    }
}
