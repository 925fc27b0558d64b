//! The modules of one crate, and which of them use which, read from the tokens of their source.
//!
//! A module uses another if it names one of its items, in a `use` declaration or in code. A name that a
//! module imports or re-exports, also as a glob or under an alias, counts as an item of the module that
//! defines it. Items under `#[cfg(test)]` are left out, and so are the modules declared by them. Code that
//! macros make is not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::rust::{is_word, split};

/// The path of a module or an item, without its `::`.
pub(super) type Path = Vec<String>;

/// The most re-exports that a name is followed through, because re-exports may form a cycle.
const DEPTH_MAX: usize = 12;

/// The keywords that an item is named after.
const NAMED_ITEMS: [&str; 10] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod", "macro_rules"];

/// The other words that an item begins with, after its visibility.
const ITEM_STARTS: [&str; 5] = ["use", "impl", "unsafe", "async", "extern"];

/// The names in one module.
#[derive(Default)]
struct Names {
    /// Every path in the source, as written.
    paths: Vec<Path>,
    /// The path of each imported name, as written.
    imports: BTreeMap<String, Path>,
    /// The modules of glob imports, as written.
    globs: Vec<Path>,
    /// The items defined here.
    items: BTreeSet<String>,
    /// The modules in files of their own.
    children: Vec<String>,
}

/// The modules of a crate.
#[derive(Default)]
pub(super) struct Modules(BTreeMap<Path, Names>);

impl Modules {
    /// Reads the root and the modules that it and its modules declare; `sources` are the files of the crate.
    pub(super) fn new(sources: &BTreeMap<Path, String>) -> Self {
        let mut modules = Self::default();
        let mut next = vec![Path::new()];
        while let Some(module) = next.pop() {
            let Some(source) = sources.get(&module).filter(|_| !modules.0.contains_key(&module))
            else {
                continue;
            };
            let code = split(source).code;
            let names = Names::read(&without_tests(&tokens(&code)));
            next.extend(names.children.iter().map(|child| join(&module, [child])));
            modules.0.insert(module, names);
        }
        modules
    }

    /// The other modules that each module uses; the root, which re-exports from all, is left out.
    pub(super) fn edges(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let uses = |module, names: &Names| {
            let paths = names.paths.iter().chain(&names.globs);
            let owners = paths.filter_map(|path| self.owner(&self.absolute(module, path, 0)?, 0));
            owners.filter(|owner| *owner != module && !owner.is_empty()).collect()
        };
        let inner = self.0.iter().filter(|(module, _)| !module.is_empty());
        inner.map(|(module, names)| (module, uses(module, names))).collect()
    }

    /// The path from the root for a `path` written in `module`; none if it leads to another crate.
    fn absolute(&self, module: &[String], path: &[String], depth: usize) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => return Some(join(module, rest)),
            "super" => {
                let (_, parent) = module.split_last()?;
                let is_further = rest.first().is_some_and(|word| word == "super");
                return if is_further {
                    self.absolute(parent, rest, depth)
                } else {
                    Some(join(parent, rest))
                };
            }
            _ => {}
        }
        if self.0.contains_key(&join(module, [first])) {
            return Some(join(module, path));
        }
        let import = self.0.get(module)?.imports.get(first)?;
        if import == path || depth == DEPTH_MAX {
            return None;
        }
        Some(join(&self.absolute(module, import, depth + 1)?, rest))
    }

    /// The module that defines the item at `path`, which begins at the root.
    fn owner(&self, path: &[String], depth: usize) -> Option<&Path> {
        let (module, names) =
            (0..=path.len()).rev().find_map(|len| self.0.get_key_value(path.get(..len)?))?;
        let Some((item, rest)) = path.get(module.len()..)?.split_first() else {
            return Some(module);
        };
        if depth == DEPTH_MAX {
            return Some(module);
        }
        let target = names.imports.get(item).and_then(|import| self.absolute(module, import, 0));
        if let Some(target) = target.map(|target| join(&target, rest))
            && target != path
        {
            return self.owner(&target, depth + 1);
        }
        if names.items.contains(item) {
            return Some(module);
        }
        let through_globs = names.globs.iter().find_map(|glob| {
            let source = self.absolute(module, glob, 0)?;
            let owner = self.owner(&join(&source, [item]), depth + 1)?;
            self.0.get(owner)?.items.contains(item).then_some(owner)
        });
        Some(through_globs.unwrap_or(module))
    }
}

impl Names {
    fn read(tokens: &[&str]) -> Self {
        let mut names = Self::default();
        let mut rest = tokens;
        let mut before = "";
        while let Some((&token, after)) = rest.split_first() {
            let next = after.first().copied().unwrap_or_default();
            let mut len = 1;
            // `use<..>` lists the generic parameters that an opaque type captures.
            if token == "use" && next != "<" {
                len = position(rest, |token| token == ";");
                names.import(&Path::new(), rest.get(1..len).unwrap_or_default());
            } else if NAMED_ITEMS.contains(&token) {
                let name =
                    if next == "!" { after.get(1).copied().unwrap_or_default() } else { next };
                names.items.insert(name.to_owned());
                if token == "mod" && after.get(1) == Some(&";") {
                    names.children.push(name.to_owned());
                }
            } else if is_name(token) && next == "::" && before != "::" {
                let (mut path, mut tail) = (vec![token.to_owned()], after);
                while let ["::", part, after @ ..] = tail
                    && is_name(part)
                {
                    path.push((*part).to_owned());
                    tail = after;
                }
                names.paths.push(path);
            }
            before = token;
            rest = rest.get(len..).unwrap_or_default();
        }
        names
    }

    /// Adds the imports of a `use` declaration, or of a part of it that follows `head`.
    fn import(&mut self, head: &Path, tree: &[&str]) {
        let brace = position(tree, |token| token == "{");
        let (path, group) = tree.split_at_checked(brace).unwrap_or((tree, &[]));
        let alias = path.iter().position(|token| *token == "as");
        let words = path.get(..alias.unwrap_or(path.len())).unwrap_or_default();
        let mut words: Path =
            words.iter().filter(|word| **word != "::").map(|word| (*word).to_owned()).collect();
        if !head.is_empty() && words.first().is_some_and(|word| word == "self") {
            words.remove(0);
        }
        let path_to = join(head, &words);
        if let [_, inside @ .., _] = group {
            for item in items(inside) {
                self.import(&path_to, item);
            }
        } else if let Some((last, module)) = path_to.split_last() {
            if last == "*" {
                self.globs.push(module.to_vec());
                return;
            }
            let name = alias.and_then(|at| path.get(at + 1)).copied().unwrap_or(last.as_str());
            self.imports.insert(name.to_owned(), path_to.clone());
            // `imports` holds one path for each name, and functions may import others.
            self.paths.push(path_to);
        }
    }
}

fn join<'a>(head: &'a [String], tail: impl IntoIterator<Item = &'a String>) -> Path {
    head.iter().chain(tail).cloned().collect()
}

fn is_name(token: &str) -> bool {
    token.chars().next().is_some_and(|c| is_word(c) && !c.is_ascii_digit())
}

/// The words, the `::` and all other characters except white space of `code`.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = match first {
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at_checked(len).unwrap_or((rest, ""));
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// The position of the first token outside of brackets that `is_end`, or of the closing bracket around all of
/// `tokens`; else the number of tokens.
fn position(tokens: &[&str], is_end: impl Fn(&str) -> bool) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        if depth == 0 && is_end(token) {
            return at;
        }
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return at,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The parts of `tokens` between commas outside of brackets.
fn items<'a, 'b>(mut tokens: &'a [&'b str]) -> Vec<&'a [&'b str]> {
    let mut items = Vec::new();
    while !tokens.is_empty() {
        let end = position(tokens, |token| token == ",");
        items.push(tokens.get(..end).unwrap_or_default());
        tokens = tokens.get(end + 1..).unwrap_or_default();
    }
    items
}

/// `tokens` without the items, fields and statements under `#[cfg(test)]` or `#[cfg(all(test, ..))]`.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        if rest.starts_with(&["#", "[", "cfg", "(", "test"])
            || rest.starts_with(&["#", "[", "cfg", "(", "all", "(", "test"])
        {
            rest = rest.get(annotated_len(rest)..).unwrap_or_default();
        } else {
            kept.push(*token);
            rest = after;
        }
    }
    kept
}

/// The length of the item, field or statement that `tokens` begin with, its attributes included.
fn annotated_len(tokens: &[&str]) -> usize {
    let mut start = 0;
    while let Some(["#", "[", attribute @ ..]) = tokens.get(start..) {
        start += 2 + position(attribute, |_| false) + 1;
    }
    let rest = tokens.get(start..).unwrap_or_default();
    let unrestricted = match rest {
        ["pub", "(", after @ ..] => after.get(position(after, |_| false) + 1..).unwrap_or_default(),
        ["pub", after @ ..] => after,
        _ => rest,
    };
    let first = unrestricted.first().copied().unwrap_or_default();
    let is_item = NAMED_ITEMS.contains(&first) || ITEM_STARTS.contains(&first);
    let braces = position(rest, |token| token == "{");
    let end = position(rest, |token| token == ";" || (token == "," && !is_item));
    if braces < end && first != "use" {
        let inside = rest.get(braces + 1..).unwrap_or_default();
        return start + braces + 1 + position(inside, |_| false) + 1;
    }
    let is_ended = rest.get(end).is_some_and(|token| [";", ","].contains(token));
    start + end + usize::from(is_ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let path =
            |name: &str| name.split("::").filter(|s| !s.is_empty()).map(Into::into).collect();
        Modules::new(&files.iter().map(|(name, code)| (path(name), (*code).to_owned())).collect())
    }

    /// The modules that module `a` uses if its source is `code`.
    fn used(code: &str) -> String {
        let files = [
            ("", "mod a; mod b; mod c; mod facade; pub(crate) use b::B as Renamed; pub use c::*;"),
            ("a", code),
            ("a::child", "pub struct Child; pub(crate) use super::super::c::C;"),
            ("b", "pub struct B; pub fn f<T>() {}"),
            ("c", "pub struct C; mod deep;"),
            ("c::deep", "pub struct Deep;"),
            ("facade", "pub(crate) use crate::b as other; pub use crate::c::*; pub struct Own;"),
        ];
        let modules = modules(&files);
        let edges = modules.edges();
        let used = edges.get(&path(&["a"])).into_iter().flatten();
        used.map(|module| module.join("::")).collect::<Vec<_>>().join(" ")
    }

    fn path(parts: &[&str]) -> Path {
        parts.iter().map(|part| (*part).to_owned()).collect()
    }

    #[test]
    fn every_way_to_name_a_module_is_an_edge() {
        for (code, modules) in [
            ("use crate::b::B;", "b"),
            ("use super::{b::{self, B as X}, c::deep::Deep};", "b c::deep"),
            ("fn f() { use crate::b::B as _; }", "b"),
            ("fn f() -> crate::c::C { super::b::f::<u8>() }", "b c"),
            ("use crate::c; fn f(_: c::deep::Deep) {}", "c c::deep"),
            ("mod child; fn f() { child::f(); }", "a::child"),
            ("mod child; use child::*;", "a::child"),
            ("use super::b::*;", "b"),
        ] {
            assert_eq!(used(code), modules, "{code}");
        }
    }

    #[test]
    fn a_re_exported_item_counts_for_the_module_that_defines_it() {
        for (code, modules) in [
            ("use crate::Renamed;", "b"),
            ("use crate::C;", "c"),
            ("use crate::facade::other::B;", "b"),
            ("use crate::facade::other; fn f() { other::f(); }", "b"),
            ("use crate::facade::C;", "c"),
            ("use crate::facade::Own;", "facade"),
            ("mod child; use child::C;", "c"),
        ] {
            assert_eq!(used(code), modules, "{code}");
        }
    }

    #[test]
    fn other_crates_and_names_that_end_in_use_are_no_edge() {
        for code in [
            "use b::B; fn f() { other::crate_b::f(); ::b::f(); }",
            "fn reuse() -> impl Sized + use<'static> { 1 }",
            "use std::fmt as c; fn f(_: c::Error) {}",
            "// crate::b::B\nconst TEXT: &str = \"crate::b::B\";",
        ] {
            assert_eq!(used(code), "", "{code}");
        }
    }

    #[test]
    fn code_under_cfg_test_is_no_edge_and_the_code_after_it_is() {
        for code in [
            "#[cfg(test)] mod tests { fn f() { crate::c::f(); } }",
            "#[cfg(all(test, feature = \"x\"))] use crate::c::{self, C};",
            "#[cfg(test)] #[path = \"x.rs\"] mod child;",
            "#[cfg(test)] pub(crate) fn f<A, B>(a: A) -> [u8; 2] { crate::c::f::<A, B>() }",
            "#[cfg(test)] const X: [u8; 2] = crate::c::X;",
            "struct S { #[cfg(test)] pub(crate) x: crate::c::C, y: u8 }",
            "fn f() { S { #[cfg(test)] x: crate::c::C, y: 1 }; }",
            "fn f() { #[cfg(test)] if let Some(_) = crate::c::f() { crate::c::g() } }",
        ] {
            assert_eq!(used(&format!("{code} use crate::b::B;")), "b", "{code}");
        }
        assert_eq!(used("struct S { #[cfg(test)] x: u8, y: crate::b::B }"), "b");
        assert_eq!(used("#[cfg(not(test))] use crate::b::B;"), "b");
    }

    #[test]
    fn re_exports_in_a_circle_end() {
        let files = [
            ("", "mod a; mod b;"),
            ("a", "pub use crate::b::X; pub use crate::b::*;"),
            ("b", "pub use crate::a::X; pub use crate::a::*; use crate::a::Y;"),
        ];
        assert_eq!(modules(&files).edges().len(), 2);
    }
}
