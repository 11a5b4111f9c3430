//! The licences of the packages of others that are in what is installed.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// How the names of the files begin that hold them.
const FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// The texts that the packages in these folders have, each below the package's name; of one that has none, what its manifest says.
pub(super) fn of(packages: &BTreeSet<PathBuf>) -> Result<String, String> {
    let mut all = String::new();
    for package in packages {
        let failed = |error| format!("cannot read {}: {error}", package.display());
        let name = package.file_name().unwrap_or_default().to_string_lossy();
        let mut texts = texts(package).map_err(failed)?;
        if texts.is_empty() {
            let manifest = fs::read_to_string(package.join("Cargo.toml")).map_err(failed)?;
            let said = manifest.lines().find(|line| line.starts_with("license"));
            texts.push(("Cargo.toml".to_owned(), said.unwrap_or_default().to_owned()));
        }
        for (file, text) in texts {
            all.push_str(&format!("==== {name}: {file}\n\n{}\n\n", text.trim_end()));
        }
    }
    Ok(all)
}

/// The names and contents of a package's licences.
fn texts(package: &Path) -> io::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(package)? {
        let path = entry?.path();
        let file = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_one = FILES.iter().any(|name| file.to_uppercase().starts_with(name));
        if is_one && path.is_file() {
            found.push((file, fs::read_to_string(&path)?));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_has_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("one-1.0.0");
        fs::create_dir(&package).unwrap();
        let packages = BTreeSet::from([package.clone()]);
        fs::write(package.join("Cargo.toml"), "[package]\nlicense = \"MIT\"\n").unwrap();
        assert_eq!(
            of(&packages).unwrap(),
            "==== one-1.0.0: Cargo.toml\n\nlicense = \"MIT\"\n\n"
        );
        fs::write(package.join("license-mit"), "do\n").unwrap();
        fs::write(package.join("NOTICE"), "not\n").unwrap();
        let want = "==== one-1.0.0: NOTICE\n\nnot\n\n==== one-1.0.0: license-mit\n\ndo\n\n";
        assert_eq!(of(&packages).unwrap(), want);
    }
}
