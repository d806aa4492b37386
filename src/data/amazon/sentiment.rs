//! VADER compound sentiment of a text.
//!
//! # Source
//! Hutto & Gilbert, "VADER: A Parsimonious Rule-based Model for Sentiment Analysis of Social Media Text", ICWSM 2014.
//! The lexicons come from the crate `vader_sentiment`; the rules are here, because that crate walks hash maps of random
//! order while it adds up, so that equal texts can differ in their last digits between runs, and because it adds the
//! weight of every intensifier that occurs inside any of the three words before ("so" in "also").

use std::collections::HashMap;
use std::sync::LazyLock;

const INTENSIFY: f64 = 0.293;
const CAPITALS: f64 = 0.733;
const NEGATE: f64 = -0.74;
/// Square of the sum of valences at which the compound score is 1/sqrt(2).
const NORMALISATION: f64 = 15.0;

const INTENSIFIERS: &str = "absolutely amazingly awfully completely considerable considerably decidedly deeply effing \
    enormous enormously entirely especially exceptional exceptionally extreme extremely fabulously flipping flippin \
    frackin fracking fricking frickin frigging friggin fully fuckin fucking fuggin fugging greatly hella highly hugely \
    incredible incredibly intensely major majorly more most particularly purely quite really remarkably so \
    substantially thoroughly total totally tremendous tremendously uber unbelievably unusually utter utterly very";
const DAMPENERS: &str = "almost barely hardly kinda kindof kind-of less little marginal marginally occasional \
    occasionally partly scarce scarcely slight slightly somewhat sorta sortof sort-of";
const DAMPENING_PHRASES: [[&str; 2]; 3] = [["just", "enough"], ["kind", "of"], ["sort", "of"]];
/// Every other negation holds "n't".
const NEGATIONS: &str = "aint arent cannot cant couldnt darent didnt doesnt dont hadnt hasnt havent isnt mightnt \
    mustnt neither neednt never none nope nor not nothing nowhere oughtnt shant shouldnt uhuh uh-uh wasnt werent \
    without wont wouldnt rarely seldom despite";
const IDIOMS: [(&[&str], f64); 8] = [
    (&["the", "shit"], 3.0),
    (&["the", "bomb"], 3.0),
    (&["bad", "ass"], 1.5),
    (&["bus", "stop"], 0.0),
    (&["yeah", "right"], -2.0),
    (&["kiss", "of", "death"], -1.5),
    (&["to", "die", "for"], 3.0),
    (&["beating", "heart"], 3.5),
];

#[derive(Clone, Copy, Default)]
struct Entry {
    valence: Option<f64>,
    boost: f64,
    negates: bool,
}

static LEXICON: LazyLock<HashMap<String, Entry>> = LazyLock::new(|| {
    let mut lexicon: HashMap<String, Entry> = HashMap::new();
    for (word, valence) in vader_sentiment::LEXICON.iter() {
        lexicon.entry(word.to_lowercase()).or_default().valence = Some(*valence);
    }
    for (words, boost) in [(INTENSIFIERS, INTENSIFY), (DAMPENERS, -INTENSIFY)] {
        words.split_whitespace().for_each(|word| lexicon.entry(word.into()).or_default().boost = boost);
    }
    NEGATIONS.split_whitespace().for_each(|word| lexicon.entry(word.into()).or_default().negates = true);
    lexicon
});

struct Token<'a> {
    lower: &'a str,
    entry: Entry,
    capitals: bool,
}

/// Compound score in [-1, 1]: -1 is most negative, 0 neutral (also for a text without words), 1 most positive.
pub(super) fn compound(text: &str) -> f64 {
    let text = describe_emoji(text);
    let lower = text.to_lowercase();
    let tokens: Vec<Token> = text
        .split_whitespace()
        .zip(lower.split_whitespace())
        .map(|(word, lower)| {
            let lower = trim_punctuation(lower);
            let mut entry = LEXICON.get(lower).copied().unwrap_or_default();
            entry.negates |= lower.contains("n't");
            Token { lower, entry, capitals: is_upper(word) }
        })
        .collect();
    let capitals = tokens.iter().filter(|token| token.capitals).count();
    let stress_capitals = capitals > 0 && capitals < tokens.len();

    let but = tokens.iter().position(|token| token.lower == "but");
    let sum: f64 = (0..tokens.len())
        .map(|i| {
            let weight = match but {
                Some(but) if i < but => 0.5,
                Some(but) if i > but => 1.5,
                _ => 1.0,
            };
            weight * valence(&tokens, i, stress_capitals)
        })
        .sum();
    let sum = if sum == 0.0 { 0.0 } else { sum + sum.signum() * punctuation_emphasis(&text) };
    (sum / (sum * sum + NORMALISATION).sqrt()).clamp(-1.0, 1.0)
}

fn valence(tokens: &[Token], i: usize, stress_capitals: bool) -> f64 {
    let token = &tokens[i];
    let followed_by = |word: &str| tokens.get(i + 1).is_some_and(|next| next.lower == word);
    let Some(base) = token.entry.valence else { return 0.0 };
    if token.entry.boost != 0.0 || (token.lower == "kind" && followed_by("of")) {
        return 0.0;
    }
    let before = |back: usize| (i >= back).then(|| &tokens[i - back]);
    let is = |back: usize, words: &[&str]| before(back).is_some_and(|token| words.contains(&token.lower));

    // "no" in front of a word with sentiment is a negation, not a sentiment of its own.
    let mut valence = base;
    if token.lower == "no" && tokens.get(i + 1).is_some_and(|next| next.entry.valence.is_some()) {
        valence = 0.0;
    }
    if is(1, &["no"]) || is(2, &["no"]) || (is(3, &["no"]) && is(1, &["or", "nor"])) {
        valence = base * NEGATE;
    }
    if token.capitals && stress_capitals {
        valence += CAPITALS.copysign(valence);
    }
    for back in 1..=3 {
        let Some(earlier) = before(back).filter(|earlier| earlier.entry.valence.is_none()) else { continue };
        let distance = [1.0, 0.95, 0.9][back - 1];
        valence += distance * boost(earlier, valence, stress_capitals);
        let never_so = match back {
            1 => false,
            2 => is(2, &["never"]) && is(1, &["so", "this"]),
            _ => (is(3, &["never"]) && is(2, &["so", "this"])) || is(1, &["so", "this"]),
        };
        let without_doubt = is(back, &["without"]) && (1..back).any(|b| is(b, &["doubt"]));
        if never_so {
            valence *= 1.25;
        } else if earlier.entry.negates && !without_doubt {
            valence *= NEGATE;
        }
        if back == 3 {
            valence = idioms(tokens, i, valence);
        }
    }
    if is(1, &["least"]) && !is(2, &["at", "very"]) {
        valence *= NEGATE;
    }
    valence
}

/// What an intensifier or dampener adds to the valence of a word behind it.
fn boost(token: &Token, valence: f64, stress_capitals: bool) -> f64 {
    if token.entry.boost == 0.0 {
        return 0.0;
    }
    let direction = if valence < 0.0 { -1.0 } else { 1.0 };
    let stress = if token.capitals && stress_capitals { CAPITALS } else { 0.0 };
    // The sign of the stress follows the valence, that of the boost follows valence and kind of word.
    direction * token.entry.boost + if valence > 0.0 { stress } else { -stress }
}

/// Phrases around word `i` whose meaning is not that of their words; needs three words before `i`.
fn idioms(tokens: &[Token], i: usize, valence: f64) -> f64 {
    let matches = |start: usize, phrase: &[&str]| {
        tokens
            .get(start..start + phrase.len())
            .is_some_and(|window| window.iter().map(|t| t.lower).eq(phrase.iter().copied()))
    };
    let nearby = |phrase: &[&str]| (i - 3..=i).any(|start| matches(start, phrase));
    let idiom = IDIOMS.iter().find(|(phrase, _)| nearby(phrase)).map(|(_, value)| *value);
    let dampened = DAMPENING_PHRASES.iter().filter(|phrase| matches(i - 3, *phrase) || matches(i - 2, *phrase)).count();
    idiom.unwrap_or(valence) - INTENSIFY * dampened as f64
}

/// Up to four exclamation marks and any number of question marks (from two on) strengthen a text.
fn punctuation_emphasis(text: &str) -> f64 {
    let occurrences = |mark: u8| text.bytes().filter(|&byte| byte == mark).count();
    let questions = match occurrences(b'?') {
        0 | 1 => 0.0,
        n @ (2 | 3) => n as f64 * 0.18,
        _ => 0.96,
    };
    occurrences(b'!').min(4) as f64 * 0.292 + questions
}

/// `word` without punctuation around it, unless almost nothing would be left (an emoticon).
fn trim_punctuation(word: &str) -> &str {
    let stripped = word.trim_matches(|c: char| c.is_ascii_punctuation());
    if stripped.len() <= 2 { word } else { stripped }
}

fn is_upper(word: &str) -> bool {
    word.chars().any(char::is_uppercase) && !word.chars().any(char::is_lowercase)
}

/// `text` with every emoji replaced by its description in words.
fn describe_emoji(text: &str) -> std::borrow::Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    let mut result = String::with_capacity(text.len());
    let mut buffer = [0; 4];
    for character in text.chars() {
        match vader_sentiment::EMOJI_LEXICON.get(&*character.encode_utf8(&mut buffer)) {
            Some(description) if !character.is_ascii() => {
                if !result.is_empty() && !result.ends_with(' ') {
                    result.push(' ');
                }
                result.push_str(description);
            }
            _ => result.push(character),
        }
    }
    result.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(text: &str, expected: f64) {
        assert!((compound(text) - expected).abs() < 5e-5, "{text}: {}", compound(text));
    }

    #[test]
    fn scores_agree_with_the_published_implementation() {
        // Values of vaderSentiment 3.3.2.
        assert_close("Another great gift.", 0.7906);
        assert_close("VADER is smart, handsome, and funny!", 0.8439);
        assert_close("VADER is VERY SMART, handsome, and FUNNY!!!", 0.9342);
        assert_close("The book was good.", 0.4404);
        assert_close("At least it isn't a horrible book.", 0.4310);
        assert_close("The plot was good, but the characters are uncompelling and the dialog is not great.", -0.7042);
        assert_close("Today SUX!", -0.5461);
        assert_close("Make sure you :) or :D today!", 0.8633);
        assert_close("Not bad at all", 0.4310);
        assert_close("never so happy with a purchase", 0.6948);
        assert_close("no problem, kind of slow", 0.3089);
        assert_close("😁 is what I say", 0.4588);
        assert_close("it is without doubt excellent", 0.7013);
        assert_close("the least useful gift", 0.1265);
        assert_close("???what a waste??", -0.5803);
        assert_close("this is really the shit and I love it", 0.8481);
        assert_close("It was hardly worth it", 0.1548);
        assert_close("I also like this so much", 0.3612);
    }

    #[test]
    fn odd_texts_are_scored_without_a_panic() {
        for text in ["", " ", "!", "?!", "\u{0}", "İİ İ", "но", "😀", "👩‍👩‍👧", "a\u{301}", ":)", "no", "least"]
        {
            assert!(compound(text).abs() <= 1.0, "{text}");
        }
        let long = "not so very good, but ".repeat(20_000);
        assert!(compound(&long).abs() <= 1.0);
    }
}
