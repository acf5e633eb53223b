"""What a node keeps and pushes, and what counting in the kernel saves: the table of docs/scaling.md.

A host of 64 busy CPUs at 19 Hz has as many ticks as one of two at 608 Hz.
"""

import gzip
import os
import re

from .stacks import share

DAEMON_HZ = 19
NODES, NODE_CPUS = 10_000, 64
# The length of the daemon's windows.
WINDOW_S = 10
WINDOW = re.compile(r"window \d+: (\d+) ticks, (\d+) stacks")


def measure(bench, jvm):
    """Records windows like the daemon's, of all processes beside the program."""
    figures, cpus = bench.figures, len(os.sched_getaffinity(0))
    figures.heading(f"scaling: windows of {WINDOW_S} s, {cpus} CPUs with the program on {jvm.jdk.name}")
    for rate, what in [(DAEMON_HZ, "this host"), (DAEMON_HZ * NODE_CPUS // cpus, f"as {NODE_CPUS} CPUs at {DAEMON_HZ} Hz")]:
        formats = ["folded", "pb.gz"]
        run = bench.ours.start("scaling", rate, "--all", "--java=vm", "-vv", seconds=WINDOW_S, formats=formats)
        stacks, report = bench.ours.result(run)
        left = sum(int(stacks) for _, stacks in WINDOW.findall(run.err))
        kept = report["accounts"]["kept"]
        packed = (bench.work / "scaling.pb.gz").read_bytes()
        figures.note(f"{rate} Hz, {what}:")
        figures.say("ticks that became samples", kept)
        figures.say("stacks that left the kernel, distinct within a second", left)
        figures.say("  fewer than with one for each tick", 100 * (1 - share(left, kept)), "%")
        figures.say(f"distinct stacks in {WINDOW_S} s", len(stacks.counts))
        figures.say("frames of a sample, mean", share(sum(n * len(s) for s, n in stacks.counts.items()), stacks.total()))
        figures.say("pprof, unpacked", len(gzip.decompress(packed)) / 1000, "KB")
        figures.say("pprof, as kept and pushed", len(packed) / 1000, "KB")
        figures.say("  an hour", len(packed) * 3600 / WINDOW_S / 1e6, "MB")
        figures.say(f"  {NODES:,} nodes", len(packed) * NODES / WINDOW_S / 1e6, "MB/s")
