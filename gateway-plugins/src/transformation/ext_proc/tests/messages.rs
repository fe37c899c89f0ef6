//! What processors get, and what comes of what they say.

use super::*;

fn values(headers: &Option<super::super::protocol::HeaderMap>) -> Vec<(String, String)> {
    let all = headers.iter().flat_map(|headers| &headers.headers);
    all.map(|field| (field.key.clone(), String::from_utf8_lossy(&field.raw_value).into_owned())).collect()
}

#[tokio::test]
async fn heads_are_sent_and_changed() {
    let processor = Processor::new(|told| match told {
        ProcessorInput::RequestHeaders(_) => changed(
            told,
            mutation(
                vec![
                    set("x-new", "1"),
                    set(":path", "/other?a=b"),
                    set("content-length", "9"),
                    set(":method", "PUT"),
                ],
                &["x-gone", "host", ":path"],
            ),
        ),
        _ => changed(told, mutation(vec![set(":status", "203"), set("x-out", "2")], &["server"])),
    });
    let trial = processor
        .trial(json!({}))
        .answering(|_| Response::builder().header("server", "s").body("ok".into()).unwrap());
    let got = trial.get("/path?q=1", &[("x-gone", "1"), ("x-kept", "2")]).await;
    assert_eq!(
        (got.status, got.field("x-out"), got.field("server"), got.text().as_str()),
        (203, "2", "", "ok")
    );
    let asked = trial.asked().pop().unwrap();
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("GET", "/other?a=b"));
    assert_eq!(
        ["x-new", "x-kept", "x-gone", "content-length"].map(|name| asked.field(name)),
        ["1", "2", "", ""]
    );
    let told = processor.told();
    let [ProcessorInput::RequestHeaders(request), ProcessorInput::ResponseHeaders(response)] =
        told.as_slice()
    else {
        panic!("{told:?}")
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert!(request.end_of_stream && !response.end_of_stream);
    for expected in [
        pair(":method", "GET"),
        pair(":path", "/path?q=1"),
        pair(":authority", "client.test"),
        pair(":scheme", "http"),
        pair("x-kept", "2"),
    ] {
        assert!(values(&request.headers).contains(&expected), "{expected:?}: {request:?}");
    }
    assert!(values(&response.headers).contains(&pair(":status", "200")));
}

#[tokio::test]
async fn what_is_skipped_is_not_sent() {
    let processor = Processor::new(nothing);
    let trial = processor
        .trial(json!({ "request_headers": "skip", "response_body": "buffered", "response_headers": "skip" }));
    assert_eq!(trial.request("POST", "/", &[], "abc").await.text(), "ok");
    let told = processor.told();
    let [ProcessorInput::ResponseBody(body)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((&body.body[..], body.end_of_stream), (&b"ok"[..], true));
}

#[tokio::test]
async fn fields_are_added_as_the_processor_says() {
    for (action, append, there, expected) in [
        (0, None, true, vec!["new"]),
        (0, Some(true), true, vec!["old", "new"]),
        (1, None, true, vec!["old"]),
        (1, None, false, vec!["new"]),
        (2, None, true, vec!["new"]),
        (3, None, false, vec![]),
        (3, None, true, vec!["new"]),
    ] {
        let trial = Processor::new(move |told| {
            let mut option = set("x-a", "new");
            (option.append_action, option.append) = (action, append.map(|value| BoolValue { value }));
            changed(told, mutation(vec![option], &[]))
        })
        .trial(json!({ "response_headers": "skip" }));
        let fields: &[(&str, &str)] = if there { &[("x-a", "old")] } else { &[] };
        trial.get("/", fields).await;
        let asked = trial.asked().pop().unwrap();
        let found: Vec<&str> =
            asked.headers.get_all("x-a").iter().map(|value| value.to_str().unwrap()).collect();
        assert_eq!(found, expected, "{action} {append:?} {there}");
    }
}

#[tokio::test]
async fn an_immediate_response_is_the_answer() {
    let reply = || ImmediateResponse {
        status: Some(HttpStatus { code: 401 }),
        headers: mutation(vec![set("www-authenticate", "Bearer"), set("transfer-encoding", "x")], &[])
            .header_mutation,
        body: Bytes::from_static(b"no"),
        grpc_status: Some(GrpcStatus { status: 16 }),
    };
    let processor = Processor::new(move |_| say(ProcessorReply::ImmediateResponse(reply())));
    let trial = processor.trial(json!({}));
    let got = trial.get("/", &[]).await;
    assert_eq!((got.status, got.text().as_str(), got.field("www-authenticate")), (401, "no", "Bearer"));
    assert_eq!((got.field("transfer-encoding"), trial.asked().len(), processor.told().len()), ("", 0, 1));
    assert_eq!(trial.records()[0].reason, Some("ext_proc"));
    let got =
        trial.request("POST", "/", &[("content-type", "application/grpc"), ("te", "trailers")], "").await;
    assert_eq!((got.status, got.field("grpc-status"), got.field("grpc-message")), (200, "16", "no"));
    let refusing = processor.trial(json!({ "disable_immediate_response": true }));
    assert_eq!(refusing.get("/", &[]).await.status, 500);
    let late = Processor::new(move |told| match told {
        ProcessorInput::RequestHeaders(_) => nothing(told),
        _ => say(ProcessorReply::ImmediateResponse(reply())),
    });
    let trial = late.trial(json!({}));
    assert_eq!((trial.get("/", &[]).await.status, trial.asked().len()), (401, 1));
}

#[tokio::test]
async fn bodies_are_buffered_and_replaced() {
    let processor = Processor::new(|told| match told {
        ProcessorInput::RequestBody(_) => changed(
            told,
            CommonResponse { body_mutation: body("changed"), ..mutation(vec![set("x-late", "1")], &[]) },
        ),
        ProcessorInput::ResponseBody(_) => {
            let clear = Some(BodyMutation { mutation: Some(NewBody::Clear(true)) });
            changed(told, CommonResponse { body_mutation: clear, ..CommonResponse::default() })
        }
        told => nothing(told),
    });
    let trial =
        processor.trial(json!({ "request_body": "buffered", "response_body": "buffered", "max_body": 5 }));
    let got = trial.request("POST", "/", &[("content-length", "3")], "abc").await;
    assert_eq!((got.status, got.text().as_str()), (200, ""));
    let asked = trial.asked().pop().unwrap();
    assert_eq!(
        (&asked.body[..], asked.field("content-length"), asked.field("x-late")),
        (&b"changed"[..], "7", "1")
    );
    assert_eq!(trial.request("POST", "/", &[], "abcdef").await.status, 413);
    let trial = trial.answering(|_| Response::new("too long".into()));
    assert_eq!(trial.get("/", &[]).await.status, 502);
}

#[tokio::test]
async fn a_body_is_replaced_with_the_head() {
    let processor = Processor::new(|told| {
        let replaced =
            CommonResponse { status: 1, body_mutation: body("instead"), ..CommonResponse::default() };
        changed(told, replaced)
    });
    let trial = processor.trial(json!({ "request_body": "buffered", "response_body": "buffered" }));
    let got = trial.request("POST", "/", &[], "abc").await;
    assert_eq!((got.text().as_str(), got.field("content-length")), ("instead", "7"));
    assert_eq!(trial.asked()[0].body, "instead");
    assert_eq!(processor.told().len(), 2, "nothing more of either message");
}

#[tokio::test]
async fn a_large_body_is_sent_in_part() {
    let processor = Processor::new(|told| match told {
        ProcessorInput::RequestBody(_) => {
            changed(told, CommonResponse { body_mutation: body("AB"), ..CommonResponse::default() })
        }
        told => nothing(told),
    });
    let trial = processor.trial(json!({ "request_body": "buffered_partial", "max_body": 3 }));
    assert_eq!(trial.request("POST", "/", &[], "abcdef").await.status, 200);
    assert_eq!(trial.asked()[0].body, "ABdef");
    let told = processor.told();
    let Some(ProcessorInput::RequestBody(part)) = told.get(1) else { panic!("{told:?}") };
    assert_eq!((&part.body[..], part.end_of_stream), (&b"abc"[..], false));
}

#[tokio::test]
async fn bodies_and_trailers_are_streamed() {
    let processor = Processor::new(|told| match told {
        ProcessorInput::ResponseBody(part) if part.body == "one" => {
            changed(told, CommonResponse { body_mutation: body("1"), ..CommonResponse::default() })
        }
        ProcessorInput::ResponseTrailers(_) => say(ProcessorReply::ResponseTrailers(TrailersResponse {
            header_mutation: mutation(vec![set("x-new", "2")], &["x-old"]).header_mutation,
        })),
        told => nothing(told),
    });
    let config =
        json!({ "request_body": "streamed", "response_body": "streamed", "response_trailers": "send" });
    let trial = processor.trial(config).answering(|_| {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-old", http::HeaderValue::from_static("1"));
        let body = Body::full_with_trailers("one", trailers);
        Response::builder().header("content-length", "3").body(body).unwrap()
    });
    let got = trial.request("POST", "/", &[("te", "trailers")], "abc").await;
    assert_eq!((got.status, got.text().as_str(), got.field("content-length"), got.cut), (200, "1", "", None));
    let trailers = got.trailers.expect("trailers");
    assert_eq!((trailers.get("x-old"), &trailers["x-new"]), (None, &http::HeaderValue::from_static("2")));
    assert_eq!(trial.asked()[0].body, "abc");
    assert_eq!(processor.told().len(), 5, "two heads, two pieces, trailers: {:?}", processor.told());
}

#[tokio::test]
async fn a_mode_is_changed_where_that_is_allowed() {
    let acting = |told: &ProcessorInput| {
        let Act::Say(said) = nothing(told) else { panic!("it says something") };
        let mode =
            ProcessingMode { request_body_mode: 2, response_header_mode: 2, ..ProcessingMode::default() };
        Act::Say(ProcessingResponse { mode_override: Some(mode), ..said })
    };
    for (allowed, expected) in [(false, 2), (true, 2)] {
        let processor = Processor::new(acting);
        let trial = processor.trial(json!({ "allow_mode_override": allowed }));
        assert_eq!(trial.request("POST", "/", &[], "abc").await.status, 200);
        let told = processor.told();
        assert_eq!(told.len(), expected);
        assert_eq!(matches!(told[1], ProcessorInput::RequestBody(_)), allowed, "{told:?}");
    }
    let duplex = Processor::new(|told| {
        let Act::Say(said) = nothing(told) else { panic!("it says something") };
        let mode = ProcessingMode { request_body_mode: 4, ..ProcessingMode::default() };
        Act::Say(ProcessingResponse { mode_override: Some(mode), ..said })
    });
    assert_eq!(duplex.trial(json!({ "allow_mode_override": true })).get("/", &[]).await.status, 500);
}
