//! What somebody probably meant who wrote a name that is not known.

/// The one of `known` names that `word` was probably meant to be, whatever the case: at most a third of its letters
/// differ (one of a short word), or one of the two begins with the other. A right key in the wrong section, e.g.
/// `epochs` or `model.epochs` for `train.epochs`, counts as near.
pub(crate) fn nearest_name<'k, N: AsRef<str> + ?Sized + 'k>(
    word: &str,
    known: impl IntoIterator<Item = &'k N>,
) -> Option<&'k str> {
    let word = word.to_lowercase();
    let faults = |name: &str| {
        let name = name.to_lowercase();
        let whole = strsim::damerau_levenshtein(&word, &name);
        let of_last = strsim::damerau_levenshtein(last_key(&word), last_key(&name));
        let begins = word.starts_with(&name) || name.starts_with(&word);
        let near = |faults: usize, word: &str| faults <= allowed(word);
        let fewest = match (near(whole, &word), near(of_last, last_key(&word))) {
            (true, _) => whole,
            (false, true) => of_last,
            (false, false) if begins => allowed(&word),
            (false, false) => return None,
        };
        Some((fewest, whole))
    };
    let near = known.into_iter().filter_map(|name| Some((faults(name.as_ref())?, name.as_ref())));
    near.min_by_key(|(faults, _)| *faults).map(|(_, name)| name)
}

/// What serde says of a key or a value that it does not know: whether it is a key, the word, and the known ones.
pub(crate) struct UnknownName<'m> {
    pub is_key: bool,
    pub found: &'m str,
    pub known: Vec<&'m str>,
}

impl<'m> UnknownName<'m> {
    /// Reads serde's wording: "unknown field `x`, expected one of `a`, `b`".
    pub fn read(message: &'m str) -> Option<Self> {
        let is_key = message.starts_with("unknown field");
        if !is_key && !message.starts_with("unknown variant") {
            return None;
        }
        let mut quoted = message.split('`').skip(1).step_by(2);
        Some(Self { is_key, found: quoted.next()?, known: quoted.collect() })
    }

    /// The known one that is nearest.
    pub fn nearest(&self) -> Option<&'m str> {
        nearest_name(self.found, self.known.iter().copied())
    }
}

fn last_key(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or_default()
}

fn allowed(word: &str) -> usize {
    word.chars().count().max(3) / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_forgives_typos_and_a_wrong_section() {
        let keys = ["train.epochs", "train.learning_rate", "drop_edge.rate", "split.seed", "ids"];
        let cases = [
            ("train.epoch", Some("train.epochs")),
            ("epochs", Some("train.epochs")),
            ("model.epochs", Some("train.epochs")),
            ("dropedge.rate", Some("drop_edge.rate")),
            ("train.Learning_Rate", Some("train.learning_rate")),
            ("isd", Some("ids")),
            ("identities", None),
            ("ids_of_nodes", Some("ids")),
            ("zzz", None),
        ];
        for (word, near) in cases {
            assert_eq!(nearest_name(word, keys), near, "{word}");
        }
        assert_eq!(nearest_name("ty", ["id", "tx"]), Some("tx"));
    }

    #[test]
    fn what_serde_does_not_know_is_read_from_its_message() {
        let message = "unknown field `wdth`, expected one of `kind`, `width`";
        let unknown = UnknownName::read(message).unwrap();
        assert_eq!((unknown.is_key, unknown.found, unknown.nearest()), (true, "wdth", Some("width")));
        assert!(UnknownName::read("missing field `kind`").is_none());
    }
}
