//! Everything in the program that reads bytes which somebody else may have written, each as a function of bytes.
//!
//! What is refused is in order; a panic, a hang and more than a gigabyte of memory are not. libFuzzer runs them for
//! hours (`tests/fuzz/run`), `tests/program/fuzz.rs` for seconds with every test.

mod checkpoints;
mod files;
mod graphs;
mod packed;
mod runs;
#[cfg(feature = "serve")]
mod served;
mod tables;

/// A reader under test.
pub struct Reader {
    pub name: &'static str,
    /// Reads the bytes, and uses what came out as a command would; whether it took them.
    pub read: fn(&[u8]) -> bool,
    /// Whole inputs, made by the program's own writer where it has one.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

const fn reader(name: &'static str, read: fn(&[u8]) -> bool, seeds: fn() -> Vec<Vec<u8>>) -> Reader {
    Reader { name, read, seeds }
}

pub const READERS: &[Reader] = &[
    reader("csv", tables::csv, || vec![tables::PAYMENTS.into()]),
    reader("tsv", tables::tsv, tables::tsv_seeds),
    reader("csv_gz", tables::csv_gz, tables::csv_gz_seeds),
    reader("csv_zst", tables::csv_zst, tables::csv_zst_seeds),
    reader("parquet", tables::parquet, tables::parquet_seeds),
    reader("edge_table", tables::edge_table, || vec![tables::OWNERS.into()]),
    reader("description", tables::description, tables::description_seeds),
    reader("label_table", tables::label_table, || vec![b"id,label\n1,1\n3,0\n".into()]),
    reader("reviews", tables::reviews, || vec![tables::REVIEWS.into()]),
    reader("reviews_gz", tables::reviews_gz, || vec![packed::gzip(tables::REVIEWS.as_bytes())]),
    reader("metadata", tables::metadata, || vec![tables::METADATA.into()]),
    reader("graph_toml", graphs::graph_toml, graphs::graph_toml_seeds),
    reader("graph_json", graphs::graph_json, graphs::graph_json_seeds),
    reader("node_counts", graphs::node_counts, || graphs::of_market("node_counts.json")),
    reader("market_ids", graphs::market_ids, || graphs::of_market("node_id_mappings.json")),
    reader("market_labels", graphs::market_labels, || graphs::of_market("labels.npy")),
    reader("row_ptr", graphs::row_ptr, || graphs::of_market("epu_row_ptr.bin")),
    reader("col_idx", graphs::col_idx, || graphs::of_market("eps_col_idx.bin")),
    reader("row_start", graphs::row_start, || graphs::of_events("earlier_paid_with_row_start.bin")),
    reader("checksums", graphs::checksums, graphs::checksums_seeds),
    reader("data_file", graphs::data_file, graphs::data_file_seeds),
    reader("import_json", graphs::import_json, || graphs::of_events("import.json")),
    reader("import_bin", graphs::import_bin, || graphs::of_events("import.bin")),
    reader("npy", graphs::npy, graphs::npy_seeds),
    reader("npz", graphs::npz, || vec![packed::stored(&graphs::npz_arrays())]),
    reader("npz_array", graphs::npz_array, graphs::npz_array_seeds),
    reader("mat", graphs::mat, graphs::mat_seeds),
    reader("mat_packed", graphs::mat_packed, graphs::mat_packed_seeds),
    reader("bpk", checkpoints::bpk, checkpoints::bpk_seeds),
    reader("safetensors", checkpoints::safetensors, checkpoints::safetensors_seeds),
    reader("model_shape", checkpoints::model_shape, checkpoints::model_shape_seeds),
    reader("pt", checkpoints::pt, || vec![checkpoints::archive(&checkpoints::pickled())]),
    reader("pickle", checkpoints::pickle, || vec![checkpoints::pickled()]),
    reader("trees", checkpoints::trees, checkpoints::trees_seeds),
    reader("tree_columns", checkpoints::tree_columns, checkpoints::tree_columns_seeds),
    reader("tree_json", checkpoints::tree_json, checkpoints::tree_json_seeds),
    reader("lightgbm", checkpoints::lightgbm, checkpoints::lightgbm_seeds),
    reader("config", runs::config, runs::config_seeds),
    reader("overrides", runs::overrides, || vec![b"train.epochs=5\nmodel.hidden=16".into(), b"seed=7".into()]),
    reader("model_json", runs::model_json, || runs::of_run("model.json")),
    reader("run_file", runs::run_file, runs::run_file_seeds),
    #[cfg(feature = "serve")]
    reader("score_body", served::score_body, || vec![served::SCORE.into()]),
    #[cfg(feature = "serve")]
    reader("events_body", served::events_body, || vec![served::EVENTS.into()]),
    #[cfg(feature = "serve")]
    reader("labels_body", served::labels_body, || vec![served::LABELS.into()]),
    #[cfg(feature = "serve")]
    reader("http", served::http, served::http_seeds),
    #[cfg(feature = "serve")]
    reader("live_row", served::live_row, served::live_row_seeds),
    #[cfg(feature = "serve")]
    reader("log", served::log, served::log_seeds),
    #[cfg(feature = "serve")]
    reader("log_frame", served::log_frame, served::log_frame_seeds),
    #[cfg(feature = "serve")]
    reader("serve_json", served::serve_json, served::serve_json_seeds),
    #[cfg(feature = "serve")]
    reader("tokens", served::tokens, || vec![b"# one a line\n0123456789abcdef0123\n".into()]),
];
