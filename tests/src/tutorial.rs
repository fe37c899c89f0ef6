//! The tutorial of plugins: its code is compiled, its own tests run, and the page shows that very code.

#[expect(dead_code, reason = "the program's `main` is started by nobody here")]
mod greeting;

#[test]
fn the_page_shows_this_code() {
    let page = include_str!("../../website/src/content/docs/develop/write-a-plugin.md");
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.join("\n"), include_str!("tutorial/greeting.rs"));
}
