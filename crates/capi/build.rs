//! Gives the shared library the name under which programs ask for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The number counts up with `KELIX_ABI`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libkelix.so.0");
}
