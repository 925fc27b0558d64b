//! The public API: every type that a public signature of the facade names can be named from the facade.
//!
//! A type is *nameable* if a public path of the facade leads to it, through `pub mod` and `pub use`. The
//! public signatures are those of the functions, methods, fields, traits and implementations of the nameable
//! types, in whichever crate they are written. A signature that names another type of the workspace leaks
//! that type: a user can neither store a value of it nor write a function that takes one.
//!
//! The sources are parsed ([`tree`]) and their paths resolved ([`signatures`]), because the JSON of rustdoc
//! needs a nightly toolchain. So the rule does not see code that a macro makes. Items of the feature
//! `testing` are left out: they change without notice.

mod signatures;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use tree::{Id, Tree};

use crate::workspace::Text;

/// The crate with the public API, as code names it.
const FACADE: &str = "terracedb";

/// Leaks that are allowed, as complained of. The list only shrinks.
const EXCEPTIONS: &[&str] = &[];

/// Every leak, one line each, and every exception that is no longer needed.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    against(texts, EXCEPTIONS)
}

fn against(texts: &[Text], exceptions: &[&str]) -> Vec<String> {
    let tree = match Tree::new(texts) {
        Ok(tree) => tree,
        Err(error) => return vec![format!("public API: {error}")],
    };
    let found = leaks(&tree);
    let is_known = |leak: &String| exceptions.iter().any(|known| known == leak);
    let mut complaints: Vec<String> = found
        .iter()
        .filter(|leak| !is_known(leak))
        .map(|leak| format!("public API: {leak}"))
        .collect();
    for known in exceptions.iter().filter(|known| !found.contains(**known)) {
        complaints.push(format!("xtask/src/api.rs: the exception is not needed any more: {known}"));
    }
    complaints
}

/// `place names type`, for each type that is named in a public signature and not nameable.
fn leaks(tree: &Tree) -> BTreeSet<String> {
    let nameable = nameable(tree);
    let mut leaks = BTreeSet::new();
    for (item, path) in &nameable {
        for (place, named) in signatures::of(tree, item) {
            // Users can write the type that an alias stands for.
            let stands_for = match tree.is_alias(&named) && !nameable.contains_key(&named) {
                true => signatures::of(tree, &named).into_iter().map(|(_, named)| named).collect(),
                false => vec![named],
            };
            for named in stands_for.iter().filter(|named| !nameable.contains_key(named)) {
                leaks.insert(format!("{path}{place} names {named}"));
            }
        }
    }
    leaks
}

/// The items to which a public path of the facade leads, with one such path each.
fn nameable(tree: &Tree) -> BTreeMap<Id, String> {
    let mut found = BTreeMap::new();
    let mut modules = vec![(Id::root(FACADE), FACADE.to_owned())];
    while let Some((module, path)) = modules.pop() {
        for (name, item) in tree.exports(&module) {
            let path = format!("{path}::{name}");
            if found.contains_key(&item) {
                continue;
            }
            if tree.is_module(&item) {
                modules.push((item.clone(), path.clone()));
            }
            found.insert(item, path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn text(path: &str, content: &str) -> Text {
        Text { path: path.to_owned(), content: content.to_owned() }
    }

    /// The leaks of a facade over a crate `tree` with these sources.
    fn found(facade: &str, tree: &str, reads: &str) -> Vec<String> {
        let texts = [
            text("crates/terracedb/src/lib.rs", facade),
            text("crates/tree/src/lib.rs", tree),
            text("crates/tree/src/reads.rs", reads),
        ];
        leaks(&Tree::new(&texts).unwrap()).into_iter().collect()
    }

    #[test]
    fn a_type_without_a_public_path_leaks() {
        let tree = "mod reads; pub mod view { pub struct View; } pub use reads::Iter;";
        let reads = "use crate::view::View; pub struct Iter<T> { pub last: Option<T>, view: View }
                     impl<T> Iter<T> { pub fn new(view: &View) -> Self { } fn hidden(v: View) {} 
                                       pub(crate) fn inner(v: View) {} }";
        let facade = "pub use tree::Iter;";
        let leak = "terracedb::Iter::new names tree::view::View";
        assert_eq!(found(facade, tree, reads), [leak]);
        // Nameable, under another name and in a module of the facade.
        assert!(
            found("pub use tree::Iter; pub mod x { pub use tree::view::View as V; }", tree, reads)
                .is_empty()
        );
        // A module that is not public names nothing.
        assert_eq!(
            found("pub use tree::Iter; mod x { pub use tree::view::View; }", tree, reads),
            [leak]
        );
    }

    #[test]
    fn every_kind_of_signature_is_read() {
        let tree = "mod reads; pub use reads::*; pub struct View;";
        let leaking = |reads: &str| found("pub use tree::Iter; pub fn f() {}", tree, reads);
        for (reads, place) in [
            ("use crate::View; pub struct Iter { pub view: Vec<View> }", "::view"),
            ("use crate::View as V; pub enum Iter { A(V), B }", "::A"),
            ("pub trait Iter { fn at(&self, v: &dyn Fn(crate::View)); }", "::at"),
            ("pub trait Iter { type View: Into<super::View>; }", "::View"),
            ("pub type Iter = Option<crate::View>;", ""),
            ("type Key = Option<crate::View>; pub struct Iter(pub Key);", ""),
            ("pub fn Iter(v: impl Into<crate::View>) {}", ""),
            (
                "pub struct Iter; impl Iterator for Iter { type Item = crate::View; fn next(&mut self) {} }",
                " as Iterator",
            ),
            (
                "pub struct Iter; impl From<crate::View> for Iter { fn from(v: crate::View) -> Self {} }",
                " as From",
            ),
            ("pub struct Iter<V: AsRef<crate::View>>(V);", ""),
        ] {
            assert_eq!(
                leaking(reads),
                [format!("terracedb::Iter{place} names tree::View")],
                "{reads}"
            );
        }
        for reads in [
            "pub struct Iter<View>(pub View);",
            "pub struct Iter; #[cfg(feature = \"testing\")] impl Iter { pub fn v(v: crate::View) {} }",
            "pub struct Iter; #[cfg(test)] impl Iter { pub fn v(v: crate::View) {} }",
            "use std::fs::File as View; pub struct Iter(pub View);",
            "type Key = Option<u8>; pub struct Iter(pub Key);",
        ] {
            assert_eq!(leaking(reads), [""; 0], "{reads}");
        }
    }

    #[test]
    fn an_exception_is_deleted_when_it_is_not_needed() {
        let texts = [text("crates/terracedb/src/lib.rs", "pub struct Db;")];
        assert!(against(&texts, &[]).is_empty());
        assert_eq!(against(&texts, &["x"]).len(), 1);
    }

    /// The rule is not empty: it follows the facade into other crates.
    #[test]
    fn the_facade_has_signatures() {
        let tree = Tree::new(&workspace::texts().unwrap()).unwrap();
        let nameable = nameable(&tree);
        let types = nameable.keys().filter(|item| !tree.is_module(item)).count();
        assert!(types > 100, "{types}");
        let named: usize = nameable.keys().map(|item| signatures::of(&tree, item).len()).sum();
        assert!(named > 300, "{named}");
    }
}
