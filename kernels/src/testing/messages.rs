//! Messages along edges in f64: what they are, what becomes of them, and the gradients of both.

use super::fixtures::Fixture;

/// Two numbers become one.
#[derive(Clone, Copy, Debug)]
pub struct MessageOp {
    /// Quote it in assertion messages.
    pub name: &'static str,
    /// The result.
    pub value: fn(f64, f64) -> f64,
    /// Its derivatives.
    pub gradient: fn(f64, f64) -> [f64; 2],
}

/// The left operand alone.
pub const COPY: MessageOp = MessageOp { name: "copy", value: |l, _| l, gradient: |_, _| [1.0, 0.0] };
/// The sum.
pub const ADD: MessageOp = MessageOp { name: "add", value: |l, r| l + r, gradient: |_, _| [1.0, 1.0] };
/// The difference.
pub const SUB: MessageOp = MessageOp { name: "sub", value: |l, r| l - r, gradient: |_, _| [1.0, -1.0] };
/// The product.
pub const MUL: MessageOp = MessageOp { name: "mul", value: |l, r| l * r, gradient: |l, r| [r, l] };
/// The quotient.
pub const DIV: MessageOp = MessageOp { name: "div", value: |l, r| l / r, gradient: |l, r| [1.0 / r, -l / (r * r)] };

/// What the rows of an operand belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A row per column of the adjacency.
    Source,
    /// A row per edge.
    Edge,
    /// A row per row of the adjacency.
    Destination,
}

impl End {
    /// Rows of an operand.
    pub fn rows(self, f: &Fixture) -> usize {
        match self {
            End::Source => f.num_cols,
            End::Edge => f.num_edges(),
            End::Destination => f.num_rows,
        }
    }

    fn of(self, (e, i, j): (usize, usize, usize)) -> usize {
        match self {
            End::Source => j,
            End::Edge => e,
            End::Destination => i,
        }
    }
}

/// A message of `width` channels per edge; column `c` of an operand belongs to the `c`-th of equal shares of the
/// channels.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a> {
    /// How the operands are put together.
    pub op: MessageOp,
    /// What they belong to.
    pub ends: [End; 2],
    /// Their columns.
    pub columns: [usize; 2],
    /// Their values, row by row.
    pub values: [&'a [f64]; 2],
    /// Channels.
    pub width: usize,
}

impl Messages<'_> {
    /// Where operand `side` stands for channel `c` of an edge.
    fn at(&self, side: usize, edge: (usize, usize, usize), c: usize) -> usize {
        let columns = self.columns[side];
        self.ends[side].of(edge) * columns + c * columns / self.width
    }

    /// The messages `[E, width]`.
    pub fn compute(&self, f: &Fixture) -> Vec<f64> {
        let mut out = Vec::with_capacity(f.num_edges() * self.width);
        for edge in f.edges() {
            for c in 0..self.width {
                out.push((self.op.value)(self.values[0][self.at(0, edge, c)], self.values[1][self.at(1, edge, c)]));
            }
        }
        out
    }

    /// The gradients of both operands from that of the messages.
    pub fn gradient(&self, f: &Fixture, grad: &[f64]) -> [Vec<f64>; 2] {
        self.add_up(f, grad, |x| x)
    }

    /// What the terms of [`Messages::gradient`] add up to when nothing cancels.
    pub fn gradient_magnitude(&self, f: &Fixture, grad: &[f64]) -> [Vec<f64>; 2] {
        self.add_up(f, grad, f64::abs)
    }

    fn add_up(&self, f: &Fixture, grad: &[f64], term: impl Fn(f64) -> f64) -> [Vec<f64>; 2] {
        assert_eq!(grad.len(), f.num_edges() * self.width, "grad is [E, width]");
        let mut out = [0, 1].map(|side| vec![0.0; self.values[side].len()]);
        for edge in f.edges() {
            for c in 0..self.width {
                let at = [0, 1].map(|side| self.at(side, edge, c));
                let slopes = (self.op.gradient)(self.values[0][at[0]], self.values[1][at[1]]);
                for side in 0..2 {
                    out[side][at[side]] += term(grad[edge.0 * self.width + c] * slopes[side]);
                }
            }
        }
        out
    }
}

/// The channels of each of `heads` heads added up: `[E, width]` to `[E, heads]`.
pub fn add_heads(messages: &[f64], width: usize, heads: usize) -> Vec<f64> {
    messages.chunks(width / heads).map(|channels| channels.iter().sum()).collect()
}

/// The gradient of [`add_heads`].
pub fn add_heads_grad(grad: &[f64], width: usize, heads: usize) -> Vec<f64> {
    grad.iter().flat_map(|&g| vec![g; width / heads]).collect()
}

/// What becomes of the messages of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their sum over their number.
    Mean,
    /// The largest; of equal ones the first.
    Max,
    /// The smallest; of equal ones the first.
    Min,
}

/// The messages `[E, width]` of every row as one `[num_rows, width]`; 0 for a row without.
pub fn reduce(f: &Fixture, messages: &[f64], width: usize, reduction: Reduction) -> Vec<f64> {
    let share = shares(f, messages, width, reduction);
    let mut out = vec![0.0; f.num_rows * width];
    for (e, i, _) in f.edges() {
        for c in 0..width {
            out[i * width + c] += share[e * width + c] * messages[e * width + c];
        }
    }
    out
}

/// The gradient of the messages `[E, width]` from that of [`reduce`].
pub fn reduce_grad(f: &Fixture, messages: &[f64], width: usize, reduction: Reduction, grad: &[f64]) -> Vec<f64> {
    let share = shares(f, messages, width, reduction);
    f.edges()
        .flat_map(|(e, i, _)| (0..width).map(move |c| (e, i, c)))
        .map(|(e, i, c)| share[e * width + c] * grad[i * width + c])
        .collect()
}

/// The factor with which each message counts in the result.
fn shares(f: &Fixture, messages: &[f64], width: usize, reduction: Reduction) -> Vec<f64> {
    assert_eq!(messages.len(), f.num_edges() * width, "messages are [E, width]");
    let mut share = vec![0.0; messages.len()];
    for i in 0..f.num_rows {
        let edges = f.row_ptr[i] as usize..f.row_ptr[i + 1] as usize;
        for c in 0..width {
            let better = |a: f64, b: f64| if reduction == Reduction::Min { a < b } else { a > b };
            let mut best = edges.start;
            for e in edges.clone() {
                match reduction {
                    Reduction::Sum => share[e * width + c] = 1.0,
                    Reduction::Mean => share[e * width + c] = 1.0 / edges.len() as f64,
                    Reduction::Max | Reduction::Min if better(messages[e * width + c], messages[best * width + c]) => {
                        best = e
                    }
                    Reduction::Max | Reduction::Min => {}
                }
            }
            if matches!(reduction, Reduction::Max | Reduction::Min) && !edges.is_empty() {
                share[best * width + c] = 1.0;
            }
        }
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_gradient, probe, small_fixtures, values, weighted_sum};

    #[test]
    fn gradients_match_differences() {
        let width = 4;
        for f in small_fixtures() {
            for op in [COPY, ADD, SUB, MUL, DIV] {
                for (ends, columns) in [
                    ([End::Source, End::Edge], [4, 1]),
                    ([End::Source, End::Destination], [4, 4]),
                    ([End::Edge, End::Edge], [2, 4]),
                    ([End::Destination, End::Source], [1, 4]),
                ] {
                    let away = |v: f64| v + v.signum();
                    let input = |side: usize| -> Vec<f64> {
                        let n = ends[side].rows(&f) * columns[side];
                        values(side as u64 + 1, n).into_iter().map(away).collect()
                    };
                    let inputs = [input(0), input(1)];
                    let of = |x: &[Vec<f64>]| Messages { op, ends, columns, values: [&x[0], &x[1]], width }.compute(&f);
                    let messages = Messages { op, ends, columns, values: [&inputs[0], &inputs[1]], width };
                    for reduction in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min] {
                        let g = probe(f.num_rows * width);
                        let loss = |x: &[Vec<f64>]| weighted_sum(&reduce(&f, &of(x), width, reduction), &g);
                        let through = reduce_grad(&f, &messages.compute(&f), width, reduction, &g);
                        for (side, want) in messages.gradient(&f, &through).iter().enumerate() {
                            assert_gradient(
                                &format!("{} {} {reduction:?}", f.name, op.name),
                                loss,
                                &inputs,
                                side,
                                want,
                            );
                        }
                    }
                    let g = probe(f.num_edges() * 2);
                    let loss = |x: &[Vec<f64>]| weighted_sum(&add_heads(&of(x), width, 2), &g);
                    for (side, want) in messages.gradient(&f, &add_heads_grad(&g, width, 2)).iter().enumerate() {
                        assert_gradient(&format!("{} {} heads", f.name, op.name), loss, &inputs, side, want);
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_of_equal_messages_wins_and_empty_rows_are_zero() {
        let f = Fixture::from_rows("ties", 1, &[vec![0, 0, 0], vec![]]);
        let messages = [1.0, 2.0, 2.0];
        assert_eq!(reduce(&f, &messages, 1, Reduction::Max), [2.0, 0.0]);
        assert_eq!(reduce_grad(&f, &messages, 1, Reduction::Max, &[5.0, 7.0]), [0.0, 5.0, 0.0]);
        let mean = reduce(&f, &messages, 1, Reduction::Mean);
        assert!((mean[0] - 5.0 / 3.0).abs() < 1e-15 && mean[1] == 0.0, "{mean:?}");
    }
}
