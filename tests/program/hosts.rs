//! Trainings on ranks of several hosts, for which threads stand.

use burn_flex::{Flex, FlexDevice};
use graphsieve::config::RunConfig;
use graphsieve::train::ranks::on_threads;
use graphsieve::train::{RunOptions, run_together};
use graphsieve_kernels::{COLLECTIVE_DEADLINE, Communicator};

use crate::ranks::{STAGE2, losses};
use crate::support::Sandbox;

#[test]
fn features_divided_within_hosts_and_over_hosts_are_whole_ones_to_the_bit() {
    let sandbox = Sandbox::with_data();
    sandbox.write("run.toml", STAGE2);
    let options = RunOptions::quiet("cpu");
    // With whether ranks exchange something within hosts, and across them.
    let of = |dir: &str, hosts: [&str; 4], sets: &[&str], groups: [bool; 2]| {
        let paths = [("data.path", "data"), ("output.dir", dir)];
        let paths = paths.map(|(key, name)| format!("{key}={}", sandbox.path(name).display()));
        let keys: Vec<String> = paths.into_iter().chain(sets.iter().map(|&set| set.to_owned())).collect();
        let config = RunConfig::load(&sandbox.path("run.toml"), &keys).unwrap();
        let ranks = Communicator::<Flex>::threads(4, COLLECTIVE_DEADLINE, &FlexDevice);
        let ranks = Communicator::on_threads(ranks, |rank| {
            let host = hosts[rank.rank()];
            (rank.on_host(host).unwrap(), FlexDevice)
        });
        let outcome = on_threads::<Flex, _>(ranks, |rank, device| {
            let outcome = run_together::<Flex>(&config, &options, rank, device)?;
            let used = [rank.within_host(), rank.across_hosts()].map(|group| group.unwrap().traffic().calls > 0);
            assert_eq!(used, groups, "{dir}");
            Ok(outcome)
        });
        outcome.unwrap();
        let run = sandbox.only_run(dir);
        (losses(&sandbox, &run), sandbox.read(&format!("{run}/anomaly_scores_stage2.npy")))
    };
    let (epochs, divided) = ("train.epochs=3", "loader.transfer=divided");
    let whole = of("whole", ["a"; 4], &[epochs, "loader.transfer=gathered"], [true, false]);
    assert!(of("within", ["a", "a", "b", "b"], &[epochs, divided], [true, false]) == whole);
    // A quarter of a kilobyte holds no half of them.
    assert!(of("over", ["a", "b", "a", "b"], &[epochs, divided, "loader.memory=0.000001"], [true, true]) == whole);
}
