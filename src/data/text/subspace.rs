//! Leading right singular vectors of a large matrix that is only known through its products.
//!
//! Randomised subspace iteration (Halko, Martinsson & Tropp 2011, algorithm 4.4, on the column side): with a random
//! `V [dim, l]`, repeat `V = orth(AᵀA V)`, then rotate `V` to the eigenvectors of `VᵀAᵀA V`. Everything tall stays on
//! the side of the columns, and `AᵀA V` of eight vectors is one pass over the rows, so neither a copy of `A` nor an
//! array of one dense row per row of `A` is ever held. Work is split by vectors, never by rows: every sum runs in one
//! order, whatever the number of threads.

use ndarray::Array2;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

/// Vectors handled in one pass: one register of eight floats.
pub(in crate::data) const LANES: usize = 8;
/// Additional vectors that make the wanted ones converge; one more pass.
const OVERSAMPLING_BLOCKS: usize = 1;
/// Below this part of the largest eigenvalue a direction is rounding noise of 32-bit products.
const NOISE: f64 = 1e-11;

/// Eight vectors of one component per row of the array.
pub(in crate::data) type Block = Vec<[f32; LANES]>;

/// A matrix `A [rows, dim]` given by what the iteration needs of it.
pub(in crate::data) trait RowSpace: Sync {
    /// Number of rows from which directions are learned.
    fn num_rows(&self) -> usize;

    fn dim(&self) -> usize;

    /// `AᵀA v` for eight vectors.
    fn gram(&self, v: &Block) -> Block;

    /// `out[8 b..8 b + 8] = A[row] · basis[b]` for every block.
    fn project(&self, row: usize, basis: &[Block], out: &mut [f32]);
}

/// The `LANES * num_blocks` leading right singular vectors of `a`, in blocks of eight, and the root mean square of
/// `|A[row] V|` over the rows. Directions that `a` does not have are zero vectors.
pub(in crate::data) fn leading_vectors(
    a: &dyn RowSpace,
    num_blocks: usize,
    iterations: usize,
    seed: u64,
    mut progress: impl FnMut(u64),
) -> (Vec<Block>, f64) {
    let mut v: Vec<Block> = (0..num_blocks + OVERSAMPLING_BLOCKS)
        .into_par_iter()
        .map(|block| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(block as u64);
            (0..a.dim()).map(|_| std::array::from_fn(|_| rng.random_range(-1.0..1.0))).collect()
        })
        .collect();
    v = orthonormalised(&v);
    for iteration in 0..iterations {
        v = orthonormalised(&multiply(a, &v));
        progress(iteration as u64 + 1);
    }
    let (values, vectors) = eigen(&inner_products(&v, &multiply(a, &v)));
    let mut basis = rotated(&v, &vectors, num_blocks);
    for block in &mut basis {
        fix_signs(block);
    }
    progress(iterations as u64 + 1);
    let energy: f64 = values.iter().take(num_blocks * LANES).map(|value| value.max(0.0)).sum();
    (basis, (energy / a.num_rows().max(1) as f64).sqrt())
}

fn multiply(a: &dyn RowSpace, v: &[Block]) -> Vec<Block> {
    v.par_iter().map(|block| a.gram(block)).collect()
}

/// An orthonormal basis of the span of `v`: `V W diag(λ)^(-1/2)` with `VᵀV = W diag(λ) Wᵀ`. Missing directions are
/// zero.
fn orthonormalised(v: &[Block]) -> Vec<Block> {
    let (values, mut vectors) = eigen(&inner_products(v, v));
    let floor = values[0].max(0.0) * NOISE;
    for (j, &value) in values.iter().enumerate() {
        let scale = if value > floor { value.sqrt().recip() } else { 0.0 };
        vectors.column_mut(j).iter_mut().for_each(|w| *w *= scale);
    }
    rotated(v, &vectors, v.len())
}

/// `UᵀV` in double precision.
fn inner_products(u: &[Block], v: &[Block]) -> Array2<f64> {
    let pairs: Vec<(usize, usize)> = (0..u.len()).flat_map(|i| (0..v.len()).map(move |j| (i, j))).collect();
    let tiles: Vec<[[f64; LANES]; LANES]> = pairs
        .par_iter()
        .map(|&(i, j)| {
            let mut tile = [[0.0; LANES]; LANES];
            for (x, y) in u[i].iter().zip(&v[j]) {
                for (row, &x) in tile.iter_mut().zip(x) {
                    for (sum, &y) in row.iter_mut().zip(y) {
                        *sum += f64::from(x) * f64::from(y);
                    }
                }
            }
            tile
        })
        .collect();
    Array2::from_shape_fn((u.len() * LANES, v.len() * LANES), |(row, col)| {
        tiles[row / LANES * v.len() + col / LANES][row % LANES][col % LANES]
    })
}

/// The first `num_blocks` blocks of `V W`.
fn rotated(v: &[Block], w: &Array2<f64>, num_blocks: usize) -> Vec<Block> {
    (0..num_blocks)
        .into_par_iter()
        .map(|out| {
            let mut block = vec![[0.0_f32; LANES]; v[0].len()];
            for (i, source) in v.iter().enumerate() {
                let weights: [[f32; LANES]; LANES] =
                    std::array::from_fn(|k| std::array::from_fn(|l| w[(i * LANES + k, out * LANES + l)] as f32));
                for (target, x) in block.iter_mut().zip(source) {
                    for (x, weights) in x.iter().zip(&weights) {
                        target.iter_mut().zip(weights).for_each(|(t, w)| *t += x * w);
                    }
                }
            }
            block
        })
        .collect()
}

/// Eigenvalues of a symmetric matrix, largest first, and the eigenvectors in the columns: cyclic Jacobi rotations, in
/// one order whatever the number of threads.
fn eigen(matrix: &Array2<f64>) -> (Vec<f64>, Array2<f64>) {
    /// Convergence is quadratic; ten are rarely needed.
    const MAX_SWEEPS: usize = 50;
    let n = matrix.nrows();
    let mut a: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| (matrix[(i, j)] + matrix[(j, i)]) / 2.0).collect()).collect();
    // Row i is the eigenvector of a[i][i]: rows lie in one piece.
    let mut vectors: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    let norm = a.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
    let negligible = f64::EPSILON * norm / n as f64;
    for _ in 0..MAX_SWEEPS {
        let mut is_diagonal = true;
        for p in 0..n {
            for q in p + 1..n {
                let off = a[p][q];
                // Only input that is not finite gets past every sweep: it compares as neither.
                if off.abs() <= negligible {
                    continue;
                }
                is_diagonal = false;
                let theta = (a[q][q] - a[p][p]) / (2.0 * off);
                let tangent = theta.signum() / (theta.abs() + theta.hypot(1.0));
                let cosine = tangent.hypot(1.0).recip();
                let sine = tangent * cosine;
                let [diagonal_p, diagonal_q] = [a[p][p] - tangent * off, a[q][q] + tangent * off];
                for rows in [&mut a, &mut vectors] {
                    let (above, below) = rows.split_at_mut(q);
                    for (x, y) in above[p].iter_mut().zip(&mut below[0]) {
                        (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
                    }
                }
                for row in &mut a {
                    (row[p], row[q]) = (cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]);
                }
                (a[p][p], a[q][q], a[p][q], a[q][p]) = (diagonal_p, diagonal_q, 0.0, 0.0);
            }
        }
        if is_diagonal {
            break;
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| a[j][j].total_cmp(&a[i][i]));
    let values = order.iter().map(|&i| a[i][i]).collect();
    (values, Array2::from_shape_fn((n, n), |(row, column)| vectors[order[column]][row]))
}

/// Makes the largest component of every vector positive: a singular vector's sign is arbitrary.
fn fix_signs(block: &mut Block) {
    for lane in 0..LANES {
        let largest = block.iter().map(|row| row[lane]).fold(0.0_f32, |a, b| if b.abs() > a.abs() { b } else { a });
        if largest < 0.0 {
            block.iter_mut().for_each(|row| row[lane] = -row[lane]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Q diag(values) Qᵀ` with an orthogonal `Q` that mixes all coordinates: a product of reflections.
    fn with_spectrum(values: &[f64]) -> Array2<f64> {
        let n = values.len();
        let mut q = Array2::<f64>::eye(n);
        for seed in 1..4 {
            let w: Vec<f64> = (0..n).map(|i| ((i * i * seed + seed) as f64).sin() + 0.1).collect();
            let square: f64 = w.iter().map(|x| x * x).sum();
            let reflection =
                Array2::from_shape_fn((n, n), |(i, j)| f64::from(u8::from(i == j)) - 2.0 * w[i] * w[j] / square);
            q = q.dot(&reflection);
        }
        q.dot(&Array2::from_diag(&ndarray::arr1(values))).dot(&q.t())
    }

    #[test]
    fn symmetric_matrices_have_their_known_eigenvalues_and_orthonormal_eigenvectors() {
        let spectra: [Vec<f64>; 7] = [
            vec![3.0],
            vec![2.0, -1.0],
            (0..104).map(|i| 1e3 * 0.8f64.powi(i)).collect(),
            (0..40).map(|i| f64::from(20 - i)).collect(),
            // Eigenvalues that repeat, and a matrix of low rank.
            [vec![5.0; 9], vec![1.0; 7], vec![-2.0; 8]].concat(),
            [vec![1e6, 1e3, 1.0], vec![0.0; 29]].concat(),
            vec![0.0; 16],
        ];
        for spectrum in spectra {
            let n = spectrum.len();
            let matrix = with_spectrum(&spectrum);
            let (values, vectors) = eigen(&matrix);
            let size = spectrum.iter().fold(1e-300_f64, |size, x| size.max(x.abs()));
            let near = |found: f64, wanted: f64| (found - wanted).abs() <= 1e-13 * size * n as f64;
            assert!(values.iter().zip(&spectrum).all(|(found, wanted)| near(*found, *wanted)), "{values:?}");
            let again = vectors.dot(&Array2::from_diag(&ndarray::arr1(&values))).dot(&vectors.t());
            assert!(again.iter().zip(&matrix).all(|(found, wanted)| near(*found, *wanted)), "{spectrum:?}");
            let products = vectors.t().dot(&vectors);
            assert!((products - Array2::<f64>::eye(n)).iter().all(|x| x.abs() < 1e-13 * n as f64), "{spectrum:?}");
        }
    }

    struct Dense(Vec<Vec<f32>>);

    impl RowSpace for Dense {
        fn num_rows(&self) -> usize {
            self.0.len()
        }

        fn dim(&self) -> usize {
            self.0[0].len()
        }

        fn gram(&self, v: &Block) -> Block {
            let mut out = vec![[0.0; LANES]; self.dim()];
            for row in &self.0 {
                let y: [f32; LANES] = std::array::from_fn(|lane| row.iter().zip(v).map(|(x, v)| x * v[lane]).sum());
                for (out, x) in out.iter_mut().zip(row) {
                    out.iter_mut().zip(y).for_each(|(out, y)| *out += x * y);
                }
            }
            out
        }

        fn project(&self, row: usize, basis: &[Block], out: &mut [f32]) {
            for (block, out) in basis.iter().zip(out.chunks_mut(LANES)) {
                out.iter_mut().enumerate().for_each(|(lane, out)| {
                    *out = self.0[row].iter().zip(block).map(|(x, v)| x * v[lane]).sum();
                });
            }
        }
    }

    #[test]
    fn a_matrix_of_low_rank_is_reproduced_by_its_projections() {
        // Rank 3: inner products of rows survive the projection exactly.
        let rows: Vec<Vec<f32>> = (0..40)
            .map(|i| {
                let (a, b, c) = ((i as f32).sin(), (i as f32 * 0.7).cos(), 1.0);
                (0..30).map(|j| a * (j as f32).cos() + b * (j as f32 * 0.3).sin() + c * 0.1).collect()
            })
            .collect();
        let a = Dense(rows);
        let (basis, rms) = leading_vectors(&a, 1, 3, 5, |_| {});
        let projected: Vec<[f32; LANES]> = (0..40)
            .map(|i| {
                let mut out = [0.0; LANES];
                a.project(i, &basis, &mut out);
                out
            })
            .collect();
        for (i, j) in [(0, 0), (3, 17), (39, 5)] {
            let full: f32 = a.0[i].iter().zip(&a.0[j]).map(|(x, y)| x * y).sum();
            let low: f32 = projected[i].iter().zip(&projected[j]).map(|(x, y)| x * y).sum();
            assert!((full - low).abs() < 1e-3, "{full} {low}");
        }
        let mean_square = a.0.iter().flatten().map(|x| f64::from(x * x)).sum::<f64>() / 40.0;
        assert!((rms * rms - mean_square).abs() < 1e-3);
        assert!(projected.iter().all(|row| row[4..].iter().all(|x| x.abs() < 1e-3)));
    }

    #[test]
    fn vectors_are_sorted_by_singular_value_and_orthonormal() {
        let rows: Vec<Vec<f32>> =
            (0..60).map(|i| (0..20).map(|j| if i % 20 == j { 20.0 - j as f32 } else { 0.0 }).collect()).collect();
        let (basis, _) = leading_vectors(&Dense(rows), 1, 12, 5, |_| {});
        for (lane, row) in basis[0].iter().take(LANES).enumerate() {
            assert!((row[lane] - 1.0).abs() < 1e-2, "{lane}: {row:?}");
        }
    }

    #[test]
    fn an_empty_matrix_gives_zero_vectors() {
        let (basis, rms) = leading_vectors(&Dense(vec![vec![0.0; 3]]), 1, 2, 5, |_| {});
        assert!(rms == 0.0 && basis[0].iter().flatten().all(|&x| x == 0.0));
    }
}
