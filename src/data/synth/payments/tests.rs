use std::collections::HashMap;
use std::fs;

use super::*;
use crate::data::tables::{ImportOptions, import};
use crate::data::windows::{Entity, EventColumns, KnownLabels, WindowConfig, column_names};

const DAY: i64 = 86_400;

fn small(seed: u64) -> PaymentsConfig {
    PaymentsConfig { seed, ..PaymentsConfig::default() }.scaled(0.1)
}

fn generated(config: &PaymentsConfig) -> Vec<Payment> {
    generate(config, &|_, _, _| {}).unwrap()
}

#[test]
fn rates_are_the_published_ones() {
    let config = small(1);
    let payments = generated(&config);
    // 9,580 a day in 183 days for 5,000 customers; less what falls outside the day.
    assert!((160_000..190_000).contains(&payments.len()), "{}", payments.len());
    let share = payments.iter().filter(|payment| payment.fraud.is_some()).count() as f64 / payments.len() as f64;
    assert!((0.006..0.011).contains(&share), "{share}");
    assert!(payments.is_sorted_by_key(|payment| payment.time));
    let end = START + 183 * DAY;
    assert!(payments.iter().all(|payment| (START..end).contains(&payment.time)));
    let frauds = Summary::of(&config, &payments).frauds;
    assert!(frauds[0] > 30 && frauds[1] > 600 && frauds[2] > 250, "{frauds:?}");
}

#[test]
fn amounts_above_the_limit_are_fraud_unless_a_terminal_or_a_card_makes_them_so() {
    let payments = generated(&small(2));
    assert!(payments.iter().all(|payment| payment.cents <= 22_000 || payment.fraud.is_some()));
    let of_kind = |kind| payments.iter().filter(move |payment| payment.fraud == Some(kind));
    assert!(of_kind(Kind::Amount).all(|payment| payment.cents > 22_000));
    assert!(of_kind(Kind::Card).all(|payment| payment.cents % 5 == 0));
}

#[test]
fn a_compromised_terminal_has_frauds_alone_for_28_days() {
    let payments = generated(&small(3));
    let mut frauds: HashMap<u32, Vec<i64>> = HashMap::new();
    for payment in payments.iter().filter(|payment| payment.fraud == Some(Kind::Terminal)) {
        frauds.entry(payment.terminal).or_default().push(payment.time);
    }
    assert!(frauds.len() > 20);
    for (terminal, times) in frauds {
        let (first, last) = (times[0], times[times.len() - 1]);
        let between = payments.iter().filter(|payment| payment.terminal == terminal);
        let mut between = between.filter(|payment| (first..last.min(first + 20 * DAY)).contains(&payment.time));
        assert!(between.all(|payment| payment.fraud.is_some()), "terminal {terminal}");
    }
}

#[test]
fn a_compromised_card_pays_five_times_as_much() {
    let payments = generated(&small(4));
    let mean = |customer: u32, fraud: bool| {
        let own = payments.iter().filter(|payment| payment.customer == customer);
        let amounts: Vec<f64> = own
            .filter(|payment| if fraud { payment.fraud == Some(Kind::Card) } else { payment.fraud.is_none() })
            .map(|payment| f64::from(payment.cents))
            .collect();
        (amounts.len() >= 8).then(|| amounts.iter().sum::<f64>() / amounts.len() as f64)
    };
    let ratios: Vec<f64> =
        (0..500).filter_map(|customer| Some(mean(customer, true)? / mean(customer, false)?)).collect();
    assert!(ratios.len() > 5, "{}", ratios.len());
    let typical = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!((4.0..6.0).contains(&typical), "{typical}");
}

#[test]
fn payments_depend_on_the_seed_alone() {
    let reference = generated(&small(5));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(pool.install(|| generated(&small(5))), reference);
    assert_ne!(generated(&small(6)), reference);
}

#[test]
fn customers_find_as_many_terminals_at_every_scale() {
    let terminals = |factor: f64| {
        let config = PaymentsConfig { days: 60, ..PaymentsConfig::default() }.scaled(factor);
        let mut by_customer: HashMap<u32, std::collections::HashSet<u32>> = HashMap::new();
        for payment in generated(&config) {
            by_customer.entry(payment.customer).or_default().insert(payment.terminal);
        }
        by_customer.values().map(|terminals| terminals.len()).sum::<usize>() as f64 / by_customer.len() as f64
    };
    let (small, large) = (terminals(0.1), terminals(1.0));
    assert!((small / large - 1.0).abs() < 0.2, "{small} and {large}");
}

#[test]
fn tables_are_written_as_a_whole_and_imported() {
    let config = PaymentsConfig { seed: 7, ..PaymentsConfig::default() }.scaled(0.05);
    let payments = generated(&config);
    let sandbox = tempfile::tempdir().unwrap();
    let dir = sandbox.path().join("payments");
    let files = write(&config, &payments, &dir).unwrap();
    assert_eq!(files.len(), 2);
    let table = fs::read_to_string(dir.join("payments.csv")).unwrap();
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("id,time,customer,terminal,amount,fraud,kind"));
    assert_eq!(lines.clone().count(), payments.len());
    assert!(lines.next().unwrap().starts_with("0,2018-04-01 0"), "{table:.80}");
    let (amounts, frauds) = (table.matches(",1,amount").count(), table.matches(",1,").count());
    assert_eq!(Summary::of(&config, &payments).frauds[0], amounts);
    assert_eq!(Summary::of(&config, &payments).frauds.iter().sum::<usize>(), frauds);

    let imported = import(&ImportOptions::new(dir.join("graph.toml")), &|_| {}).unwrap();
    // What suits these payments are the default windows: results were measured with them.
    let [customer, terminal] = ["customer", "terminal"].map(|name| Entity { name, of_event: &[], count: 0 });
    let columns = EventColumns {
        times: &[],
        values: Some(&[]),
        labels: Some(KnownLabels { label: &[], known: &[], delay: None }),
        entities: vec![customer, terminal],
    };
    let windows = column_names(&columns, &WindowConfig::default());
    let expected: Vec<String> = windows.iter().map(|name| format!("payment.{name}")).collect();
    let names = imported.dataset.feature_names.as_ref().unwrap();
    assert!(names.windows(expected.len()).any(|names| names == expected), "{names:?}\n{expected:?}");
    assert_eq!(imported.dataset.graph.node_types()[0].count, payments.len());
    let amounts = imported.dataset.events.unwrap().amount.unwrap();
    assert!(payments.iter().zip(amounts).all(|(payment, amount)| amount == (f64::from(payment.cents) / 100.0) as f32));
    let parts = &imported.dataset.split.unwrap().windows[0];
    assert!((1..=3).all(|part| parts.iter().filter(|&&found| found == part).count() > 500));
    assert!(matches!(write(&config, &payments, &dir), Err(Error::Exists { .. })));
}

#[test]
fn sizes_out_of_range_are_refused() {
    for factor in [1e-9, 1e9] {
        let refused = generate(&PaymentsConfig::default().scaled(factor), &|_, _, _| {});
        assert!(matches!(refused, Err(Error::Usage { .. })), "{factor}");
    }
}
