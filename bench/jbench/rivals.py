"""What profilers cost the Scala compiler, each in turn, and whether they name the same methods.

The CPU time of a round of the program's work includes the profiler's interrupts and signal handlers. The profiler's own
CPU time is that of its own processes and threads.
"""

import collections
import statistics
import subprocess
import time

from .jfr import Jfr
from .stacks import Stacks, hottest, normalised, variation
from .tools import AsyncProfiler, Perf

ROUND = r"round \d+ (\S+) (\S+)"
# Longer than any round takes.
PATIENCE_S = 600
NONE, OURS, ASYNC, JFR, DWARF = "none", "jbpf-prof", "async-profiler", "JFR", "perf --call-graph dwarf"
ALL = [NONE, OURS, ASYNC, JFR, DWARF]


class Turn:
    """Costs of one turn: own CPU time a second, bytes written, and time of a round of the program."""

    def __init__(self, rounds, own, wrote):
        self.wall, self.cpu = (statistics.median(column) for column in zip(*rounds))
        self.own, self.wrote = own, wrote


class Rivals:
    """The profilers on one JVM, and the methods that each found."""

    def __init__(self, bench, jvm, rate):
        self.bench, self.jvm, self.rate = bench, jvm, rate
        self.selves = {name: [] for name in (OURS, ASYNC, JFR)}

    def turn(self, name):
        begin, listener = time.monotonic(), self.jvm.cpu_seconds("Attach Listener")
        stop = {NONE: self.none, OURS: self.ours, ASYNC: self.async_profiler, JFR: self.jfr, DWARF: self.dwarf}[name]()
        rounds = rounds_of(self.jvm, self.bench.args.seconds)
        own, file = stop()
        wall = time.monotonic() - begin
        own += self.jvm.cpu_seconds("Attach Listener") - listener
        return Turn(rounds, own / wall, file.stat().st_size if file else 0)

    # Each method starts a profiler and returns a function that stops it and returns its own CPU time and its output
    # file.

    def none(self):
        return lambda: (0.0, None)

    def ours(self):
        ours = self.bench.ours
        run = ours.start("rival", self.rate, "--pid", str(self.jvm.pid), formats=["pb.gz"])

        def stop():
            run.interrupt()
            file = self.bench.work / "rival.pb.gz"
            subprocess.run([ours.binary, "convert", file, ours.folded], check=True)
            self.selves[OURS].append(Stacks.read(ours.folded, process_frame=True).self_counts(only_java=True))
            return run.cpu, file

        return stop

    def async_profiler(self):
        reference = AsyncProfiler(self.jvm, self.bench.cache.agent, self.bench.work)
        reference.start(self.rate)

        def stop():
            self.selves[ASYNC].append(reference.stop("rival").self_counts(only_java=True))
            return 0.0, self.bench.work / "rival.ap.folded"

        return stop

    def jfr(self):
        recording = Jfr(self.jvm, self.bench.work)
        recording.start("rival")

        def stop():
            recording.stop()
            self.selves[JFR].append(recording.self_counts())
            return 0.0, recording.file

        return stop

    def dwarf(self):
        perf = Perf(self.bench.work)
        run = perf.start("rival", self.rate, target=("-p", str(self.jvm.pid)), call_graph="dwarf")
        return lambda: (run.interrupt().cpu, perf.data)


def measure(bench, jvm, rate):
    """Turns of all profilers, compared with turns of none before and after: the program still gets faster."""
    figures, turns = bench.figures, bench.args.turns
    figures.heading(f"rivals at {rate} Hz, {jvm.jdk.name}: {turns} turns of {bench.args.seconds} s or more each")
    rivals, costs = Rivals(bench, jvm, rate), collections.defaultdict(list)
    for name in [*ALL * turns, NONE]:
        costs[name].append(rivals.turn(name))
    bare = costs[NONE]
    figures.say("a round of the program, no profiler, CPU time", statistics.median(one.cpu for one in bare), "s")
    figures.say("  from turn to turn, standard deviation", spread(bare), "%")
    for place, name in enumerate(ALL[1:], 1):
        late = place / len(ALL)
        pairs = list(zip(costs[name], bare, bare[1:]))
        cpu = [one.cpu / between(before.cpu, after.cpu, late) for one, before, after in pairs]
        wall = [one.wall / between(before.wall, after.wall, late) for one, before, after in pairs]
        figures.say(f"{name}: CPU time of a round, to none", statistics.median(cpu))
        figures.note(f"each turn: {', '.join(f'{ratio:.3f}' for ratio in cpu)}")
        figures.say("  wall time of a round, to none", statistics.median(wall))
        figures.say("  own CPU beside the program, of one core (%)", 100 * statistics.median(one.own for one in costs[name]))
        figures.say("  written", statistics.median(one.wrote for one in costs[name]) / 2**20, "MiB")
    agreement(figures, rivals.selves)


def rounds_of(jvm, seconds):
    """Wall and CPU time of the rounds that begin from now on, for at least these seconds."""
    first = count = len(jvm.wait_for(ROUND, 0, 0)) + 1
    jvm.wait_for(ROUND, first, PATIENCE_S)
    end = time.monotonic() + seconds
    while count == first or time.monotonic() < end:
        count += 1
        found = jvm.wait_for(ROUND, count, PATIENCE_S)
    return [(float(one[1]), float(one[2])) for one in found[first:]]


def between(one, other, place):
    return one + (other - one) * place


def spread(turns):
    return 100 * statistics.stdev(one.cpu for one in turns) / statistics.mean(one.cpu for one in turns)


def agreement(figures, selves):
    """Self time of Java methods in consecutive turns; JFR samples nothing else."""
    whole = {name: sum(counts, collections.Counter()) for name, counts in selves.items()}
    reference = normalised(whole[ASYNC])
    figures.note("self time of Java methods:")
    if selves[ASYNC][1:]:
        even, odd = (normalised(sum(selves[ASYNC][i::2], collections.Counter())) for i in (0, 1))
        figures.say("total variation, async-profiler's turns", variation(even, odd))
    for name in (OURS, JFR):
        measured = normalised(whole[name])
        off = sum(1 for _, theirs, ours, bound in hottest(reference, measured) if abs(ours - theirs) > bound)
        figures.say(f"total variation, {name} to async-profiler", variation(reference, measured))
        figures.say("  of the 20 hottest methods, out of bounds", off)
    figures.note(f"samples: {', '.join(f'{name} {counts.total()}' for name, counts in whole.items())}")
    shares = {name: normalised(counts) for name, counts in whole.items()}
    figures.note(f"{'  '.join(f'{name:>14}' for name in whole)}")
    for method in sorted(reference, key=reference.get, reverse=True)[:10]:
        figures.note(f"{'  '.join(f'{100 * of.get(method, 0):14.2f}' for of in shares.values())}  {method[:80]}")
