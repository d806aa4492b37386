//! Binned features on the device.

use std::ops::Range;

use burn::tensor::ops::IntTensor;
use rayon::prelude::*;

use super::HistogramBackend;
use crate::runtime::host::index_tensor;
use crate::runtime::upload::large_index_tensor;

/// Features whose bins share a word.
pub(crate) const TILE_FEATURES: usize = 4;

/// Bins of a feature that has its sums in shared memory.
pub(crate) const NARROW_BINS: usize = 256;

/// What is known of a tile on the device: the bin that each feature leaves out, and where the sums of each begin.
pub(crate) const TILE_WORDS: usize = 2 * TILE_FEATURES;

/// In place of a bin where none is left out.
const NONE: u32 = NARROW_BINS as u32;

/// The bins of one feature, one per row.
#[derive(Clone, Copy, Debug)]
pub enum BinValues<'a> {
    /// At most 256 bins.
    U8(&'a [u8]),
    /// More.
    U16(&'a [u16]),
}

impl BinValues<'_> {
    fn len(&self) -> usize {
        match self {
            BinValues::U8(bins) => bins.len(),
            BinValues::U16(bins) => bins.len(),
        }
    }

    fn largest(&self) -> u32 {
        match self {
            BinValues::U8(bins) => bins.iter().max().map_or(0, |&b| b.into()),
            BinValues::U16(bins) => bins.iter().max().map_or(0, |&b| b.into()),
        }
    }
}

/// A feature with one bin per row.
#[derive(Clone, Copy, Debug)]
pub struct BinColumn<'a> {
    /// The bin of each row.
    pub bins: BinValues<'a>,
    /// Number of bins.
    pub num_bin: u32,
    /// A bin, best the most frequent one, that histograms are built without: it is reconstructed afterwards. Most rows
    /// of a skewed feature then cost nothing.
    pub left_out: Option<u32>,
}

/// Dense features in the order of the device; `I` is the backend's integer primitive.
#[derive(Debug)]
pub struct DenseParts<I> {
    /// `[tiles, rows]`: the bins of four narrow features in a word.
    pub words: I,
    /// `[tiles, 8]`, see [`TILE_WORDS`].
    pub tiles: I,
    pub num_tiles: usize,
    /// `[wide, rows]`: the bins of features with more than 256.
    pub wide: I,
    /// `[wide, 2]`: where the sums of the feature begin, and the bin left out or -1.
    pub wide_features: I,
    pub num_wide: usize,
    /// Of each feature: in `words` the tile and the byte; in `wide` the column and 4.
    pub places: Vec<[usize; 2]>,
}

/// Entries of rows without the bins left out.
#[derive(Debug)]
pub struct SparseParts<I> {
    /// `[rows + 1]`
    pub row_ptr: I,
    /// `[entries]`: where the sum of feature and bin stands.
    pub entries: I,
    pub num_entries: usize,
}

/// How bins are stored.
#[derive(Debug)]
pub enum Storage<I> {
    Dense(DenseParts<I>),
    Sparse(SparseParts<I>),
}

/// Bins on the device and where their sums stand.
#[derive(Debug)]
pub struct BinParts<I> {
    pub storage: Storage<I>,
    /// `[features + 1]`: where the sums of each feature begin.
    pub offsets: I,
    /// `[features]`: the bin left out, or -1.
    pub left_out: I,
    /// Both once more, on the host.
    pub spans: Vec<Range<usize>>,
    pub left_outs: Vec<Option<u32>>,
    pub num_rows: usize,
    pub num_features: usize,
    pub num_bins: usize,
}

/// Binned features on the device: what histograms are built of and rows are split by.
pub struct TreeBins<B: HistogramBackend> {
    pub(crate) parts: BinParts<IntTensor<B>>,
    pub(crate) device: B::Device,
    /// Number of bins of each feature.
    pub(crate) num_bin: Vec<u32>,
}

impl<B: HistogramBackend> TreeBins<B> {
    /// Uploads features that have a bin for every row.
    ///
    /// # Panics
    /// If a column has another length, a bin is not below `num_bin`, a feature of u8 has more than 256 bins, or there
    /// are 2^31 rows or bins or more.
    pub fn dense(columns: &[BinColumn], num_rows: usize, device: &B::Device) -> Self {
        const OP: &str = "TreeBins::dense";
        columns.par_iter().for_each(|column| {
            crate::runtime::check::size(OP, "rows of a column", num_rows, column.bins.len());
            check_bin(OP, column.bins.largest(), column.num_bin);
            check_bin(OP, column.left_out.unwrap_or(0), column.num_bin);
            let narrow = matches!(column.bins, BinValues::U8(_));
            assert!(!narrow || column.num_bin as usize <= NARROW_BINS, "{OP}: num_bin: expected at most 256 for u8");
        });
        let num_bin: Vec<u32> = columns.iter().map(|c| c.num_bin).collect();
        let left_out: Vec<Option<u32>> = columns.iter().map(|c| c.left_out).collect();
        let offsets = offsets(OP, &num_bin, num_rows);
        let mut narrow: Vec<&[u8]> = Vec::new();
        let mut tiles: Vec<[u32; TILE_WORDS]> = Vec::new();
        let (mut wide, mut wide_features): (Vec<i32>, Vec<i32>) = (Vec::new(), Vec::new());
        let mut places = Vec::new();
        for (feature, column) in columns.iter().enumerate() {
            let offset = offsets[feature];
            match column.bins {
                BinValues::U8(bins) => {
                    let (tile, byte) = (narrow.len() / TILE_FEATURES, narrow.len() % TILE_FEATURES);
                    if byte == 0 {
                        // The bytes of features that are not there are zero, and left out.
                        tiles.push([0; TILE_WORDS]);
                    }
                    tiles[tile][byte] = column.left_out.unwrap_or(NONE);
                    tiles[tile][TILE_FEATURES + byte] = offset as u32;
                    places.push([tile, byte]);
                    narrow.push(bins);
                }
                BinValues::U16(bins) => {
                    places.push([wide_features.len() / 2, TILE_FEATURES]);
                    wide.extend(bins.iter().map(|&bin| i32::from(bin)));
                    wide_features.extend([offset as i32, column.left_out.map_or(-1, |bin| bin as i32)]);
                }
            }
        }
        let tiled = tiled(&narrow, num_rows);
        let of_tiles = tiles.as_flattened().iter().map(|&word| word as i32).collect();
        let storage = Storage::Dense(DenseParts {
            num_tiles: tiles.len(),
            num_wide: wide_features.len() / 2,
            words: large_index_tensor::<B>(tiled, device),
            tiles: index_tensor::<B>(of_tiles, device),
            wide: large_index_tensor::<B>(wide, device),
            wide_features: index_tensor::<B>(wide_features, device),
            places,
        });
        Self::new(storage, num_bin, left_out, &offsets, num_rows, device)
    }

    /// Uploads features of which most rows have the bin that is left out. `row_ptr` delimits the entries of each row,
    /// which are pairs of feature and bin, each feature at most once in a row.
    ///
    /// # Panics
    /// If the row pointers do not ascend from 0 to the number of entries, a feature or bin is out of range, an entry
    /// has the bin that is left out, or there are 2^31 rows, bins or entries or more.
    pub fn sparse(
        num_bin: &[u32],
        left_out: &[u32],
        row_ptr: &[usize],
        entries: &[(u32, u32)],
        device: &B::Device,
    ) -> Self {
        const OP: &str = "TreeBins::sparse";
        crate::runtime::check::size(OP, "left_out", num_bin.len(), left_out.len());
        assert!(entries.len() < 1 << 31, "{OP}: entries: expected fewer than 2^31, got {}", entries.len());
        let ends = (row_ptr.first().copied(), row_ptr.last().copied());
        assert!(
            ends == (Some(0), Some(entries.len())) && row_ptr.is_sorted(),
            "{OP}: row_ptr: expected one that ascends from 0 to {}, got {ends:?}",
            entries.len()
        );
        let num_rows = row_ptr.len() - 1;
        let offsets = offsets(OP, num_bin, num_rows);
        let place = |&(feature, bin): &(u32, u32)| {
            let feature = feature as usize;
            assert!(feature < num_bin.len(), "{OP}: entries: expected features below {}, got {feature}", num_bin.len());
            check_bin(OP, bin, num_bin[feature]);
            assert!(
                bin != left_out[feature],
                "{OP}: entries: expected no bin that is left out, got {bin} of {feature}"
            );
            (offsets[feature] + bin as usize) as i32
        };
        left_out.iter().zip(num_bin).for_each(|(&bin, &num_bin)| check_bin(OP, bin, num_bin));
        let storage = Storage::Sparse(SparseParts {
            row_ptr: large_index_tensor::<B>(row_ptr.iter().map(|&at| at as i32).collect(), device),
            entries: large_index_tensor::<B>(entries.iter().map(place).collect(), device),
            num_entries: entries.len(),
        });
        let left_out: Vec<Option<u32>> = left_out.iter().map(|&bin| Some(bin)).collect();
        Self::new(storage, num_bin.to_vec(), left_out, &offsets, num_rows, device)
    }

    fn new(
        storage: Storage<IntTensor<B>>,
        num_bin: Vec<u32>,
        left_outs: Vec<Option<u32>>,
        offsets: &[usize],
        num_rows: usize,
        device: &B::Device,
    ) -> Self {
        let parts = BinParts {
            storage,
            offsets: index_tensor::<B>(offsets.iter().map(|&at| at as i32).collect(), device),
            left_out: index_tensor::<B>(left_outs.iter().map(|l| l.map_or(-1, |bin| bin as i32)).collect(), device),
            spans: offsets.windows(2).map(|ends| ends[0]..ends[1]).collect(),
            left_outs,
            num_rows,
            num_features: num_bin.len(),
            num_bins: offsets[num_bin.len()],
        };
        Self { parts, device: device.clone(), num_bin }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.parts.num_rows
    }

    /// Number of features.
    pub fn num_features(&self) -> usize {
        self.parts.num_features
    }

    /// Number of bins of all features.
    pub fn num_bins(&self) -> usize {
        self.parts.num_bins
    }
}

/// The bins of four features at a time in the bytes of a word, row after row.
fn tiled(columns: &[&[u8]], num_rows: usize) -> Vec<i32> {
    let mut words = vec![0; columns.len().div_ceil(TILE_FEATURES) * num_rows];
    let tiles = words.par_chunks_mut(num_rows.max(1)).zip(columns.par_chunks(TILE_FEATURES));
    tiles.for_each(|(words, columns)| {
        for (byte, bins) in columns.iter().enumerate() {
            words.iter_mut().zip(*bins).for_each(|(word, &bin)| *word |= i32::from(bin) << (8 * byte));
        }
    });
    words
}

fn offsets(op: &str, num_bin: &[u32], num_rows: usize) -> Vec<usize> {
    let mut offsets = vec![0];
    let mut sum = 0;
    for &bins in num_bin {
        sum += bins as usize;
        offsets.push(sum);
    }
    assert!(sum < 1 << 29, "{op}: bins: expected fewer than 2^29, got {sum}");
    assert!(num_rows < 1 << 31, "{op}: rows: expected fewer than 2^31, got {num_rows}");
    offsets
}

fn check_bin(op: &str, bin: u32, num_bin: u32) {
    assert!(bin < num_bin.max(1), "{op}: bins: expected numbers below {num_bin}, got {bin}");
}
