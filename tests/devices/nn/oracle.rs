//! Layers as loops in f64 on the host.

use graphsieve_kernels::testing::Fixture;

/// A row-major matrix.
#[derive(Clone, Debug)]
pub struct Matrix {
    pub values: Vec<f64>,
    pub width: usize,
}

impl Matrix {
    pub fn new(values: Vec<f64>, width: usize) -> Self {
        Self { values, width }
    }

    pub fn zeros(rows: usize, width: usize) -> Self {
        Self::new(vec![0.0; rows * width], width)
    }

    pub fn rows(&self) -> usize {
        self.values.len() / self.width
    }

    pub fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.width..(i + 1) * self.width]
    }

    pub fn add(&mut self, i: usize, factor: f64, row: &[f64]) {
        let width = self.width;
        self.values[i * width..(i + 1) * width].iter_mut().zip(row).for_each(|(a, b)| *a += factor * b);
    }

    pub fn map_rows(&self, width: usize, f: impl Fn(usize, &[f64]) -> Vec<f64>) -> Matrix {
        Matrix::new((0..self.rows()).flat_map(|i| f(i, self.row(i))).collect(), width)
    }

    pub fn times(&self, w: &Matrix) -> Matrix {
        assert_eq!(self.width, w.rows());
        let column = |x: &[f64], c: usize| x.iter().enumerate().map(|(k, v)| v * w.row(k)[c]).sum();
        self.map_rows(w.width, |_, x| (0..w.width).map(|c| column(x, c)).collect())
    }

    pub fn plus(&self, other: &Matrix, factor: f64) -> Matrix {
        let values = self.values.iter().zip(&other.values).map(|(a, b)| a + factor * b).collect();
        Matrix::new(values, self.width)
    }

    pub fn plus_row(&self, bias: &[f64]) -> Matrix {
        self.map_rows(self.width, |_, x| x.iter().zip(bias).map(|(a, b)| a + b).collect())
    }
}

/// An edge `dst <- src` with a weight or with features.
#[derive(Clone, Debug)]
pub struct Edge {
    pub dst: usize,
    pub src: usize,
    pub features: Vec<f64>,
}

pub fn edges(f: &Fixture, features: Option<&Matrix>) -> Vec<Edge> {
    let of = |e| features.map_or(Vec::new(), |m| m.row(e).to_vec());
    f.edges().map(|(e, dst, src)| Edge { dst, src, features: of(e) }).collect()
}

/// Loops give way to one per node, behind the other edges of the row, with the mean of the features of these.
pub fn with_loops(f: &Fixture, features: Option<&Matrix>) -> Vec<Edge> {
    let width = features.map_or(0, |m| m.width);
    let all = edges(f, features);
    let mut looped = Vec::new();
    for i in 0..f.num_rows {
        let others: Vec<Edge> = all.iter().filter(|e| e.dst == i && e.src != i).cloned().collect();
        let mean = |k: usize| others.iter().map(|e| e.features[k]).sum::<f64>() / others.len().max(1) as f64;
        let features = (0..width).map(mean).collect();
        looped.extend(others);
        looped.push(Edge { dst: i, src: i, features });
    }
    looped
}

/// Loops keep the mean weight of those that a node had, or weigh 1.
pub fn with_weighted_loops(f: &Fixture, weights: &Matrix) -> Vec<Edge> {
    let mut looped = with_loops(f, Some(weights));
    for edge in looped.iter_mut().filter(|e| e.dst == e.src) {
        let own = edges(f, Some(weights)).into_iter().filter(|e| e.dst == edge.dst && e.src == edge.dst);
        let own: Vec<f64> = own.map(|e| e.features[0]).collect();
        edge.features = vec![if own.is_empty() { 1.0 } else { own.iter().sum::<f64>() / own.len() as f64 }];
    }
    looped
}

fn weight(edge: &Edge) -> f64 {
    edge.features.first().copied().unwrap_or(1.0)
}

/// `sum_j w_ij x_j / sqrt(d_i d_j)` with degrees of destinations and of sources.
pub fn normalised_sum(edges: &[Edge], x: &Matrix, dst: &[f64], src: &[f64]) -> Matrix {
    let mut y = Matrix::zeros(dst.len(), x.width);
    for e in edges {
        let product = dst[e.dst] * src[e.src];
        if product > 0.0 {
            y.add(e.dst, weight(e) / product.sqrt(), x.row(e.src));
        }
    }
    y
}

pub fn degrees(edges: &[Edge], nodes: usize, end: impl Fn(&Edge) -> usize) -> Vec<f64> {
    let mut degrees = vec![0.0; nodes];
    edges.iter().for_each(|e| degrees[end(e)] += weight(e));
    degrees
}

/// GCN on one kind of nodes.
pub fn gcn(edges: &[Edge], x: &Matrix) -> Matrix {
    let d = degrees(edges, x.rows(), |e| e.dst);
    normalised_sum(edges, x, &d, &d)
}

pub fn aggregate(f: &Fixture, x: &Matrix, how: &str) -> Matrix {
    let mut y = Matrix::zeros(f.num_rows, x.width);
    for i in 0..f.num_rows {
        let entries = &f.col_idx[f.row_ptr[i] as usize..f.row_ptr[i + 1] as usize];
        for c in 0..x.width {
            let values: Vec<f64> = entries.iter().map(|&j| x.row(j as usize)[c]).collect();
            y.values[i * x.width + c] = match how {
                _ if values.is_empty() => 0.0,
                "sum" => values.iter().sum(),
                "mean" => values.iter().sum::<f64>() / values.len() as f64,
                _ => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            };
        }
    }
    y
}

/// Softmax of `score` over the edges of every destination, times `factor`, as weights of the `messages`, a row per
/// edge. Both take the edge, its position and the head. Also the weights before `factor`, `[edges, heads]`.
pub fn attention(
    edges: &[Edge],
    rows: usize,
    messages: &Matrix,
    heads: usize,
    score: impl Fn(&Edge, usize) -> f64,
    factor: impl Fn(usize, &Edge, usize) -> f64,
) -> (Matrix, Vec<f64>) {
    let (width, channels) = (messages.width, messages.width / heads);
    let (mut y, mut weights) = (Matrix::zeros(rows, width), vec![0.0; edges.len() * heads]);
    for head in 0..heads {
        let mut sums = vec![0.0; rows];
        edges.iter().for_each(|e| sums[e.dst] += score(e, head).exp());
        for (at, e) in edges.iter().enumerate() {
            let weight = score(e, head).exp() / sums[e.dst];
            weights[at * heads + head] = weight;
            for c in head * channels..(head + 1) * channels {
                y.values[e.dst * width + c] += weight * factor(at, e, head) * messages.row(at)[c];
            }
        }
    }
    (y, weights)
}

pub fn mean_of_heads(y: &Matrix, heads: usize) -> Matrix {
    let channels = y.width / heads;
    let mean = |x: &[f64], c: usize| (0..heads).map(|h| x[h * channels + c]).sum::<f64>() / heads as f64;
    y.map_rows(channels, |_, x| (0..channels).map(|c| mean(x, c)).collect())
}

pub fn leaky(x: f64) -> f64 {
    if x > 0.0 { x } else { 0.2 * x }
}

/// `(L/2)^p (I - L/2)^(order - p) x / (2 B(p + 1, order - p + 1))`, one power after the other.
pub fn beta_wavelet(f: &Fixture, x: &Matrix, p: usize, order: usize) -> Matrix {
    let list = edges(f, None);
    let d: Vec<f64> = degrees(&list, x.rows(), |e| e.dst).into_iter().map(|d| d.max(1.0)).collect();
    let laplacian = |x: &Matrix| x.plus(&normalised_sum(&list, x, &d, &d), -1.0);
    let mut y = x.clone();
    for step in 0..order {
        let half = Matrix::new(laplacian(&y).values.into_iter().map(|v| v / 2.0).collect(), y.width);
        y = if step < p { half } else { y.plus(&half, -1.0) };
    }
    let factorial = |n: usize| (1..=n).map(|k| k as f64).product::<f64>();
    let beta = factorial(p) * factorial(order - p) / factorial(order + 1);
    Matrix::new(y.values.into_iter().map(|v| v / (2.0 * beta)).collect(), y.width)
}
