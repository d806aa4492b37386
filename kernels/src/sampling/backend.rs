//! What sampling asks of a device.

use std::ops::Range;

use burn::tensor::DType;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use burn_backend::AutodiffBackend;
use burn_flex::Flex;

use crate::graph::csr::LONG_ROW;
use crate::runtime::lists::UploadBackend;
use crate::sampling::row_buffer::RowBufferBackend;

/// Backends with a [`DeviceSampler`](crate::DeviceSampler).
pub trait SampleBackend: RowBufferBackend + UploadBackend {
    /// Whether there are kernels that sample.
    #[doc(hidden)]
    const SAMPLES: bool;

    /// Whether kernels compute in double precision, which draws by weights take.
    #[doc(hidden)]
    fn has_doubles(device: &Self::Device) -> bool;

    /// Samples all relations of a layer, and lists the sources that are new.
    #[doc(hidden)]
    fn sample_layer(step: LayerStep<IntTensor<Self>>) -> LayerParts<IntTensor<Self>>;

    /// The entries of a layer by their columns, of which there are `columns`: where those of a column begin, and their
    /// destinations.
    #[doc(hidden)]
    fn reverse_layer(
        step: &LayerStep<IntTensor<Self>>,
        parts: &LayerParts<IntTensor<Self>>,
        columns: usize,
    ) -> [IntTensor<Self>; 2];

    /// Lists the long rows of `rows` from word `behind` of `list` on, numbered from the first of `rows`, and counts
    /// them at `counts[count]`.
    #[doc(hidden)]
    fn list_long_rows(
        starts: &IntTensor<Self>,
        rows: Range<usize>,
        list: &IntTensor<Self>,
        behind: usize,
        counts: &IntTensor<Self>,
        count: usize,
    );

    /// Lists seeds and gives them their places.
    #[doc(hidden)]
    fn place_seeds(
        spans: &Spans<IntTensor<Self>>,
        seeds: IntTensor<Self>,
        nodes: &IntTensor<Self>,
        places: &IntTensor<Self>,
    );

    /// Takes the places of listed nodes away.
    #[doc(hidden)]
    fn forget_places(spans: &Spans<IntTensor<Self>>, nodes: &IntTensor<Self>, places: &IntTensor<Self>);

    /// Copies stretches of arrays to the words `range` of another; see `pack`.
    #[doc(hidden)]
    fn pack_words(
        from: [&IntTensor<Self>; 4],
        stretches: IntTensor<Self>,
        count: usize,
        to: &IntTensor<Self>,
        range: Range<usize>,
    );

    /// Copies the values of entries, which `edges` lists, to an array.
    #[doc(hidden)]
    fn gather_values(values: &Words<IntTensor<Self>>, edges: &IntTensor<Self>, step: ValueStep, to: &IntTensor<Self>);

    /// The rows of a batch from where they are: a matrix of `step.rows` rows.
    #[doc(hidden)]
    fn collect_rows(step: CollectStep<FloatTensor<Self>, IntTensor<Self>>) -> FloatTensor<Self>;

    /// A copy of a matrix that belongs to the calling thread.
    #[doc(hidden)]
    fn copy_rows(rows: &FloatTensor<Self>) -> FloatTensor<Self>;

    /// A copy that belongs to the calling thread.
    #[doc(hidden)]
    fn copy_words(words: &IntTensor<Self>) -> IntTensor<Self>;

    /// `len` words from word `start` on, which share the memory.
    #[doc(hidden)]
    fn words_at(words: &IntTensor<Self>, start: usize, len: usize) -> IntTensor<Self>;

    /// The matrix in f32 whose bits stand from word `start` on, which shares the memory.
    #[doc(hidden)]
    fn floats_at(words: &IntTensor<Self>, start: usize, shape: [usize; 2]) -> FloatTensor<Self>;
}

/// Words that a kernel reads: an array of the device, or what lies `delta` words behind it.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Words<I> {
    pub anchor: I,
    pub delta: usize,
    /// Whether they lie in host memory.
    pub pinned: bool,
}

/// Weights as kernels read them.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct WeightWords<I> {
    /// One word each.
    pub words: Words<I>,
    /// Sums of weights, two words each, for draws with replacement.
    pub sums: Option<Words<I>>,
    /// What the kernels compute with.
    pub doubles: I,
}

/// The rows of all types of a batch, one type behind the other.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Spans<I> {
    /// Words of `table::span` for every type.
    pub table: I,
    pub types: usize,
    /// Rows of all types, with those that stand for nothing.
    pub rows: usize,
}

/// What draws of a layer there are among its relations; each combination is a kernel of its own.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DrawKinds {
    pub replace: bool,
    /// The last entries of rows.
    pub latest: bool,
    /// Rows with an end of their own.
    pub spans: bool,
    /// Relations with weights.
    pub weighted: bool,
    /// Variates of sources.
    pub by_source: bool,
    /// Rows that planes draw for.
    pub planes: bool,
}

/// What one layer is sampled from and into.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct LayerStep<I> {
    pub row_ptr: Words<I>,
    pub col_idx: Words<I>,
    pub weights: Option<WeightWords<I>>,
    /// Most entries of a row that a plane draws, where planes draw.
    pub plane_room: Option<usize>,
    /// Words of `table::relation` for every relation.
    pub table: I,
    pub relations: usize,
    /// Rows of all relations.
    pub rows: usize,
    /// Most entries there can be; `None` where only the device knows.
    pub most: Option<usize>,
    pub kinds: DrawKinds,
    /// Whether DropEdge leaves entries of a relation out.
    pub drops: bool,
    /// The nodes of the batch, type by type.
    pub nodes: I,
    /// `[all nodes]`: the place of every node among those of its type.
    pub places: I,
}

/// Device arrays of a sampled layer.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct LayerParts<I> {
    /// `[rows + 1]`
    pub starts: I,
    /// Places of the sources.
    pub cols: I,
    /// Places among the entries of their relation.
    pub edges: I,
    /// The row of every entry.
    pub owners: I,
    /// For every relation the nodes that it found, and its entries.
    pub counts: I,
    /// Most entries.
    pub len: usize,
}

/// Which values of entries are copied, and where to.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct ValueStep {
    /// The first of the listed entries, and how many there are.
    pub first: usize,
    pub len: usize,
    /// Values of an entry.
    pub width: usize,
    /// The word that they are written from.
    pub start: usize,
}

/// Rows of more than [`LONG_ROW`] entries that there can be.
pub(crate) fn long_room(entries: usize) -> usize {
    entries / LONG_ROW
}

/// `RowSource` as kernels read it.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum Source<F, I> {
    /// What lies `delta` elements behind an array, row after row.
    Behind { anchor: I, delta: usize },
    /// A matrix.
    Matrix(F),
}

/// What rows are collected from and for.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct CollectStep<F, I> {
    pub spans: Spans<I>,
    /// The nodes of the batch, type by type.
    pub nodes: I,
    /// The places of nodes in the batch before, and its rows.
    pub before: Option<(I, F)>,
    /// `[all nodes]`: the row of the cache or `COLD`; and the cache.
    pub cache: Option<(I, F)>,
    pub source: Source<F, I>,
    pub width: usize,
    pub dtype: DType,
    /// Counts rows of the batch before at 0 and those of the cache at 1.
    pub tally: I,
}

impl<F, I> CollectStep<F, I> {
    /// With other matrices.
    pub(crate) fn map<G>(self, map: impl Fn(F) -> G) -> CollectStep<G, I> {
        CollectStep {
            spans: self.spans,
            nodes: self.nodes,
            before: self.before.map(|(places, rows)| (places, map(rows))),
            cache: self.cache.map(|(index, rows)| (index, map(rows))),
            source: match self.source {
                Source::Behind { anchor, delta } => Source::Behind { anchor, delta },
                Source::Matrix(rows) => Source::Matrix(map(rows)),
            },
            width: self.width,
            dtype: self.dtype,
            tally: self.tally,
        }
    }
}

impl<B: SampleBackend, C: CheckpointStrategy> SampleBackend for Autodiff<B, C> {
    const SAMPLES: bool = B::SAMPLES;

    fn has_doubles(device: &Self::Device) -> bool {
        B::has_doubles(device)
    }

    fn sample_layer(step: LayerStep<IntTensor<Self>>) -> LayerParts<IntTensor<Self>> {
        B::sample_layer(step)
    }

    fn reverse_layer(
        step: &LayerStep<IntTensor<Self>>,
        parts: &LayerParts<IntTensor<Self>>,
        columns: usize,
    ) -> [IntTensor<Self>; 2] {
        B::reverse_layer(step, parts, columns)
    }

    fn list_long_rows(
        starts: &IntTensor<Self>,
        rows: Range<usize>,
        list: &IntTensor<Self>,
        behind: usize,
        counts: &IntTensor<Self>,
        count: usize,
    ) {
        B::list_long_rows(starts, rows, list, behind, counts, count);
    }

    fn place_seeds(
        spans: &Spans<IntTensor<Self>>,
        seeds: IntTensor<Self>,
        nodes: &IntTensor<Self>,
        places: &IntTensor<Self>,
    ) {
        B::place_seeds(spans, seeds, nodes, places);
    }

    fn forget_places(spans: &Spans<IntTensor<Self>>, nodes: &IntTensor<Self>, places: &IntTensor<Self>) {
        B::forget_places(spans, nodes, places);
    }

    fn pack_words(
        from: [&IntTensor<Self>; 4],
        stretches: IntTensor<Self>,
        count: usize,
        to: &IntTensor<Self>,
        range: Range<usize>,
    ) {
        B::pack_words(from, stretches, count, to, range);
    }

    fn gather_values(values: &Words<IntTensor<Self>>, edges: &IntTensor<Self>, step: ValueStep, to: &IntTensor<Self>) {
        B::gather_values(values, edges, step, to);
    }

    fn collect_rows(step: CollectStep<FloatTensor<Self>, IntTensor<Self>>) -> FloatTensor<Self> {
        Self::from_inner(B::collect_rows(step.map(|rows| rows.primitive)))
    }

    fn copy_rows(rows: &FloatTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::copy_rows(&rows.primitive))
    }

    fn copy_words(words: &IntTensor<Self>) -> IntTensor<Self> {
        B::copy_words(words)
    }

    fn words_at(words: &IntTensor<Self>, start: usize, len: usize) -> IntTensor<Self> {
        B::words_at(words, start, len)
    }

    fn floats_at(words: &IntTensor<Self>, start: usize, shape: [usize; 2]) -> FloatTensor<Self> {
        Self::from_inner(B::floats_at(words, start, shape))
    }
}

/// The CPU samples on the host.
macro_rules! on_the_host {
    () => {
        unreachable!("the CPU samples on the host")
    };
}

impl SampleBackend for Flex {
    const SAMPLES: bool = false;

    fn has_doubles(_: &Self::Device) -> bool {
        on_the_host!()
    }

    fn sample_layer(_: LayerStep<IntTensor<Self>>) -> LayerParts<IntTensor<Self>> {
        on_the_host!()
    }

    fn reverse_layer(
        _: &LayerStep<IntTensor<Self>>,
        _: &LayerParts<IntTensor<Self>>,
        _: usize,
    ) -> [IntTensor<Self>; 2] {
        on_the_host!()
    }

    fn list_long_rows(
        _: &IntTensor<Self>,
        _: Range<usize>,
        _: &IntTensor<Self>,
        _: usize,
        _: &IntTensor<Self>,
        _: usize,
    ) {
        on_the_host!()
    }

    fn place_seeds(_: &Spans<IntTensor<Self>>, _: IntTensor<Self>, _: &IntTensor<Self>, _: &IntTensor<Self>) {
        on_the_host!()
    }

    fn forget_places(_: &Spans<IntTensor<Self>>, _: &IntTensor<Self>, _: &IntTensor<Self>) {
        on_the_host!()
    }

    fn pack_words(_: [&IntTensor<Self>; 4], _: IntTensor<Self>, _: usize, _: &IntTensor<Self>, _: Range<usize>) {
        on_the_host!()
    }

    fn gather_values(_: &Words<IntTensor<Self>>, _: &IntTensor<Self>, _: ValueStep, _: &IntTensor<Self>) {
        on_the_host!()
    }

    fn collect_rows(_: CollectStep<FloatTensor<Self>, IntTensor<Self>>) -> FloatTensor<Self> {
        on_the_host!()
    }

    fn copy_rows(_: &FloatTensor<Self>) -> FloatTensor<Self> {
        on_the_host!()
    }

    fn copy_words(_: &IntTensor<Self>) -> IntTensor<Self> {
        on_the_host!()
    }

    fn words_at(_: &IntTensor<Self>, _: usize, _: usize) -> IntTensor<Self> {
        on_the_host!()
    }

    fn floats_at(_: &IntTensor<Self>, _: usize, _: [usize; 2]) -> FloatTensor<Self> {
        on_the_host!()
    }
}
