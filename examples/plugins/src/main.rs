//! The program; see the library beside it.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    example_plugins::run(std::env::args().nth(1))
}
