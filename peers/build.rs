//! Compiles the calls of Berkeley DB, if the comparison has it.

fn main() {
    println!("cargo::rerun-if-changed=src/stores/berkeley.c");
    #[cfg(feature = "berkeleydb")]
    {
        cc::Build::new().file("src/stores/berkeley.c").warnings(true).compile("berkeley");
        // After the calls, which need it.
        println!("cargo::rustc-link-lib=db-5.3");
    }
}
