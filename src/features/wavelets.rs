//! Beta wavelets as polynomials of the normalised adjacency.

/// Coefficients of the Beta wavelets of an order: row `k`, column `p` is that of `P^k` in the filter `F_p`, where
/// `P = D^-1/2 A D^-1/2`.
///
/// ```text
/// F_p = (L/2)^p (I - L/2)^(C-p) / (2 B(p+1, C-p+1))      L = I - P      B: the beta function
/// ```
///
/// # Source
/// Tang et al., Rethinking graph neural networks for anomaly detection (ICML 2022), equations 7 and 9.
pub(crate) fn coefficients(order: usize) -> Vec<Vec<f64>> {
    let times = |polynomial: Vec<f64>, sign: f64| -> Vec<f64> {
        // (1 + sign P) polynomial
        let shifted = [0.0].into_iter().chain(polynomial.iter().map(|c| sign * c));
        polynomial.iter().copied().chain([0.0]).zip(shifted).map(|(a, b)| a + b).collect()
    };
    let filter = |p: usize| {
        let binomial = (1..=p).fold(1.0, |b, k| b * (order + 1 - k) as f64 / k as f64);
        // 1 / (2 B(p+1, C-p+1)) = (C+1)/2 binom(C, p), and a factor 1/2 from each of L/2 and I - L/2.
        let scale = (order + 1) as f64 / 2.0 * binomial * (-(order as f64)).exp2();
        let low = (p..order).fold(vec![scale], |polynomial, _| times(polynomial, 1.0));
        (0..p).fold(low, |polynomial, _| times(polynomial, -1.0))
    };
    let filters: Vec<Vec<f64>> = (0..=order).map(filter).collect();
    (0..=order).map(|k| filters.iter().map(|filter| filter[k]).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::coefficients;

    #[test]
    fn the_filters_of_order_two_are_those_of_the_paper() {
        // 3/8 (1 + P)^2, 3/4 (1 - P)(1 + P), 3/8 (1 - P)^2
        let want = [[0.375, 0.75, 0.375], [0.75, 0.0, -0.75], [0.375, -0.75, 0.375]];
        assert_eq!(coefficients(2), want.map(Vec::from));
    }

    #[test]
    fn the_filters_add_up_to_half_of_one_more_than_the_order() {
        // sum_p binom(C, p) (1 - P)^p (1 + P)^(C-p) = 2^C
        for order in 0..8 {
            for (k, row) in coefficients(order).iter().enumerate() {
                let want = if k == 0 { (order + 1) as f64 / 2.0 } else { 0.0 };
                assert!((row.iter().sum::<f64>() - want).abs() < 1e-9, "order {order}, power {k}");
            }
        }
    }
}
