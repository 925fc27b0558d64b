//! Response: the parts of a store's answers that are read. Answers are bytes from outside: text that is not
//! XML has no elements.

use xmlparser::{ElementEnd, Token, Tokenizer};

/// The text of each element in `xml` called one of `names`, in order, with its name. Elements do not nest in
/// one another in the answers that are read.
pub(crate) fn texts<'a>(xml: &'a str, names: &[&str]) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    let mut open = "";
    for token in Tokenizer::from(xml) {
        match token {
            Ok(Token::ElementStart { local, .. }) => open = local.as_str(),
            Ok(Token::ElementEnd { end: ElementEnd::Open, .. }) => {}
            Ok(Token::ElementEnd { .. }) => open = "",
            Ok(Token::Text { text }) if names.contains(&open) => found.push((open, text.as_str())),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    found
}

/// The text of the first element `name`; empty if there is none.
pub(crate) fn text<'a>(xml: &'a str, name: &str) -> &'a str {
    texts(xml, &[name]).first().map_or("", |(_, text)| text)
}

/// The error code in the body of an answer; empty if it is no error.
pub(crate) fn error_code(xml: &str) -> &str {
    let is_error = || {
        Tokenizer::from(xml).map_while(Result::ok).find_map(|token| match token {
            Token::ElementStart { local, .. } => Some(local.as_str() == "Error"),
            _ => None,
        })
    };
    if is_error() == Some(true) { text(xml, "Code") } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_with_and_without_a_namespace() {
        let xml = "<?xml version=\"1.0\"?><ListMultipartUploadsResult xmlns=\"http://s3\"><Upload>\
                   <Key>a/b</Key>\
                   <UploadId>u1</UploadId><Initiator><ID>x</ID></Initiator></Upload><Upload><Key>c</Key>\
                   <UploadId>u2</UploadId></Upload></ListMultipartUploadsResult>";
        assert_eq!(
            texts(xml, &["Key", "UploadId"]),
            [("Key", "a/b"), ("UploadId", "u1"), ("Key", "c"), ("UploadId", "u2")]
        );
        assert_eq!((text(xml, "ID"), text(xml, "None"), error_code(xml)), ("x", "", ""));
        assert_eq!(error_code("<Error><Code>SlowDown</Code></Error>"), "SlowDown");
        for bad in ["", "not xml", "<Error><Code>", "\u{0}<Error>", "<Key>x"] {
            assert_eq!(error_code(bad), "", "{bad}");
        }
    }
}
