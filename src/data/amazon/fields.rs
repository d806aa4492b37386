//! How single field values of a record are read: brand, price, vote count, date.

/// Words that sellers put where a brand should be.
const PLACEHOLDER_BRANDS: [&str; 9] =
    ["generic", "unknown", "unbranded", "n/a", "na", "none", "no brand", "no name", "amazon"];

/// A brand trimmed, lower-cased and with single spaces; `None` when it is empty, markup or a placeholder.
pub(super) fn clean_brand(raw: &str) -> Option<String> {
    let is_markup = raw.contains(['<', '>', '{', '}']);
    let brand = raw.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let usable = !brand.is_empty() && !is_markup && !PLACEHOLDER_BRANDS.contains(&brand.as_str());
    usable.then_some(brand)
}

/// A price in the file's currency: `"$12.99"`, `"1,250.00"`, or the middle of a range `"$5.00 - $9.00"`. `None` for
/// anything else (style sheets do occur in this field) and for prices that are not positive.
pub(super) fn parse_price(raw: &str) -> Option<f32> {
    let amount = |text: &str| {
        let digits = text.trim().trim_start_matches(['$', '£', '€', '¥', '₹']).trim_start();
        positive(parse_grouped(digits)?)
    };
    match raw.split_once(['-', '–']) {
        None => amount(raw),
        Some((low, high)) => Some((amount(low)? + amount(high)?) / 2.0),
    }
}

/// `value` as a price when it is finite and above zero.
pub(super) fn positive(value: f64) -> Option<f32> {
    (value.is_finite() && value > 0.0 && value < 1e9).then_some(value as f32)
}

/// A count such as `"1,234"`; fractions are cut off, anything else is `None`.
pub(super) fn parse_count(raw: &str) -> Option<u32> {
    parse_grouped(raw.trim()).and_then(count)
}

/// `value` as a count when it is a number in range.
pub(super) fn count(value: f64) -> Option<u32> {
    (value >= 0.0 && value <= f64::from(u32::MAX)).then_some(value as u32)
}

/// Digits with optional thousands commas and one decimal point; no sign, no exponent, no words.
fn parse_grouped(text: &str) -> Option<f64> {
    let plain = text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && text.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '.');
    plain.then(|| text.replace(',', "").parse().ok()).flatten()
}

/// Seconds since 1970 of a `"06 17, 2018"` (month day, year).
pub(super) fn parse_date(raw: &str) -> Option<u32> {
    let mut parts = raw.split([' ', ',']).filter(|part| !part.is_empty());
    let mut next = || parts.next()?.parse::<i64>().ok();
    let (month, day, year) = (next()?, next()?, next()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1970..2106).contains(&year) {
        return None;
    }
    // Days from the civil calendar, counting years from March so that the leap day comes last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    u32::try_from(days * 86_400).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brands_are_normalised_and_placeholders_dropped() {
        assert_eq!(clean_brand("  The  Home\nDepot "), Some("the home depot".into()));
        for junk in ["", "  ", "Generic", "N/A", "AMAZON", "No Brand", "<span class=\"a\">x</span>", ".a{b}"] {
            assert_eq!(clean_brand(junk), None, "{junk}");
        }
    }

    #[test]
    fn prices_are_read_from_every_form_that_occurs() {
        assert_eq!(parse_price("$12.99"), Some(12.99));
        assert_eq!(parse_price("$1,250.00"), Some(1250.0));
        assert_eq!(parse_price("$5.00 - $9.00"), Some(7.0));
        for junk in ["", "\n\t ", ".a-box-inner{background:#fff}", "NaN", "inf", "-3", "$0.00", "1e400", "from $3", "-"]
        {
            assert_eq!(parse_price(junk), None, "{junk}");
        }
        assert_eq!(positive(f64::NAN), None);
    }

    #[test]
    fn counts_may_carry_thousands_commas() {
        assert_eq!(parse_count("1,234"), Some(1234));
        assert_eq!(parse_count("two"), None);
        assert_eq!(count(f64::NAN), None);
    }

    #[test]
    fn dates_become_unix_seconds() {
        assert_eq!(parse_date("06 17, 2018"), Some(1_529_193_600));
        assert_eq!(parse_date("02 29, 2012"), Some(1_330_473_600));
        assert_eq!(parse_date("17 June 2018"), None);
    }
}
