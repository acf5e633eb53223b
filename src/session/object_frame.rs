//! How a stack of an allocation is shown: without the JVM's own frames, and with the object's class at the leaf.

use std::sync::Arc;

use crate::profile::kind::Origin;
use crate::profile::{Frame, Kind};
use crate::sample::{Event, Stack};

/// Longest class name that is shown, bytes.
const MAX_NAME: usize = 512;

/// How the name of the agent's file begins (`src/jvm/agent_file.rs`).
const AGENT: &str = ".jvm-symbols-";

/// How many frames at the leaf are HotSpot's, between the method that allocates and the function that is sampled. 0 if no
/// Java method allocates, or if another library is in between: then these frames show who allocates.
pub(super) fn jvm_frames(frames: &[Arc<Frame>]) -> usize {
    let own = frames.iter().rev().take_while(|frame| is_of_jvm(frame)).count();
    let caller = frames.len().checked_sub(own + 1).map(|at| &frames[at]);
    caller.filter(|caller| caller.kind.origin() == Origin::Java).map_or(0, |_| own)
}

fn is_of_jvm(frame: &Frame) -> bool {
    frame.kind == Kind::JvmStub || frame.module.as_ref().is_some_and(|module| is_jvm_file(&module.path))
}

/// HotSpot's library, or the agent, which the JVM calls for the objects that it samples.
fn is_jvm_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name == "libjvm.so" || name.starts_with(AGENT)
}

/// The frame of the object of an allocation; `None` for other events.
pub(super) fn of(stack: &Stack) -> Option<Frame> {
    if stack.key.event != Event::Alloc {
        return None;
    }
    let name = stack.object.as_ref().and_then(|object| object.class_name.as_deref());
    let name = name.filter(|name| name.len() <= MAX_NAME).unwrap_or("unknown class");
    Some(Frame::named(Kind::Object, format!("[new: {name}]")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Module;

    fn frames(names: &[&str]) -> Vec<Arc<Frame>> {
        let frame = |name: &&str| {
            Arc::new(match name.split_once(':') {
                Some(("jvm", name)) => Frame {
                    module: Some(Arc::new(Module::at("/opt/jdk/lib/server/libjvm.so"))),
                    ..Frame::named(Kind::Cpp, name)
                },
                Some(("stub", name)) => Frame::named(Kind::JvmStub, name),
                Some(("java", name)) => Frame::named(Kind::Java, name),
                Some(("agent", name)) => Frame {
                    module: Some(Arc::new(Module::at("/tmp/.jvm-symbols-4711-00112233aabbccdd.so"))),
                    ..Frame::named(Kind::Native, name)
                },
                _ => Frame::named(Kind::Native, *name),
            })
        };
        names.iter().map(frame).collect()
    }

    #[test]
    fn frames_between_a_method_and_the_probe_are_the_jvms() {
        let of = |names: &[&str]| jvm_frames(&frames(names));
        assert_eq!(
            of(&[
                "start_thread",
                "jvm:JavaCalls",
                "java:A.b",
                "stub:new",
                "jvm:OptoRuntime",
                "jvm:AllocTracer"
            ]),
            3
        );
        assert_eq!(of(&["java:A.b", "jvm:MemAllocator", "agent:jvm_symbols_agent_allocated"]), 2);
        assert_eq!(of(&["java:A.b", "libx", "jvm:jni_NewObject"]), 0, "native code allocates");
        assert_eq!(of(&["start_thread", "jvm:Service", "jvm:AllocTracer"]), 0, "the JVM allocates");
        assert_eq!(of(&["jvm:AllocTracer"]), 0);
        assert_eq!(of(&[]), 0);
    }
}
