//! What a JVM runs, for people to read: its main class or jar. Command lines lie; nothing is decided by them.

use crate::text::clean;

/// Longest name that is shown, characters.
const MAX: usize = 200;

/// Options of the `java` launcher that take the next argument as their value (java(1)).
const WITH_VALUE: [&[u8]; 13] = [
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
];

/// The main class, module or jar of `/proc/PID/cmdline`; the program's own name if it is no `java` launcher.
#[must_use]
pub(super) fn main_of(cmdline: &[u8]) -> String {
    let mut arguments = cmdline.split(|&b| b == 0).filter(|a| !a.is_empty());
    let Some(program) = arguments.next() else { return String::new() };
    let program = base_name(program);
    let main = if program == b"java" { launched(&mut arguments) } else { None };
    clean(main.unwrap_or(program), MAX)
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
        assert_eq!(main("java /src/Fib.java"), "Fib.java");
        assert_eq!(main("java @argfile"), "java");
        assert_eq!(main("/opt/idea/bin/idea --x"), "idea");
        assert_eq!(main(""), "");
        assert_eq!(main("java -jar"), "java");
    }

    #[test]
    fn names_are_cleaned_and_cut() {
        assert_eq!(main_of(b"java\0A\x1b[31m\nB"), "A?[31m?B");
        let long = [b"java\0".as_slice(), &[b'x'; 500]].concat();
        assert_eq!(main_of(&long).chars().count(), MAX);
    }
}
