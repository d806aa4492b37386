//! The report of a run: what the command writes and refuses, and the page in a real browser.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock};

use graphsieve_kernels::testing::harness::{Trial, trial};
use serde_json::{Value, json};

use crate::support::Sandbox;
use crate::webdriver::Browser;

macro_rules! in_a_browser {
    ($($name:ident),+ $(,)?) => {
        [$(trial(None, concat!("report::", stringify!($name)), &[Browser::REQUIREMENT], $name)),+]
    };
}

pub fn trials() -> Vec<Trial> {
    let mut trials = on_cpu!(
        "report";
        a_report_is_written_once_unless_it_is_forced_and_is_always_the_same,
        what_is_no_run_of_a_stage_is_refused,
    );
    trials.extend(in_a_browser!(
        the_page_loads_from_a_file_without_errors_and_without_a_request,
        ids_with_markup_are_shown_as_text_and_nothing_of_them_runs,
        headers_sort_the_table_both_ways_numbers_as_numbers,
        the_list_is_filtered_by_type_label_and_text,
        a_drawing_opens_by_mouse_and_by_keyboard,
        nothing_is_wider_than_a_phone_or_lost_on_a_wide_screen,
        light_and_dark_are_both_readable_and_the_button_changes_them,
        the_page_can_be_used_without_script_and_by_those_who_do_not_see_it,
        the_page_prints,
    ));
    #[cfg(feature = "serve")]
    trials.extend(crate::serve::trials());
    trials
}

/// Tests that write beside the shared run take turns: each compares the files before and after a refusal.
fn my_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What stands behind every id of the data: it has to be shown, and nothing of it may run.
pub const HOSTILE: &str = "<script>window.owned=1</script>\"><img src=x onerror=window.owned=2>&amp;'</td></table>";

/// Trained long enough for labelled nodes of both classes to be among the highest scores.
const STAGE2: &str = "task = \"stage2\"\n[data]\npath = \"data\"\ninput = \"features\"\n[model]\nhidden = 16\n\
                      out = 16\n[train]\nepochs = 30\nlearning_rate = 1e-2\nvalidate_every = 2\n[output]\ndir = \"runs\"\nplots = false\n";

pub struct Reported {
    pub sandbox: Sandbox,
    pub run: String,
    page: PathBuf,
}

/// A run on data with hostile ids and its report, made once for all tests.
pub fn reported() -> &'static Reported {
    static REPORTED: OnceLock<Reported> = OnceLock::new();
    REPORTED.get_or_init(|| {
        let sandbox = Sandbox::new();
        sandbox.succeeds(["--quiet", "synth", "--scale", "0.2", "--out", "data"]);
        sandbox.edit("data/node_id_mappings.json", |bytes| {
            let maps: Value = serde_json::from_slice(bytes).unwrap();
            let hostile = |map: &Value| -> Value {
                let ids = map.as_object().unwrap().iter();
                Value::Object(ids.map(|(id, node)| (format!("{id}{HOSTILE}"), node.clone())).collect())
            };
            let maps = maps.as_object().unwrap().iter().map(|(name, map)| (name.clone(), hostile(map)));
            *bytes = serde_json::to_vec(&Value::Object(maps.collect())).unwrap();
        });
        sandbox.write("stage2.toml", STAGE2);
        sandbox.succeeds(["--quiet", "train", "stage2.toml", "--device", "cpu"]);
        let run = sandbox.only_run("runs");
        let said = sandbox.succeeds(["report", &run, "--all", "--top", "40"]);
        assert_eq!(said.stdout.trim(), format!("{run}/report.html"));
        let page = sandbox.path(said.stdout.trim());
        Reported { sandbox, run, page }
    })
}

/// Texts of a column of the list, from the top, of the rows that can be seen.
fn column(browser: &Browser, number: usize) -> Vec<String> {
    let script = format!(
        "return [...document.querySelectorAll('#anomalies tbody')].filter(b => b.offsetParent)
             .map(b => b.rows[0].cells[{number}].dataset.value ?? '')"
    );
    serde_json::from_value(browser.script(&script)).unwrap()
}

fn numbers(texts: &[String]) -> Vec<f64> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn a_report_is_written_once_unless_it_is_forced_and_is_always_the_same() {
    let Reported { sandbox, run, page } = reported();
    let _turn = my_turn();
    let first = fs::read(page).unwrap();
    sandbox.refuses(["report", run], 1, &["report.html", "exists already", "--force"]);
    sandbox.succeeds(["report", run, "--all", "--top", "40", "--force"]);
    assert!(fs::read(page).unwrap() == first, "the same run makes the same bytes");
    let said = sandbox.succeeds(["report", run, "--out", "elsewhere/r.html", "--top", "3"]);
    assert_eq!(said.stdout.trim(), "elsewhere/r.html");
    assert_eq!(String::from_utf8(sandbox.read("elsewhere/r.html")).unwrap().matches("<tbody data-type").count(), 3);
}

fn what_is_no_run_of_a_stage_is_refused() {
    let Reported { sandbox, run, .. } = reported();
    let _turn = my_turn();
    let plain = ["report", run, "--out", "plain.html", "--no-explanations"];
    sandbox.succeeds(plain);
    assert!(!String::from_utf8(sandbox.read("plain.html")).unwrap().contains("class=\"why\""));
    sandbox.refuses(["report", "data"], 2, &["the directory of a run"]);
    sandbox.refuses(["report", run, "--out", "data"], 1, &["data"]);
    let other = Sandbox::new();
    fs::create_dir_all(other.path("run")).unwrap();
    other.write("run/config.toml", "task = \"classify\"\n[data]\npath = \"data.npz\"\n");
    other.write("run/meta.json", sandbox.read(&format!("{run}/meta.json")));
    other.refuses(["report", "run"], 2, &["probabilities.npy", "the outputs of a finished run"]);
    sandbox.refuses(["report", run, "--class", "1"], 2, &["--class 1", "a run of node classification"]);
}

fn the_page_loads_from_a_file_without_errors_and_without_a_request() {
    let browser = Browser::show(&reported().page);
    let console = browser.log("browser");
    assert!(console.is_empty(), "{console:?}");
    let requests = browser.requests();
    assert!(requests.iter().all(|address| address.ends_with("/report.html")), "{requests:?}");
    assert_eq!(browser.script("return performance.getEntriesByType('resource').length"), 0);
    // The page may not ask even if it were told to.
    browser.script("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))");
    let refused = browser.log("browser");
    assert!(
        refused.iter().any(|entry| entry["message"].to_string().contains("Content Security Policy")),
        "{refused:?}"
    );
}

fn ids_with_markup_are_shown_as_text_and_nothing_of_them_runs() {
    let browser = Browser::show(&reported().page);
    let ids: Vec<String> = serde_json::from_value(
        browser.script("return [...document.querySelectorAll('#anomalies .id')].map(cell => cell.textContent)"),
    )
    .unwrap();
    assert_eq!(ids.len(), 40);
    assert!(ids.iter().all(|id| id.ends_with(HOSTILE)), "{ids:?}");
    assert_eq!(browser.script("return typeof window.owned"), "undefined");
    assert_eq!(browser.script("return [document.scripts.length, document.images.length]"), json!([1, 0]));
    // Were an id not escaped, the policy would still stop it.
    browser.script("document.body.insertAdjacentHTML('beforeend', '<p onclick=\"window.owned=3\" id=trap>trap</p>')");
    browser.click("#trap");
    assert_eq!(browser.script("return typeof window.owned"), "undefined");
}

fn headers_sort_the_table_both_ways_numbers_as_numbers() {
    let browser = Browser::show(&reported().page);
    let sorted = || -> Vec<Option<String>> {
        let script =
            "return [...document.querySelectorAll('#anomalies thead th')].map(h => h.getAttribute('aria-sort'))";
        serde_json::from_value(browser.script(script)).unwrap()
    };
    let header = |number: usize| format!("#anomalies thead th:nth-child({}) button", number + 1);
    let (up, down) = (Some("ascending".to_owned()), Some("descending".to_owned()));
    assert_eq!(sorted()[0], up, "by rank at first");
    let ranks = numbers(&column(&browser, 0));
    assert_eq!(ranks, (1..=40).map(f64::from).collect::<Vec<_>>());

    browser.click(&header(0));
    let reversed = numbers(&column(&browser, 0));
    assert_eq!(reversed, (1..=40).rev().map(f64::from).collect::<Vec<_>>(), "as texts 9 would stand before 40");
    assert_eq!((&sorted()[0], &sorted()[3]), (&down, &None));
    browser.click(&header(0));
    assert_eq!((numbers(&column(&browser, 0)), &sorted()[0]), (ranks, &up));

    browser.click(&header(3));
    assert_eq!(sorted()[3], down, "the highest scores first");
    let scores = numbers(&column(&browser, 3));
    assert!(scores.windows(2).all(|pair| pair[0] >= pair[1]));
    browser.click(&header(3));
    let scores = numbers(&column(&browser, 3));
    assert!(scores.windows(2).all(|pair| pair[0] <= pair[1]) && scores[0] < scores[39]);

    browser.click(&header(1));
    let types = column(&browser, 1);
    assert!(types.windows(2).all(|pair| pair[0] <= pair[1]) && sorted()[1] == up, "{types:?}");
    // Of one type the order stays what it was: by score.
    let scores = numbers(&column(&browser, 3));
    let of_one_type = types.windows(2).zip(scores.windows(2)).filter(|(types, _)| types[0] == types[1]);
    assert!(of_one_type.map(|(_, scores)| scores).all(|scores| scores[0] <= scores[1]));
    assert_eq!(sorted().iter().flatten().count(), 1);
}

fn the_list_is_filtered_by_type_label_and_text() {
    let browser = Browser::show(&reported().page);
    let all = column(&browser, 1);
    let users = all.iter().filter(|name| *name == "user").count();
    assert!(users > 0 && users < 40, "{all:?}");
    let choose = |filter: &str, value: &str| {
        browser.script(&format!(
            "const select = document.querySelector('[data-filter={filter}]'); select.value = '{value}';
             select.dispatchEvent(new Event('input', {{bubbles: true}}))"
        ));
    };
    choose("type", "user");
    assert!(column(&browser, 1).iter().all(|name| name == "user"));
    let said = || browser.script("return document.querySelector('[data-count]').textContent").to_string();
    assert!(said().contains(&format!("{users} of 40")), "{}", said());
    choose("type", "");
    let known = column(&browser, 5);
    for label in ["unlabelled", "anomalous", "normal"] {
        choose("label", label);
        let expected: Vec<&String> = known.iter().filter(|known| *known == label).collect();
        assert_eq!(column(&browser, 5).iter().collect::<Vec<_>>(), expected, "{label}");
    }
    choose("label", "");
    let id = column(&browser, 2)[7].clone();
    browser.type_into("[data-filter=text]", &id.to_uppercase());
    assert_eq!(column(&browser, 2), [id]);
    browser.type_into("[data-filter=text]", "no such id");
    assert_eq!((column(&browser, 2).len(), said().contains("0 of 40")), (0, true));
}

fn a_drawing_opens_by_mouse_and_by_keyboard() {
    let browser = Browser::show(&reported().page);
    let drawing = "#anomalies tbody:nth-of-type(1) .neighbourhood svg";
    assert!(!browser.sees(drawing));
    browser.click("#anomalies tbody:nth-of-type(1) summary");
    assert!(browser.sees(drawing));
    browser.click("#anomalies tbody:nth-of-type(1) summary");
    assert!(!browser.sees(drawing));
    browser.type_into("#anomalies tbody:nth-of-type(1) summary", "\u{E007}");
    assert!(browser.sees(drawing), "Enter opens it");
    assert_eq!(browser.script("return document.querySelectorAll('.why svg').length"), 40);
    let said = browser.script("return document.querySelector('.neighbourhood svg').textContent");
    assert!(said.as_str().unwrap().contains("<script>window"), "the ids of the drawing are texts: {said}");
}

fn nothing_is_wider_than_a_phone_or_lost_on_a_wide_screen() {
    let browser = Browser::show(&reported().page);
    for width in [380, 760, 1400] {
        browser.resize(width, 900);
        let wide = browser.script(
            "document.querySelectorAll('details').forEach(d => d.open = true);
             return [document.documentElement.scrollWidth, innerWidth]",
        );
        assert!(wide[0].as_u64() <= wide[1].as_u64(), "{width}: {wide}");
        let small = browser.script(
            "const widths = [...document.querySelectorAll('.chart')].map(c => c.getBoundingClientRect().width);
             return widths.filter(width => width < 250).length",
        );
        assert_eq!(small, 0, "charts can be read at {width}");
    }
}

/// Contrast of text and background by WCAG 2, for every element that has a text of its own.
const LOW_CONTRAST: &str = r#"
    const parse = colour => {
        const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
        return [r, g, b, a];
    };
    const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
    const background = element => {
        for (let at = element; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour[3] === 1) return colour;
        }
        return [255, 255, 255];
    };
    const low = [];
    for (const element of document.body.querySelectorAll('*')) {
        const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        if (!own || element.closest('.neighbourhood, script') || !element.getClientRects().length) continue;
        const style = getComputedStyle(element);
        const colour = element.closest('svg') ? style.fill : style.color;
        const [a, b] = [luminance(parse(colour)), luminance(background(element))].sort((a, b) => b - a);
        const ratio = (a + 0.05) / (b + 0.05);
        const name = `${element.tagName} ${element.className.baseVal ?? element.className}`;
        if (ratio < 4.5) low.push(`${name} ${colour} ${ratio}`);
    }
    return low;
"#;

fn light_and_dark_are_both_readable_and_the_button_changes_them() {
    let browser = Browser::show(&reported().page);
    let paper = || browser.script("return getComputedStyle(document.body).backgroundColor").to_string();
    let mut papers = Vec::new();
    for scheme in ["light", "dark"] {
        browser.prefer("prefers-color-scheme", scheme);
        papers.push(paper());
        assert_eq!(browser.script(LOW_CONTRAST), json!([]), "{scheme}");
    }
    assert_ne!(papers[0], papers[1]);
    browser.click("#theme");
    assert_eq!(paper(), papers[0], "from dark to light");
    browser.click("#theme");
    assert_eq!(paper(), papers[1]);
    browser.prefer("prefers-color-scheme", "light");
    assert_eq!(paper(), papers[1], "what the reader chose stays");
}

fn the_page_can_be_used_without_script_and_by_those_who_do_not_see_it() {
    let browser = Browser::show(&reported().page);
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.devtools("Page.reload", json!({}));
    assert!(browser.sees("#anomalies") && !browser.sees("#theme") && !browser.sees(".controls"));
    assert!(browser.sees(".chart") && browser.sees(".verdict"));
    browser.click(".config summary");
    assert!(browser.sees(".config pre"));
    let faults = browser.script(
        "const all = selector => [...document.querySelectorAll(selector)];
         const faults = [];
         if (all('h1').length !== 1 || all('main').length !== 1) faults.push('landmarks');
         all('table').filter(t => !t.caption && !t.closest('.numbers')).forEach(t => faults.push('no caption'));
         all('th').filter(h => !h.scope).forEach(h => faults.push('no scope: ' + h.textContent));
         const charts = all('.chart');
         charts.filter(c => c.getAttribute('role') !== 'img').forEach(() => faults.push('chart without role'));
         charts.flatMap(c => c.getAttribute('aria-labelledby').split(' ')).filter(id => !document.getElementById(id))
             .forEach(() => faults.push('chart without name'));
         const ids = all('[id]').map(e => e.id);
         ids.filter((id, at) => ids.indexOf(id) !== at).forEach(id => faults.push('twice: ' + id));
         const links = all('nav a').map(a => a.getAttribute('href'));
         links.filter(href => !document.querySelector(href)).forEach(href => faults.push('dead ' + href));
         return faults;",
    );
    assert_eq!(faults, json!([]));
}

fn the_page_prints() {
    let browser = Browser::show(&reported().page);
    let printed =
        browser.devtools("Page.printToPDF", json!({"printBackground": true, "paperWidth": 8.27, "paperHeight": 11.69}));
    assert!(printed["data"].as_str().unwrap().len() > 20_000);
    browser.devtools("Emulation.setEmulatedMedia", json!({"media": "print"}));
    assert!(!browser.sees("nav") && !browser.sees(".controls"));
    assert!(browser.sees("#anomalies"));
}
