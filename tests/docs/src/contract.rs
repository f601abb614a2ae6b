//! `docs/contract.md`: the WIT as tables.

use std::fmt::Write as _;
use std::path::Path;

use wit_parser::{Docs, Function, Interface, Resolve, Type, TypeDefKind, TypeId};

use crate::{MADE, cell};

pub(crate) fn page(root: &Path) -> String {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(root.join("wit")).expect("the contract is WIT");
    let package = &resolve.packages[package];
    let mut page = format!(
        "# The contract\n\n{MADE}\n\n`{}`: what goes into a plugin and what comes out, from \
         [`wit/operator.wit`](../wit/operator.wit). The SDKs give it the form of their language; this is what they mean.\n",
        package.name
    );
    for (name, id) in &package.interfaces {
        interface(&resolve, name, &resolve.interfaces[*id], &mut page);
    }
    page
}

fn interface(resolve: &Resolve, name: &str, interface: &Interface, page: &mut String) {
    write!(page, "\n## Interface `{name}`\n\n{}\n", paragraphs(&interface.docs)).expect("a String");
    for (name, function) in &interface.functions {
        write!(page, "\n### `{}`\n\n{}\n", signature(resolve, name, function), paragraphs(&function.docs))
            .expect("a String");
    }
    for (name, id) in &interface.types {
        definition(resolve, name, *id, page);
    }
}

fn definition(resolve: &Resolve, name: &str, id: TypeId, page: &mut String) {
    let definition = &resolve.types[id];
    let about = paragraphs(&definition.docs);
    let head = format!("\n### {} `{name}`\n\n{about}\n", definition.kind.as_str());
    match &definition.kind {
        TypeDefKind::Record(record) => {
            page.push_str(&head);
            page.push_str("\n| Field | Type | |\n|---|---|---|\n");
            for field in &record.fields {
                row(page, &[&field.name, &name_of(resolve, &field.ty), &line(&field.docs)]);
            }
        }
        TypeDefKind::Variant(variant) => {
            page.push_str(&head);
            page.push_str("\n| Case | Of | |\n|---|---|---|\n");
            for case in &variant.cases {
                let of = case.ty.as_ref().map_or_else(String::new, |of| name_of(resolve, of));
                row(page, &[&case.name, &of, &line(&case.docs)]);
            }
        }
        TypeDefKind::Enum(cases) => {
            page.push_str(&head);
            page.push_str("\n| Case | |\n|---|---|\n");
            for case in &cases.cases {
                writeln!(page, "| `{}` | {} |", case.name, line(&case.docs)).expect("a String");
            }
        }
        // A name that another interface gave is no type of its own.
        TypeDefKind::Type(Type::Id(_)) => {}
        TypeDefKind::Type(of) => {
            write!(page, "\n### `{name}`: {}\n\n{about}\n", name_of(resolve, of)).expect("a String");
        }
        other => panic!("{name}: the page cannot show a {}", other.as_str()),
    }
}

fn row(page: &mut String, [name, of, about]: &[&str; 3]) {
    let of = if of.is_empty() { String::new() } else { format!("`{of}`") };
    writeln!(page, "| `{name}` | {of} | {about} |").expect("a String");
}

fn signature(resolve: &Resolve, name: &str, function: &Function) -> String {
    let parameters: Vec<String> = function
        .params
        .iter()
        .map(|parameter| format!("{}: {}", parameter.name, name_of(resolve, &parameter.ty)))
        .collect();
    let result = function
        .result
        .as_ref()
        .map_or_else(String::new, |result| format!(" -> {}", name_of(resolve, result)));
    format!("{name}({}){result}", parameters.join(", "))
}

fn name_of(resolve: &Resolve, of: &Type) -> String {
    let Type::Id(id) = of else {
        return format!("{of:?}").to_lowercase();
    };
    let definition = &resolve.types[*id];
    if let Some(name) = &definition.name {
        return name.clone();
    }
    match &definition.kind {
        TypeDefKind::Option(of) => format!("option<{}>", name_of(resolve, of)),
        TypeDefKind::List(of) => format!("list<{}>", name_of(resolve, of)),
        TypeDefKind::Result(result) => {
            let part = |of: &Option<Type>| of.as_ref().map_or("_".to_owned(), |of| name_of(resolve, of));
            format!("result<{}, {}>", part(&result.ok), part(&result.err))
        }
        other => panic!("the page cannot show a {}", other.as_str()),
    }
}

fn line(docs: &Docs) -> String {
    cell(docs.contents.as_deref().unwrap_or_default())
}

fn paragraphs(docs: &Docs) -> String {
    let text = docs.contents.as_deref().unwrap_or_default();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned()
}
