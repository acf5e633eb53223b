"""The cost of a change: the old and the new binary alternate, on the same JVM and beside the same processes."""

import shutil
import statistics
import subprocess

from .tools import JbpfProf

# The highest ratio of new to old, for each figure.
MOST = 1.03
# Processes that exist when a run begins; a node has some hundred.
PROCESSES = 200
FIGURES = {
    "BPF a sample (us)": lambda run, stacks, report: 1e6 * report["cost"]["bpf_s"] / max(1, stacks.total()),
    "a run of the BPF program (us)": lambda run, stacks, report: 1e6 * report["cost"]["bpf_s"] / report["cost"]["bpf_runs"],
    "own CPU in steady state (% of one core)": lambda run, stacks, report: run.steady.percent(),
    "own CPU of the whole run (s)": lambda run, stacks, report: run.cpu,
    "memory (MiB)": lambda run, stacks, report: run.peak_kib / 1024,
    "from Ctrl-C to the files (s)": lambda run, stacks, report: run.after_stop,
}


def measure(bench, jvm, before):
    """Alternates the binaries, because the host changes over time, and their order, because the JVM does."""
    old, ours = both(bench, before)
    for rate in bench.rates:
        bench.figures.heading(f"now to before at {rate} Hz, {jvm.jdk.name}")
        seen = {old: [], ours: []}
        for turn in range(bench.args.turns):
            for one in (old, ours) if turn % 2 == 0 else (ours, old):
                run = one.start("paired", rate, "--all", stop_after=bench.args.seconds, steady_after=bench.args.seconds / 3)
                stacks, report = one.result(run)
                seen[one].append([figure(run, stacks, report) for figure in FIGURES.values()])
        compare(bench.figures, FIGURES, seen[old], seen[ours])
    beside_many(bench, old, ours)


def both(bench, before):
    """Fresh copies of both: how much of a file a process maps depends on its layout in the page cache."""
    copies = [bench.work / name for name in ("before", "now")]
    for binary, copy in zip([before, bench.ours.binary], copies):
        shutil.copy(binary, copy)
    return [JbpfProf(copy, bench.work, bench.ours.options) for copy in copies]


def beside_many(bench, old, ours):
    """Runs of one second: the cost of start and end."""
    bench.figures.heading(f"now to before, one second beside {PROCESSES} processes")
    idle = [subprocess.Popen(["sleep", "600"]) for _ in range(PROCESSES)]
    try:
        seen = {old: [], ours: []}
        for turn in range(2 * bench.args.turns):
            for one in seen if turn % 2 == 0 else reversed(seen):
                run = one.start("many", 99, "--all", seconds=1, formats=["folded"]).wait()
                seen[one].append([run.wall, run.cpu, run.peak_kib / 1024])
    finally:
        for one in idle:
            one.kill()
            one.wait()
    compare(bench.figures, ["time (s)", "own CPU (s)", "memory (MiB)"], seen[old], seen[ours])


def compare(figures, names, before, now):
    for name, old, new in zip(names, zip(*before), zip(*now)):
        was, is_now = statistics.median(old), statistics.median(new)
        figures.note(f"{name}: {was:.3f} before ({min(old):.3f} to {max(old):.3f}), {is_now:.3f} now ({min(new):.3f} to {max(new):.3f})")
        figures.say(f"{name}, ratio", is_now / was if was else float("nan"), most=MOST)
