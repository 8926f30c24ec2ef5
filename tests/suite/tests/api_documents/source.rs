//! Reads our own sources: which routes a function serves, with which statuses and codes, and the members of its documents.
//!
//! What a route may answer is found by following calls from its handler, through this crate and `platform::http`, to every
//! `Problem` that is made on the way. Calls into `sale` and `chat` are not followed: they make no problems, since statuses
//! exist in functions and platform only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use contract::root;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprCall, ExprLit, ExprMatch, ExprMethodCall, ExprPath, Fields, GenericArgument, Item, Lit, Pat,
    PathArguments, Type,
};

/// A crate's sources, without its tests.
pub(crate) struct Source {
    folder: String,
    items: Vec<Item>,
    /// Names of its modules: `refusal::problem` is a call within the crate, `lifecycle::pause` is not.
    modules: BTreeSet<String>,
}

const CHAT: &str = "shared/chat";

/// What serde makes of a struct.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) all: BTreeSet<String>,
    pub(crate) required: BTreeSet<String>,
}

/// What a route may answer.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) successes: BTreeSet<u16>,
    pub(crate) problems: BTreeSet<(u16, String)>,
}

impl Source {
    /// `folder` is the crate's, from the checkout: `functions/buy`.
    pub(crate) fn read(folder: &str) -> Self {
        let mut source = Self { folder: folder.to_owned(), items: Vec::new(), modules: ["crate".to_owned()].into() };
        source.read_folder(&root().join(folder).join("src"));
        source
    }

    fn read_folder(&mut self, folder: &Path) {
        let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                self.modules.insert(name);
                self.read_folder(&path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
                let text = fs::read_to_string(&path).unwrap();
                let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                self.modules.insert(name);
                self.items.extend(file.items.into_iter().filter(|item| !is_test(item)));
            }
        }
    }

    /// The routes, from `match request.route()` in `handle`.
    pub(crate) fn routes(&self) -> BTreeSet<String> {
        self.arms().into_keys().collect()
    }

    /// Route → what is done for it.
    fn arms(&self) -> BTreeMap<String, &Expr> {
        let mut routes = Routes::default();
        self.items.iter().for_each(|item| routes.visit_item(item));
        routes.0
    }

    /// The integer constants that are written as a plain number.
    pub(crate) fn constant(&self, name: &str) -> i64 {
        let value = self.items.iter().find_map(|item| match item {
            Item::Const(item) if item.ident == name => integer(&item.expr),
            _ => None,
        });
        value.unwrap_or_else(|| panic!("{} has no constant {name} that is a number", self.folder))
    }

    /// Names of all structs and enums that serde reads or writes.
    pub(crate) fn serde_types(&self) -> BTreeSet<String> {
        let named = self.items.iter().filter_map(|item| match item {
            Item::Struct(item) => Some((item.ident.to_string(), &item.attrs)),
            Item::Enum(item) => Some((item.ident.to_string(), &item.attrs)),
            _ => None,
        });
        named
            .filter(|(_, attributes)| derives(attributes, "Serialize") || derives(attributes, "Deserialize"))
            .map(|(name, _)| name)
            .collect()
    }

    /// The members of a struct's JSON object. One that is read must refuse others.
    pub(crate) fn members(&self, name: &str) -> Members {
        let item = self.items.iter().find_map(|item| match item {
            Item::Struct(item) if item.ident == name => Some(item),
            _ => None,
        });
        let Some(item) = item else {
            // A function may put something around a document of the chat.
            assert_ne!(self.folder, CHAT, "neither a function nor the chat has a struct {name}");
            return Self::read(CHAT).members(name);
        };
        let options = serde_options(&item.attrs);
        let is_read = derives(&item.attrs, "Deserialize");
        if is_read && !derives(&item.attrs, "Serialize") {
            assert!(options.contains_key("deny_unknown_fields"), "{name} takes members that it does not know");
        }
        self.fields(&item.fields, options.get("rename_all").map(String::as_str), is_read)
    }

    fn fields(&self, fields: &Fields, rename_all: Option<&str>, is_read: bool) -> Members {
        let mut members = Members::default();
        for field in fields {
            let options = serde_options(&field.attrs);
            if options.contains_key("flatten") {
                let name = type_name(&field.ty);
                let inner = self.tag_and_content(&name).unwrap_or_else(|| self.members(&name));
                members.all.extend(inner.all);
                members.required.extend(inner.required);
                continue;
            }
            let ident = field.ident.as_ref().expect("documents have named fields").to_string();
            let name = options.get("rename").cloned().unwrap_or_else(|| renamed(&ident, rename_all));
            // serde takes a missing `Option` for None, and writes every field that it is not told to skip
            let optional = options.contains_key("default")
                || options.contains_key("skip_serializing_if")
                || is_read && type_name(&field.ty) == "Option";
            if !optional {
                members.required.insert(name.clone());
            }
            members.all.insert(name);
        }
        members
    }

    /// Of an enum that is written as two members: which of its variants it is, and what is in it.
    fn tag_and_content(&self, name: &str) -> Option<Members> {
        let attributes = self.items.iter().find_map(|item| match item {
            Item::Enum(item) if item.ident == name => Some(&item.attrs),
            _ => None,
        })?;
        let options = serde_options(attributes);
        let names: BTreeSet<String> = ["tag", "content"].iter().map(|option| options[*option].clone()).collect();
        Some(Members { all: names.clone(), required: names })
    }

    /// The words of an enum without fields.
    pub(crate) fn words(&self, name: &str) -> BTreeSet<String> {
        self.variants(name).into_keys().collect()
    }

    /// The variants of an enum, with the members of each: its own named fields, or those of the struct in it.
    pub(crate) fn variants(&self, name: &str) -> BTreeMap<String, Members> {
        let item = self.items.iter().find_map(|item| match item {
            Item::Enum(item) if item.ident == name => Some(item),
            _ => None,
        });
        let item = item.unwrap_or_else(|| panic!("{} has no enum {name}", self.folder));
        let options = serde_options(&item.attrs);
        let is_read = derives(&item.attrs, "Deserialize");
        let of_variants = options.get("rename_all").map(String::as_str);
        let of_fields = options.get("rename_all_fields").map(String::as_str);
        item.variants
            .iter()
            .map(|variant| {
                let members = match &variant.fields {
                    Fields::Unit => Members::default(),
                    Fields::Named(_) => self.fields(&variant.fields, of_fields, is_read),
                    Fields::Unnamed(fields) => self.members(&type_name(&fields.unnamed.first().unwrap().ty)),
                };
                (renamed(&variant.ident.to_string(), of_variants), members)
            })
            .collect()
    }

    /// What each route may answer.
    pub(crate) fn answers(&self, http: &Source) -> BTreeMap<String, Answers> {
        let calls = Calls::of(&[http, self]);
        let arms = self.arms().into_iter();
        arms.map(|(route, arm)| {
            let mut body = BodyReader::read(self, None, |reader| reader.visit_expr(arm));
            // What stands before the router is done for every route.
            body.calls.insert(Callee::Free(self.folder.clone(), "handle".to_owned()));
            (route, calls.answers(body))
        })
        .collect()
    }
}

// ------------------------------------------------------------------------------------ calls

/// A function of ours that another one may call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Callee {
    /// A free function of a crate.
    Free(String, String),
    /// `Type::function`.
    Associated(String, String),
    /// `.method`, of a type that is not known here.
    Method(String),
}

/// What stands in a function's body.
#[derive(Debug, Default, Clone)]
struct Body {
    calls: BTreeSet<Callee>,
    answers: Answers,
}

#[derive(Default)]
struct Calls(BTreeMap<Callee, Body>);

impl Calls {
    fn of(sources: &[&Source]) -> Self {
        let mut calls = Self::default();
        for source in sources {
            for item in &source.items {
                match item {
                    Item::Fn(function) => {
                        let body = BodyReader::read(source, None, |reader| reader.visit_block(&function.block));
                        calls.add(Callee::Free(source.folder.clone(), function.sig.ident.to_string()), body);
                    }
                    Item::Impl(block) => calls.add_impl(source, block),
                    _ => {}
                }
            }
        }
        calls
    }

    fn add_impl(&mut self, source: &Source, block: &syn::ItemImpl) {
        let owner = type_name(&block.self_ty);
        for item in &block.items {
            let syn::ImplItem::Fn(function) = item else { continue };
            let name = function.sig.ident.to_string();
            let body = BodyReader::read(source, Some(&owner), |reader| reader.visit_block(&function.block));
            if function.sig.receiver().is_some() {
                self.add(Callee::Method(name.clone()), body.clone());
            }
            self.add(Callee::Associated(owner.clone(), name), body);
        }
    }

    /// Methods of one name and unknown type count as one.
    fn add(&mut self, callee: Callee, body: Body) {
        let known = self.0.entry(callee).or_default();
        known.calls.extend(body.calls);
        known.answers.successes.extend(body.answers.successes);
        known.answers.problems.extend(body.answers.problems);
    }

    /// All that can be answered from here on.
    fn answers(&self, from: Body) -> Answers {
        let Body { calls, mut answers } = from;
        let mut seen = BTreeSet::new();
        let mut open = Vec::from_iter(calls);
        while let Some(callee) = open.pop() {
            if let Some(body) = self.0.get(&callee).filter(|_| !seen.contains(&callee)) {
                answers.successes.extend(body.answers.successes.iter().copied());
                answers.problems.extend(body.answers.problems.iter().cloned());
                open.extend(body.calls.iter().cloned());
                seen.insert(callee);
            }
        }
        answers
    }
}

struct BodyReader<'a> {
    source: &'a Source,
    owner: Option<&'a str>,
    body: Body,
}

impl<'a> BodyReader<'a> {
    fn read(source: &'a Source, owner: Option<&'a str>, visit: impl FnOnce(&mut Self)) -> Body {
        let mut reader = Self { source, owner, body: Body::default() };
        visit(&mut reader);
        reader.body
    }
}

impl<'ast> Visit<'ast> for BodyReader<'_> {
    fn visit_expr_match(&mut self, node: &'ast ExprMatch) {
        // The arms of the router are the routes; what stands around it belongs to all of them.
        if is_router(node) { self.visit_expr(&node.expr) } else { visit::visit_expr_match(self, node) }
    }

    fn visit_expr_call(&mut self, node: &'ast ExprCall) {
        if let Expr::Path(path) = &*node.func {
            let name = path_of(path);
            let arguments: Vec<&Expr> = node.args.iter().collect();
            let is_problem = name.ends_with("Problem::new") || name == "Self::new" && self.owner == Some("Problem");
            if is_problem
                && let [status, code, ..] = arguments[..]
                && let (Some(status), Some(code)) = (integer(status), string(code))
            {
                self.body.answers.problems.insert((u16::try_from(status).unwrap(), code));
            }
            if name == "Response::json" {
                let status = arguments.first().and_then(|status| integer(status)).expect("a status that is a number");
                self.body.answers.successes.insert(u16::try_from(status).unwrap());
            }
            if name == "Response::cacheable" {
                self.body.answers.successes.extend([200, 304]);
            }
        }
        visit::visit_expr_call(self, node);
    }

    /// A function that is called, or handed on: `map_err(failed)`.
    fn visit_expr_path(&mut self, node: &'ast ExprPath) {
        let segments: Vec<String> = node.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let folder = self.source.folder.clone();
        let callee = match &segments[..] {
            [name] => Some(Callee::Free(folder, name.clone())),
            [owner, name] if owner == "Self" => {
                self.owner.map(|owner| Callee::Associated(owner.to_owned(), name.clone()))
            }
            [.., owner, name] if owner.starts_with(char::is_uppercase) => {
                Some(Callee::Associated(owner.clone(), name.clone()))
            }
            [module, .., name] if self.source.modules.contains(module) => Some(Callee::Free(folder, name.clone())),
            _ => None,
        };
        self.body.calls.extend(callee);
    }

    fn visit_expr_method_call(&mut self, node: &'ast ExprMethodCall) {
        // `request.path("orderNo").map_err(|_| …)`: the problem that the inner call made goes nowhere
        let replaced = match &*node.receiver {
            Expr::MethodCall(inner) if node.method == "map_err" && ignores_its_argument(node) => Some(inner),
            _ => None,
        };
        match replaced {
            Some(inner) => {
                self.visit_expr(&inner.receiver);
                inner.args.iter().chain(&node.args).for_each(|argument| self.visit_expr(argument));
            }
            None => {
                self.body.calls.insert(Callee::Method(node.method.to_string()));
                visit::visit_expr_method_call(self, node);
            }
        }
    }
}

fn ignores_its_argument(call: &ExprMethodCall) -> bool {
    matches!(call.args.first(), Some(Expr::Closure(closure)) if matches!(closure.inputs.first(), Some(Pat::Wild(_))))
}

#[derive(Default)]
struct Routes<'a>(BTreeMap<String, &'a Expr>);

impl<'ast> Visit<'ast> for Routes<'ast> {
    fn visit_expr_match(&mut self, node: &'ast ExprMatch) {
        if !is_router(node) {
            return visit::visit_expr_match(self, node);
        }
        for arm in &node.arms {
            match &arm.pat {
                Pat::Lit(ExprLit { lit: Lit::Str(route), .. }) => {
                    assert!(self.0.insert(route.value(), &*arm.body).is_none(), "{} is there twice", route.value());
                }
                // What the gateway does not send.
                Pat::Wild(_) => {}
                _ => panic!("a router has routes and a rest"),
            }
        }
    }
}

fn is_router(node: &ExprMatch) -> bool {
    matches!(&*node.expr, Expr::MethodCall(call) if call.method == "route")
}

// ------------------------------------------------------------------------------- small things

fn is_test(item: &Item) -> bool {
    matches!(item, Item::Mod(module) if module.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")))
}

fn path_of(path: &ExprPath) -> String {
    let segments: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    segments.join("::")
}

fn type_name(ty: &Type) -> String {
    match ty {
        Type::Path(path) => {
            let last = path.path.segments.last().unwrap();
            match &last.arguments {
                // serde does not see a box
                PathArguments::AngleBracketed(inner) if last.ident == "Box" => match inner.args.first() {
                    Some(GenericArgument::Type(inner)) => type_name(inner),
                    _ => String::new(),
                },
                _ => last.ident.to_string(),
            }
        }
        Type::Reference(reference) => type_name(&reference.elem),
        _ => String::new(),
    }
}

fn integer(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse().ok(),
        _ => None,
    }
}

fn string(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

fn derives(attributes: &[Attribute], name: &str) -> bool {
    let mut found = false;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        attribute
            .parse_nested_meta(|meta| {
                found |= meta.path.is_ident(name);
                Ok(())
            })
            .unwrap();
    }
    found
}

/// The options of `#[serde(…)]`, with their values.
fn serde_options(attributes: &[Attribute]) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute
            .parse_nested_meta(|meta| {
                let value = if meta.input.peek(syn::Token![=]) {
                    meta.value()?.parse::<syn::LitStr>()?.value()
                } else {
                    String::new()
                };
                options.insert(meta.path.get_ident().unwrap().to_string(), value);
                Ok(())
            })
            .unwrap();
    }
    options
}

fn renamed(name: &str, rule: Option<&str>) -> String {
    // fields come in snake case, variants in camel case; both as words
    let spaced: String =
        name.chars().flat_map(|c| if c.is_uppercase() { vec!['_', c.to_ascii_lowercase()] } else { vec![c] }).collect();
    let words: Vec<&str> = spaced.split('_').filter(|word| !word.is_empty()).collect();
    match rule {
        None => name.to_owned(),
        Some("lowercase") => words.concat(),
        Some("UPPERCASE") => words.concat().to_uppercase(),
        Some("snake_case") => words.join("_"),
        Some("SCREAMING_SNAKE_CASE") => words.join("_").to_uppercase(),
        Some("camelCase") => {
            let capitals = words[1..].iter().map(|word| word[..1].to_uppercase() + &word[1..]);
            std::iter::once(words[0].to_owned()).chain(capitals).collect()
        }
        Some(other) => panic!("a rule that this test does not know: {other}"),
    }
}
