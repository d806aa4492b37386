# `just` lists the recipes.
_default:
    @just --list

# Build the program.
build:
    cargo build --release --workspace

# Run every test; Vulkan tests need a driver (software will do), CUDA tests a GPU.
test:
    cargo test --release --workspace

# What CI complains about.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --release -- -D warnings

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
