//! Launches that are put off while their kernels are compiled, on Vulkan, where nothing is compiled ahead: what is put
//! off is done in its order, and when.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_wgpu::WgpuDevice;
use cubecl::Runtime;
use cubecl::bytes::Bytes;
use graphsieve_kernels::Vulkan;
use graphsieve_kernels::testing::ahead::{COMPILED, ROOM, RuntimeAhead, VulkanAhead};
use graphsieve_kernels::testing::harness::{Device, Trial, trial};

/// The trials of this file: one, as it counts what a process compiles.
pub fn trials() -> Vec<Trial> {
    vec![trial(Some(Device::Vulkan), "ahead::what_is_put_off_is_done_in_its_order", &[], in_order)]
}

fn in_order() {
    let device = WgpuDevice::default();
    // Launches and uploads in turn, into memory that is given back meanwhile.
    assert_eq!(chain::<VulkanAhead>(&device), chain::<Vulkan>(&device));
    let compiled = compiled();
    assert!(compiled.len() == 1 && compiled[0] >= 3, "several kernels at once: {compiled:?}");

    // No kernel is new, so that nothing waits.
    assert_eq!(chain::<VulkanAhead>(&device), chain::<Vulkan>(&device));
    assert_eq!(self::compiled(), compiled);

    // Another thread has a stream of its own, and uses what this one put off.
    assert_eq!(across::<VulkanAhead>(&device), across::<Vulkan>(&device));

    // Memory that is put off is not free: when there is too much of it the device catches up, though nobody reads.
    let before = self::compiled().len();
    let client = RuntimeAhead::client(&device);
    let x = Tensor::<VulkanAhead, 1>::ones([7], &device).tan();
    let y = x.tanh();
    let held: Vec<_> = (0..5).map(|_| client.empty(ROOM as usize / 4)).collect();
    // It has come so far when this is answered, which waits for nothing else.
    client.staging([&mut Bytes::from_bytes_vec(vec![0; 4])].into_iter(), false);
    assert_eq!(self::compiled().len(), before + 1);
    drop(held);
    y.into_data();
}

fn compiled() -> Vec<usize> {
    COMPILED.lock().unwrap().clone()
}

fn chain<B: Backend>(device: &B::Device) -> Vec<f32> {
    let mut x = Tensor::<B, 1>::from_floats([0.5, -1.0, 2.0, 3.5], device);
    for step in 0..20 {
        let y = Tensor::from_floats([step as f32, 1.0, 2.0, 0.25], device);
        x = (x.tanh() + y.clone()).log1p() * y;
    }
    x.into_data().to_vec().unwrap()
}

fn across<B: Backend>(device: &B::Device) -> Vec<f32> {
    let mut x = Tensor::<B, 1>::from_floats([0.5, 0.25, 0.125], device);
    for _ in 0..10 {
        let here = x.sin().cos();
        let there = || here.clone().sqrt() + here.clone().recip();
        x = std::thread::scope(|scope| scope.spawn(there).join().unwrap()).exp() * here;
    }
    x.into_data().to_vec().unwrap()
}
