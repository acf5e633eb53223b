"""What the cgroup filter saves: a small group on a busy machine, with -G and with --all, alternating."""

import os
import pathlib
import statistics
import subprocess
import sys

# Cgroup hierarchies that have containers' groups, in order of preference.
PLACES = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"]
# Many deep stacks: a busy interpreter.
BUSY = "def f(n):\n    return 1 if n < 2 else f(n - 1) + f(n - 2)\nwhile True: f(22)"


def measure(ours, figures, rate, seconds, turns=4):
    """Both costs, from the reports: own CPU time including the start, and the BPF program's time."""
    busy = 4 * len(os.sched_getaffinity(0))
    figures.heading(f"filter: -G with one of {busy} busy processes and --all, {rate} Hz, {turns} turns of {seconds} s")
    place = next(pathlib.Path(p) for p in PLACES if os.path.exists(f"{p}/cgroup.procs"))
    group = place / f"jbpf-prof-filter-{os.getpid()}"
    group.mkdir()
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    (group / "cgroup.procs").write_text(str(programs[0].pid))
    costs = {"-G": [], "--all": []}
    try:
        for turn in range(turns):
            for name, target in (("-G", ["-G", str(group)]), ("--all", ["--all"])):
                run = ours.start(f"filter-{turn}", rate, *target, seconds=seconds, formats=["folded"])
                costs[name].append(ours.result(run)[1])
    finally:
        for program in programs:
            program.kill()
            program.wait()
        group.rmdir()

    def median(name, of):
        return statistics.median(of(report) for report in costs[name])

    own = lambda report: sum(report["cost"][part] for part in ("broker_s", "worker_s", "helpers_s"))
    bpf = lambda report: 1e6 * report["cost"]["bpf_s"] / max(report["cost"]["bpf_runs"], 1)
    for name in costs:
        figures.say(f"{name}: samples", median(name, lambda report: report["accounts"]["kept"]))
        figures.say(f"{name}: own CPU time beside the BPF program's", median(name, own), "s")
        figures.say(f"{name}: BPF a tick", median(name, bpf), "us")
    figures.say("BPF a tick, -G to --all", median("-G", bpf) / median("--all", bpf), most=0.75)
