//! Names of the classes of locks, by the addresses of the classes (`Klass*`). The JVM's memory is read after the sample.
//!
//! A class does not move. Its memory is reused after it was unloaded. So a name counts only if the class is known to have
//! been there at the sample, as for methods of the interpreter ([`InterpretedMethods`]). And the address must be that of a class:
//! a class of objects has a constant pool that refers back to the class.

use std::collections::HashMap;

use super::bounded_memory::BoundedMemory;
use super::interpreted::{ClassQuery, InterpretedMethods};
use super::layout::VmLayout;
use super::methods::{ClassTexts, Pool, class_name};
use crate::jvm::memory::{InvalidMemory, Memory};
use crate::jvm::names;

/// Most classes whose names are remembered, for the last samples of a JVM: then all are forgotten.
const MAX_KNOWN: usize = 4096;
/// Most dimensions of an array (JVM specification, 4.9.1).
const MAX_DIMENSIONS: usize = 255;

/// The classes of one JVM's locks.
#[derive(Debug, Default)]
pub(super) struct LockClasses {
    /// Names at the last look.
    known: HashMap<u64, String>,
}

impl LockClasses {
    /// The names of classes, in the order of the questions; `None`: it is not certain that this class was there.
    pub(super) fn names<M: Memory>(
        &mut self,
        memory: &BoundedMemory<M>,
        layout: &VmLayout,
        raw: bool,
        interpreted: &mut InterpretedMethods,
        asked: &[ClassQuery],
    ) -> Vec<Option<String>> {
        let read = |query: &ClassQuery| name(memory, layout, raw, query.class).ok();
        let found: Vec<Option<String>> = asked.iter().map(read).collect();
        let since = interpreted.since_of_classes(memory, layout, asked);
        let gone = memory.word(layout.heaps.address).is_err() && !memory.is_spent();
        let names = asked.iter().zip(found).zip(since).map(|((query, found), since)| match found {
            // The JVM has exited. The last look is the best that can be known of its last samples.
            None if gone => self.known.get(&query.class).cloned(),
            found => {
                let name = found.filter(|_| since <= query.at);
                self.remember(query.class, name.as_ref());
                name
            }
        });
        names.collect()
    }

    fn remember(&mut self, class: u64, name: Option<&String>) {
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        match name {
            Some(name) => drop(self.known.insert(class, name.clone())),
            None => drop(self.known.remove(&class)),
        }
    }
}

fn name<M: Memory>(memory: &M, layout: &VmLayout, raw: bool, class: u64) -> Result<String, InvalidMemory> {
    let methods = &layout.method;
    let bytes = class_name(memory, methods, class)?;
    if bytes.first() == Some(&b'[') {
        let kind = layout.classes.links.ok_or(InvalidMemory)?.kind;
        let mut layout_helper = [0; 4];
        memory.read_all(class.checked_add(kind).ok_or(InvalidMemory)?, &mut layout_helper)?;
        return array(&bytes, raw).filter(|_| i32::from_ne_bytes(layout_helper) < 0).ok_or(InvalidMemory);
    }
    if Pool::of_class(memory, methods, class)?.holder() != class {
        return Err(InvalidMemory);
    }
    let ClassTexts { name, file } = ClassTexts::read(memory, methods, class)?;
    Some(names::class(&name, &file, raw)).filter(|name| !name.is_empty()).ok_or(InvalidMemory)
}

/// The name of a class of arrays: `[[I` is `int[][]`; `None` if the text is not such a name.
fn array(name: &[u8], raw: bool) -> Option<String> {
    let dimensions = name.iter().take_while(|&&byte| byte == b'[').count();
    let element = match name.get(dimensions..)? {
        b"Z" => "boolean".to_owned(),
        b"B" => "byte".to_owned(),
        b"C" => "char".to_owned(),
        b"S" => "short".to_owned(),
        b"I" => "int".to_owned(),
        b"J" => "long".to_owned(),
        b"F" => "float".to_owned(),
        b"D" => "double".to_owned(),
        [b'L', .., b';'] => names::class(&name[dimensions..], b"", raw),
        _ => return None,
    };
    (1..=MAX_DIMENSIONS).contains(&dimensions).then(|| element + &"[]".repeat(dimensions))
}

#[cfg(test)]
mod tests {
    use super::super::VmCode;
    use super::super::layout::ClassUnloadLayout;
    use super::super::loaders::ClassLinks;
    use super::super::made::{BASE, FakeMemory, METHOD, layout};
    use super::super::unloads::UnloadCounter;
    use super::*;
    use crate::sample::MonoNs;

    /// The class of method 0, and where these tests count unloaded classes.
    const CLASS: u64 = METHOD + 0x400;
    const UNLOADED: u64 = 0x3000;

    fn jvm() -> (FakeMemory, VmLayout) {
        let bytes = FakeMemory::made();
        bytes.java(0, "m");
        let unloads = Some(UnloadCounter::read(&&bytes, BASE + UNLOADED).unwrap());
        let links = Some(ClassLinks { loader: 16, first: 0, next: 24, kind: 32 });
        let layout = VmLayout {
            classes: ClassUnloadLayout { unloads, links, ..ClassUnloadLayout::default() },
            ..layout()
        };
        (bytes, layout)
    }

    fn ask(code: &mut VmCode<&FakeMemory>, class: u64, at: MonoNs) -> Option<String> {
        code.class_names(&[ClassQuery { class, at }]).remove(0)
    }

    fn code<'a>(bytes: &'a FakeMemory, layout: &VmLayout) -> VmCode<&'a FakeMemory> {
        let mut code = VmCode::new(bytes, layout.clone(), false);
        code.check(MonoNs::now());
        code
    }

    #[test]
    fn a_class_has_its_name_while_it_is_known_to_be_there() {
        let (bytes, layout) = jvm();
        let mut code = code(&bytes, &layout);
        let before = MonoNs::now();
        assert_eq!(ask(&mut code, BASE + CLASS, before).as_deref(), Some("p.C"));
        bytes.word(UNLOADED, 1);
        assert_eq!(ask(&mut code, BASE + CLASS, before), None, "another class may have had the place");
        assert_eq!(ask(&mut code, BASE + CLASS, MonoNs::now()).as_deref(), Some("p.C"));
        bytes.0.borrow_mut().clear();
        assert_eq!(ask(&mut code, BASE + CLASS, MonoNs::now()).as_deref(), Some("p.C"), "the last samples");
        assert_eq!(ask(&mut code, BASE + METHOD, MonoNs::now()), None);
    }

    #[test]
    fn only_classes_have_names() {
        let now = MonoNs::now();
        let (bytes, layout) = jvm();
        for class in [0, 7, BASE, BASE + METHOD, BASE + CLASS + 8, u64::MAX] {
            assert_eq!(ask(&mut code(&bytes, &layout), class, now), None, "{class:x}");
        }
        // The pool is another class's.
        bytes.word(METHOD + 0x200, BASE + METHOD);
        assert_eq!(ask(&mut code(&bytes, &layout), BASE + CLASS, now), None);
    }

    #[test]
    fn arrays_are_written_as_in_java() {
        assert_eq!(array(b"[[I", false).as_deref(), Some("int[][]"));
        assert_eq!(array(b"[Ljava/lang/Object;", false).as_deref(), Some("java.lang.Object[]"));
        let deep = [&[b'['; 256][..], b"B"].concat();
        for wrong in [&b"["[..], b"[V", b"[L", b"[Lx", b"I", b"[II", &deep] {
            assert_eq!(array(wrong, false), None, "{wrong:?}");
        }
    }

    #[test]
    fn an_array_is_one_by_its_layout_too() {
        let (bytes, layout) = jvm();
        bytes.put(METHOD + 0x700, &[2, 0, b'[', b'B']);
        assert_eq!(ask(&mut code(&bytes, &layout), BASE + CLASS, MonoNs::now()), None);
        bytes.half(CLASS + 32, 0xc000_0000);
        let name = ask(&mut code(&bytes, &layout), BASE + CLASS, MonoNs::now());
        assert_eq!(name.as_deref(), Some("byte[]"));
    }
}
