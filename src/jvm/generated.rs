//! Names of classes that a JVM or a known generator makes at run time: removes the part that is made up for one run.
//!
//! Only exact shapes count. A user's class whose name merely looks generated keeps it: two classes merged into one
//! would be a false result, while a leftover number is only noise.

/// The name of a class, dotted, without what its generator made up for this run; `None` if no part is made up. `file`
/// is the source file, empty if the class has none; `hidden`: the JVM says that the class is a hidden one.
#[must_use]
pub fn without_run_number(dotted: &str, file: &[u8], hidden: bool) -> Option<String> {
    let bare = without_hash(dotted);
    let (package, simple) = bare.rsplit_once('.').unwrap_or(("", bare));
    let stem = stem(package, simple, file);
    if stem.is_none() && bare.len() == dotted.len() && !hidden {
        return None;
    }
    let (package, simple) = (numbered_package(package, simple), stem.unwrap_or(simple));
    Some(if package.is_empty() { simple.to_owned() } else { format!("{package}.{simple}") })
}

/// The part of a class's simple name that is the same in each run.
fn stem<'a>(package: &str, simple: &'a str, file: &[u8]) -> Option<&'a str> {
    // Clojure's evaluated forms (`Compiler.eval`), of the prompt only: a function of a file may be called `eval1`.
    if let Some(number) = after(simple, "$eval")
        && is_number(number)
        && [&b"NO_SOURCE_FILE"[..], b"NO_SOURCE_PATH", b"REPL"].contains(&file)
    {
        return simple.strip_suffix(number);
    }
    // A compiler names the source file; these generators name none, so a class with a file is not theirs.
    let without_file = || of_the_jdk(package, simple).or_else(|| of_byte_buddy(simple));
    let found = if file.is_empty() { without_file() } else { of_java_lang_invoke(package, simple) };
    found.or_else(|| of_cglib(simple)).or_else(|| of_javassist(simple))
}

/// Names by the JDK's `InnerClassLambdaMetafactory`, `java.lang.reflect.Proxy` and `MethodAccessorGenerator`.
fn of_the_jdk<'a>(package: &str, simple: &'a str) -> Option<&'a str> {
    const ACCESSORS: [&str; 3] = [
        "GeneratedMethodAccessor",
        "GeneratedConstructorAccessor",
        "GeneratedSerializationConstructorAccessor",
    ];
    let numbered = |stem: &str| simple.strip_prefix(stem).is_some_and(is_number);
    if let Some(number) = after(simple, "$$Lambda$").filter(|number| is_number(number)) {
        return simple.get(..simple.len() - number.len() - 1);
    }
    match package {
        "java.lang.invoke" => of_java_lang_invoke(package, simple),
        "sun.reflect" | "jdk.internal.reflect" => {
            ACCESSORS.into_iter().find(|accessor| numbered(accessor)).and_then(|a| simple.get(..a.len()))
        }
        // A proxy of an interface that is not public is in the interface's package.
        _ => numbered("$Proxy").then_some("$Proxy"),
    }
}

/// `InvokerBytecodeGenerator`, whose classes have a source file that does not exist.
fn of_java_lang_invoke<'a>(package: &str, simple: &'a str) -> Option<&'a str> {
    const FORMS: [&str; 3] = ["LambdaForm$MH", "LambdaForm$DMH", "LambdaForm$BMH"];
    let numbered = |form: &&str| {
        simple.strip_prefix(form).and_then(|tail| tail.strip_prefix('$')).is_some_and(is_number)
    };
    let form = FORMS.into_iter().find(numbered).filter(|_| package == "java.lang.invoke")?;
    simple.get(..form.len())
}

/// Byte Buddy's `NamingStrategy.SuffixingRandom`, alone and as Mockito and Hibernate use it; Mockito 2 has a number.
/// Such classes have no source file.
fn of_byte_buddy(simple: &str) -> Option<&str> {
    const MARKERS: [&str; 5] = [
        "$ByteBuddy",
        "$MockitoMock",
        "$HibernateProxy",
        "$HibernateInstantiator",
        "$HibernateAccessOptimizer",
    ];
    let (name, random) = simple.rsplit_once('$')?;
    let marker = MARKERS.into_iter().find(|marker| name.ends_with(marker))?;
    (is_random(random) || marker == "$MockitoMock" && is_number(random)).then_some(name)
}

/// CGLIB's `DefaultNamingPolicy` (`Service$$EnhancerByCGLIB$$1a2b3c4d`, `…_2` if that is taken), with the tags of
/// Spring, Guice and Mockito 1, and `SpringNamingPolicy` since 6.0 (`Service$$SpringCGLIB$$0`, `…$$FastClass$$0`).
fn of_cglib(simple: &str) -> Option<&str> {
    const TAGS: [&str; 4] = ["ByCGLIB", "BySpringCGLIB", "ByGuice", "ByMockitoWithCGLIB"];
    let (name, last) = simple.rsplit_once("$$")?;
    if name.ends_with("$$SpringCGLIB") || name.ends_with("$$SpringCGLIB$$FastClass") {
        return is_number(last).then_some(name);
    }
    let (_, generator) = name.rsplit_once("$$")?;
    let tagged =
        TAGS.iter().any(|tag| generator.strip_suffix(tag).is_some_and(|made_by| !made_by.is_empty()));
    let (hash, again) = last.split_once('_').unwrap_or((last, "2"));
    (tagged && is_hex(hash, 8) && is_number(again)).then_some(name)
}

/// Javassist's `ProxyFactory.nameGenerator`: `Entity_$$_jvst1a2_3`, before 3.18 `Entity_$$_javassist_3`.
fn of_javassist(simple: &str) -> Option<&str> {
    const NOW: &str = "_$$_jvst";
    const THEN: &str = "_$$_javassist";
    if let Some(tail) = after(simple, NOW) {
        let (factory, number) = tail.split_once('_')?;
        return (is_hex(factory, 3) && is_hex(number, 8)).then(|| &simple[..simple.len() - tail.len()]);
    }
    let number = after(simple, THEN)?.strip_prefix('_')?;
    is_number(number).then(|| &simple[..simple.len() - number.len() - 1])
}

/// Before JDK 15 the name of an anonymous class is its host's name, then the hash of its mirror
/// (`InstanceKlass::signature_name`): `java/lang/invoke/LambdaForm$MH/1234567`. A user's class may be called `100`.
fn without_hash(dotted: &str) -> &str {
    match dotted.rsplit_once('.') {
        Some((host, hash)) if is_number(hash) && is_anonymous_host(host) => host,
        _ => dotted,
    }
}

/// Whether the host's anonymous classes are known; user classes cannot be in a `java.` package.
fn is_anonymous_host(host: &str) -> bool {
    host.starts_with("java.")
        || after(host, "$$Lambda$").is_some_and(is_number)
        || host.ends_with("$$StringConcat")
}

/// `jdk.proxy2.$Proxy7` and `com.sun.proxy.jdk.proxy2.$Proxy7`: each class loader has its own numbered package.
fn numbered_package(package: &str, simple: &str) -> String {
    let outer = ["com.sun.proxy.jdk.proxy", "jdk.proxy"];
    let numbered = outer.into_iter().find(|outer| package.strip_prefix(outer).is_some_and(is_number));
    match numbered {
        Some(outer) if simple.starts_with("$Proxy") => outer.to_owned(),
        _ => package.to_owned(),
    }
}

/// The text behind the last `marker`.
fn after<'a>(name: &'a str, marker: &str) -> Option<&'a str> {
    name.rsplit_once(marker).map(|(_, tail)| tail)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// A number as `Integer.toHexString` writes it.
fn is_hex(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Eight letters and digits, as of Byte Buddy's `RandomString`, that are not a programmer's words: `Builders`,
/// `FooMaker`. One random text in a hundred looks like words and stays.
fn is_random(text: &str) -> bool {
    const LENGTH: usize = 8;
    text.len() == LENGTH && text.bytes().all(|b| b.is_ascii_alphanumeric()) && !is_words(text)
}

/// Camel case: letters only, each word two letters or longer, with a capital first (optional in the first word).
fn is_words(text: &str) -> bool {
    let mut word = 0;
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'A'..=b'Z' if at == 0 || word >= 2 => word = 1,
            b'a'..=b'z' => word += 1,
            _ => return false,
        }
    }
    word >= 2
}

#[cfg(test)]
mod tests {
    use super::without_run_number;

    /// The pretty name of a class without a source file.
    fn pretty(dotted: &str) -> String {
        of_file(dotted, "")
    }

    fn of_file(dotted: &str, file: &str) -> String {
        without_run_number(dotted, file.as_bytes(), false).unwrap_or_else(|| dotted.to_owned())
    }

    #[test]
    fn names_of_users_are_kept() {
        for kept in [
            "a.Outer$Inner",
            "a.Outer$1",
            "a.Foo$anonfun$3",
            "a.Proxy2",
            "a.Script2",
            "Script17",
            "Scripted",
            "a.My$ByteBuddyThing$x",
            "Maker$ByteBuddy$Alpha",
            "Maker$ByteBuddy$Beta",
            "Maker$ByteBuddy$Builders",
            "Maker$ByteBuddy$FooMaker",
            "Maker$MockitoMock$Answer",
            "a.Invoke$_closure12",
            "$ProxyFactory",
            "Outer$Proxy1",
            "a.Outer$$Proxy1",
            "Cell$ProxyFace1",
            "jdk.proxy2.Other",
            "a.GeneratedMethodAccessor12",
            "a.LambdaForm$MH$1",
            "a$$Lambda.Real",
            "a.B$$Lambda$Real",
            "a.B$$LambdaX$1",
            "My$$EnhancerByCGLIB_Factory",
            "My$$EnhancerByCGLIB$$Factory",
            "My$$EnhancerByCGLIB$$1a2b3c4d5",
            "My$$StandBy$$1",
            "My$$SpringCGLIB$$Inner",
            "a.S_$$_jvst",
            "a.S_$$_jvstore_1",
            "my.pkg.100",
            "user$eval1",
            "user$evaluate",
            "12",
            "",
        ] {
            assert_eq!(without_run_number(kept, b"", false), None, "{kept}");
            assert_eq!(without_run_number(kept, b"X.java", false), None, "{kept}");
        }
        // A compiler wrote these: no generator names a source file for them.
        assert_eq!(of_file("Maker$ByteBuddy$x7Gamma1", "Maker.java"), "Maker$ByteBuddy$x7Gamma1");
        assert_eq!(of_file("a.F$$Lambda$1", "F.java"), "a.F$$Lambda$1");
        assert_eq!(of_file("a.$Proxy1", "Proxies.kt"), "a.$Proxy1");
        assert_eq!(of_file("user$eval1", "user.clj"), "user$eval1");
        assert_eq!(of_file("Script17", "Script17.groovy"), "Script17");
    }

    #[test]
    fn classes_of_the_jdk_lose_their_numbers() {
        assert_eq!(pretty("a.Foo$$Lambda$123"), "a.Foo$$Lambda");
        assert_eq!(pretty("a.Foo$$Lambda$7.1234567"), "a.Foo$$Lambda");
        assert_eq!(pretty("java.lang.invoke.LambdaForm$MH.1234567"), "java.lang.invoke.LambdaForm$MH");
        assert_eq!(pretty("java.lang.invoke.LambdaForm$DMH$17"), "java.lang.invoke.LambdaForm$DMH");
        assert_eq!(
            of_file("java.lang.invoke.LambdaForm$MH$3", "LambdaForm$MH"),
            "java.lang.invoke.LambdaForm$MH"
        );
        assert_eq!(
            pretty("jdk.internal.reflect.GeneratedMethodAccessor12"),
            "jdk.internal.reflect.GeneratedMethodAccessor"
        );
        assert_eq!(
            pretty("sun.reflect.GeneratedSerializationConstructorAccessor1"),
            "sun.reflect.GeneratedSerializationConstructorAccessor"
        );
        assert_eq!(pretty("jdk.proxy2.$Proxy14"), "jdk.proxy.$Proxy");
        assert_eq!(pretty("com.sun.proxy.jdk.proxy2.$Proxy14"), "com.sun.proxy.jdk.proxy.$Proxy");
        assert_eq!(pretty("com.sun.proxy.$Proxy3"), "com.sun.proxy.$Proxy");
        assert_eq!(pretty("a.b.$Proxy7"), "a.b.$Proxy");
        assert_eq!(pretty("$Proxy7"), "$Proxy");
        let hidden = without_run_number("a.Hidden$1", b"X.java", true);
        assert_eq!(hidden.as_deref(), Some("a.Hidden$1"));
        assert_eq!(without_run_number("a.F$$Lambda$9", b"", true).as_deref(), Some("a.F$$Lambda"));
    }

    #[test]
    fn classes_of_known_generators_lose_their_numbers() {
        assert_eq!(pretty("a.S$$EnhancerBySpringCGLIB$$1a2b3c4d"), "a.S$$EnhancerBySpringCGLIB");
        assert_eq!(of_file("a.S$$FastClassByCGLIB$$1a2b3c_2", "<generated>"), "a.S$$FastClassByCGLIB");
        assert_eq!(pretty("a.S$$EnhancerByGuice$$12"), "a.S$$EnhancerByGuice");
        assert_eq!(pretty("a.S$$SpringCGLIB$$0"), "a.S$$SpringCGLIB");
        assert_eq!(pretty("a.S$$SpringCGLIB$$FastClass$$1"), "a.S$$SpringCGLIB$$FastClass");
        assert_eq!(pretty("a.S$ByteBuddy$aB3xY9Zq"), "a.S$ByteBuddy");
        assert_eq!(pretty("a.S$ByteBuddy$aBXqYzZq"), "a.S$ByteBuddy");
        assert_eq!(pretty("a.S$HibernateProxy$Q0n1GSCc"), "a.S$HibernateProxy");
        assert_eq!(pretty("a.S$MockitoMock$scHDgJFv"), "a.S$MockitoMock");
        assert_eq!(pretty("a.S$MockitoMock$1234567890"), "a.S$MockitoMock");
        assert_eq!(of_file("a.S_$$_jvst1a2_3", "S_$$_jvst1a2_3.java"), "a.S_$$_jvst");
        assert_eq!(pretty("a.S_$$_javassist_12"), "a.S_$$_javassist");
        assert_eq!(of_file("user$eval1234", "NO_SOURCE_FILE"), "user$eval");
    }
}
