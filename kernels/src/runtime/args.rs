//! Arguments of launches. A launch takes its arguments by position, and every array has one type there; a struct with
//! names keeps two of them from being exchanged unnoticed.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::runtime::launch::Rows;

/// Makes a struct that kernels take, and beside it one with the same fields that a launch is given by name:
/// `NameArgs { field, .. }.launch()`.
macro_rules! launch_args {
    (
        $(#[$meta:meta])*
        $name:ident, $args:ident $(<$($generic:ident : $bound:ident),+>)? {
            $($(#[$field_meta:meta])* $field:ident : $type:ty,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(CubeType, CubeLaunch)]
        pub(crate) struct $name $(<$($generic: $bound),+>)? {
            $($(#[$field_meta])* pub $field: $type,)+
        }

        #[doc = concat!("[`", stringify!($name), "`] of a launch.")]
        pub(crate) struct $args<$($($generic: $bound,)+)? R: Runtime> {
            $(pub $field: <$type as LaunchArg>::RuntimeArg<R>,)+
        }

        impl<$($($generic: $bound,)+)? R: Runtime> $args<$($($generic,)+)? R> {
            pub fn launch(self) -> <$name $(<$($generic),+>)? as LaunchArg>::RuntimeArg<R> {
                let Self { $($field),+ } = self;
                <<$name $(<$($generic),+>)? as LaunchArg>::RuntimeArg<R>>::new($($field),+)
            }
        }
    };
}
pub(crate) use launch_args;

launch_args! {
    /// A matrix in vectors of `N` elements; its rows may be padded.
    Matrix, MatrixArgs<E: Scalar, N: Size> {
        values: Array<Vector<E, N>>,
        /// Vectors from one row to the next.
        stride: usize,
    }
}

launch_args! {
    /// A matrix of single elements; its rows may be padded.
    Table, TableArgs<E: Scalar> {
        values: Array<E>,
        /// Elements from one row to the next.
        stride: usize,
    }
}

launch_args! {
    /// The rows that a launch strides over, and the vectors of each.
    Extent, ExtentArgs {
        rows: usize,
        vectors: usize,
    }
}

impl<R: CubeRuntime> Rows<R> {
    /// The matrix in vectors of `width` elements.
    pub fn matrix<E: Scalar, N: Size>(&self, width: usize) -> MatrixLaunch<E, N, R> {
        MatrixArgs { values: self.arg(), stride: self.stride / width }.launch()
    }

    pub fn table<E: Scalar>(&self) -> TableLaunch<E, R> {
        TableArgs { values: self.arg(), stride: self.stride }.launch()
    }

    /// Rows in vectors of `width` elements.
    pub fn extent(&self, width: usize) -> ExtentLaunch<R> {
        ExtentArgs { rows: self.num_rows, vectors: self.width / width }.launch()
    }
}

/// `tensor` as an argument.
pub(crate) fn array<R: CubeRuntime>(tensor: &CubeTensor<R>) -> ArrayArg<R> {
    tensor.clone().into_array_arg()
}
