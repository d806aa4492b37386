//! Settings that name columns: which columns they mean.

use crate::config::{Stage3Config, TreeModel};
use crate::error::{Error, Result, nearest_name};
use crate::features::{Column, FeatureTable};
use crate::infer::tree_table::{EMBEDDING, RECONSTRUCTION, STAGE2_EMBEDDING, STAGE2_SCORE};

/// Settings of trees by the place of a column.
#[derive(Debug, Default, PartialEq)]
pub struct ColumnRules {
    /// One sign per column; empty for none.
    pub monotone: Vec<i8>,
    pub categorical: Vec<usize>,
    pub interactions: Vec<Vec<u32>>,
}

impl ColumnRules {
    /// What the settings of `model` mean for `columns`; the features of the data may have names, `features`.
    ///
    /// # Errors
    /// [`Error::Config`] for a name that no column has, or that means a column twice.
    pub fn of(model: &TreeModel, columns: &[Column], features: &[String]) -> Result<Self> {
        let shared = model.shared();
        let named = Named::new(columns, features);
        let mut rules = Self::default();
        for (name, &sign) in &shared.monotone {
            let place = named.place("model.monotone", name)?;
            rules.monotone.resize(columns.len(), 0);
            if std::mem::replace(&mut rules.monotone[place], sign) != 0 {
                return Err(named.refused("model.monotone", name, "each column once", "remove one of its two names"));
            }
        }
        for name in &shared.categorical {
            let place = named.place("model.categorical", name)?;
            if rules.monotone.get(place).is_some_and(|&sign| sign != 0) {
                let help = "categories have no order to be monotone along";
                return Err(named.refused("model.categorical", name, "no column of model.monotone", help));
            }
            rules.categorical.push(place);
        }
        for group in &shared.interactions {
            let places = group.iter().map(|name| Ok(named.place("model.interactions", name)? as u32));
            rules.interactions.push(places.collect::<Result<_>>()?);
        }
        Ok(rules)
    }
}

/// Refuses names that no column can have and categories that are no whole numbers, before any training: `table` has the
/// columns that need none.
///
/// # Errors
/// [`Error::Config`] with the nearest name, [`Error::Data`] for a category.
pub fn check_names(config: &Stage3Config, table: &FeatureTable, features: &[String]) -> Result<()> {
    let shared = config.model.shared();
    let of = &config.features;
    let later = |name: &str| {
        let numbered = |block: &str| {
            let number = name.strip_prefix(block).and_then(|rest| rest.strip_prefix('.'));
            name == block || number.is_some_and(|number| number.parse::<usize>().is_ok())
        };
        of.embedding && numbered(EMBEDDING)
            || of.reconstruction && name == RECONSTRUCTION
            || of.label_share && name.contains("label_")
            || of.stage2_score && name == STAGE2_SCORE
            || of.stage2_embedding && numbered(STAGE2_EMBEDDING)
    };
    let named = Named::new(table.columns(), features);
    let monotone = shared.monotone.keys().map(|name| ("model.monotone", name));
    let categorical = shared.categorical.iter().map(|name| ("model.categorical", name));
    let grouped = shared.interactions.iter().flatten().map(|name| ("model.interactions", name));
    let mut known = monotone.chain(categorical).chain(grouped).filter(|(_, name)| !later(name));
    known.try_for_each(|(key, name)| named.place(key, name).map(drop))?;
    for name in shared.categorical.iter().filter(|name| !later(name)) {
        let column = named.place("model.categorical", name)?;
        check_categories(name, table.column(column))?;
    }
    Ok(())
}

/// Refuses values of a column of `model.categorical` that are no whole numbers.
///
/// # Errors
/// [`Error::Data`] with the first of them.
pub fn check_categories(column: &str, mut values: impl Iterator<Item = f32>) -> Result<()> {
    match values.find(|value| !value.is_nan() && value.fract() != 0.0) {
        None => Ok(()),
        Some(value) => Err(Error::Data {
            what: format!("column `{column}` of model.categorical"),
            expected: "category numbers: whole numbers".into(),
            found: value.to_string(),
            help: "number the categories from 0, or take the column out of model.categorical".into(),
        }),
    }
}

/// Columns by the names that the user has for them and by those of `importance.csv`.
struct Named<'a> {
    columns: &'a [Column],
    own: Vec<String>,
}

impl<'a> Named<'a> {
    fn new(columns: &'a [Column], features: &[String]) -> Self {
        Self { columns, own: columns.iter().map(|column| column.named(features)).collect() }
    }

    fn place(&self, key: &str, name: &str) -> Result<usize> {
        let by_own = self.own.iter().position(|own| own == name);
        let by_table = || self.columns.iter().position(|column| column.name == name);
        by_own.or_else(by_table).ok_or_else(|| {
            let names = self.own.iter().chain(self.columns.iter().map(|column| &column.name));
            let help = match nearest_name(name, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => match self.own.first() {
                    Some(first) => format!("columns are named as in importance.csv, `{first}` is the first of them"),
                    None => "columns are named as in importance.csv".into(),
                },
            };
            let expected = format!("names of the {} columns that trees read", self.columns.len());
            self.refused(key, name, &expected, &help)
        })
    }

    fn refused(&self, key: &str, name: &str, expected: &str, help: &str) -> Error {
        let (origin, found) = ("the configuration".into(), format!("`{name}`"));
        Error::Config { origin, key: key.into(), expected: expected.into(), found, help: help.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ForestConfig;
    use crate::features::Block;

    fn columns() -> Vec<Column> {
        [("x0", Block::Raw), ("x1", Block::Raw), ("mean1.x0", Block::Mean)]
            .map(|(name, block)| Column::new(name, block))
            .into()
    }

    fn model(set: impl FnOnce(&mut ForestConfig)) -> TreeModel {
        let mut forest = ForestConfig::default();
        set(&mut forest);
        TreeModel::Forest(forest)
    }

    #[test]
    fn columns_are_found_by_the_names_of_the_data_and_by_those_of_the_table() {
        let names = ["amount".to_string(), "x0".to_string()];
        let model = model(|forest| {
            forest.shared.monotone = [("mean1.amount".to_string(), -1)].into();
            forest.shared.categorical = vec!["x0".into()];
            forest.shared.interactions = vec![vec!["amount".into(), "x1".into()]];
        });
        let rules = ColumnRules::of(&model, &columns(), &names).unwrap();
        // The data call their second column `x0`.
        assert_eq!((rules.monotone, rules.categorical), (vec![0, 0, -1], vec![1]));
        assert_eq!(rules.interactions, [[0, 1]]);
        let rules = ColumnRules::of(&self::model(|_| {}), &columns(), &names).unwrap();
        assert_eq!(rules, ColumnRules::default());
    }

    #[test]
    fn a_name_of_no_column_is_refused_with_the_nearest_one() {
        let names = ["amount".to_string(), "age".to_string()];
        let refused = |set: fn(&mut ForestConfig)| {
            let mut config = Stage3Config::new("data");
            config.features.stage2_score = true;
            config.model = model(set);
            let [early, late] = [
                check_names(&config, &FeatureTable::zeros(2, columns()), &names).map_err(|error| error.to_string()),
                ColumnRules::of(&config.model, &columns(), &names).map(drop).map_err(|error| error.to_string()),
            ];
            (early, late.unwrap_err())
        };
        let (early, late) = refused(|forest| forest.shared.categorical = vec!["amuont".into()]);
        assert!(early.unwrap_err() == late && late.contains("model.categorical = `amuont`"), "{late}");
        assert!(late.contains("did you mean `amount`?"), "{late}");
        let (early, _) = refused(|forest| forest.shared.monotone = [("embedding.3".to_string(), 1)].into());
        assert!(early.unwrap_err().contains("model.monotone = `embedding.3`"), "there is no embedding");
        let (early, late) = refused(|forest| forest.shared.interactions = vec![vec!["stage2_score".into()]]);
        assert!(early.is_ok() && late.contains("model.interactions"), "what is trained first may be named: {late}");
        let (_, late) =
            refused(|forest| forest.shared.monotone = [("x0", 1), ("amount", 1)].map(|(n, s)| (n.into(), s)).into());
        assert!(late.contains("each column once"), "{late}");
    }
}
