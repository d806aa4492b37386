# `just` lists the recipes.
_default:
    @just --list

# Build the program.
build:
    cargo build --release --workspace

# Run every test on CPU and Vulkan (a software driver will do).
test:
    cargo test --release --workspace --no-default-features --features vulkan,serve

# Run every test on all backends; those of CUDA need a GPU.
test-all:
    cargo test --release --workspace --features serve

# What CI complains about.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --release --features serve -- -D warnings

# The CPU-only build.
lint-cpu:
    cargo clippy --workspace --all-targets --release --no-default-features -- -D warnings

# Format the code.
fmt:
    cargo fmt --all

# Licences, advisories and sources of dependencies, then spelling (needs cargo-deny and typos).
audit:
    cargo deny check
    typos

# Make a small marketplace, train both stages and evaluate.
quickstart *args:
    cargo run --release -- train configs/quickstart.toml {{ args }}

# Everything that CI runs.
ci:
    .ci/run
