//! The main class or jar of a JVM, for people to read. Command lines can lie, so no decision depends on them.

use crate::text::clean;

/// Longest name that is shown, characters.
const MAX: usize = 200;

/// The launcher of a JDK and of a JRE.
const LAUNCHER: &[u8] = b"java";
/// Options of the `java` launcher that take the next argument as their value: `IsClassPathOption`, `IsLauncherOption`
/// and `IsModuleOption` in libjli/java.c of JDK 8 to 25, and the additions of JDK 28 (JDK-8387729).
const WITH_VALUE: [&[u8]; 21] = [
    b"-cp",
    b"-classpath",
    b"--class-path",
    b"-p",
    b"--module-path",
    b"--upgrade-module-path",
    b"--add-modules",
    b"--add-exports",
    b"--add-opens",
    b"--add-reads",
    b"--limit-modules",
    b"--patch-module",
    b"--enable-native-access",
    b"--source",
    b"-d",
    b"--describe-module",
    b"--enable-final-field-mutation",
    b"--illegal-native-access",
    b"--illegal-final-field-mutation",
    b"--sun-misc-unsafe-memory-access",
    b"--finalization",
];
/// The class that runs source files (`com.sun.tools.javac.launcher.Main`; since JDK 22 `SourceLauncher`).
const SOURCE_LAUNCHER: &[u8] = b"jdk.compiler/com.sun.tools.javac.launcher.";

/// The main class, module or jar of `/proc/PID/cmdline`; the program's own name if it is no `java` launcher.
#[must_use]
pub(super) fn main_of(cmdline: &[u8]) -> String {
    let mut arguments = cmdline.split(|&b| b == 0).filter(|a| !a.is_empty());
    let Some(program) = arguments.next() else { return String::new() };
    let program = base_name(program);
    let main = if program == LAUNCHER { launched(&mut arguments) } else { None };
    clean(main.unwrap_or(program), MAX)
}

/// Whether `main` is only the launcher's name: the main class is then in an argument file.
#[must_use]
pub(super) fn is_launcher(main: &str) -> bool {
    main.as_bytes() == LAUNCHER
}

/// The main class, module or jar of a command as the launcher passes it to the JVM: `org.example.Main arguments`,
/// `/opt/app/server.jar arguments`. The arguments may be secret and are left out.
#[must_use]
pub(super) fn main_of_command(command: &[u8]) -> String {
    const JAR: &[u8] = b".jar";
    // The path of a jar may have spaces.
    let jar = command.windows(JAR.len()).position(|part| part == JAR).map(|at| at + JAR.len());
    let jar = jar.filter(|&end| matches!(command.get(end), None | Some(b' ')));
    let mut words = command.split(|&b| b == b' ');
    let first = words.next().unwrap_or_default();
    let main = match jar.and_then(|end| command.get(..end)) {
        Some(jar) if jar.starts_with(b"/") || jar.len() == first.len() => base_name(jar),
        _ if first.starts_with(SOURCE_LAUNCHER) => words.next().map(base_name).unwrap_or_default(),
        _ => first,
    };
    clean(main, MAX)
}

fn launched<'a>(arguments: &mut impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    while let Some(argument) = arguments.next() {
        match argument {
            b"-jar" => return arguments.next().map(base_name),
            b"-m" | b"--module" => return arguments.next(),
            _ if WITH_VALUE.contains(&argument) => drop(arguments.next()),
            _ if argument.starts_with(b"--module=") => return argument.get(b"--module=".len()..),
            _ if argument.starts_with(b"-") || argument.starts_with(b"@") => {}
            // A source file is launched by its path.
            _ if argument.ends_with(b".java") => return Some(base_name(argument)),
            main => return Some(main),
        }
    }
    None
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_class_or_jar_is_found_behind_options() {
        let main = |line: &str| main_of(line.replace(' ', "\0").as_bytes());
        assert_eq!(
            main("/usr/bin/java -Xmx1g -cp a.jar:b.jar org.example.Main arg -jar x"),
            "org.example.Main"
        );
        assert_eq!(main("java -jar /opt/app/server.jar --port 1"), "server.jar");
        assert_eq!(
            main("java --add-opens java.base/java.lang=ALL-UNNAMED @args -m a.b/a.b.Main"),
            "a.b/a.b.Main"
        );
        assert_eq!(main("java --module=a/B"), "a/B");
        assert_eq!(main("java --source 21 Work.java"), "Work.java");
        assert_eq!(main("java --source 21 -cp lib /src/work --source 8"), "/src/work");
        assert_eq!(main("java --enable-final-field-mutation ALL-UNNAMED -cp a.jar a.B c"), "a.B");
        assert_eq!(main("java --finalization=disabled a.B"), "a.B");
        assert_eq!(main("java /src/Fib.java"), "Fib.java");
        assert_eq!(main("java @argfile"), "java");
        assert_eq!(main("/opt/idea/bin/idea --x"), "idea");
        assert_eq!(main(""), "");
        assert_eq!(main("java -jar"), "java");
    }

    #[test]
    fn what_a_launcher_notes_is_shown_without_its_arguments() {
        let main = |command: &str| main_of_command(command.as_bytes());
        assert_eq!(main("org.example.Main --password secret"), "org.example.Main");
        assert_eq!(main("/opt/my app/server.jar --port 1"), "server.jar");
        assert_eq!(main("server.jar"), "server.jar");
        assert_eq!(main("a.b/a.b.Main x.jar y"), "a.b/a.b.Main");
        assert_eq!(
            main("jdk.compiler/com.sun.tools.javac.launcher.SourceLauncher /src/Work.java 1"),
            "Work.java"
        );
        assert_eq!(main(""), "");
    }

    #[test]
    fn names_are_cleaned_and_cut() {
        assert_eq!(main_of(b"java\0A\x1b[31m\nB"), "A?[31m?B");
        let long = [b"java\0".as_slice(), &[b'x'; 500]].concat();
        assert_eq!(main_of(&long).chars().count(), MAX);
    }
}
