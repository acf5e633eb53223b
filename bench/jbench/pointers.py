"""One program with and without frame pointers in Java code: the profiles differ no more than equal runs do."""

import collections
import itertools
import statistics

from . import programs
from .jvm import EXACT
from .stacks import normal, normalised, variation

# Runs of each kind: ten pairs of equal kind, twenty-five of different kinds.
RUNS = 5
FLAG = "-XX:+PreserveFramePointer"
# Frames of a leaf and its callers, which a failed unwind gets wrong. Most whole stacks occur only once.
DEPTH = 4


def measure(bench, name, jdk):
    """Alternates runs of both kinds, each in its own JVM, because the JIT compiles differently each time."""
    bench.figures.heading(f"frame pointers or none: {programs.TITLES[name]} on {jdk.name}, {RUNS} JVMs of each")
    without, with_flag = [], []
    for turn in range(RUNS):
        for flags, runs in [([], without), ([FLAG], with_flag)]:
            log = bench.work / f"{name}.log"
            with programs.running(name, bench.cache, jdk, log, [*EXACT, *flags, *bench.args.flag], bench.args.warm_rounds) as jvm:
                kind = "with" if flags else "without"
                run = bench.ours.start(f"{kind}-{turn}", max(bench.rates), "--pid", str(jvm.pid), seconds=bench.args.seconds)
                stacks, _ = bench.ours.result(run)
            bench.figures.say(f"samples, {kind}", stacks.total())
            runs.append(paths(stacks))
    same = [variation(*pair) for runs in (without, with_flag) for pair in itertools.combinations(runs, 2)]
    other = [variation(*pair) for pair in itertools.product(without, with_flag)]
    bench.figures.say("total variation, pairs of one kind, median", statistics.median(same))
    bench.figures.say("  95th percentile", bound := percentile(same, 95))
    bench.figures.say("total variation, one of each kind, median", statistics.median(other), most=bound)


def paths(stacks):
    """The share of each leaf with its callers."""
    counts = collections.Counter()
    for stack, n in stacks.counts.items():
        counts[tuple(normal(frame) for frame in stack[-DEPTH:])] += n
    return normalised(counts)


def percentile(values, percent):
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
