//! Processors that say what they may not.

use super::*;

/// What a processor says to request heads.
fn saying(said: impl Fn() -> ProcessorReply + Send + Sync + 'static) -> Processor {
    Processor::new(move |_| say(said()))
}

#[tokio::test]
async fn a_change_that_can_not_be_made_is_not_made_in_part() {
    let many = || (0..1001).map(|n| set(&format!("x-{n}"), "1")).collect::<Vec<_>>();
    let bad = || vec![set("x-user", "root"), set("x bad", "1")];
    let path = || vec![set("x-user", "root"), set(":path", "/../etc")];
    let status = |code| vec![set("x-user", "root"), set(":status", code)];
    for changes in [many(), bad(), path(), status("99"), status("101"), status("600"), status("999")] {
        for (allowed, expected) in [(false, 500), (true, 200)] {
            let changes = changes.clone();
            let processor =
                Processor::new(move |told| changed(told, mutation(changes.clone(), &["x-client"])));
            let trial = processor.trial(json!({ "failure_mode_allow": allowed }));
            assert_eq!(trial.get("/", &[("x-client", "1")]).await.status, expected);
            for asked in trial.asked() {
                let fields = ["x-client", "x-user", "x-0"].map(|name| asked.field(name).to_owned());
                assert_eq!(fields, ["1", "", ""], "as the client sent it");
            }
        }
    }
    // As many as fit, where they take the place of others.
    let processor = Processor::new(move |told| {
        changed(told, mutation((0..1500).map(|_| set("x-a", "1")).collect(), &[]))
    });
    let trial = processor.trial(json!({ "response_headers": "skip" }));
    assert_eq!(trial.get("/", &[]).await.status, 200);
    assert_eq!(trial.asked()[0].field("x-a"), "1");
}

#[tokio::test]
async fn an_immediate_response_that_can_not_be_sent_is_a_failure() {
    let reply = |code, grpc: u32, body: &'static str| {
        saying(move || {
            ProcessorReply::ImmediateResponse(ImmediateResponse {
                status: Some(HttpStatus { code }),
                headers: None,
                body: Bytes::from_static(body.as_bytes()),
                grpc_status: Some(GrpcStatus { status: grpc }),
            })
        })
    };
    let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    for (code, status) in [(0, 0), (100, 0), (199, 0), (600, 0), (-1, 0), (200, 256), (200, u32::MAX)] {
        let trial = reply(code, status, "no").trial(json!({}));
        assert_eq!(trial.get("/", &[]).await.status, 500, "{code} {status}");
        assert_eq!(trial.request("POST", "/", &grpc, "").await.field("grpc-status"), "13", "{code} {status}");
        assert_eq!(trial.asked().len(), 0);
    }
    // What the message of a gRPC status may not have as it is.
    let trial = reply(403, 7, "100% no\nx-forged: 1").trial(json!({}));
    let got = trial.request("POST", "/", &grpc, "").await;
    assert_eq!(
        [got.field("grpc-status"), got.field("grpc-message"), got.field("x-forged")],
        ["7", "100%25 no%0Ax-forged: 1", ""]
    );
    assert_eq!(trial.get("/", &[]).await.text(), "100% no\nx-forged: 1");
}

#[tokio::test]
async fn an_immediate_response_in_the_middle_of_a_body_ends_the_request() {
    let reply = || ImmediateResponse {
        status: Some(HttpStatus { code: 403 }),
        body: Bytes::from_static(b"enough"),
        ..ImmediateResponse::default()
    };
    for mode in ["streamed", "buffered"] {
        let processor = Processor::new(move |told| match told {
            ProcessorInput::RequestBody(_) => say(ProcessorReply::ImmediateResponse(reply())),
            told => nothing(told),
        });
        let trial = processor.trial(json!({ "request_body": mode }));
        let got = trial.request("POST", "/", &[], "abc").await;
        assert_eq!((got.status, got.text().as_str()), (403, "enough"), "{mode}");
        assert_eq!(processor.told().len(), 2, "{mode}: it is not asked about its own answer");
        // In a response whose head has gone out, nothing is left but to end it.
        let processor = Processor::new(move |told| match told {
            ProcessorInput::ResponseBody(_) => say(ProcessorReply::ImmediateResponse(reply())),
            told => nothing(told),
        });
        let trial = processor.trial(json!({ "response_body": mode }));
        let got = trial.get("/", &[]).await;
        match mode {
            "streamed" => assert!(got.cut.is_some() && !got.text().contains("ok"), "{:?}", got.text()),
            _ => assert_eq!((got.status, got.text().as_str()), (403, "enough")),
        }
    }
}

#[tokio::test]
async fn answers_to_something_else_are_failures_at_every_step() {
    let config = json!({
        "request_body": "buffered", "response_body": "buffered",
        "request_trailers": "send", "response_trailers": "send",
    });
    // At the n-th message it answers as if it were another.
    for n in 0..5 {
        let count = Arc::new(Mutex::new(0));
        let processor = Processor::new(move |told| {
            let mut count = count.lock().unwrap();
            *count += 1;
            if *count != n + 1 {
                return nothing(told);
            }
            say(match told {
                ProcessorInput::RequestHeaders(_) => ProcessorReply::RequestBody(Changes::default()),
                ProcessorInput::RequestTrailers(_) => {
                    ProcessorReply::ResponseTrailers(TrailersResponse::default())
                }
                _ => ProcessorReply::RequestHeaders(Changes::default()),
            })
        });
        let trial = processor.trial(config.clone()).answering(|_| {
            let trailers =
                HeaderMap::from_iter([(http::HeaderName::from_static("x-t"), "1".parse().unwrap())]);
            Response::new(Body::full_with_trailers("secret", trailers))
        });
        let got = trial.request("POST", "/", &[], "abc").await;
        assert_eq!(got.status, 500, "{n}");
        assert!(!got.text().contains("secret"), "{n}");
        assert_eq!(trial.records()[0].reason, Some("ext_proc_failed"), "{n}");
    }
}

#[tokio::test]
async fn an_answer_beyond_its_limit_is_a_failure() {
    for (length, expected) in [(1000, 200), (1024, 500)] {
        let processor = Processor::new(move |told| {
            let new = Some(BodyMutation { mutation: Some(NewBody::Body(vec![b'x'; length].into())) });
            match told {
                ProcessorInput::RequestBody(_) => {
                    changed(told, CommonResponse { body_mutation: new, ..CommonResponse::default() })
                }
                told => nothing(told),
            }
        });
        let trial = processor.trial(json!({ "request_body": "buffered", "max_message": 1024 }));
        assert_eq!(trial.request("POST", "/", &[], "abc").await.status, expected, "{length}");
    }
}
