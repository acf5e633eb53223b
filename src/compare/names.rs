//! Names that are the same in each run of a program. A name that has a number of one run would be two functions: one
//! that vanished, and one that is new.

use std::borrow::Cow;

use crate::jvm::without_run_number;
use crate::process::comm::fold_numbers;
use crate::profile::Kind;
use crate::profile::kind::Origin;

/// The name of a frame without the parts that a runtime, a compiler or an address makes different in each run.
pub(super) fn stable(kind: Kind, name: &str) -> Cow<'_, str> {
    if kind == Kind::Thread {
        return Cow::Owned(fold_numbers(name));
    }
    if kind.origin() == Origin::Java || is_of_generator(name) {
        return Cow::Owned(of_java(name, kind.origin() == Origin::Java));
    }
    match kind.origin() {
        Origin::NotCode | Origin::Unknown => Cow::Borrowed(name),
        _ => Cow::Borrowed(of_compiler(name)),
    }
}

/// Whether a name has a Java class or method that a compiler or the JVM has made. Other profilers do not always mark Java frames.
fn is_of_generator(name: &str) -> bool {
    ["$$Lambda", "LambdaForm$", "GeneratedMethodAccessor", "GeneratedConstructorAccessor", "lambda$"]
        .iter()
        .any(|part| name.contains(part))
}

fn of_java(name: &str, is_java: bool) -> String {
    let mut text = without_hidden_addresses(name);
    // async-profiler writes classes with slashes, unless its option `dot` (jfrconv: `--dot`) asks for dots.
    if is_java && !text.contains(' ') {
        text = text.replace('/', ".");
    }
    let Some((class, method)) = text.rsplit_once('.') else { return without_synthetic_number(&text) };
    let class = without_run_number(class, b"", false).unwrap_or_else(|| class.to_owned());
    format!("{class}.{}", without_synthetic_number(method))
}

/// Removes the address in the name of a hidden class: `Foo$$Lambda/0x00007f…`, with `.` or `+` for the slash in the
/// output of some tools.
fn without_hidden_addresses(name: &str) -> String {
    const MARKS: [&str; 3] = ["/0x", ".0x", "+0x"];
    let mut text = name.to_owned();
    for mark in MARKS {
        while let Some(at) = text.find(mark) {
            let digits = text[at + mark.len()..].bytes().take_while(u8::is_ascii_hexdigit).count();
            if digits < 4 {
                break;
            }
            text.replace_range(at..at + mark.len() + digits, "");
        }
    }
    text
}

/// Removes the number of a method that javac, kotlinc or scalac makes of a lambda: `lambda$main$3`, `$anonfun$run$12`.
/// The number counts the lambdas of a class, so a new lambda changes the numbers of others.
fn without_synthetic_number(method: &str) -> String {
    if !["lambda$", "$anonfun$"].iter().any(|part| method.contains(part)) {
        return method.to_owned();
    }
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = method.split('$').map(|part| if is_number(part) { "#" } else { part }).collect();
    parts.join("$")
}

/// Suffixes of the copies that GCC and LLVM make of a function, mostly when they inline or specialise a part of it.
const COPIES: [&str; 8] =
    [".isra.", ".constprop.", ".part.", ".cold", ".lto_priv.", ".llvm.", ".localalias", ".clone."];

/// A native name without an offset (`foo+0x1c`), without the suffix of a compiler's copy (`foo.isra.0`) and without the
/// hash of Rust's old mangling (`foo::h0123456789abcdef`).
fn of_compiler(name: &str) -> &str {
    if name.strip_prefix("0x").is_some_and(is_hex) {
        return "[address]";
    }
    let name = match name.rsplit_once("+0x") {
        Some((bare, offset)) if !bare.is_empty() && is_hex(offset) => bare,
        _ => name,
    };
    let first = COPIES.iter().filter_map(|copy| name.find(copy)).min().filter(|at| *at > 0);
    let name = first.map_or(name, |at| &name[..at]);
    match name.rsplit_once("::h") {
        Some((bare, hash)) if hash.len() == 16 && is_hex(hash) => bare,
        _ => name,
    }
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::{Kind, stable};

    #[test]
    fn numbers_of_one_run_are_no_part_of_a_name() {
        for (kind, name, expected) in [
            (Kind::Java, "a.Foo$$Lambda$17/0x0000000800c03000.run", "a.Foo$$Lambda.run"),
            (Kind::JavaInlined, "a.Foo$$Lambda/0x00007f1234567890.apply", "a.Foo$$Lambda.apply"),
            (Kind::Java, "a.Foo$$Lambda.0x00007f1234567890.apply", "a.Foo$$Lambda.apply"),
            (Kind::Java, "a/Foo$$Lambda$17.run", "a.Foo$$Lambda.run"),
            (Kind::Native, "a.Foo$$Lambda$17.run", "a.Foo$$Lambda.run"),
            (Kind::Java, "java/util/HashMap.get", "java.util.HashMap.get"),
            (
                Kind::Java,
                "java.lang.invoke.LambdaForm$MH/0x0000000800c03000.invoke",
                "java.lang.invoke.LambdaForm$MH.invoke",
            ),
            (Kind::Java, "a.Foo.lambda$main$3", "a.Foo.lambda$main$#"),
            (Kind::Java, "scala.Main$.$anonfun$run$12", "scala.Main$.$anonfun$run$#"),
            (
                Kind::JavaInterpreted,
                "jdk.internal.reflect.GeneratedMethodAccessor41.invoke",
                "jdk.internal.reflect.GeneratedMethodAccessor.invoke",
            ),
            (Kind::Java, "jdk.proxy2.$Proxy14.get", "jdk.proxy.$Proxy.get"),
            (Kind::Native, "work.isra.0", "work"),
            (Kind::Kernel, "do_one.constprop.0.isra.3", "do_one"),
            (Kind::Native, "work.cold", "work"),
            (Kind::Native, "work+0x1c", "work"),
            (Kind::Native, "0x7f0012345678", "[address]"),
            (Kind::Native, "app::run::h0123456789abcdef", "app::run"),
            (Kind::Thread, "pool-3-thread-12", "pool-#-thread-#"),
        ] {
            assert_eq!(stable(kind, name), expected, "{name}");
        }
    }

    #[test]
    fn names_of_people_stay() {
        for (kind, name) in [
            (Kind::Java, "a.Outer$1.run"),
            (Kind::Java, "a.Proxy2.run"),
            (Kind::Native, "sha256_block"),
            (Kind::Native, ".cold_start"),
            (Kind::Cpp, "std::vector<int>::push_back(int)"),
            (Kind::Native, "main.main.func1"),
            (Kind::Process, "worker-3"),
            (Kind::Marker, "[truncated]"),
        ] {
            assert_eq!(stable(kind, name), name);
        }
    }
}
