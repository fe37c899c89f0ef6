//! Calls of gRPC-Web that pass as they are: what the gateway says of them is said as to gRPC.

use http::Request;

use super::*;

fn call(content_type: &'static str) -> Request<Body> {
    let mut call = request("POST", "/a");
    call.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
    call.headers_mut().insert("grpc-timeout", HeaderValue::from_static("500m"));
    call
}

#[test]
fn a_deadline_is_a_status() {
    run(async {
        for (kind, frame) in [
            ("application/grpc-web", "\u{fffd}\0\0\0"),
            ("application/grpc-web+proto", "\u{fffd}\0\0\0"),
            ("application/grpc-web-text", "gAAAA"),
            ("application/grpc-web-text+proto", "gAAAA"),
        ] {
            let got = Fake::new(ONE, [Say::Never]).serve(call(kind)).await;
            let field = |name: &str| got.headers[name].to_str().unwrap().to_owned();
            assert_eq!(
                (got.status, field("grpc-status"), field("content-type")),
                (StatusCode::OK, "4".into(), kind.into())
            );
            assert!(got.body.starts_with(frame), "{kind}: {:?}", got.body);
        }
        for (target, cause) in
            [(Say::Unsent(Cause::ConnectFailed), "14"), (Say::Sent(Cause::UpstreamGarbage), "14")]
        {
            let got = Fake::new(ONE, [target]).serve(call("application/grpc-web")).await;
            assert_eq!(
                (got.status, &got.headers["grpc-status"]),
                (StatusCode::OK, &HeaderValue::from_static(cause))
            );
        }
        let mut lost = call("application/grpc-web+proto");
        *lost.uri_mut() = "/nowhere".parse().unwrap();
        assert_eq!(Fake::new(ONE, []).serve(lost).await.headers["grpc-status"], "12");
        let plain = Fake::new(ONE, [Say::Unsent(Cause::ConnectFailed)]).serve(call("application/json")).await;
        assert_eq!((plain.status.as_u16(), plain.headers.contains_key("grpc-status")), (502, false));
    });
}

/// Behind the head the status is a frame, where no message is under way.
#[test]
fn a_status_follows_whole_messages_only() {
    run(async {
        let whole = b"\0\0\0\0\x02hi";
        for (sent, ended, cut) in [
            (&whole[..], true, Some(Cause::TotalTimeout)),
            (&whole[..4], false, Some(Cause::TotalTimeout)),
            (&whole[..6], false, Some(Cause::TotalTimeout)),
            (b"", true, Some(Cause::TotalTimeout)),
        ] {
            let got = Fake::new(ONE, [Say::Stalls("application/grpc-web", sent)])
                .serve(call("application/grpc-web"))
                .await;
            assert_eq!(got.body.contains("grpc-status:4\r\n"), ended, "{sent:?}: {:?}", got.body);
            assert_eq!(got.cut, cut, "{sent:?}");
        }
        let other =
            Fake::new(ONE, [Say::Stalls("text/plain", b"")]).serve(call("application/grpc-web")).await;
        assert_eq!(other.body, "", "an answer that is no gRPC-Web");
    });
}
