//! Tells the linker how to lay the program out.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // 30,000 relocations take 750 KiB in the usual form, all of it read at start; packed they take a few. Needs a
    // linker and a C library from 2022 or later.
    if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
