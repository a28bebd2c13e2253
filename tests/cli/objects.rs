//! `esker collection` and `esker object` from outside.

use std::fs;

use super::Place;

/// A store with the collection 1.0.
pub fn with_collection() -> Place {
    let place = Place::with_store();
    place.succeed(&["collection", "create", "s.esker", "1.0"]);
    place
}

impl Place {
    /// Runs `esker object COMMAND s.esker 1.0 REST`, which must succeed; its stdout.
    #[track_caller]
    fn object(&self, command: &str, rest: &[&str]) -> String {
        self.text(&[&["object", command, "s.esker", "1.0"], rest].concat())
    }

    #[track_caller]
    fn object_fails(&self, code: i32, command: &str, rest: &[&str]) -> String {
        self.fail(
            code,
            &[&["object", command, "s.esker", "1.0"], rest].concat(),
        )
    }
}

#[test]
fn help_teaches_every_object_command() {
    let place = Place::empty();
    let objects = [
        "put", "get", "rm", "ls", "stat", "setattr", "getattr", "omap-set", "omap-get", "omap-ls",
    ];
    for (group, commands) in [
        ("object", &objects[..]),
        ("collection", &["create", "ls", "rm"]),
    ] {
        let overview = place.text(&[group, "--help"]);
        for command in commands {
            assert!(overview.contains(command), "{command}");
            let help = place.text(&[group, command, "--help"]);
            assert!(help.contains("Examples"), "{command}");
            assert!(
                help.contains(&format!("esker {group} {command}")),
                "{command}"
            );
        }
    }
}

#[test]
fn collections_are_made_listed_and_removed() {
    let place = with_collection();
    place.succeed(&["collection", "create", "s.esker", "2.3_head"]);
    place.succeed(&["collection", "create", "s.esker", "meta"]);
    place.succeed(&["collection", "create", "s.esker", "5.1s2", "--bits", "4"]);
    let names = "meta\n1.0_head\n2.3_head\n5.1s2_head\n";
    assert_eq!(place.text(&["collection", "ls", "s.esker"]), names);
    let listed = place.json(&["collection", "ls", "s.esker", "--json"]);
    assert_eq!(listed[2]["name"], "2.3_head");
    assert_eq!(
        (&listed[2]["bits"], &listed[3]["bits"]),
        (&2.into(), &4.into())
    );

    let error = place.fail(1, &["collection", "create", "s.esker", "1.0"]);
    assert!(error.contains("exists"), "{error}");
    place.fail(
        2,
        &["collection", "create", "s.esker", "2.7", "--bits", "2"],
    );
    place.fail(2, &["collection", "create", "s.esker", "pool"]);
    place.fail(
        2,
        &["collection", "create", "s.esker", "1.0", "--bits", "33"],
    );
    place.fail(1, &["collection", "rm", "s.esker", "9.0"]);

    place.object("put", &["a", "-"]);
    let error = place.fail(1, &["collection", "rm", "s.esker", "1.0"]);
    assert!(error.contains("--recursive"), "{error}");
    let said = place.text(&["collection", "rm", "s.esker", "1.0", "--recursive"]);
    assert_eq!(said, "removed 1 objects\n");
    place.succeed(&["collection", "rm", "s.esker", "meta"]);
    assert_eq!(
        place.text(&["collection", "ls", "s.esker"]),
        "2.3_head\n5.1s2_head\n"
    );
}

#[test]
fn data_goes_in_and_comes_out() {
    let place = with_collection();
    let bytes: Vec<u8> = (0..9_000_000_u32)
        .map(|i| (i.wrapping_mul(i) >> 7) as u8)
        .collect();
    fs::write(place.path().join("file"), &bytes).unwrap();
    fs::write(place.path().join("small"), "x").unwrap();
    place.object("put", &["big", "file"]);
    place.object("get", &["big", "copy"]);
    assert!(fs::read(place.path().join("copy")).unwrap() == bytes);
    let arguments = ["object", "get", "s.esker", "1.0", "big"];
    assert!(place.succeed(&arguments) == bytes);
    let range = ["--offset", "4095", "--length", "5000000"];
    let part = place.succeed(&[&arguments[..], &range].concat());
    assert!(part == bytes[4095..5_004_095]);
    assert!(place.object("get", &["big", "--offset", "1G"]).is_empty());

    // A put replaces, with an offset it changes a part.
    let put = ["object", "put", "s.esker", "1.0", "big"];
    place.put_from_stdin(&put, b"short");
    assert_eq!(place.object("get", &["big"]), "short");
    place.put_from_stdin(
        &[&put[..], &["-", "--offset", "3"]].concat(),
        b"RT and more",
    );
    assert_eq!(place.object("get", &["big"]), "shoRT and more");
    place.put_from_stdin(&put, b"");
    assert_eq!(place.object("get", &["big"]), "");

    place.put_from_stdin(
        &[&put[..4], &["hole", "-", "--offset", "1M"]].concat(),
        b"x",
    );
    let stat = place.object("stat", &["hole", "--json"]);
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert_eq!(stat["size_bytes"], (1 << 20) + 1);
    assert!(stat["stored_bytes"].as_u64().unwrap() <= 4096);

    place.object("rm", &["hole"]);
    place.object_fails(1, "rm", &["hole"]);
    place.object("rm", &["hole", "--force"]);
    assert!(
        place
            .object_fails(1, "get", &["hole"])
            .contains("esker object ls")
    );
    place.object_fails(1, "put", &["big", "no-such-file"]);
    let error = place.fail(1, &["object", "ls", "s.esker", "7.0"]);
    assert!(error.contains("esker collection create"), "{error}");
    place.put_from_stdin(
        &[&put[..4], &["last", "-", "--offset", "4294967280"]].concat(),
        b"x",
    );
    let error = place.object_fails(1, "put", &["last", "small", "--offset", "4G"]);
    assert!(error.contains("limit"), "{error}");
}

#[test]
fn names_have_short_and_full_forms() {
    let place = with_collection();
    let put = |name: &[&str]| {
        place.put_from_stdin(&[&["object", "put", "s.esker", "1.0"], name].concat(), b"!");
    };
    put(&["foo"]);
    put(&["foo", "--snap", "1f"]);
    put(&["foo", "--nspace", "n:#", "--locator", "key"]);
    put(&["-e", "weird\\x00\\x0a\\\\"]);
    put(&["#1:00000001::::head#2"]);
    let listed = place.object("ls", &[]);
    let names: Vec<&str> = listed.lines().collect();
    assert_eq!(names.len(), 5, "{listed}");
    // The hash is Ceph's: `ceph osd map rbd foo` shows 7fc1f406.
    for name in [
        "foo",
        "#1:602f83fe:::foo:1f#",
        "weird\\x00\\x0a\\\\",
        "#1:00000001::::head#2",
    ] {
        assert!(names.contains(&name), "{name}: {listed}");
    }
    // What is listed leads back, in both forms.
    let full = place.object("ls", &["--full"]);
    for name in names.into_iter().chain(full.lines()) {
        assert_eq!(place.object("get", &["-e", name]), "!", "{name}");
    }
    let json = place.object("ls", &["--json"]);
    assert_eq!(json.lines().count(), 5);
    assert_eq!(place.object("ls", &["--limit", "2"]).lines().count(), 2);
    assert!(place.object("ls", &["-l"]).contains("512  foo\n"));

    let error = place.object_fails(1, "put", &["#2:602f83fe:::foo:head#", "s.esker"]);
    assert!(error.contains("does not belong"), "{error}");
    place.object_fails(
        2,
        "put",
        &["#1:602f83fe:::foo:head#", "s.esker", "--snap", "3"],
    );
    place.object_fails(2, "put", &["foo", "s.esker", "--hash", "xyz"]);
    place.object_fails(2, "put", &["-e", "\\q", "s.esker"]);
    place.succeed(&["collection", "create", "s.esker", "2.1", "--bits", "1"]);
    let error = place.fail(1, &["object", "put", "s.esker", "2.1", "foo", "s.esker"]);
    assert!(error.contains("--hash"), "{error}");
    place.succeed(&["object", "rm", "s.esker", "2.1", "foo", "--hash", "1", "-f"]);
}

#[test]
fn attributes_and_omap() {
    let place = with_collection();
    place.object_fails(1, "setattr", &["o", "a", "v"]);
    place.object_fails(1, "omap-set", &["o", "k", "v"]);
    place.object("put", &["o", "-"]);
    place.object("setattr", &["o", "owner", "tom"]);
    fs::write(place.path().join("info"), [0, 255, 7]).unwrap();
    place.object("setattr", &["o", "_", "--file", "info"]);
    place.object("setattr", &["o", "empty", ""]);
    assert_eq!(place.object("getattr", &["o", "owner"]), "tom");
    assert_eq!(place.object("getattr", &["o", "empty"]), "");
    assert_eq!(
        place.object("getattr", &["o", "--json"]),
        "{\"_\":\"\\\\x00\\\\xff\\\\x07\",\"empty\":\"\",\"owner\":\"tom\"}\n"
    );
    let error = place.object_fails(1, "getattr", &["o", "none"]);
    assert!(error.contains("esker object getattr"), "{error}");
    let large = vec![1; (1 << 20) + 1];
    fs::write(place.path().join("large"), &large).unwrap();
    place.object_fails(1, "setattr", &["o", "large", "--file", "large"]);

    for key in ["b", "a", "\\xff\\x00", ""] {
        place.object("omap-set", &["o", key, key]);
    }
    place.object("omap-set", &["o", "--header", "--file", "info"]);
    assert_eq!(place.object("omap-ls", &["o"]), "\na\nb\n\\xff\\x00\n");
    assert_eq!(
        place.object("omap-ls", &["o", "--from", "aa", "--limit", "1"]),
        "b\n"
    );
    assert!(place.object("omap-ls", &["o", "-l"]).contains("8  \\xff"));
    assert_eq!(place.object("omap-ls", &["o", "--json"]).lines().count(), 4);
    assert_eq!(place.object("omap-get", &["o", "b"]), "b");
    let header = ["object", "omap-get", "s.esker", "1.0", "o", "--header"];
    assert_eq!(place.succeed(&header), [0, 255, 7]);
    let error = place.object_fails(1, "omap-get", &["o", "c"]);
    assert!(error.contains("omap-ls"), "{error}");
    place.object_fails(2, "omap-get", &["o"]);
    place.object_fails(2, "omap-get", &["o", "k", "--header"]);
    place.object_fails(2, "omap-set", &["o"]);

    let stat = place.object("stat", &["o"]);
    for word in ["omap keys          4", "omap header bytes  3", "name owner"] {
        assert!(stat.contains(word), "{word}: {stat}");
    }
    let stats = place.json(&["stats", "s.esker", "--json"]);
    assert_eq!(stats["objects"]["objects"], 1);
    assert!(stats["objects"]["node_bytes_per_object"].as_f64().unwrap() > 100.0);
    assert!(place.text(&["stats", "s.esker"]).contains("B per object"));
}
