//! Columns against dense loops in f64.

use burn::tensor::DType;
use burn_flex::{Flex, FlexDevice};
use graphsieve_kernels::testing::{Dtype, Rng, assert_close_at_scale};
use half::f16;

use super::*;
use crate::graph::{Adjacency, Features, HeteroGraph, RelationSpec, Spill};

mod histories;

/// `[nodes][nodes]`: how often row `i` has the entry `j`, 0 or 1.
type Dense = Vec<Vec<f64>>;
type Matrix = Vec<Vec<f64>>;
/// From what one hop gives to what the next gives.
type Step<'a> = (&'a str, &'a dyn Fn(&Matrix) -> Matrix);

fn relation(name: &str, [src, dst]: [usize; 2], adjacency: Adjacency) -> RelationSpec {
    RelationSpec::new(name, src, dst, adjacency)
}

/// One node type. Node 0 has a loop and is listed twice by node 1, node 4 has no in-neighbours, node 5 none at all.
fn small() -> HeteroGraph {
    let adjacency = Adjacency::new(vec![0, 3, 6, 8, 10, 10, 10], vec![0, 1, 3, 0, 0, 2, 1, 4, 0, 2], 6).unwrap();
    HeteroGraph::new(vec![("node".into(), 6)], vec![relation("edge", [0, 0], adjacency)]).unwrap()
}

/// Users 0-2 and products 3-6; user 2 and product 6 bought and were bought by none.
fn marketplace() -> HeteroGraph {
    let bought = Adjacency::from_edges(3, 4, &[(0, 0), (0, 1), (1, 1), (1, 2)]);
    let knows = Adjacency::from_edges(3, 3, &[(0, 0), (0, 1), (1, 0), (2, 1)]);
    let types = vec![("user".into(), 3), ("product".into(), 4)];
    let relations = vec![relation("bought", [1, 0], bought), relation("knows", [0, 0], knows)];
    HeteroGraph::with_reverse_relations(types, relations, |name| name == "knows").unwrap()
}

fn dense(graph: &HeteroGraph, names: &[&str], self_loops: bool) -> Dense {
    let nodes = graph.num_nodes();
    let mut dense = vec![vec![0.0; nodes]; nodes];
    for relation in graph.relations().iter().filter(|relation| names.contains(&relation.name.as_str())) {
        let offset = |t: usize| graph.node_types()[t].offset;
        for i in 0..relation.forward.num_rows() {
            for &j in relation.forward.row(i) {
                dense[offset(relation.dst) + i][offset(relation.src) + j as usize] = 1.0;
            }
        }
    }
    (0..nodes).filter(|_| self_loops).for_each(|i| dense[i][i] = 1.0);
    dense
}

fn degree(a: &Dense, i: usize) -> f64 {
    a[i].iter().sum()
}

fn combined(a: &Dense, x: &Matrix, weight: impl Fn(usize, usize) -> f64) -> Matrix {
    let sum = |i: usize, c: usize| (0..x.len()).map(|j| a[i][j] * weight(i, j) * x[j][c]).sum();
    (0..x.len()).map(|i| (0..x[i].len()).map(|c| sum(i, c)).collect()).collect()
}

fn mean(a: &Dense, x: &Matrix) -> Matrix {
    combined(a, x, |i, _| 1.0 / degree(a, i).max(1.0))
}

fn normalised(a: &Dense, x: &Matrix) -> Matrix {
    combined(a, x, |i, j| 1.0 / (degree(a, i).max(1.0) * degree(a, j).max(1.0)).sqrt())
}

fn largest(a: &Dense, x: &Matrix) -> Matrix {
    let best = |i: usize, c: usize| {
        let values = (0..x.len()).filter(|&j| a[i][j] > 0.0).map(|j| x[j][c]);
        values.fold(f64::NEG_INFINITY, f64::max)
    };
    let row = |i: usize| (0..x[i].len()).map(|c| if degree(a, i) > 0.0 { best(i, c) } else { 0.0 }).collect();
    (0..x.len()).map(row).collect()
}

fn less(x: &Matrix, y: &Matrix) -> Matrix {
    x.iter().zip(y).map(|(x, y)| x.iter().zip(y).map(|(x, y)| x - y).collect()).collect()
}

/// `(L/2)^p (I - L/2)^(2-p) / (2 B(p+1, 3-p))` applied factor by factor.
fn wavelet(a: &Dense, x: &Matrix, p: usize) -> Matrix {
    let half = |sign: f64, x: &Matrix| -> Matrix {
        let px = normalised(a, x);
        x.iter().zip(&px).map(|(x, px)| x.iter().zip(px).map(|(x, px)| (x + sign * px) / 2.0).collect()).collect()
    };
    // 1 / (2 B(p+1, 3-p)): B(1,3) = 1/3, B(2,2) = 1/6, B(3,1) = 1/3.
    let scale = [1.5, 3.0, 1.5][p];
    let mut y = x.clone();
    (0..p).for_each(|_| y = half(-1.0, &y));
    (p..2).for_each(|_| y = half(1.0, &y));
    y.iter().map(|row| row.iter().map(|v| scale * v).collect()).collect()
}

/// Names and values of all columns that the default order of blocks gives over one graph, degree excluded.
fn expected(a: &Dense, x: &Matrix, prefix: &str, hops: usize) -> Vec<(String, Vec<f64>)> {
    let mut sets = Vec::new();
    let sum = |x: &Matrix| combined(a, x, |_, _| 1.0);
    let steps: [Step; 3] = [("mean", &|x| mean(a, x)), ("max", &|x| largest(a, x)), ("sum", &sum)];
    for (name, step) in steps {
        let mut y = x.clone();
        for hop in 1..=hops {
            y = step(&y);
            sets.push((format!("{name}{hop}"), y.clone()));
        }
    }
    sets.push(("difference".into(), less(x, &mean(a, x))));
    sets.extend((0..3).map(|p| (format!("wavelet{p}"), wavelet(a, x, p))));
    let columns = |(name, set): (String, Matrix)| {
        let width = set[0].len();
        (0..width).map(|c| (format!("{prefix}{name}.x{c}"), set.iter().map(|row| row[c]).collect())).collect::<Vec<_>>()
    };
    sets.into_iter().flat_map(columns).collect()
}

fn degrees(name: &str, a: &Dense) -> (String, Vec<f64>) {
    (format!("{name}log_degree"), (0..a.len()).map(|i| degree(a, i).ln_1p()).collect())
}

/// Features in f16 that are exact in f32 too, signs mixed.
fn features(nodes: usize, dim: usize) -> (Features, Matrix) {
    let values: Vec<f16> = Rng::new(7).normal(nodes * dim).into_iter().map(f16::from_f64).collect();
    let x = values.chunks(dim).map(|row| row.iter().map(|v| v.to_f64()).collect()).collect();
    (Features::from_vec(values, nodes, dim), x)
}

fn everything(over: Over) -> NeighbourhoodConfig {
    NeighbourhoodConfig { max: true, sum: true, over, ..Default::default() }
}

fn check(graph: &HeteroGraph, config: &NeighbourhoodConfig, dtype: DType, want: &[(String, Vec<f64>)]) {
    let (features, x) = features(graph.num_nodes(), 3);
    let plan = Neighbourhood::new(graph, &features, config).unwrap();
    // Two pieces, the second of which is narrower.
    let table = plan.table::<Flex>(&FlexDevice, Execution { dtype, columns: 2 }).unwrap();
    let raw = (0..3).map(|c| (format!("x{c}"), x.iter().map(|row| row[c]).collect()));
    let want: Vec<(String, Vec<f64>)> = raw.chain(want.iter().cloned()).collect();
    let names: Vec<&str> = table.columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, want.iter().map(|column| column.0.as_str()).collect::<Vec<_>>());
    let stored = if dtype == DType::F16 { Dtype::F16 } else { Dtype::F32 };
    // Filters cancel: their error is against the size of what is added up, a few units.
    let magnitude = vec![3.0; graph.num_nodes()];
    for (at, (name, want)) in want.iter().enumerate() {
        let got: Vec<f32> = table.column(at).collect();
        assert_close_at_scale(name, &got, want, &magnitude, stored, 2 * graph.num_nodes());
    }
}

#[test]
fn columns_are_those_of_a_dense_loop() {
    let graph = small();
    for self_loops in [false, true] {
        let a = dense(&graph, &["edge"], self_loops);
        let mut want = expected(&a, &features(6, 3).1, "", 2);
        want.push(degrees("edge.", &a));
        let config = NeighbourhoodConfig { self_loops, ..everything(Over::Union) };
        check(&graph, &config, DType::F32, &want);
        check(&graph, &config, DType::F16, &want);
    }
}

#[test]
fn a_bipartite_relation_and_its_reverse_make_one_graph_beside_the_union() {
    let graph = marketplace();
    let all = dense(&graph, &["bought", "bought_T", "knows"], false);
    let bought = dense(&graph, &["bought", "bought_T"], false);
    let knows = dense(&graph, &["knows"], false);
    let x = features(7, 3).1;
    let degrees = [degrees("", &all), degrees("bought.", &bought), degrees("knows.", &knows)];
    let union = expected(&all, &x, "", 2);
    let relations = [expected(&bought, &x, "bought.", 2), expected(&knows, &x, "knows.", 2)].concat();
    check(&graph, &everything(Over::Union), DType::F32, &[union.clone(), degrees.to_vec()].concat());
    let both = [union, relations.clone(), degrees.to_vec()].concat();
    check(&graph, &everything(Over::Both), DType::F32, &both);
    check(&graph, &everything(Over::Relations), DType::F32, &[relations, degrees[1..].to_vec()].concat());
}

#[test]
fn without_edges_there_is_nothing_around_a_node() {
    let edges = Adjacency::from_edges(4, 4, &[]);
    let graph = HeteroGraph::new(vec![("node".into(), 4)], vec![relation("edge", [0, 0], edges)]).unwrap();
    let x = features(4, 3).1;
    let a = vec![vec![0.0; 4]; 4];
    let mut want = expected(&a, &x, "", 2);
    want.push(degrees("edge.", &a));
    check(&graph, &everything(Over::Union), DType::F32, &want);
    // And without any relation.
    let graph = HeteroGraph::new(vec![("node".into(), 4)], Vec::new()).unwrap();
    *want.last_mut().unwrap() = degrees("", &a);
    check(&graph, &everything(Over::Union), DType::F32, &want);
    let no_nodes = HeteroGraph::new(vec![("node".into(), 0)], Vec::new()).unwrap();
    let features = Features::from_f32(Vec::new(), 0, 3);
    let plan = Neighbourhood::new(&no_nodes, &features, &everything(Over::Union)).unwrap();
    assert_eq!(plan.table::<Flex>(&FlexDevice, Execution::default()).unwrap().num_rows(), 0);
}

#[test]
fn blocks_are_left_out_one_by_one_and_name_their_columns() {
    let graph = small();
    let (features, _) = features(6, 3);
    let of = |config: &NeighbourhoodConfig| {
        let plan = Neighbourhood::new(&graph, &features, config).unwrap();
        plan.table::<Flex>(&FlexDevice, Execution::default()).unwrap()
    };
    let all = of(&everything(Over::Union));
    let blocks = all.blocks();
    let sizes: Vec<(String, usize)> = blocks.iter().map(|(block, at)| (block.to_string(), at.len())).collect();
    let want = [("raw", 3), ("mean", 6), ("max", 6), ("sum", 6), ("difference", 3), ("wavelets", 9), ("degree", 1)];
    assert_eq!(sizes, want.map(|(name, len)| (name.to_owned(), len)));
    let none = NeighbourhoodConfig::none();
    let alone = [
        (Block::Raw, NeighbourhoodConfig { raw: true, ..none.clone() }),
        (Block::Mean, NeighbourhoodConfig { mean: true, ..none.clone() }),
        (Block::Max, NeighbourhoodConfig { max: true, ..none.clone() }),
        (Block::Sum, NeighbourhoodConfig { sum: true, ..none.clone() }),
        (Block::Difference, NeighbourhoodConfig { difference: true, ..none.clone() }),
        (Block::Wavelets, NeighbourhoodConfig { wavelets: true, ..none.clone() }),
        (Block::Degree, NeighbourhoodConfig { log_degree: true, ..none.clone() }),
    ];
    for (block, config) in alone {
        assert_eq!(of(&config), all.select(|column| column.block == block), "{block}");
    }
}

#[test]
fn given_blocks_stand_behind_the_others_under_their_name() {
    let graph = small();
    let (features, _) = features(6, 3);
    let config = NeighbourhoodConfig { raw: true, ..NeighbourhoodConfig::none() };
    let plan = Neighbourhood::new(&graph, &features, &config).unwrap();
    let mut table = plan.table::<Flex>(&FlexDevice, Execution::default()).unwrap();
    let embedding: Vec<f32> = (0..12).map(|v| v as f32).collect();
    let block = |values: &[f32], width: usize| Features::from_f32(values.to_vec(), values.len() / width.max(1), width);
    assert_eq!(table.append("embedding", block(&embedding, 2)).unwrap(), 3..5);
    assert_eq!(table.append("score", block(&[f32::NAN; 6], 1)).unwrap(), 5..6);
    assert_eq!(table.column(4).collect::<Vec<_>>(), [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]);
    assert_eq!(table.row(2)[3..5], [4.0, 5.0]);
    assert!(table.row(2)[5].is_nan());
    let names: Vec<&str> = table.columns().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["x0", "x1", "x2", "embedding.0", "embedding.1", "score"]);
    let given = Block::Given("embedding".into());
    assert_eq!(table.blocks()[1], (given, vec![3, 4]));
    let mut refused = |name, values: &[f32], width| table.append(name, block(values, width)).unwrap_err().to_string();
    assert!(refused("error", &[0.0; 5], 1).contains("expected 6 rows"));
    assert!(refused("error", &[], 0).contains("at least one column"));
    assert!(refused("error", &[0.0, 0.0, f32::INFINITY, 0.0, 0.0, 0.0], 1).contains("inf in row 2"));
    assert!(refused("score", &[0.0; 6], 1).contains("`score` again"));
}

#[test]
fn what_cannot_be_computed_is_refused() {
    let graph = small();
    let (features, _) = features(6, 3);
    let refused = |config: &NeighbourhoodConfig| Neighbourhood::new(&graph, &features, config).err().unwrap();
    for config in [
        NeighbourhoodConfig { hops: 0, ..Default::default() },
        NeighbourhoodConfig { wavelet_order: 9, ..Default::default() },
        NeighbourhoodConfig::none(),
    ] {
        let error = refused(&config);
        assert_eq!(error.exit_code(), 2, "{error}");
    }
    let other = Features::from_f32(vec![0.0; 15], 5, 3);
    let error = Neighbourhood::new(&graph, &other, &NeighbourhoodConfig::default()).err().unwrap();
    assert!(error.to_string().contains("expected 6 rows"), "{error}");
}

#[test]
fn a_sum_beyond_f16_is_named_and_f32_holds_it() {
    let graph = small();
    let features = Features::from_f32(vec![60_000.0; 6], 6, 1);
    let config = NeighbourhoodConfig { sum: true, hops: 1, ..NeighbourhoodConfig::none() };
    let plan = Neighbourhood::new(&graph, &features, &config).unwrap();
    let table = |dtype| plan.table::<Flex>(&FlexDevice, Execution { dtype, columns: 16 });
    let error = table(DType::F16).unwrap_err().to_string();
    assert!(error.contains("feature sum1.x0 of node 0") && error.contains("compute in f32"), "{error}");
    assert_eq!(table(DType::F32).unwrap().row(0), [180_000.0]);
}

#[test]
fn the_width_of_the_pieces_changes_nothing() {
    let graph = marketplace();
    let (features, _) = features(7, 5);
    let plan = Neighbourhood::new(&graph, &features, &everything(Over::Both)).unwrap();
    let table = |columns| plan.table::<Flex>(&FlexDevice, Execution { columns, ..Default::default() }).unwrap();
    let whole = table(16);
    assert_eq!(table(1), whole);
    assert_eq!(table(3), whole);
    // Nor does it where they lie.
    let dir = tempfile::tempdir().unwrap();
    let execution = Execution { columns: 3, ..Default::default() };
    let in_files = plan.table_within::<Flex>(&Spill::new(Some(100), dir.path()), &FlexDevice, execution).unwrap();
    assert!(in_files == whole && in_files.bytes_in_memory() <= 100);
    let mut seen = vec![0; plan.columns().len()];
    plan.stream::<Flex>(&FlexDevice, execution, |piece| {
        assert_eq!(piece.values.len(), 7 * piece.width);
        seen[piece.first..piece.first + piece.width].iter_mut().for_each(|times| *times += 1);
        Ok(())
    })
    .unwrap();
    assert!(seen.iter().all(|&times| times == 1), "every column once: {seen:?}");
}

#[test]
fn a_configuration_survives_being_written() {
    let config = NeighbourhoodConfig { hops: 3, over: Over::Relations, ..everything(Over::Both) };
    let text = toml::to_string(&config).unwrap();
    assert_eq!(toml::from_str::<NeighbourhoodConfig>(&text).unwrap(), config);
    assert_eq!(toml::from_str::<NeighbourhoodConfig>("hops = 3").unwrap().hops, 3);
    assert!(toml::from_str::<NeighbourhoodConfig>("hop = 3").is_err());
}

/// What `of` makes of the values that in-neighbours have: nothing where there are in-neighbours, but no value.
fn of_known(a: &Dense, x: &Matrix, of: impl Fn(&[f64]) -> f64) -> Matrix {
    let value = |i: usize, c: usize| {
        let known: Vec<f64> = (0..x.len()).filter(|&j| a[i][j] > 0.0 && !x[j][c].is_nan()).map(|j| x[j][c]).collect();
        match (degree(a, i) == 0.0, known.is_empty()) {
            (true, _) => 0.0,
            (false, true) => f64::NAN,
            (false, false) => of(&known),
        }
    };
    (0..x.len()).map(|i| (0..x[i].len()).map(|c| value(i, c)).collect()).collect()
}

#[test]
fn missing_values_are_left_out_of_what_neighbours_are() {
    let graph = small();
    let a = dense(&graph, &["edge"], false);
    let (_, mut x) = features(6, 3);
    // Both in-neighbours of node 2 lack column 0.
    for (node, column) in [(1, 0), (4, 0), (0, 2), (5, 2)] {
        x[node][column] = f64::NAN;
    }
    let values = x.iter().flatten().map(|&value| value as f32).collect();
    let config = everything(Over::Union);
    let features = Features::from_f32(values, 6, 3);
    let table = Neighbourhood::new(&graph, &features, &config).unwrap();
    let table = table.table::<Flex>(&FlexDevice, Execution { columns: 2, ..Execution::default() }).unwrap();
    let mean = |x: &Matrix| of_known(&a, x, |known| known.iter().sum::<f64>() / known.len() as f64);
    let most = |x: &Matrix| of_known(&a, x, |known| known.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    let sum = |x: &Matrix| of_known(&a, x, |known| known.iter().sum());
    let filled: Matrix = x
        .iter()
        .zip(mean(&x))
        .map(|(own, mean)| {
            let value = |(own, mean): (&f64, &f64)| [*own, *mean, 0.0].into_iter().find(|v| !v.is_nan()).unwrap();
            own.iter().zip(&mean).map(value).collect()
        })
        .collect();
    let mut sets = vec![("difference".to_string(), less(&x, &mean(&x)))];
    let steps: [Step; 3] = [("mean", &mean), ("max", &most), ("sum", &sum)];
    for (name, step) in steps {
        sets.push((format!("{name}1"), step(&x)));
        sets.push((format!("{name}2"), step(&step(&x))));
    }
    sets.extend((0..3).map(|p| (format!("wavelet{p}"), wavelet(&a, &filled, p))));
    let mut missing = 0;
    for (name, want) in sets {
        for c in 0..3 {
            let at = table.columns().iter().position(|column| column.name == format!("{name}.x{c}")).unwrap();
            for (node, want) in want.iter().map(|row| row[c]).enumerate() {
                let got = f64::from(table.row(node)[at]);
                let same = (got.is_nan() && want.is_nan()) || (got - want).abs() < 1e-5 * want.abs().max(1.0);
                assert!(same, "{name}.x{c} of node {node}: {got}, not {want}");
                missing += usize::from(got.is_nan());
            }
        }
    }
    assert!(missing > 6, "{missing}");
}

#[test]
fn quantiles_are_those_of_the_in_neighbours_that_have_a_value() {
    let graph = small();
    let a = dense(&graph, &["edge"], false);
    let (_, mut x) = features(6, 2);
    (x[0][1], x[4][1], x[1][1]) = (f64::NAN, f64::NAN, f64::NAN);
    let values = x.iter().flatten().map(|&value| value as f32).collect();
    let quantiles = vec![0.0, 0.25, 0.5, 1.0];
    let config = NeighbourhoodConfig { quantiles: quantiles.clone(), ..NeighbourhoodConfig::none() };
    let features = Features::from_f32(values, 6, 2);
    let plan = Neighbourhood::new(&graph, &features, &config).unwrap();
    let table = plan.table::<Flex>(&FlexDevice, Execution { columns: 1, ..Execution::default() }).unwrap();
    assert_eq!(table.columns()[2].name, "quantile0.25.x0");
    for (at, quantile) in quantiles.iter().enumerate() {
        for (node, c) in (0..6).flat_map(|node| [(node, 0), (node, 1)]) {
            let mut known: Vec<f64> =
                (0..6).filter(|&j| a[node][j] > 0.0 && !x[j][c].is_nan()).map(|j| x[j][c]).collect();
            known.sort_by(f64::total_cmp);
            let got = f64::from(table.row(node)[2 * at + c]);
            if known.is_empty() {
                assert!(got.is_nan(), "node {node}: {got}");
                continue;
            }
            let place = quantile * (known.len() - 1) as f64;
            let [low, high] = [place.floor(), place.ceil()].map(|place| known[place as usize]);
            let want = low * (1.0 - place.fract()) + high * place.fract();
            assert!((got - want).abs() < 1e-6, "node {node}, {quantile}: {got}, not {want}");
        }
    }
    let twice = NeighbourhoodConfig { quantiles: vec![0.5, 0.5], ..NeighbourhoodConfig::none() };
    let error = Neighbourhood::new(&graph, &features, &twice).err().unwrap().to_string();
    assert!(error.contains("quantiles") && error.contains("0.5 once"), "{error}");
}
