"""Java allocations: the sites that jbpf-prof, async-profiler and JFR find, and what sampling them costs the program."""

import collections
import json
import re
import signal
import statistics
import subprocess

from . import jdks
from .rivals import between, rounds_of
from .stacks import Stacks, hottest, normal, normalised, variation
from .tools import AsyncProfiler

NONE, OURS, ASYNC, JFR = "none", "jbpf-prof", "async-profiler", "JFR"
SAMPLERS = [OURS, ASYNC, JFR]
# The interval of jbpf-prof and of async-profiler by default, bytes.
INTERVAL = 512 << 10
# JFR's event of samples, and the first JDK that has the event.
EVENT, FIRST_JDK = "jdk.ObjectAllocationSample", 16
TOP = 20
# The most CPU time that `-e alloc` may add to a round of the program at the default interval, percent.
MOST = 1
# The names of arrays of primitive types in class files.
ARRAYS = {"Z": "boolean", "B": "byte", "C": "char", "D": "double", "F": "float", "I": "int", "J": "long", "S": "short"}


def measure(bench, jvm):
    figures = bench.figures
    figures.heading(f"allocations, {jvm.jdk.name}: {bench.args.turns} turns of {bench.args.seconds} s or more each")
    has_jfr = int(jdks.major(jvm.jdk.version)) >= FIRST_JDK
    if not has_jfr:
        figures.lack(f"{EVENT} of {jvm.jdk.name}", f"JDKs before {FIRST_JDK} do not have the event")
    sites(bench, jvm, SAMPLERS if has_jfr else SAMPLERS[:2])
    cost(bench, jvm)


def start(bench, jvm, extension):
    """Starts jbpf-prof on the program's allocations."""
    return bench.ours.start("allocations", None, "-e", "alloc", "--pid", str(jvm.pid), formats=[extension])


class Sites:
    """Allocated bytes by site: the method that allocates and the class of the object."""

    def __init__(self, bench, jvm):
        self.bench, self.jvm = bench, jvm
        self.objects = self.allocated = 0

    def of(self, name):
        """The sites that a profiler finds in whole rounds of the program's work."""
        stop = {OURS: self.ours, ASYNC: self.async_profiler, JFR: self.jfr}[name]()
        rounds_of(self.jvm, self.bench.args.seconds)
        return stop()

    def ours(self):
        ours, run = self.bench.ours, start(self.bench, self.jvm, "folded")

        def stop():
            run.child.send_signal(signal.SIGINT)
            stacks, report = ours.result(run)
            self.objects += report["objects"]
            self.allocated += report["allocated"]["profiled"]
            return by_site(stacks)

        return stop

    def async_profiler(self):
        rival = AsyncProfiler(self.jvm, self.bench.cache.agent, self.bench.work)
        rival.start_alloc(INTERVAL)
        return lambda: by_site(rival.stop("allocations", "total"))

    def jfr(self):
        file = self.bench.work / "allocations.jfr"
        self.jvm.jcmd("JFR.start", "name=allocations", "settings=profile")

        def stop():
            self.jvm.jcmd("JFR.stop", "name=allocations", f"filename={file}")
            return recorded(file)

        return stop


def sites(bench, jvm, names):
    """Compares the shares of the largest sites. The yardstick is jbpf-prof beside itself, in other turns."""
    figures, seen, found = bench.figures, Sites(bench, jvm), collections.defaultdict(list)
    for turn in range(bench.args.turns):
        for name in names if turn % 2 == 0 else reversed(names):
            found[name].append(seen.of(name))
    whole = {name: normalised(sum(turns, collections.Counter())) for name, turns in found.items()}
    if found[OURS][1:]:
        even, odd = (normalised(sum(found[OURS][at::2], collections.Counter())) for at in (0, 1))
        figures.say("total variation of sites, jbpf-prof's turns", variation(even, odd))
    for name in names[1:]:
        off = sum(abs(ours - theirs) > bound for _, theirs, ours, bound in hottest(whole[name], whole[OURS], TOP))
        figures.say(f"total variation of sites, jbpf-prof to {name}", variation(whole[name], whole[OURS]))
        figures.say(f"  of the {TOP} largest sites, out of bounds", off)
    figures.say("bytes of an object by jbpf-prof, mean", seen.allocated / max(1, seen.objects))
    figures.note("share of bytes (%):")
    figures.note("  ".join(f"{name:>14}" for name in whole))
    for site in sorted(whole[OURS], key=whole[OURS].get, reverse=True)[:TOP]:
        shares = "  ".join(f"{100 * of.get(site, 0):14.2f}" for of in whole.values())
        figures.note(f"{shares}  {' '.join(site)[:90]}")


def cost(bench, jvm):
    """Rounds with `-e alloc` between rounds without: the CPU time includes the breakpoints and the BPF program."""
    figures, rounds, own, calls = bench.figures, collections.defaultdict(list), [], []
    for turn in range(2 * bench.args.turns + 1):
        name = OURS if turn % 2 else NONE
        run = start(bench, jvm, "pb.gz") if name == OURS else None
        rounds[name].append(statistics.median(cpu for _, cpu in rounds_of(jvm, bench.args.seconds)))
        if run:
            run.interrupt()
            report = json.loads(run.out[run.out.index("{") :])
            own.append(100 * run.cpu / run.wall)
            calls.append(report["allocated"]["profiled_calls"] / report["duration_s"])
    bare = rounds[NONE]
    added = [100 * (one / between(*around, 0.5) - 1) for one, around in zip(rounds[OURS], zip(bare, bare[1:]))]
    figures.say("a round of the program, no profiler, CPU time", statistics.median(bare), "s")
    figures.say("  from turn to turn, standard deviation", 100 * statistics.stdev(bare) / statistics.mean(bare), "%")
    figures.say("-e alloc: CPU time that it adds to a round (%)", statistics.median(added), "%", most=MOST)
    figures.note(f"each turn: {', '.join(f'{one:+.2f}' for one in added)}")
    figures.say("  sampled calls of the JVM a second", statistics.median(calls))
    figures.say("  own CPU beside the program, of one core (%)", statistics.median(own))


def by_site(stacks):
    """The counts of stacks by the innermost method and the class at the leaf. Stacks without a Java method are left out."""
    sites = collections.Counter()
    for stack, n in stacks.counts.items():
        if len(stack) > 1 and re.search(r"_\[[ji01]\]$", stack[-2]):
            sites[normal(stack[-2]), class_name(stack[-1])] += n
    return sites


def class_name(leaf):
    """The class in a leaf of jbpf-prof or async-profiler: `int[]` of `[new: int[]]` and of `int[]_[i]`."""
    leaf = re.sub(r"_\[[a-z]\]$", "", leaf)
    if named := re.fullmatch(r"\[new: (.*)\]", leaf):
        leaf = named[1]
    return normal(leaf.replace("/", ".") + "_[j]")


def recorded(file):
    """The weights of JFR's samples by site. The first sample of a thread stands for all that it allocated before the recording."""
    command = [jdks.tool("jfr"), "print", "--json", "--stack-depth", "1", "--events", EVENT, file]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    sites, threads = collections.Counter(), set()
    for values in sorted((event["values"] for event in json.loads(said)["recording"]["events"]), key=lambda of: of["startTime"]):
        thread = (values.get("eventThread") or {}).get("javaThreadId")
        if thread not in threads:
            threads.add(thread)
            continue
        frames = (values.get("stackTrace") or {}).get("frames")
        if frames:
            method = frames[0]["method"]
            site = normal(f"{method['type']['name']}.{method['name']}_[j]")
            sites[site, class_name(java_class(values["objectClass"]["name"]))] += values["weight"]
    return sites


def java_class(name):
    """A class's name in Java's words: `int[]` of `[I`, `a.B[]` of `[La/B;`."""
    element = name.lstrip("[")
    depth = len(name) - len(element)
    if depth:
        element = ARRAYS.get(element) or element.removeprefix("L").removesuffix(";")
    return element.replace("/", ".") + "[]" * depth
