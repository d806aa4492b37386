//! What is sampled from: relations as they are given, and as a device holds them.

use burn::tensor::DType;
use burn::tensor::ops::IntTensor;

use super::doubles;
use crate::runtime::check;
use crate::runtime::host::index_tensor;
use crate::runtime::upload::large_index_tensor;
use crate::sampling::backend::{SampleBackend, WeightWords, Words};
use crate::sampling::row_buffer::PinnedRows;

/// The adjacency of one relation, to sample from: rows are destinations, entries are sources.
#[derive(Clone, Copy, Debug)]
pub struct SampleRelation<'a> {
    /// Node type of the sources.
    pub src: usize,
    /// Node type of the destinations.
    pub dst: usize,
    /// A row per node of the type `dst`.
    pub rows: SampleRows<'a>,
    /// Nodes of the type `src`.
    pub col_idx: &'a [u32],
    /// Weights of the entries; without any, all are drawn alike.
    pub weights: Option<SampleWeights<'a>>,
    /// Values of the entries, which a [`PackedSample`](crate::PackedSample) has of those that were drawn.
    pub values: Option<SampleValues<'a>>,
}

impl<'a> SampleRelation<'a> {
    /// A relation whose entries have neither weights nor values.
    pub fn new(src: usize, dst: usize, rows: SampleRows<'a>, col_idx: &'a [u32]) -> Self {
        Self { src, dst, rows, col_idx, weights: None, values: None }
    }
}

/// Weights by which the entries of a relation are drawn, see [`NodeDraw`](crate::NodeDraw).
#[derive(Clone, Copy, Debug)]
pub struct SampleWeights<'a> {
    /// A finite number of at least 0 for every entry.
    pub weights: &'a [f32],
    /// Whether entries are drawn by them with replacement. The device then holds sums of weights, too: eight bytes more
    /// for every entry.
    pub replace: bool,
}

/// Values of the entries of a relation: `width` of each, entry after entry.
#[derive(Clone, Copy, Debug)]
pub struct SampleValues<'a> {
    /// As many as there are entries, times `width`.
    pub values: &'a [f32],
    /// At least 1.
    pub width: usize,
}

/// Where the rows of a relation stand among its entries.
#[derive(Clone, Copy, Debug)]
pub enum SampleRows<'a> {
    /// `[rows + 1]`: row `i` is `row_ptr[i]..row_ptr[i + 1]`.
    Lists(&'a [u64]),
    /// Row `i` is `start[i]..end[i]`, and rows may share entries.
    Spans { start: &'a [u64], end: &'a [u64] },
}

impl<'a> SampleRows<'a> {
    /// The numbers that a device holds.
    pub(super) fn parts(self) -> [&'a [u64]; 2] {
        match self {
            SampleRows::Lists(row_ptr) => [row_ptr, &[]],
            SampleRows::Spans { start, end } => [start, end],
        }
    }

    pub(super) fn words(self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// The number of rows, and the entries of the longest, of spans.
    pub(super) fn spans(self) -> Option<(usize, usize)> {
        let SampleRows::Spans { start, end } = self else { return None };
        let longest = start.iter().zip(end).map(|(start, end)| end - start).max();
        Some((start.len(), longest.unwrap_or(0) as usize))
    }
}

/// Words of all relations, one relation behind the other. The CPU reads none of them.
#[cfg_attr(not(feature = "cube"), allow(dead_code))]
pub(super) enum Stored<B: SampleBackend> {
    Device(IntTensor<B>),
    /// One word per row: bits of integers.
    Pinned(PinnedRows<B>),
}

impl<B: SampleBackend> Stored<B> {
    pub(super) fn new<T: Copy>(
        parts: &[&[T]],
        word: impl Fn(T) -> u32,
        pinned: bool,
        device: &B::Device,
    ) -> Result<Self, String> {
        let all = || parts.iter().flat_map(|part| part.iter().map(|&value| word(value)));
        if pinned {
            let len = parts.iter().map(|part| part.len()).sum::<usize>().max(1);
            let fill = |bytes: &mut [u8]| {
                bytes.chunks_exact_mut(4).zip(all()).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
            };
            return Ok(Stored::Pinned(PinnedRows::new([len, 1], DType::F32, device, fill)?));
        }
        Ok(Stored::Device(large_index_tensor::<B>(all().map(|word| word as i32).collect(), device)))
    }

    /// As kernels read them.
    pub(super) fn words(&self) -> Words<IntTensor<B>> {
        match self {
            Stored::Device(words) => Words { anchor: words.clone(), delta: 0, pinned: false },
            Stored::Pinned(rows) => Words { anchor: rows.anchor().clone(), delta: rows.delta(), pinned: true },
        }
    }
}

/// Values of the entries of one relation, as bits.
pub(super) struct StoredValues<B: SampleBackend> {
    pub words: Stored<B>,
    pub width: usize,
}

impl<B: SampleBackend> StoredValues<B> {
    /// `None` for a relation without values.
    pub(super) fn new(of: &SampleRelation<'_>, pinned: bool, device: &B::Device) -> Result<Option<Self>, String> {
        let Some(SampleValues { values, width }) = of.values else { return Ok(None) };
        check::size("DeviceSampler", "values of entries", of.col_idx.len() * width, values.len());
        Ok(Some(Self { words: Stored::new(&[values], f32::to_bits, pinned, device)?, width }))
    }
}

/// Weights of all relations that have any, as bits.
pub(super) struct StoredWeights<B: SampleBackend> {
    words: Stored<B>,
    /// For every weight its sum with those of its row before it: two words of a double.
    sums: Option<Stored<B>>,
    doubles: IntTensor<B>,
}

impl<B: SampleBackend> StoredWeights<B> {
    /// `None` where no relation has weights.
    pub(super) fn new(of: &[SampleRelation<'_>], pinned: bool, device: &B::Device) -> Result<Option<Self>, String> {
        let weighted: Vec<_> = of.iter().filter_map(|of| Some((of, of.weights?))).collect();
        if weighted.is_empty() {
            return Ok(None);
        }
        if !B::has_doubles(device) {
            return Err("draws by weights take double precision, which the device lacks".into());
        }
        for (of, SampleWeights { weights, .. }) in &weighted {
            check::size("DeviceSampler", "weights of entries", of.col_idx.len(), weights.len());
        }
        let all: Vec<&[f32]> = weighted.iter().map(|(_, of)| of.weights).collect();
        let sums = match weighted.iter().any(|(_, of)| of.replace) {
            true => {
                let words = weighted.iter().map(|(of, weights)| sums_of(of.rows, *weights));
                let words = words.collect::<Result<Vec<_>, _>>()?.concat();
                Some(Stored::new(&[&words], |word| word, pinned, device)?)
            }
            false => None,
        };
        let doubles = index_tensor::<B>(doubles::words().map(|word| word as i32).collect(), device);
        Ok(Some(Self { words: Stored::new(&all, f32::to_bits, pinned, device)?, sums, doubles }))
    }

    /// As kernels read them.
    pub(super) fn words(&self) -> WeightWords<IntTensor<B>> {
        let sums = self.sums.as_ref().map(Stored::words);
        WeightWords { words: self.words.words(), sums, doubles: self.doubles.clone() }
    }
}

/// The sums of the weights of every row, entry after entry, as words of doubles: 0 where they are not asked for.
fn sums_of(rows: SampleRows<'_>, of: SampleWeights<'_>) -> Result<Vec<u32>, String> {
    if !of.replace {
        return Ok(vec![0; 2 * of.weights.len()]);
    }
    let SampleRows::Lists(row_ptr) = rows else {
        return Err("draws by weights with replacement have no kernel for rows that share entries".into());
    };
    let mut words = Vec::with_capacity(2 * of.weights.len());
    for ends in row_ptr.windows(2) {
        let mut sum = 0.0;
        for &weight in &of.weights[ends[0] as usize..ends[1] as usize] {
            sum += f64::from(weight);
            words.extend(doubles::halves(sum));
        }
    }
    Ok(words)
}

/// How many entries of every row have a positive weight.
pub(super) fn available(rows: SampleRows<'_>, of: SampleWeights<'_>) -> Vec<u64> {
    let mut before = Vec::with_capacity(of.weights.len() + 1);
    before.push(0);
    let mut count = 0u64;
    before.extend(of.weights.iter().map(|&weight| {
        count += u64::from(weight > 0.0);
        count
    }));
    let between = |start: u64, end: u64| before[end as usize] - before[start as usize];
    match rows {
        SampleRows::Lists(row_ptr) => row_ptr.windows(2).map(|ends| between(ends[0], ends[1])).collect(),
        SampleRows::Spans { start, end } => start.iter().zip(end).map(|(&start, &end)| between(start, end)).collect(),
    }
}
