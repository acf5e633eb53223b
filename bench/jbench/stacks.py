"""Folded stacks of several profilers, with common names."""

import collections
import re

ROOTS = re.compile(r"^(_*(GI_+)?clone\d?|start_thread|thread_native_entry.*|JavaMain|_start)$")
# The roots in a C library without symbols: the two outermost frames have no caller and no name, and the JVM's frame
# follows.
STRIPPED = re.compile(r"^(libc\.so\.6|libpthread[-.0-9]*so.*)!fun_")
JVM_LIBRARY = re.compile(r"^(libjvm|libjli)\.so|^(thread_native_entry|java_start|ThreadJavaMain|JavaMain)\b")
JAVA = re.compile(r"_\[(j|i|0|1)\]$")
KERNEL = re.compile(r"_\[k\]$")
# Threads of a JVM that never run Java. JDK 8 gives all of its threads the name of its program.
JVM_THREAD = re.compile(r"\[(C[12] Comp|GC |G1 |VM |Sweeper|Monitor Defl|ZD|ZW|ZS|ZU|XD|XW|Shenandoah)")
SUFFIX = re.compile(r"_\[[a-z0-9]\]$")
UNKNOWN = re.compile(r"^\[unknown|^\[deleted|^\[jit|^0x[0-9a-f]+$|^unknown")
# Time inside async-profiler: its signal handler, and kernel functions that deliver the signal.
PROFILER = re.compile(
    r"__restore_rt|asyncProfiler|^(Profiler|PerfEvents|CTimer|StackWalker|VMMethod|VMThread|CallTraceStorage)::"
    r"|^(arch_do_signal_or_restart|get_signal|.*rt_sigreturn|perf_pending_task|perf_pending_irq|.*setup_rt_frame)$"
)


def normal(frame):
    """A frame's name in the form that all profilers share, without the suffix for its kind."""
    java = JAVA.search(frame)
    name = SUFFIX.sub("", frame)
    if java:
        name = name.replace("/", ".")
        # Numbers that differ between runs: hidden classes, lambdas, generated accessors.
        name = re.sub(r"[.+/]0x[0-9a-f]+", "", name)
        name = re.sub(r"\$\$Lambda[$/.0-9]*(?=\.[^.]+$)", "$$Lambda", name)
        name = re.sub(r"(Accessor|Proxy)\d+", r"\1", name)
        return name
    # Code of a stripped library has no names: all profilers get the file's name for it.
    if stripped := re.search(r"([^/ (]+\.so[.0-9]*)(?:!fun_[0-9a-f]+)?\)?\]?$", name):
        return f"[{stripped[1]}]"
    # One name for both kinds: a JVM's memory has no other where its event for stubs must stay off (JDK 11 before its
    # fix).
    if name in ("vtable stub", "itable stub"):
        return "vtable chunks"
    name = name.replace("(anonymous namespace)", "{anonymous}")
    # The return type, which demanglers write for templates only.
    name = re.sub(r"^(void|bool|int|unsigned long|unsigned int) (?=\S)", "", name)
    # glibc's memcpy is an alias of its memmove.
    name = name.replace("__memcpy_avx", "__memmove_avx")
    if "operator()" not in name:
        name = name.split("(")[0]
    name = re.sub(r"\.(isra|part|constprop|cold|lto_priv)\.?\d*", "", name)
    return re.sub(r"<.*>", "<>", name) if "<" in name[1:] else name


class Stacks:
    """Stacks and their counts. A stack is a list of frames, the root first, without the process's name."""

    def __init__(self):
        self.counts = collections.Counter()
        self.processes = collections.Counter()
        self.java_threads = collections.Counter()

    @classmethod
    def read(cls, path, process_frame, thread_frame=False):
        """Reads folded stacks. The first frame may be the process's name, and the next one the thread's."""
        stacks = cls()
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                stack, _, count = line.rstrip("\n").rpartition(" ")
                frames, count = stack.split(";"), int(count)
                process = frames.pop(0) if process_frame else ""
                if process == "[lost]":
                    continue
                thread = frames.pop(0) if thread_frame else ""
                stacks.add(process, frames, count)
                if thread and not JVM_THREAD.match(thread):
                    stacks.java_threads[tuple(frames[:3])] += count
        return stacks

    def add(self, process, frames, count):
        self.counts[tuple(frames)] += count
        self.processes[process] += count

    def total(self):
        return sum(self.counts.values())

    def java(self):
        """The stacks with a Java frame."""
        return {stack: n for stack, n in self.counts.items() if any(JAVA.search(f) for f in stack)}

    def java_to_root(self):
        """Of the stacks with a Java frame, the share whose outermost frame is a thread's beginning."""
        java = self.java()
        return share(sum(n for stack, n in java.items() if begins(stack)), sum(java.values()))

    def java_threads_to_root(self):
        """The same share of all samples of threads that run Java, including those within the JVM and the kernel."""
        reached = sum(n for stack, n in self.java_threads.items() if begins(stack))
        return share(reached, self.java_threads.total())

    def roots_missed(self):
        """Outermost frames of Java threads' stacks that are not a thread's beginning."""
        missed = collections.Counter()
        for stack, n in self.java_threads.items():
            if not begins(stack):
                missed["".join(stack[:1])] += n
        return missed

    def unknown_leaves(self):
        return share(sum(n for s, n in self.counts.items() if s and UNKNOWN.match(s[-1])), self.total())

    def unknown_frames(self):
        """The share of user frames without a name, each stack weighted by its samples."""
        user = unknown = 0
        for stack, n in self.counts.items():
            frames = [f for f in stack if not KERNEL.search(f)]
            user += n * len(frames)
            unknown += n * sum(1 for f in frames if UNKNOWN.match(f))
        return share(unknown, user)

    def unknown_names(self):
        names = collections.Counter()
        for stack, n in self.counts.items():
            for frame in stack:
                if UNKNOWN.match(frame):
                    names[frame] += n
        return names

    def deepest(self):
        return max(map(len, self.counts), default=0)

    def mean_depth(self):
        """The mean depth of unwound stacks; inlined methods have no frame of their own there."""
        return share(sum(n * sum(1 for f in s if not f.endswith("_[i]")) for s, n in self.counts.items()), self.total())

    def self_counts(self, only_java=False):
        """The samples of each method by self time, without time inside async-profiler."""
        selves = collections.Counter()
        for stack, n in self.counts.items():
            if not stack or only_java and not JAVA.search(stack[-1]):
                continue
            if not any(PROFILER.search(SUFFIX.sub("", f)) for f in stack):
                selves[normal(stack[-1])] += n
        return selves

    def self_shares(self):
        return normalised(self.self_counts())


def begins(stack):
    """Whether a stack begins with a thread's first function."""
    if len(stack) >= 3 and STRIPPED.match(stack[0]) and STRIPPED.match(stack[1]):
        return bool(JVM_LIBRARY.match(stack[2]))
    return bool(stack and ROOTS.match(normal(stack[0])))


def normalised(counts):
    total = sum(counts.values())
    return {name: n / total for name, n in counts.items()} if total else {}


def share(part, whole):
    return part / whole if whole else float("nan")


def variation(one, other):
    """Total variation between two distributions."""
    return sum(abs(one.get(k, 0) - other.get(k, 0)) for k in one.keys() | other.keys()) / 2


def hottest(reference, measured, count=20):
    """The methods with most self time: (name, reference, measured, allowed difference)."""
    top = sorted(reference, key=reference.get, reverse=True)[:count]
    return [(m, reference[m], measured.get(m, 0.0), max(0.004, 0.12 * reference[m])) for m in top]
