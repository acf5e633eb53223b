//! Interpreter frames: methods by their `Method*`. The JVM's memory is read after the sample.
//!
//! A `Method*` does not move. HotSpot frees a method with its class, or when the class is redefined and no thread runs
//! the old method any more. Another method may get the same address: in a program that loads and unloads classes of one
//! shape, the very next method. So each question reads the method again, and then the JVM's own count of unloaded
//! classes. Names are read again only after a class unload or after a minute: the same links lead to the same names.
//!
//! The method that is there now gives the name of a sample if one of these facts proves that it was there at the sample:
//!
//! 1. The count of unloads has not changed since the sample.
//! 2. The method's class was there at the sample ([`Loaders`]).
//! 3. The method is the same as at an earlier look, and at most one class was unloaded since the method was known to be
//!    there. One unload is not enough for another method: a freed method reads as before until its memory is reused.
//!
//! Without a proof, the frame gets no name. There are two exceptions: in a JVM without that count, a method that reads
//! the same twice, or that is seen for the first time, is believed. In any JVM, a method in the place of a redefined
//! method is believed.

use super::bounded_memory::BoundedMemory;
use super::layout::{ClassUnloadLayout, VmLayout};
use super::loaders::Loaders;
use super::method_looks::{KnownMethod, MethodLooks, UnloadEvidence};
use super::methods::{MethodInfo, MethodReader};
use super::miss::VmMiss;
use super::unloads::UnloadHistory;
use crate::jvm::code::{FrameKind, JavaFrame};
use crate::jvm::memory::Memory;
use crate::sample::MonoNs;

/// A question about an interpreter frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodQuery {
    /// Address of the method in the JVM: its `Method*`.
    pub method: u64,
    /// The address of the bytecode that was running or calling; 0 if it is not known.
    pub bcp: u64,
    /// When the method was sampled for the first time since the last question about it.
    pub at: MonoNs,
}

/// A question about a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassQuery {
    /// Address of the class in the JVM: its `Klass*`.
    pub class: u64,
    /// When the class was sampled for the first time since the last question about it.
    pub at: MonoNs,
}

/// The methods that one JVM's interpreter runs.
#[derive(Debug, Default)]
pub(super) struct InterpretedMethods {
    looks: MethodLooks,
    unloads: Option<UnloadHistory>,
    loaders: Loaders,
}

impl InterpretedMethods {
    /// For a JVM whose classes are these.
    pub(super) fn new(classes: &ClassUnloadLayout) -> InterpretedMethods {
        let unloads = classes.unloads.map(UnloadHistory::new);
        let unloaded = unloads.as_ref().map_or(0, UnloadHistory::count);
        let loaders = Loaders::new(classes.links, &classes.permanent, unloaded);
        InterpretedMethods { unloads, loaders, ..InterpretedMethods::default() }
    }

    /// Checks whether classes came or went: frequent checks make more proofs possible.
    pub(super) fn check<M: Memory>(&mut self, memory: &M) {
        if let Some(unloads) = &mut self.unloads {
            self.loaders.renew(memory, unloads);
        }
        self.looks.evict_unused(MonoNs::now());
    }

    /// The frames for questions, in their order.
    pub(super) fn frames<M: Memory>(
        &mut self,
        memory: &BoundedMemory<M>,
        layout: &VmLayout,
        raw: bool,
        asked: &[MethodQuery],
    ) -> Vec<Result<JavaFrame, VmMiss>> {
        let counted =
            |interpreted: &InterpretedMethods| interpreted.unloads.as_ref().map(UnloadHistory::count);
        let before = counted(self);
        let mut found = self.find(memory, layout, raw, before, asked);
        if counted(self) != before {
            // A remembered name may be that of a class that was unloaded meanwhile.
            found = self.find(memory, layout, raw, None, asked);
        }
        if let Some(unloads) = &mut self.unloads {
            self.loaders.watch_new(memory, unloads, |loader| layout.is_permanent(memory, loader));
        }
        let gone = memory.word(layout.heaps.address).is_err() && !memory.is_spent();
        let spent = memory.is_spent();
        let frames = asked.iter().zip(found).map(|(asked, found)| match found {
            // The JVM has exited. The state of the last look is the best that can be known of its last samples.
            None if gone => match self.looks.last(asked.method) {
                Some(KnownMethod { since: Some(since), .. }) if asked.at < since => Err(VmMiss::MethodGone),
                Some(KnownMethod { method: Some(last), .. }) => frame(last, asked.bcp),
                _ => Err(VmMiss::ProcessGone),
            },
            // The count of unloaded classes may not have been read after the method: nothing proves a name.
            _ if spent => Err(VmMiss::BadMemory),
            found => match self.since(*asked, found.as_ref()) {
                Some(since) if asked.at < since => Err(VmMiss::MethodGone),
                _ => found.map_or(Err(VmMiss::BadMemory), |found| frame(&found, asked.bcp)),
            },
        });
        frames.collect()
    }

    /// Reads the methods, then checks whether classes came or went. While the number of unloaded classes is still
    /// `unloaded`, the same links lead to the same names.
    fn find<M: Memory>(
        &mut self,
        memory: &BoundedMemory<M>,
        layout: &VmLayout,
        raw: bool,
        unloaded: Option<u64>,
        asked: &[MethodQuery],
    ) -> Vec<Option<MethodInfo>> {
        let mut methods = MethodReader::new(raw);
        let now = MonoNs::now();
        let found = |&MethodQuery { method, .. }: &MethodQuery| {
            let is_there = |found: &MethodInfo| found.is_at(memory, &layout.method, method);
            let known = unloaded.and_then(|unloaded| self.looks.known(method, unloaded, now));
            known.filter(is_there).or_else(|| methods.at(memory, layout, method).filter(is_there))
        };
        let found: Vec<Option<MethodInfo>> = asked.iter().map(found).collect();
        self.loaders.begin_look();
        for (found, asked) in found.iter().zip(asked) {
            if let Some(found) = found {
                self.loaders.note_class(memory, found.class, asked.at);
            }
        }
        self.check(memory);
        found
    }

    /// Since when each of these classes is known to be what it was just now. Call it after their names were read.
    pub(super) fn since_of_classes<M: Memory>(
        &mut self,
        memory: &BoundedMemory<M>,
        layout: &VmLayout,
        asked: &[ClassQuery],
    ) -> Vec<MonoNs> {
        self.loaders.begin_look();
        asked.iter().for_each(|query| self.loaders.note_class(memory, query.class, query.at));
        self.check(memory);
        // Without a count of unloaded classes a class is believed.
        let Some(unloads) = &mut self.unloads else { return vec![MonoNs::default(); asked.len()] };
        self.loaders.watch_new(memory, unloads, |loader| layout.is_permanent(memory, loader));
        let since = |query: &ClassQuery| {
            let class = self.loaders.since(query.class);
            class.map_or(unloads.since(), |class| class.min(unloads.since()))
        };
        asked.iter().map(since).collect()
    }

    /// Since when a sampled method is known to be what it is now.
    fn since(
        &mut self,
        MethodQuery { method, at, .. }: MethodQuery,
        now: Option<&MethodInfo>,
    ) -> Option<MonoNs> {
        let Some(unloads) = &self.unloads else {
            return self.looks.compare(method, now, UnloadEvidence::default());
        };
        // The time that is known without an earlier look.
        let class = now.and_then(|found| self.loaders.since(found.class));
        let since = class.map_or(unloads.since(), |class| class.min(unloads.since()));
        let evidence = UnloadEvidence {
            since: Some(since),
            gone: unloads.count(),
            gone_at_sample: unloads.at_least(at),
        };
        self.looks.compare(method, now, evidence)
    }
}

/// The frame of a method that is still where it was sampled.
fn frame(found: &MethodInfo, bcp: u64) -> Result<JavaFrame, VmMiss> {
    let is_native = found.bytecodes.is_empty();
    let bci = bcp.checked_sub(found.bytecodes.start).filter(|_| found.bytecodes.contains(&bcp));
    if bci.is_none() && bcp != 0 && !is_native {
        // Method and bytecode address do not belong together: neither is believed.
        return Err(VmMiss::BadMemory);
    }
    let bci = bci.and_then(|bci| u32::try_from(bci).ok());
    let mut frame = JavaFrame::of(FrameKind::Interpreted, Some(&found.method), bci);
    if bci.is_none() {
        frame.line = 0;
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::super::VmCode;
    use super::super::loaders::ClassLinks;
    use super::super::made::{BASE, FakeMemory, METHOD, layout};
    use super::super::unloads::UnloadCounter;
    use super::*;

    /// Where a method of these tests has its bytecodes: four.
    const BYTECODES: u64 = 0x100 + 64;

    fn code(bytes: &FakeMemory) -> VmCode<&FakeMemory> {
        let mut code = VmCode::new(bytes, layout(), false);
        code.check(MonoNs::now());
        code
    }

    /// Where these tests count unloaded classes.
    const UNLOADED: u64 = 0x3000;

    /// The same JVM with a count of unloaded classes; the loader of method 0 has three classes.
    fn counting(bytes: &FakeMemory, unloaded: u64) -> VmCode<&FakeMemory> {
        let mut code = VmCode::new(bytes, counted(bytes, unloaded), false);
        code.check(MonoNs::now());
        code
    }

    fn counted(bytes: &FakeMemory, unloaded: u64) -> VmLayout {
        let (class, second, third, loader) = (METHOD + 0x400, METHOD + 0x440, METHOD + 0x480, METHOD + 0x4c0);
        [class, second, third].iter().for_each(|class| bytes.word(class + 16, BASE + loader));
        bytes.word(loader, BASE + third);
        bytes.word(third + 24, BASE + second);
        bytes.word(second + 24, BASE + class);
        bytes.word(UNLOADED, unloaded);
        let mut layout = layout();
        layout.classes = ClassUnloadLayout {
            unloads: Some(UnloadCounter::read(&bytes, BASE + UNLOADED).unwrap()),
            links: Some(ClassLinks { loader: 16, first: 0, next: 24, kind: 32 }),
            ..ClassUnloadLayout::default()
        };
        layout
    }

    /// Name, line and bytecode index of a frame that was sampled just now.
    fn ask(code: &mut VmCode<&FakeMemory>, method: u64, bcp: u64) -> Result<String, VmMiss> {
        seen(code, method, bcp, MonoNs::now())
    }

    fn seen(code: &mut VmCode<&FakeMemory>, method: u64, bcp: u64, at: MonoNs) -> Result<String, VmMiss> {
        let frame = code.interpreted(&[MethodQuery { method, bcp, at }]).remove(0)?;
        assert_eq!(frame.kind, FrameKind::Interpreted);
        Ok(format!("{}:{}@{}", frame.name, frame.line, frame.bci.map_or(-1, i64::from)))
    }

    #[test]
    fn a_method_has_its_name_and_its_bytecode_its_line() {
        let bytes = FakeMemory::made();
        let method = bytes.java(0, "m");
        let mut code = code(&bytes);
        for (bcp, shown) in [(0, "p.C.m:10@0"), (3, "p.C.m:10@3")] {
            assert_eq!(ask(&mut code, method, method + BYTECODES + bcp).as_deref(), Ok(shown));
        }
        assert_eq!(ask(&mut code, method, 0).as_deref(), Ok("p.C.m:0@-1"), "where in it is not known");
        for outside in [method + BYTECODES - 1, method + BYTECODES + 4, u64::MAX, 1] {
            assert_eq!(ask(&mut code, method, outside), Err(VmMiss::BadMemory), "{outside:x}");
        }
        // A native method has no bytecodes.
        let native = bytes.java(1, "n");
        bytes.put(METHOD + 0x1000 + 0x100 + 14, &[0, 0]);
        for bcp in [0, 7, native + BYTECODES] {
            assert_eq!(ask(&mut code, native, bcp).as_deref(), Ok("p.C.n:0@-1"), "{bcp:x}");
        }
    }

    #[test]
    fn a_method_that_goes_is_not_believed_for_the_samples_before() {
        let bytes = FakeMemory::made();
        let method = bytes.java(0, "old");
        let mut code = code(&bytes);
        let before = MonoNs::now();
        assert_eq!(seen(&mut code, method, 0, before).as_deref(), Ok("p.C.old:0@-1"));
        bytes.java(0, "new");
        assert_eq!(seen(&mut code, method, 0, before), Err(VmMiss::MethodGone));
        assert_eq!(ask(&mut code, method, 0).as_deref(), Ok("p.C.new:0@-1"));
        // The method is freed, and later its memory is reused.
        bytes.word(METHOD + 8, 0);
        let gone = MonoNs::now();
        assert_eq!(seen(&mut code, method, 0, gone), Err(VmMiss::MethodGone));
        bytes.java(0, "third");
        assert_eq!(seen(&mut code, method, 0, gone), Err(VmMiss::MethodGone));
        assert_eq!(ask(&mut code, method, 0).as_deref(), Ok("p.C.third:0@-1"));
    }

    #[test]
    fn names_are_read_again_when_a_class_has_gone_and_now_and_then() {
        let bytes = FakeMemory::made();
        let method = bytes.java(0, "old");
        let layout = counted(&bytes, 0);
        let memory = BoundedMemory::new(&bytes);
        memory.renew(1 << 20);
        let mut interpreted = InterpretedMethods::new(&layout.classes);
        let asked = [MethodQuery { method, bcp: 0, at: MonoNs(u64::MAX) }];
        let shown = |interpreted: &mut InterpretedMethods| {
            interpreted.frames(&memory, &layout, false, &asked).remove(0).unwrap().name.to_string()
        };
        assert_eq!(shown(&mut interpreted), "p.C.old");
        bytes.java(0, "new");
        assert_eq!(shown(&mut interpreted), "p.C.old", "all that leads to its name is as it was");
        bytes.word(UNLOADED, 1);
        assert_eq!(shown(&mut interpreted), "p.C.new", "a class has gone");
        bytes.java(0, "third");
        assert_eq!(shown(&mut interpreted), "p.C.new");
        interpreted.looks.age();
        assert_eq!(shown(&mut interpreted), "p.C.third", "it was read long ago");
        bytes.java(0, "fourth");
        bytes.put(METHOD + 0x100 + 14, &[3, 0]);
        assert_eq!(shown(&mut interpreted), "p.C.fourth", "its bytecodes are others");
    }

    #[test]
    fn beyond_the_read_limit_no_name_is_believed() {
        let bytes = FakeMemory::made();
        let (method, other) = (bytes.java(0, "m"), bytes.java(1, "n"));
        let layout = counted(&bytes, 0);
        let memory = BoundedMemory::new(&bytes);
        let mut interpreted = InterpretedMethods::new(&layout.classes);
        let asked = [method, other].map(|method| MethodQuery { method, bcp: 0, at: MonoNs(u64::MAX) });
        let mut spent = 0;
        // Regardless of what was read before the limit, also if this was the method with its names.
        for limit in (0..1 << 16).step_by(64) {
            memory.renew(limit);
            let answers = interpreted.frames(&memory, &layout, false, &asked);
            let refused = answers.iter().all(|answer| answer.as_ref().err() == Some(&VmMiss::BadMemory));
            assert_eq!(refused, memory.is_spent(), "{limit}: {answers:?}");
            spent += u32::from(refused);
        }
        assert!((100..1000).contains(&spent), "{spent}");
    }

    #[test]
    fn what_classes_that_were_unloaded_may_have_given_its_place_to_is_not_believed() {
        let bytes = FakeMemory::made();
        let (old, first) = (bytes.java(0, "old"), bytes.java(1, "first"));
        let mut code = counting(&bytes, 0);
        assert!(ask(&mut code, old, 0).is_ok());
        let before = MonoNs::now();
        // As many classes were unloaded as the loader of `old` has.
        bytes.word(UNLOADED, 3);
        assert_eq!(seen(&mut code, first, 0, before), Err(VmMiss::MethodGone), "seen for the first time");
        assert_eq!(
            seen(&mut code, old, 0, before),
            Err(VmMiss::MethodGone),
            "its loader may have gone and come"
        );
        assert!(ask(&mut code, first, 0).is_ok() && ask(&mut code, old, 0).is_ok());
        // Fewer were unloaded than the loader has.
        let before = MonoNs::now();
        bytes.word(UNLOADED, 5);
        assert!(seen(&mut code, old, 0, before).is_ok());
        // The loader has as many only if arrays count.
        bytes.half(METHOD + 0x480 + 32, u32::MAX);
        bytes.word(UNLOADED, 8);
        assert_eq!(seen(&mut code, old, 0, before), Err(VmMiss::MethodGone));
        let before = MonoNs::now();
        bytes.word(UNLOADED, 10);
        assert_eq!(seen(&mut code, old, 0, before), Err(VmMiss::MethodGone));
    }

    /// A method whose loader has no other class, and which was unloaded before it was seen for the first time. The
    /// method reads as before until its memory is reused.
    fn first_seen_after_unload(bytes: &FakeMemory) -> (VmCode<&FakeMemory>, u64) {
        let method = bytes.java(0, "old");
        let mut code = counting(bytes, 0);
        bytes.word(METHOD + 0x4c0, BASE + METHOD + 0x400);
        bytes.word(METHOD + 0x400 + 24, 0);
        let before = MonoNs::now();
        assert_eq!(seen(&mut code, method, 0, before).as_deref(), Ok("p.C.old:0@-1"));
        bytes.word(UNLOADED, 1);
        assert_eq!(seen(&mut code, method, 0, before).as_deref(), Ok("p.C.old:0@-1"), "it was there then");
        (code, method)
    }

    #[test]
    fn reused_memory_does_not_keep_the_old_name() {
        let bytes = FakeMemory::made();
        let (mut code, method) = first_seen_after_unload(&bytes);
        bytes.java(0, "new");
        assert_eq!(ask(&mut code, method, 0), Err(VmMiss::MethodGone), "it is not what was there");
        assert_eq!(ask(&mut code, method, 0).as_deref(), Ok("p.C.new:0@-1"));
    }

    #[test]
    fn replaced_methods_get_no_name_of_another_class() {
        let bytes = FakeMemory::made();
        let (mut code, method) = first_seen_after_unload(&bytes);
        // Another method comes, is sampled, and goes; then one comes that has the name of the first.
        let between = MonoNs::now();
        bytes.word(UNLOADED, 2);
        assert_eq!(seen(&mut code, method, 0, between), Err(VmMiss::MethodGone));
        assert_eq!(ask(&mut code, method, 0).as_deref(), Ok("p.C.old:0@-1"), "it is there by now");
    }

    #[test]
    fn an_unloaded_method_is_method_gone() {
        let bytes = FakeMemory::made();
        let method = bytes.java(0, "m");
        let mut code = counting(&bytes, 0);
        let before = MonoNs::now();
        bytes.word(METHOD + 8, 0);
        assert_eq!(seen(&mut code, method, 0, before), Err(VmMiss::BadMemory), "no class has gone");
        bytes.word(UNLOADED, 1);
        assert_eq!(seen(&mut code, method, 0, before), Err(VmMiss::MethodGone));
        assert_eq!(ask(&mut code, method, 0), Err(VmMiss::BadMemory), "that was before");
    }

    #[test]
    fn the_last_ticks_of_a_process_have_the_names_that_were_known() {
        let bytes = FakeMemory::made();
        let (known, other) = (bytes.java(0, "known"), bytes.java(1, "other"));
        let mut code = code(&bytes);
        assert!(ask(&mut code, known, 0).is_ok());
        bytes.0.borrow_mut().clear();
        assert_eq!(ask(&mut code, known, known + BYTECODES).as_deref(), Ok("p.C.known:10@0"));
        assert_eq!(ask(&mut code, other, 0), Err(VmMiss::ProcessGone));
    }

    #[test]
    fn lies_cost_frames_and_nothing_else() {
        let lie = |plant: fn(&FakeMemory)| {
            let bytes = FakeMemory::made();
            let method = bytes.java(0, "m");
            plant(&bytes);
            ask(&mut code(&bytes), method, 0)
        };
        assert!(lie(|_| ()).is_ok());
        type Lie = fn(&FakeMemory);
        let lies: [(&str, Lie); 8] = [
            ("a method nowhere", |b| b.word(METHOD + 8, u64::MAX - 3)),
            ("a method of itself", |b| b.word(METHOD + 8, BASE + METHOD)),
            ("a pool nowhere", |b| b.word(METHOD + 0x100, 0)),
            ("a class nowhere", |b| b.word(METHOD + 0x200, 7)),
            ("a name beyond the pool", |b| b.put(METHOD + 0x100 + 16, &[0xff, 0xff])),
            ("no name", |b| b.put(METHOD + 0x100 + 16, &[0, 0])),
            ("bytecodes beyond its end", |b| b.put(METHOD + 0x100 + 14, &[0xff, 0xff])),
            ("endless lines", |b| b.half(METHOD + 0x100 + 8, u32::MAX)),
        ];
        for (what, plant) in lies {
            assert_eq!(lie(plant), Err(VmMiss::BadMemory), "{what}");
        }
        let bytes = FakeMemory::made();
        bytes.word(METHOD + 0x400, u64::MAX);
        let mut code = code(&bytes);
        for method in [0, 8, BASE - 1, BASE + METHOD, u64::MAX] {
            assert_eq!(ask(&mut code, method, method), Err(VmMiss::BadMemory), "{method:x}");
        }
    }

    #[test]
    fn only_so_much_is_read_and_remembered_of_one_jvm() {
        let bytes = FakeMemory::made();
        let method = bytes.java(0, "m");
        let mut code = code(&bytes);
        // Lines to the end of memory: each question reads them again.
        bytes.half(METHOD + 0x100 + 8, (1 << 20) / 16);
        let enough = (0..2_000).find(|_| ask(&mut code, method, 0) == Err(VmMiss::BadMemory));
        assert!(enough.is_some(), "it is read without end");
        code.check(MonoNs::now());
        assert!(ask(&mut code, method, 0).is_ok(), "the next window has its own");
    }
}
