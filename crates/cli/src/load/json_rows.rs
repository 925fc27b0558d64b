//! Rows of JSON objects, one a line.

use std::fmt;
use std::io::BufRead;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use terracedb::{Error, Result};

use super::lines::Lines;
use super::rows::{Row, Selection};

/// The field with the key if none is chosen, and the one with the value then.
const KEY: &str = "key";
const VALUE: &str = "value";

/// See the module.
pub(super) struct JsonRows<R> {
    lines: Lines<R>,
    selection: Selection,
}

impl<R: BufRead> JsonRows<R> {
    pub(super) const fn new(lines: Lines<R>, selection: Selection) -> Self {
        Self { lines, selection }
    }

    pub(super) const fn line(&self) -> u64 {
        self.lines.number()
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.lines.bytes()
    }

    pub(super) fn next(&mut self) -> Result<Option<Result<Row>>> {
        let line = self.lines.next()?;
        Ok(line.map(|line| line.and_then(|()| row(self.lines.text(), &self.selection))))
    }
}

/// The row of an object. Its key is a field, by default `key`. Its value is one field; or an object of
/// several; or, if only the key was chosen, the whole object as it is written.
fn row(text: &[u8], selection: &Selection) -> Result<Row> {
    let object: Object<'_> = serde_json::from_slice(text)
        .map_err(|error| Error::invalid("row").expected("a JSON object").caused_by(error))?;
    let name = selection.key.as_deref().unwrap_or(KEY);
    let key = object.field(name)?;
    if !key.get().starts_with('"') && key.get().parse::<f64>().is_err() {
        return Err(Error::invalid("key")
            .at(format_args!("field `{}`", name.escape_debug()))
            .expected("a text or a number")
            .got(key.get()));
    }
    let value = match (&*selection.values, &selection.key) {
        ([], None) => content(object.field(VALUE)?, selection)?,
        ([], Some(_)) => text.trim_ascii().to_vec(),
        ([one], _) => content(object.field(one)?, selection)?,
        (several, _) => {
            let mut fields = Vec::new();
            for name in several {
                let quoted = serde_json::Value::from(name.as_str());
                fields.push(format!("{quoted}:{}", object.field(name)?.get()));
            }
            format!("{{{}}}", fields.join(",")).into_bytes()
        }
    };
    Ok(Row { key: content(key, selection)?, value })
}

/// The bytes of a text, or the JSON of anything else as it is written: no digit of a number is lost.
fn content(value: &RawValue, selection: &Selection) -> Result<Vec<u8>> {
    if value.get().starts_with('"') {
        let text: String = serde_json::from_str(value.get())
            .map_err(|error| Error::invalid("row").expected("a text").caused_by(error))?;
        return selection.bytes(text.as_bytes());
    }
    if selection.is_hex {
        return Err(Error::invalid("field").expected("a text of digits").got(value.get()));
    }
    Ok(value.get().as_bytes().to_vec())
}

/// The fields of an object, each once.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Object<'a> {
    fn field(&self, name: &str) -> Result<&'a RawValue> {
        let mut fields = self.0.iter();
        fields.find(|(known, _)| known == name).map(|(_, value)| *value).ok_or_else(|| {
            let known = self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
            Error::invalid("row")
                .expected(format_args!("a field `{}`", name.escape_debug()))
                .got(format_args!("[{}]", known.escape_debug()))
        })
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut fields: Vec<(String, &'de RawValue)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if fields.iter().any(|(known, _)| *known == name) {
                        let repeated = format!("the field `{}` twice", name.escape_debug());
                        return Err(serde::de::Error::custom(repeated));
                    }
                    fields.push((name, value));
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Format;
    use super::super::rows::tests::{all, selection};

    #[test]
    fn fields_are_keys_and_values_and_objects_stay_as_they_are_written() {
        let read = |key: &str, values: &[&str], text: &str| {
            all(Format::Jsonl, &selection(key, values), text)
        };
        let lines = "{\"key\":\"b\",\"value\":\"x\\ny\"}\n\
                     {\"value\":{\"n\": 12345678901234567890123},\"key\":7}\r\n";
        assert_eq!(read("", &[], lines), ["b=x\ny", "7={\"n\": 12345678901234567890123}"]);
        let line = "{\"id\": \"a\", \"n\": 1.50, \"tags\": [1, null]}\n";
        assert_eq!(read("id", &[], line), [format!("a={}", line.trim())]);
        assert_eq!(read("id", &["tags"], line), ["a=[1, null]"]);
        assert_eq!(read("n", &["tags", "id"], line), ["1.50={\"tags\":[1, null],\"id\":\"a\"}"]);
    }

    #[test]
    fn rows_without_a_field_or_with_other_keys_are_named() {
        let lines = "{\"id\":1}\n[1]\n{\"key\":[1],\"value\":1}\n{\"key\":\"a\"}\nnot json\n\
                     {\"key\":\"a\",\"key\":\"b\",\"value\":1}\n{\"key\":\"z\",\"value\":true}\n";
        let rows = all(Format::Jsonl, &selection("", &[]), lines);
        for (row, expected) in rows.iter().zip([
            "a field `key`, got [id]",
            "an object",
            "a text or a number",
            "a field `value`",
            "a JSON object",
            "twice",
            "z=true",
        ]) {
            assert!(row.contains(expected), "{row}");
        }
        assert_eq!(rows.len(), 7);
    }
}
