//! Java programs of `tests/programs` on any of the JDKs that this machine has or that `scripts/jdk-roots.sh` fetched.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::cgroup::Group;
use crate::claims::{StackClaim, prove, share};
use crate::folded::{Folded, has_leaf};
use crate::profiler::{is_main_thread, main_slice_of, profile_at_high_rate};
use crate::target::Target;
use crate::{container, is_root, native, scratch, skip, sources};

/// A JVM to run programs on.
#[derive(Clone, Debug)]
pub struct Jdk {
    /// The feature version: 8, 11, 17 …
    pub version: u32,
    place: Place,
    /// In a container: a file in the place of `libjvm.so`.
    library: Option<PathBuf>,
}

#[derive(Clone, Debug)]
enum Place {
    /// Installed on this machine.
    Host(PathBuf),
    /// In its own root file system.
    Root(PathBuf),
}

impl Jdk {
    /// The JDK of the `javac` on PATH.
    pub fn host() -> Jdk {
        let output = Command::new("sh").args(["-c", "readlink -f \"$(command -v javac)\""]).output().unwrap();
        let javac = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        let home = javac.parent().and_then(Path::parent).expect("javac is on PATH").to_owned();
        Jdk {
            version: release(&home).expect("a JDK has a release file"),
            place: Place::Host(home),
            library: None,
        }
    }

    /// A JDK of this version on the host, in the directory of Debian and other distributions.
    pub fn on_host(version: u32) -> Option<Jdk> {
        let homes = std::fs::read_dir("/usr/lib/jvm").ok()?;
        let mut homes: Vec<PathBuf> = homes.flatten().map(|entry| entry.path()).collect();
        homes.sort();
        let home = homes
            .into_iter()
            .find(|home| release(home) == Some(version) && home.join("bin/java").exists())?;
        Some(Jdk { version, place: Place::Host(home), library: None })
    }

    /// The JDK in the root file system of this name (the version, then any variant), if it was fetched.
    pub fn in_root(name: &str) -> Option<Jdk> {
        let cache = std::env::var_os("JBPF_PROF_CACHE").map(PathBuf::from).or_else(|| {
            let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
            Some(base.or_else(|| Some(std::env::home_dir()?.join(".cache")))?.join("jbpf-prof"))
        })?;
        let root = cache.join("jdk-roots").join(name);
        let version = name.split('-').next()?.parse().ok()?;
        root.join("usr/bin").is_dir().then_some(Jdk { version, place: Place::Root(root), library: None })
    }

    /// This JDK with a `libjvm.so` that has no symbols but the exported ones: on the host a copy whose other files are links,
    /// in a container another file in its place. `part`: a name for the directory.
    pub fn stripped(&self, part: &str) -> Jdk {
        let home = match &self.place {
            Place::Host(home) => home,
            Place::Root(root) => {
                let library = scratch(part).join(format!("libjvm-{}.so", self.version));
                std::fs::copy(root.join(self.library_in_root()), &library).unwrap();
                strip(&library);
                return Jdk { library: Some(library), ..self.clone() };
            }
        };
        let copy = scratch(part).join(self.version.to_string());
        let _ = std::fs::remove_dir_all(&copy);
        // A JVM finds its files from the paths of these.
        let own = ["bin/java", "lib/libjli.so", "lib/server/libjvm.so"];
        link_files(home, &copy, &own);
        strip(&copy.join("lib/server/libjvm.so"));
        Jdk { place: Place::Host(copy), ..self.clone() }
    }

    /// The path of `libjvm.so` of JDK 11 and later below the root directory, in Debian's package.
    fn library_in_root(&self) -> String {
        format!("usr/lib/jvm/java-{}-openjdk-amd64/lib/server/libjvm.so", self.version)
    }

    /// The JDK's home, if it is on the host.
    pub fn home(&self) -> Option<&Path> {
        match &self.place {
            Place::Host(home) => Some(home),
            Place::Root(_) => None,
        }
    }

    /// The JDK's root file system, if it has its own.
    pub fn root(&self) -> Option<&Path> {
        match &self.place {
            Place::Host(_) => None,
            Place::Root(root) => Some(root),
        }
    }

    /// Whether programs run in a container.
    pub fn is_contained(&self) -> bool {
        matches!(self.place, Place::Root(_))
    }
}

/// Removes the symbols of a file that are not exported.
fn strip(file: &Path) {
    assert!(Command::new("strip").arg(file).status().unwrap().success());
}

/// Makes `to` a directory with links to all that is in `from`, except for these files, which are copied.
fn link_files(from: &Path, to: &Path, copied: &[&str]) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let (source, target) = (from.join(&name), to.join(&name));
        let below = |path: &&str| path.strip_prefix(&name)?.strip_prefix('/').map(str::to_owned);
        let below: Vec<String> = copied.iter().filter_map(below).collect();
        if !below.is_empty() {
            link_files(&source, &target, &below.iter().map(String::as_str).collect::<Vec<_>>());
        } else if copied.contains(&name.as_str()) {
            native::copy(&source, &target);
        } else if let Ok(real) = std::fs::canonicalize(&source) {
            // Distributions have links to files of packages that are not installed.
            std::os::unix::fs::symlink(real, &target).unwrap();
        }
    }
}

/// The feature version in a JDK's `release` file.
fn release(home: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(home.join("release")).ok()?;
    let version = text.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
    version.strip_prefix("1.").unwrap_or(version).split(['.', '-', '"']).next()?.parse().ok()
}

/// The directory with the classes of all Java programs and their native libraries, compiled once, for JDK 8 and later.
pub fn classes() -> &'static Path {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let dir = scratch("classes");
        let mut javac = Command::new("javac");
        javac.args(["-Xlint:-options", "--release", "8", "-g", "-d"]).arg(&dir);
        for entry in std::fs::read_dir(sources()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "java") {
                javac.arg(path);
            }
        }
        assert!(javac.status().unwrap().success(), "the Java programs do not compile");
        let include = Jdk::host().home().expect("it is on the host").join("include");
        // Containers use these libraries too, and may have another C library.
        let (own, linux) = (include.as_os_str(), include.join("linux"));
        let flags = ["-nostdlib".as_ref(), "-I".as_ref(), own, "-I".as_ref(), linux.as_ref()];
        native::library(&dir, "fields", &flags);
        native::library(&dir, "hostile", &flags);
        dir
    })
}

/// Makes compiled code keep frame pointers. Each [`Program`] has this flag until [`Program::without`] removes it.
pub const FRAME_POINTERS: &str = "-XX:+PreserveFramePointer";

/// How to run one of the programs.
#[derive(Clone)]
pub struct Program {
    main: String,
    flags: Vec<String>,
    args: Vec<String>,
}

impl Program {
    /// The program with this main class; its compiled code keeps frame pointers.
    pub fn new(main: &str) -> Program {
        let flags = [FRAME_POINTERS, "-XX:CompileCommand=quiet", "-Xms64m", "-Xmx256m", "-Xss8m"];
        Program { main: main.to_owned(), flags: flags.map(str::to_owned).to_vec(), args: Vec::new() }
    }

    pub fn flags(mut self, flags: &[&str]) -> Program {
        self.flags.extend(flags.iter().map(|f| (*f).to_owned()));
        self
    }

    /// Removes a flag that [`Program::new`] set.
    pub fn without(mut self, flag: &str) -> Program {
        self.flags.retain(|f| f != flag);
        self
    }

    pub fn dont_inline(self, methods: &str) -> Program {
        self.flags(&[&format!("-XX:CompileCommand=dontinline,{methods}")])
    }

    /// Debug records at every instruction, also for code that is compiled before the attach.
    pub fn debug_non_safepoints(self) -> Program {
        self.flags(&["-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"])
    }

    /// The program stops before its JVM can be attached to, and never goes on.
    pub fn paused(self) -> Program {
        let file = scratch("paused").join("to-be-removed");
        let pause = format!("-XX:PauseAtStartupFile={}", file.display());
        self.flags(&["-XX:+UnlockDiagnosticVMOptions", "-XX:+PauseAtStartup", &pause])
    }

    pub fn args(mut self, args: &[&str]) -> Program {
        self.args.extend(args.iter().map(|a| (*a).to_owned()));
        self
    }

    /// Starts the program and waits until it is warm.
    pub fn start(&self, jdk: &Jdk) -> Target {
        match &jdk.place {
            Place::Host(home) => Target::start(&mut self.command(home)),
            Place::Root(root) => {
                let place = format!("/{}", jdk.library_in_root());
                let library = jdk.library.as_deref().map(|file| (file, place.as_str()));
                let binds: Vec<_> = [(classes(), "/tmp/classes")].into_iter().chain(library).collect();
                container::start(root, &self.contained_command(), &binds)
            }
        }
    }

    /// Starts the program on the host without waiting.
    pub fn spawn(&self, jdk: &Jdk) -> Target {
        match &jdk.place {
            Place::Host(home) => Target::spawn(&mut self.command(home)),
            Place::Root(_) => panic!("only on the host"),
        }
    }

    /// The command that runs the program on the host.
    pub fn host_command(&self, jdk: &Jdk) -> Vec<String> {
        let Place::Host(home) = &jdk.place else { panic!("only on the host") };
        let mut line = vec![home.join("bin/java").to_str().unwrap().to_owned()];
        line.extend(self.line(classes().to_str().unwrap()));
        line
    }

    /// Starts the program in a cgroup, on the host's JDK, and waits until it is ready.
    pub fn start_in(&self, group: &Group) -> Target {
        let line = self.host_command(&Jdk::host());
        Target::start(group.enter(Path::new(&line[0])).args(&line[1..]))
    }

    /// The command that runs the program in a container whose `/tmp/classes` is [`classes`].
    pub fn contained_command(&self) -> Vec<String> {
        let mut line = vec!["/usr/bin/java".to_owned()];
        line.extend(self.line("/tmp/classes"));
        line
    }

    fn command(&self, home: &Path) -> Command {
        let mut command = Command::new(home.join("bin/java"));
        command.args(self.line(classes().to_str().unwrap()));
        command
    }

    fn line(&self, classes: &str) -> Vec<String> {
        let mut line = self.flags.clone();
        line.extend(["-cp".to_owned(), classes.to_owned(), self.main.clone()]);
        line.extend(self.args.iter().cloned());
        line
    }
}

/// Runs a test on a JDK of the host. A host has the JDK that its distribution prefers, and those that its users
/// installed. Containers have all versions but 17.
pub fn on_host(version: u32, test: impl Fn(&Jdk)) {
    if is_root() {
        on_host_as_anybody(version, test);
    }
}

/// The same for a test that does not profile and so does not need root.
pub fn on_host_as_anybody(version: u32, test: impl Fn(&Jdk)) {
    match Jdk::on_host(version) {
        Some(jdk) => test(&jdk),
        None => eprintln!("LEFT OUT: this host has no JDK {version}"),
    }
}

/// Runs a test on a JDK in its own root file system, by its name there: `21`, `17-musl`.
pub fn in_container(name: impl Display, test: impl Fn(&Jdk)) {
    if !is_root() {
        return;
    }
    match Jdk::in_root(&name.to_string()) {
        _ if !container::available() => skip("containers need runc"),
        None => skip(&format!("no root file system with JDK {name}: scripts/jdk-roots.sh")),
        Some(jdk) => test(&jdk),
    }
}

/// How many classes must go while a program is profiled.
const CLASSES: usize = 4;

/// The number of slices that four classes may take: on a free machine a few.
const MOST_SLICES: u32 = 60;

/// Proves claims about the main thread of a program whose classes are unloaded one after the other: it prints
/// `unloaded` each time. At least four classes go meanwhile, however long that takes. Returns the stacks, and how many
/// classes went.
#[track_caller]
pub fn while_classes_go(
    jdk: &Jdk,
    program: &Program,
    more: &[&str],
    claims: &[StackClaim<'_>],
) -> (Folded, usize) {
    while_its_classes_go(&mut program.start(jdk), 1.0, more, claims)
}

/// The same of a program that runs already, in slices of this many seconds.
#[track_caller]
pub fn while_its_classes_go(
    target: &mut Target,
    seconds: f64,
    more: &[&str],
    claims: &[StackClaim<'_>],
) -> (Folded, usize) {
    let before = unloaded(target);
    let mut gone = 0;
    let batch = || {
        let mut all = Folded::default();
        for _ in 0..MOST_SLICES {
            all.add(main_slice_of(target, seconds, more));
            gone = unloaded(target) - before;
            if gone >= CLASSES {
                return all;
            }
        }
        panic!("only {gone} classes were unloaded: this test did not test");
    };
    let all = prove(batch, claims);
    (all, gone)
}

/// How many classes of a program are gone.
fn unloaded(target: &mut Target) -> usize {
    target.lines().iter().filter(|line| *line == "unloaded").count()
}

/// Slices of a Java program's main thread, a second at 7,999 Hz each, and what the reports say of its JVM.
pub struct MainSlices<'a> {
    target: &'a Target,
    more: &'a [&'a str],
    jvms: Vec<serde_json::Value>,
}

impl<'a> MainSlices<'a> {
    /// Of this program, profiled with these arguments.
    pub fn of(target: &'a Target, more: &'a [&'a str]) -> MainSlices<'a> {
        MainSlices { target, more, jvms: Vec::new() }
    }

    /// One more slice.
    pub fn take(&mut self) -> Folded {
        let args = [&["--per-thread"][..], self.more].concat();
        let profile = profile_at_high_rate(self.target, 1.0, &args);
        self.jvms.push(profile.report["jvms"][0].clone());
        profile.folded.keep(is_main_thread)
    }

    /// The JVM's row in the report of each slice so far.
    pub fn jvms(&self) -> &[serde_json::Value] {
        &self.jvms
    }
}

/// The truth of the program `Shares`: its four methods' shares of the main thread.
pub fn burn_shares() -> Vec<StackClaim<'static>> {
    let burns = [("burn10", 0.1), ("burn20", 0.2), ("burn30", 0.3), ("burn40", 0.4)];
    Vec::from(burns.map(|(name, truth)| {
        let method = format!("Shares.{name}");
        share(truth, name, has_leaf(method))
    }))
}

/// Whether a stack of the program `Shares` has an unknown frame among its own frames. Libraries without symbols
/// (Debian's libc, the libjvm of 8) come before these.
pub fn has_unknown_frame_of_shares(stack: &[String]) -> bool {
    let own = stack.iter().position(|frame| frame.starts_with("Shares.")).unwrap_or(0);
    stack[own..].iter().any(|frame| frame.starts_with("[unknown"))
}
