use super::*;

fn words(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').filter(|word| !word.is_empty()).map(|word| word.as_bytes().to_vec()).collect()
}

fn rules(text: &str) -> Rules {
    let mut rules = Rules::none();
    for rule in rules::merged(&words(text)).unwrap() {
        rules.apply(&rule).unwrap();
    }
    rules
}

/// Whether `rules` permit the request, whose keys are the arguments with `/`.
fn check(rules: &Rules, request: &str) -> Result<(), Denied> {
    let request = words(request);
    let keys: Vec<_> = request.iter().filter(|word| word.contains(&b'/')).collect();
    let name = String::from_utf8(request[0].clone()).unwrap();
    rules.check(&Request::new(&name, &request, &keys).unwrap())
}

#[test]
fn the_catalog_is_sorted_and_its_categories_are_known() {
    assert!(catalog::COMMANDS.is_sorted_by(|a, b| a.0 < b.0));
    for (name, categories, access) in catalog::COMMANDS {
        assert!(categories.split(' ').all(|it| catalog::CATEGORIES.contains(&it)), "{name}");
        assert!(access.bytes().all(|letter| b"rwb-".contains(&letter)), "{name}");
    }
}

#[test]
fn commands_are_permitted_by_name_subcommand_and_category() {
    let some = rules("on +@read -strlen +client|id +config -config|set +select|3 ~*");
    for permitted in ["get a/b", "client ID", "config get x", "hgetall a/b", "select 3"] {
        assert_eq!(check(&some, permitted), Ok(()), "{permitted}");
    }
    for (refused, name) in [
        ("strlen a/b", "strlen"),
        ("set a/b v", "set"),
        ("client kill x", "client|kill"),
        ("config SET a b", "config|set"),
        ("select 4", "select"),
        ("client", "client"),
    ] {
        assert_eq!(check(&some, refused), Err(Denied::Command(name)), "{refused}");
    }
    assert_eq!(check(&rules("+@all -@dangerous"), "ping"), Ok(()));
    let refused = Err(Denied::Command("flushall"));
    assert_eq!(check(&rules("+@all -@dangerous"), "flushall"), refused);
    assert_eq!(check(&rules("+@all -flushall +@all"), "flushall"), Ok(()));
}

#[test]
fn keys_need_the_access_that_their_command_has() {
    let some = rules("+@all %R~r/* %W~w/* ~b/*");
    for permitted in
        ["get r/1", "set w/1 v", "set b/1 v get", "copy r/1 w/1", "strlen w/1", "mget r/1 b/1"]
    {
        assert_eq!(check(&some, permitted), Ok(()), "{permitted}");
    }
    for (refused, key) in [
        ("get w/1", "w/1"),
        ("set r/1 v", "r/1"),
        ("set w/1 v get", "w/1"),
        ("copy w/1 w/2", "w/1"),
        ("copy r/1 r/2", "r/2"),
        ("mget r/1 x/1", "x/1"),
        ("getdel r/1", "r/1"),
        ("kv.scan - +", "*"),
    ] {
        assert_eq!(check(&some, refused), Err(Denied::Key(key.into())), "{refused}");
    }
    assert_eq!(check(&rules("+@all %R~*"), "kv.scan - +"), Ok(()));
}

#[test]
fn channels_are_matched_and_patterns_are_compared() {
    let some = rules("+@all ~* &news.* &exact");
    for permitted in ["publish news.1 m", "subscribe news.1 exact", "psubscribe news.*"] {
        assert_eq!(check(&some, permitted), Ok(()), "{permitted}");
    }
    for (refused, channel) in [
        ("publish other m", "other"),
        ("subscribe exact o", "o"),
        ("psubscribe news.1*", "news.1*"),
    ] {
        assert_eq!(check(&some, refused), Err(Denied::Channel(channel.into())), "{refused}");
    }
}

#[test]
fn one_selector_must_permit_the_whole_request() {
    let some = rules("+get ~a/* (+set ~b/*) (+@all %R~c/*)");
    assert_eq!(check(&some, "get a/1"), Ok(()));
    assert_eq!(check(&some, "set b/1 v"), Ok(()));
    assert_eq!(check(&some, "get c/1"), Ok(()));
    assert_eq!(check(&some, "set a/1 v"), Err(Denied::Key("a/1".into())), "no mixture");
}

#[test]
fn a_line_of_rules_means_the_same_when_it_is_read_again() {
    for text in [
        "on nopass ~* &* +@all",
        "off resetchannels -@all",
        "on skip-sanitize-payload %R~a* %W~b* ~c* resetchannels &x &y* +@all -@dangerous +config|get",
        "on sanitize-payload resetchannels -@all +select|0 +@read -get (~q* resetchannels -@all +get)",
    ] {
        assert_eq!(rules(text).to_string(), text);
        assert_eq!(rules(&rules(text).to_string()), rules(text));
    }
    let password = rules("on >secret");
    assert!(password.admits(b"secret") && !password.admits(b"secre") && !password.admits(b""));
    assert_eq!(rules(&password.to_string()), password);
    assert!(!rules("off nopass").admits(b""));
    let user = rules("reset on >a >b <a");
    assert!(user.admits(b"b") && !user.admits(b"a"));
}

#[test]
fn a_rule_that_a_later_one_makes_void_is_dropped() {
    assert_eq!(rules("+get -get +get +config|get +config").root.texts()[0], "-@all +get +config");
    let mut many = Rules::none();
    for _ in 0..3 * rules::RULES_MAX {
        many.apply(b"+get").unwrap();
        many.apply(b"-get").unwrap();
    }
    let full = (0..=rules::RULES_MAX).map(|number| many.apply(format!("~{number}").as_bytes()));
    assert_eq!(full.last(), Some(Err(rules::TOO_MANY)));
}

#[test]
fn wrong_rules_are_refused_whole() {
    let users = Users::new(None);
    for (change, error) in [
        ("+nosuch", "Unknown command or category name in ACL"),
        ("+@nosuch", "Unknown command or category name in ACL"),
        ("+config|nosuch", "Unknown command or category name in ACL"),
        ("-get|x", "Unknown command or category name in ACL"),
        ("+config|get|x", "Allowing first-arg of a subcommand is not supported"),
        ("junk", "Syntax error"),
        ("%X~a", "Syntax error"),
        ("%~a", "Syntax error"),
        ("%RR~a", "Syntax error"),
        ("<none", "The password you are trying to remove from the user does not exist"),
        ("#123", "The password hash must be exactly 64 characters"),
    ] {
        let changes = [words("on nopass"), words(change)].concat();
        let refused = users.change(b"alice", &changes).unwrap_err();
        assert!(refused.contains(error), "{change}: {refused}");
        assert!(users.find(b"alice").is_none(), "{change}");
    }
    assert!(users.change(b"a", &words("(+get")).unwrap_err().starts_with("Unmatched parenthesis"));
    assert!(users.change(b"a b", &[]).is_err());
    assert!(users.change(b"default", &words("~x")).unwrap_err().contains("Try 'resetkeys'"));
    assert!(users.change(&[0xff], &[]).is_err());
}

#[test]
fn a_file_of_users_replaces_them_or_changes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("users.acl");
    let users = Users::new(Some("secret"));
    users.change(b"alice", &words("on >pw +get ~a* (+set ~b*)")).unwrap();
    users.change(b"bob", &words("on nopass")).unwrap();
    users.save_file(&path).unwrap();
    let alice = users.find(b"alice").unwrap();
    let before = alice.rules();
    let other = Users::new(None);
    other.load_file(&path).unwrap();
    assert_eq!(other.all().iter().map(|user| user.line()).collect::<Vec<_>>(), {
        users.all().iter().map(|user| user.line()).collect::<Vec<_>>()
    });
    for broken in ["user bob on\nuser bob off", "nonsense", "user bob +nosuch", "user bob (+get"] {
        assert!(users.load(broken).is_err(), "{broken}");
        assert_eq!(alice.rules(), before, "{broken}");
    }
    // A session of a user that is gone has no permission left, and bob's rules change in place.
    let bob = users.find(b"bob").unwrap();
    users.load("# comment\n\nuser bob off +get\n").unwrap();
    assert!(users.find(b"alice").is_none());
    assert_eq!(*alice.rules(), Rules::none());
    assert_eq!(*bob.rules(), rules("off +get"));
    assert!(users.default().rules().admits(b"secret"), "kept");
}

#[test]
fn equal_refusals_are_counted_together_and_the_log_is_bounded() {
    let mut log = Log::default();
    let refusal = |object: String| Refusal {
        count: 1,
        reason: "key",
        context: "toplevel",
        object: object.into_bytes(),
        user: "alice".into(),
        client: String::new(),
        at: std::time::Instant::now(),
    };
    (0..3).for_each(|_| log.add(refusal("a".into())));
    assert_eq!((log.entries.len(), log.entries[0].count), (1, 3));
    (0..500).for_each(|number| log.add(refusal(number.to_string())));
    assert_eq!(log.entries.len(), 128);
}
