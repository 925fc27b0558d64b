//! The packages of the workspace, from `cargo metadata`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::command::cargo;
use crate::{Result, workspace};

/// A package of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

/// An entry of a dependency table.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Absent for a normal dependency.
    pub(crate) kind: Option<Kind>,
    /// The folder of a crate of the workspace; absent for a published crate.
    pub(crate) path: Option<String>,
}

/// The table of a dependency that is not normal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Dev,
    Build,
}

/// Every package of the workspace.
pub(crate) fn packages() -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let mut command = cargo(["metadata", "--no-deps", "--format-version", "1"]);
    let output = command.current_dir(workspace::root()).output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice::<Metadata>(&output.stdout)?.packages)
}
