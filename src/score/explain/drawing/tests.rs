use super::super::explanation::{Method, PathPart};
use super::*;

pub(super) fn neighbour(at: usize, id: &str, paths: usize) -> NeighbourPart {
    let sign = if at % 4 == 3 { -1.0 } else { 1.0 };
    let path = |k: usize| PathPart {
        node: (1000 + 10 * at + k) as u32,
        name: format!("{}:{id}-{at}-{k}", ["user", "seller", "product"][k % 3]),
        relation: "epu_T".into(),
        attention: Some(0.25),
        contribution: sign * 0.4 / (at + k + 1) as f64,
        score: Some(0.3 * k as f32),
        label: (k == 1).then_some(1),
    };
    NeighbourPart {
        node: at as u32 + 1,
        name: format!("{}:{id}{at}", if at.is_multiple_of(3) { "user" } else { "product" }),
        relation: if at.is_multiple_of(3) { "euu" } else { "epu" }.into(),
        score: Some(1.0 / (at + 1) as f32),
        label: [Some(1), None, Some(0)][at % 3],
        attention: Some(0.1),
        contribution: sign / (at + 1) as f64,
        removal: (at < 10).then_some(0.5 / (at + 1) as f64),
        paths: (0..paths).map(path).collect(),
        more_paths: 3,
    }
}

fn explanation(neighbours: Vec<NeighbourPart>) -> Explanation {
    Explanation {
        node: 0,
        kind: "user".into(),
        id: "U000000".into(),
        name: "user:U000000".into(),
        class: None,
        score: 0.94,
        probability: Some(0.9),
        method: Method { name: "attention and slopes held".into(), additive: true, text: "text".into() },
        unit: "log-odds".into(),
        base: -0.2,
        sum: 2.5,
        own: 0.31,
        rest: 0.05,
        relations: Vec::new(),
        blocks: Vec::new(),
        columns: Vec::new(),
        neighbours,
        more_neighbours: 7,
        similar: Vec::new(),
    }
}

#[test]
fn a_picture_is_one_well_formed_element_without_anything_from_outside() {
    for count in [0, 1, 5, 20] {
        let svg = neighbourhood(&explanation((0..count).map(|at| neighbour(at, "A", at % 5)).collect()));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf\""));
        for outside in ["href", "url(", "@import", "<script", "<image", "<foreignObject"] {
            assert!(!svg.contains(outside), "{outside}");
        }
        // Balanced: every element that is opened is closed, in the right order.
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let name: String = tag.chars().take_while(|c| !matches!(c, ' ' | '>')).collect();
            match name.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop().as_deref(), Some(closed)),
                None => open.push(name),
            }
        }
        assert!(open.is_empty());
    }
}

#[test]
fn texts_of_the_data_are_escaped() {
    let bad = "<script>alert(1)</script>\"'&\u{1}";
    let mut of = explanation((0..4).map(|at| neighbour(at, bad, 2)).collect());
    (of.name, of.id) = (format!("user:{bad}"), bad.into());
    of.neighbours[0].relation = bad.into();
    let svg = neighbourhood(&of);
    assert!(!svg.contains("<script") && !svg.contains('\u{1}'));
    assert!(svg.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;\u{fffd}"));
}

#[test]
fn long_ids_are_shortened_and_whole_in_the_title() {
    let id = "0123456789abcdef0123456789abcdef0123456789abcdef";
    let svg = neighbourhood(&explanation(vec![neighbour(0, id, 1)]));
    assert!(svg.contains(&format!("<title>user:{id}0, score 1.000, known anomaly</title>")));
    assert!(svg.contains(">0123456789abc\u{2026}abcdef0<") || svg.contains(">0123456789abc\u{2026}bcdef0<"), "{svg}");
    assert_eq!(shortened("äöüß", 4), "äöüß");
    assert_eq!(shortened("abcdefghij", 6), "abc\u{2026}ij");
}

#[test]
fn the_sign_of_an_edge_shows_in_its_class_and_its_size_in_its_width() {
    let svg = neighbourhood(&explanation((0..4).map(|at| neighbour(at, "A", 0)).collect()));
    let edges: Vec<&str> = svg.split("<path class=\"").skip(1).take(4).collect();
    let class: Vec<&str> = edges.iter().map(|edge| &edge[..8]).collect();
    assert_eq!(class.iter().filter(|class| **class == "n-lowers").count(), 1);
    let width = |edge: &str| -> f64 {
        let from = edge.find("stroke-width=\"").unwrap() + 14;
        edge[from..].split('"').next().unwrap().parse().unwrap()
    };
    let mut widths: Vec<f64> = edges.iter().map(|edge| width(edge)).collect();
    widths.sort_by(|a, b| b.total_cmp(a));
    assert_eq!(widths, [9.0, 4.5, 3.0, 2.25]);
}

#[test]
fn the_same_explanation_gives_the_same_picture_and_says_what_is_missing() {
    let of = explanation((0..20).map(|at| neighbour(at, "A", 3)).collect());
    let svg = neighbourhood(&of);
    assert_eq!(svg, neighbourhood(&of.clone()));
    assert!(svg.contains("7 more neighbours are not drawn, together +0.050"));
}

#[test]
#[ignore = "draws into the directory GRAPHSIEVE_DRAWINGS, for the eye"]
fn pictures_for_the_eye_are_drawn_on_request() {
    let dir = std::env::var("GRAPHSIEVE_DRAWINGS").expect("GRAPHSIEVE_DRAWINGS is a directory");
    for (count, id) in
        [(0, "A"), (1, "A31U"), (5, "A31UBHTUUIFJUT"), (20, "A31UBH"), (20, "a-very-long-identifier-of-an-account-")]
    {
        let svg = neighbourhood(&explanation((0..count).map(|at| neighbour(at, id, 5.min(at + 1))).collect()));
        std::fs::write(format!("{dir}/{count}-{}.svg", id.len()), svg).unwrap();
    }
}
