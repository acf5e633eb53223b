//! Code without frame pointers, end to end: stacks of known shape in C, C++ and shipped libraries.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::process::Command;

use testkit::folded::{Folded, is, reaches_root, user_leaf};
use testkit::profiler::{ALL, profile, profile_enough, record};
use testkit::target::Target;
use testkit::{is_root, lacks, native, scratch, skip, sources};

/// Whether these tests can run: unwind tables need x86-64, profiling needs root.
fn applies() -> bool {
    let applies = cfg!(target_arch = "x86_64");
    if !applies {
        skip("unwind tables are of x86-64 only");
    }
    applies && is_root()
}

fn frames(args: &[&str]) -> Target {
    Target::start(Command::new(native::without_frame_pointers("frames.c")).args(args))
}

/// Asserts that nearly all stacks reach the root.
#[track_caller]
fn assert_whole(what: &str, folded: &Folded) {
    assert!(folded.total() > 200, "{what}: only {} samples", folded.total());
    let whole = folded.share(reaches_root);
    eprintln!("{what}: {:.2} % of {} samples reach the root", whole * 100.0, folded.total());
    assert!(whole >= 0.98, "{what}: only {whole} of the stacks reach the root:\n{}", folded.top(10));
}

/// Whether a stack has these names in this order, possibly with others between them.
fn has_in_order(stack: &[String], names: &[&str]) -> bool {
    let mut rest = stack.iter();
    names.iter().all(|name| rest.any(|frame| is(frame, name)))
}

#[test]
fn a_chain_through_libc_is_whole_frame_by_frame() {
    if !applies() {
        return;
    }
    for (mode, root) in [("chain", "main"), ("thread", "in_thread")] {
        let target = frames(&[mode]);
        let all = profile_enough(&target, &[], |all| all);
        assert_whole(mode, &all);
        let work = all.within("work");
        assert!(work.total() * 10 > all.total() * 9, "{}", all.top(10));
        let right = work.share(|stack| {
            stack.iter().filter(|frame| is(frame, "chain")).count() == 40
                && has_in_order(stack, &[root, "chain", "by_value", "work"])
                && stack.iter().any(|frame| frame.starts_with("qsort") || frame.contains("libc.so"))
        });
        assert!(right > 0.995, "only {right} of the stacks have all frames:\n{}", work.top(5));
    }
}

/// A stack of 1,000 calls without frame pointers is whole. A stack of 1,500 calls lacks its root side and is marked.
#[test]
fn deep_stacks_are_whole_or_marked() {
    if !applies() {
        return;
    }
    let of_chain = |stack: &[String]| stack.iter().filter(|frame| is(frame, "chain")).count();
    let target = frames(&["chain", "1000"]);
    let all = profile_enough(&target, &[], |all| all.within("work"));
    assert_whole("1,000 calls", &all);
    let right = all.share(|stack| {
        of_chain(stack) == 1000 && has_in_order(stack, &["main", "chain", "by_value", "work"])
    });
    assert!(right > 0.995, "only {right} of the stacks have all frames:\n{}", all.top(1));
    let target = frames(&["chain", "1500"]);
    let all = profile_enough(&target, &[], |all| all.within("work"));
    let marked = all.share(|stack| {
        (1000..=1024).contains(&of_chain(stack)) && stack.iter().take(3).any(|frame| frame == "[truncated]")
    });
    assert!(marked > 0.995, "only {marked} of the stacks are marked:\n{}", all.top(1));
}

/// These children end before their mappings can be read, so the profiler uses their parent's mappings.
#[test]
fn children_that_live_shortly_have_whole_stacks() {
    if !applies() {
        return;
    }
    let target = frames(&["forks"]);
    let all = profile_enough(&target, &["--children"], |all| all.within("work"));
    assert_whole("forks", &all);
    let in_children =
        all.share(|stack| has_in_order(stack, &["main", "in_children", "chain", "by_value", "work"]));
    assert!(in_children > 0.98, "only {in_children} of the stacks have all frames:\n{}", all.top(5));
}

#[test]
fn a_leaf_has_its_caller_in_prologue_and_epilogue_too() {
    if !applies() {
        return;
    }
    let target = frames(&["leaves"]);
    let all = profile_enough(&target, &[], |all| all);
    assert_whole("leaves", &all);
    let tiny = all.keep(|stack| user_leaf(stack).is_some_and(|leaf| is(leaf, "tiny")));
    assert!(tiny.total() * 2 > all.total(), "{}", all.top(10));
    let called = tiny.share(|stack| {
        let leaf = stack.iter().rposition(|frame| is(frame, "tiny")).unwrap();
        is(&stack[leaf - 1], "caller") && is(&stack[leaf - 2], "main")
    });
    assert!(called > 0.998, "only {called} of the leaves have their caller:\n{}", tiny.top(10));
}

#[test]
fn slots_of_the_linkage_table_have_callers() {
    if !applies() {
        return;
    }
    let target = frames(&["slot"]);
    let all = profile_enough(&target, &[], |all| all);
    assert_whole("slot", &all);
    let slots = all.keep(|stack| user_leaf(stack).is_some_and(|leaf| is(leaf, "slot")));
    assert!(slots.total() * 2 > all.total(), "{}", all.top(10));
    // The caller is the same before and after the push.
    let called = slots.share(|stack| {
        let leaf = stack.iter().rposition(|frame| is(frame, "slot")).unwrap();
        is(&stack[leaf - 1], "main")
    });
    assert!(called > 0.998, "only {called} of the slots have their caller:\n{}", slots.top(10));
}

#[test]
fn signal_handlers_stand_on_what_they_interrupted() {
    if !applies() {
        return;
    }
    for args in [&["signal"][..], &["signal", "stack"]] {
        let target = frames(args);
        let all = profile_enough(&target, &[], |all| all);
        assert_whole(&args.join(" on a "), &all);
        let work = all.within("work");
        assert!(work.total() > 500, "{}", all.top(10));
        let right = work.share(|stack| has_in_order(stack, &["main", "spin", "on_alarm", "work"]));
        assert!(right > 0.995, "only {right} of the stacks cross the signal:\n{}", work.top(10));
    }
}

/// musl and Go's runtime do not describe the code to which signal handlers return.
#[test]
fn signal_handlers_stand_on_what_they_interrupted_where_libc_does_not_say_so() {
    if !applies() {
        return;
    }
    let program = native::without_frame_pointers_and("frames.c", "frames_static", &["-static"]);
    let target = Target::start(Command::new(program).args(["signal", "bare"]));
    let all = profile_enough(&target, &[], |all| all);
    let work = all.within("work");
    assert!(work.total() > 500, "{}", all.top(10));
    let right = work.share(|stack| has_in_order(stack, &["main", "spin", "on_alarm", "work"]));
    assert!(right > 0.995, "only {right} of the stacks cross the signal:\n{}", work.top(10));
}

/// Packers and `sstrip` remove the section headers.
#[test]
fn a_program_without_section_headers_has_whole_stacks_and_exported_names() {
    if !applies() {
        return;
    }
    let program = native::without_frame_pointers_and("frames.c", "frames_bare", &["-rdynamic"]);
    let mut bytes = std::fs::read(&program).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let bare = program.with_extension("bare");
    std::fs::copy(&program, &bare).unwrap();
    std::fs::write(&bare, bytes).unwrap();
    let all = profile_enough(&Target::start(Command::new(&bare).arg("chain")), &[], |all| all);
    let (name, frames) = ("frames_bare.bare!fun_", 40);
    let right = all.share(|stack| {
        let functions = stack.iter().filter(|frame| frame.starts_with(name)).count();
        functions > frames && has_in_order(stack, &["_start", "main"])
    });
    assert!(right > 0.99, "only {right} of the stacks are whole:\n{}", all.top(5));
}

/// A coroutine has no caller. The word in the place of a caller's frame is not a return address.
#[test]
fn coroutines_begin_where_libc_begins_them() {
    if !applies() {
        return;
    }
    let target = frames(&["coroutine"]);
    let profile = profile(&target, 2, &[]);
    let all = profile.folded;
    assert_whole("coroutine", &all);
    let work = all.within("work");
    assert!(work.total() * 10 > all.total() * 9, "{}", all.top(10));
    let right = work.share(|stack| {
        let begins = &stack[1];
        (begins == "__start_context" || begins.starts_with("libc.so.6!fun_"))
            && is(&stack[2], "in_coroutine")
            && stack.iter().filter(|frame| is(frame, "chain")).count() == 40
    });
    assert!(right > 0.995, "only {right} of the stacks begin with the coroutine:\n{}", work.top(5));
    assert_eq!(ends(&profile.report, "root"), ends(&profile.report, ""), "{}", profile.report["ends"]);
}

/// Ticks of stacks whose stop reason begins with this label.
fn ends(report: &serde_json::Value, label: &str) -> u64 {
    let ends = report["ends"].as_array().unwrap();
    let ends = ends.iter().filter(|end| end[0].as_str().unwrap().starts_with(label));
    ends.map(|end| end[1].as_u64().unwrap()).sum()
}

/// Frame descriptions for debuggers are used where there are no others. Start code always has others.
#[test]
fn frames_that_only_debug_information_describes_are_whole() {
    if !applies() {
        return;
    }
    let flags = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let program = native::without_frame_pointers_and("frames.c", "debug_frame", &flags);
    let target = Target::start(Command::new(program).arg("chain"));
    let all = profile(&target, 2, &[]).folded;
    assert_whole("debug_frame", &all);
    let work = all.within("work");
    assert!(work.total() * 10 > all.total() * 9, "{}", all.top(10));
    let right = work.share(|stack| {
        stack.iter().filter(|frame| is(frame, "chain")).count() == 40
            && has_in_order(stack, &["main", "chain", "by_value", "work"])
    });
    assert!(right > 0.995, "only {right} of the stacks have all frames:\n{}", work.top(5));
}

/// The profiler is not notified when a library is unloaded: until the next look the old table unwinds the new code.
#[test]
fn a_library_in_the_place_of_another_one_has_its_own_callers_or_none() {
    if !applies() {
        return;
    }
    let [one, other] = ["2", "256"].map(|words| {
        let define = format!("-DWORDS={words}");
        native::library(&scratch(&format!("swapped-{words}")), "swapped", &[define.as_ref()])
    });
    let program = native::without_frame_pointers_and("swap.c", "swap", &["-Wl,--no-as-needed", "-ldl"]);
    let target = Target::start(Command::new(program).args([one, other]));
    let profile = profile(&target, 4, &[]);
    let all = profile.folded.within("enter");
    assert!(all.total() > 500 && all.total() * 10 > profile.folded.total() * 9, "{}", profile.folded.top(10));
    let (whole, cut) = (all.within("main").total(), all.count(|stack| is(&stack[1], "enter")));
    let wrong = all.keep(|stack| !is(&stack[1], "enter") && !stack.iter().any(|frame| is(frame, "main")));
    assert_eq!(whole + cut, all.total(), "some have a caller that is none:\n{}", wrong.top(10));
    eprintln!("{whole} stacks are whole, {cut} end where it is not known which library was there");
    assert!(whole > 0 && cut > 0, "{}", all.top(10));
    let shown = ends(&profile.report, "no frame pointer and no unwind table");
    assert!(shown >= cut, "{}", profile.report["ends"]);
    assert_eq!(all.within("never").total(), 0, "{}", all.top(10));
}

/// Go's frame descriptions do not say that the stack changes here.
#[test]
fn where_go_calls_c_no_caller_is_invented() {
    if !applies() {
        return;
    }
    if lacks("go") {
        return;
    }
    let program = scratch("go").join("calls_c");
    let mut go = testkit::go();
    go.args(["build", "-ldflags=-compressdwarf=false", "-o"]).arg(&program);
    go.arg(sources().join("calls_c.go")).envs([("CGO_ENABLED", "1"), ("GO111MODULE", "off")]);
    assert!(go.status().unwrap().success());
    let sections = Command::new("readelf").arg("-SW").arg(&program).output().unwrap().stdout;
    let sections = String::from_utf8(sections).unwrap();
    let described = |line: &str| line.contains(" .debug_frame ") && !line.contains(" C ");
    assert!(sections.lines().any(described), "{sections}");
    let target = Target::start(&mut Command::new(&program));
    let all = profile(&target, 2, &[]).folded;
    let work = all.within("work");
    assert!(work.total() > 200 && work.total() * 10 > all.total() * 9, "{}", all.top(10));
    let right = work.share(|stack| is(&stack[1], "runtime.asmcgocall") || reaches_root(stack));
    assert!(right > 0.995, "only {right} of the stacks have no wrong frames:\n{}", work.top(5));
}

/// The callers of such code cannot be known; the report says which file lacks descriptions.
#[test]
fn files_without_frame_descriptions_are_reported() {
    if !applies() {
        return;
    }
    let flags = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-Wl,--strip-debug"];
    let program = native::without_frame_pointers_and("frames.c", "no_table", &flags);
    let target = Target::start(Command::new(&program).arg("chain"));
    let profile = profile(&target, 2, &[]);
    let rows = profile.report["ended_in"].as_array().unwrap();
    let [first, ..] = &rows[..] else { panic!("the report lists no file: {}", profile.folded.top(5)) };
    assert_eq!(first["file"], program.to_str().unwrap(), "{rows:?}");
    assert_eq!(first["why"], "no frame pointer and no unwind table", "{rows:?}");
    let shown = first["ticks"].as_u64().unwrap();
    assert!(profile.folded.total() > 200, "{}", profile.folded.top(5));
    assert!(shown * 10 > profile.folded.total() * 9, "{rows:?}:\n{}", profile.folded.top(5));
}

#[test]
fn exceptions_are_thrown_through_whole_stacks() {
    if !applies() {
        return;
    }
    let target = Target::start(&mut Command::new(native::without_frame_pointers("throw.cc")));
    let all = profile_enough(&target, &[], |all| all);
    assert_whole("throw", &all);
    let thrown = all
        .keep(|stack| stack.iter().any(|frame| frame.contains("libgcc_s") || frame.starts_with("_Unwind")));
    assert!(thrown.total() > 500, "{}", all.top(10));
    let right = thrown.share(|stack| has_in_order(stack, &["main"]));
    assert!(right > 0.98, "only {right} of the unwinder's own stacks have main:\n{}", thrown.top(10));
}

#[test]
fn an_interpreter_as_it_is_shipped() {
    if !applies() {
        return;
    }
    if lacks("python3") {
        return;
    }
    let program = "import json, zlib\nprint('ready', flush=True)\n\
        while True:\n    zlib.compress(json.dumps(sorted(range(20000), key=lambda n: -n)).encode())\n";
    let target = Target::start(Command::new("python3").args(["-c", program]));
    let all = profile_enough(&target, &[], |all| all);
    assert_whole("python3", &all);
}

#[test]
fn false_frame_descriptions_harm_their_owner_only() {
    if !applies() {
        return;
    }
    let honest = native::without_frame_pointers("frames.c");
    let liar = scratch("lies").join("liar");
    let junk = scratch("lies").join("junk");
    let mut random = 1_u32;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random.to_le_bytes()[3]
    })
    .take(1000)
    .collect();
    for (kind, bytes) in [("junk", bytes), ("empty", vec![0; 8])] {
        std::fs::write(&junk, bytes).unwrap();
        let update = format!(".eh_frame={}", junk.display());
        let made =
            Command::new("objcopy").args(["--update-section", &update]).arg(&honest).arg(&liar).status();
        if !made.is_ok_and(|status| status.success()) {
            skip("objcopy cannot change a section");
            return;
        }
        let (one, other) = (Target::start(Command::new(&liar).arg("chain")), frames(&["chain"]));
        let all = record(3, &ALL.map(str::to_owned));
        assert!(all.report["accounts"]["kept"].as_u64().unwrap() > 1_000, "{}", all.report["accounts"]);
        let of_liar = all.folded.of_thread(one.pid());
        assert!(of_liar.total() > 200, "{kind}: {}", all.folded.top(10));
        assert_whole(kind, &all.folded.of_thread(other.pid()));
        let named = of_liar.share(|stack| stack.iter().any(|frame| is(frame, "work")));
        assert!(named > 0.9, "{kind}: the leaf needs no table: {named}");
    }
}

/// The report has the stop reasons, and the tables stay within their budget.
#[test]
fn the_report_has_stop_reasons() {
    if !applies() {
        return;
    }
    let target = frames(&["chain"]);
    let report = profile(&target, 2, &[]).report;
    let (rooted, all) = (ends(&report, "root"), ends(&report, ""));
    assert!(all > 200 && rooted * 100 >= all * 98, "{}", report["ends"]);
    let maps = report["cost"]["maps_bytes"].as_u64().unwrap();
    assert!(maps < 64 << 20, "{maps} bytes of maps for one small program");
}
