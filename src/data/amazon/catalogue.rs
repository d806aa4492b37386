//! Products, sellers and categories from the metadata file.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use super::fields;
use super::json_lines::{self, JsonLines, LineReport, Malformed};
use super::loose::Loose;
use super::python_literal;
use crate::data::Progress;
use crate::data::text::ragged::Ragged;
use crate::data::text::terms::{Term, TermCounter};
use crate::error::Result;

/// Categories kept of one product, and the longest name taken for one: newer files mix whole feature sentences in.
const MAX_CATEGORIES: usize = 16;
const MAX_CATEGORY_BYTES: usize = 80;

/// One product, apart from its id, categories and terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Product {
    /// Currency units of the file; `None` when missing or unreadable.
    pub price: Option<f32>,
    /// Index into [`Catalogue::sellers`].
    pub seller: Option<u32>,
    /// Whether the title names the brand; `None` without a brand.
    pub brand_in_title: Option<bool>,
    /// How many products the page lists as bought with this one.
    pub also_buy: u32,
}

/// Everything the metadata says, products in the order of their ids.
#[derive(Default)]
pub(super) struct Catalogue {
    /// Product ids, sorted.
    pub ids: Vec<String>,
    pub products: Vec<Product>,
    /// Seller names, sorted.
    pub sellers: Vec<String>,
    /// Categories of each product, from general to special, as indices into `category_names`.
    pub categories: Ragged<u32>,
    pub category_names: Vec<String>,
    /// Hashed words of title and description; without rows when they were not asked for.
    pub terms: Ragged<Term>,
    /// Records dropped because an earlier one had the same id.
    pub duplicates: u64,
    pub report: LineReport,
}

impl Catalogue {
    /// Reads `source`; `with_terms` also keeps the hashed words of every product.
    ///
    /// # Errors
    /// Those of [`json_lines::read`].
    pub fn read(source: &JsonLines, with_terms: bool, progress: &dyn Fn(Progress)) -> Result<Self> {
        let mut builder = Builder::default();
        let report = json_lines::read(source, progress, |line| parse(line, with_terms), |record| builder.add(record))?;
        Ok(builder.finish(with_terms, report))
    }

    /// Local product id of `asin`.
    pub fn find(&self, asin: &str) -> Option<u32> {
        self.ids.binary_search_by(|id| id.as_str().cmp(asin)).ok().map(|i| i as u32)
    }
}

/// One metadata record after cleaning.
#[derive(Debug)]
struct ProductRecord {
    id: String,
    price: Option<f32>,
    brand: Option<String>,
    brand_in_title: Option<bool>,
    categories: Vec<String>,
    also_buy: u32,
    terms: Vec<Term>,
}

/// The fields of both vintages; whichever is missing stays `Null`.
#[derive(Deserialize)]
struct RawProduct<'a> {
    #[serde(borrow, default)]
    asin: Loose<'a>,
    #[serde(borrow, default)]
    title: Loose<'a>,
    #[serde(borrow, default)]
    description: Loose<'a>,
    #[serde(borrow, default)]
    brand: Loose<'a>,
    #[serde(borrow, default)]
    price: Loose<'a>,
    #[serde(borrow, default)]
    category: Loose<'a>,
    #[serde(borrow, default)]
    categories: Loose<'a>,
    #[serde(borrow, default)]
    also_buy: Loose<'a>,
    #[serde(borrow, default)]
    also_bought: Loose<'a>,
    #[serde(borrow, default)]
    related: Loose<'a>,
}

fn parse(line: &str, with_terms: bool) -> Result<ProductRecord, Malformed> {
    match serde_json::from_str::<RawProduct>(line) {
        Ok(raw) => product(&raw, with_terms),
        Err(error) => {
            // The 2014 files hold Python dictionaries.
            let json = python_literal::to_json(line);
            match json.as_deref().and_then(|json| serde_json::from_str::<RawProduct>(json).ok()) {
                Some(raw) => product(&raw, with_terms),
                None => Err(Malformed { expected: "a JSON object with a product", found: error.to_string() }),
            }
        }
    }
}

fn product(raw: &RawProduct, with_terms: bool) -> Result<ProductRecord, Malformed> {
    let id = raw.asin.text().trim();
    if id.is_empty() {
        return Err(Malformed { expected: "a product with `asin`", found: "no such text field".into() });
    }
    // Some pages were scraped as scripts; those words describe nothing.
    let title = if raw.title.text().contains("getTime()") { "" } else { raw.title.text() };
    let brand = fields::clean_brand(raw.brand.text());
    let brand_in_title = brand.as_ref().map(|brand| title.to_lowercase().contains(brand.as_str()));
    let also_buy =
        [Some(&raw.also_buy), Some(&raw.also_bought), raw.related.get("also_buy"), raw.related.get("also_bought")]
            .into_iter()
            .flatten()
            .map(distinct_texts)
            .max()
            .unwrap_or(0);

    let mut categories: Vec<String> = Vec::new();
    for list in [&raw.category, &raw.categories] {
        list.for_each_text(&mut |name| {
            let name = name.trim();
            let usable = !name.is_empty() && name.len() <= MAX_CATEGORY_BYTES && !name.contains(['<', '>']);
            if usable && categories.len() < MAX_CATEGORIES && !categories.iter().any(|known| known == name) {
                categories.push(name.to_owned());
            }
        });
    }
    let mut terms = TermCounter::default();
    if with_terms {
        terms.add(title);
        raw.description.for_each_text(&mut |text: &str| terms.add(text));
    }
    Ok(ProductRecord {
        id: id.to_owned(),
        price: raw.price.price(),
        brand,
        brand_in_title,
        categories,
        also_buy,
        terms: terms.finish(),
    })
}

fn distinct_texts(list: &Loose) -> u32 {
    let mut texts = Vec::new();
    list.for_each_text(&mut |text| texts.push(text.to_owned()));
    texts.sort_unstable();
    texts.dedup();
    texts.len() as u32
}

#[derive(Default)]
struct Builder {
    known: HashSet<String>,
    ids: Vec<String>,
    products: Vec<Product>,
    sellers: Interner,
    categories: Ragged<u32>,
    category_names: Interner,
    terms: Ragged<Term>,
    duplicates: u64,
}

impl Builder {
    fn add(&mut self, record: ProductRecord) {
        if !self.known.insert(record.id.clone()) {
            self.duplicates += 1;
            return;
        }
        self.products.push(Product {
            price: record.price,
            seller: record.brand.map(|brand| self.sellers.index(brand)),
            brand_in_title: record.brand_in_title,
            also_buy: record.also_buy,
        });
        let names = &mut self.category_names;
        self.categories.push_row(record.categories.into_iter().map(|name| names.index(name)));
        self.terms.push_row(record.terms);
        self.ids.push(record.id);
    }

    fn finish(mut self, with_terms: bool, report: LineReport) -> Catalogue {
        drop(self.known);
        let order = sorted_order(&self.ids);
        let seller_order = sorted_order(&self.sellers.names);
        let seller_rank = inverse(&seller_order);
        let products = order.iter().map(|&old| {
            let product = self.products[old as usize];
            Product { seller: product.seller.map(|s| seller_rank[s as usize]), ..product }
        });
        Catalogue {
            products: products.collect(),
            sellers: take_in_order(&mut self.sellers.names, &seller_order),
            categories: self.categories.reordered(&order),
            category_names: self.category_names.names,
            terms: if with_terms { self.terms.reordered(&order) } else { Ragged::default() },
            ids: take_in_order(&mut self.ids, &order),
            duplicates: self.duplicates,
            report,
        }
    }
}

/// Numbers distinct texts in order of first appearance.
#[derive(Default)]
pub(super) struct Interner {
    index: HashMap<String, u32>,
    pub names: Vec<String>,
}

impl Interner {
    pub fn index(&mut self, name: String) -> u32 {
        if let Some(&index) = self.index.get(&name) {
            return index;
        }
        let index = self.names.len() as u32;
        self.names.push(name.clone());
        self.index.insert(name, index);
        index
    }
}

/// Positions of `names` in ascending order of the names.
pub(super) fn sorted_order(names: &[String]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..names.len() as u32).collect();
    order.sort_unstable_by(|&a, &b| names[a as usize].cmp(&names[b as usize]));
    order
}

/// `inverse(order)[order[i]] == i`.
pub(super) fn inverse(order: &[u32]) -> Vec<u32> {
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, &old)| rank[old as usize] = new as u32);
    rank
}

/// The names in the given order; `names` is left empty.
pub(super) fn take_in_order(names: &mut Vec<String>, order: &[u32]) -> Vec<String> {
    let sorted = order.iter().map(|&old| std::mem::take(&mut names[old as usize])).collect();
    names.clear();
    sorted
}
