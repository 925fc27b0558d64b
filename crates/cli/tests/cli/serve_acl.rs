//! `terrace serve` with users.

use crate::serve_client::*;
use crate::serve_oracle::Pair;
use crate::support::*;

fn error(text: &str) -> Reply {
    Reply::Error(text.into())
}

#[test]
fn users_do_what_their_rules_permit_and_nothing_else() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &[]);
    let (mut admin, mut alice) = (server.client(), server.client());
    let rules = "ACL SETUSER alice on >secret ~app:* %R~shared:* &news.* +@all -@admin -@dangerous";
    assert_eq!(admin.say(rules), ok());
    assert_eq!(alice.say("AUTH alice wrong"), {
        error("WRONGPASS invalid username-password pair or user is disabled.")
    });
    assert_eq!(alice.say("ACL WHOAMI"), bulk("default"));
    assert_eq!(alice.say("AUTH alice secret"), ok());
    assert_eq!(alice.say("SET app:1 x"), ok());
    assert_eq!(admin.say("SET shared:1 y"), ok());
    assert_eq!(alice.say("GET shared:1"), bulk("y"));
    let no_key =
        error("NOPERM this user has no permissions to access one of the keys used as arguments");
    for refused in [
        "SET shared:1 z",
        "GET other",
        "MGET app:1 other",
        "DEL app:1 other",
        "GETDEL shared:1",
        "RENAME app:1 other",
        "WATCH other",
        "COPY app:1 shared:1",
        "LMOVE app:l other LEFT LEFT",
        "ZUNIONSTORE app:z 2 app:a other",
        "BLPOP app:1 other 0",
        "KV.SCAN - +",
    ] {
        // KV.SCAN reads every key, so it is dangerous, too.
        let reply = alice.say(refused);
        let is_refused =
            reply == no_key || matches!(&reply, Reply::Error(text) if text.starts_with("NOPERM"));
        assert!(is_refused, "{refused}: {reply:?}");
    }
    assert_eq!(admin.say("GET shared:1"), bulk("y"), "unchanged");
    assert_eq!(admin.say("EXISTS other app:1"), Reply::Int(1));
    for (refused, name) in
        [("FLUSHALL", "flushall"), ("CONFIG GET x", "config|get"), ("ACL LIST", "acl|list")]
    {
        let text = format!("NOPERM this user has no permissions to run the '{name}' command");
        assert_eq!(alice.say(refused), error(&text));
    }
    let channel =
        "NOPERM this user has no permissions to access one of the channels used as arguments";
    assert_eq!(alice.say("PUBLISH other m"), error(channel));
    assert_eq!(alice.say("PSUBSCRIBE *"), error(channel));
    assert_eq!(alice.say("PUBLISH news.1 m"), Reply::Int(0));
    // A refused command breaks its transaction; rules that change before EXEC hold for it.
    alice.say("MULTI");
    alice.say("SET other v");
    assert!(matches!(alice.say("EXEC"), Reply::Error(text) if text.starts_with("EXECABORT")));
    alice.say("MULTI");
    alice.say("SET app:1 changed");
    alice.say("GET app:1");
    admin.say("ACL SETUSER alice -set");
    let Reply::Array(replies) = alice.say("EXEC") else { panic!("EXEC") };
    assert!(matches!(&replies[0], Reply::Error(text) if text.starts_with("NOPERM ACLs rules")));
    assert_eq!(replies[1], bulk("x"));
    // The refusals are in the log, newest first.
    let Reply::Array(log) = admin.say("ACL LOG") else { panic!("ACL LOG") };
    let Reply::Array(newest) = &log[0] else { panic!("{log:?}") };
    assert_eq!(newest[3], bulk("command"));
    assert_eq!(newest[5], bulk("multi"));
    assert_eq!(newest[9], bulk("alice"));
    // The user's connections end with it, and its name is free.
    assert_eq!(admin.say("ACL DELUSER alice nobody"), Reply::Int(1));
    assert!(alice.try_send(&[b"PING"]).and_then(|()| alice.try_read()).is_err());
    let mut again = server.client();
    assert!(matches!(again.say("AUTH alice secret"), Reply::Error(_)));
}

#[test]
fn a_subscriber_that_loses_its_channel_is_cut_off() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("data"), &["--threads", "2"]);
    let mut admin = server.client();
    admin.say("ACL SETUSER reader on nopass +@pubsub +ping &a &b");
    let (mut kept, mut lost) = (server.client(), server.client());
    for (client, channel) in [(&mut kept, "a"), (&mut lost, "b")] {
        assert_eq!(client.say("AUTH reader any"), ok());
        client.say(&format!("SUBSCRIBE {channel}"));
    }
    assert_eq!(admin.say("ACL SETUSER reader resetchannels &a"), ok());
    assert!(lost.try_read().is_err(), "closed");
    assert_eq!(admin.say("PUBLISH a still"), Reply::Int(1));
    assert_eq!(kept.try_read().unwrap(), {
        Reply::Array(vec![bulk("message"), bulk("a"), bulk("still")])
    });
}

#[test]
fn users_are_kept_in_their_file() {
    let scratch = Scratch::new();
    let (file, data) = (scratch.path("users.acl"), scratch.path("data"));
    fs::write(&file, "user default off\nuser root on >pw ~* &* +@all\n").unwrap();
    let options = ["--aclfile", file.to_str().unwrap()];
    let server = Server::start(&data, &options);
    let mut root = server.client();
    assert_eq!(root.say("PING"), error("NOAUTH Authentication required."));
    assert_eq!(root.say("HELLO 2 AUTH root wrong"), {
        error("WRONGPASS invalid username-password pair or user is disabled.")
    });
    assert_eq!(root.say("AUTH root pw"), ok());
    root.say("ACL SETUSER bob on >b ~b* +get");
    assert_eq!(root.say("ACL SAVE"), ok());
    root.say("ACL SETUSER bob +set");
    assert_eq!(root.say("ACL LOAD"), ok());
    let Reply::Array(users) = root.say("ACL LIST") else { panic!("ACL LIST") };
    let line = |user: &Reply| match user {
        Reply::Bulk(line) => String::from_utf8(line.clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    assert!(line(&users[0]).starts_with("user bob on #"), "{users:?}");
    assert!(line(&users[0]).ends_with(" ~b* resetchannels -@all +get"), "{users:?}");
    fs::write(&file, "user bob +nosuch\n").unwrap();
    assert!(matches!(root.say("ACL LOAD"), Reply::Error(text) if text.contains("line 1")));
    assert_eq!(root.say("ACL WHOAMI"), bulk("root"), "a wrong file changes nothing");
    assert_eq!(root.say("ACL SAVE"), ok());
    // Kept over a restart; the passwords of SETUSER are not in the slow log.
    root.say("CONFIG SET slowlog-log-slower-than 0");
    root.say("ACL SETUSER bob >hidden");
    let Reply::Array(slow) = root.say("SLOWLOG GET") else { panic!("SLOWLOG") };
    let commands: Vec<_> = slow.iter().map(|entry| format!("{entry:?}")).collect();
    let has =
        |text: &str| commands.iter().any(|command| command.contains(&format!("{:?}", bulk(text))));
    assert!(has("SETUSER") && has("(redacted)") && !has(">hidden"), "{commands:?}");
    assert_eq!(root.say("ACL SAVE"), ok());
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(&data, &options);
    let mut bob = server.client();
    assert_eq!(bob.say("AUTH bob hidden"), ok());
    assert_eq!(bob.say("GET b1"), Reply::Null);
    let missing = scratch.arg("missing.acl");
    let arguments = ["serve", "--data", &scratch.arg("other"), "--aclfile", &missing];
    assert!(terrace(&[&arguments[..], &MEMORY[..]].concat()).bad(2).contains("missing.acl"));
}

/// Replies about users are those of redis-server.
#[test]
fn users_are_shown_and_refused_as_by_redis() {
    let scratch = Scratch::new();
    let Some(mut pair) = Pair::start(&scratch) else { return };
    let Pair { theirs, ours, .. } = &mut pair;
    for command in [
        "ACL WHOAMI",
        "ACL LIST",
        "ACL USERS",
        "ACL CAT",
        "ACL CAT nosuch",
        "ACL GETUSER default",
        "ACL GETUSER nobody",
        "ACL SETUSER a",
        "ACL GETUSER a",
        "ACL SETUSER a on >one >two #aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "ACL SETUSER a ~x* %R~y* %W~z* %RW~q &c1 &c2",
        "ACL SETUSER a +get +set +config|get",
        "ACL GETUSER a",
        "ACL LIST",
        "ACL SETUSER a %W~y*",
        "ACL SETUSER a +@hash -hget",
        "ACL SETUSER a (+ping ~only*) (+echo)",
        "ACL GETUSER a",
        "ACL SETUSER a clearselectors <two",
        "ACL SETUSER a <two",
        "ACL SETUSER a junk",
        "ACL SETUSER a +nosuch",
        "ACL SETUSER a +@nosuch",
        "ACL SETUSER a #12",
        "ACL SETUSER a (+ping",
        "ACL SETUSER a ~* ~x",
        "ACL SETUSER a resetkeys ~only* resetchannels &d",
        "ACL LIST",
        "ACL DRYRUN a get only1",
        "ACL DRYRUN a get other",
        "ACL DRYRUN a flushall",
        "ACL DRYRUN a config get x",
        "ACL DRYRUN a get",
        "ACL DRYRUN nobody get x",
        "ACL DRYRUN a nosuch x",
        "ACL SETUSER b on nopass ~app* +@string +@hash -getdel",
        "ACL DRYRUN b getdel app1",
        "ACL DRYRUN b hset app1 f v",
        "ACL DRYRUN b lpush app1 f",
        "ACL DELUSER default",
        "ACL DELUSER nobody b",
        "ACL USERS",
        "ACL GENPASS 0",
        "ACL GENPASS 5000",
        "ACL GENPASS x",
        "ACL LOG RESET",
        "ACL LOG 5",
        "ACL LOG x",
        "ACL FOO",
        "ACL WHOAMI x",
        "ACL SETUSER",
        "AUTH nobody x",
        "AUTH x",
        "ACL SETUSER a reset on nopass +get +acl|whoami ~k*",
        "AUTH a anything",
        "ACL WHOAMI",
        "GET k1",
        "GET x1",
        "SET k1 v",
        "ACL LIST",
        "RESET",
        "ACL WHOAMI",
    ] {
        let [expected, got] = [theirs.say(command), ours.say(command)].map(sorted);
        assert_eq!(got, expected, "{command}");
    }
}

/// The reply with the words of each text in order: Redis shows rules in another order than it got them.
fn sorted(reply: Reply) -> Reply {
    match reply {
        Reply::Bulk(text) => {
            let mut words: Vec<_> = text.split(|byte| *byte == b' ').collect();
            words.sort_unstable();
            Reply::Bulk(words.join(&b' '))
        }
        Reply::Array(replies) => Reply::Array(replies.into_iter().map(sorted).collect()),
        reply => reply,
    }
}
