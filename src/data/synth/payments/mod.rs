//! Synthetic card payments: tables of payments with planted fraud, for import.
//!
//! The simulation is the published one of Le Borgne et al., Reproducible Machine Learning for Credit Card Fraud
//! Detection, with its rates:
//!
//! - Customers and terminals lie evenly on a square of 100 by 100. A customer pays at terminals within 5 of home, each
//!   as likely as the other.
//! - A customer makes a Poisson number of payments a day, with a mean drawn from U(0, 4). Their times of day are normal
//!   around noon with a deviation of 20,000 s; those that fall outside the day do not take place.
//! - Amounts are normal, with a mean drawn from U(5, 100) per customer and half of it as deviation; where that is
//!   negative, the amount is uniform up to twice the mean.
//!
//! Three kinds of fraud are planted, each over what it finds ([`Kind`]): all amounts above 220; every day two
//! terminals, whose payments of that day and the next 27 are all fraudulent; every day three customers, a third of
//! whose payments of that day and the next 13 are fraudulent, with five times their amounts.
//!
//! With 5,000 customers and 10,000 terminals over 183 days these are about 1.78 million payments, 0.84 % of them fraud.

mod draw;
mod write;

use std::fmt;

use serde::Serialize;

use crate::error::{Error, Result};
pub use draw::generate;
pub use write::write;

/// Seconds since 1970 of 2018-04-01, when the payments begin.
pub const START: i64 = 1_522_540_800;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaymentsConfig {
    /// Number of customers, at least 20.
    pub customers: usize,
    /// Number of terminals, at least 40. With more of them than 10,000 customers go less far, with fewer farther, so
    /// that each has about as many to choose from.
    pub terminals: usize,
    /// Days, from 1 to 3,660.
    pub days: usize,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for PaymentsConfig {
    /// The published size, with seed 0.
    fn default() -> Self {
        Self { customers: 5_000, terminals: 10_000, days: 183, seed: 0 }
    }
}

impl PaymentsConfig {
    /// The same with `factor` times the customers and terminals, and so the payments and frauds.
    pub fn scaled(self, factor: f64) -> Self {
        // The cast saturates: an absurd factor becomes an absurd size, which `generate` refuses.
        let scale = |count: usize| (count as f64 * factor).round() as usize;
        Self { customers: scale(self.customers), terminals: scale(self.terminals), ..self }
    }

    fn check(&self) -> Result<()> {
        let sizes = [
            ("customers", self.customers, 20..=10_000_000),
            ("terminals", self.terminals, 40..=20_000_000),
            ("days", self.days, 1..=3_660),
        ];
        for (name, found, range) in sizes {
            if !range.contains(&found) {
                return Err(Error::Usage {
                    argument: format!("{name} of the synthetic payments"),
                    expected: format!("{} to {}", range.start(), range.end()),
                    found: found.to_string(),
                    help: "choose another scale".into(),
                });
            }
        }
        Ok(())
    }
}

/// What makes a payment fraudulent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The amount is above 220.
    Amount,
    /// The terminal is compromised: all its payments are fraudulent for 28 days.
    Terminal,
    /// The card is compromised: for 14 days a third of its payments are fraudulent, with five times their amounts.
    Card,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::Amount, Kind::Terminal, Kind::Card];

    /// Name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Amount => "amount",
            Kind::Terminal => "terminal",
            Kind::Card => "card",
        }
    }
}

/// One payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Seconds since 1970.
    pub time: i64,
    pub customer: u32,
    pub terminal: u32,
    /// Amount in hundredths, at least 0.
    pub cents: u32,
    /// The fraud that was planted last, where there is one.
    pub fraud: Option<Kind>,
}

/// What was generated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub payments: usize,
    pub customers: usize,
    pub terminals: usize,
    pub days: usize,
    /// Fraudulent payments by kind, in the order of [`Kind::ALL`].
    pub frauds: [usize; 3],
}

impl Summary {
    /// Counts the payments of `config`.
    pub fn of(config: &PaymentsConfig, payments: &[Payment]) -> Self {
        let of_kind = |kind| payments.iter().filter(|payment| payment.fraud == Some(kind)).count();
        let PaymentsConfig { customers, terminals, days, .. } = *config;
        Self { payments: payments.len(), customers, terminals, days, frauds: Kind::ALL.map(of_kind) }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { payments, customers, terminals, days, frauds } = self;
        let all: usize = frauds.iter().sum();
        let share = 100.0 * all as f64 / (*payments).max(1) as f64;
        writeln!(f, "payments   {payments:>10}  of {customers} customers at {terminals} terminals on {days} days")?;
        writeln!(f, "frauds     {all:>10}  {share:.2} %")?;
        let [amount, terminal, card] = frauds;
        writeln!(f, "  amount   {amount:>10}  above 220")?;
        writeln!(f, "  terminal {terminal:>10}  at compromised terminals")?;
        writeln!(f, "  card     {card:>10}  with compromised cards")
    }
}

#[cfg(test)]
mod tests;
