//! Assertions: a crate of the engine keeps its number of checked invariants per function.
//!
//! Counted are `invariant!`, which holds in release builds too, and `debug_assert!`. The goal is 0.3 a
//! function where an assertion means something: it would fail under a fault or a wrong change, and restates
//! neither the line above nor a type. The rate is a ratchet, not a reason to add assertions that cannot fail.

use super::length::is_test;
use super::rust::{is_word, split};
use crate::workspace::Text;

/// The least assertions of each crate, in 1,000 functions. A floor is raised when the rate is [`SLACK`]
/// above it.
const FLOORS: [(&str, usize); 8] = [
    ("engine", 145),
    ("tree", 102),
    ("compact", 245),
    ("wal", 230),
    ("cache", 170),
    ("table", 165),
    ("manifest", 205),
    ("read", 160),
];

/// Rates differ from their floors by less than this.
const SLACK: usize = 50;

/// Every crate with fewer assertions than its floor, and every floor that is too low.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    against(texts, &FLOORS)
}

fn against(texts: &[Text], floors: &[(&str, usize)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for &(name, floor) in floors {
        let (functions, assertions) = count(texts, name);
        let Some(rate) = (assertions * 1000).checked_div(functions) else { continue };
        if rate < floor {
            complaints.push(format!(
                "crates/{name}: {rate} assertions in 1,000 functions and not {floor}: \
                 assert the invariants of new code"
            ));
        } else if rate > floor + SLACK {
            complaints.push(format!("xtask/src/tidy/assertions.rs: raise {name} to {rate}"));
        }
    }
    complaints
}

/// The functions and the assertions of a crate, without those of tests.
fn count(texts: &[Text], name: &str) -> (usize, usize) {
    let folder = format!("crates/{name}/src/");
    let (mut functions, mut assertions) = (0, 0);
    let sources = texts.iter().filter(|text| text.path.starts_with(&folder));
    for text in sources.filter(|text| text.path.ends_with(".rs") && !is_test(&text.path)) {
        let source = text.content.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code = split(source).code;
        let is_whole = |at: usize| !code.get(..at).unwrap_or_default().ends_with(is_word);
        functions += code.match_indices("fn ").filter(|(at, _)| is_whole(*at)).count();
        assertions += code.matches("invariant!(").count() + code.matches("debug_assert").count();
    }
    (functions, assertions)
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    #[test]
    fn a_crate_keeps_its_rate() {
        let code = "fn a() { invariant!(x, \"fn \"); }\npub fn b(f: fn(u8)) { debug_assert!(y); }\nfn c() {}
                    // invariant!(\nimpl X { const fn d() {} }\n#[cfg(test)]\nmod tests { fn t() {} }\n";
        let texts = [
            made_up("crates/tree/src/lib.rs", code),
            made_up("crates/tree/src/tests.rs", "fn t() {}"),
            made_up("crates/trees/src/lib.rs", "fn t() {}"),
        ];
        assert_eq!(count(&texts, "tree"), (4, 2));
        assert_eq!(against(&texts, &[("tree", 500), ("wal", 1)]), [""; 0]);
        assert!(against(&texts, &[("tree", 501)])[0].starts_with("crates/tree: 500"));
        assert!(against(&texts, &[("tree", 449)])[0].ends_with("raise tree to 500"));
    }
}
