//! The example of an embedded gateway does what it says.

#[path = "../../examples/embed.rs"]
mod example;

#[test]
fn a_gateway_runs_within_a_program_with_a_plugin_of_its_own() {
    let answer = example::run().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("x-greeting: good morning\r\n"), "{answer}");
    assert!(answer.ends_with("GET /users HTTP/1.1"), "{answer}");
    example::main().unwrap();
}
