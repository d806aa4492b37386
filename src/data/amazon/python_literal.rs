//! Records written as Python dictionaries (`{'asin': '0001', 'price': 3.5}`), the form of the 2014 metadata files.

/// The JSON text of a line that holds a Python literal of dictionaries, lists, strings, numbers, `True`, `False` and
/// `None`; `None` when it holds anything else.
pub(super) fn to_json(line: &str) -> Option<String> {
    let bytes = line.as_bytes();
    let mut json = String::with_capacity(line.len() + 16);
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'\'' | b'"') => {
                let (text, end) = string(bytes, at + 1, quote)?;
                json.push_str(&serde_json::to_string(&text).ok()?);
                at = end;
            }
            b'u' | b'b' | b'r' if matches!(bytes.get(at + 1), Some(b'\'' | b'"')) => at += 1,
            letter if letter.is_ascii_alphabetic() && !continues_number(bytes, at) => {
                let end = at + bytes[at..].iter().take_while(|b| b.is_ascii_alphabetic()).count();
                json.push_str(match &line[at..end] {
                    "True" => "true",
                    "False" => "false",
                    "None" | "nan" | "inf" => "null",
                    _ => return None,
                });
                at = end;
            }
            ascii if ascii.is_ascii() => {
                json.push(char::from(ascii));
                at += 1;
            }
            _ => return None,
        }
    }
    Some(json)
}

/// Whether the letter at `at` is the exponent of a number such as `1e-05`.
fn continues_number(bytes: &[u8], at: usize) -> bool {
    matches!(bytes[at], b'e' | b'E') && at > 0 && (bytes[at - 1].is_ascii_digit() || bytes[at - 1] == b'.')
}

/// The string whose first byte is at `at`, and the position after its closing quote.
fn string(bytes: &[u8], mut at: usize, quote: u8) -> Option<(String, usize)> {
    // Bytes, not characters: old files spell UTF-8 as `\xe2\x80\x99`.
    let mut text = Vec::new();
    loop {
        let byte = *bytes.get(at)?;
        at += 1;
        if byte == quote {
            return Some((String::from_utf8_lossy(&text).into_owned(), at));
        }
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        let escape = *bytes.get(at)?;
        at += 1;
        match escape {
            b'n' => text.push(b'\n'),
            b't' => text.push(b'\t'),
            b'r' => text.push(b'\r'),
            b'\\' | b'\'' | b'"' => text.push(escape),
            b'x' => {
                text.push(hex(bytes, at, 2)? as u8);
                at += 2;
            }
            b'u' | b'U' => {
                let digits = if escape == b'u' { 4 } else { 8 };
                let character = char::from_u32(hex(bytes, at, digits)?).unwrap_or(char::REPLACEMENT_CHARACTER);
                text.extend(character.encode_utf8(&mut [0; 4]).bytes());
                at += digits;
            }
            other => text.extend([b'\\', other]),
        }
    }
}

fn hex(bytes: &[u8], at: usize, digits: usize) -> Option<u32> {
    let text = std::str::from_utf8(bytes.get(at..at + digits)?).ok()?;
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_dictionary_becomes_json() {
        let line =
            r#"{'asin': '0001', "title": "It's \"3\"", 'price': 1e-05, 'ok': True, 'x': None, 'c': [['A', u'B']]}"#;
        let value: serde_json::Value = serde_json::from_str(&to_json(line).unwrap()).unwrap();
        let expected = serde_json::json!({"asin": "0001", "title": "It's \"3\"", "price": 1e-5, "ok": true, "x": null,
            "c": [["A", "B"]]});
        assert_eq!(value, expected);
    }

    #[test]
    fn escaped_bytes_are_read_as_utf8() {
        assert_eq!(to_json(r"'it\xe2\x80\x99s \u00e9'").unwrap(), "\"it\u{2019}s é\"");
    }

    #[test]
    fn anything_else_is_refused_without_a_panic() {
        for junk in ["{'a': open('x')}", "{'a", r"'\x", r"'\u12", "é", "'\\"] {
            assert_eq!(to_json(junk), None, "{junk}");
        }
    }
}
