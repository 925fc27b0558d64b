//! The permissions of a [`Session`]: which user its client is, and whether the rules of the user permit a
//! request ([`crate::acl`]).

use std::sync::Arc;
use std::time::Instant;

use crate::acl::{self, Denied, Refusal, Rules, User};
use crate::reply::Fail;
use crate::resp::Request;
use crate::session::Session;
use crate::spec::Spec;

impl Session {
    /// Checks that the user may run the command, and notes a refusal.
    ///
    /// # Errors
    /// Why it may not.
    pub(crate) fn check_permission(&self, spec: &Spec, request: &Request) -> Result<(), Denied> {
        let checked = permitted(&self.user.rules(), spec, request);
        if let Err(denied) = &checked {
            let (reason, object) = match denied {
                Denied::Command(name) => ("command", name.as_bytes().to_vec()),
                Denied::Key(key) => ("key", key.clone()),
                Denied::Channel(channel) => ("channel", channel.clone()),
            };
            self.note_refusal(reason, object, self.user.name.clone());
        }
        checked
    }

    /// Adds a refusal to ACL LOG.
    pub(crate) fn note_refusal(&self, reason: &'static str, object: Vec<u8>, user: String) {
        let is_multi = self.queued.is_some() || self.is_executing;
        let context = if is_multi { "multi" } else { "toplevel" };
        let client = self.client.line().trim_end().to_owned();
        let at = Instant::now();
        let refusal = Refusal { count: 1, reason, context, object, user, client, at };
        self.shared.users.log.lock().add(refusal);
    }

    /// The client is `user` from now on.
    pub(crate) fn log_in(&mut self, user: Arc<User>) {
        self.client.info.lock().user.clone_from(&user.name);
        self.user = user;
        self.is_authenticated = true;
    }
}

/// Whether the rules of a user permit a request.
///
/// # Errors
/// Why they do not.
pub(crate) fn permitted(rules: &Rules, spec: &Spec, request: &[Vec<u8>]) -> Result<(), Denied> {
    if rules.is_unlimited() || spec.has("no_auth") {
        return Ok(());
    }
    let keys = spec.checked_keys(request);
    match acl::Request::new(spec.name, request, &keys) {
        Some(request) => rules.check(&request),
        // Every command is in the catalog; one that is not is permitted to nobody.
        None => Err(Denied::Command(spec.name)),
    }
}

/// The reply to a command that is refused.
pub(crate) fn permission_error(denied: &Denied) -> Fail {
    let what = match denied {
        Denied::Command(name) => format!("run the '{name}' command"),
        Denied::Key(_) => "access one of the keys used as arguments".to_owned(),
        Denied::Channel(_) => "access one of the channels used as arguments".to_owned(),
    };
    Fail::new(format!("NOPERM this user has no permissions to {what}"))
}
