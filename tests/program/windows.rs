//! Windowed features: what the description asks for, what suits the data, and labels that become known one by one.

use graphsieve::graph::Dataset;
use serde_json::Value;

use crate::events::{BY_CARD, BY_TIME, DAY, EVENTS, imported, payments, tables};
use crate::support::Sandbox;

/// A column may say when a label became known and a delay where windows of labels end; measures may be chosen.
#[test]
fn windows_have_the_measures_and_labels_that_the_description_names() {
    let label = "label = { column = \"fraud\", delay = \"2d\" }";
    let said = "label = { column = \"fraud\", delay = \"2d\", known = \"said\" }";
    let events = EVENTS.replace(label, said).replace("last = [3]", "last = [3]\nmeasures = [\"mean\", \"count\"]");
    let sandbox = tables(&payments(150), &format!("{BY_TIME}{events}"));
    let table = String::from_utf8(sandbox.read("payments.csv")).unwrap();
    // Labels of the first ten days become known on the eighteenth, the others a day after their events.
    let when = |line: &str| {
        let time: i64 = line.split(',').nth(1).unwrap().parse().unwrap();
        if time < 10 * DAY { 18 * DAY } else { time + DAY }
    };
    let rows: Vec<String> = table.lines().skip(1).map(|line| format!("{line},{}", when(line))).collect();
    sandbox.write("payments.csv", format!("id,time,card,shop,amount,fraud,said\n{}\n", rows.join("\n")));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    let data = Dataset::open(&sandbox.path("data")).unwrap();
    let names = data.feature_names.as_ref().unwrap();
    let of_spans: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("payment.card_7d_")).collect();
    let one_hop = ["other_shop_z", "other_shop_over_mean"];
    let labels = ["known_frauds", "fraud_share", "first_fraud_days"];
    assert_eq!(of_spans, [&["count", "mean"][..], &labels, &one_hop].concat());
    // Standardised values: what is not known is the same everywhere.
    let share = names.iter().position(|name| name == "payment.card_7d_fraud_share").unwrap();
    let (events, features) = (data.events.as_ref().unwrap(), data.features.as_ref().unwrap());
    let value = |event: usize| features.row(event).nth(share).unwrap();
    let of_days =
        |from: i64, to: i64| (0..150).filter(move |&event| (from * DAY..to * DAY).contains(&events.time[event]));
    let unknown = value(0);
    assert!(of_days(3, 12).all(|event| value(event) == unknown), "no label is known before the eighteenth day");
    assert!(of_days(14, 25).any(|event| value(event) != unknown));
}

type Row = [String; 6];

fn time(row: &Row) -> i64 {
    row[1].parse().unwrap()
}

/// A fraud becomes known nearly two days after its payment, that a payment is none within an hour.
fn soon(row: &Row) -> i64 {
    time(row) + if row[5] == "1" { 2 * DAY - 100 } else { 3_600 }
}

/// The payments with a column `said` of when each label became known.
fn tables_with_known(rows: &[Row], description: &str, known: impl Fn(&Row) -> i64) -> Sandbox {
    let sandbox = tables(rows, description);
    let lines: Vec<String> = rows.iter().map(|row| format!("{},{}", row.join(","), known(row))).collect();
    sandbox.write("payments.csv", format!("id,time,card,shop,amount,fraud,said\n{}\n", lines.join("\n")));
    sandbox
}

/// [`EVENTS`] with all measures, where a column alone says when a label became known.
fn known_alone() -> String {
    let all = "[\"count\", \"sum\", \"mean\", \"deviation\", \"largest\", \"distinct\", \"over_mean\", \"z\"";
    let measures = format!("last = [3]\nlast_measures = {all}]\none_hop_measures = {all}, \"fraud_share\"]");
    EVENTS.replace("delay = \"2d\"", "known = \"said\"").replace("last = [3]", &measures)
}

#[test]
fn a_column_alone_may_say_when_labels_became_known() {
    let rows = payments(150);
    let sandbox = tables_with_known(&rows, &format!("{BY_TIME}{}", known_alone()), soon);
    let said = sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]).stdout;
    assert!(said.contains("2d are left out before validation and test"), "{said}");
    let data = Dataset::open(&sandbox.path("data")).unwrap();
    let times = data.split.as_ref().unwrap().times().unwrap();
    assert_eq!((times.validation, times.test), ([15 * DAY, 19 * DAY], [21 * DAY, 25 * DAY]));
    let names = data.feature_names.as_ref().unwrap();
    let column =
        |name: &str| names.iter().position(|of| of == name).unwrap_or_else(|| panic!("no {name} in {names:?}"));
    for name in ["card_last_3_distinct_shop", "card_last_3_z", "shop_3d_other_card_deviation"] {
        column(&format!("payment.{name}"));
    }
    // In the order of the windowed values: scales keep it.
    let (share, features) = (column("payment.card_7d_known_frauds"), data.features.as_ref().unwrap());
    let value = |event: usize| features.row(event).nth(share).unwrap();
    let frauds = |event: usize| {
        let (now, from) = (time(&rows[event]), time(&rows[event]) - 7 * DAY);
        let of_card = rows.iter().filter(|row| row[2] == rows[event][2] && row[5] == "1");
        of_card.filter(|row| (from..now).contains(&soon(row))).count()
    };
    let mut by_count: Vec<(usize, f32)> = (0..150).map(|event| (frauds(event), value(event))).collect();
    by_count.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert!(by_count[149].0 > 0);
    for pair in by_count.windows(2) {
        assert_eq!(pair[0].0 == pair[1].0, pair[0].1 == pair[1].1, "{pair:?}");
    }
}

/// What becomes known later than a row changes nothing of it: not a label, nor when it became known, nor what is new.
#[test]
fn a_label_that_becomes_known_later_changes_nothing_before() {
    let until = 12 * DAY;
    let rows = payments(150);
    let first = |rows: &[Row], gap: &str, known: &dyn Fn(&Row) -> i64| {
        let split = format!("{BY_TIME}test_from = \"1970-01-19\"\n{gap}");
        let sandbox = tables_with_known(rows, &format!("{split}{}", known_alone()), known);
        sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
        let data = Dataset::open(&sandbox.path("data")).unwrap();
        let features = data.features.as_ref().unwrap();
        let before = rows.iter().filter(|row| time(row) < until).count();
        let values: Vec<Vec<u32>> = (0..before).map(|row| features.row(row).map(f32::to_bits).collect()).collect();
        (values, data.split.unwrap().times())
    };
    let gap = "gap = \"2d\"\n";
    let expected = first(&rows, gap, &soon);
    assert!(expected.0.len() > 60);
    let flipped = |is_later: &dyn Fn(&Row) -> bool| -> Vec<Row> {
        let flip = |row: &Row| {
            let mut row = row.clone();
            if is_later(&row) {
                row[5] = if row[5] == "0" { "1" } else { "0" }.into();
            }
            row
        };
        rows.iter().map(flip).collect()
    };
    let is_later = |row: &Row| soon(&rows[row[0].parse::<usize>().unwrap()]) >= until;
    // Another label, known just after: what is said of others may not move.
    let late = |row: &Row| {
        let of = &rows[row[0].parse::<usize>().unwrap()];
        if is_later(row) { soon(of) + 1 } else { soon(of) }
    };
    assert_eq!(first(&flipped(&is_later), gap, &late), expected);
    let whole = first(&rows, gap, &|row: &Row| if soon(row) >= until { soon(row).max(20 * DAY) } else { soon(row) });
    assert_eq!(whole.0, expected.0);
    // The check notices a label that was known by then.
    let early = |row: &Row| (9 * DAY..11 * DAY).contains(&soon(&rows[row[0].parse::<usize>().unwrap()]));
    let of_others = |row: &Row| soon(&rows[row[0].parse::<usize>().unwrap()]);
    assert_ne!(first(&flipped(&early), gap, &of_others).0, expected.0);
    // The gap that labels decide about is that of labels known when the test began.
    let of_test = |row: &Row| if soon(row) >= 18 * DAY { 900 * DAY } else { soon(row) };
    assert_eq!(first(&rows, "", &of_test), first(&rows, "", &soon));
}

#[test]
fn windows_that_suit_the_training_rows_are_printed_and_stored_for_other_tables() {
    let events = EVENTS.replace("spans = [\"1d\", \"7d\"]\nlast = [3]\n", "");
    let description = format!("{BY_TIME}{events}");
    let rows = payments(150);
    let sandbox = tables(&rows, &description);
    let said = sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]).stdout;
    // Thirteen days until the training ends, 11 payments with a card and 16 at a shop.
    let expected = "windows that suit the training rows: spans 1d 3d 7d, last 1 3 5, one_hop 1d 3d 7d";
    assert!(said.contains(expected), "{said}");
    let json = |dir: &str| -> Value { serde_json::from_slice(&sandbox.read(&format!("{dir}/import.json"))).unwrap() };
    assert_eq!(json("data")["windows"][0]["spans"], serde_json::json!(["1d", "3d", "7d"]));
    // Another day, of which the same windows would not be chosen.
    let lines: Vec<String> = rows[140..].iter().map(|row| row.join(",")).collect();
    sandbox.write("payments.csv", format!("id,time,card,shop,amount,fraud\n{}\n", lines.join("\n")));
    sandbox.succeeds(["import", "tables", "graph.toml", "--with", "data", "--out", "later"]);
    assert_eq!(json("later")["columns"], json("data")["columns"]);
    assert_eq!(json("later")["windows"], json("data")["windows"]);
    // Whatever comes after the training chooses nothing.
    let mut longer = rows.clone();
    longer.extend((0..200).map(|at| {
        let time = (25 + at) * DAY;
        [format!("new{at}"), time.to_string(), format!("c{}", at % 9), "s1".into(), "1".into(), "0".into()]
    }));
    let test_from = "test_from = \"1970-01-22\"\n";
    let names = |rows: &[Row]| imported(rows, &format!("{BY_TIME}{test_from}{events}")).0.feature_names;
    assert_eq!(names(&longer), names(&rows));
}

#[test]
fn several_tables_for_one_type_have_windows_of_their_own_and_the_value_of_the_first() {
    let windows = |value: &str, more: &str| {
        let own = format!("{value}spans = [\"1d\"]\nlast = []\none_hop = []\n{more}");
        EVENTS.replace("spans = [\"1d\", \"7d\"]\nlast = [3]\n", &own)
    };
    let second = "[[windows]]\nnodes = \"payment\"\nspans = [\"7d\"]\nlast = [3]\none_hop = []\n";
    let value = "value = \"id\"\n";
    let one = EVENTS.replace("last = [3]\n", &format!("last = [3]\none_hop = []\n{value}"));
    let [one, two, repeated] = [one, windows(value, second), windows(value, &format!("{second}{value}"))]
        .map(|description| imported(&payments(150), &format!("{BY_TIME}{description}")).0);
    let column = |data: &Dataset, name: &str| -> Vec<f32> {
        let at = data.feature_names.as_ref().unwrap().iter().position(|known| known == name).unwrap();
        (0..150).map(|event| data.features.as_ref().unwrap().row(event).nth(at).unwrap()).collect()
    };
    for name in ["payment.card_1d_sum", "payment.card_7d_sum", "payment.shop_last_3_mean"] {
        assert_eq!(column(&two, name), column(&one, name), "{name}");
        assert_eq!(column(&repeated, name), column(&one, name), "{name}");
    }
    // What the first leaves out is the amount, also where a second one names it.
    imported(&payments(150), &format!("{BY_TIME}{}value = \"amount\"\n", windows("", second)));
    let no_amount =
        windows("", &format!("{second}value = \"amount\"\n")).replace("amount = \"amount\"\nalert", "alert");
    let sandbox = tables(&payments(150), &format!("{BY_TIME}{no_amount}"));
    let words = ["windows.value = \"amount\": expected none, as of the first", "name it in the first table"];
    sandbox.refuses(["import", "tables", "graph.toml", "--out", "data"], 2, &words);
}

#[test]
fn windows_that_say_nothing_or_too_much_are_refused() {
    let by_time = format!("{BY_TIME}{EVENTS}");
    let cases = [
        (by_time.replace("last = [3]", "last = [3, 0]"), "windows.last = 0"),
        (by_time.replace("last = [3]", "last = [3, 5, 3]"), "windows.last = 3 twice"),
        (by_time.replace("[\"1d\", \"7d\"]", "[\"7d\", \"1w\"]"), "windows.spans = 7d twice"),
        (format!("{by_time}one_hop_measures = [\"fraud_shares\"]\n"), "did you mean `fraud_share`?"),
        (format!("{by_time}labels = false\none_hop_measures = [\"fraud_share\"]\n"), "windows.one_hop_measures"),
        (format!("{BY_CARD}{EVENTS}one_hop_measures = [\"fraud_share\"]\n"), "windows.one_hop_measures"),
    ];
    for (description, expected) in cases {
        let sandbox = tables(&payments(150), &description);
        sandbox.refuses(["import", "tables", "graph.toml", "--out", "data"], 2, &[expected]);
    }
}
