//! Graph layers: against loops in f64 on every backend of the build, the laws of a layer, and what they refuse.

mod attention;
mod laws;
mod layers;
mod oracle;
mod refusals;

macro_rules! on_every_backend {
    ($($name:ident),+ $(,)?) => {
        mod cpu {
            $(#[test] fn $name() { super::layers::$name::<burn_flex::Flex>(&Default::default()); })+
        }
        #[cfg(feature = "vulkan")]
        mod vulkan {
            $(#[test] fn $name() {
                let missing = graphsieve_kernels::device::probe_vulkan().err();
                if super::is_there("Vulkan", "GRAPHSIEVE_REQUIRE_VULKAN", missing) {
                    super::layers::$name::<graphsieve_kernels::Vulkan>(&Default::default());
                }
            })+
        }
        #[cfg(feature = "cuda")]
        mod cuda {
            $(#[test] fn $name() {
                let missing = graphsieve_kernels::device::probe_cuda().err();
                if super::is_there("CUDA", "GRAPHSIEVE_REQUIRE_CUDA", missing) {
                    super::layers::$name::<graphsieve_kernels::Cuda>(&Default::default());
                }
            })+
        }
    };
}

#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn is_there(api: &str, demand: &str, missing: Option<String>) -> bool {
    if let Some(reason) = &missing {
        assert!(std::env::var_os(demand).is_none(), "{demand} is set but there is no {api} device: {reason}");
        eprintln!("skipped: no {api} device: {reason}");
    }
    missing.is_none()
}

on_every_backend!(
    gcn_is_its_definition,
    gcn_between_two_kinds_of_nodes_has_degrees_of_both_ends,
    gcn_with_weights_is_its_definition,
    sage_is_its_definition,
    gin_is_its_definition,
    gat_is_its_definition,
    gat_with_features_of_edges_is_its_definition,
    gat_drops_what_the_masks_say,
    gatv2_is_its_definition,
    appnp_is_its_definition,
    beta_wavelets_are_their_definition,
    hetero_adds_up_what_arrives,
    half_precision_stays_near,
);
