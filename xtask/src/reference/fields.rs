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
    match kind {
        "u64" | "usize" | "f64" => "number".to_owned(),
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
            ]
        );
        assert_eq!(super::table(source, "Repor", |_| false), None);
    }
}
