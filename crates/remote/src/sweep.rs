//! Sweep: removes the remains of writers that died.
//!
//! A writer lists the objects and uploads before it claims the repository, and removes only those that it
//! listed and that its claim does not name. A later writer publishes only objects that were complete after
//! its own claim, or that the manifest before it names; none of them is in the earlier list of an earlier
//! writer. So even a writer that was replaced without noticing removes nothing that is in use. An old list
//! only hides remains until the next time.

use std::collections::{BTreeMap, BTreeSet};

use base::Result;

use crate::client::Client;
use crate::history::{self, KEPT, MANIFESTS};
use crate::manifest::Manifest;
use crate::objects::{self, Upload};
use crate::session::{claim_in_key, name_in_key};

/// The objects and uploads of a repository, listed before a claim.
#[derive(Debug)]
pub(crate) struct Remains {
    /// Names of objects, below the prefix.
    objects: Vec<String>,
    uploads: Vec<Upload>,
}

impl Remains {
    pub(crate) fn list(client: &Client) -> Result<Self> {
        let location = client.location();
        let name = |key: &String| location.name(key).map(str::to_owned);
        let mut found = Vec::new();
        for prefix in ["data/", MANIFESTS] {
            let keys = objects::list(client, &location.key(prefix))?;
            found.extend(keys.iter().filter_map(name));
        }
        let uploads = objects::list_uploads(client, &location.key("data/"))?;
        Ok(Self { objects: found, uploads })
    }

    /// Removes objects without a name in `claimed`, manifests that nobody reads any more, and uploads of
    /// all writers but the last. Returns the uploads of the last writer by file name, to go on with them.
    /// Ends at the first error: what stays is removed the next time.
    pub(crate) fn sweep(self, client: &Client, claimed: &Manifest) -> BTreeMap<String, Upload> {
        let location = client.location();
        let named: BTreeSet<&str> =
            claimed.files.values().map(|entry| entry.key.as_str()).collect();
        let claim_of = |upload: &Upload| claim_in_key(location.name(&upload.key)?);
        let last = self.uploads.iter().filter_map(claim_of).max();
        let mut of_keys: BTreeMap<&str, usize> = BTreeMap::new();
        for upload in &self.uploads {
            *of_keys.entry(&upload.key).or_default() += 1;
        }
        // A key with two uploads, or with an object, must not get the content of another writer.
        let is_sole = |upload: &Upload| {
            let name = location.name(&upload.key).unwrap_or_default();
            of_keys.get(upload.key.as_str()) == Some(&1)
                && !named.contains(name)
                && !self.objects.iter().any(|object| object == name)
        };
        let (mut resumable, mut old) = (BTreeMap::new(), Vec::new());
        for upload in self.uploads.iter().filter(|upload| claim_of(upload).is_some()) {
            let file = location.name(&upload.key).and_then(name_in_key).map(str::to_owned);
            match file.filter(|_| claim_of(upload) == last && is_sole(upload)) {
                // Of two uploads of a file, the other one is aborted.
                Some(file) => old.extend(resumable.insert(file, upload.clone())),
                None => old.push(upload.clone()),
            }
        }
        let is_remains = |name: &&String| match history::parse_manifest_name(name) {
            Some(number) => number.saturating_add(KEPT) < claimed.number,
            None => claim_in_key(name).is_some() && !named.contains(name.as_str()),
        };
        let remove = |name: &String| objects::remove(client, &client.location().key(name));
        let _ = (self.objects.iter().filter(is_remains).try_for_each(remove))
            .and_then(|()| old.iter().try_for_each(|upload| objects::abort_upload(client, upload)));
        resumable
    }
}
