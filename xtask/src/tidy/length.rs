//! The length of files: a long file is split by its nouns.

use crate::workspace::Text;

/// The most lines of a Rust file without its tests.
const LINES_MAX: usize = 500;

/// The most a listed exception may have.
const EXCEPTION_LINES_MAX: usize = 800;

/// The most lines of a test module inside the file it tests; a longer one has its own file.
const TEST_LINES_MAX: usize = 200;

/// Files over [`LINES_MAX`] and their lines. The numbers may only fall.
const EXCEPTIONS: [(&str, usize); 0] = [];

/// Every file that is too long, and every exception that is no longer needed.
pub(crate) fn complaints(texts: &[Text]) -> Vec<String> {
    against(texts, &EXCEPTIONS)
}

fn against(texts: &[Text], exceptions: &[(&str, usize)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for &(path, _) in exceptions {
        if !texts.iter().any(|text| text.path == path) {
            complaints
                .push(format!("{path}: an exception in length, and gone: take it off the list"));
        }
    }
    for Text { path, content } in texts {
        if !path.ends_with(".rs") || is_test(path) {
            continue;
        }
        let (lines, test_lines) = count(content);
        if test_lines > TEST_LINES_MAX {
            complaints.push(format!(
                "{path}: {test_lines} lines of tests inside, over {TEST_LINES_MAX}: \
                 move them to a file of their own"
            ));
        }
        let allowed = exceptions.iter().find(|(exception, _)| exception == path);
        match allowed.map(|(_, allowed)| *allowed) {
            None if lines > LINES_MAX => {
                complaints.push(format!("{path}: {lines} lines, over {LINES_MAX}: split it"));
            }
            Some(allowed) if allowed.min(EXCEPTION_LINES_MAX) < lines => {
                complaints.push(format!("{path}: {lines} lines, and an exception may only shrink"))
            }
            Some(_) if lines <= LINES_MAX => complaints
                .push(format!("{path}: no longer an exception in length: take it off the list")),
            Some(allowed) if lines < allowed => {
                complaints.push(format!("{path}: shrunk: list it with {lines} lines"));
            }
            _ => {}
        }
    }
    complaints
}

/// Whether the file contains only tests, benchmarks, examples or fuzz targets.
pub(crate) fn is_test(path: &str) -> bool {
    let mut folders = path.rsplit('/');
    let name = folders.next().unwrap_or_default();
    name == "tests.rs"
        || name.ends_with("_tests.rs")
        || folders.any(|name| ["tests", "benches", "examples", "fuzz_targets"].contains(&name))
}

/// The number of lines before the test module at the end of the file, and of that module.
fn count(content: &str) -> (usize, usize) {
    let lines: Vec<&str> = content.lines().collect();
    let tests = lines.windows(2).position(|pair| match pair {
        [attribute, module] => {
            (attribute.starts_with("#[cfg(test)]") || attribute.starts_with("#[cfg(all(test"))
                && module.contains("mod ")
                && module.ends_with('{')
        }
        _ => false,
    });
    let before = tests.unwrap_or(lines.len());
    (before, lines.len() - before)
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;

    fn file(lines: usize, test_lines: usize) -> String {
        let mut content = "x\n".repeat(lines);
        if test_lines > 0 {
            content += "#[cfg(test)]\nmod tests {\n";
            content += &"y\n".repeat(test_lines - 2);
        }
        content
    }

    fn report(path: &str, content: &str, exceptions: &[(&str, usize)]) -> String {
        against(&[made_up(path, content)], exceptions).join("\n")
    }

    #[test]
    fn a_long_file_is_split_and_its_tests_do_not_count() {
        assert_eq!(report("a.rs", &file(LINES_MAX, TEST_LINES_MAX), &[]), "");
        let long = file(LINES_MAX + 1, 0);
        assert!(report("a.rs", &long, &[]).contains("501 lines, over 500"));
        assert_eq!(report("a/tests.rs", &long, &[]) + &report("a/tests/b.rs", &long, &[]), "");
        let tests = file(1, TEST_LINES_MAX + 1);
        assert!(report("a.rs", &tests, &[]).contains("201 lines of tests inside"));
    }

    #[test]
    fn an_exception_may_only_shrink() {
        assert_eq!(report("a.rs", &file(600, 0), &[("a.rs", 600)]), "");
        for (lines, allowed, complaint) in [
            (601, 600, "may only shrink"),
            (801, 900, "may only shrink"),
            (599, 600, "list it with 599 lines"),
            (500, 600, "no longer an exception in length"),
        ] {
            let report = report("a.rs", &file(lines, 0), &[("a.rs", allowed)]);
            assert!(report.contains(complaint) && report.lines().count() == 1, "{report}");
        }
        assert!(
            report("a.rs", "", &[("b.rs", 600)]).contains("b.rs: an exception in length, and gone")
        );
    }
}
