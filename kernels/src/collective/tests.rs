//! Ranks that fail, and what launchers say. What exchanges compute is in the suite, for every backend.

use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use burn_autodiff::Autodiff;
use burn_flex::Flex;

use super::{
    COLLECTIVE_DEADLINE, CollectiveError, CollectiveFault, Communicator, LaunchEnvironment, LaunchError, Rendezvous,
    host_identity,
};
use crate::runtime::turn::autodiff_turn;

type Rank = Communicator<Flex>;

fn ranks(count: usize, deadline: Duration) -> Vec<Rank> {
    Communicator::threads(count, deadline, &Default::default())
}

fn matrix(rows: usize, width: usize) -> Tensor<Flex, 2> {
    Tensor::ones([rows, width], &Default::default())
}

/// What each of three ranks gets from `call`; all of it long before the deadline.
fn at_once<T: Send>(call: impl Fn(Rank) -> T + Sync) -> Vec<T> {
    let start = Instant::now();
    let results = Communicator::on_threads(ranks(3, COLLECTIVE_DEADLINE), call);
    assert!(start.elapsed() < COLLECTIVE_DEADLINE / 2, "took {:?}", start.elapsed());
    results
}

#[test]
fn a_dropped_rank_is_named_by_all_others_now_and_later() {
    let results = at_once(|rank| {
        rank.barrier().unwrap();
        if rank.rank() == 1 {
            return Vec::new();
        }
        vec![rank.all_reduce(matrix(1, 1)).unwrap_err(), rank.barrier().unwrap_err()]
    });
    for (rank, errors) in [(0, &results[0]), (2, &results[2])] {
        for (error, operation) in errors.iter().zip(["all_reduce", "barrier"]) {
            let fault = CollectiveFault::Lost { rank: 1, reason: "it was dropped".into() };
            assert_eq!(*error, CollectiveError { rank, operation, fault });
        }
    }
}

#[test]
fn a_rank_that_has_given_all_its_parts_may_go() {
    let sums = at_once(|rank| rank.all_reduce(matrix(1, 1)).map(|sum| sum.into_scalar()));
    assert_eq!(sums, vec![Ok(3.0); 3]);
}

#[test]
fn a_rank_that_panics_is_named_by_all_others() {
    let results = at_once(|rank| {
        let own = rank.rank();
        let call = move || {
            assert!(rank.rank() != 2, "the panic that this test wants");
            rank.barrier()
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        (own, result.ok())
    });
    for (rank, result) in results {
        let lost = CollectiveFault::Lost { rank: 2, reason: "its thread panicked".into() };
        let expected = (rank != 2).then_some(Err(CollectiveError { rank, operation: "barrier", fault: lost }));
        assert_eq!(result, expected);
    }
}

#[test]
fn a_late_rank_is_named_within_the_deadline_and_told_when_it_comes() {
    let deadline = Duration::from_millis(200);
    let results = Communicator::on_threads(ranks(3, deadline), |rank| {
        if rank.rank() == 0 {
            std::thread::sleep(5 * deadline);
        }
        let start = Instant::now();
        let error = rank.all_gather_rows(matrix(2, 3), &[2, 2, 2]).unwrap_err();
        (error, start.elapsed())
    });
    for (rank, (error, took)) in results.iter().enumerate() {
        match rank {
            0 => assert!(matches!(&error.fault, CollectiveFault::Lost { reason, .. } if reason.contains("rank 0"))),
            _ => assert_eq!(error.fault, CollectiveFault::Late { missing: vec![0], after: deadline }),
        }
        assert!(*took < 4 * deadline, "rank {rank} waited {took:?}");
    }
}

#[test]
fn ranks_that_disagree_all_get_to_know_how() {
    let told = |call: &(dyn Fn(&Rank) -> Option<CollectiveError> + Sync)| {
        let faults = at_once(|rank| call(&rank).expect("the calls differ").fault);
        let CollectiveFault::Disagreement { found } = faults[0].clone() else { panic!("{:?}", faults[0]) };
        assert_eq!(faults, vec![faults[0].clone(); 3]);
        found
    };
    let shapes = told(&|rank| rank.all_reduce(matrix(2, 3 + rank.rank() / 2)).err());
    assert_eq!(shapes[1..], ["all_reduce of [2, 3] in F32", "all_reduce of [2, 4] in F32"]);
    let types = told(&|rank| {
        let dtype = if rank.rank() == 0 { burn::tensor::DType::F16 } else { burn::tensor::DType::F32 };
        rank.all_gather_rows(matrix(1, 2).cast(dtype), &[1, 1, 1]).err()
    });
    assert_eq!(types[0], "all_gather_rows [1, 1, 1] of width 2 in F16");
    let calls = told(&|rank| match rank.rank() {
        0 => rank.barrier().err(),
        _ => rank.broadcast(matrix(1, 2), 1).err(),
    });
    assert_eq!(calls[..2], ["barrier", "broadcast of [1, 2] in F32 from rank 1"]);
    let counts = told(&|rank| match rank.rank() {
        2 => rank.all_to_all_rows(matrix(4, 1), &[2, 1, 1], &[1, 1, 1]).err(),
        _ => rank.all_to_all_rows(matrix(3, 1), &[1, 1, 1], &[1, 1, 1]).err(),
    });
    assert_eq!(counts[2], "sends [2, 1, 1], receives [1, 1, 1]");
}

#[test]
fn an_argument_that_does_not_fit_is_an_error_on_every_rank() {
    let errors = at_once(|rank| {
        let rows = if rank.rank() == 1 { 3 } else { 2 };
        rank.all_gather_rows(matrix(rows, 1), &[2, 2, 2]).unwrap_err()
    });
    let found = "rank 1: all_gather_rows: x: expected a matrix of 2 rows, found shape [3, 1]";
    assert_eq!(errors[1].to_string(), found);
    for error in [&errors[0], &errors[2]] {
        assert!(
            matches!(&error.fault, CollectiveFault::Lost { rank: 1, reason } if reason.contains("a matrix of 2 rows"))
        );
    }
}

#[test]
fn a_rank_that_gives_up_tells_the_others_why() {
    let errors = at_once(|rank| {
        if rank.rank() == 1 {
            rank.abort("the disk is full");
        }
        rank.barrier().unwrap_err().to_string()
    });
    assert_eq!(errors[1], "rank 1: barrier: this rank gave up: the disk is full");
    for error in [&errors[0], &errors[2]] {
        assert!(error.contains("rank 1 is lost: it gave up: the disk is full"), "{error}");
    }
}

fn leaf(rows: usize) -> Tensor<Autodiff<Flex>, 2> {
    Tensor::ones([rows, 1], &Default::default()).require_grad()
}

#[test]
fn a_backward_pass_of_one_rank_alone_is_refused_and_gives_no_number() {
    let results = at_once(|rank| {
        let x = leaf(1);
        let _turn = autodiff_turn();
        let loss = rank.all_reduce(x.clone()).unwrap().sum();
        let gradients = loss.backward();
        (x.grad(&gradients).unwrap().into_scalar(), rank.barrier().unwrap_err())
    });
    for (gradient, error) in &results {
        assert!(gradient.is_nan());
        let apart = error.fault == CollectiveFault::Apart;
        assert!(apart || matches!(&error.fault, CollectiveFault::Lost { reason, .. } if reason.contains("together")));
    }
}

#[test]
fn a_rank_that_is_missing_in_a_backward_pass_is_an_error_there() {
    let deadline = Duration::from_millis(300);
    let results = Communicator::on_threads(ranks(3, deadline), |rank| {
        let x = leaf(1);
        let _turn = autodiff_turn();
        let sum = rank.all_reduce(x.clone()).unwrap();
        // Rank 2 leaves the exchange out of its loss.
        let loss = if rank.rank() == 2 { x.sum() } else { sum.sum() };
        // It stays until the others have waited.
        (rank.backward(|| loss.backward()).map(drop), rank)
    });
    for (result, _) in &results[..2] {
        let error = result.as_ref().unwrap_err();
        assert_eq!(error.fault, CollectiveFault::Late { missing: vec![2], after: deadline });
    }
}

#[test]
fn ranks_that_share_a_tensor_with_gradients_get_an_error_instead_of_waiting_for_ever() {
    let deadline = Duration::from_millis(300);
    let shared = leaf(1);
    let results = Communicator::on_threads(ranks(2, deadline), |rank| {
        let _turn = autodiff_turn();
        let loss = rank.all_reduce(shared.clone()).unwrap().sum();
        rank.backward(|| loss.backward()).map(drop)
    });
    assert!(results.iter().all(Result::is_err), "{results:?}");
}

#[test]
fn exchanges_that_are_brought_back_in_another_order_disagree() {
    let results = at_once(|rank| {
        let x = leaf(1);
        let _turn = autodiff_turn();
        // Steps run from the deepest on, which on rank 1 is that of the other call.
        let deep = x.clone() * 2.0;
        let (one, other) = if rank.rank() == 1 { (deep, x) } else { (x, deep) };
        let (first, second) = (rank.all_reduce(one).unwrap(), rank.all_reduce(other).unwrap());
        let loss = (first * second).sum();
        rank.backward(|| loss.backward()).map(drop)
    });
    // The same shapes, and gradients that would have been exchanged unnoticed.
    let disagrees = |result: &Result<(), CollectiveError>| match &result.as_ref().unwrap_err().fault {
        CollectiveFault::Disagreement { found } => found[0].contains("backward of call"),
        _ => false,
    };
    assert!(results.iter().all(disagrees), "{results:?}");
}

#[test]
fn ranks_train_for_many_steps_beside_a_thread_of_its_own() {
    // Several passes a step: a rank is at the end of one while others are in it, and records the next as they end.
    let step = |rank: &Rank, w: Tensor<Flex, 2>| {
        let w = Tensor::<Autodiff<Flex>, 2>::from_inner(w).require_grad();
        let _turn = autodiff_turn();
        let all = rank.all_gather_rows(w.clone() * (rank.rank() + 1) as f32, &[1, 1, 1]).unwrap();
        let (one, two) = (all.clone().sum(), (all.clone() * all).sum());
        let first = rank.backward(|| one.backward()).unwrap();
        let other = rank.all_reduce(w.clone()).unwrap().sum() + two.detach();
        let second = rank.backward(|| other.backward()).unwrap();
        (w.grad(&first).unwrap().into_scalar(), w.grad(&second).unwrap().into_scalar())
    };
    let alone = || {
        let x = leaf(1);
        let _turn = autodiff_turn();
        let gradients = (x.clone() * 2.0 * x.clone()).sum().backward();
        x.grad(&gradients).unwrap().into_scalar()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(move || (0..200).map(|_| alone()).collect::<Vec<_>>());
        let gradients = at_once(|rank| (0..100).map(|_| step(&rank, matrix(1, 1))).collect::<Vec<_>>());
        for (rank, gradients) in gradients.iter().enumerate() {
            assert_eq!(*gradients, vec![(3.0 * (rank + 1) as f32, 3.0); 100]);
        }
        assert_eq!(other.join().unwrap(), vec![4.0; 200]);
    });
}

#[test]
fn a_handshake_names_what_differs_and_where() {
    let same = at_once(|rank| rank.handshake(&[("version", b"1"), ("data", &[7; 100])]));
    assert_eq!(same, vec![Ok(()); 3]);
    let errors = at_once(|rank| {
        let data = [0, 0, rank.rank() as u8, 0];
        let seed: &[u8] = if rank.rank() == 2 { b"5" } else { b"4" };
        rank.handshake(&[("version", b"1"), ("data", &data), ("seed", seed)]).unwrap_err()
    });
    for (rank, error) in errors.iter().enumerate() {
        let differing = vec![("data".to_string(), vec![1, 2]), ("seed".to_string(), vec![2])];
        let fault = CollectiveFault::Handshake { differing };
        assert_eq!(*error, CollectiveError { rank, operation: "handshake", fault });
    }
    let message = "rank 0: handshake: expected the same on every rank, found another data on ranks 1, 2; another seed on \
                   rank 2 than on rank 0; give every rank the same";
    assert_eq!(errors[0].to_string(), message);
    let errors = at_once(|rank| rank.handshake(&[("version", &b"1"[..]), ("data", b"2")][..1 + rank.rank() % 2]));
    assert!(errors.iter().all(|error| matches!(
        error,
        Err(CollectiveError { operation: "handshake", fault: CollectiveFault::Disagreement { .. }, .. })
    )));
}

/// Five ranks, those of two hosts in turn.
fn on_two_hosts<T: Send>(deadline: Duration, call: impl Fn(Rank) -> T + Sync) -> Vec<T> {
    Communicator::on_threads(ranks(5, deadline), |rank| {
        let host = ["left", "right"][rank.rank() % 2];
        call(rank.on_host(host).unwrap())
    })
}

#[test]
fn groups_are_the_ranks_of_a_host_and_those_of_a_place_and_have_exchanges_of_their_own() {
    let results = on_two_hosts(COLLECTIVE_DEADLINE, |rank| {
        let own = Tensor::<Flex, 1>::from_data([2_f32.powi(rank.rank() as i32)], rank.device());
        let (within, across) = (rank.within_host().unwrap(), rank.across_hosts().unwrap());
        // Groups need not call as often as others.
        let again = rank.rank() % 2;
        (0..again).for_each(|_| _ = within.all_reduce(own.clone()).unwrap());
        let sums = [&rank, within, across].map(|group| group.all_reduce(own.clone()).unwrap().into_scalar());
        let traffic = [rank.link.traffic(), within.traffic(), across.traffic()];
        let calls = traffic.map(|of| of.calls);
        assert_eq!(rank.traffic().calls, calls.iter().sum::<u64>());
        assert_eq!(calls[1..], [1 + again as u64, 1]);
        assert!(std::ptr::eq(within, rank.within_host().unwrap()), "a group is made once");
        (sums, within.rank(), across.ranks(), within.hosts().count(), across.hosts().count())
    });
    let expected = [
        ([31.0, 21.0, 3.0], 0, 2, 1, 2),
        ([31.0, 10.0, 3.0], 0, 2, 1, 2),
        ([31.0, 21.0, 12.0], 1, 2, 1, 2),
        ([31.0, 10.0, 12.0], 1, 2, 1, 2),
        ([31.0, 21.0, 16.0], 2, 1, 1, 1),
    ];
    assert_eq!(results, expected);
    let alone = at_once(|rank| std::ptr::eq(&rank, rank.within_host().unwrap()));
    assert_eq!(alone, [true; 3], "one host needs no group");
}

#[test]
fn what_ends_a_group_ends_all_and_ranks_keep_their_numbers() {
    // Rank 3, the second of its host, gives up while the others wait in their groups.
    let errors = on_two_hosts(COLLECTIVE_DEADLINE, |rank| {
        let (within, across) = (rank.within_host().unwrap(), rank.across_hosts().unwrap());
        if rank.rank() == 3 {
            within.abort("the disk is full");
        }
        // The other host ends its call, and is told by the next.
        let error = within.barrier().and_then(|()| across.barrier()).and_then(|()| rank.barrier()).unwrap_err();
        error.to_string()
    });
    assert!(errors[3].starts_with("rank 3: ") && errors[3].ends_with("this rank gave up: the disk is full"));
    for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != 3) {
        let named = error.starts_with(&format!("rank {rank}: "));
        assert!(named && error.contains("rank 3 is lost: it gave up: the disk is full"), "{error}");
    }
    let deadline = Duration::from_millis(500);
    let late = on_two_hosts(deadline, |rank| {
        let within = rank.within_host().unwrap();
        match rank.rank() {
            // It stays until the others have waited.
            4 => {
                std::thread::sleep(2 * deadline);
                None
            }
            _ => within.barrier().err(),
        }
    });
    let missing = |rank| {
        let fault = CollectiveFault::Late { missing: vec![4], after: deadline };
        Some(CollectiveError { rank, operation: "barrier", fault })
    };
    assert_eq!(late, [missing(0), None, missing(2), None, None]);
    let said = on_two_hosts(COLLECTIVE_DEADLINE, |rank| {
        let (within, width) = (rank.within_host().unwrap(), 1 + rank.rank() / 4);
        within.all_reduce(matrix(1, width)).and_then(|_| rank.barrier()).unwrap_err().fault
    });
    let CollectiveFault::Disagreement { found } = &said[0] else { panic!("{}", said[0]) };
    assert_eq!(found[2], "all_reduce of [1, 2] in F32, among ranks [0, 2, 4]");
}

#[test]
fn a_host_is_told_from_others_by_what_is_set_or_by_the_system() {
    let set = host_identity(|name| (name == "NCCL_HOSTID").then(|| "left".into()));
    assert_eq!(set, Ok("left".into()));
    let of_system = || host_identity(|name| (name == "HOSTNAME").then(|| "here".into()));
    assert!(of_system().is_ok_and(|name| !name.is_empty()) && of_system() == of_system());
}

fn read(set: &[(&str, &str)]) -> Result<Option<LaunchEnvironment>, LaunchError> {
    LaunchEnvironment::read(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
}

#[test]
fn every_launcher_is_understood_and_the_first_counts() {
    let slurm = [("SLURM_PROCID", "5"), ("SLURM_LOCALID", "1"), ("SLURM_NTASKS", "8")];
    let mpi = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("NCCL_COMM_ID", "head:7000"),
    ];
    let torch = [("RANK", "2"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "4")];
    let master = [("MASTER_ADDR", "fd00::1"), ("MASTER_PORT", "29500")];
    let of = |rank, local_rank, ranks, rendezvous| Ok(Some(LaunchEnvironment { rank, local_rank, ranks, rendezvous }));
    let address = || Some(Rendezvous::Address("[fd00::1]:29501".into()));
    assert_eq!(read(&[&slurm[..], &master].concat()), of(5, 1, 8, address()));
    assert_eq!(read(&[&slurm[..], &master, &torch, &mpi[..3]].concat()), of(2, 0, 4, address()));
    assert_eq!(read(&mpi), of(1, 1, 2, Some(Rendezvous::OfNccl("head:7000".into()))));
    assert_eq!(read(&[("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0"), ("SLURM_NTASKS", "1")]), of(0, 0, 1, None));
    assert_eq!(read(&[("MASTER_ADDR", "a"), ("RANK", ""), ("SLURM_NTASKS", "4")]), Ok(None));
    // Those of srun stay where another launcher has used it, and srun has some of MPICH's.
    assert_eq!(read(&[&slurm[..], &mpi].concat()), of(1, 1, 2, Some(Rendezvous::OfNccl("head:7000".into()))));
    let pmi = [("PMI_RANK", "3"), ("PMI_SIZE", "4")];
    assert_eq!(read(&[&slurm[..], &pmi, &[("MPI_LOCALRANKID", "0")], &master].concat()), of(3, 0, 4, address()));
    assert_eq!(read(&[&slurm[..], &pmi, &[("PMI_LOCAL_RANK", "2")], &master].concat()), of(3, 2, 4, address()));
    assert_eq!(read(&[&slurm[..], &pmi, &master].concat()), of(5, 1, 8, address()));
}

#[test]
fn tasks_of_srun_meet_on_the_first_host_of_their_step() {
    let met = |list: &str, more: &[(&str, &str)]| {
        let task =
            [("SLURM_PROCID", "5"), ("SLURM_LOCALID", "1"), ("SLURM_NTASKS", "8"), ("SLURM_STEP_NODELIST", list)];
        let Some(Rendezvous::Address(address)) = read(&[&task[..], more].concat()).unwrap().unwrap().rendezvous else {
            panic!("an address was expected")
        };
        address
    };
    let step = [("SLURM_JOB_ID", "5000"), ("SLURM_STEP_ID", "2")];
    for (list, host) in [
        ("gpu7", "gpu7"),
        ("gpu[07-09,12],login", "gpu07"),
        ("a,b[1-2]", "a"),
        ("rack[2,4]n[1-3].site", "rack2n1.site"),
        ("10.0.0.[5-6]", "10.0.0.5"),
    ] {
        // 61440 + 5002 - 4096.
        assert_eq!(met(list, &step), format!("{host}:62346"));
    }
    assert_eq!(met("a", &[&step[..], &[("MASTER_ADDR", "b")]].concat()), "b:62346");
    assert_eq!(met("a", &[("MASTER_PORT", "29500")]), "a:29501");
}

#[test]
fn variables_that_do_not_fit_together_are_named() {
    let torch = |rank, local, ranks| [("RANK", rank), ("LOCAL_RANK", local), ("WORLD_SIZE", ranks)];
    let message = |set: &[(&str, &str)]| read(set).unwrap_err().to_string();
    let end = "; start all ranks with torchrun, srun or mpirun, or set the variable for each";
    for (set, expected) in [
        (torch("4", "0", "4").to_vec(), "RANK: expected a rank below WORLD_SIZE, 4, found `4`"),
        (torch("1", "2", "4").to_vec(), "LOCAL_RANK: expected a rank on the host, at most RANK, 1, found `2`"),
        (torch("0", "0", "none").to_vec(), "WORLD_SIZE: expected the number of ranks, at least 1, found `none`"),
        (vec![("RANK", "0")], "WORLD_SIZE: expected the number of ranks, at least 1, found that it is not set"),
        (
            vec![("PMI_RANK", "0"), ("PMI_SIZE", "2")],
            "MPI_LOCALRANKID: expected a rank on the host, at most PMI_RANK, 0, found that it is not set",
        ),
        ([&torch("0", "0", "2")[..], &[("NCCL_COMM_ID", "a")]].concat(), "NCCL_COMM_ID: expected host:port, found `a`"),
    ] {
        assert_eq!(message(&set), format!("{expected}{end}"));
    }
    // The way out is that of the launcher.
    let mpi =
        [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_LOCAL_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")].to_vec();
    let srun = [("SLURM_PROCID", "0"), ("SLURM_LOCALID", "0"), ("SLURM_NTASKS", "2")].to_vec();
    let no_host = "MASTER_ADDR: expected the host of rank 0 (or `NCCL_COMM_ID`), found that it is not set";
    let port = "MASTER_PORT: expected a port below 65535, behind which ranks meet (or `NCCL_COMM_ID`), found";
    let [by_srun, by_mpirun] = ["start the program itself with srun", "`mpirun -x MASTER_ADDR=HOST"];
    for (set, expected, help) in [
        (mpi.clone(), no_host.to_owned(), by_mpirun),
        (torch("0", "0", "2").to_vec(), no_host.to_owned(), by_mpirun),
        (srun.clone(), no_host.to_owned(), by_srun),
        ([&mpi[..], &[("MASTER_ADDR", "a"), ("MASTER_PORT", "65535")]].concat(), format!("{port} `65535`"), by_mpirun),
        ([&srun[..], &[("SLURM_STEP_NODELIST", "a")]].concat(), format!("{port} that it is not set"), by_srun),
    ] {
        let message = message(&set);
        assert!(message.starts_with(&expected) && message.contains(help), "{message}");
    }
}
