//! Parameters of any Burn module under the names of its fields, e.g. `layers.0.weight`.
//!
//! Values are made on the host and in the order of the fields, so that a seed means the same model on every device.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use super::parameters::{Export, HostTensor, Init, Parameters, to_host};
use crate::error::{Error, Result};

/// The names of the modules around a parameter.
#[derive(Default)]
struct Place(Vec<Option<String>>);

impl Place {
    fn enter(&mut self, name: &str, container: &str) {
        // The kind of a layer is no part of its parameters' names.
        self.0.push((!container.starts_with("Enum:")).then(|| name.to_string()));
    }

    fn exit(&mut self) {
        self.0.pop();
    }

    fn name(&self) -> String {
        self.0.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

/// Gives `module` the values of `parameters`: those of a checkpoint by name, or initial ones: matrices uniform after
/// Glorot and Bengio (2010), `in` and `out` being their two dimensions, vectors zero.
///
/// # Errors
/// A checkpoint that lacks a parameter, or holds it with another shape or with values that are not finite.
pub fn fill<B: Backend, M: Module<B>>(module: M, parameters: &mut Parameters<B>) -> Result<M> {
    let mut fill = Fill { parameters, place: Place::default(), fault: None };
    let module = module.map(&mut fill);
    fill.fault.map_or(Ok(module), Err)
}

/// The parameters of `module` on the host.
pub fn export<B: Backend, M: Module<B>>(module: &M) -> Export {
    let mut listed = List { place: Place::default(), export: Export::default() };
    module.visit(&mut listed);
    listed.export
}

/// The names of all float parameters, in the order in which a module visits them, with their numbers of values.
pub fn names<B: Backend, M: Module<B>>(module: &M) -> Vec<(String, usize)> {
    let mut listed = Lens { place: Place::default(), lens: Vec::new() };
    module.visit(&mut listed);
    listed.lens
}

struct Fill<'a, 'p, B: Backend> {
    parameters: &'a mut Parameters<'p, B>,
    place: Place,
    /// The first fault; what follows is left as it is.
    fault: Option<Error>,
}

impl<B: Backend> ModuleMapper<B> for Fill<'_, '_, B> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, old, mapper) = param.consume();
        let shape = old.dims();
        let init = match shape[..] {
            [_] => Init::Zeros,
            [input, output] => Init::xavier_uniform(input, output),
            _ => unreachable!("parameters are vectors and matrices, {} has {D} dimensions", self.place.name()),
        };
        let new = match self.parameters.values(&self.place.name(), &shape, init) {
            Ok(values) => Tensor::from_data(TensorData::new(values, shape), &old.device()).require_grad(),
            Err(fault) => {
                self.fault.get_or_insert(fault);
                old
            }
        };
        Param::from_mapped_value(id, new, mapper)
    }
}

struct List {
    place: Place,
    export: Export,
}

impl<B: Backend> ModuleVisitor<B> for List {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let (shape, values) = (param.val().dims().to_vec(), to_host(param.val()));
        self.export.0.insert(self.place.name(), HostTensor { shape, values });
    }
}

struct Lens {
    place: Place,
    lens: Vec<(String, usize)>,
}

impl<B: Backend> ModuleVisitor<B> for Lens {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.place.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.place.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.lens.push((self.place.name(), param.shape().num_elements()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use burn_flex::{Flex, FlexDevice};

    use super::*;

    #[derive(Module, Debug)]
    struct Part<B: Backend> {
        weight: Param<Tensor<B, 2>>,
        bias: Option<Param<Tensor<B, 1>>>,
    }

    #[derive(Module, Debug)]
    struct Whole<B: Backend> {
        parts: Vec<Part<B>>,
    }

    fn whole() -> Whole<Flex> {
        let part = |bias: bool| Part {
            weight: Param::from_tensor(Tensor::ones([2, 3], &FlexDevice)),
            bias: bias.then(|| Param::from_tensor(Tensor::ones([3], &FlexDevice))),
        };
        Whole { parts: vec![part(true), part(false)] }
    }

    #[test]
    fn parameters_have_the_names_of_their_fields() {
        let names = names(&whole());
        let expected = [("parts.0.weight", 6), ("parts.0.bias", 3), ("parts.1.weight", 6)];
        assert_eq!(names, expected.map(|(name, len)| (name.to_string(), len)));
    }

    #[test]
    fn a_seed_fills_matrices_within_the_bound_and_vectors_with_zeros() {
        let filled = fill(whole(), &mut Parameters::from_seed(3, &FlexDevice)).unwrap();
        let values = export(&filled).0;
        let bound = (6.0f32 / 5.0).sqrt();
        let weight = &values["parts.0.weight"];
        assert!(weight.values.iter().all(|v| v.abs() <= bound && *v != 1.0), "{weight:?}");
        assert_ne!(weight.values, values["parts.1.weight"].values);
        assert_eq!(values["parts.0.bias"].values, [0.0; 3]);
        let again = fill(whole(), &mut Parameters::from_seed(3, &FlexDevice)).unwrap();
        assert_eq!(export(&again).0, values);
    }

    #[test]
    fn what_was_exported_is_read_again_and_what_is_missing_is_named() {
        let filled = fill(whole(), &mut Parameters::from_seed(3, &FlexDevice)).unwrap();
        let mut values: BTreeMap<_, _> = export(&filled).0;
        let read = |values: &BTreeMap<String, HostTensor>| {
            fill(whole(), &mut Parameters::from_tensors(values, Path::new("x.bpk"), &FlexDevice))
        };
        assert_eq!(export(&read(&values).unwrap()).0, values);
        values.remove("parts.1.weight");
        let fault = read(&values).unwrap_err().to_string();
        assert!(fault.contains("x.bpk: parts.1.weight: expected a tensor of shape [2, 3]"), "{fault}");
    }
}
