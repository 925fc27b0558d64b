//! The public signatures of an item, and the types that they name.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{
    Field, Fields, GenericParam, Generics, ImplItem, Item, ItemImpl, Path, Signature, TraitItem,
    Type,
};

use super::tree::{Id, Tree, is_of_tests, is_public};

/// The types of the workspace that the public signatures of `item` name: the place within the item, and the
/// type.
pub(super) fn of(tree: &Tree, item: &Id) -> Vec<(String, Id)> {
    let mut found = BTreeSet::new();
    for (module, content) in tree.modules() {
        for part in &content.items {
            let mut reader = Reader {
                tree,
                module,
                generics: Vec::new(),
                place: String::new(),
                found: &mut found,
            };
            if let Item::Impl(part) = part {
                let is_of_item = match part.self_ty.as_ref() {
                    Type::Path(path) => reader.resolve(&path.path).as_ref() == Some(item),
                    _ => false,
                };
                if is_of_item {
                    reader.implementation(part);
                }
            } else {
                reader.definition(part, item);
            }
        }
    }
    found.into_iter().collect()
}

/// Reads signatures in `module`.
struct Reader<'a> {
    tree: &'a Tree,
    module: &'a Id,
    /// Type parameters in scope, which are no types of the workspace.
    generics: Vec<String>,
    place: String,
    found: &'a mut BTreeSet<(String, Id)>,
}

impl Reader<'_> {
    fn resolve(&self, path: &Path) -> Option<Id> {
        let mut names: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let first = names.first()?;
        if path.leading_colon.is_none() && (first == "Self" || self.generics.contains(first)) {
            return None;
        }
        if path.leading_colon.is_some() {
            names.insert(0, String::new());
        }
        self.tree.resolve(self.module, &names)
    }

    /// Reads the definition `part` if it is that of `item`.
    fn definition(&mut self, part: &Item, item: &Id) {
        let is_it = |name: &syn::Ident| {
            self.tree.resolve(self.module, &[name.to_string()]).as_ref() == Some(item)
        };
        match part {
            Item::Struct(part) if is_it(&part.ident) => {
                self.within(&part.generics, |reader| reader.fields(&part.fields, true));
            }
            Item::Enum(part) if is_it(&part.ident) => self.within(&part.generics, |reader| {
                for variant in &part.variants {
                    reader.at(&variant.ident.to_string(), |reader| {
                        reader.fields(&variant.fields, false)
                    });
                }
            }),
            Item::Trait(part) if is_it(&part.ident) => self.within(&part.generics, |reader| {
                for bound in &part.supertraits {
                    reader.visit_type_param_bound(bound);
                }
                for inner in &part.items {
                    reader.of_trait(inner);
                }
            }),
            Item::Type(part) if is_it(&part.ident) => {
                self.within(&part.generics, |reader| reader.visit_type(&part.ty));
            }
            Item::Fn(part) if is_it(&part.sig.ident) => self.signature(&part.sig),
            Item::Const(part) if is_it(&part.ident) => self.visit_type(&part.ty),
            Item::Static(part) if is_it(&part.ident) => self.visit_type(&part.ty),
            _ => {}
        }
    }

    fn of_trait(&mut self, item: &TraitItem) {
        match item {
            TraitItem::Fn(item) if !is_of_tests(&item.attrs) => {
                self.at(&item.sig.ident.to_string(), |reader| reader.signature(&item.sig));
            }
            TraitItem::Type(item) => self.at(&item.ident.to_string(), |reader| {
                for bound in &item.bounds {
                    reader.visit_type_param_bound(bound);
                }
            }),
            TraitItem::Const(item) => {
                self.at(&item.ident.to_string(), |reader| reader.visit_type(&item.ty));
            }
            _ => {}
        }
    }

    fn implementation(&mut self, part: &ItemImpl) {
        self.within(&part.generics, |reader| match &part.trait_ {
            None => {
                for item in &part.items {
                    reader.inherent(item);
                }
            }
            Some((path, _)) => {
                // An implementation of a trait that users cannot name is no part of the API; its types are.
                let last = path.segments.last();
                let name = last.map(|segment| segment.ident.to_string()).unwrap_or_default();
                if reader.resolve(path).is_some() {
                    return;
                }
                reader.place = format!(" as {name}");
                reader.visit_path(path);
                for item in &part.items {
                    if let ImplItem::Type(item) = item {
                        reader.visit_type(&item.ty);
                    }
                }
            }
        });
    }

    fn inherent(&mut self, item: &ImplItem) {
        match item {
            ImplItem::Fn(item) if is_public(&item.vis) && !is_of_tests(&item.attrs) => {
                self.at(&item.sig.ident.to_string(), |reader| reader.signature(&item.sig));
            }
            ImplItem::Const(item) if is_public(&item.vis) => {
                self.at(&item.ident.to_string(), |reader| reader.visit_type(&item.ty));
            }
            _ => {}
        }
    }

    fn fields(&mut self, fields: &Fields, only_public: bool) {
        for (at, field) in fields.iter().enumerate() {
            if (is_public(&field.vis) || !only_public) && !is_of_tests(&field.attrs) {
                self.field(field, fields, at);
            }
        }
    }

    fn field(&mut self, field: &Field, fields: &Fields, at: usize) {
        match (&field.ident, fields) {
            (Some(name), _) => self.at(&name.to_string(), |reader| reader.visit_type(&field.ty)),
            (None, Fields::Unnamed(fields)) if fields.unnamed.len() > 1 => {
                self.at(&at.to_string(), |reader| reader.visit_type(&field.ty));
            }
            _ => self.visit_type(&field.ty),
        }
    }

    fn signature(&mut self, signature: &Signature) {
        self.within(&signature.generics, |reader| {
            for input in &signature.inputs {
                reader.visit_fn_arg(input);
            }
            reader.visit_return_type(&signature.output);
        });
    }

    /// Reads with the type parameters of `generics` in scope, and their bounds too.
    fn within(&mut self, generics: &Generics, read: impl FnOnce(&mut Self)) {
        let before = self.generics.len();
        for parameter in &generics.params {
            if let GenericParam::Type(parameter) = parameter {
                self.generics.push(parameter.ident.to_string());
            }
        }
        self.visit_generics(generics);
        read(self);
        self.generics.truncate(before);
    }

    /// Reads the part called `name`.
    fn at(&mut self, name: &str, read: impl FnOnce(&mut Self)) {
        let place = format!("{}::{name}", self.place);
        let before = std::mem::replace(&mut self.place, place);
        read(self);
        self.place = before;
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_path(&mut self, path: &'ast Path) {
        if let Some(named) = self.resolve(path) {
            self.found.insert((self.place.clone(), named));
        }
        visit::visit_path(self, path);
    }

    /// A pattern of a parameter names no type.
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}
