//! How readable names, functions and documents are, in figures, and how far each figure may go.
//!
//! `cargo test --test tidy -- --nocapture the_style_keeps` prints the table. Another checkout is measured
//! with `INFILL_STYLE_ROOT=PATH`; nothing is then asserted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{CORE, code, packages_in, program, read, repository};

/// What one package's sources come to, tests left out.
#[derive(Default)]
struct SourceCounts {
    /// Lines that are neither blank nor comments.
    code_lines: usize,
    /// Lines of each function with a body.
    function_lines: Vec<usize>,
    /// How often each type name is declared.
    types: BTreeMap<String, usize>,
    public_functions: usize,
    one_word_functions: usize,
    async_functions: usize,
    tuple_lets: usize,
    named_closures: usize,
    tuple_parameters: usize,
}

impl SourceCounts {
    fn measure(package: &Path) -> SourceCounts {
        let mut counts = SourceCounts::default();
        for path in program(&[package.to_owned()]) {
            let text = read(&path);
            counts.code_lines += code(&text).filter(|(_, line)| !line.trim().is_empty()).count();
            let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            counts.visit_file(&file);
        }
        counts
    }

    fn count_function(&mut self, is_public: bool, signature: &syn::Signature, lines: Option<usize>) {
        self.function_lines.extend(lines);
        self.async_functions += usize::from(signature.asyncness.is_some());
        if is_public {
            self.public_functions += 1;
            self.one_word_functions += usize::from(!signature.ident.to_string().contains('_'));
        }
        let parameters = signature.inputs.iter().filter(|input| match input {
            syn::FnArg::Typed(typed) => matches!(*typed.pat, syn::Pat::Tuple(_)),
            syn::FnArg::Receiver(_) => false,
        });
        self.tuple_parameters += parameters.count();
    }

    fn count_type(&mut self, name: &syn::Ident) {
        *self.types.entry(name.to_string()).or_default() += 1;
    }
}

pub(super) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string().contains("test"),
        meta => meta.path().is_ident("test"),
    })
}

fn is_public(visibility: &syn::Visibility) -> bool {
    !matches!(visibility, syn::Visibility::Inherited)
}

fn lines_of(spanned: &impl Spanned) -> usize {
    let span = spanned.span();
    span.end().line - span.start().line + 1
}

impl<'ast> Visit<'ast> for SourceCounts {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let lines = lines_of(&item.sig.fn_token.span) + lines_of(&item.block) - 1;
        self.count_function(is_public(&item.vis), &item.sig, Some(lines));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.count_function(is_public(&item.vis), &item.sig, Some(lines_of(&item.block)));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.count_function(true, &item.sig, item.default.as_ref().map(lines_of));
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.count_type(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.count_type(&item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.count_type(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.count_type(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let init = local.init.as_ref().map(|init| &*init.expr);
        let pattern = match &local.pat {
            syn::Pat::Type(typed) => &*typed.pat,
            pattern => pattern,
        };
        match (pattern, init) {
            (syn::Pat::Tuple(_), Some(syn::Expr::Tuple(_))) => self.tuple_lets += 1,
            (syn::Pat::Ident(_), Some(syn::Expr::Closure(_))) => self.named_closures += 1,
            _ => {}
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let typed = closure.inputs.iter().filter(|input| match input {
            syn::Pat::Type(typed) => matches!(*typed.pat, syn::Pat::Tuple(_)),
            _ => false,
        });
        self.tuple_parameters += typed.count();
        visit::visit_expr_closure(self, closure);
    }
}

/// Whether a type's name is one word: one capital.
fn is_one_word(name: &str) -> bool {
    name.chars().filter(|c| c.is_uppercase()).count() <= 1
}

/// Prose of a Markdown document: without code blocks, headings, tables and quotes.
pub(super) fn prose(markdown: &str) -> String {
    let mut in_code = false;
    let mut prose = String::new();
    for line in markdown.lines() {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        let is_other = line.starts_with(['#', '|', '>']) || line.starts_with("    ");
        if line.trim().is_empty() || is_fence || line.starts_with('#') {
            prose.push_str("\n\n");
        } else if !in_code && !is_other {
            let starts_item = line.trim_start().starts_with(['-', '*']);
            prose.push_str(if starts_item { "\n\n" } else { " " });
            prose.push_str(line.trim_start().trim_start_matches(['-', '*', ' ']));
        }
    }
    prose
}

/// The sentences of a text. A full stop, a question mark or a colon followed by a space ends one; so does
/// a paragraph.
pub(super) fn sentences(prose: &str) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in prose.split("\n\n") {
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        found.extend(
            words
                .split_inclusive(|word| {
                    let word = word.trim_end_matches(['*', '_', ')', '"', '`']);
                    word.ends_with(['.', '?', '!', ':', ';']) && !["e.g.", "i.e.", "etc."].contains(&word)
                })
                .map(|sentence| sentence.join(" ")),
        );
    }
    found
}

/// The value below which this share of the sorted values is.
pub(super) fn percentile(sorted: &[usize], share: f64) -> usize {
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}

/// One row of the table.
struct StyleRow {
    what: &'static str,
    measured: f64,
    at_most: f64,
}

/// Measures the checkout at `root`.
fn measure_style(root: &Path) -> Vec<StyleRow> {
    let packages: Vec<(PathBuf, SourceCounts)> = packages_in(root)
        .into_iter()
        .map(|package| {
            let counts = SourceCounts::measure(&package);
            (package, counts)
        })
        .collect();
    let sum =
        |of: fn(&SourceCounts) -> usize| packages.iter().map(|(_, counts)| of(counts)).sum::<usize>() as f64;
    let kilo_lines = sum(|counts| counts.code_lines) / 1000.0;
    let mut lines: Vec<usize> = packages.iter().flat_map(|(_, c)| c.function_lines.iter().copied()).collect();
    lines.sort_unstable();
    let types = sum(|counts| counts.types.values().sum());
    let one_word_types = sum(|counts| {
        counts.types.iter().filter(|(name, _)| is_one_word(name)).map(|(_, declared)| declared).sum()
    });
    let shared = sum(|counts| counts.types.values().filter(|declared| **declared > 1).sum());
    let in_core = |package: &Path| CORE.iter().any(|dir| package.starts_with(root.join(dir)));
    let async_in_core: usize = packages
        .iter()
        .filter(|(package, _)| in_core(package))
        .map(|(_, counts)| counts.async_functions)
        .sum();
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    vec![
        StyleRow { what: "async functions in the core", measured: async_in_core as f64, at_most: 0.0 },
        StyleRow {
            what: "lines of a function, median",
            measured: percentile(&lines, 0.5) as f64,
            at_most: 12.0,
        },
        StyleRow {
            what: "lines of a function, 90 %",
            measured: percentile(&lines, 0.9) as f64,
            at_most: 40.0,
        },
        StyleRow {
            what: "lines of a function, 99 %",
            measured: percentile(&lines, 0.99) as f64,
            at_most: 80.0,
        },
        StyleRow {
            what: "types that share their name in a crate, %",
            measured: 100.0 * shared / types,
            at_most: 5.0,
        },
        StyleRow { what: "one-word types, %", measured: 100.0 * one_word_types / types, at_most: 25.0 },
        StyleRow {
            what: "one-word public functions, %",
            measured: 100.0 * sum(|counts| counts.one_word_functions) / sum(|counts| counts.public_functions),
            at_most: 35.0,
        },
        StyleRow {
            what: "tuple lets, per 1,000 lines",
            measured: sum(|counts| counts.tuple_lets) / kilo_lines,
            at_most: 0.2,
        },
        StyleRow {
            what: "named closures, per 1,000 lines",
            measured: sum(|counts| counts.named_closures) / kilo_lines,
            at_most: 2.0,
        },
        StyleRow { what: "tuple parameters", measured: sum(|counts| counts.tuple_parameters), at_most: 10.0 },
        StyleRow {
            what: "words of ARCHITECTURE.md",
            measured: architecture.split_whitespace().count() as f64,
            at_most: 2500.0,
        },
        StyleRow {
            what: "words of a sentence in the guides, mean",
            measured: guide_sentence_words(root),
            at_most: 17.0,
        },
    ]
}

/// Mean words of a sentence in README.md and the guides.
fn guide_sentence_words(root: &Path) -> f64 {
    let guides =
        ["README.md", "docs/users.md", "docs/administrators.md", "docs/reference.md", "docs/security.md"];
    let found: Vec<usize> = guides
        .iter()
        .filter_map(|name| std::fs::read_to_string(root.join(name)).ok())
        .flat_map(|text| sentences(&prose(&text)))
        .map(|sentence| sentence.split_whitespace().count())
        .collect();
    found.iter().sum::<usize>() as f64 / found.len().max(1) as f64
}

#[test]
fn the_style_keeps_its_limits() {
    let other = std::env::var_os("INFILL_STYLE_ROOT").map(PathBuf::from);
    let rows = measure_style(other.as_deref().unwrap_or(repository()));
    let mut missed = Vec::new();
    for row in rows {
        println!("{:44} {:8.1}  at most {:6.1}", row.what, row.measured, row.at_most);
        if row.measured > row.at_most + 0.05 {
            missed.push(format!("{}: {:.1}, at most {}", row.what, row.measured, row.at_most));
        }
    }
    if other.is_none() {
        super::assert_none(missed, "the style keeps its limits");
    }
}
