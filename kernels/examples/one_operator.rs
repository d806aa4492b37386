//! One operator alone: a weighted sum over in-neighbours, and its gradients.
//!
//! cargo run --release -p graphsieve-kernels --no-default-features --example one_operator

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use burn_flex::Flex;
use graphsieve_kernels::{CsrError, Message, Reduce, Strategy, gspmm};

type Backend = Autodiff<Flex>;
type Csr = graphsieve_kernels::Csr<Backend>;

fn main() -> Result<(), CsrError> {
    let device = Default::default();
    // Edges as they come: destination <- source. What edges carry stays in the order of this list.
    let (destinations, sources) = ([2, 0, 2, 1], [0, 1, 1, 2]);
    let csr = Csr::from_edges(&destinations, &sources, [3, 3], &device)?;
    println!("{csr:?}");

    let x = Tensor::<Backend, 2>::from_data([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &device).require_grad();
    let weights = Tensor::<Backend, 2>::from_data([[0.5], [1.0], [2.0], [-1.0]], &device).require_grad();
    let y = gspmm(&csr, Message::u_mul_e(x.clone(), weights.clone()), Reduce::Sum, Strategy::Auto);
    println!("y = {}", y.to_data());

    // Node 2 has 0.5 of node 0 and 2 of node 1.
    assert!(y.to_data().iter::<f32>().eq([3.0, 4.0, -5.0, -6.0, 6.5, 9.0]));
    let gradients = y.sum().backward();
    let of_x = x.grad(&gradients).expect("x was tracked").into_data();
    let of_weights = weights.grad(&gradients).expect("weights were tracked").into_data();
    println!("dx = {of_x}\ndw = {of_weights}");
    assert!(of_weights.iter::<f32>().eq([3.0, 7.0, 7.0, 11.0]));

    // A graph that is none is an error that says where.
    let error = Csr::from_edges(&[0, 3], &[0, 1], [3, 3], &device).expect_err("there is no row 3");
    println!("{error}");
    Ok(())
}
