//! What every kernel launch needs: plane-per-row geometry under hardware limits, row strides, vector widths.

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::{cast, into_contiguous_aligned};
use burn_cubecl::ops::numeric::zeros_client;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeRuntime, kernel::into_contiguous};
use cubecl::prelude::*;

/// Threads of a cube: several planes, each on a row of its own.
const CUBE_THREADS: u32 = 128;

/// Threads of a cube whose threads keep to a column each.
pub(crate) const COLUMN_THREADS: usize = 256;

/// A matrix whose rows are contiguous and may be padded: CUDA tensors are pitched.
pub(crate) struct Rows<R: CubeRuntime> {
    pub tensor: CubeTensor<R>,
    /// Elements from one row to the next.
    pub stride: usize,
    pub num_rows: usize,
    pub width: usize,
}

impl<R: CubeRuntime> Rows<R> {
    /// `tensor` as it is when its rows can be read, else a copy.
    pub fn of(tensor: CubeTensor<R>) -> Self {
        let readable = tensor.meta.strides()[1] == 1 && tensor.meta.strides()[0] >= tensor.meta.shape()[1];
        let tensor = if readable { tensor } else { into_contiguous_aligned(tensor) };
        let (num_rows, width) = (tensor.meta.shape()[0], tensor.meta.shape()[1]);
        Self { stride: tensor.meta.strides()[0], num_rows, width, tensor }
    }

    pub fn arg(&self) -> ArrayArg<R> {
        self.tensor.clone().into_array_arg()
    }

    /// Whether every row starts at a multiple of `vector` elements.
    pub fn is_aligned_to(&self, vector: usize) -> bool {
        self.stride.is_multiple_of(vector) && self.offset().is_multiple_of(vector)
    }

    /// First element, in elements of the buffer; vector loads need it aligned.
    fn offset(&self) -> usize {
        self.tensor.handle.offset_start.unwrap_or(0) as usize / self.tensor.dtype.size()
    }
}

/// The widest vector that divides `unit` (the channels of a head) and every row stride and start.
pub(crate) fn vector_width<R: CubeRuntime>(unit: usize, rows: &[&Rows<R>]) -> usize {
    let first = rows[0];
    first
        .tensor
        .client
        .io_optimized_vector_sizes(first.tensor.dtype.size())
        .find(|v| unit.is_multiple_of(*v) && rows.iter().all(|r| r.stride % v == 0 && r.offset() % v == 0))
        .unwrap_or(1)
}

/// An uninitialised contiguous tensor beside `like`.
pub(crate) fn empty<R: CubeRuntime>(like: &CubeTensor<R>, shape: impl Into<Shape>, dtype: DType) -> CubeTensor<R> {
    let shape = shape.into();
    // A buffer of zero bytes cannot be bound.
    let handle = like.client.empty((shape.num_elements() * dtype.size()).max(dtype.size()));
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// `len` elements of a vector from element `start` on, sharing its memory.
pub(crate) fn part<R: CubeRuntime>(of: &CubeTensor<R>, start: usize, len: usize) -> CubeTensor<R> {
    let handle = match start * of.dtype.size() {
        0 => of.handle.clone(),
        bytes => of.handle.clone().offset_start(bytes as u64),
    };
    CubeTensor::new_contiguous(of.client.clone(), of.device.clone(), [len].into(), handle, of.dtype)
}

/// A tensor of zeros beside `like`, without gaps between its rows. No device takes a launch over nothing, so an empty
/// one is left as it is.
pub(crate) fn zeros<R: CubeRuntime>(like: &CubeTensor<R>, shape: impl Into<Shape>, dtype: DType) -> CubeTensor<R> {
    let shape = shape.into();
    if shape.num_elements() == 0 {
        return empty(like, shape, dtype);
    }
    // Of more dimensions than one, CUDA would make room between rows.
    let values = zeros_client(like.client.clone(), like.device.clone(), [shape.num_elements()].into(), dtype);
    CubeTensor::new_contiguous(values.client, values.device, shape, values.handle, dtype)
}

/// Whether kernels compute in double precision.
pub(crate) fn has_doubles<R: CubeRuntime>(client: &ComputeClient<R>) -> bool {
    // CubeCL does not list doubles for CUDA, where some of its own kernels fail with them; ours do not.
    R::name(client) == "cuda" || !client.properties().type_usage(DType::F64.into()).is_empty()
}

/// Where a kernel puts its rows.
pub(crate) struct Target<R: CubeRuntime> {
    pub rows: Rows<R>,
    /// The rows are there already, and the kernel adds to them.
    pub accumulate_into: bool,
}

impl<R: CubeRuntime> Target<R> {
    /// `accumulate_into` itself where nobody else holds it, else a copy of it; without `accumulate_into` an
    /// uninitialised matrix beside `like`.
    ///
    /// # Panics
    /// If `accumulate_into` has another shape or dtype.
    pub fn of(accumulate_into: Option<CubeTensor<R>>, like: &CubeTensor<R>, shape: [usize; 2], dtype: DType) -> Self {
        let Some(accumulate_into) = accumulate_into else {
            return Self { rows: Rows::of(empty(like, shape, dtype)), accumulate_into: false };
        };
        assert!(
            accumulate_into.dtype == dtype && accumulate_into.meta.shape() == &Shape::new(shape),
            "accumulate_into: expected {shape:?} in {dtype:?}, got {accumulate_into:?}"
        );
        let rows = Rows::of(accumulate_into);
        let free = rows.tensor.can_mut() || rows.tensor.meta.shape().num_elements() == 0;
        Self { rows: if free { rows } else { Rows::of(rows.tensor.copy()) }, accumulate_into: true }
    }
}

/// `tensor` as contiguous f32.
pub(crate) fn f32_vector<R: CubeRuntime>(tensor: CubeTensor<R>) -> CubeTensor<R> {
    if tensor.meta.shape().num_elements() == 0 {
        // No device takes a launch over nothing, and a copy would be one.
        return empty(&tensor, tensor.meta.shape().clone(), DType::F32);
    }
    let tensor = if tensor.dtype == DType::F32 { tensor } else { cast(tensor, DType::F32) };
    into_contiguous(tensor)
}

/// The address width that reaches every element of `tensors`.
pub(crate) fn address<R: CubeRuntime>(tensors: &[&CubeTensor<R>]) -> AddressType {
    tensors.iter().map(|t| t.required_address_type()).max().unwrap_or(AddressType::U32)
}

/// Planes of a cube that walks a row with each.
pub(crate) fn planes_per_cube(plane: usize) -> usize {
    (CUBE_THREADS as usize / plane).max(1)
}

/// One plane per row: `CUBE_DIM_X` is the plane, `CUBE_DIM_Y` counts rows of a cube.
pub(crate) struct PlanePerRow {
    pub plane: u32,
    pub dim: CubeDim,
    max_cubes: u32,
}

impl PlanePerRow {
    /// # Panics
    /// If the device mixes plane sizes: the kernels count on one size.
    pub fn of<R: CubeRuntime>(client: &ComputeClient<R>) -> Self {
        let hardware = &client.properties().hardware;
        let plane = hardware.plane_size_max;
        assert!(
            hardware.plane_size_min == plane,
            "graph kernels: plane size: expected one size on the device, got {} to {plane}",
            hardware.plane_size_min
        );
        let rows = planes_per_cube(plane as usize) as u32;
        Self { plane, dim: CubeDim { x: plane, y: rows, z: 1 }, max_cubes: hardware.max_cube_count.0.min(1 << 20) }
    }

    /// The same with a cube for every plane.
    pub fn alone<R: CubeRuntime>(client: &ComputeClient<R>) -> Self {
        let geometry = Self::of(client);
        Self { dim: CubeDim { y: 1, ..geometry.dim }, ..geometry }
    }

    /// Cubes for `rows` rows; kernels stride over the grid, so fewer are correct too.
    pub fn count(&self, rows: usize) -> CubeCount {
        let need = rows.div_ceil(self.dim.y as usize).clamp(1, self.max_cubes as usize);
        CubeCount::Static(need as u32, 1, 1)
    }

    /// The widest vector that [`vector_width`] allows and that leaves no lane of a plane without one: lanes that idle
    /// would make the others do their work.
    pub fn vector_width<R: CubeRuntime>(&self, unit: usize, rows: &[&Rows<R>]) -> usize {
        let widest = (rows[0].width / self.plane as usize).max(1);
        let allowed = vector_width(unit, rows);
        // Both are powers of two times what divides the unit, so the smaller divides it, too.
        if allowed <= widest { allowed } else { 1 << widest.ilog2() }
    }

    /// Vectors of a row that one lane holds.
    pub fn slots(&self, vectors: usize) -> usize {
        vectors.div_ceil(self.plane as usize).max(1)
    }
}

/// A thread per vector of a row and several rows below each other: threads keep to a column, and may leave its sum.
pub(crate) struct Columns {
    pub count: CubeCount,
    pub dim: CubeDim,
    /// Cubes that share a column.
    pub partials: usize,
    /// Half of the power of two that holds the rows of a cube.
    pub half: usize,
}

impl Columns {
    /// For kernels that stride over `rows` rows of `vectors` vectors; at most `max_partials` cubes share a column.
    pub fn of(rows: usize, vectors: usize, max_partials: usize) -> Self {
        // Fewer rows are not worth a cube that starts, and ends with a sum.
        const ROWS_PER_THREAD: usize = 8;
        // Cubes beside each other have equal shares of a wide row.
        let beside = vectors.div_ceil(COLUMN_THREADS);
        let x = vectors.div_ceil(beside);
        let y = COLUMN_THREADS / x;
        let partials = rows.div_ceil(y * ROWS_PER_THREAD).clamp(1, max_partials);
        Self {
            count: CubeCount::Static(partials as u32, beside as u32, 1),
            dim: CubeDim { x: x as u32, y: y as u32, z: 1 },
            partials,
            half: y.next_power_of_two() / 2,
        }
    }
}

/// A thread per element, up to what a grid holds; kernels stride over the grid.
pub(crate) fn flat(len: usize) -> (CubeCount, CubeDim) {
    const THREADS: usize = 256;
    let cubes = len.div_ceil(THREADS).clamp(1, 1 << 15);
    (CubeCount::Static(cubes as u32, 1, 1), CubeDim { x: THREADS as u32, y: 1, z: 1 })
}
