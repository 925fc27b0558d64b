//! Import cycles: few modules of a crate may use each other in a cycle, so that each can be read, tested and
//! moved alone. The root of a crate, which re-exports from all modules, is left out, and so are tests.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Modules, Path};
use crate::workspace::Text;

/// The most modules in one cycle.
const CYCLE_MAX: usize = 4;

/// Every crate with a cycle of more than [`CYCLE_MAX`] modules.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<Path, String>> = BTreeMap::new();
    for text in texts {
        let Some((name, module)) = module_of(&text.path) else { continue };
        // A crate with a library and a program has two roots.
        let source = crates.entry(name).or_default().entry(module).or_default();
        source.push_str(&text.content);
    }
    let mut complaints = Vec::new();
    for (name, sources) in crates {
        let cycle = largest_cycle(&Modules::new(&sources));
        if cycle.len() > CYCLE_MAX {
            complaints.push(format!(
                "crates/{name}: {} modules use each other in a cycle, over {CYCLE_MAX}: {}",
                cycle.len(),
                cycle.join(", ")
            ));
        }
    }
    complaints
}

/// The crate and the module of a source file.
fn module_of(path: &str) -> Option<(&str, Path)> {
    let (name, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let mut module: Path = inside.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    Some((name, module))
}

/// The modules of the largest cycle; none if there is no cycle.
fn largest_cycle(modules: &Modules) -> Vec<String> {
    let edges = modules.edges();
    let reached = |from| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            next.extend(
                edges.get(module).into_iter().flatten().filter(|used| reached.insert(**used)),
            );
        }
        reached
    };
    let all: BTreeMap<&Path, BTreeSet<&Path>> =
        edges.keys().map(|module| (*module, reached(module))).collect();
    // A module that reaches itself is in a cycle with each module that it reaches and that reaches it.
    let cycles = all.iter().map(|(module, reached)| {
        let returns =
            |other: &&&Path| all.get(**other).is_some_and(|reached| reached.contains(module));
        reached.iter().filter(returns).map(|module| module.join("::")).collect::<Vec<_>>()
    });
    cycles.max_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    fn report(files: &[(&str, &str)]) -> String {
        let texts: Vec<_> = files
            .iter()
            .map(|(name, code)| made_up(&format!("crates/a/src/{name}.rs"), code))
            .collect();
        complaints(&texts).join("\n")
    }

    /// Five modules in a cycle, one of them used through a re-export of the root.
    const CYCLE: [(&str, &str); 6] = [
        ("lib", "mod one; mod two; mod three; mod four; mod five; pub use five::Five;"),
        ("one", "use crate::two::Two;"),
        ("two/mod", "use super::three::{self, Three};"),
        ("three", "fn f() { crate::four::go(); }"),
        ("four", "use crate::{Five, io};"),
        ("five", "pub struct Five; fn g() { super::one::go(); }"),
    ];

    #[test]
    fn a_cycle_of_more_than_four_modules_is_refused() {
        let found = report(&CYCLE);
        let expected = "crates/a: 5 modules use each other in a cycle, over 4: \
                        five, four, one, three, two";
        assert_eq!(found, expected);
        let mut files = CYCLE;
        files[2].1 = "use super::four::{self, Four};";
        assert_eq!(report(&files), "", "a cycle of four");
        files = CYCLE;
        files[5].1 = "pub struct Five; use one::One; // crate::one::One";
        assert_eq!(report(&files), "", "no cycle");
    }

    #[test]
    fn a_library_and_a_program_in_one_crate_are_both_read() {
        let mut files = CYCLE.to_vec();
        files.push(("main", "fn main() {}"));
        assert!(report(&files).contains("5 modules"));
    }
}
