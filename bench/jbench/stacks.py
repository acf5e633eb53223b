"""Folded stacks of several profilers, under common names."""

import collections
import re

ROOTS = re.compile(r"^(_*(GI_+)?clone\d?|start_thread|thread_native_entry.*|JavaMain|_start)$")
JAVA = re.compile(r"_\[(j|i|0|1)\]$")
KERNEL = re.compile(r"_\[k\]$")
SUFFIX = re.compile(r"_\[[a-z0-9]\]$")
UNKNOWN = re.compile(r"^\[unknown|^\[deleted|^\[jit|^0x[0-9a-f]+$|^unknown")
# Time inside async-profiler: its signal handler, and what the kernel does to deliver the signal.
PROFILER = re.compile(
    r"__restore_rt|asyncProfiler|^(Profiler|PerfEvents|CTimer|StackWalker|VMMethod|VMThread|CallTraceStorage)::"
    r"|^(arch_do_signal_or_restart|get_signal|.*rt_sigreturn|perf_pending_task|perf_pending_irq|.*setup_rt_frame)$"
)


def normal(frame):
    """A frame's name as all profilers would write it, its suffix for the kind left out."""
    java = JAVA.search(frame)
    name = SUFFIX.sub("", frame)
    if java:
        name = name.replace("/", ".")
        # Numbers of one run: hidden classes, lambdas, generated accessors.
        name = re.sub(r"[.+/]0x[0-9a-f]+", "", name)
        name = re.sub(r"\$\$Lambda[$/.0-9]*(?=\.[^.]+$)", "$$Lambda", name)
        name = re.sub(r"(Accessor|Proxy)\d+", r"\1", name)
        return name
    # A stripped library's code is not named: its file's name stands for it, whoever wrote it.
    if stripped := re.search(r"([^/ (]+\.so[.0-9]*)(?:!fun_[0-9a-f]+)?\)?\]?$", name):
        return f"[{stripped[1]}]"
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
    """Stacks and how often each was seen. A stack is a list of frames, the root first, without the process's name."""

    def __init__(self):
        self.counts = collections.Counter()
        self.processes = collections.Counter()

    @classmethod
    def read(cls, path, process_frame):
        """Reads folded stacks; with `process_frame` the first frame is the process's name."""
        stacks = cls()
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                stack, _, count = line.rstrip("\n").rpartition(" ")
                frames, count = stack.split(";"), int(count)
                process = frames.pop(0) if process_frame else ""
                if process != "[lost]":
                    stacks.add(process, frames, count)
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
        """Of the stacks with a Java frame, the share whose outermost frame is where threads begin."""
        java = self.java()
        return share(sum(n for stack, n in java.items() if ROOTS.match(normal(stack[0]))), sum(java.values()))

    def roots_missed(self):
        """Outermost frames of Java stacks that are no root, the most frequent first."""
        missed = collections.Counter()
        for stack, n in self.java().items():
            if not ROOTS.match(normal(stack[0])):
                missed[stack[0]] += n
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

    def self_shares(self):
        """Each method's share of self time, time inside async-profiler left out."""
        selves = collections.Counter()
        for stack, n in self.counts.items():
            if stack and not any(PROFILER.search(SUFFIX.sub("", f)) for f in stack):
                selves[normal(stack[-1])] += n
        return normalised(selves)


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
