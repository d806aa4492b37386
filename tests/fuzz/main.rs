//! libFuzzer over every reader of the program: `GRAPHSIEVE_FUZZ` names the reader, `GRAPHSIEVE_FUZZ_SEEDS` a directory
//! into which its seeds are written, instead of a run. `tests/fuzz/run` starts it.
#![no_main]

mod readers;

use std::env;
use std::fs;
use std::panic;
use std::path::Path;
use std::process::{abort, exit};
use std::sync::OnceLock;

use graphsieve::error::is_caught;
use readers::{READERS, Reader};

static READER: OnceLock<&Reader> = OnceLock::new();

libfuzzer_sys::fuzz_target!(init: choose(), |bytes: &[u8]| {
    if let Some(reader) = READER.get() {
        let _ = (reader.read)(bytes);
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
    // That of libFuzzer ends the process with every panic, those too that become errors.
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if !is_caught() {
            print(panic);
            abort();
        }
    }));
    READER.get_or_init(|| reader);
}
