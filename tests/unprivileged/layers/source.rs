//! The product's source as a tree of modules: the names that each file uses from others. Test code is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Meta, Token, UseTree, Visibility};

/// A module by its path in the crate: `["process", "maps"]`.
pub type Module = Vec<String>;

pub struct File {
    pub lines: usize,
    /// The paths that the file names, from the root of the crate or of a library on.
    pub named: BTreeSet<Vec<String>>,
    /// The file's public types.
    pub types: Vec<String>,
    /// Names that other files may use as if this file defined them, and the path of each definition.
    reexports: BTreeMap<String, Vec<String>>,
    /// These paths: rooms and libraries that the file re-exports and does not need itself.
    pub handed_on: BTreeSet<Vec<String>>,
}

/// All files of the library, by module.
pub struct Source(pub BTreeMap<Module, File>);

impl Source {
    pub fn read() -> Source {
        Source::of(&testkit::repository().join("src"))
    }

    /// The library whose root is in this directory.
    pub fn of(root: &Path) -> Source {
        let mut source = Source(BTreeMap::new());
        source.add(root, &root.join("lib.rs"), Vec::new());
        source.resolve_relative();
        source
    }

    /// The file that defines a full path; `None` if a library defines it.
    pub fn defined_in(&self, name: &[String]) -> Option<&Module> {
        let mut name = name.strip_prefix(&["crate".to_owned()])?.to_vec();
        // Re-exports that lead to each other in a circle would not compile.
        loop {
            let known = (0..=name.len()).rev().find(|&end| self.0.contains_key(&name[..end]))?;
            let (module, file) = self.0.get_key_value(&name[..known])?;
            match name.get(known).and_then(|next| file.reexports.get(next)) {
                Some(place) => {
                    let place = place.strip_prefix(&["crate".to_owned()])?;
                    name = [place, &name[known + 1..]].concat();
                }
                None => return Some(module),
            }
        }
    }

    /// The other files that each file needs.
    pub fn imports(&self) -> BTreeMap<&Module, BTreeSet<&Module>> {
        let of = |(module, file): (&'_ Module, &'_ File)| {
            let needed = file.named.iter().filter_map(|name| self.defined_in(name));
            let others: BTreeSet<Module> = needed.filter(|other| *other != module).cloned().collect();
            (module.clone(), others)
        };
        let all: BTreeMap<Module, BTreeSet<Module>> = self.0.iter().map(of).collect();
        let key = |module: &Module| self.0.get_key_value(module).unwrap().0;
        all.iter().map(|(module, others)| (key(module), others.iter().map(key).collect())).collect()
    }

    fn add(&mut self, dir: &Path, path: &Path, module: Module) {
        let text = fs::read_to_string(path).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut names = Names::default();
        names.visit_file(&parsed);
        for item in &parsed.items {
            let Item::Mod(inner) = item else { continue };
            if inner.content.is_some() || is_for_tests(&inner.attrs) {
                continue;
            }
            let name = inner.ident.to_string();
            let within = if module.is_empty() { dir.to_owned() } else { dir.join(module.last().unwrap()) };
            let file = [within.join(format!("{name}.rs")), within.join(&name).join("mod.rs")];
            let file = file.iter().find(|file| file.exists()).unwrap_or_else(|| panic!("no module {name}"));
            self.add(&within, file, [module.as_slice(), &[name]].concat());
        }
        let Names { named, reexports } = names;
        let lines = text.lines().count();
        let types = parsed.items.iter().filter_map(public_type).collect();
        self.0.insert(module, File { lines, named, types, reexports, handed_on: BTreeSet::new() });
    }

    /// Completes paths that begin with `super`, `self` or a submodule.
    fn resolve_relative(&mut self) {
        let modules: BTreeSet<Module> = self.0.keys().cloned().collect();
        for (module, file) in &mut self.0 {
            file.named = file.named.iter().map(|name| absolute(&modules, module, name)).collect();
            for place in file.reexports.values_mut() {
                *place = absolute(&modules, module, place);
            }
            // A file needs a re-export that it uses itself.
            let own = |name: &Vec<String>| {
                let place = file.reexports.get(&name[0])?;
                Some([place.as_slice(), &name[1..]].concat())
            };
            let used: Vec<Vec<String>> = file.named.iter().filter_map(own).collect();
            file.named.extend(used);
            file.handed_on = file.reexports.values().cloned().collect();
        }
    }
}

/// The name of a public type.
fn public_type(item: &Item) -> Option<String> {
    let (visibility, name) = match item {
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    (!matches!(visibility, Visibility::Inherited)).then(|| name.to_string())
}

fn absolute(modules: &BTreeSet<Module>, module: &Module, name: &[String]) -> Vec<String> {
    let full = |base: &[String], rest: &[String]| [&["crate".to_owned()], base, rest].concat();
    let ups = name.iter().take_while(|part| *part == "super").count();
    match name[0].as_str() {
        "super" => full(&module[..module.len().saturating_sub(ups)], &name[ups..]),
        "self" => full(module, &name[1..]),
        _ if modules.contains(&[module.as_slice(), &name[..1]].concat()) => full(module, name),
        _ => name.to_vec(),
    }
}

/// Whether an item is compiled only for tests or fuzz targets.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            matches!(list.tokens.to_string().as_str(), "test" | "any (test , fuzzing)")
        }
        _ => false,
    })
}

/// Collects the names in a file.
#[derive(Default)]
struct Names {
    named: BTreeSet<Vec<String>>,
    reexports: BTreeMap<String, Vec<String>>,
}

impl Names {
    fn name(&mut self, path: &syn::Path) {
        self.named.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
    }

    /// The paths in a macro's body, which has no syntax before its expansion: `matches!(e, room::Error::None)`.
    fn tokens(&mut self, tokens: &str) {
        let text = tokens.replace(" :: ", "::");
        for word in text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
            let path: Vec<String> = word.split("::").map(str::to_owned).collect();
            if path.iter().all(|part| part.starts_with(|c: char| c.is_alphabetic() || c == '_')) {
                self.named.insert(path);
            }
        }
    }

    /// The paths of `use a::{b, c::d}`, each with its name in this file.
    fn leaves(tree: &UseTree, before: &[String], found: &mut Vec<(String, Vec<String>)>) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => Names::leaves(&path.tree, &with(&path.ident), found),
            UseTree::Name(name) if name.ident == "self" => {
                found.push((before.last().unwrap().clone(), before.to_vec()));
            }
            UseTree::Name(name) => found.push((name.ident.to_string(), with(&name.ident))),
            UseTree::Rename(rename) => found.push((rename.rename.to_string(), with(&rename.ident))),
            UseTree::Glob(_) => found.push(("*".to_owned(), before.to_vec())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| Names::leaves(tree, before, found)),
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(inner) => &inner.attrs,
            Item::Fn(function) => &function.attrs,
            Item::Impl(block) => &block.attrs,
            Item::Use(using) => &using.attrs,
            Item::Const(constant) => &constant.attrs,
            Item::Struct(structure) => &structure.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    /// The paths in a derive: `#[derive(thiserror::Error)]`.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("derive") {
            let list = Punctuated::<syn::Path, Token![,]>::parse_terminated;
            attribute.parse_args_with(list).unwrap().iter().for_each(|path| self.name(path));
        }
    }

    fn visit_item_use(&mut self, using: &'ast ItemUse) {
        let mut found = Vec::new();
        Names::leaves(&using.tree, &[], &mut found);
        // A re-export is no import: files that name it need it.
        if matches!(using.vis, Visibility::Inherited) {
            self.named.extend(found.into_iter().map(|(_, name)| name));
        } else {
            self.reexports.extend(found);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.name(path);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, of: &'ast syn::Macro) {
        self.name(&of.path);
        self.tokens(&of.tokens.to_string());
    }

    /// `pub(in crate::room)` does not name the room.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}
