//! The items of the workspace's crates, by path, and the resolution of paths.

use std::collections::BTreeMap;
use std::fmt;

use syn::{Attribute, Item, ItemMod, UseTree, Visibility};

use crate::workspace::Text;

/// A chain of `use` is followed this far.
const USES_MAX: usize = 32;

/// The path of an item: the crate, its modules and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id(Vec<String>);

impl Id {
    pub(super) fn root(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }

    fn child(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([name.to_owned()]).collect())
    }

    fn parent(&self) -> Self {
        Self(self.0.iter().take(self.0.len().saturating_sub(1).max(1)).cloned().collect())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("::"))
    }
}

/// A `use` of one name.
#[derive(Debug)]
struct Import {
    /// The name in the module; `*` for all.
    name: String,
    path: Vec<String>,
    is_public: bool,
}

/// A module: its items and its imports.
#[derive(Default)]
pub(super) struct Module {
    pub(super) items: Vec<Item>,
    imports: Vec<Import>,
}

/// The modules of all crates.
#[derive(Default)]
pub(super) struct Tree {
    modules: BTreeMap<Id, Module>,
    /// Every item other than a module, with its visibility to users of the crate.
    items: BTreeMap<Id, bool>,
}

impl Tree {
    /// The crates in `crates/NAME/src` of `texts`.
    pub(super) fn new(texts: &[Text]) -> Result<Self, String> {
        let sources: BTreeMap<&str, &str> =
            texts.iter().map(|text| (text.path.as_str(), text.content.as_str())).collect();
        let mut tree = Self::default();
        for path in sources.keys() {
            let folder =
                path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/src/lib.rs"));
            if let Some(name) = folder.filter(|name| !name.contains('/')) {
                tree.add_file(&sources, &format!("crates/{name}/src"), path, Id::root(name))?;
            }
        }
        Ok(tree)
    }

    /// Adds the module in the file at `path`, with its submodules in `folder`.
    fn add_file(
        &mut self,
        sources: &BTreeMap<&str, &str>,
        folder: &str,
        path: &str,
        module: Id,
    ) -> Result<(), String> {
        let source = sources.get(path).ok_or_else(|| format!("{path} is missing"))?;
        let file = syn::parse_file(source).map_err(|error| format!("{path}: {error}"))?;
        self.add(sources, folder, module, file.items)
    }

    fn add(
        &mut self,
        sources: &BTreeMap<&str, &str>,
        folder: &str,
        module: Id,
        items: Vec<Item>,
    ) -> Result<(), String> {
        let mut content = Module::default();
        for item in items.into_iter().filter(|item| !is_of_tests(attributes(item))) {
            match item {
                Item::Mod(inner) => {
                    self.items
                        .insert(module.child(&inner.ident.to_string()), is_public(&inner.vis));
                    self.add_module(sources, folder, &module, inner)?;
                }
                Item::Use(item) => {
                    let public = is_public(&item.vis);
                    flatten(&item.tree, &mut Vec::new(), public, &mut content.imports);
                }
                item => {
                    if let Some((name, public)) = definition(&item) {
                        self.items.insert(module.child(&name), public);
                    }
                    content.items.push(item);
                }
            }
        }
        self.modules.insert(module, content);
        Ok(())
    }

    fn add_module(
        &mut self,
        sources: &BTreeMap<&str, &str>,
        folder: &str,
        parent: &Id,
        module: ItemMod,
    ) -> Result<(), String> {
        let name = module.ident.to_string();
        let (id, folder) = (parent.child(&name), format!("{folder}/{name}"));
        if let Some((_, items)) = module.content {
            return self.add(sources, &folder, id, items);
        }
        let files = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
        match files.iter().find(|file| sources.contains_key(file.as_str())) {
            Some(file) => self.add_file(sources, &folder, file, id),
            None => Err(format!("module {id} has no file {}", files.join(" or "))),
        }
    }

    pub(super) fn is_module(&self, id: &Id) -> bool {
        self.modules.contains_key(id)
    }

    pub(super) fn is_alias(&self, id: &Id) -> bool {
        let module = self.modules.get(&id.parent());
        let items = module.map(|module| module.items.as_slice()).unwrap_or_default();
        let name = id.0.last();
        items
            .iter()
            .any(|item| matches!(item, Item::Type(alias) if Some(&alias.ident.to_string()) == name))
    }

    pub(super) fn modules(&self) -> impl Iterator<Item = (&Id, &Module)> {
        self.modules.iter()
    }

    /// The public names of `module`, and the items that they mean. Items of other workspaces are left out.
    pub(super) fn exports(&self, module: &Id) -> Vec<(String, Id)> {
        let mut exports = Vec::new();
        let own = self.items.iter().filter(|(id, public)| **public && id.parent() == *module);
        exports.extend(own.filter_map(|(id, _)| Some((id.0.last()?.clone(), id.clone()))));
        let imports = self.modules.get(module).map(|module| module.imports.as_slice());
        for import in imports.unwrap_or_default().iter().filter(|import| import.is_public) {
            let Some(target) = self.resolve(module, &import.path) else { continue };
            if import.name != "*" {
                exports.push((import.name.clone(), target));
            } else if target != *module {
                exports.extend(self.exports(&target));
            }
        }
        exports
    }

    /// The item of the workspace that `path` means in `module`; none for items of other crates.
    pub(super) fn resolve(&self, module: &Id, path: &[String]) -> Option<Id> {
        self.follow(module, path, USES_MAX)
    }

    fn follow(&self, module: &Id, path: &[String], uses: usize) -> Option<Id> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Id::root(module.0.first()?),
            "self" => module.clone(),
            "super" => module.parent(),
            // `::name`: a crate.
            "" => return self.in_crate(rest, uses),
            name => match self.lookup(module, name, uses) {
                Some(found) => found,
                None => return self.in_crate(path, uses),
            },
        };
        for name in rest {
            at = if name == "super" { at.parent() } else { self.lookup(&at, name, uses)? };
        }
        Some(at)
    }

    fn in_crate(&self, path: &[String], uses: usize) -> Option<Id> {
        let (name, rest) = path.split_first()?;
        let root = Id::root(name);
        self.modules.contains_key(&root).then_some(())?;
        rest.iter().try_fold(root, |at, name| self.lookup(&at, name, uses))
    }

    /// The item called `name` in `module`.
    fn lookup(&self, module: &Id, name: &str, uses: usize) -> Option<Id> {
        let uses = uses.checked_sub(1)?;
        let own = module.child(name);
        if self.items.contains_key(&own) {
            return Some(own);
        }
        let imports = &self.modules.get(module)?.imports;
        if let Some(import) = imports.iter().find(|import| import.name == name) {
            // `use name::..` in the module itself would be found again: it means a crate.
            let path = &import.path;
            let is_itself = path.first().is_some_and(|first| first == name);
            return if is_itself {
                self.in_crate(path, uses)
            } else {
                self.follow(module, path, uses)
            };
        }
        let globs = imports.iter().filter(|import| import.name == "*");
        globs.filter_map(|import| self.follow(module, &import.path, uses)).find_map(|target| {
            (target != *module).then(|| self.lookup(&target, name, uses)).flatten()
        })
    }
}

/// The name of a type, trait, function or constant, and whether it is public.
fn definition(item: &Item) -> Option<(String, bool)> {
    let (name, visibility) = match item {
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Union(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Static(item) => (&item.ident, &item.vis),
        _ => return None,
    };
    Some((name.to_string(), is_public(visibility)))
}

pub(super) fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item with these attributes exists only in tests, or with a feature for tests.
pub(super) fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            _ => return false,
        };
        let is_test = tokens.starts_with("test") || tokens.contains("\"testing\"");
        is_test
            || tokens.contains("\"fuzzing\"")
            || tokens.contains("\"shuttle\"") && !tokens.contains("not")
    })
}

/// Adds the imports of a `use`.
fn flatten(tree: &UseTree, path: &mut Vec<String>, is_public: bool, imports: &mut Vec<Import>) {
    let mut add = |name: String, path: Vec<String>| imports.push(Import { name, path, is_public });
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            flatten(&inner.tree, path, is_public, imports);
            path.pop();
        }
        UseTree::Group(group) => {
            for inner in &group.items {
                flatten(inner, path, is_public, imports);
            }
        }
        UseTree::Glob(_) => add("*".to_owned(), path.clone()),
        UseTree::Name(name) if name.ident == "self" => {
            add(path.last().cloned().unwrap_or_default(), path.clone());
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            add(name.clone(), path.iter().cloned().chain([name]).collect());
        }
        UseTree::Rename(rename) => {
            let path = path.iter().cloned().chain([rename.ident.to_string()]).collect();
            add(rename.rename.to_string(), path);
        }
    }
}
