//! Contexts as they come, by the formats' own rules.

use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn w3c(fields: &[(&'static str, &str)]) -> Option<Parent> {
    extract(&[Propagator::TraceContext], &headers(fields)).parent
}

#[test]
fn a_traceparent_is_read_by_its_rules() {
    let good = format!("00-{TRACE}-{SPAN}-01");
    let parent = w3c(&[("traceparent", &good)]).unwrap();
    assert_eq!((parent.trace.to_string(), parent.sampled), (TRACE.to_owned(), Some(true)));
    assert_eq!(parent.span.unwrap().to_string(), SPAN);
    assert_eq!(w3c(&[("traceparent", &format!("00-{TRACE}-{SPAN}-00"))]).unwrap().sampled, Some(false));
    assert!(w3c(&[("traceparent", &format!("00-{TRACE}-{SPAN}-03"))]).unwrap().random);
    for later in [format!("cc-{TRACE}-{SPAN}-01"), format!("cc-{TRACE}-{SPAN}-01-what-comes")] {
        assert!(w3c(&[("traceparent", &later)]).is_some(), "{later}");
    }
    for bad in [
        String::new(),
        format!("00-{TRACE}-{SPAN}"),
        format!("00-{TRACE}-{SPAN}-1"),
        format!("00-{TRACE}-{SPAN}-011"),
        format!("00-{TRACE}-{SPAN}-01-"),
        format!("00-{TRACE}-{SPAN}-01-what"),
        format!("cc-{TRACE}-{SPAN}-01.what"),
        format!("ff-{TRACE}-{SPAN}-01"),
        format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
        format!("00-{}-{SPAN}-01", "0".repeat(32)),
        format!("00-{TRACE}-{}-01", "0".repeat(16)),
        format!("00_{TRACE}-{SPAN}-01"),
        format!("0x-{TRACE}-{SPAN}-01"),
        format!("00-{TRACE}-{SPAN}-0g"),
        format!("00-{TRACE}ü-{SPAN}-01"),
        format!("00-{TRACE}-{SPAN}-01").repeat(1000),
    ] {
        assert_eq!(w3c(&[("traceparent", &bad)]), None, "{bad}");
    }
    assert_eq!(w3c(&[("traceparent", &good), ("traceparent", &good)]), None, "sent twice");
}

#[test]
fn a_tracestate_loses_only_what_is_malformed() {
    let parent = format!("00-{TRACE}-{SPAN}-01");
    let state = |values: &[&str]| {
        let mut fields = vec![("traceparent", parent.as_str())];
        fields.extend(values.iter().map(|value| ("tracestate", *value)));
        w3c(&fields).unwrap().state
    };
    let long = |n: usize| "k".repeat(n);
    for (sent, kept) in [
        (&["a=1,b=2"][..], "a=1,b=2"),
        (&["a=1 , \tb=2,,", "c=3"], "a=1,b=2,c=3"),
        (&["0tenant@vendor=x y"], "0tenant@vendor=x y"),
        // What level 2 allows and level 1 did not.
        (&["1a=1,a@=2,a@b@c=3,a@1=4"], "1a=1,a@=2,a@b@c=3,a@1=4"),
        (&[&format!("{}=1", long(256)), "a=2"], &format!("{}=1,a=2", long(256))),
        (&[&format!("{}@bcdefghijklmnopqr=1", long(200))], &format!("{}@bcdefghijklmnopqr=1", long(200))),
        (&[&format!("a={}", long(256))], &format!("a={}", long(256))),
        // The first of a key is the newest.
        (&["a=1,b=2,a=3"], "a=1,b=2"),
        (&["a=1", "a=1", "b=2"], "a=1,b=2"),
        (&["a=\u{e9},b=2", "c=3"], "b=2,c=3"),
        (&[&format!("{}=1,b=2", long(257))], "b=2"),
        (&[&format!("a={},b=2", long(257))], "b=2"),
    ] {
        assert_eq!(state(sent), kept, "{sent:?}");
    }
    for bad in ["a", "=1", "A=1", "@a=1", "_a=1", "a.b=1", "a =1", "a=", "a=1=2", "a=\u{e9}"] {
        assert_eq!(state(&[bad]), "", "{bad}");
        assert_eq!(state(&[&format!("x=1,{bad},y=2")]), "x=1,y=2", "{bad}");
    }
    let many = |count: usize| (0..count).map(|n| format!("k{n}=1")).collect::<Vec<_>>().join(",");
    assert_eq!(state(&[&many(32), "k0=2"]).split(',').count(), 32);
    assert_eq!(state(&[&many(33)]), "");
    let long = format!(
        "big={},a=1,{}",
        "x".repeat(200),
        (0..4).map(|n| format!("k{n}={}", "y".repeat(100))).collect::<Vec<_>>().join(",")
    );
    let kept = state(&[&long]);
    assert!(kept.len() <= MAX_TRACESTATE_BYTES && kept.starts_with("a=1,k0="), "{kept}");
    assert!(kept.contains("k3="), "only the longest goes: {kept}");
}

#[test]
fn b3_is_read_in_one_header_and_in_several() {
    let single = |value: &str| extract(&[Propagator::B3], &headers(&[("b3", value)]));
    let whole = single(&format!("{TRACE}-{SPAN}-1-05e3ac9a4f6e3b90")).parent.unwrap();
    assert_eq!((whole.trace.to_string(), whole.sampled), (TRACE.to_owned(), Some(true)));
    let short = single(&format!("{SPAN}-{SPAN}")).parent.unwrap();
    assert_eq!((short.trace.to_string(), short.sampled), (format!("{}{SPAN}", "0".repeat(16)), None));
    assert_eq!(single("0"), Incoming { parent: None, sampled: Some(false) });
    assert_eq!(single("d"), Incoming { parent: None, sampled: Some(true) });
    for bad in [
        "",
        "x",
        "1-2",
        &format!("{TRACE}-{SPAN}-2"),
        &format!("{TRACE}-{SPAN}-1-x"),
        &format!("{TRACE}-{SPAN}-1-{SPAN}-1"),
    ] {
        assert_eq!(single(bad), Incoming::default(), "{bad}");
    }
    let multi = |fields: &[(&'static str, &str)]| extract(&[Propagator::B3Multi], &headers(fields));
    let ids = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN)];
    assert_eq!(multi(&ids).parent.unwrap().sampled, None);
    let with = |more: (&'static str, &str)| multi(&[ids[0], ids[1], more]).parent.unwrap().sampled;
    assert_eq!(with(("x-b3-sampled", "0")), Some(false));
    assert_eq!(with(("x-b3-sampled", "true")), Some(true));
    assert_eq!(with(("x-b3-flags", "1")), Some(true));
    assert_eq!(multi(&[("x-b3-sampled", "0")]).sampled, Some(false));
    assert_eq!(multi(&ids[..1]).parent, None);
}

#[test]
fn both_names_of_b3_read_both_forms() {
    let one = format!("{TRACE}-{SPAN}-0");
    let several = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN), ("x-b3-sampled", "1")];
    for propagator in [Propagator::B3, Propagator::B3Multi] {
        let read = |fields: &[(&'static str, &str)]| extract(&[propagator], &headers(fields));
        assert_eq!(read(&[("b3", &one)]).parent.unwrap().sampled, Some(false));
        assert_eq!(read(&several).parent.unwrap().sampled, Some(true));
        assert_eq!(
            read(&[("b3", &one), several[0], several[1], several[2]]).parent.unwrap().sampled,
            Some(false)
        );
        assert!(read(&[("b3", "garbage"), several[0], several[1]]).parent.is_some());
        assert!(read(&[("b3", "0"), several[0], several[1]]).parent.is_some());
        assert_eq!(read(&[("b3", "0"), several[2]]), Incoming { parent: None, sampled: Some(false) });
        let mut fields = headers(&[("b3", &one), several[0], several[1], ("x-b3-flags", "1")]);
        clear(&[propagator], &mut fields);
        assert!(fields.is_empty(), "targets get one form: {fields:?}");
    }
}

#[test]
fn jaegers_header_is_read() {
    let read = |value: &str| extract(&[Propagator::Jaeger], &headers(&[("uber-trace-id", value)])).parent;
    assert_eq!(read(&format!("{TRACE}:{SPAN}:0:1")).unwrap().sampled, Some(true));
    assert_eq!(read("ab%3Acd%3A0%3A0").unwrap().trace.to_string(), format!("{:0>32}", "ab"));
    for bad in ["", "0:0:0:0", "ab:cd:0", "ab:cd:0:1:2", "xy:cd:0:1", "ab:cd:0:fff"] {
        assert_eq!(read(bad), None, "{bad}");
    }
}

#[test]
fn the_first_format_with_a_context_decides_and_all_are_written() {
    let all = [Propagator::TraceContext, Propagator::B3, Propagator::B3Multi, Propagator::Jaeger];
    let mut fields =
        headers(&[("traceparent", "garbage"), ("tracestate", "a=1"), ("b3", &format!("{TRACE}-{SPAN}-0"))]);
    let parent = extract(&all, &fields).parent.unwrap();
    assert_eq!(parent.trace.to_string(), TRACE);
    clear(&all, &mut fields);
    assert!(fields.is_empty(), "{fields:?}");
    let context = TraceContext { trace: parent.trace, span: SpanId([1; 8]), sampled: false };
    inject(&all, &mut fields, context, Some(&parent));
    let text = |name: &str| fields.get(name).unwrap().to_str().unwrap().to_owned();
    let span = "01".repeat(8);
    assert_eq!(text("traceparent"), format!("00-{TRACE}-{span}-00"));
    assert_eq!(text("b3"), format!("{TRACE}-{span}-0"));
    assert_eq!(
        (text("x-b3-traceid"), text("x-b3-spanid"), text("x-b3-sampled")),
        (TRACE.to_owned(), span.clone(), "0".to_owned())
    );
    assert_eq!(text("uber-trace-id"), format!("{TRACE}:{span}:0:0"));
    assert!(!fields.contains_key("tracestate"), "the state of a context that was not used");
}

#[test]
fn baggage_is_kept_or_dropped_whole() {
    let mended = |values: &[&str]| {
        let fields: Vec<_> = values.iter().map(|value| ("baggage", *value)).collect();
        let mut headers = headers(&fields);
        clear(&[Propagator::Baggage], &mut headers);
        headers.get("baggage").map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(mended(&["user=an%20n;secret;ttl=3 , x=1"]).unwrap(), "user=an%20n;secret;ttl=3 , x=1");
    assert_eq!(mended(&["a=1", "b=2"]).unwrap(), "a=1,b=2");
    let many = (0..65).map(|n| format!("k{n}=1")).collect::<Vec<_>>().join(",");
    let long = format!("a={}", "x".repeat(MAX_BAGGAGE_BYTES));
    for bad in ["", "a", "=1", "a b=1", "a=\"1\"", &many, &long] {
        assert_eq!(mended(&[bad]), None, "{bad}");
    }
    let fields = headers(&[("baggage", "user=an%20n;p=1, x=2")]);
    assert_eq!(baggage_value(&fields, "user").unwrap(), "an n");
    assert_eq!(baggage_value(&fields, "x").unwrap(), "2");
    assert_eq!(baggage_value(&fields, "y"), None);
}

#[test]
fn fields_of_any_format_are_seen_at_the_first_look() {
    let all = [
        Propagator::TraceContext,
        Propagator::Baggage,
        Propagator::B3,
        Propagator::B3Multi,
        Propagator::Jaeger,
    ];
    let usual =
        [("host", "a.test"), ("user-agent", "x"), ("te", "trailers"), ("x-other", "x"), ("upgrade", "x")];
    for propagators in [&all[..], &all[..1], &all[3..]] {
        let look = FirstLook::of(propagators);
        assert!(!look.finds(propagators, &headers(&usual)));
        assert!(!look.finds(propagators, &HeaderMap::new()));
        for field in propagators.iter().flat_map(|propagator| propagator.fields()) {
            let fields: Vec<_> = usual.iter().copied().chain([(field.as_str(), "x")]).collect();
            assert!(look.finds(propagators, &headers(&fields)), "{field}");
        }
    }
    assert!(!FirstLook::of(&[]).finds(&[], &headers(&[("traceparent", "x")])));
}
