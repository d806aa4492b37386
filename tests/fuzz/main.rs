//! libFuzzer over every reader of the program: `GRAPHSIEVE_FUZZ` names the reader, `GRAPHSIEVE_FUZZ_SEEDS` a directory
//! into which its seeds are written, instead of a run. `tests/fuzz/run` starts it.
#![no_main]

mod readers;

use std::env;
use std::fs;
use std::path::Path;
use std::process::exit;
use std::sync::OnceLock;

use readers::{READERS, Reader};

static READER: OnceLock<&Reader> = OnceLock::new();

libfuzzer_sys::fuzz_target!(init: choose(), |bytes: &[u8]| {
    if let Some(reader) = READER.get() {
        (reader.read)(bytes);
    }
});

fn choose() {
    let name = env::var("GRAPHSIEVE_FUZZ").unwrap_or_default();
    let Some(reader) = READERS.iter().find(|reader| reader.name == name) else {
        READERS.iter().for_each(|reader| println!("{}", reader.name));
        exit(2);
    };
    if let Some(seeds) = env::var_os("GRAPHSIEVE_FUZZ_SEEDS") {
        for (at, seed) in (reader.seeds)().iter().enumerate() {
            fs::write(Path::new(&seeds).join(format!("seed-{at}")), seed).expect("a directory for seeds");
        }
        exit(0);
    }
    READER.get_or_init(|| reader);
}
