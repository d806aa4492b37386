//! The modules of the crate build on each other in one direction, and the host modules know nothing of tensors.

use std::fs;
use std::path::{Path, PathBuf};

/// Each module may use those of its own line and of the lines above.
const LAYERS: &[&[&str]] = &[
    &["chart", "error", "memory", "metrics", "splitmix"],
    &["config"],
    &["graph"],
    &["data", "sampler", "features", "trees"],
    &["loader", "nn"],
    &["models"],
    &["backend"],
    &["train", "score"],
    &["report"],
    &["bench"],
    &["cli"],
];

/// Modules that are plain Rust on the host. `trees` takes its search for splits and its devices from the kernels, `sampler` what
/// is drawn, which say nothing of tensors there.
const WITHOUT_TENSORS: &[&str] =
    &["chart", "error", "memory", "metrics", "splitmix", "graph", "data", "sampler", "trees", "config"];

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Every source file of the library with the top-level module that it belongs to and its text without comments.
fn sources() -> Vec<(PathBuf, String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut open, mut sources) = (vec![src.clone()], Vec::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let relative = path.strip_prefix(&src).unwrap().with_extension("");
        let module = relative.iter().next().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_some_and(|extension| extension == "rs") && module != "main" && module != "lib" {
            let text = fs::read_to_string(&path).unwrap();
            let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            sources.push((relative, module, code.join("\n")));
        }
    }
    assert!(!sources.is_empty(), "no sources in {}", src.display());
    sources.sort();
    sources
}

/// The top-level modules that `code` names as `crate::module`, also inside `use crate::{a::…, b::…}`.
fn used_modules(code: &str) -> Vec<String> {
    let first_word = |text: &str| -> String {
        text.trim_start().chars().take_while(|&c| c.is_ascii_alphanumeric() || c == '_').collect()
    };
    let mut used = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let is_part_of_a_name = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
        let path = &code[at + "crate::".len()..];
        match path.strip_prefix('{') {
            _ if is_part_of_a_name => {}
            None => used.push(first_word(path)),
            Some(list) => {
                let mut depth = 0;
                let mut item = 0;
                for (position, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' | ',' if depth == 0 => {
                            used.push(first_word(&list[item..position]));
                            item = position + 1;
                            if c == '}' {
                                break;
                            }
                        }
                        '}' => depth -= 1,
                        _ => {}
                    }
                }
            }
        }
    }
    used.retain(|module| module.chars().next().is_some_and(char::is_lowercase));
    used
}

#[test]
fn every_module_uses_only_what_lies_below_it() {
    let mut wrong = Vec::new();
    for (file, module, code) in sources() {
        let Some(own) = layer_of(&module) else {
            wrong.push(format!("{}: `{module}` has no layer; add it to LAYERS", file.display()));
            continue;
        };
        for used in used_modules(&code) {
            match layer_of(&used) {
                None => wrong.push(format!("{}: `crate::{used}` has no layer; add it to LAYERS", file.display())),
                Some(layer) if layer > own => wrong.push(format!("{}: uses `{used}` from above", file.display())),
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn host_modules_name_no_tensor_library() {
    for (file, module, code) in sources() {
        if WITHOUT_TENSORS.contains(&module.as_str()) {
            let kernels = (!["trees", "sampler"].contains(&module.as_str())).then_some("graphsieve_kernels");
            for name in ["burn", "cubecl"].into_iter().chain(kernels) {
                assert!(!code.contains(name), "{} names `{name}`", file.display());
            }
        }
    }
}

#[test]
fn only_the_choice_of_the_device_depends_on_features() {
    for (file, module, code) in sources() {
        let depends = code.contains("feature =") && code.contains("cfg");
        assert!(!depends || module == "backend", "{} depends on a feature of the build", file.display());
    }
}

#[test]
fn paths_are_found_in_every_spelling() {
    let code =
        "use crate::graph::Labels;\nuse crate::{error::{Error, Result}, data::split};\nlet x = crate::score::run();
        pub(crate) use with_backend; $crate::cli::x(); crate::Error";
    assert_eq!(used_modules(code), ["graph", "error", "data", "score"]);
}
