//! Folded stacks, read back: `root;…;leaf count`.

/// A profile in folded form.
#[derive(Default, Debug, Clone, PartialEq)]
pub struct Folded {
    stacks: Vec<(Vec<String>, u64)>,
}

impl Folded {
    /// Reads folded text; panics on an invalid line.
    pub fn parse(text: &str) -> Folded {
        let mut stacks = Vec::new();
        for line in text.lines() {
            let (stack, count) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no count: {line:?}"));
            let count: u64 = count.parse().unwrap_or_else(|_| panic!("no count: {line:?}"));
            assert!(count > 0, "an empty stack: {line:?}");
            let frames: Vec<String> = stack.split(';').map(str::to_owned).collect();
            assert!(frames.iter().all(|f| !f.is_empty()), "a frame without a name: {line:?}");
            assert!(!line.chars().any(char::is_control), "a control character: {line:?}");
            stacks.push((frames, count));
        }
        Folded { stacks }
    }

    /// Adds another profile of the same program.
    pub fn add(&mut self, other: Folded) {
        self.stacks.extend(other.stacks);
    }

    /// All stacks, root first, with their counts.
    pub fn stacks(&self) -> impl Iterator<Item = (&[String], u64)> {
        self.stacks.iter().map(|(frames, count)| (frames.as_slice(), *count))
    }

    /// The number of samples in the stacks for which `wanted` holds.
    pub fn count(&self, wanted: impl Fn(&[String]) -> bool) -> u64 {
        self.stacks().filter(|(frames, _)| wanted(frames)).map(|(_, count)| count).sum()
    }

    /// The number of all samples.
    pub fn total(&self) -> u64 {
        self.count(|_| true)
    }

    /// The stacks that have a frame of this name.
    pub fn within(&self, name: &str) -> Folded {
        self.keep(has(name))
    }

    /// The stacks for which `wanted` holds.
    pub fn keep(&self, wanted: impl Fn(&[String]) -> bool) -> Folded {
        Folded { stacks: self.stacks.iter().filter(|(frames, _)| wanted(frames)).cloned().collect() }
    }

    /// The stacks of one thread, of a profile with `--per-thread`.
    pub fn of_thread(&self, tid: u32) -> Folded {
        let end = format!(" tid={tid}]");
        self.keep(|frames| frames.get(1).is_some_and(|thread| thread.ends_with(&end)))
    }

    /// The stacks of waits without the stacks that ended them.
    pub fn without_wakers(&self) -> Folded {
        let alone = |frames: &[String]| frames.iter().take_while(|frame| *frame != "--").cloned().collect();
        Folded { stacks: self.stacks.iter().map(|(frames, count)| (alone(frames), *count)).collect() }
    }

    /// Of the waits with this leaf below a function that have ended, the share whose waker has this frame.
    pub fn woken_by(&self, function: &str, leaf: &str, frame: &str) -> f64 {
        let waits = self.keep(|frames| {
            let Some(end) = frames.iter().position(|frame| frame == "--") else { return false };
            let alone = &frames[..end];
            alone.last().is_some_and(|last| last == leaf) && alone.iter().any(|frame| is(frame, function))
        });
        waits.share(|frames| frames.iter().skip_while(|frame| *frame != "--").any(|above| above == frame))
    }

    /// The share of samples for which `wanted` holds.
    pub fn share(&self, wanted: impl Fn(&[String]) -> bool) -> f64 {
        self.count(wanted) as f64 / self.total() as f64
    }

    /// The commonest stacks, to print when a test fails.
    pub fn top(&self, n: usize) -> String {
        let mut stacks: Vec<_> = self.stacks().collect();
        stacks.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        stacks.iter().take(n).map(|(frames, count)| format!("{count:>8} {}\n", shortened(frames))).collect()
    }
}

/// The frames; equal adjacent ones are merged.
fn shortened(frames: &[String]) -> String {
    let run =
        |run: &[String]| if run.len() == 1 { run[0].clone() } else { format!("{} x{}", run[0], run.len()) };
    frames.chunk_by(|a, b| a == b).map(run).collect::<Vec<_>>().join(";")
}

/// A frame's name without the suffix of its kind.
pub fn bare(frame: &str) -> &str {
    ["_[j]", "_[i]", "_[k]", "_[0]", "_[1]"].iter().find_map(|s| frame.strip_suffix(s)).unwrap_or(frame)
}

/// Whether a frame has this name, of any kind.
pub fn is(frame: &str, name: &str) -> bool {
    bare(frame) == name
}

/// Whether a stack has a frame of this name.
pub fn has(name: impl AsRef<str>) -> impl Fn(&[String]) -> bool {
    move |stack| stack.iter().any(|frame| is(frame, name.as_ref()))
}

/// Whether the innermost frame of a stack that is not the kernel's has this name.
pub fn has_leaf(name: impl AsRef<str>) -> impl Fn(&[String]) -> bool {
    move |stack| user_leaf(stack).is_some_and(|leaf| is(leaf, name.as_ref()))
}

/// The innermost frame that is not the kernel's.
pub fn user_leaf(frames: &[String]) -> Option<&str> {
    frames.iter().rev().find(|frame| !frame.ends_with("_[k]")).map(String::as_str)
}

/// Whether a stack reaches the root: its outermost code is where threads or programs begin.
pub fn reaches_root(frames: &[String]) -> bool {
    const BEGINNINGS: [&str; 11] = [
        // `start_thread` or `clone` of a libc that was stripped.
        "libc.so.6!fun_",
        "__clone",
        "clone",
        "__clone3",
        "clone3",
        "start_thread",
        "thread_native_entry",
        "JavaMain",
        "ThreadJavaMain",
        "_start",
        // The beginning of a coroutine.
        "__start_context",
    ];
    // The first frames are the process and perhaps the thread; `[truncated]` would come before the code.
    frames.iter().take(4).any(|frame| BEGINNINGS.iter().any(|name| frame.starts_with(name)))
        && !frames.iter().any(|frame| frame == "[truncated]")
}
