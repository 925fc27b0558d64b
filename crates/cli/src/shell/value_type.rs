//! The types of values that a person reads and types: text, hexadecimal digits, numbers, JSON. Pure.

use serde_json::{Value, json};
use terracedb::{Error, Result};

use crate::{escape, hex};

/// See the module. Numbers are little-endian, as the merge operators store them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ValueType {
    /// Text with the escapes \t, \n, \r, \\ and \xHH
    #[default]
    Text,
    /// Hexadecimal digits
    Hex,
    /// A signed number of 8 bytes
    I64,
    /// A number of 8 bytes
    U64,
    /// A floating-point number of 8 bytes
    F64,
    /// JSON: stored without white space, printed with indentation
    Json,
}

impl ValueType {
    /// The bytes of a value that was typed.
    ///
    /// # Errors
    /// `Invalid` if `typed` is no value of the type.
    pub(super) fn read(self, typed: &str) -> Result<Vec<u8>> {
        let refused = |expected: &str| {
            Error::invalid("value").expected(expected).got(format_args!("`{typed}`"))
        };
        match self {
            Self::Text => escape::unescape(typed.as_bytes()),
            Self::Hex => hex::decode(typed),
            Self::I64 => {
                let number = typed.parse::<i64>().map_err(|_| refused("a signed number"))?;
                Ok(number.to_le_bytes().to_vec())
            }
            Self::U64 => {
                let number = typed.parse::<u64>().map_err(|_| refused("a number"))?;
                Ok(number.to_le_bytes().to_vec())
            }
            Self::F64 => {
                let number = typed.parse::<f64>().map_err(|_| refused("a decimal number"))?;
                Ok(number.to_le_bytes().to_vec())
            }
            Self::Json => {
                let value: Value = serde_json::from_str(typed)
                    .map_err(|error| refused("JSON").caused_by(error))?;
                Ok(value.to_string().into_bytes())
            }
        }
    }

    /// A stored value as text on one line, or on several for JSON. A value that is not of the type is printed
    /// as text, with its type.
    pub(super) fn text(self, bytes: &[u8]) -> String {
        let escaped = || String::from_utf8_lossy(&escape::escape(bytes)).into_owned();
        let text = match self {
            Self::Text => return escaped(),
            Self::Hex => Some(String::from_utf8_lossy(&hex::encode(bytes)).into_owned()),
            Self::I64 => bytes.try_into().ok().map(|it| i64::from_le_bytes(it).to_string()),
            Self::U64 => bytes.try_into().ok().map(|it| u64::from_le_bytes(it).to_string()),
            Self::F64 => bytes.try_into().ok().map(|it| f64::from_le_bytes(it).to_string()),
            Self::Json => serde_json::from_slice::<Value>(bytes)
                .ok()
                .and_then(|value| serde_json::to_string_pretty(&value).ok()),
        };
        text.unwrap_or_else(|| format!("{} (not of this type)", escaped()))
    }

    /// A stored value for JSON output: a string for text and digits, else the number or the value itself. A
    /// value that is not of the type is `{"hex": digits}`.
    pub(super) fn json(self, bytes: &[u8]) -> Value {
        let value = match self {
            Self::Text => std::str::from_utf8(bytes).ok().map(Value::from),
            Self::Hex => Some(Value::from(String::from_utf8_lossy(&hex::encode(bytes)))),
            Self::I64 => bytes.try_into().ok().map(|it| i64::from_le_bytes(it).into()),
            Self::U64 => bytes.try_into().ok().map(|it| u64::from_le_bytes(it).into()),
            // JSON has no infinities.
            Self::F64 => bytes.try_into().ok().map(f64::from_le_bytes).map(|number| {
                match number.is_finite() {
                    true => json!(number),
                    false => json!(number.to_string()),
                }
            }),
            Self::Json => serde_json::from_slice(bytes).ok(),
        };
        value.unwrap_or_else(|| json!({ "hex": String::from_utf8_lossy(&hex::encode(bytes)) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_types_are_read_and_shown() {
        for (of, typed, bytes, json) in [
            (ValueType::Text, r"a\tb\xff", &b"a\tb\xff"[..], json!({ "hex": "610962ff" })),
            (ValueType::Text, "red", b"red", json!("red")),
            (ValueType::Hex, "00ff", b"\x00\xff", json!("00ff")),
            (ValueType::I64, "-2", &(-2i64).to_le_bytes(), json!(-2)),
            (ValueType::U64, "7", &7u64.to_le_bytes(), json!(7)),
            (ValueType::F64, "1.5", &1.5f64.to_le_bytes(), json!(1.5)),
        ] {
            assert_eq!(of.read(typed).unwrap(), bytes, "{typed}");
            assert_eq!(of.text(bytes), typed);
            assert_eq!(of.json(bytes), json);
        }
        let json = ValueType::Json;
        assert_eq!(json.read(r#"{ "a": [1, 2] }"#).unwrap(), br#"{"a":[1,2]}"#);
        assert_eq!(json.text(b"[1]"), "[\n  1\n]");
        assert_eq!(json.json(b"[1]"), json!([1]));
        assert_eq!(ValueType::F64.json(&f64::INFINITY.to_le_bytes()), json!("inf"));
    }

    #[test]
    fn values_of_other_types_are_refused_or_shown_as_bytes() {
        for (of, typed) in [
            (ValueType::Text, r"\q"),
            (ValueType::Hex, "0"),
            (ValueType::I64, "1.5"),
            (ValueType::U64, "-1"),
            (ValueType::F64, "x"),
            (ValueType::Json, "{"),
        ] {
            assert!(of.read(typed).is_err(), "{typed}");
        }
        assert_eq!(ValueType::I64.text(b"abc"), "abc (not of this type)");
        assert_eq!(ValueType::I64.json(b"abc"), json!({ "hex": "616263" }));
    }
}
