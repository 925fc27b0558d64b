//! Modules of one crate that import each other in a circle: the more of them, the less can be read, tested
//! or moved alone.
//!
//! The graph is made of `use` declarations and of paths that begin with `crate`, `self` or `super`. A name
//! that a module re-exports counts as the module that defines it. The root of a crate, which re-exports
//! from all, is left out, and so are tests.

use std::collections::{BTreeMap, BTreeSet};

use super::length::is_test;
use super::rust::split;
use crate::workspace::Text;

/// The most modules in one circle.
const CYCLE_MAX: usize = 4;

/// Crates with a larger one, and how large it is. The numbers only ever shrink.
const EXCEPTIONS: &[(&str, usize)] = &[];

type Module = Vec<String>;

/// Every crate with a circle that is too large, and every exception that is none any more.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    against(texts, EXCEPTIONS)
}

fn against(texts: &[Text], exceptions: &[(&str, usize)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, String>> = BTreeMap::new();
    for text in texts {
        let Some((name, module)) = module_of(&text.path) else { continue };
        let code = without_tests(&split(&text.content).code);
        crates.entry(name).or_default().insert(module, code);
    }
    let mut complaints = Vec::new();
    for (name, modules) in crates {
        let largest = largest_cycle(&modules);
        let allowed = exceptions.iter().find(|(exception, _)| *exception == name);
        let most = allowed.map_or(CYCLE_MAX, |(_, most)| *most);
        if largest.len() > most {
            let names: Vec<_> = largest.iter().map(|module| module.join("::")).collect();
            complaints.push(format!(
                "crates/{name}: {} modules import each other in a circle, over {most}: {}",
                names.len(),
                names.join(", ")
            ));
        } else if allowed.is_some() && largest.len() < most {
            complaints
                .push(format!("crates/{name}: circles shrunk: list it with {}", largest.len()));
        }
    }
    complaints
}

/// The crate and the module that a source file is, tests and other targets apart.
fn module_of(path: &str) -> Option<(&str, Module)> {
    let (name, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    if is_test(path) {
        return None;
    }
    let mut module: Module = inside.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    Some((name, module))
}

/// `code` without the module of tests that ends it.
fn without_tests(code: &str) -> String {
    let end = ["\nmod tests {", "#[cfg(all(test"].iter().filter_map(|start| code.find(start)).min();
    code.get(..end.unwrap_or(code.len())).unwrap_or(code).to_owned()
}

/// The modules of the largest circle; at most one where there is none.
fn largest_cycle(modules: &BTreeMap<Module, String>) -> Vec<Module> {
    let mut exports: BTreeMap<(Module, String), Module> = BTreeMap::new();
    let mut uses: BTreeMap<&Module, Vec<Module>> = BTreeMap::new();
    for (module, code) in modules {
        let mut paths = Vec::new();
        for tree in code.split("use ").skip(1).filter_map(|rest| rest.split_once(';')) {
            for path in flatten(tree.0) {
                let Some(path) = absolute(module, &path, modules) else { continue };
                if let Some(last) = path.last() {
                    exports.insert((module.clone(), last.clone()), path.clone());
                }
                paths.push(path);
            }
        }
        paths.extend(inline_paths(code).filter_map(|path| absolute(module, &path, modules)));
        uses.insert(module, paths);
    }
    let edges: BTreeMap<&Module, BTreeSet<Module>> = uses
        .into_iter()
        .map(|(module, paths)| {
            let owners = paths.into_iter().map(|path| owner(path, modules, &exports, 0));
            (module, owners.filter(|other| other != module && !other.is_empty()).collect())
        })
        .collect();
    let reached = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = next.pop() {
            for other in edges.get(&module).into_iter().flatten() {
                if seen.insert(other.clone()) {
                    next.push(other.clone());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&Module, BTreeSet<Module>> =
        modules.keys().filter(|module| !module.is_empty()).map(|m| (m, reached(m))).collect();
    let circle = |module: &Module| -> Vec<Module> {
        let own = all.get(module).into_iter().flatten();
        own.filter(|other| all.get(other).is_some_and(|reached| reached.contains(module)))
            .cloned()
            .collect()
    };
    all.keys().map(|module| circle(module)).max_by_key(Vec::len).unwrap_or_default()
}

/// The module that defines the item at `path`: through re-exports.
fn owner(
    path: Module,
    modules: &BTreeMap<Module, String>,
    exports: &BTreeMap<(Module, String), Module>,
    depth: usize,
) -> Module {
    let known = (0..=path.len()).rev().find_map(|len| {
        let module = path.get(..len)?.to_vec();
        modules.contains_key(&module).then_some((module, path.get(len).cloned()))
    });
    let Some((module, item)) = known else { return Module::new() };
    match item.and_then(|item| exports.get(&(module.clone(), item))) {
        Some(target) if *target != path && depth < 12 => {
            owner(target.clone(), modules, exports, depth + 1)
        }
        _ => module,
    }
}

/// `path` from the root of the crate; none if it is a path of another crate.
fn absolute(
    module: &Module,
    path: &[String],
    modules: &BTreeMap<Module, String>,
) -> Option<Module> {
    let first = path.first()?.as_str();
    let rest = path.get(1..)?;
    match first {
        "crate" => Some(rest.to_vec()),
        "self" => Some(module.iter().chain(rest).cloned().collect()),
        "super" => {
            let parent = module.get(..module.len().checked_sub(1)?)?.to_vec();
            match rest.first().map(String::as_str) {
                Some("super") => absolute(&parent, rest, modules),
                _ => Some(parent.iter().chain(rest).cloned().collect()),
            }
        }
        _ => {
            let child: Module = module.iter().cloned().chain([first.to_owned()]).collect();
            let is_ours = modules.contains_key(&child);
            is_ours.then(|| child.iter().chain(rest).cloned().collect())
        }
    }
}

/// The paths of a `use` tree.
fn flatten(tree: &str) -> Vec<Module> {
    let tree = tree.trim();
    let Some((head, body)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        let parts = path.split("::").map(|part| part.trim().to_owned());
        return vec![parts.filter(|part| !part.is_empty() && part != "*").collect()];
    };
    let head: Module = head
        .split("::")
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect();
    let body = body.rsplit_once('}').map_or(body, |(body, _)| body);
    let (mut depth, mut item, mut items) = (0, String::new(), Vec::new());
    for c in body.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            items.push(std::mem::take(&mut item));
        } else {
            item.push(c);
        }
    }
    items.push(item);
    let paths = items.iter().filter(|item| !item.trim().is_empty()).flat_map(|item| flatten(item));
    paths
        .map(|path| {
            let path = path.into_iter().filter(|part| part != "self");
            head.iter().cloned().chain(path).collect()
        })
        .collect()
}

/// Paths in code that begin with `crate`, `self` or `super`.
fn inline_paths(code: &str) -> impl Iterator<Item = Module> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').filter_map(|word| {
        // A path that ends in `::` is the head of a `use` tree.
        let begins = ["crate::", "self::", "super::"].iter().any(|start| word.starts_with(start))
            && !word.ends_with("::");
        let parts = word.split("::").filter(|part| !part.is_empty()).map(str::to_owned);
        begins.then(|| parts.collect())
    })
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    fn report(files: &[(&str, &str)], exceptions: &[(&str, usize)]) -> String {
        let texts: Vec<_> = files
            .iter()
            .map(|(name, code)| made_up(&format!("crates/a/src/{name}.rs"), code))
            .collect();
        against(&texts, exceptions).join("\n")
    }

    /// Five modules in a circle, by every way to name a module.
    const CIRCLE: [(&str, &str); 6] = [
        ("lib", "mod one; mod two; mod three; mod four; mod five; pub use five::Five;"),
        ("one", "use crate::two::Two;"),
        ("two", "use super::three::{self, Three};"),
        ("three", "fn f() { crate::four::go(); }"),
        ("four", "use crate::{Five, io};"),
        ("five", "pub struct Five; fn g() { super::one::go(); }"),
    ];

    #[test]
    fn a_large_circle_is_found_through_re_exports() {
        let found = report(&CIRCLE, &[]);
        assert!(
            found.contains("crates/a: 5 modules import each other in a circle, over 4"),
            "{found}"
        );
        assert!(found.contains("five, four, one, three, two"), "{found}");
        assert_eq!(report(&CIRCLE, &[("a", 5)]), "");
        assert!(report(&CIRCLE, &[("a", 6)]).contains("circles shrunk: list it with 5"));
    }

    #[test]
    fn tests_comments_and_other_crates_make_no_circle() {
        let mut files = CIRCLE;
        files[5].1 =
            "pub struct Five; // crate::one\n#[cfg(test)]\nmod tests { use crate::one; }\n";
        assert_eq!(report(&files, &[]), "");
        files[5].1 = "pub struct Five; use one::One; fn g() { other::one::go(); }";
        assert_eq!(report(&files, &[]), "");
    }
}
