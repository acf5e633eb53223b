"""Time in which Java threads wait, in the same seconds by jbpf-prof, async-profiler's wall mode, and JFR's events."""

import collections
import datetime
import json
import re
import subprocess
import time

from . import jdks
from .cache import BENCH
from .jvm import Jvm
from .sampled import agree, sampling
from .stacks import SUFFIX
from .tools import AsyncProfiler

# A period below the program's naps of 4 ms: see the limits in docs/waiting.md.
RATE = 499
# No multiple of it is near a multiple of the program's naps: in step with these, the samples would be false.
WALL_US = 7300
PROGRAM = BENCH.parent / "tests" / "programs" / "Locks.java"
EVENTS = ["jdk.JavaMonitorEnter", "jdk.JavaMonitorWait", "jdk.ThreadPark", "jdk.ThreadSleep"]
# The class of the lock in the leaf of jbpf-prof, and the method in which threads wait for the lock.
LOCKS = {
    "monitor Locks$Cache": "Locks.enterCache",
    "monitor Locks$Index": "Locks.enterIndex",
    "monitor byte[]": "Locks.enterBytes",
    "park java.util.concurrent.locks.ReentrantLock$FairSync": "Locks.takeLock",
    "Object.wait java.util.concurrent.locks.ReentrantLock": "Locks.waitForNews",
}
SLEEP, THREAD_SLEEP = "timer", "java.lang.Thread.sleep"
DEADLOCK, DEADLOCKED = "Locks.deadlock", ["[wait: monitor Locks$Left]", "[wait: monitor Locks$Right]"]
# Events that are still open when sampling ends are in the recording a moment later.
LATE_S = 1
# Percent.
BOUND = 5


def measure(bench, jdk):
    """Compares the sums by class of the lock."""
    figures, seconds = bench.figures, bench.args.seconds
    if int(jdks.major(jdk.version)) < 17:
        figures.lack(f"times of locks on {jdk.name}", "JFR of a JDK before 17 takes no thresholds on the command line")
        return
    bench.cache.fill()
    subprocess.run([*jdks.builds(), "-d", bench.work, PROGRAM], check=True)
    for rate in bench.args.rate or [RATE]:
        figures.heading(f"times of locks, {jdk.name}, {rate} Hz, {seconds} s")
        compare(bench, jdk, rate, seconds)


def compare(bench, jdk, rate, seconds):
    figures, recording = bench.figures, bench.work / "locks.jfr"
    flags = ["-XX:StartFlightRecording:" + ",".join(f"{event}#threshold=0ms" for event in EVENTS)]
    with Jvm(jdk, str(bench.work), bench.work / "locks.log", "Locks", flags=flags) as jvm:
        jvm.wait_for("ready", 1, 60)
        rival = AsyncProfiler(jvm, bench.cache.agent, bench.work)
        with sampling(bench.ours, "locks", rate, "-p", str(jvm.pid)) as found:
            rival.start_wall(WALL_US)
            begin = time.time()
            time.sleep(seconds)
            end = time.time()
            wall = rival.stop("locks")
        time.sleep(LATE_S)
        jvm.jcmd("JFR.dump", f"filename={recording}")
    profile = found[0]
    # The profile has some moments more, in which the other profiler starts and stops.
    scale = (end - begin) / profile.duration
    events = recorded(recording, begin, end)
    seen = by_lock_of(wall)
    # These threads wait all the time, so their samples show how many samples of async-profiler are a second.
    unit = (end - begin) * len(DEADLOCKED) / seen[DEADLOCK]
    figures.note(f"async-profiler: a sample is {1e6 * unit:.0f} us of {WALL_US}; events of JFR: {sum(events.values()):.0f} s")
    for lock, method in {**LOCKS, SLEEP: THREAD_SLEEP}.items():
        waited = profile.until_cpu(lambda frames: in_method(frames, method), f"[wait: {lock}]")
        # A thread spins for a while before it waits.
        spun = profile.ran(lambda frames: in_method(frames, method))
        ours = scale * (waited + spun)
        agree(figures, f"{lock}, beside JFR", ours, events[lock], BOUND)
        agree(figures, f"{lock}, beside async-profiler", ours, unit * seen[lock], BOUND)
    deadlocked = profile.seconds(lambda frames: frames[-1] in DEADLOCKED)
    agree(figures, "two threads in a deadlock, beside the clock", scale * deadlocked, 2 * (end - begin), BOUND)
    figures.say("waiting time of Java threads that reaches the root (%)", profile.java_to_root(), least=99)


def in_method(frames, method):
    """Whether threads wait in the method itself, not in a `Thread.sleep` that the method calls."""
    return method in frames and (method == THREAD_SLEEP or THREAD_SLEEP not in frames)


def recorded(file, begin, end):
    """Seconds of JFR's events between two times, by lock."""
    command = [jdks.tool("jfr"), "print", "--json", "--stack-depth", "1", "--events", ",".join(EVENTS), file]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = collections.Counter()
    for event in json.loads(said)["recording"]["events"]:
        values = event["values"]
        first = datetime.datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", values["startTime"])).timestamp()
        last = first + float(re.fullmatch(r"PT([\d.]+)S", values["duration"])[1])
        seconds[lock_of(event["type"], values)] += max(0, min(last, end) - max(first, begin))
    return seconds


def lock_of(kind, values):
    """The name of an event's lock in jbpf-prof's words."""
    of = values.get("monitorClass") or values.get("parkedClass")
    name = of["name"].replace("/", ".").replace("[B", "byte[]") if of else ""
    reason = dict(zip(EVENTS, ("monitor", "Object.wait", "park", SLEEP)))[kind]
    return f"{reason} {name}".rstrip()


def by_lock_of(stacks):
    """Samples of async-profiler by lock. Threads that sleep in a method do not wait for its lock."""
    samples, by_method = collections.Counter(), {method: lock for lock, method in LOCKS.items()} | {DEADLOCK: DEADLOCK}
    for stack, n in stacks.counts.items():
        names = [SUFFIX.sub("", frame).replace("/", ".") for frame in stack]
        lock = SLEEP if THREAD_SLEEP in names else next((by_method[name] for name in names if name in by_method), "")
        samples[lock] += n
    return samples
