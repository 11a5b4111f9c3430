//! What `cargo xtask install` leaves, as other builds meet it: moved elsewhere, and used from outside the repository.

use super::{DOCUMENTATION, EXAMPLES, Place, SONAME, library, run};
use crate::{
    run::{output_of, succeed},
    tally::Tally,
    tools::{CMAKE, MAKE, Need, PKG_CONFIG},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Installs into a temporary folder and builds examples against it, by pkg-config and by CMake.
pub(crate) fn check(root: &Path) -> Tally {
    let mut tally = Tally::default();
    let temporary = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            tally.count("installing", Err(format!("no temporary folder: {error}")));
            return tally;
        }
    };
    let user = match user(root, temporary.path()) {
        Ok(user) => user,
        Err(why) => {
            tally.count("installing", Err(why));
            return tally;
        }
    };
    let mut count = |name: &str, needs: &[Need], outcome: &dyn Fn() -> Result<(), String>| match needs
        .iter()
        .find(|need| !need.is_there(root))
    {
        Some(missing) => tally.skipped.push(format!("{name}: {missing} is not installed")),
        None => tally.count(name, outcome()),
    };
    count("installed links and benchmark", &[], &|| {
        user.links_and_benchmark()
    });
    count("installed pkg-config file", &[PKG_CONFIG], &|| user.pkg_config());
    count("installed CMake package", &[CMAKE, MAKE], &|| user.cmake());
    tally
}

/// Somebody who has the installed files and a folder for programs, and no repository.
struct User {
    prefix: PathBuf,
    folder: PathBuf,
}

/// The examples that are built: name, source, compiler and its standard.
const PROGRAMS: [(&str, &str, &str, &str); 2] = [
    ("in_c", "pipeline.c", "cc", "-std=gnu11"),
    ("in_cxx", "data_parallel.cpp", "c++", "-std=gnu++17"),
];

const PREFIX: &str = "/opt/ccl";

/// Installs with a staging folder, and moves what is there to another name.
fn user(root: &Path, temporary: &Path) -> Result<User, String> {
    let failed = |error: std::io::Error| error.to_string();
    let (stage, prefix, folder) = (
        temporary.join("stage"),
        temporary.join("moved"),
        temporary.join("user"),
    );
    let place = Place::new(Path::new(PREFIX), Some(&stage))?;
    run(root, &place)?;
    fs::rename(place.folder(), &prefix).map_err(failed)?;
    fs::create_dir(&folder).map_err(failed)?;
    Ok(User { prefix, folder })
}

impl User {
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env_remove("LD_LIBRARY_PATH")
            .env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        command
    }

    fn links_and_benchmark(&self) -> Result<(), String> {
        for (link, to) in [("libccl.so", SONAME), (SONAME, &library())] {
            let path = self.prefix.join("lib").join(link);
            let leads = fs::read_link(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            if leads != Path::new(to) {
                return Err(format!(
                    "{link} leads to {}: it must lead to {to}",
                    leads.display()
                ));
            }
        }
        let program = |name: &str| self.command(self.prefix.join("bin").join(name));
        succeed(program("ccl-topo").arg("--version"))?;
        succeed(program("ccl-perf").args(["allreduce", "-b", "1K", "-e", "1K", "--ranks", "2"]))
    }

    fn pkg_config(&self) -> Result<(), String> {
        let ask = |args: &[&str]| output_of(self.command("pkg-config").args(args).arg("ccl"));
        let (version, flags) = (ask(&["--modversion"])?, ask(&["--cflags", "--libs"])?);
        if version.trim() != super::VERSION {
            return Err(format!("it says version {version}"));
        }
        PROGRAMS
            .iter()
            .try_for_each(|(name, source, compiler, standard)| {
                let program = self.folder.join(name);
                let mut compile = self.command(compiler);
                compile
                    .args([standard, "-Wall", "-Werror"])
                    .arg(self.source(source));
                compile.arg("-o").arg(&program).args(flags.split_whitespace());
                output_of(&mut compile)?;
                let needed = output_of(self.command("readelf").arg("--dynamic").arg(&program))?;
                if !needed.contains(&format!("Shared library: [{SONAME}]")) {
                    return Err(format!("the program does not ask for {SONAME}:\n{needed}"));
                }
                let lib = self.prefix.join("lib");
                succeed(self.command(&program).env("LD_LIBRARY_PATH", lib))
            })
    }

    /// An installed example.
    fn source(&self, name: &str) -> PathBuf {
        self.prefix.join(DOCUMENTATION).join(EXAMPLES).join(name)
    }

    /// CMake writes the library's folder into programs that run from the build tree.
    fn cmake(&self) -> Result<(), String> {
        let mut lists = format!(
            "cmake_minimum_required(VERSION 3.16)\n\
             project(user C CXX)\n\
             set(CMAKE_CXX_STANDARD 17)\n\
             find_package(ccl {} REQUIRED)\n",
            super::VERSION
        );
        for (name, source, ..) in PROGRAMS {
            let source = self.source(source);
            lists += &format!("add_executable({name} \"{}\")\n", source.display());
            lists += &format!("target_link_libraries({name} PRIVATE ccl::ccl)\n");
        }
        fs::write(self.folder.join("CMakeLists.txt"), lists).map_err(|error| error.to_string())?;
        let prefix = format!("-DCMAKE_PREFIX_PATH={}", self.prefix.display());
        output_of(self.command("cmake").args(["-S", ".", "-B", "build", &prefix]))?;
        output_of(self.command("cmake").args(["--build", "build"]))?;
        PROGRAMS
            .iter()
            .try_for_each(|(name, ..)| succeed(&mut self.command(self.folder.join("build").join(name))))
    }
}
