//! The users' file: a line `user NAME RULES` each, as ACL LIST shows them and Redis writes them. Lines that
//! are empty or begin with `#` are left out.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use super::rules::{Rules, merged};

/// The longest file, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The text of the file at `path`.
///
/// # Errors
/// That it cannot be read, or is too long.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    let bytes = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if bytes as u64 > FILE_BYTES_MAX {
        return Err(format!("{}: more than {FILE_BYTES_MAX} bytes", path.display()));
    }
    Ok(text)
}

/// Writes the file at `path`, readable by its owner only. A crash leaves the old file or the new one.
///
/// # Errors
/// That it cannot be written.
pub(super) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let options = &mut std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(text).and_then(|()| file.sync_all());
    let written = written.and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        drop(std::fs::remove_file(&temporary));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    written.and_then(|()| std::fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all())
}

/// The users of a file.
///
/// # Errors
/// The first line that is wrong.
pub(super) fn parse(text: &str, users_max: usize) -> Result<BTreeMap<String, Rules>, String> {
    let mut users = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let (Some("user"), Some(name)) = (words.next(), words.next()) else {
            return Err(format!(
                "line {number} should start with user keyword followed by the username"
            ));
        };
        let wrong = |error: String| format!("line {number}: {error}");
        let words: Vec<_> = words.map(|word| word.as_bytes().to_vec()).collect();
        let mut rules = Rules::none();
        for word in merged(&words).map_err(wrong)? {
            let applied = rules.apply(&word);
            applied
                .map_err(|error| wrong(format!("{error}: {}", String::from_utf8_lossy(&word))))?;
        }
        if users.insert(name.to_owned(), rules).is_some() {
            return Err(wrong(format!("Duplicate user '{name}' found")));
        }
        if users.len() > users_max {
            return Err(wrong(format!("more than {users_max} users")));
        }
    }
    Ok(users)
}
