"""What an occurrence of each event costs the program in which it happens: turns without a profiler, with jbpf-prof, and
with perf or async-profiler on an event of the same kind.
"""

import collections
import contextlib
import re
import statistics
import subprocess
import time

from . import occur
from .programs import NO_COMPILER
from .tools import AsyncProfiler, cpu_seconds, recording
from .turns import OFF, append, failure, perf_record, ratios, rotations, spread

# From the message of a profiler that it has begun, or from the time when it should have, to the measured work.
SETTLE_S = 1
EACH, SOME = 1, 1000
# The interval of jbpf-prof's native-alloc by default, bytes.
INTERVAL = 512 << 10
NATIVE_ALLOC = ["-e", "native-alloc"]
# jbpf-prof counts `rss` in bytes, perf in changes of the kernel's counters, of which each new page makes one.
PAGE = 4096
# Samples of the clock with trace contexts and without.
RATE = 999
NS, CPU_NS, A_SECOND, SEEN, LOST, OWN = "ns", "cpu_ns", "per_second", "seen_percent", "lost_percent", "own_percent"
BPF_RUN, BPF_SAMPLE, IN_SPAN, WRITTEN = "bpf_run_ns", "bpf_sample_ns", "in_span_percent", "written_mib"
# What the figures of a profiler are called in the output, and the digits after the point.
NAMES = {
    A_SECOND: ("occurrences a second", 0),
    LOST: ("samples lost (%)", 3),
    OWN: ("own CPU, of one core (%)", 2),
    SEEN: ("occurrences that the samples stand for (%)", 3),
    BPF_RUN: ("BPF a run, those of other processes included (ns)", 0),
    BPF_SAMPLE: ("all BPF runs, for each sample (ns)", 0),
    IN_SPAN: ("samples with a span (%)", 2),
    WRITTEN: ("written (MiB)", 1),
}

GETPPID = "syscalls:sys_enter_getppid"
# An event that is counted: the mode of the program, what occurs, jbpf-prof's event ({} is the program's file) and perf's,
# the numbers of occurrences for one sample, and what `-c` of jbpf-prof counts for one occurrence.
Counted = collections.namedtuple("Counted", "mode what ours perf one_in unit", defaults=[1])
COUNTED = {
    "faults": Counted("faults", "a page fault", "page-faults", "page-faults", [EACH]),
    "syscalls": Counted("syscalls", "a system call", GETPPID, GETPPID, [EACH, SOME]),
    "calls": Counted("calls", "a call of a function", "uprobe:{}:called", "occur:called", [EACH, SOME]),
    "steps": Counted("steps", "a call of a function that is stepped", "uprobe:{}:stepped", "occur:stepped", [EACH, SOME]),
    "marks": Counted("marks", "a pass of a marker", "usdt:{}:occur:mark", "sdt_occur:mark", [EACH, SOME]),
    "rss": Counted("faults", "a page that is new", "rss", "kmem:rss_stat", [EACH], PAGE),
}
# What perf must define first, by the event that it defines.
PROBES = {
    "occur:called": "occur:called=called",
    "occur:stepped": "occur:stepped=stepped",
    "sdt_occur:mark": "sdt_occur:mark",
}
ALLOCS, JAVA_ALLOCS, SPANS = "allocs", "java-allocs", "spans"
ALL = [*COUNTED, ALLOCS, JAVA_ALLOCS, SPANS]


def measure(bench, jdk):
    """Measures each chosen event."""
    figures, args = bench.figures, bench.args
    binary = occur.compiled(bench.work)
    if not binary:
        figures.lack("cost of each event", NO_COMPILER)
        return
    events = Events(bench, binary)
    for name in args.event or ALL:
        figures.heading(f"events: {name}, {args.turns} turns of {args.seconds} s")
        if name in COUNTED:
            events.counted(name, COUNTED[name])
        elif name == ALLOCS:
            events.allocs()
        elif name == JAVA_ALLOCS:
            events.java_allocs(jdk)
        else:
            events.spans()


class Events:
    """The profilers in turns beside the same program."""

    def __init__(self, bench, binary):
        self.bench, self.figures, self.binary = bench, bench.figures, binary
        self.log = bench.work / "events.jsonl"
        self.log.unlink(missing_ok=True)

    def counted(self, name, event):
        """An event of which each profiler samples each occurrence, or one in some."""
        bench, kinds = self.bench, [Off()]
        for one_in in event.one_in:
            options = ["-e", event.ours.format(self.binary), "-c", str(one_in * event.unit)]
            kinds.append(JbpfProf(bench, options, lambda report, one_in=one_in: report["accounts"]["kept"] * one_in))
        rivals = [PerfRecord(bench, event.perf, one_in) for one_in in event.one_in]
        with contextlib.ExitStack() as stack:
            if why := probe(bench.work, self.binary, event.perf, stack) or rivals[0].failure():
                self.figures.lack(f"cost of {event.what} with perf", why)
                rivals = []
            compare(self.figures, event.what, self.in_turns(name, self.native(event.mode), kinds + rivals))

    def allocs(self):
        """Native allocations of a C program, which async-profiler cannot sample."""
        self.figures.note("perf has no event of bytes. async-profiler's nativemem is for JVMs: see java-allocs.")
        kinds = [Off(), JbpfProf(self.bench, NATIVE_ALLOC, calls)]
        compare(self.figures, "a call of malloc", self.in_turns(ALLOCS, self.native(ALLOCS), kinds))

    def java_allocs(self, jdk):
        """Native allocations of a Java program."""
        bench = self.bench
        bench.cache.fill()
        self.figures.note(jdk.name)
        kinds = [Off(), JbpfProf(bench, NATIVE_ALLOC, calls), Nativemem(bench)]
        start = lambda: occur.Java(bench.cache, jdk, bench.work / "events-java.log")
        compare(self.figures, "a call of Unsafe.allocateMemory", self.in_turns(JAVA_ALLOCS, start, kinds))

    def spans(self):
        """What reading the trace context adds to a sample of the clock."""
        # Only the program's CPU: ticks of others run the BPF program, too, and would blur the time of a sample.
        clock = ["-e", "cpu", "-F", str(RATE), "-C", str(occur.cpu())]
        kinds = [Off(), JbpfProf(self.bench, clock), JbpfProf(self.bench, [*clock, "--trace-context"])]
        compare_samples(self.figures, self.in_turns(SPANS, self.native(SPANS), kinds))

    def native(self, mode):
        """A function that starts the C program."""
        return lambda: occur.Native(self.binary, mode)

    def in_turns(self, name, start, kinds):
        """Measures all kinds beside one process in each turn, in an order that rotates. Returns figures by kind."""
        seen = {kind.name: [] for kind in kinds}
        for turn, order in enumerate(rotations(self.bench.args.turns, kinds)):
            with start() as program:
                for kind in order:
                    row = self.one(kind, program)
                    seen[kind.name].append(row)
                    append(self.log, {"event": name, "kind": kind.name, "turn": turn, **row})
        return seen

    def one(self, kind, program):
        """The costs of one measurement. The profiler's own CPU time leaves out its start and its end."""
        with kind.beside(program) as use:
            time.sleep(SETTLE_S)
            before = use.cpu()
            work = program.work(self.bench.args.seconds)
            own = use.cpu() - before
        row = {NS: work.wall / work.count, CPU_NS: work.cpu / work.count, A_SECOND: 1e9 * work.count / work.wall}
        if use.pid:
            row[OWN] = 1e11 * own / work.wall
        if use.seen is not None:
            row[SEEN] = 100 * use.seen / work.count
        return {**row, **use.figures}


class Use:
    """What is known of a profiler's run: its process, if it has one of its own, and after its end its figures."""

    def __init__(self, pid=None):
        self.pid, self.figures = pid, {}
        # How many occurrences the profiler's samples stand for.
        self.seen = None

    def cpu(self):
        return cpu_seconds(self.pid) if self.pid else 0


class Off:
    """No profiler."""

    name = OFF

    def beside(self, _):
        return contextlib.nullcontext(Use())


class JbpfProf:
    """jbpf-prof with these options; `seen` takes from the report how many occurrences the samples stand for."""

    def __init__(self, bench, options, seen=None):
        self.ours, self.options, self.seen = bench.ours, options, seen
        self.name = " ".join(["jbpf-prof", *options]).replace(f"{bench.work}/", "")

    @contextlib.contextmanager
    def beside(self, program):
        with self.ours.sampling("events", None, "-p", str(program.pid), *self.options) as run:
            use = Use(run.child.pid)
            yield use
        accounts, cost = run.report["accounts"], run.report["cost"]
        # Ticks of other processes are in `expected`, but are no samples that could be lost.
        lost = sum(n for _, n in accounts["lost"]) + accounts["missed"]
        bpf = 1e9 * (cost["bpf_s"] or float("nan"))
        use.seen = self.seen and self.seen(run.report)
        use.figures = {
            LOST: percent(lost, accounts["kept"] + lost),
            BPF_RUN: bpf / max(1, cost["bpf_runs"] or 0),
            BPF_SAMPLE: bpf / max(1, accounts["kept"]),
        }
        if traces := run.report.get("traces"):
            use.figures[IN_SPAN] = percent(traces["in_span"], sum(traces.values()))


class PerfRecord:
    """`perf record -g` on an event."""

    def __init__(self, bench, event, one_in):
        self.work, self.event, self.one_in = bench.work, event, one_in
        self.name = f"perf -e {event} -c {one_in}"
        self.data = bench.work / "events.perf.data"

    def command(self, data, *options):
        # Without -B and -N perf reads its file again at the end, and copies programs to ~/.debug. Without --no-period perf
        # asks for the period of each sample of a tracepoint or probe, and the kernel then samples each occurrence, whatever
        # -c says (`perf_swevent_event` in kernel/events/core.c).
        return perf_record(self.event, data, "-B", "-N", "--no-period", "-c", str(self.one_in), *options)

    def failure(self):
        return failure([*self.command("/dev/null"), "--", "true"])

    @contextlib.contextmanager
    def beside(self, program):
        with recording(self.command(self.data, "-p", str(program.pid)), self.work) as run:
            use = Use(run.child.pid)
            yield use
        report = ["perf", "report", "--stats", "-i", self.data]
        # The sums of the event follow those of the whole file, where a record that reports lost samples counts as one.
        text = subprocess.run(report, check=True, capture_output=True, text=True).stdout.partition(f"{self.event} stats:")[2]
        rows = {row: int(number) for row, number in re.findall(r"\b(\w+) events: +(\d+)", text)}
        samples, lost = rows.get("SAMPLE", 0), rows.get("LOST_SAMPLES", 0)
        use.seen = samples * self.one_in
        use.figures = {LOST: percent(lost, samples + lost), WRITTEN: self.data.stat().st_size / 2**20}
        self.data.unlink()


class Nativemem:
    """async-profiler's samples of native memory. Its CPU time is that of the program's own threads."""

    name = f"async-profiler nativemem={INTERVAL}"

    def __init__(self, bench):
        self.bench = bench

    @contextlib.contextmanager
    def beside(self, program):
        rival = AsyncProfiler(program.jvm, self.bench.cache.agent, self.bench.work)
        rival.start_native(INTERVAL)
        try:
            yield Use()
        finally:
            rival.stop("events")


def probe(work, binary, event, stack):
    """Defines a probe of perf, if the event is one. Returns why that fails, or None."""
    if event not in PROBES:
        return None
    # perf finds static markers by the copy of the file in this directory.
    perf = ["perf", "--buildid-dir", str(work / "perf-buildids")]
    remove = [*perf, "probe", "-q", "-d", event]
    failure(remove)  # of a run that was killed
    why = failure([*perf, "buildid-cache", "--add", str(binary)])
    why = why or failure([*perf, "probe", "-x", str(binary), PROBES[event]])
    if not why:
        stack.callback(failure, remove)
    return why


def calls(report):
    """Calls of the allocator; its other figures are in bytes."""
    return report["allocated"]["profiled_calls"]


def percent(part, whole):
    return 100 * part / whole if whole else 0.0


def compare(figures, what, kinds):
    """Compares each profiler with no profiler in the same turn, by CPU and by wall time of the program."""
    off = kinds.pop(OFF)
    figures.say(f"{what}, {OFF}: CPU time", statistics.median(one[CPU_NS] for one in off), "ns")
    figures.note(f"{spread([one[CPU_NS] for one in off])}; wall time {spread([one[NS] for one in off])}")
    for kind, turns in kinds.items():
        pairs = list(zip(turns, off))
        figures.note(f"{kind}:")
        for key, of in ((CPU_NS, "CPU time"), (NS, "wall time")):
            added = [one[key] - bare[key] for one, bare in pairs]
            figures.say(f"  {of} added to {what}", statistics.median(added), "ns")
            figures.note(f"{spread(added)}, to {OFF} {ratios(key, pairs)}")
        others(figures, turns)


def others(figures, turns):
    """Notes all other figures that a profiler has."""
    for key, (name, digits) in NAMES.items():
        if key in turns[0]:
            figures.note(f"{name}: {spread([one[key] for one in turns], digits)}")


def compare_samples(figures, kinds):
    """Compares samples of the clock by the run time of the BPF program. What they add to the program is far below its
    own differences from turn to turn.
    """
    kinds.pop(OFF)
    (without, bare), (_, turns) = kinds.items()
    for kind, rows in kinds.items():
        figures.say(f"{kind}: BPF a sample", statistics.median(one[BPF_SAMPLE] for one in rows), "ns")
        others(figures, rows)
    added = [one[BPF_SAMPLE] - other[BPF_SAMPLE] for one, other in zip(turns, bare)]
    figures.say("  that --trace-context adds", statistics.median(added), "ns")
    figures.note(f"{spread(added)}, to {without} {ratios(BPF_SAMPLE, list(zip(turns, bare)))}")
