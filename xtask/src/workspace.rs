//! The repository: its root and its text files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// Folders without source of this repository.
const SKIPPED: [&str; 5] = ["target", "corpus", "artifacts", "data", "node_modules"];

/// Longer files are skipped.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A text file of the repository.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    /// The path from the root, separated by `/`.
    pub(crate) path: String,
    /// The content.
    pub(crate) content: String,
}

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// Every text file, by path. Hidden folders other than `.ci` and `.cargo` are skipped, and so is the file
/// `.git` of a git worktree.
pub(crate) fn texts() -> Result<Vec<Text>> {
    let mut texts = Vec::new();
    let mut folders = vec![root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            let hidden = name.starts_with('.') && ![".ci", ".cargo"].contains(&name.as_str());
            if kind.is_dir() && !hidden && !SKIPPED.contains(&name.as_str()) {
                folders.push(entry.path());
            } else if kind.is_file() && name != ".git" && entry.metadata()?.len() <= FILE_BYTES_MAX
            {
                texts.extend(text(entry.path()));
            }
        }
    }
    texts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(texts)
}

/// The file at `path`; none if it is not text or was removed since it was listed.
fn text(path: PathBuf) -> Option<Text> {
    let content = String::from_utf8(fs::read(&path).ok()?).ok()?;
    let path = path.strip_prefix(root()).ok()?.to_string_lossy().replace('\\', "/");
    Some(Text { path, content })
}
