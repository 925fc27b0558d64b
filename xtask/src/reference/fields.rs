//! The fields of a serialized struct, read from its source: a row for each, with its doc comment.

use std::fmt::Write as _;

/// The table of the fields of the struct `name` in `source`; none if there is no such struct.
///
/// The source is that of rustfmt: one field a line, doc comments and attributes above it.
pub(crate) fn table(
    source: &str,
    name: &str,
    is_documented: impl Fn(&str) -> bool,
) -> Option<String> {
    let (_, body) = source.split_once(&format!("pub struct {name} {{\n"))?;
    let (body, _) = body.split_once("\n}")?;
    let mut text = "| field | is | meaning |\n|---|---|---|\n".to_owned();
    let (mut meaning, mut attributes) = (String::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            if !meaning.is_empty() {
                meaning.push(' ');
            }
            meaning += comment.trim();
        } else if line.starts_with("#[") {
            attributes += line;
        } else if let Some((field, kind)) = field(line) {
            let may_be_absent = attributes.contains("skip_serializing_if");
            let is = shown(kind, may_be_absent, &is_documented);
            let _never = if attributes.contains("flatten") {
                writeln!(text, "| | the fields of {is} | {meaning} |")
            } else {
                writeln!(text, "| `{field}` | {is} | {meaning} |")
            };
            (meaning, attributes) = (String::new(), String::new());
        }
    }
    Some(text)
}

/// A struct that is serialized and never read back.
pub(crate) struct Serialized<'a> {
    pub(crate) name: &'a str,
    pub(crate) fields: Vec<&'a str>,
    pub(crate) is_public: bool,
}

/// The structs in `code` that derive `Serialize` and not `Deserialize`: those that a command prints.
/// Flattened fields are left out.
pub(crate) fn serialized(code: &str) -> Vec<Serialized<'_>> {
    let mut found = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let derived = line.strip_prefix("#[derive(").and_then(|rest| rest.strip_suffix(")]"));
        let is_derived =
            |name: &str| derived.is_some_and(|names| names.split(", ").any(|it| it == name));
        if !is_derived("Serialize") || is_derived("Deserialize") {
            continue;
        }
        let Some(head) = lines.find(|line| !line.starts_with("#[")) else { break };
        let (is_public, head) = match head.strip_prefix("pub ") {
            Some(head) => (true, head),
            None => (false, head),
        };
        let name = head.strip_prefix("struct ").and_then(|rest| rest.strip_suffix(" {"));
        let Some(name) = name.and_then(|name| name.split('<').next()) else { continue };
        let mut fields = Vec::new();
        let mut is_flattened = false;
        for line in lines.by_ref().take_while(|line| *line != "}").map(str::trim) {
            if line.starts_with("#[") {
                is_flattened |= line.contains("flatten");
            } else if !line.starts_with("//") {
                let name = line.strip_prefix("pub ").unwrap_or(line).split_once(": ");
                fields.extend(name.filter(|_| !is_flattened).map(|(name, _)| name));
                is_flattened = false;
            }
        }
        found.push(Serialized { name, fields, is_public });
    }
    found
}

/// The name and the type of the field in `line`.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, kind) = line.strip_prefix("pub ")?.strip_suffix(',')?.split_once(": ")?;
    Some((name, kind))
}

/// The JSON form of a Rust type.
fn shown(kind: &str, may_be_absent: bool, is_documented: &impl Fn(&str) -> bool) -> String {
    let inside = |prefix: &str| kind.strip_prefix(prefix)?.strip_suffix('>');
    if let Some(inner) = inside("Option<") {
        let absent = if may_be_absent { "absent" } else { "null" };
        return format!("{}, or {absent}", shown(inner, false, is_documented));
    }
    if let Some((_, inner)) = inside("BTreeMap<").and_then(|both| both.split_once(", ")) {
        return format!("object of {}", shown(inner, false, is_documented));
    }
    if let Some(items) = kind.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        let items = items.split(", ").map(|item| shown(item, false, is_documented));
        return format!("list of {}", items.collect::<Vec<_>>().join(" and "));
    }
    match kind {
        "u8" | "u64" | "usize" | "f64" => "number".to_owned(),
        "bool" => "true or false".to_owned(),
        kind if is_documented(kind) => format!("[{kind}](#{})", kind.to_lowercase()),
        _ => "text".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_its_type_and_comment() {
        let source = "\
/// A report.
pub struct Report {
    /// Operations; in a scan,
    /// entries.
    pub ops: u64,
    /// The share.
    pub share: Option<f64>,
    /// By reason.
    pub stalls: BTreeMap<&'static str, Traffic>,
    /// The rest.
    #[serde(flatten)]
    pub figures: Figures,
    /// The tier.
    #[serde(skip_serializing_if = \"Option::is_none\")]
    pub scm: Option<Traffic>,
    /// The paper's.
    pub published: Option<(f64, &'static str)>,
}
";
        let table = table(source, "Report", |kind| ["Traffic", "Figures"].contains(&kind)).unwrap();
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| `ops` | number | Operations; in a scan, entries. |",
                "| `share` | number, or null | The share. |",
                "| `stalls` | object of [Traffic](#traffic) | By reason. |",
                "| | the fields of [Figures](#figures) | The rest. |",
                "| `scm` | [Traffic](#traffic), or absent | The tier. |",
                "| `published` | list of number and text, or null | The paper's. |",
            ]
        );
        assert_eq!(super::table(source, "Repor", |_| false), None);
    }
}
