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

# Licences, advisories and sources of dependencies, then spelling (programs: pip install -r .ci/tools.txt).
audit:
    cargo deny --locked check
    typos

# The licences of all dependencies, and who has them.
licences:
    cargo deny --locked list

# Every package of Cargo.lock with its hash, target/graphsieve.cdx.json (CycloneDX; needs Node).
sbom:
    mkdir -p target
    npx --yes @cyclonedx/cdxgen@12.8.4 --type cargo --no-recurse --spec-version 1.5 --output target/graphsieve.cdx.json .

# Build the program of this commit twice, elsewhere, and compare the two.
reproducible *args:
    tests/reproducible {{ args }}

# AddressSanitizer over the unsafe code of the CPU (needs a nightly toolchain).
asan:
    RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan cargo +nightly test --target x86_64-unknown-linux-gnu --workspace --no-default-features --lib --test suite

# Everything that needs a GPU, on record: tests, errors of benches, compute-sanitizer. `bin` has the test programs.
device bin by *args:
    tests/record/run --bin {{ bin }} --by "{{ by }}" {{ args }}

# Make a small marketplace, train both stages and evaluate.
quickstart *args:
    cargo run --release -- train configs/quickstart.toml {{ args }}

# Everything that CI runs.
ci:
    .ci/run
