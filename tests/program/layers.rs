//! Modules build on each other in one direction, in both crates; host modules know nothing of tensors. CONTRIBUTING.md
//! says the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Modules of the program that are plain Rust on the host. `trees` takes its search for splits and its devices from the
/// kernels, `sampler` what is drawn, which say nothing of tensors there.
const WITHOUT_TENSORS: &[&str] = &[
    "chart", "error", "memory", "metrics", "splitmix", "timing", "graph", "data", "sampler", "trees", "config", "live",
    "run",
];

/// The files of a crate: the module path of each, and its code without comments.
struct Crate {
    files: BTreeMap<Vec<String>, String>,
}

/// A file uses another: both by their module paths.
type Uses = BTreeMap<Vec<String>, BTreeSet<Vec<String>>>;

impl Crate {
    fn read(src: &str) -> Self {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join(src);
        let (mut open, mut files) = (vec![src.clone()], BTreeMap::new());
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path.strip_prefix(&src).unwrap().with_extension("");
                let mut module: Vec<String> = relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
                if module.last().is_some_and(|name| name == "mod") || module == ["lib"] {
                    module.pop();
                }
                files.insert(module, fs::read_to_string(&path).unwrap());
            }
        }
        assert!(files.len() > 10, "no sources in {}", src.display());
        files.remove(&vec!["main".to_owned()]);
        Self::of(files)
    }

    fn of(files: BTreeMap<Vec<String>, String>) -> Self {
        let code = |text: String| {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            lines.join("\n")
        };
        Self { files: files.into_iter().map(|(module, text)| (module, code(text))).collect() }
    }

    #[cfg(test)]
    fn planted(files: &[(&str, &str)]) -> Self {
        let module = |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Self::of(files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect())
    }

    /// The file that a path means: the deepest module of it that has a file. A name that the file takes from elsewhere
    /// (`pub use`) is followed there.
    fn file_of(&self, path: &[String], steps: usize) -> Option<Vec<String>> {
        let depth = (0..=path.len()).rev().find(|&depth| self.files.contains_key(&path[..depth]))?;
        let file = path[..depth].to_vec();
        let Some(name) = path.get(depth).filter(|_| steps > 0) else { return Some(file) };
        let taken = paths_in(&self.files[&file], &file, true).into_iter().find(|used| used.last() == Some(name));
        match taken {
            Some(used) if used != path => self.file_of(&used, steps - 1).or(Some(file)),
            _ => Some(file),
        }
    }

    /// What every file uses of this crate. A module that only declares or hands on names of its own parts does not use
    /// them.
    fn uses(&self) -> Uses {
        let of_file = |(module, code): (&Vec<String>, &String)| {
            let used = paths_in(code, module, false).into_iter().filter_map(|path| self.file_of(&path, 8));
            let used = used.filter(|file| file != module && !(code_hands_on(code, module, file)));
            (module.clone(), used.collect())
        };
        self.files.iter().map(of_file).collect()
    }
}

/// Whether `file` is a part of `module` that the module names in `pub use` alone.
fn code_hands_on(code: &str, module: &[String], file: &[String]) -> bool {
    let own = |path: &Vec<String>| path.starts_with(module) && path.get(module.len()) == file.get(module.len());
    let handed = paths_in(code, module, true).iter().filter(|path| own(path)).count();
    let all = paths_in(code, module, false).iter().filter(|path| own(path)).count();
    file.starts_with(module) && file.len() > module.len() && handed == all
}

/// Every path of the crate that `code` of the file `module` names through `crate`, `self` or `super`; `handed_on` reads
/// only what it makes public again. Inside `mod name { … }` a `super` is the file itself.
fn paths_in(code: &str, module: &[String], handed_on: bool) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    let inline_from =
        code.find("\nmod tests {").or_else(|| code.find("\npub(crate) mod tests {")).unwrap_or(code.len());
    for root in ["crate::", "self::", "super::", "use "] {
        for (at, _) in code.match_indices(root) {
            let before = &code[..at];
            let is_part = before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == ':');
            let line = code[before.rfind(['\n', ';']).map_or(0, |end| end + 1)..].trim_start();
            let is_public = line.starts_with("pub use") || (line.starts_with("pub(") && line.contains(") use"));
            let behind = &code[at + root.len()..];
            // A path without a root begins at a part of this module.
            let is_other =
                root == "use " && ["crate::", "self::", "super::"].iter().any(|root| behind.starts_with(root));
            if is_part || is_other || (handed_on && !is_public) {
                continue;
            }
            let (mut base, mut rest) = match root {
                "crate::" => (Vec::new(), behind),
                "self::" | "use " => (module.to_vec(), behind),
                _ => (module.to_vec(), &code[at..]),
            };
            let mut up = 0;
            while let Some(after) = rest.strip_prefix("super::") {
                rest = after;
                up += 1;
            }
            if at > inline_from {
                up = usize::saturating_sub(up, 1);
            }
            base.truncate(base.len().saturating_sub(up));
            expand(rest, &base, &mut found);
        }
    }
    found
}

/// Paths of `text` behind `base`: one, or those of a list in braces.
fn expand(text: &str, base: &[String], found: &mut BTreeSet<Vec<String>>) {
    let text = text.trim_start();
    let Some(list) = text.strip_prefix('{') else {
        let word: String = text.chars().take_while(|&c| c.is_ascii_alphanumeric() || c == '_').collect();
        if word.is_empty() {
            found.insert(base.to_vec());
            return;
        }
        let path = [base, std::slice::from_ref(&word)].concat();
        return match text[word.len()..].strip_prefix("::") {
            Some(rest) if word != "self" => expand(rest, &path, found),
            _ if word == "self" => drop(found.insert(base.to_vec())),
            _ => drop(found.insert(path)),
        };
    };
    let (mut depth, mut item) = (0, 0);
    for (position, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                if !list[item..position].trim().is_empty() {
                    expand(&list[item..position], base, found);
                }
                item = position + 1;
                if c == '}' {
                    return;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// The circles of a directed graph: its strongly connected components of more than one node.
fn circles<T: Clone + Ord>(uses: &BTreeMap<T, BTreeSet<T>>) -> Vec<Vec<T>> {
    let reach = |from: &T| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(node) = open.pop() {
            open.extend(uses.get(&node).into_iter().flatten().filter(|next| seen.insert((*next).clone())).cloned());
        }
        seen
    };
    let reached: BTreeMap<&T, BTreeSet<T>> = uses.keys().map(|node| (node, reach(node))).collect();
    let circle = |node: &T| -> Vec<T> {
        let both = |other: &&T| reached[node].contains(*other) && reached.get(*other).is_some_and(|r| r.contains(node));
        reached[node].iter().filter(both).cloned().collect()
    };
    let all: BTreeSet<Vec<T>> = uses.keys().map(circle).filter(|circle| circle.len() > 1).collect();
    all.into_iter().collect()
}

/// The uses between top-level modules.
fn between_modules(uses: &Uses) -> BTreeMap<String, BTreeSet<String>> {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, used) in uses {
        let Some(own) = file.first() else { continue };
        let used = used.iter().filter_map(|path| path.first()).filter(|name| *name != own).cloned();
        modules.entry(own.clone()).or_default().extend(used);
    }
    modules
}

/// The layers that CONTRIBUTING.md tells of, lowest first: of its table the rows that begin with a number, and then
/// name the modules of that layer.
fn told_layers() -> Vec<Vec<String>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("CONTRIBUTING.md")).unwrap();
    let mut layers: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for row in text.lines().filter_map(|line| line.strip_prefix("| ")) {
        let mut cells = row.split(" | ");
        let layer = cells.next().and_then(|cell| cell.parse().ok());
        if let (Some(layer), Some(modules)) = (layer, cells.next()) {
            let names = modules.split(", ").map(|name| name.trim_matches('`').to_owned());
            layers.entry(layer).or_default().extend(names);
        }
    }
    assert!(layers.len() > 3, "the table of layers");
    layers.into_values().collect()
}

/// What is wrong with the uses between modules, given their layers.
fn climbs(modules: &BTreeMap<String, BTreeSet<String>>, layers: &[Vec<String>]) -> Vec<String> {
    let layer_of = |module: &str| layers.iter().position(|layer| layer.iter().any(|name| name == module));
    let mut wrong = Vec::new();
    for (module, used) in modules {
        let Some(own) = layer_of(module) else {
            wrong.push(format!("`{module}` has no layer; add it to CONTRIBUTING.md"));
            continue;
        };
        for used in used {
            match layer_of(used) {
                None => wrong.push(format!("{module}: `crate::{used}` has no layer; add it to CONTRIBUTING.md")),
                Some(layer) if layer > own => wrong.push(format!("{module} uses {used} from above")),
                Some(_) => {}
            }
        }
    }
    wrong
}

#[test]
fn every_module_uses_only_what_lies_below_it() {
    let modules = between_modules(&Crate::read("src").uses());
    let mut wrong = climbs(&modules, &told_layers());
    let told: BTreeSet<String> = told_layers().concat().into_iter().collect();
    let gone = told.iter().filter(|name| !modules.contains_key(*name));
    wrong.extend(gone.map(|name| format!("CONTRIBUTING.md tells of `{name}`, which is not there")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn modules_form_no_circle_and_training_and_scoring_do_not_use_each_other() {
    for src in ["src", "kernels/src"] {
        let modules = between_modules(&Crate::read(src).uses());
        assert_eq!(circles(&modules), Vec::<Vec<String>>::new(), "{src}");
        for (one, other) in [("train", "score"), ("score", "train")] {
            assert!(!modules.get(one).is_some_and(|used| used.contains(other)), "{one} uses {other}");
        }
    }
}

#[test]
fn files_form_no_circle() {
    for src in ["src", "kernels/src"] {
        let shown = |circle: Vec<Vec<String>>| circle.iter().map(|file| file.join("::")).collect::<Vec<_>>().join(", ");
        let found: Vec<String> = circles(&Crate::read(src).uses()).into_iter().map(shown).collect();
        assert!(found.is_empty(), "{src}:\n{}", found.join("\n"));
    }
}

#[test]
fn host_modules_name_no_tensor_library() {
    for (module, code) in Crate::read("src").files {
        let Some(top) = module.first().filter(|top| WITHOUT_TENSORS.contains(&top.as_str())) else { continue };
        let kernels = (!["trees", "sampler"].contains(&top.as_str())).then_some("graphsieve_kernels");
        for name in ["burn", "cubecl"].into_iter().chain(kernels) {
            assert!(!code.contains(name), "{} names `{name}`", module.join("::"));
        }
    }
}

#[test]
fn models_and_layers_start_no_thread() {
    for (module, code) in Crate::read("src").files {
        if module.first().is_some_and(|top| ["models", "nn"].contains(&top.as_str())) {
            assert!(!code.contains("thread::"), "{} starts threads", module.join("::"));
        }
    }
}

#[test]
fn only_the_choice_of_the_device_depends_on_features() {
    for (module, code) in Crate::read("src").files {
        // The server is a module that may be missing: where it is declared, and where its command is.
        let code = match module.join("::").as_str() {
            "" | "cli::serve" => code.replace("feature = \"serve\"", ""),
            _ => code,
        };
        let depends = code.contains("feature =") && code.contains("cfg");
        assert!(!depends || module == ["backend"], "{} depends on a feature of the build", module.join("::"));
    }
}

#[test]
fn paths_are_found_in_every_spelling() {
    let code =
        "use crate::graph::Labels;\nuse crate::{error::{Error, Result}, data::split};\nlet x = crate::score::run();
        pub(crate) use with_backend; $crate::cli::x(); use super::super::loader::{self, Job}; super::sibling::f();
        use self::part::P;";
    let module = ["train".to_owned(), "stage".to_owned()];
    let found: Vec<String> = paths_in(code, &module, false).iter().map(|path| path.join("::")).collect();
    let expected =
        ["data::split", "error::Error", "error::Result", "graph::Labels", "loader", "loader::Job", "score::run"];
    let expected: Vec<&str> =
        [&expected[..], &["train::sibling::f", "train::stage::part::P", "train::stage::with_backend"]].concat();
    assert_eq!(found, expected);
}

#[test]
fn a_planted_circle_and_a_planted_climb_are_found() {
    let clean = [
        ("", "pub use low::Low;"),
        ("low", "pub use part::Low;"),
        ("low::part", "pub struct Low;"),
        ("high", "use crate::low::Low;\nuse super::low;"),
    ];
    let uses = Crate::planted(&clean).uses();
    assert!(circles(&uses).is_empty() && circles(&between_modules(&uses)).is_empty());
    let layers = [vec!["low".to_owned()], vec!["high".to_owned()]];
    assert!(climbs(&between_modules(&uses), &layers).is_empty());

    // Through `super`, from a file below and behind a name that is handed on.
    let mut planted = clean.to_vec();
    planted[2] = ("low::part", "pub struct Low;\nuse super::super::high::High;");
    let uses = Crate::planted(&planted).uses();
    assert_eq!(circles(&between_modules(&uses)), [["high", "low"]]);
    assert_eq!(climbs(&between_modules(&uses), &layers), ["low uses high from above"]);

    // Three files of one module.
    let files = [
        ("m", "pub use a::A;\npub use b::B;\npub use c::C;\nmod a;\nmod b;\nmod c;"),
        ("m::a", "use super::B;"),
        ("m::b", "use super::c::C;"),
        ("m::c", "use crate::m::a::A;"),
    ];
    let found = circles(&Crate::planted(&files).uses());
    assert_eq!(found.len(), 1);
    assert!(found[0].len() >= 3, "{found:?}");
}
