//! Java names as people write them: dotted, without the numbers that differ from run to run.

use std::borrow::Cow;

use crate::text::clean;

/// Longest name that is printed, characters.
const MAX_NAME: usize = 1024;

/// A class from its JVM signature, `Lpackage/Class;` in modified UTF-8. With `raw` the numbers that the JVM, or a
/// code generator, made up for this run stay.
#[must_use]
pub fn class(signature: &[u8], raw: bool) -> String {
    let bare = signature.strip_prefix(b"L").and_then(|s| s.strip_suffix(b";")).unwrap_or(signature);
    // A hidden class has a suffix that only this JVM knows (JEP 371): `package/Class.0x00007f0012345678`.
    let (name, hidden) = match bare.iter().rposition(|&b| b == b'.') {
        Some(dot) => (&bare[..dot], &bare[dot + 1..]),
        None => (bare, &b""[..]),
    };
    let mut dotted = text(name).replace('/', ".");
    if raw {
        if !hidden.is_empty() {
            dotted.push('/');
            dotted.push_str(&text(hidden));
        }
        return dotted;
    }
    without_run_numbers(without_hash(&dotted))
}

/// Before JDK 15 a class without a name of its own has the hash of its mirror behind its host's:
/// `java/lang/invoke/LambdaForm$MH/1234567`. No name of a class in a source file is a number.
fn without_hash(dotted: &str) -> &str {
    match dotted.rsplit_once('.') {
        Some((name, hash)) if !hash.is_empty() && hash.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => dotted,
    }
}

/// A method's name, source file or signature: made fit to print, otherwise as the JVM has it.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    clean(&standard_utf8(bytes), MAX_NAME)
}

/// Modified UTF-8 writes characters beyond U+FFFF as two surrogates of three bytes each (JVM specification, 4.4.7).
fn standard_utf8(bytes: &[u8]) -> Cow<'_, [u8]> {
    if !bytes.contains(&0xed) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        if let [0xed, a @ 0xa0..=0xaf, b, 0xed, c @ 0xb0..=0xbf, d, after @ ..] = rest {
            let high = u32::from(a & 0x0f) << 6 | u32::from(b & 0x3f);
            let low = u32::from(c & 0x0f) << 6 | u32::from(d & 0x3f);
            let character = char::from_u32(0x10000 + (high << 10 | low)).unwrap_or('\u{fffd}');
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    Cow::Owned(out)
}

/// Markers whose tail is made up at run time: everything from behind the marker is dropped.
///
/// The JDK's lambdas and CGLIB (`$$` and a number or hash), Byte Buddy, Mockito and Hibernate (a random word),
/// Javassist (`_$$_jvst1a2_3`), Clojure's REPL.
const MARKERS: [&str; 13] = [
    "$$Lambda",
    "$$EnhancerBySpringCGLIB",
    "$$FastClassBySpringCGLIB",
    "$$EnhancerByCGLIB",
    "$$FastClassByCGLIB",
    "$$KeyFactoryByCGLIB",
    "$$SpringCGLIB",
    "$ByteBuddy",
    "$MockitoMock",
    "$HibernateProxy",
    "$HibernateInstantiator",
    "$HibernateAccessOptimizer",
    "_$$_javassist",
];

/// Classes whose simple name ends in a run's number.
const NUMBERED: [&str; 8] = [
    "GeneratedMethodAccessor",
    "GeneratedConstructorAccessor",
    "GeneratedSerializationConstructorAccessor",
    "$Proxy",
    "java.lang.invoke.LambdaForm$MH$",
    "java.lang.invoke.LambdaForm$DMH$",
    "java.lang.invoke.LambdaForm$BMH$",
    "_$$_jvst",
];

fn without_run_numbers(name: &str) -> String {
    for marker in MARKERS {
        if let Some((before, tail)) = name.split_once(marker)
            && (tail.is_empty() || tail.starts_with(['$', '/', '_']))
        {
            return format!("{before}{marker}");
        }
    }
    for stem in NUMBERED {
        if let Some(at) = name.rfind(stem) {
            let (head, tail) = name.split_at(at + stem.len());
            let number = |c: char| c.is_ascii_hexdigit() || c == '_';
            if !tail.is_empty() && tail.chars().all(number) && tail.contains(|c: char| c.is_ascii_digit()) {
                return proxy_package(head.strip_suffix('$').unwrap_or(head));
            }
        }
    }
    // Groovy's evaluated scripts, Clojure's evaluated forms.
    for (stem, whole) in [("Script", true), ("$eval", false)] {
        if let Some(at) = name.rfind(stem).filter(|&at| !whole || at == 0) {
            let tail = &name[at + stem.len()..];
            if !tail.is_empty() && tail.bytes().all(|b| b.is_ascii_digit()) {
                return name[..at + stem.len()].to_owned();
            }
        }
    }
    name.to_owned()
}

/// `jdk.proxy2.$Proxy`: the package is numbered too, one for each class loader.
fn proxy_package(name: &str) -> String {
    match name.strip_prefix("jdk.proxy").and_then(|rest| rest.split_once('.')) {
        Some((number, class)) if number.bytes().all(|b| b.is_ascii_digit()) => format!("jdk.proxy.{class}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(signature: &str, pretty: &str, raw: &str) {
        assert_eq!(class(signature.as_bytes(), false), pretty);
        assert_eq!(class(signature.as_bytes(), true), raw);
    }

    #[test]
    fn plain_names_are_dotted_and_kept() {
        reads("Ljava/lang/String;", "java.lang.String", "java.lang.String");
        for kept in [
            "a.Outer$Inner",
            "a.Outer$1",
            "a.Foo$anonfun$3",
            "a.Proxy2",
            "a.Script2",
            "a.My$ByteBuddyThing$x",
            "a.Invoke$_closure12",
            "$ProxyFactory",
            "jdk.proxy2.Other",
            "Scripted",
        ] {
            let signature = format!("L{};", kept.replace('.', "/"));
            reads(&signature, kept, kept);
        }
    }

    #[test]
    fn lambdas_lose_their_numbers() {
        reads(
            "La/Foo$$Lambda$123.0x0000000800c03000;",
            "a.Foo$$Lambda",
            "a.Foo$$Lambda$123/0x0000000800c03000",
        );
        reads("La/Foo$$Lambda.0x00007f00c8000a00;", "a.Foo$$Lambda", "a.Foo$$Lambda/0x00007f00c8000a00");
        reads("La/Foo$$Lambda$7;", "a.Foo$$Lambda", "a.Foo$$Lambda$7");
        reads("La/Foo$$Lambda$7/1234567;", "a.Foo$$Lambda", "a.Foo$$Lambda$7.1234567");
    }

    #[test]
    fn generated_classes_lose_their_numbers() {
        let pretty = |s: &str| class(format!("L{s};").as_bytes(), false);
        assert_eq!(
            pretty("java/lang/invoke/LambdaForm$MH.0x0000000800c03000"),
            "java.lang.invoke.LambdaForm$MH"
        );
        assert_eq!(pretty("java/lang/invoke/LambdaForm$DMH$17"), "java.lang.invoke.LambdaForm$DMH");
        assert_eq!(
            pretty("jdk/internal/reflect/GeneratedMethodAccessor12"),
            "jdk.internal.reflect.GeneratedMethodAccessor"
        );
        assert_eq!(pretty("jdk/proxy2/$Proxy14"), "jdk.proxy.$Proxy");
        assert_eq!(pretty("com/sun/proxy/$Proxy3"), "com.sun.proxy.$Proxy");
        assert_eq!(pretty("a/S$$EnhancerBySpringCGLIB$$1a2b3c4d"), "a.S$$EnhancerBySpringCGLIB");
        assert_eq!(pretty("a/S$$SpringCGLIB$$0"), "a.S$$SpringCGLIB");
        assert_eq!(pretty("a/S$ByteBuddy$aB3xY9Zq"), "a.S$ByteBuddy");
        assert_eq!(pretty("a/S$MockitoMock$123456789"), "a.S$MockitoMock");
        assert_eq!(pretty("a/S_$$_jvst1a2_3"), "a.S_$$_jvst");
        assert_eq!(pretty("Script17"), "Script");
        assert_eq!(pretty("user$eval1234"), "user$eval");
        assert_eq!(pretty("a/Hidden.0x0000000800c03000"), "a.Hidden");
    }

    #[test]
    fn hashes_of_nameless_classes_are_dropped() {
        reads(
            "Ljava/lang/invoke/LambdaForm$MH/1234567;",
            "java.lang.invoke.LambdaForm$MH",
            "java.lang.invoke.LambdaForm$MH.1234567",
        );
        reads("La/b/C2;", "a.b.C2", "a.b.C2");
        reads("L12;", "12", "12");
    }

    #[test]
    fn hostile_names_are_harmless() {
        assert_eq!(class(b"La/\x1b[31mred\n;", false), "a.?[31mred?");
        assert_eq!(class(b"", false), "");
        assert_eq!(class(b"L;", false), "");
        assert_eq!(class(b"L.;", true), "");
        assert!(class(&[b'x'; 70_000], false).chars().count() <= MAX_NAME + 1);
        assert_eq!(text(b"\xed\xa0\xbd\xed\xb8\x80"), "\u{1f600}");
        assert_eq!(text(b"\xed\xa0\xbd"), "\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(text(b"a\xc0\x80"), "a\u{fffd}\u{fffd}");
    }
}
