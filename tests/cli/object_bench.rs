//! `esker bench --layer object`, at tiny size.

use super::Place;

const TINY: [&str; 9] = [
    "bench",
    "--layer",
    "object",
    "--capacity",
    "64M",
    "--utilization",
    "0.4",
    "--pgs",
    "8",
];

#[test]
fn a_run_reports_sane_numbers() {
    let place = Place::empty();
    let rest = [
        "--ops", "600", "--warmup", "0.02", "--json", "r.json", "--plot", "r.svg", "--seed", "7",
    ];
    let summary = place.text(&[&TINY[..], &rest].concat());
    for word in [
        "ops/s", "p99.9", "WA", "CPU us", "victims", "records", "DRAM",
    ] {
        assert!(summary.contains(word), "{word}: {summary}");
    }
    let report = place.json_file("r.json");
    let size = &report["sizes"][0];
    let number = |key: &str| {
        size[key]
            .as_f64()
            .unwrap_or_else(|| panic!("{key}: {size}"))
    };
    assert_eq!(size["ops"], 600);
    assert_eq!(number("data_bytes"), 600.0 * 4096.0);
    let before = number("write_amplification_before_cleaning");
    // Data, attributes, log entry and info are 4844 bytes: below that bytes are missing.
    assert!((1.18..4.0).contains(&before), "{before}");
    assert!(number("write_amplification") > 1.18);
    assert!(number("ops_per_second") > 0.0 && number("cpu_us_per_op") >= 0.0);
    assert!(number("verified") > 0.0);
    let latency = |key: &str| size["latency_us"][key].as_f64().unwrap();
    assert!(latency("p50") > 0.0 && latency("p50") <= latency("p99"));
    assert!(!size["intervals"].as_array().unwrap().is_empty());
    assert_eq!(report["arguments"]["workload"], "rbd-randwrite");
    let plot = std::fs::read_to_string(place.path().join("r.svg")).unwrap();
    assert!(plot.starts_with("<svg") && plot.contains("p99"));
    assert_eq!(place.names().len(), 2, "the temporary store is gone");
}

#[test]
fn every_workload_and_device_runs() {
    let place = Place::empty();
    let quick = ["--ops", "100", "--warmup", "0"];
    for extra in [
        &["--workload", "rbd-randread", "--depth", "4"][..],
        &["--workload", "rbd-seqwrite", "--depth", "1"],
        &["--distribution", "zipf:0.99", "--threads", "2"],
        &["--device", "null"],
        &["--device", "memory", "--block-bytes", "4096"],
    ] {
        place.succeed(&[&TINY[..], &quick, extra].concat());
    }
    let sweep = [
        "--workload",
        "rados-write",
        "--sizes",
        "4K..16K,4M",
        "--device",
        "memory",
        "--plot",
        "sweep.svg",
        "--ops",
        "20",
    ];
    let summary = place.text(&[&TINY[..], &sweep].concat());
    for size in ["4.00 KiB", "8.00 KiB", "16.0 KiB", "4.00 MiB"] {
        assert!(summary.contains(size), "{summary}");
    }
    let plot = std::fs::read_to_string(place.path().join("sweep.svg")).unwrap();
    assert!(plot.contains("WA before cleaning"));
    place.succeed(&[&TINY[..], &quick, &["--path", "b.esker"]].concat());
    let groups = place.text(&["collection", "ls", "b.esker"]);
    assert_eq!(groups.lines().count(), 8);
    assert_eq!(place.names().len(), 2);
}

#[test]
fn wrong_arguments_are_refused_before_any_effect() {
    let place = Place::empty();
    for wrong in [
        &["--sizes", "5000"][..],
        &["--sizes", "8M"],
        &["--sizes", "1M..4K"],
        &["--depth", "0"],
        &["--depth", "2", "--threads", "4"],
        &["--pgs", "3"],
        &["--utilization", "1"],
        &["--workload", "overwrite"],
        &["--device", "null", "--workload", "rbd-randread"],
        &["--device", "memory", "--path", "x"],
        &["--block-bytes", "1024"],
        &["--ops", "0"],
        &["--seconds", "0"],
        &["--warmup=-1"],
        &["--keys", "5"],
        &["--json", "no/such/directory/r.json"],
    ] {
        place.fail(2, &[&["bench", "--layer", "object"], wrong].concat());
        assert!(place.names().is_empty(), "{wrong:?} made something");
    }
    place.fail(2, &["bench", "--layer", "none"]);
    let help = place.text(&["bench", "--layer", "object", "--help"]);
    assert!(help.contains("esker bench --layer object") && help.contains("snapset"));
    assert!(place.text(&["bench", "--help"]).contains("--layer"));
}
