//! Virtual threads (JDK 21 and later): where on the stack of its carrier one begins.

use std::sync::Arc;

use crate::profile::{Frame, Kind};

/// The method that first calls the code of a virtual thread. It is an intrinsic, so it is never interpreted or inlined.
const MOUNT: &str = "jdk.internal.vm.Continuation.enterSpecial";
/// Parts of the name of the stub that stands there instead once a thread was resumed, in place of the frames in the
/// heap. The first two are names from the agent (JDK 21; 25 and later). The memory gives one name to a group of stubs;
/// all of the group run in virtual threads only. Each release puts something else around these parts.
const RESUMED: [&str; 3] = ["Cont thaw return barrier", "cont_returnBarrier", "(continuation"];

/// Inserts `[vthread]` between the frames of a carrier and those of the virtual thread that it runs, outermost first,
/// if one begins among them. Returns the index of the marker.
pub(super) fn insert_marker(frames: &mut Vec<Arc<Frame>>) -> Option<usize> {
    let begins = |frame: &Arc<Frame>| match frame.kind {
        Kind::Java => *frame.name == *MOUNT,
        Kind::JvmStub => RESUMED.iter().any(|name| frame.name.contains(name)),
        _ => false,
    };
    let at = frames.iter().position(begins)?;
    frames.insert(at, Arc::new(Frame::named(Kind::Marker, "[vthread]")));
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(stack: &[(Kind, &str)]) -> Vec<String> {
        let mut frames: Vec<_> =
            stack.iter().map(|(kind, name)| Arc::new(Frame::named(*kind, *name))).collect();
        insert_marker(&mut frames);
        frames.iter().map(|frame| frame.name.to_string()).collect()
    }

    #[test]
    fn a_virtual_thread_begins_once_whether_it_was_resumed_or_not() {
        let run = (Kind::JavaInterpreted, "jdk.internal.vm.Continuation.run");
        let (mount, resumed) = ((Kind::Java, MOUNT), (Kind::JvmStub, "StubRoutines (continuationstubs)"));
        let (stub, own) = ((Kind::JvmStub, "StubRoutines (initialstubs)"), (Kind::Java, "Shop.sell"));
        assert_eq!(marked(&[run, mount, own]), [run.1, "[vthread]", mount.1, own.1]);
        assert_eq!(marked(&[run, resumed, own]), [run.1, "[vthread]", resumed.1, own.1]);
        assert_eq!(
            marked(&[run, mount, resumed]),
            [run.1, "[vthread]", mount.1, resumed.1],
            "it is resumed now"
        );
        assert_eq!(marked(&[run, stub]), [run.1, stub.1], "the carrier's own");
        for name in [
            "Cont thaw return barrier",
            "cont_returnBarrier",
            "Stub Generator cont_returnBarrier_stub",
            "cont_returnBarrier_stub (stub gen)",
            "StubRoutines (continuation stubs)",
        ] {
            assert_eq!(marked(&[run, (Kind::JvmStub, name), own]), [run.1, "[vthread]", name, own.1]);
        }
        let method = (Kind::Java, "Shop.cont_returnBarrier");
        assert_eq!(marked(&[run, method]), [run.1, method.1], "no stub");
    }
}
