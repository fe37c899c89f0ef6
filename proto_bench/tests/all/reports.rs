//! What reports say and what they must never say.

use proto_bench::measure::counters::Counts;
use proto_bench::measure::machine::Machine;
use proto_bench::plan::{Plan, Protocol, Target};
use proto_bench::replay::Published;
use proto_bench::report::model::{Replay, ReplayRow, Verdict};
use proto_bench::report::{Document, ReportKind, Round, Row, html, markdown, numbers, terminal};

use crate::support::{answer, longer, read_request, run, serve, short_http};

/// A matrix of one test: the gateway's row as given, the direct one good.
fn document(gateway: impl FnOnce(&mut Row)) -> Document {
    let address = serve(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            answer(&mut stream, "200 OK", &body);
        }
    });
    let plan = short_http(address);
    let mut document = Document::begin(ReportKind::Matrix);
    document.machine = Machine { cpu: "<script>alert(1)</script>".to_owned(), ..Machine::default() };
    for subject in ["direct", "gateway"] {
        let mut row = proto_bench::command::measure::row("h1", "HTTP/1.1", subject, &plan);
        row.rounds.push(Round::new(&plan, &run(&plan)));
        document.rows.push(row);
    }
    gateway(&mut document.rows[1]);
    document.rows.iter_mut().for_each(Row::conclude);
    document.finish();
    document
}

fn pages(document: &Document) -> [String; 3] {
    [html::render(std::slice::from_ref(document)), markdown::render(document), terminal::render(document)]
}

#[test]
fn a_void_row_has_a_reason_and_no_figures_anywhere() {
    let mut rate = 0.0;
    let document = document(|row| {
        rate = row.rounds[0].rate;
        row.rounds[0].void.push("3 swapped answers (first: …)".to_owned());
    });
    assert!(document.has_void());
    let figure = numbers::thousands(rate);
    for page in pages(&document) {
        assert!(page.contains("3 swapped answers"), "{page}");
        assert!(!page.contains(&figure), "{figure} in {page}");
    }
}

#[test]
fn what_is_unavailable_is_named_and_is_not_void() {
    let document = document(|row| row.verdict = Verdict::Unavailable("it does not speak HTTP/9".to_owned()));
    assert!(!document.has_void());
    for page in pages(&document) {
        assert!(page.contains("it does not speak HTTP/9"), "{page}");
    }
}

/// A comparison of one test: what a request costs each subject in each slice, and whether that was disturbed.
fn comparison(subjects: [(&str, &[(f64, bool)]); 2]) -> Document {
    let mut document = document(|_| {});
    document.kind = ReportKind::Compare;
    for (row, (subject, slices)) in document.rows.iter_mut().zip(subjects) {
        row.subject = subject.to_owned();
        let mut round = row.rounds[0].clone();
        round.marks.clear();
        round.void.clear();
        let slice = |(cost, disturbed): &(f64, bool)| {
            let mut slice = round.clone();
            slice.marks.extend(disturbed.then(|| "disturbed".to_owned()));
            let mut usage = round.generator.clone();
            usage.cpu_us_per_request = *cost;
            slice.subject = Some(usage);
            slice
        };
        row.rounds = slices.iter().map(slice).collect();
        row.conclude();
    }
    document
}

#[test]
fn disturbed_slices_are_left_out_and_counted() {
    let ours = [(8.0, false), (80.0, true), (8.2, false), (8.1, false)];
    let theirs = [(10.0, false), (10.0, false), (10.4, false), (10.2, false)];
    let document = comparison([("gateway", &ours), ("nginx", &theirs)]);
    let row = document.row("h1", "gateway").expect("a row");
    assert_eq!((row.left_out, row.is_disturbed()), (1, false));
    let text = markdown::tables(&document);
    assert!(text.contains("**8.1** ±1 %") && text.contains("0.79 (0.79–0.80) of nginx"), "{text}");
    let left_out = text
        .lines()
        .any(|line| line.split('|').map(str::trim).eq(["", "HTTP/1.1", "gateway", "3", "1", "", ""]));
    assert!(left_out, "{text}");
}

#[test]
fn nothing_leads_where_slices_lie_over_each_other_or_were_disturbed() {
    let theirs = [(10.0, false), (10.2, false), (10.1, false)];
    let mixed = comparison([("gateway", &[(9.0, false), (9.0, false), (10.3, false)]), ("nginx", &theirs)]);
    let disturbed = comparison([("gateway", &[(5.0, true), (5.0, true), (5.0, false)]), ("nginx", &theirs)]);
    for document in [mixed, disturbed] {
        let text = markdown::tables(&document);
        let costs = text.split("**Requests a second**").next().expect("the first table");
        assert!(!costs.contains("**9") && !costs.contains("**5"), "{text}");
    }
}

#[test]
fn one_slice_is_no_lead() {
    let document = comparison([("gateway", &[(5.0, false)]), ("nginx", &[(10.0, false)])]);
    assert!(!markdown::tables(&document).contains("**5"), "one slice may be chance");
}

#[test]
fn tests_that_a_relay_cannot_do_are_multiples_of_its_http() {
    let slices = [(20.0, false), (20.0, false), (20.0, false)];
    let floor = [(8.0, false), (8.0, false), (8.0, false)];
    let mut document = comparison([("gateway", &slices), ("relay", &floor)]);
    assert!(markdown::tables(&document).contains("2.50 (2.50–2.50) |"));
    document.rows[0].id = "h1-tls".to_owned();
    assert!(markdown::tables(&document).contains("2.50 (2.50–2.50) of HTTP/1.1's"));
    document.rows[0].id = "tcp-tls".to_owned();
    assert!(!markdown::tables(&document).contains("of HTTP/1.1's"), "a stream is no HTTP");
}

#[test]
fn counted_instructions_are_columns_where_they_are_known() {
    let slices = [(8.0, false), (8.0, false), (8.0, false)];
    let mut document = comparison([("gateway", &slices), ("nginx", &slices)]);
    assert!(!markdown::tables(&document).contains("instructions"));
    let counts = |instructions| Counts { instructions, instruction_misses: Some(7.0), data_misses: None };
    document.rows[0].simulated = Some(counts(16_500.0));
    document.rows[1].rounds.iter_mut().for_each(|round| round.counts = Some(counts(18_066.0)));
    document.rows.iter_mut().for_each(Row::conclude);
    let text = markdown::tables(&document);
    assert!(
        text.contains("**User-space instructions a request**") && text.contains("First instruction cache")
    );
    assert!(
        text.contains("16,500") && text.contains("18,066") && !text.contains("First data cache"),
        "{text}"
    );
}

#[test]
fn a_replay_shows_what_was_published_and_why_it_is_wrong() {
    let slices = [(8.0, false), (8.0, false), (8.0, false)];
    let mut document = comparison([("gateway", &slices), ("nginx", &slices)]);
    document.kind = ReportKind::Replay;
    document.rows[1].rounds[0].void.push("7 connections closed early".to_owned());
    document.rows.iter_mut().for_each(Row::conclude);
    let published = |who: &str| Published {
        who: who.to_owned(),
        rate: Some(198_400.0),
        wrong: Some("more than the p99 given".to_owned()),
        ..Published::default()
    };
    document.replay = Some(Replay {
        seed: "conduit".to_owned(),
        title: "A title".to_owned(),
        source: "a source".to_owned(),
        conditions: "another machine".to_owned(),
        rows: vec![ReplayRow {
            id: "h1".to_owned(),
            label: "Cache hit".to_owned(),
            published_clients: 200,
            clients: 4,
            published_seconds: 30.0,
            seconds: 1.0,
            published: vec![published("One"), published("Other")],
            differs: Some("We do it otherwise.".to_owned()),
            skipped: None,
        }],
        starts: Vec::new(),
        at_rest: Vec::new(),
    });
    for page in pages(&document) {
        let page = page.replace("<em>published</em>", "*published*");
        assert!(page.contains("One, Other *published* (!): more than the p99 given."), "{page}");
        assert!(page.contains("198,400") && page.contains("We do it otherwise."), "{page}");
        assert!(page.contains("7 connections closed early") && page.contains("right answers came"), "{page}");
        assert!(page.contains("4 clients, 1 s; published: 200 clients, 30 s."), "{page}");
    }
}

#[test]
fn the_page_is_self_contained_and_escapes() {
    let document = document(|_| {});
    let page = html::render(&[document.clone(), document]);
    assert!(page.contains("<svg") && page.contains("prefers-color-scheme:dark"));
    for outside in ["<script", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn result_files_survive_writing_and_reading() {
    let document = document(|_| {});
    let again: Document = serde_json::from_str(&document.to_json()).expect("our own form");
    assert!(again.to_json() == document.to_json(), "it changed on the way");
}

fn is_impossible(round: &Round) -> bool {
    round.void.iter().any(|reason| reason.contains("Little"))
}

#[test]
fn little_law_exposes_figures_that_cannot_be() {
    let plan: Plan = short_http(serve(|mut stream| {
        while let Some((_, body)) = read_request(&mut stream) {
            answer(&mut stream, "200 OK", &body);
        }
    }));
    // Twice as many answers as two connections can have had in this time, where the machine kept them busy throughout.
    let exposed = longer(&plan, |plan| {
        let mut outcome = run(plan);
        assert!(!is_impossible(&Round::new(plan, &outcome)), "it is possible as it is");
        outcome.tally.completed *= 2;
        let round = Round::new(plan, &outcome);
        if is_impossible(&round) { Ok(()) } else { Err(round.void) }
    });
    exposed.unwrap_or_else(|void| panic!("{void:?}"));
}

#[test]
fn targets_keep_their_protocol_in_their_url() {
    for protocol in Protocol::ALL {
        let target = Target::at(protocol, protocol == Protocol::Http3, ([127, 0, 0, 1], 9).into());
        let again = Target::parse(&target.url()).expect("its own form");
        assert_eq!(again.protocol, protocol);
    }
}
