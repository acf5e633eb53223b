"""Runs the parts of the benchmark and prints their figures."""

import argparse
import collections
import itertools
import os
import pathlib
import statistics
import sys
import tempfile
import time

from . import allocations, bystander, convert, difference, events, filter, hiccup, jdks, live, lock_times, native, page, paired, pointers, programs, real_waits, rivals, scaling, sinks, soak, tables, timeline, waits
from .cache import Cache
from .figures import Figures
from .jvm import EXACT
from .stacks import hottest, normalised, share, variation
from .tools import AsyncProfiler, JbpfProf, Perf

FRAME_POINTERS = {"no": [[]], "yes": [[pointers.FLAG]], "both": [[], [pointers.FLAG]]}
DEBUG_RECORDS = {"exact": [EXACT], "default": [[]], "both": [EXACT, []]}
PARTS = ["attach", "truth", "processes", "cost", "hiccup", "native", "tables", "convert"]
# Parts that only `--part` selects, because they take long: the daemon's cost in minutes and hours, what a filter saves,
# ten JVMs with and without frame pointers, what other profilers cost, what a node pushes, what waiting time costs.
SOAK, POINTERS, RIVALS, SCALING, PAIRED, SINKS = "soak", "pointers", "rivals", "scaling", "paired", "sinks"
LIVE, DIFF, PAGE, ALLOCATIONS = "live", "diff", "page", "allocations"
DAEMON = [SOAK, LIVE, "bystander", "filter", SINKS, "timeline"]
WAITS, REAL_WAITS, LOCK_TIMES, EVENTS = "waits", "real-waits", "lock-times", "events"
ASKED_FOR = [*DAEMON, POINTERS, RIVALS, SCALING, PAIRED, WAITS, REAL_WAITS, LOCK_TIMES, EVENTS, DIFF, PAGE, ALLOCATIONS]
# Parts that profile a running Java program.
OF_PROGRAMS = {"attach", "truth", "processes", "cost", RIVALS, SCALING, PAIRED, ALLOCATIONS}
# What the comparison with async-profiler needs to prove anything: samples, and a program that is large enough.
SAMPLES, COMPILED, DEEP = 25_000, 12_000, 500
# Stop reasons that are errors and not a property of the code, by their labels in the report.
ERRORS = ["stack not readable", "no frame pointer and no unwind table"]
# Time of the BPF program for each sample, in microseconds, at `BPF_DEPTH` frames; keys: with frame pointers or without.
BPF_US = {True: 20, False: 40}
BPF_DEPTH = 75
# The compilers of the Scala compiler's JVM need some minutes.
WARM_UP_SECONDS = 600


def main():
    parser = argparse.ArgumentParser(prog="bench/run.sh", description=__doc__)
    parser.add_argument("--jdk", action="append", help="version or home of a JDK (repeatable) [17 and 25]")
    parser.add_argument("--part", action="append", choices=[*PARTS, *ASKED_FOR], help="only this part (repeatable)")
    parser.add_argument("--program", action="append", choices=programs.ALL, help="what is profiled (repeatable) [scala]")
    parser.add_argument("--java", choices=["agent", "vm"], help="where jbpf-prof has Java's names from [its default]")
    parser.add_argument("--flag", action="append", default=[], help="one more flag of the JVM, such as -Xint (repeatable)")
    parser.add_argument("--rate", type=int, action="append", help="samples a second [99 and 999]")
    parser.add_argument("--seconds", type=int, default=30, help="of each measurement [30]")
    parser.add_argument("--warm-rounds", type=int, default=6, help="compilations before the first measurement [6]")
    parser.add_argument("--frame-pointers", choices=FRAME_POINTERS, default="no", help="whether the JVM keeps them [no]")
    parser.add_argument("--debug-records", choices=DEBUG_RECORDS, default="exact", help="for each instruction, or as by default [exact]")
    parser.add_argument("--turns", type=int, default=3, help="of the rivals, of both binaries, of the waits, of the events, of the allocations, and of each side of diff [3]")
    parser.add_argument("--event", action="append", choices=events.ALL, help="with --part events: only this event (repeatable)")
    parser.add_argument("--profiler", action="append", choices=waits.PROFILERS, help="with --part waits: only this one (repeatable)")
    parser.add_argument("--before", metavar="BINARY", help="with --part paired or sinks: what is compared with")
    parser.add_argument("--minutes", type=int, default=30, help="of the soak, and twice of the part live [30]; 480 before a release")
    parser.add_argument("--jvms", type=int, default=20, help="of the parts soak and live [20]")
    parser.add_argument("--keep", help="directory for all profiles [a temporary one, deleted]")
    args = parser.parse_args()
    if bool({PAIRED, SINKS} & set(args.part or [])) != bool(args.before):
        parser.error("--before BINARY goes with --part paired or sinks")
    cache = Cache()
    if not {*DAEMON, "native", "tables", WAITS, REAL_WAITS, LOCK_TIMES, EVENTS, PAGE}.issuperset(args.part or PARTS):
        cache.fill()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(args.keep or temporary).resolve()
        work.mkdir(parents=True, exist_ok=True)
        figures = Figures()
        Bench(args, cache, work, figures).run()
    return 0 if figures.verdict() else 1


class Bench:
    """One run of the benchmark."""

    def __init__(self, args, cache, work, figures):
        self.args, self.cache, self.work, self.figures = args, cache, work, figures
        self.ours = JbpfProf(os.environ["JBPF_PROF"], work, [f"--java={args.java}"] if args.java else [])
        self.parts = args.part or PARTS
        self.rates = args.rate or [99, 999]

    def run(self):
        self.figures.heading("JDKs")
        found = jdks.chosen(self.cache, self.args.jdk, self.figures)
        for jdk in found:
            self.figures.note(f"{jdk.name}: {jdk.home}")
        for jdk in found:
            if OF_PROGRAMS & set(self.parts):
                for name, flags in itertools.product(self.args.program or [programs.SCALA], self.variants()):
                    if missing := programs.missing(name):
                        self.figures.lack(programs.TITLES[name], missing)
                    else:
                        self.program(name, jdk, flags)
            if "hiccup" in self.parts:
                self.hiccup(jdk)
            if POINTERS in self.parts:
                for program in self.args.program or [programs.SCALA]:
                    pointers.measure(self, program, jdk)
        if "bystander" in self.parts:
            bystander.measure(self.ours.binary, self.work, self.figures, found[0], self.args.seconds)
        if "filter" in self.parts:
            filter.measure(self.ours, self.figures, max(self.rates), self.args.seconds)
        if "timeline" in self.parts:
            timeline.measure(self.ours, self.figures, max(self.rates), self.args.seconds)
        if WAITS in self.parts:
            waits.measure(self, found[0])
        if EVENTS in self.parts:
            events.measure(self, found[0])
        for jdk in found:
            if REAL_WAITS in self.parts:
                real_waits.measure(self, jdk)
            if LOCK_TIMES in self.parts:
                lock_times.measure(self, jdk)
        if PAGE in self.parts:
            page.measure(self)
        if DIFF in self.parts:
            difference.measure(self, found[0])
        if SINKS in self.parts:
            sinks.measure(self, pathlib.Path(self.args.before).resolve())
        if SOAK in self.parts:
            soak.measure(self.ours.binary, self.work, self.figures, found[0], self.args.minutes, self.args.jvms)
        if LIVE in self.parts:
            live.measure(self.ours.binary, self.work, self.figures, found[0], self.args.minutes, self.args.jvms)
        if "native" in self.parts:
            self.figures.heading(f"native programs at {max(self.rates)} Hz")
            native.measure(self.ours, self.work, self.figures, max(self.rates), self.args.seconds)
        if "tables" in self.parts:
            self.figures.heading("unwind tables")
            tables.measure(self.ours, found, self.figures)
        if "convert" in self.parts:
            convert.measure(self.ours.binary, self.work, self.figures)

    def variants(self):
        """JVM flags for each measurement of a program."""
        pairs = itertools.product(FRAME_POINTERS[self.args.frame_pointers], DEBUG_RECORDS[self.args.debug_records])
        return [[*one, *other, *self.args.flag] for one, other in pairs]

    def program(self, name, jdk, flags):
        self.figures.heading(" ".join([programs.TITLES[name], "on", jdk.name, *flags]))
        log = self.work / f"{name}.log"
        with programs.running(name, self.cache, jdk, log, flags, self.args.warm_rounds) as jvm:
            compiled = jvm.compiled_methods()
            if compiled is None:
                self.figures.lack(f"compiled methods of {jdk.name}", "it does not report them")
            else:
                self.figures.need("compiled methods", compiled, COMPILED if name == programs.SCALA else None)
            if "attach" in self.parts:
                self.attach(jvm, compiled)
            for rate in self.rates if "truth" in self.parts else []:
                self.truth(jvm, rate, large=name == programs.SCALA)
            if "processes" in self.parts:
                self.processes(jvm)
            if "cost" in self.parts:
                for rate in self.rates:
                    self.cost(jvm, rate, pointers.FLAG in flags, warm=False)
                begin = time.monotonic()
                warm = jvm.wait_until_warm(WARM_UP_SECONDS)
                figures = self.figures
                figures.note(f"the JVM {'is warm' if warm else 'still compiles'} after {time.monotonic() - begin:.0f} s more")
                for rate in self.rates if warm else []:
                    self.cost(jvm, rate, pointers.FLAG in flags, warm=True)
            for rate in self.rates if RIVALS in self.parts else []:
                rivals.measure(self, jvm, rate)
            if SCALING in self.parts:
                scaling.measure(self, jvm)
            if ALLOCATIONS in self.parts:
                allocations.measure(self, jvm)
            if PAIRED in self.parts:
                jvm.wait_until_warm(WARM_UP_SECONDS)
                paired.measure(self, jvm, self.args.before)

    def attach(self, jvm, compiled):
        """Five late attaches: time until all names are known, and cost to the JVM. Larger programs take longer."""
        figures = self.figures
        figures.heading(f"late attach, {jvm.jdk.name}")
        times, spent, logs = [], [], []
        for _ in range(5):
            before = jvm.cpu_seconds("Attach Listener")
            run = self.ours.start("attach", 99, "--pid", str(jvm.pid), seconds=1, formats=["folded"])
            (seen,) = self.ours.result(run)[1]["jvms"]
            spent.append(jvm.cpu_seconds("Attach Listener") - before)
            times.append(seen["names"]["agent_late"]["ms"] / 1000)
            logs.append(seen["log_bytes"])
        median = statistics.median(times)
        figures.say("until all names are there, median", median, "s")
        larger = max(1, (compiled or 0) / COMPILED)
        figures.say(f"  at {COMPILED} compiled methods or fewer", median / larger, "s", most=1)
        figures.say("  CPU time of the JVM's own thread for it, median", statistics.median(spent), "s")
        figures.say("agent log, largest", max(logs) / 2**20, "MiB", most=6)

    def truth(self, jvm, rate, large):
        figures, seconds = self.figures, self.args.seconds
        figures.heading(f"truth at {rate} Hz, {jvm.jdk.name}")
        reference = AsyncProfiler(jvm, self.cache.agent, self.work)
        reference.start(rate)
        time.sleep(seconds)
        first = reference.stop("first")
        # The agent attaches before the clock starts, so that both sample the same seconds, except the first moments.
        run = self.ours.start("truth", rate, "--pid", str(jvm.pid), "--per-thread", seconds=seconds)
        time.sleep(1)
        reference.start(rate)
        stacks, report = self.ours.result(run, by_thread=True)
        second = reference.stop("second")

        perf = self.perf(jvm, rate)
        enough = SAMPLES if large and rate >= 999 else None
        figures.need("samples", stacks.total(), enough)
        figures.need("samples of async-profiler", second.total(), enough)
        figures.need("deepest stack", stacks.deepest(), DEEP if large else None)
        figures.say("samples of Java threads that reach the root (%)", 100 * stacks.java_threads_to_root(), least=98)
        figures.note(f"of {stacks.java_threads.total()}; of those with a Java frame: {100 * stacks.java_to_root():.3f} %")
        self.listing(stacks.roots_missed(), stacks.java_threads.total(), "ends at")
        self.ends(report, stacks.java_threads.total())
        figures.say("  async-profiler, of those with a Java frame (%)", 100 * second.java_to_root())
        figures.say("  perf, of those with a Java frame (%)", 100 * perf.java_to_root())
        figures.say("samples with an unknown leaf (%)", 100 * stacks.unknown_leaves(), most=0.5)
        figures.say("  async-profiler (%)", 100 * second.unknown_leaves())
        figures.say("unknown user frames (%)", 100 * stacks.unknown_frames(), most=0.5)
        figures.say("  async-profiler (%)", 100 * second.unknown_frames())
        figures.say("  perf (%)", 100 * perf.unknown_frames())
        self.listing(stacks.unknown_names(), stacks.total(), "frame")
        judged = min(stacks.total(), second.total()) >= SAMPLES
        self.agreement(first.self_shares(), second.self_shares(), stacks.self_shares(), judged)
        self.accounts(report)

    def ends(self, report, samples):
        """Stop reasons before the root. The report counts all threads of the JVM, not only Java's."""
        ends = dict(report.get("ends", []))
        errors = sum(ends.get(error, 0) for error in ERRORS)
        self.figures.say("  errors (bad read, no table), of all of its threads (%)", 100 * share(errors, samples), most=0.5)
        for end, n in ends.items():
            self.figures.note(f"{100 * share(n, sum(ends.values())):7.3f} %  {end}")

    def perf(self, jvm, rate):
        """Profiles the same program with perf, and with the JVM's own perf map, which JDK 17 and later write."""
        if int(jdks.major(jvm.jdk.version)) >= 17:
            jvm.jcmd("Compiler.perfmap")
        perf = Perf(self.work)
        cost = perf.start("truth", rate, self.args.seconds).wait()
        stacks = perf.stacks()
        self.figures.note(f"perf: {stacks.total()} samples, {cost.cpu:.1f} s CPU, {perf.seconds:.1f} s to names")
        return stacks

    def agreement(self, first, second, ours, judged):
        """`judged`: enough samples for single methods. With fewer, two runs of one profiler differ by more."""
        figures = self.figures
        between_runs = variation(first, second)
        figures.say("total variation, two runs of async-profiler", between_runs)
        figures.say("total variation, jbpf-prof to async-profiler", variation(second, ours), most=1.5 * between_runs)
        top = hottest(second, ours)
        off = [row for row in top if abs(row[2] - row[1]) > row[3]]
        figures.say("of the 20 hottest methods, out of bounds", len(off), most=0 if judged else None)
        for name, theirs, measured, _ in top:
            figures.note(f"{100 * theirs:6.2f} {100 * measured:6.2f}  {name[:100]}{'  <-' if any(o[0] == name for o in off) else ''}")
        figures.note("the largest differences (async-profiler, jbpf-prof, in %):")
        differ = sorted(second.keys() | ours.keys(), key=lambda m: -abs(second.get(m, 0) - ours.get(m, 0)))
        for name in differ[:12]:
            figures.note(f"{100 * second.get(name, 0):6.2f} {100 * ours.get(name, 0):6.2f}  {name[:100]}")

    def listing(self, counts, total, what):
        for name, n in collections.Counter(counts).most_common(6):
            self.figures.note(f"{100 * share(n, total):7.3f} %  {what} {name[:110]}")

    def accounts(self, report):
        accounts = report.get("accounts")
        if not accounts:
            self.figures.note("the report has no accounts")
            return
        lost = sum(n for _, n in accounts["lost"])
        off = accounts["ticks"] - accounts["filtered"] - accounts["kept"] - lost
        self.figures.say("ticks - (filtered + kept + lost)", off, most=0)
        self.figures.say("expected - (ticks + missed)", accounts["expected"] - accounts["ticks"] - accounts["missed"], most=0)
        self.figures.note(f"accounts: {accounts}")

    def processes(self, jvm):
        figures, seconds = self.figures, self.args.seconds
        rate = max(self.rates)
        figures.heading(f"processes at {rate} Hz, {jvm.jdk.name}")
        ours = self.ours.start("all", rate, "--all", "--include-self", seconds=seconds)
        perf = Perf(self.work)
        theirs = perf.start("all", rate, seconds)
        stacks, report = self.ours.result(ours)
        theirs.wait()
        perf_shares, our_shares = perf.shares(), normalised(stacks.processes)
        worst = 0.0
        for name in sorted(perf_shares, key=perf_shares.get, reverse=True)[:8]:
            difference = 100 * (our_shares.get(name, 0) - perf_shares[name])
            worst = max(worst, abs(difference))
            figures.note(f"{100 * perf_shares[name]:6.2f} {100 * our_shares.get(name, 0):6.2f}  {name}")
        figures.say("largest difference of a process's share (points)", worst, most=2)
        self.accounts(report)

    def hiccup(self, jdk):
        self.figures.heading(f"hiccup of attaching, {jdk.name}")

        def attach(pid):
            self.ours.start("hiccup", 99, "--pid", str(pid), seconds=1, formats=["folded"]).wait()

        for name, value in hiccup.measure(self.cache, jdk, attach, self.work).items():
            self.figures.say(name, value, most=50 if name == hiccup.EXCESS else None)

    def cost(self, jvm, rate, frame_pointers, warm):
        """`warm`: the JVM has compiled its hot code. Before that the code changes all the time."""
        figures, seconds = self.figures, self.args.seconds
        figures.heading(f"cost of --all at {rate} Hz, {jvm.jdk.name}, {'warm' if warm else 'while it compiles'}")
        # The first third is for attaching and for the first names; the steady state begins after it.
        run = self.ours.start("cost", rate, "--all", stop_after=seconds, steady_after=seconds / 3)
        stacks, report = self.ours.result(run)
        cost = report.get("cost", {})
        bpf, runs = cost.get("bpf_s") or float("nan"), cost.get("bpf_runs") or 0
        figures.say("samples", stacks.total())
        figures.say("own CPU of the whole run, attach and files included, of one core (%)", 100 * (run.cpu + bpf) / run.wall)
        figures.say("own CPU in steady state, all counted, of one core (%)", run.steady.percent(), most=1 if warm and rate <= 99 else None)
        figures.note(f"cost by the report: {cost}")
        figures.say("from Ctrl-C to the finished files", run.after_stop, "s", most=1)
        figures.say("memory, broker and children", run.peak_kib / 1024, "MiB", most=120)
        # Filtered ticks cost next to nothing, and are not samples.
        each, depth = 1e6 * share(bpf, stacks.total()), stacks.mean_depth()
        figures.say("frames of a sample, inlined ones left out, mean", depth)
        figures.say("BPF a sample", each, "us")
        deeper = max(1, depth / BPF_DEPTH)
        figures.say(f"  at {BPF_DEPTH} frames or fewer", each / deeper, "us", most=BPF_US[frame_pointers])
        figures.note(f"a run of the BPF program, filtered ones included: {1e6 * share(bpf, runs):.3f} us")
        for one in report.get("jvms", []):
            figures.note(f"JVM: {one}")


if __name__ == "__main__":
    sys.exit(main())
