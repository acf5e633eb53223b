"""What sampling waiting time costs programs that wait: turns without a profiler, and with each event."""

import contextlib
import os
import re
import statistics
import subprocess
import time

from . import programs
from .tools import recording
from .turns import OFF, append, failure, perf_record, ratios, rotations, spread

CPU_EVENT, WAIT, WALL = "-e cpu", "-e wait", "-e wall"
SWITCH = "sched:sched_switch"
PERF, OFFCPUTIME = f"perf -e {SWITCH}", "offcputime"
# By the name for `--profiler`.
PROFILERS = {"cpu": CPU_EVENT, "wait": WAIT, "wall": WALL, "perf": PERF, "offcputime": OFFCPUTIME}
RATE = 99
# With waits the kernel times the programs in the first second, and then in one second of eight.
TIMED_S = 1
PING_PONG_S = 2
ROUND_TRIP, CPU, SWITCHES = "round_trip_ns", "cpu_ns", "switches"
# Lines of wrk's output. The first figure has no unit.
WRK = {
    "requests_per_s": r"Requests/sec:\s+([\d.]+)()",
    "p50_us": r"\s50%\s+([\d.]+)(\w+)",
    "p99_us": r"\s99%\s+([\d.]+)(\w+)",
}
UNITS = {"": 1, "us": 1, "ms": 1e3, "s": 1e6, "m": 6e7}


def measure(bench, jdk):
    """Measures ping-pongs between two threads, then the web service."""
    waits, figures, args = Waits(bench), bench.figures, bench.args
    rates = args.rate or [RATE]
    only_web = args.program == [programs.WEB]
    for rate in [] if only_web else rates:
        figures.heading(f"waits: ping-pongs at {rate} Hz, {args.turns} turns of {PING_PONG_S} s")
        for name, kinds in waits.in_turns(rate, waits.ping_pongs()).items():
            compare_round_trips(figures, name, kinds)
    if missing := programs.missing(programs.WEB):
        figures.lack(f"waits of the {programs.TITLES[programs.WEB]}", missing)
        return
    bench.cache.fill()
    with programs.serving(bench.cache, jdk, bench.work / "waits-web.log") as url:
        for rate in rates:
            figures.heading(f"waits: web service at {rate} Hz, {args.turns} turns of {args.seconds} s, {jdk.name}")
            seen = waits.in_turns(rate, {"web": lambda: requests(url, args.seconds)})
            compare_requests(figures, seen["web"])


class Waits:
    """The profilers, in turns, beside the same programs."""

    def __init__(self, bench):
        self.bench, self.figures = bench, bench.figures
        self.log = bench.work / "waits.jsonl"
        self.log.unlink(missing_ok=True)
        self.kinds = [OFF, *(PROFILERS[name] for name in bench.args.profiler or PROFILERS)]
        self.perf_data = self.bench.work / "waits.perf.data"
        self.others = {PERF: perf_record(SWITCH, self.perf_data, "-a"), OFFCPUTIME: ["offcputime", "--stack-storage-size", "16384"]}
        for kind, probe in {PERF: [*perf_record(SWITCH, "/dev/null", "-a"), "--", "true"], OFFCPUTIME: ["offcputime", "1"]}.items():
            if kind in self.kinds and (why := failure(probe)):
                self.figures.lack(f"waits with {kind}", why)
                self.kinds.remove(kind)

    def ping_pongs(self):
        """Functions that run a ping-pong and return its figures, by name."""
        binary = programs.compiled("pingpong", self.bench.work, "-pthread")
        if not binary:
            self.figures.lack("waits of ping-pongs", programs.NO_COMPILER)
            return {}
        one, *others = sorted(os.sched_getaffinity(0))
        places = {f"{kind}, both threads on CPU {one}": (kind, one, one) for kind in ("pipes", "futexes")}
        if others:
            places[f"pipes, threads on CPUs {one} and {others[0]}"] = ("pipes", one, others[0])
        else:
            self.figures.lack("waits of a ping-pong between CPUs", "only one CPU")
        return {name: lambda place=place: ping_pong(binary, *place) for name, place in places.items()}

    def in_turns(self, rate, works):
        """Runs all works for each kind, in an order that rotates. Returns lists of figures, by work and kind."""
        seen = {name: {kind: [] for kind in self.kinds} for name in works}
        for turn, kinds in enumerate(rotations(self.bench.args.turns if works else 0, self.kinds)):
            for kind in kinds:
                with self.profiler(kind, rate):
                    found = {name: work() for name, work in works.items()}
                for name, values in found.items():
                    seen[name][kind].append(values)
                    append(self.log, {"program": name, "kind": kind, "rate": rate, "turn": turn, **values})
        return seen

    def profiler(self, kind, rate):
        """A context manager that profiles all processes."""
        if kind == OFF:
            return contextlib.nullcontext()
        return self.other(kind) if kind in self.others else self.jbpf_prof(kind, rate)

    @contextlib.contextmanager
    def jbpf_prof(self, kind, rate):
        with self.bench.ours.sampling("waits", rate, "--all", *kind.split()) as run:
            time.sleep(TIMED_S)
            yield
        cost = run.report["cost"]
        bpf, runs = cost["bpf_s"] or float("nan"), cost["bpf_runs"] or 1
        each = f"BPF {1e9 * bpf / runs:.0f} ns a run, {runs} runs"
        self.figures.note(f"{kind}: own CPU {run.cpu:.2f} s in {run.wall:.1f} s, start included; {each}")

    @contextlib.contextmanager
    def other(self, kind):
        with recording(self.others[kind], self.bench.work) as run:
            yield
        data = self.perf_data
        written = f", {data.stat().st_size / 2**20:.1f} MiB written" if data.exists() else ""
        data.unlink(missing_ok=True)
        self.figures.note(f"{kind}: own CPU {run.cpu:.2f} s in {run.wall:.1f} s{written}")


def ping_pong(binary, *place):
    """Wall time, CPU time and context switches of a round trip."""
    command = [binary, *map(str, place), str(PING_PONG_S)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rounds, *totals = map(int, out.split())
    return dict(zip((ROUND_TRIP, CPU, SWITCHES), (total / rounds for total in totals)))


def requests(url, seconds):
    """Throughput and latency of the service under load."""
    command = programs.wrk(url, seconds, "--latency")
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {name: re.search(pattern, out) for name, pattern in WRK.items()}
    return {name: float(match[1]) * UNITS[match[2]] for name, match in found.items()}


def compare_round_trips(figures, name, kinds):
    """Compares each profiler with no profiler in the same turn, by wall and by CPU time of both threads."""
    off = kinds.pop(OFF)
    figures.say(f"{name}: a round trip, {OFF}", statistics.median(one[ROUND_TRIP] for one in off), "ns")
    figures.note("; ".join(f"{key} {spread([one[key] for one in off])}" for key in off[0]))
    for kind, turns in kinds.items():
        pairs = list(zip(turns, off))
        for key, what in ((ROUND_TRIP, ""), (CPU, ", CPU time")):
            trip = [one[key] - bare[key] for one, bare in pairs]
            switch = [added / one[SWITCHES] for added, one in zip(trip, turns)]
            figures.say(f"  {kind}: a context switch{what}, added", statistics.median(switch), "ns")
            figures.note(f"{spread(switch)}; a round trip {spread(trip)}, to {OFF} {ratios(key, pairs)}")


def compare_requests(figures, kinds):
    off = kinds.pop(OFF)
    for key in WRK:
        figures.say(f"{key}, {OFF}", statistics.median(one[key] for one in off))
        figures.note(spread([one[key] for one in off]))
        for kind, turns in kinds.items():
            pairs = list(zip(turns, off))
            figures.note(f"{kind}: {spread([one[key] for one in turns])}, to {OFF} {ratios(key, pairs)}")
