//! A description with its defaults filled in and its names checked, before any table is read.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::description::{Description, EdgeTable, End, FeatureKind, Files};
use super::edges::ResolvedShared;
use super::naming::column_names;
use super::nodes::{Fact, FeatureColumn, NodeType, time_reader};
use crate::error::{Error, Result, nearest_name};
use crate::graph::{MAX_EDGE_COLUMNS, check_name};

/// What to read, in which order.
#[derive(Debug)]
pub(super) struct Plan {
    pub description: Description,
    /// Node types: those with tables, those of edges, those of shared values; each by first mention.
    pub types: Vec<NodeType>,
    /// Files of each node table.
    pub node_files: Vec<Vec<PathBuf>>,
    /// Files of each edge table.
    pub edge_files: Vec<Vec<PathBuf>>,
    pub shared: Vec<ResolvedShared>,
}

impl Plan {
    /// Reads the description at `path`; files are looked for beside it.
    ///
    /// # Errors
    /// [`Error::Config`] for names that cannot be those of files, that are used twice or that nothing declares.
    pub fn read(path: &Path) -> Result<Self> {
        let description = Description::read(path)?;
        let origin = path.display().to_string();
        let plan = Planner { description: &description, path, origin };
        let mut types: Vec<NodeType> = Vec::new();
        for table in &description.nodes {
            plan.name("nodes.type", &table.node_type)?;
            types.push(NodeType {
                has_table: true,
                columns: table.features.0.iter().map(|(name, kind)| FeatureColumn::new(name, kind)).collect(),
                facts: Fact::of(table, &description.windows),
                ..NodeType::new(&table.node_type)
            });
        }
        plan.times()?;
        let mut add_type = |name: &str| {
            if types.iter().all(|known| known.name != name) {
                types.push(NodeType::new(name));
            }
        };
        let mut names = HashSet::new();
        for table in &description.edges {
            plan.relation(&mut names, "edges.name", &table.name)?;
            for (key, end) in [("edges.src", &table.src), ("edges.dst", &table.dst)] {
                plan.end(key, end)?;
                add_type(&end.node_type);
            }
            plan.edge_values(table)?;
        }
        let shared = description.shared.iter().map(|shared| {
            let shared = plan.shared(shared)?;
            plan.relation(&mut names, "shared.name", &shared.name)?;
            add_type(&shared.hub);
            Ok(shared)
        });
        let shared = shared.collect::<Result<Vec<_>>>()?;
        let node_files = description.nodes.iter().map(|table| plan.files(&table.file)).collect();
        let edge_files = description.edges.iter().map(|table| plan.edge_files(table)).collect::<Result<_>>()?;
        Ok(Self { types, node_files, edge_files, shared, description })
    }
}

struct Planner<'a> {
    description: &'a Description,
    path: &'a Path,
    origin: String,
}

impl Planner<'_> {
    fn error(&self, key: &str, expected: impl Into<String>, found: &str, help: impl Into<String>) -> Error {
        Error::Config {
            origin: self.origin.clone().into(),
            key: key.into(),
            expected: expected.into(),
            found: format!("{found:?}"),
            help: help.into(),
        }
    }

    /// Refuses a name that would not stay inside of the output directory.
    fn name(&self, key: &str, name: &str) -> Result<()> {
        match check_name(key, name) {
            Err(Error::Data { expected, help, .. }) => Err(self.error(key, expected, name, help)),
            other => other,
        }
    }

    /// Refuses a format of times that is none.
    fn times(&self) -> Result<()> {
        let columns = self.description.nodes.iter().flat_map(|table| &table.features.0);
        let columns = columns.chain(self.description.edges.iter().flat_map(|table| &table.values.0));
        let of_columns = columns.filter_map(|(name, kind)| Some((name, kind.time_format()?)));
        let of_edges = self.description.edges.iter().filter_map(|table| table.time.as_ref());
        let of_events = self
            .description
            .nodes
            .iter()
            .flat_map(|table| table.time.iter().chain(table.label.iter().filter_map(|label| label.known.as_ref())));
        let times = of_edges.chain(of_events).map(|time| (&time.column, time.format.clone()));
        for (name, format) in of_columns.chain(times) {
            if let Err(Error::Config { key, expected, found, help, .. }) = time_reader(&format, name).map(|_| ()) {
                return Err(Error::Config { origin: self.origin.clone().into(), key, expected, found, help });
            }
        }
        Ok(())
    }

    fn relation(&self, names: &mut HashSet<String>, key: &str, name: &str) -> Result<()> {
        self.name(key, name)?;
        match names.insert(name.to_owned()) {
            true => Ok(()),
            false => Err(self.error(key, "every relation once", name, "rename one of the two relations")),
        }
    }

    fn end(&self, key: &str, end: &End) -> Result<()> {
        self.name(key, &end.node_type)?;
        let is_declared = self.description.nodes.iter().any(|table| table.node_type == end.node_type);
        if end.column.is_some() || is_declared {
            return Ok(());
        }
        let declared = self.description.nodes.iter().map(|table| &table.node_type);
        let help = match nearest_name(&end.node_type, declared) {
            Some(nearest) => format!("did you mean `{nearest}`? Otherwise write \"{}.COLUMN\"", end.node_type),
            None => format!("write \"{}.COLUMN\"", end.node_type),
        };
        Err(self.error(key, "a type of a [[nodes]] table, or a column of ids", &end.node_type, help))
    }

    /// Refuses more values of an edge than a relation has room for.
    fn edge_values(&self, table: &EdgeTable) -> Result<()> {
        let of_column = |(name, kind): &(String, FeatureKind)| (name.clone(), column_names(kind, name).len());
        let columns: Vec<(String, usize)> = table.values.0.iter().map(of_column).collect();
        let total: usize = columns.iter().map(|(_, width)| width).sum();
        if total <= MAX_EDGE_COLUMNS {
            return Ok(());
        }
        let parts: Vec<String> = columns.iter().map(|(name, width)| format!("{name} {width}")).collect();
        let key = format!("edges.values of `{}`", table.name);
        let expected = format!("at most {MAX_EDGE_COLUMNS} columns of values, those of missing values included");
        let help = "name fewer columns, or give a category fewer: { kind = \"categorical\", width = 2 }";
        Err(self.error(&key, expected, &format!("{total}: {}", parts.join(", ")), help))
    }

    fn shared(&self, shared: &super::description::SharedColumn) -> Result<ResolvedShared> {
        let tables = &self.description.nodes;
        let Some(table) = shared.table(tables) else {
            let found = shared.nodes.as_deref().unwrap_or_default();
            let types = || tables.iter().map(|table| table.node_type.as_str());
            let help = match nearest_name(found, types()).or_else(|| types().next()) {
                Some(example) => format!("for example nodes = \"{example}\""),
                None => "the column has to be one of a [[nodes]] table; add the table".into(),
            };
            return Err(self.error("shared.nodes", "the type of a [[nodes]] table", found, help));
        };
        let hub = shared.hub();
        self.name("shared.as", &hub)?;
        if hub == table.node_type {
            let help = "give the values a type of their own: as = \"...\"";
            return Err(self.error("shared.as", "another type than that of the nodes", &hub, help));
        }
        Ok(ResolvedShared {
            name: shared.relation(),
            nodes: table.node_type.clone(),
            column: shared.column.clone(),
            hub,
            max_degree: shared.max_degree,
            files: self.files(&table.file),
        })
    }

    fn files(&self, files: &Files) -> Vec<PathBuf> {
        let beside = self.path.parent().unwrap_or(Path::new(""));
        files.0.iter().map(|file| beside.join(file)).collect()
    }

    /// Files of an edge table: its own, or those of the end that is the row itself.
    fn edge_files(&self, table: &EdgeTable) -> Result<Vec<PathBuf>> {
        let table_of = |end: &End| self.description.nodes.iter().find(|nodes| nodes.node_type == end.node_type);
        let rows = [&table.src, &table.dst].map(|end| table_of(end).filter(|_| end.column.is_none()));
        let own = table.file.as_ref().map(|files| self.files(files));
        let mut files = own;
        for nodes in rows.into_iter().flatten() {
            let of_nodes = self.files(&nodes.file);
            let files = files.get_or_insert_with(|| of_nodes.clone());
            // Numbers of rows mean the rows of that table.
            if nodes.id.is_none() && *files != of_nodes {
                let help = "name the column that holds the ids: { type = \"...\", column = \"...\" }";
                let expected = format!("the files of `{}`, whose ids are numbers of rows", nodes.node_type);
                return Err(self.error("edges.file", expected, &table.name, help));
            }
        }
        files.ok_or_else(|| {
            let help = "add file = \"...\"";
            self.error("edges.file", format!("the file of `{}`", table.name), "", help)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Plan::read(file.path())
    }

    const TRANSACTIONS: &str = "[[nodes]]\ntype = \"tx\"\nfile = \"t.csv\"\n";

    #[test]
    fn defaults_follow_from_the_tables() {
        let text =
            "[[edges]]\nname = \"pays\"\nsrc = \"account.Source\"\ndst = \"tx\"\n[[shared]]\ncolumn = \"Home Town\"\n";
        let plan = plan(&format!("{TRANSACTIONS}{text}")).unwrap();
        let types: Vec<&str> = plan.types.iter().map(|node_type| node_type.name.as_str()).collect();
        assert_eq!(types, ["tx", "account", "home_town"]);
        assert_eq!((plan.shared[0].name.as_str(), plan.shared[0].nodes.as_str()), ("same_home_town", "tx"));
        assert_eq!((&plan.edge_files[0], &plan.shared[0].files), (&plan.node_files[0], &plan.node_files[0]));
    }

    #[test]
    fn names_that_mean_nothing_or_leave_the_directory_are_refused() {
        let edge = |name: &str, src: &str, dst: &str, more: &str| {
            format!("{TRANSACTIONS}[[edges]]\nname = {name:?}\nsrc = {src:?}\ndst = {dst:?}\n{more}")
        };
        let cases = [
            (edge("../x", "a.A", "tx", ""), "edges.name = \"../x\""),
            (edge("/x", "a.A", "tx", ""), "edges.name = \"/x\""),
            (edge("", "a.A", "tx", ""), "edges.name = \"\""),
            (edge("r", "a/b.A", "tx", ""), "edges.src = \"a/b\""),
            (edge("r", "ty", "tx", ""), "did you mean `tx`?"),
            (edge("r", "a.A", "tx", "time = { column = \"T\", format = \"%Q\" }\n"), "T.format = %Q"),
            (edge("r", "a.A", "b.B", ""), "edges.file"),
            (edge("r", "a.A", "tx", "file = \"other.csv\"\n"), "whose ids are numbers of rows"),
            (edge("r", "a.A", "tx", "[[edges]]\nname = \"r\"\nsrc = \"a.A\"\ndst = \"tx\"\n"), "every relation once"),
            (edge("r", "a.A", "tx", "[[shared]]\ncolumn = \"L\"\nas = \"tx\"\n"), "shared.as"),
            (edge("r", "a.A", "tx", "[[shared]]\ncolumn = \"L\"\nnodes = \"t\"\n"), "nodes = \"tx\""),
            (edge("r", "a.A", "tx", "[[nodes]]\ntype = \"..\"\nfile = \"n.csv\"\n"), "nodes.type = \"..\""),
        ];
        for (text, expected) in cases {
            let error = plan(&text).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(expected), "{error}\nlacks {expected}");
        }
    }
}
