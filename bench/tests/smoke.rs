//! A small run of each benchmark, so that none can rot: it verifies its answers and draws its picture. Its figures mean
//! nothing and are not looked at.

use kelix_bench::{NAMES, Options, run};

#[test]
fn every_benchmark_runs() {
    let folder = std::env::temp_dir().join(format!("kelix-bench-smoke-{}", std::process::id()));
    // It runs the program itself, whose tests run it.
    for (name, _) in NAMES.iter().filter(|(name, _)| *name != "counts") {
        let options =
            Options { json: true, svg: Some(folder.clone()), records: Some(20_000), ..Options::default() };
        run(name, &options).expect("a run");
        let drawn = std::fs::read_to_string(folder.join(format!("{name}.svg"))).expect("a picture");
        assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    }
    let _ = std::fs::remove_dir_all(&folder);
    assert!(run("no such thing", &Options::default()).is_err());
}
