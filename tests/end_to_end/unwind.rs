//! Code without frame pointers, end to end: stacks of known shape in C, C++ and shipped libraries.

use std::path::Path;
use std::process::Command;

use testkit::claims::{StackClaim, Tally, at_least, prove, prove_tallies, seen};
use testkit::folded::{has, is, reaches_root, user_leaf};
use testkit::profiler::{profile, record, short_slice, slice};
use testkit::target::Target;
use testkit::wald::Claim;
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

/// Nearly all stacks reach the root.
fn whole(what: &str) -> StackClaim<'static> {
    at_least(0.98, format!("{what}: stacks that reach the root"), reaches_root)
}

/// Nearly all samples are in the function that works.
fn in_work() -> StackClaim<'static> {
    at_least(0.9, "samples in work", has("work"))
}

/// Whether a stack has these names in this order, possibly with others between them.
fn has_in_order(stack: &[String], names: &[&str]) -> bool {
    let mut rest = stack.iter();
    names.iter().all(|name| rest.any(|frame| is(frame, name)))
}

/// The number of calls of `chain` in a stack.
fn of_chain(stack: &[String]) -> usize {
    stack.iter().filter(|frame| is(frame, "chain")).count()
}

/// Whether the innermost frame of this name has these callers, the nearest first.
fn is_called_by(stack: &[String], name: &str, callers: &[&str]) -> bool {
    stack.iter().rposition(|frame| is(frame, name)).is_some_and(|leaf| {
        let above = stack[..leaf].iter().rev();
        callers.len() <= leaf && above.zip(callers).all(|(frame, caller)| is(frame, caller))
    })
}

#[test]
fn a_chain_through_libc_is_whole_frame_by_frame() {
    if !applies() {
        return;
    }
    for (mode, root) in [("chain", "main"), ("thread", "in_thread")] {
        let target = frames(&[mode]);
        let right = move |stack: &[String]| {
            of_chain(stack) == 40
                && has_in_order(stack, &[root, "chain", "by_value", "work"])
                && stack.iter().any(|frame| frame.starts_with("qsort") || frame.contains("libc.so"))
        };
        let right = at_least(0.995, format!("{mode}: stacks with all frames"), right).among(has("work"));
        prove(|| short_slice(&target, &[]).folded, &[whole(mode), in_work(), right]);
    }
}

/// A stack of 1,000 calls without frame pointers is whole. A stack of 1,500 calls lacks its root side and is marked.
#[test]
fn deep_stacks_are_whole_or_marked() {
    if !applies() {
        return;
    }
    let target = frames(&["chain", "1000"]);
    let right = |stack: &[String]| {
        of_chain(stack) == 1000 && has_in_order(stack, &["main", "chain", "by_value", "work"])
    };
    let right = at_least(0.995, "stacks with all frames", right).among(has("work"));
    prove(|| short_slice(&target, &[]).folded, &[whole("1,000 calls").among(has("work")), right]);
    drop(target);
    let target = frames(&["chain", "1500"]);
    let marked = |stack: &[String]| {
        (1000..=1024).contains(&of_chain(stack)) && stack.iter().take(3).any(|frame| frame == "[truncated]")
    };
    prove(
        || short_slice(&target, &[]).folded,
        &[at_least(0.995, "marked stacks", marked).among(has("work"))],
    );
}

/// These children end before their mappings can be read, so the profiler uses their parent's mappings.
#[test]
fn children_that_live_shortly_have_whole_stacks() {
    if !applies() {
        return;
    }
    let target = frames(&["forks"]);
    let right = |stack: &[String]| has_in_order(stack, &["main", "in_children", "chain", "by_value", "work"]);
    let right = at_least(0.98, "stacks with all frames", right).among(has("work"));
    prove(|| slice(&target, &["--children"]), &[whole("forks").among(has("work")), right]);
}

#[test]
fn a_leaf_has_its_caller_in_prologue_and_epilogue_too() {
    if !applies() {
        return;
    }
    let target = frames(&["leaves"]);
    let is_tiny = |stack: &[String]| user_leaf(stack).is_some_and(|leaf| is(leaf, "tiny"));
    let called = |stack: &[String]| is_called_by(stack, "tiny", &["caller", "main"]);
    let claims = [
        whole("leaves"),
        at_least(0.5, "samples in the leaf", is_tiny),
        at_least(0.998, "leaves that have their caller", called).among(is_tiny),
    ];
    prove(|| slice(&target, &[]), &claims);
}

#[test]
fn slots_of_the_linkage_table_have_callers() {
    if !applies() {
        return;
    }
    let target = frames(&["slot"]);
    let is_slot = |stack: &[String]| user_leaf(stack).is_some_and(|leaf| is(leaf, "slot"));
    // The caller is the same before and after the push.
    let called = |stack: &[String]| is_called_by(stack, "slot", &["main"]);
    let claims = [
        whole("slot"),
        at_least(0.5, "samples in the slot", is_slot),
        at_least(0.998, "slots that have their caller", called).among(is_slot),
    ];
    prove(|| slice(&target, &[]), &claims);
}

/// Nearly all stacks of the handler's work cross the signal.
fn cross_the_signal(what: &str) -> StackClaim<'static> {
    let right = |stack: &[String]| has_in_order(stack, &["main", "spin", "on_alarm", "work"]);
    at_least(0.995, format!("{what}: stacks that cross the signal"), right).among(has("work"))
}

#[test]
fn signal_handlers_stand_on_what_they_interrupted() {
    if !applies() {
        return;
    }
    for args in [&["signal"][..], &["signal", "stack"]] {
        let target = frames(args);
        let what = args.join(" on a ");
        prove(|| short_slice(&target, &[]).folded, &[whole(&what), cross_the_signal(&what)]);
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
    prove(|| short_slice(&target, &[]).folded, &[cross_the_signal("bare")]);
}

/// Packers and `sstrip` remove the section headers.
#[test]
fn a_program_without_section_headers_has_whole_stacks_and_exported_names() {
    if !applies() {
        return;
    }
    let program = native::without_frame_pointers_and("frames.c", "frames_bare", &["-rdynamic"]);
    let bare = program.with_extension("bare");
    copy_without_sections(&program, &bare);
    let target = Target::start(Command::new(&bare).arg("chain"));
    let (name, frames) = ("frames_bare.bare!fun_", 40);
    let right = |stack: &[String]| {
        let functions = stack.iter().filter(|frame| frame.starts_with(name)).count();
        functions > frames && has_in_order(stack, &["_start", "main"])
    };
    prove(|| short_slice(&target, &[]).folded, &[at_least(0.99, "whole stacks", right)]);
}

fn copy_without_sections(program: &Path, to: &Path) {
    let mut bytes = std::fs::read(program).unwrap();
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let data = to.with_extension("data");
    std::fs::copy(program, &data).unwrap();
    std::fs::write(&data, bytes).unwrap();
    native::copy(&data, to);
}

/// A coroutine has no caller. The word in the place of a caller's frame is not a return address.
#[test]
fn coroutines_begin_where_libc_begins_them() {
    if !applies() {
        return;
    }
    let target = frames(&["coroutine"]);
    let right = |stack: &[String]| {
        let begins = |frame: &String| frame == "__start_context" || frame.starts_with("libc.so.6!fun_");
        stack.get(1).is_some_and(begins)
            && stack.get(2).is_some_and(|frame| is(frame, "in_coroutine"))
            && of_chain(stack) == 40
    };
    let right = at_least(0.995, "stacks that begin with the coroutine", right).among(has("work"));
    prove(|| short_slice(&target, &[]).folded, &[whole("coroutine"), in_work(), right]);
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
    let right = |stack: &[String]| {
        of_chain(stack) == 40 && has_in_order(stack, &["main", "chain", "by_value", "work"])
    };
    let right = at_least(0.995, "stacks with all frames", right).among(has("work"));
    prove(|| short_slice(&target, &[]).folded, &[whole("debug_frame"), in_work(), right]);
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
    let is_cut = |stack: &[String]| stack.get(1).is_some_and(|frame| is(frame, "enter"));
    let batch = || {
        let profile = profile(&target, 2, &[]);
        let shown = ends(&profile.report, "no frame pointer and no unwind table");
        assert!(shown >= profile.folded.count(is_cut), "{}", profile.report["ends"]);
        profile.folded
    };
    let claims = [
        at_least(0.9, "samples in the libraries", has("enter")),
        seen(501, "samples in the libraries", has("enter")),
        seen(1, "whole stacks", has("main")).among(has("enter")),
        // These end where it is not known which library was there.
        seen(1, "stacks that are cut", is_cut),
    ];
    let all = prove(batch, &claims).within("enter");
    let wrong = all.keep(|stack| !is_cut(stack) && !has("main")(stack));
    assert_eq!(wrong.total(), 0, "some have a caller that is none:\n{}", wrong.top(10));
    assert_eq!(all.within("never").total(), 0, "{}", all.within("never").top(10));
}

/// Go's frame descriptions do not say that the stack changes here.
#[test]
fn where_go_calls_c_no_caller_is_invented() {
    if !applies() || lacks("go") {
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
    let right = |stack: &[String]| {
        stack.get(1).is_some_and(|frame| is(frame, "runtime.asmcgocall")) || reaches_root(stack)
    };
    let right = at_least(0.995, "stacks without wrong frames", right).among(has("work"));
    prove(|| short_slice(&target, &[]).folded, &[in_work(), right]);
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
    prove_tallies(&[("stacks that ended in the file".to_owned(), Claim::AtLeast(0.9))], || {
        let profile = short_slice(&target, &[]);
        let rows = profile.report["ended_in"].as_array().unwrap();
        let [first, ..] = &rows[..] else { panic!("the report lists no file: {}", profile.folded.top(5)) };
        assert_eq!(first["file"], program.to_str().unwrap(), "{rows:?}");
        assert_eq!(first["why"], "no frame pointer and no unwind table", "{rows:?}");
        let samples = profile.folded.total();
        vec![Tally { hits: first["ticks"].as_u64().unwrap().min(samples), samples }]
    });
}

#[test]
fn exceptions_are_thrown_through_whole_stacks() {
    if !applies() {
        return;
    }
    let target = Target::start(&mut Command::new(native::without_frame_pointers("throw.cc")));
    let is_thrown = |stack: &[String]| {
        stack.iter().any(|frame| frame.contains("libgcc_s") || frame.starts_with("_Unwind"))
    };
    let claims = [
        whole("throw"),
        seen(501, "stacks of the unwinder itself", is_thrown),
        at_least(0.98, "stacks of the unwinder itself that have main", has("main")).among(is_thrown),
    ];
    prove(|| short_slice(&target, &[]).folded, &claims);
}

#[test]
fn an_interpreter_as_it_is_shipped() {
    if !applies() || lacks("python3") {
        return;
    }
    let program = "import json, zlib\nprint('ready', flush=True)\n\
        while True:\n    zlib.compress(json.dumps(sorted(range(20000), key=lambda n: -n)).encode())\n";
    let target = Target::start(Command::new("python3").args(["-c", program]));
    prove(|| short_slice(&target, &[]).folded, &[whole("python3")]);
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
        let args = ["--pid".to_owned(), format!("{},{}", one.pid(), other.pid())];
        let is_liar = |stack: &[String]| stack[0] == "liar";
        let claims = [
            whole(kind).among(|stack| stack[0] == "frames.c"),
            seen(201, format!("{kind}: samples of the liar"), is_liar),
            at_least(0.9, format!("{kind}: leaves, which need no table"), has("work")).among(is_liar),
        ];
        prove(|| record(2, &args).folded, &claims);
    }
}

/// The report has the stop reasons, and the tables stay within their budget. Once, 946 of 947 stacks of the coroutine
/// ended at the root.
#[test]
fn the_report_has_stop_reasons() {
    if !applies() {
        return;
    }
    for (mode, rooted) in [("chain", 0.98), ("coroutine", 0.995)] {
        let target = frames(&[mode]);
        prove_tallies(&[(format!("{mode}: stacks that end at the root"), Claim::AtLeast(rooted))], || {
            let report = short_slice(&target, &[]).report;
            let maps = report["cost"]["maps_bytes"].as_u64().unwrap();
            assert!(maps < 64 << 20, "{maps} bytes of maps for one small program");
            eprintln!("{mode}: {}", report["ends"]);
            vec![Tally { hits: ends(&report, "root"), samples: ends(&report, "") }]
        });
    }
}
