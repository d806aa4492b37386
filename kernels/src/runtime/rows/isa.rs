//! The choice among the instruction sets at run time.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m512};
use std::sync::LazyLock;

use super::vector::Vector;

/// A loop to be compiled for every instruction set.
pub trait Kernel {
    /// What the loop returns.
    type Output;
    /// Runs the loop on registers `V`.
    ///
    /// # Safety
    /// The instruction set of `V` is enabled. Implementations are `#[inline(always)]`: that is how they come to be
    /// compiled for it.
    unsafe fn run<V: Vector>(self) -> Self::Output;
}

/// The instruction sets, best first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Isa {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Any,
}

impl Isa {
    /// To test each that is available.
    #[cfg(test)]
    #[cfg(target_arch = "x86_64")]
    pub const ALL: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Any];
    /// To test each that is available.
    #[cfg(test)]
    #[cfg(not(target_arch = "x86_64"))]
    pub const ALL: [Isa; 1] = [Isa::Any];

    /// Whether this machine has it.
    pub fn available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            Isa::Any => true,
        }
    }
}

/// The best instruction set of this machine: to ask for every feature takes as long as a short row.
static BEST: LazyLock<Isa> = LazyLock::new(|| {
    #[cfg(target_arch = "x86_64")]
    if let Some(isa) = [Isa::Avx512, Isa::Avx2].into_iter().find(|isa| isa.available()) {
        return isa;
    }
    Isa::Any
});

/// Runs `kernel` with the best instruction set of this machine.
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: it was found available.
    unsafe { run_on(*BEST, kernel) }
}

/// Runs `kernel` with the instruction set `isa`.
///
/// # Safety
/// `isa` is available.
pub unsafe fn run_on<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn avx512<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: enabled for this function.
        unsafe { kernel.run::<__m512>() }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn avx2<K: Kernel>(kernel: K) -> K::Output {
        // SAFETY: enabled for this function.
        unsafe { kernel.run::<__m256>() }
    }
    // SAFETY: `isa` is available.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2(kernel),
            Isa::Any => kernel.run::<[f32; 4]>(),
        }
    }
}
