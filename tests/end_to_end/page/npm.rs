//! Tools from npm that only tests need: the checker of types and the checker of accessibility. They are installed once,
//! in the cache of the tests, without running scripts of the packages.

use std::path::PathBuf;
use std::process::Command;

use testkit::{lacks, skip};

/// Package and version.
const TYPESCRIPT: &str = "typescript@5.9.3";
const AXE: &str = "axe-core@4.11.1";

/// The file of a package, if npm can install the package here.
fn installed(package: &str, file: &str) -> Option<PathBuf> {
    if lacks("npm") {
        return None;
    }
    let cache = std::env::var_os("JBPF_PROF_CACHE").map_or_else(|| testkit::scratch("npm"), PathBuf::from);
    let home = cache.join("npm").join(package);
    let found = home.join("node_modules").join(file);
    if !found.exists() {
        std::fs::create_dir_all(&home).unwrap();
        let mut npm = Command::new("timeout");
        npm.args(["120", "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
        let output = npm.arg(&home).arg(package).output().unwrap();
        if !output.status.success() {
            skip(&format!("npm cannot install {package}: {}", String::from_utf8_lossy(&output.stderr)));
            return None;
        }
    }
    Some(found)
}

/// The compiler of TypeScript.
pub(super) fn tsc() -> Option<PathBuf> {
    installed(TYPESCRIPT, "typescript/bin/tsc")
}

/// The script of axe-core.
pub(super) fn axe() -> Option<String> {
    installed(AXE, "axe-core/axe.min.js").map(|file| std::fs::read_to_string(file).unwrap())
}
