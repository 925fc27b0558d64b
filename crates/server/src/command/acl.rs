//! ACL: the users and their rules.

use std::time::Instant;

use super::client::kill;
use super::server::{subcommand, unknown};
use crate::acl::{Denied, Rules, Selector, User, catalog};
use crate::args;
use crate::permission::permitted;
use crate::reply::{Done, Fail, Reply};
use crate::session::Session;

const HELP: &[&str] = &[
    "ACL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CAT [<category>]",
    "    List all commands that belong to <category>, or all command categories",
    "    when no category is specified.",
    "DELUSER <username> [<username> ...]",
    "    Delete a list of users.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Returns whether the user can execute the given command without executing the command.",
    "GETUSER <username>",
    "    Get the user's details.",
    "GENPASS [<bits>]",
    "    Generate a secure 256-bit user password. The optional `bits` argument can",
    "    be used to specify a different size.",
    "LIST",
    "    Show users details in config file format.",
    "LOAD",
    "    Reload users from the ACL file.",
    "LOG [<count> | RESET]",
    "    Show the ACL log entries.",
    "SAVE",
    "    Save the current config to the ACL file.",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "    Create or modify a user with the specified attributes.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI",
    "    Return the current connection username.",
    "HELP",
    "    Print this help.",
];

pub(crate) fn acl(session: &mut Session, args: &[Vec<u8>]) -> Done {
    let rest = args.get(2..).unwrap_or_default();
    match (subcommand(args).as_str(), rest) {
        ("WHOAMI", []) => {
            let name = session.user.name.clone();
            session.reply.bulk(name);
        }
        ("USERS", []) => {
            let users = session.shared.users.all();
            session.reply.bulks(&users.iter().map(|user| user.name.as_str()).collect::<Vec<_>>());
        }
        ("LIST", []) => {
            let users = session.shared.users.all();
            session.reply.bulks(&users.iter().map(|user| user.line()).collect::<Vec<_>>());
        }
        ("GETUSER", [name]) => match session.shared.users.find(name) {
            Some(user) => show(&mut session.reply, &user.rules()),
            None => session.reply.null(),
        },
        ("SETUSER", [name, changes @ ..]) => {
            let changed = session.shared.users.change(name, changes);
            changed.map_err(|error| Fail::new(format!("ERR {error}")))?;
            if let Some(user) = session.shared.users.find(name) {
                cut_subscribers(session, &user);
            }
            session.reply.ok();
        }
        ("DELUSER", names @ [_, ..]) => {
            if names.iter().any(|name| name == crate::acl::DEFAULT.as_bytes()) {
                return Err(Fail::new("ERR The 'default' user cannot be removed"));
            }
            let removed: Vec<_> =
                names.iter().filter_map(|name| session.shared.users.remove(name)).collect();
            for user in &removed {
                kill(session, |client| client.user() == user.name, false);
            }
            session.reply.count(removed.len());
        }
        ("CAT", []) => session.reply.bulks(&catalog::CATEGORIES),
        ("CAT", [category]) => cat(session, category)?,
        ("GENPASS", bits) if bits.len() < 2 => {
            let password = new_password(bits.first())?;
            session.reply.bulk(password);
        }
        ("LOG", count) if count.len() < 2 => show_log(session, count.first())?,
        ("DRYRUN", [name, request @ ..]) if !request.is_empty() => dry_run(session, name, request)?,
        ("LOAD" | "SAVE", []) => {
            let is_load = subcommand(args) == "LOAD";
            let Some(path) = session.shared.config.acl_file.clone() else {
                return Err(Fail::new(
                    "ERR This server is not configured to use an ACL file: start it with --aclfile",
                ));
            };
            if is_load {
                let loaded = session.shared.users.load_file(&path);
                let changed = loaded.map_err(|error| Fail::new(format!("ERR {error}")))?;
                for user in changed {
                    match session.shared.users.find(user.name.as_bytes()) {
                        Some(user) => cut_subscribers(session, &user),
                        None => drop(kill(session, |client| client.user() == user.name, false)),
                    }
                }
            } else {
                session.shared.users.save_file(&path).map_err(|error| {
                    Fail::new(format!(
                        "ERR the users were not saved in {}: {error}",
                        path.display()
                    ))
                })?;
            }
            session.reply.ok();
        }
        ("HELP", []) => session.reply.bulks(HELP),
        (
            name @ ("WHOAMI" | "USERS" | "LIST" | "GETUSER" | "SETUSER" | "DELUSER" | "CAT"
            | "GENPASS" | "LOG" | "DRYRUN" | "LOAD" | "SAVE" | "HELP"),
            _,
        ) => return Err(Fail::arity(&format!("acl|{}", name.to_ascii_lowercase()))),
        _ => return Err(unknown("ACL", args)),
    }
    Ok(())
}

/// Ends the connections of `user` that listen to a channel which its rules no longer permit.
fn cut_subscribers(session: &mut Session, user: &User) {
    let rules = user.rules();
    let may = |topic: &[u8], is_pattern| {
        rules.selectors().any(|selector| selector.permits_channel(topic, is_pattern))
    };
    let shared = std::sync::Arc::clone(&session.shared);
    let is_beyond = |client: &crate::clients::Client| {
        client.is_subscriber()
            && client.user() == user.name
            && shared.clients.has_topic_beyond(client.id, may)
    };
    kill(session, is_beyond, false);
}

fn show_selector(reply: &mut Reply, selector: &Selector) {
    for (name, text) in ["commands", "keys", "channels"].into_iter().zip(selector.texts()) {
        reply.bulk(name);
        reply.bulk(text);
    }
}

fn show(reply: &mut Reply, rules: &Rules) {
    reply.map(6);
    reply.bulk("flags");
    let flags = rules.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag));
    reply.bulk("passwords");
    reply.bulks(&rules.passwords);
    show_selector(reply, &rules.root);
    reply.bulk("selectors");
    reply.array(rules.more.len());
    for selector in &rules.more {
        reply.map(3);
        show_selector(reply, selector);
    }
}

/// The commands of a category that exist here.
fn cat(session: &mut Session, category: &[u8]) -> Done {
    let name = args::option(category).to_ascii_lowercase();
    if !catalog::CATEGORIES.contains(&name.as_str()) {
        let category = String::from_utf8_lossy(category.get(..128).unwrap_or(category));
        return Err(Fail::new(format!("ERR Unknown category '{category}'")));
    }
    let table = session.table;
    let exists = |full: &str| {
        let (command, sub) = full.split_once('|').unwrap_or((full, ""));
        let is_sub = || table.subcommands.iter().any(|(known, _)| *known == command);
        table.find(command.as_bytes()).is_some()
            && (sub.is_empty()
                || is_sub() && table.is_subcommand(command, Some(&sub.as_bytes().to_vec())))
    };
    let of_category = catalog::COMMANDS
        .iter()
        .filter(|(full, categories, _)| categories.split(' ').any(|of| of == name) && exists(full));
    let names: Vec<_> = of_category.map(|(full, _, _)| *full).collect();
    session.reply.bulks(&names);
    Ok(())
}

/// A random password of `bits` bits, in hexadecimal digits.
fn new_password(bits: Option<&Vec<u8>>) -> Result<String, Fail> {
    let bits = bits.map_or(Ok(256), |bits| args::integer(bits))?;
    let digits = usize::try_from(bits).ok().filter(|bits| (1..=4096).contains(bits));
    let digits = digits.map(|bits| bits.div_ceil(4)).ok_or_else(|| {
        Fail::new(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
             number up to 4096",
        )
    })?;
    let mut bytes = vec![0; digits.div_ceil(2)];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fail::new(format!("ERR the system gives no random numbers: {error}")))?;
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    Ok(text)
}

fn show_log(session: &mut Session, count: Option<&Vec<u8>>) -> Done {
    let count = match count {
        Some(word) if args::option(word) == "RESET" => {
            session.shared.users.log.lock().entries.clear();
            session.reply.ok();
            return Ok(());
        }
        Some(count) => usize::try_from(args::integer(count)?).unwrap_or(0),
        None => 10,
    };
    let log = session.shared.users.log.lock();
    let reply = &mut session.reply;
    reply.array(log.entries.len().min(count));
    let now = Instant::now();
    for entry in log.entries.iter().take(count) {
        reply.map(7);
        reply.bulk("count");
        reply.integer(i64::try_from(entry.count).unwrap_or(i64::MAX));
        for (name, text) in [("reason", entry.reason), ("context", entry.context)] {
            reply.bulk(name);
            reply.bulk(text);
        }
        reply.bulk("object");
        reply.bulk(&entry.object);
        reply.bulk("username");
        reply.bulk(&entry.user);
        reply.bulk("age-seconds");
        reply.double(now.saturating_duration_since(entry.at).as_millis() as f64 / 1000.0);
        reply.bulk("client-info");
        reply.bulk(&entry.client);
    }
    Ok(())
}

/// Whether a user could run a request, which is not run.
fn dry_run(session: &mut Session, name: &[u8], request: &[Vec<u8>]) -> Done {
    let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let user = session.shared.users.find(name);
    let user = user.ok_or_else(|| Fail::new(format!("ERR User '{}' not found", text(name))))?;
    let command = request.first().map_or(&[][..], Vec::as_slice);
    let spec = session.table.find(command);
    let spec =
        spec.ok_or_else(|| Fail::new(format!("ERR Command '{}' not found", text(command))))?;
    if !spec.takes(request.len()) {
        return Err(Fail::arity(spec.name));
    }
    let refused = match permitted(&user.rules(), spec, request) {
        Ok(()) => {
            session.reply.ok();
            return Ok(());
        }
        Err(Denied::Command(name)) => format!("run the '{name}' command"),
        Err(Denied::Key(key)) => format!("access the '{}' key", text(&key)),
        Err(Denied::Channel(channel)) => format!("access the '{}' channel", text(&channel)),
    };
    session.reply.bulk(format!("This user has no permissions to {refused}"));
    Ok(())
}
