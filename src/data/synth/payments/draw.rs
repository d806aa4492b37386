//! Everything that is drawn: places, habits, payments and what is compromised.

use rand::Rng;
use rand::seq::index::sample;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Poisson, StandardNormal};
use rayon::prelude::*;

use super::super::rng::{Domain, item_rng};
use super::{Kind, Payment, PaymentsConfig, START};
use crate::error::Result;

const DAY: i64 = 86_400;

/// Length of a side of the square.
const SIDE: f64 = 100.0;

/// How far customers of the published size go.
const RADIUS: f64 = 5.0;
const PUBLISHED_TERMINALS: f64 = 10_000.0;

/// Largest share of the terminals and of the customers that is compromised in a day: two of 10,000, three of 5,000.
const TERMINALS_A_DAY: f64 = 2.0 / 10_000.0;
const CARDS_A_DAY: f64 = 3.0 / 5_000.0;

/// How many days a terminal and a card stay compromised.
const TERMINAL_DAYS: i64 = 28;
const CARD_DAYS: i64 = 14;

/// Customers between two calls of the progress.
const PART: usize = 1_000;

/// Simulates the payments of `config`, in order of time. The result depends on `config` alone, never on the number of
/// threads. `progress` is called from this thread with `(stage, done, total)`.
///
/// # Errors
/// [`Error::Usage`] for a configuration outside the documented ranges.
pub fn generate(config: &PaymentsConfig, progress: &dyn Fn(&'static str, u64, u64)) -> Result<Vec<Payment>> {
    config.check()?;
    let mut by_customer = payments(config, progress);
    for payment in by_customer.iter_mut().flatten().filter(|payment| payment.cents > 22_000) {
        payment.fraud = Some(Kind::Amount);
    }
    let days = config.days;
    let compromised: Vec<Day> = (0..days).map(|day| Day::draw(config, day)).collect();
    compromise_terminals(config, &compromised, &mut by_customer);
    compromise_cards(&compromised, &mut by_customer);
    let mut payments = by_customer.concat();
    // Stable: a customer's payments of one second keep their order.
    payments.sort_by_key(|payment| (payment.time, payment.customer));
    Ok(payments)
}

/// The payments of every customer, in order of time.
fn payments(config: &PaymentsConfig, progress: &dyn Fn(&'static str, u64, u64)) -> Vec<Vec<Payment>> {
    let place = |domain, item| {
        let mut rng = item_rng(config.seed, domain, item);
        [rng.random_range(0.0..SIDE), rng.random_range(0.0..SIDE)]
    };
    // By x, so that a customer looks at a stripe alone.
    let mut terminals: Vec<([f64; 2], u32)> =
        (0..config.terminals).map(|terminal| (place(Domain::Terminals, terminal), terminal as u32)).collect();
    terminals.sort_by(|a, b| a.0[0].total_cmp(&b.0[0]).then(a.1.cmp(&b.1)));
    let radius = RADIUS * (PUBLISHED_TERMINALS / config.terminals as f64).sqrt();

    let mut by_customer = Vec::with_capacity(config.customers);
    for first in (0..config.customers).step_by(PART) {
        let part = first..(first + PART).min(config.customers);
        let of_customer = |customer| {
            let [x, y] = place(Domain::Customers, customer);
            let start = terminals.partition_point(|(place, _)| place[0] < x - radius);
            let near = terminals[start..].iter().take_while(|(place, _)| place[0] <= x + radius);
            let near = near.filter(|([tx, ty], _)| (tx - x).hypot(ty - y) < radius).map(|&(_, terminal)| terminal);
            of_customer(config, customer, &near.collect::<Vec<u32>>())
        };
        by_customer.par_extend(part.clone().into_par_iter().map(of_customer));
        progress("payments", part.end as u64, config.customers as u64);
    }
    by_customer
}

/// The payments of one customer at the terminals that are `near`.
fn of_customer(config: &PaymentsConfig, customer: usize, near: &[u32]) -> Vec<Payment> {
    let mut rng = item_rng(config.seed, Domain::Payments, customer);
    let mean_amount = rng.random_range(5.0..100.0);
    let rate: f64 = rng.random_range(0.0..4.0);
    let Some(number) = Poisson::new(rate).ok().filter(|_| !near.is_empty()) else { return Vec::new() };
    let mut payments = Vec::new();
    for day in 0..config.days as i64 {
        for _ in 0..number.sample(&mut rng) as usize {
            let time = (normal(&mut rng) * 20_000.0 + DAY as f64 / 2.0) as i64;
            if time <= 0 || time >= DAY {
                continue;
            }
            let mut amount = mean_amount + mean_amount / 2.0 * normal(&mut rng);
            if amount < 0.0 {
                amount = rng.random_range(0.0..2.0 * mean_amount);
            }
            payments.push(Payment {
                time: START + day * DAY + time,
                customer: customer as u32,
                terminal: near[rng.random_range(0..near.len())],
                cents: (amount * 100.0).round() as u32,
                fraud: None,
            });
        }
    }
    payments.sort_by_key(|payment| payment.time);
    payments
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// What is compromised from one day on.
struct Day {
    start: i64,
    terminals: Vec<usize>,
    customers: Vec<usize>,
    /// For the choice among the payments of those customers.
    rng: ChaCha8Rng,
}

impl Day {
    fn draw(config: &PaymentsConfig, day: usize) -> Self {
        let mut rng = item_rng(config.seed, Domain::Compromised, day);
        let mut some = |count: usize, share: f64| {
            let expected = count as f64 * share;
            // A part of one is one with that probability.
            let number = expected.floor() as usize + usize::from(rng.random::<f64>() < expected.fract());
            sample(&mut rng, count, number).into_vec()
        };
        let terminals = some(config.terminals, TERMINALS_A_DAY);
        let customers = some(config.customers, CARDS_A_DAY);
        Self { start: START + day as i64 * DAY, terminals, customers, rng }
    }
}

/// All payments at a compromised terminal are fraudulent.
fn compromise_terminals(config: &PaymentsConfig, days: &[Day], by_customer: &mut [Vec<Payment>]) {
    let mut starts = vec![Vec::new(); config.terminals];
    for day in days {
        day.terminals.iter().for_each(|&terminal| starts[terminal].push(day.start));
    }
    for payment in by_customer.iter_mut().flatten() {
        let starts = &starts[payment.terminal as usize];
        if starts.iter().any(|start| (*start..start + TERMINAL_DAYS * DAY).contains(&payment.time)) {
            payment.fraud = Some(Kind::Terminal);
        }
    }
}

/// A third of the payments of each day's customers are fraudulent, with five times their amounts.
fn compromise_cards(days: &[Day], by_customer: &mut [Vec<Payment>]) {
    for day in days {
        let end = day.start + CARD_DAYS * DAY;
        let mut found = Vec::new();
        for &customer in &day.customers {
            let payments = by_customer[customer].iter().enumerate();
            let within = payments.filter(|(_, payment)| (day.start..end).contains(&payment.time));
            found.extend(within.map(|(place, _)| (customer, place)));
        }
        for chosen in sample(&mut day.rng.clone(), found.len(), found.len() / 3) {
            let (customer, place) = found[chosen];
            let payment = &mut by_customer[customer][place];
            payment.cents = payment.cents.saturating_mul(5);
            payment.fraud = Some(Kind::Card);
        }
    }
}
