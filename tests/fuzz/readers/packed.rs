//! Containers around what is under test: their checksums would keep nearly every change from the reader inside.

use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a vector takes every byte")
}

pub fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a vector takes every byte")
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("a vector takes every byte")
}

/// A zip archive of entries as they are.
pub fn stored(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        archive.start_file(*name, options).expect("a short name");
        archive.write_all(bytes).expect("a vector takes every byte");
    }
    archive.finish().expect("a vector takes every byte").into_inner()
}
