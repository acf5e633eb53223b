"""The daemon under hours of a host's work: processes, classes and containers that come and go, many JVMs.

Its resources must stay flat. The slope of a line through the second half of the measurements is printed for memory,
kernel memory of maps, descriptors, threads and files.
"""

import json
import math
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading
import time

from . import jdks

# Growth an hour that is not yet a leak: a cache that is not full grows, too. Unwind tables are in maps of 1 MiB, each
# with a descriptor, at most 60; files that running programs have mapped are open.
BOUNDS = {"resident KiB": 4096, "maps KiB": 512, "BPF maps": 1, "mapped files": 8, "other fds": 2}
BOUNDS |= {"threads": 1, "children": 1, "files": 4}
CPU, RATE = "own CPU seconds", "rate"
# The daemon first reads all processes and all their names; this time has its own figure.
START_S = 60


class Storm:
    """Repeats work in a thread until `end`, or until the work fails."""

    def __init__(self, work):
        self.ended = threading.Event()
        self.rounds = 0
        self.failed = None
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self.thread.start()

    def _run(self, work):
        while not self.ended.is_set():
            try:
                work()
            except (OSError, subprocess.CalledProcessError) as error:
                self.failed = error
                return
            self.rounds += 1

    def end(self):
        self.ended.set()
        self.thread.join()


def processes():
    """Starts twenty processes that end at once."""
    for child in [subprocess.Popen(["/bin/true"]) for _ in range(20)]:
        child.wait()
    time.sleep(0.1)


def container(work):
    """Runs a container that lives for a moment."""

    def one():
        name = f"soak-{time.monotonic_ns()}"
        command = ["runc", "--root", work / "runc", "run", "--bundle", work / "bundle", name]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        time.sleep(1)

    return one


def bundle(work):
    """Makes a bundle for a short read-only container with the host's programs."""
    directory = work / "bundle"
    # The host's root itself cannot be a container's root: `pivot_root` would have to put the root below itself.
    own = [one for one in ("usr", "bin", "lib", "lib64") if pathlib.Path("/", one).exists()]
    for place in ["proc", *own]:
        (directory / "root" / place).mkdir(parents=True)
    binds = [{"destination": f"/{one}", "type": "bind", "source": f"/{one}", "options": ["rbind", "ro"]} for one in own]
    namespaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
        },
        "root": {"path": "root", "readonly": True},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, *binds],
        "linux": {"namespaces": namespaces},
    }
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")


class Daemon:
    """A daemon that is measured from outside."""

    def __init__(self, binary, work, *more, api="off"):
        self.work = work
        command = [binary, "daemon", "--directory", work / "data", "--metrics", f"unix:{work}/metrics.sock"]
        command += ["--api", api, "--kill-switch", work / "stop", *more]
        self.log = open(work / "daemon.log", "w", encoding="utf-8")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def metrics(self):
        """Each metric, summed over its labels."""
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(self.work / "metrics.sock"))
            stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: stream.recv(65536), b"")).decode()
        sums = {}
        for name, value in re.findall(r"^jbpf_prof_(\w+)(?:\{.*\})? (\S+)$", text, re.MULTILINE):
            sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def look(self):
        """Resources in use, CPU time, and sampling rate."""
        proc = pathlib.Path(f"/proc/{self.process.pid}")
        metrics = self.metrics()
        children = (proc / f"task/{self.process.pid}/children").read_text().split()
        for task in proc.glob("task/*/children"):
            children = set(children) | set(task.read_text().split())
        descriptors = [os.readlink(one) for one in (proc / "fd").iterdir() if one.is_symlink()]
        maps = sum(name == "anon_inode:bpf-map" for name in descriptors)
        mapped = sum(name.startswith("/") and not name.startswith("/proc") for name in descriptors)
        return {
            "resident KiB": metrics["resident_bytes"] / 1024,
            "  of these the broker's": int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024,
            "cached addresses": metrics["cached_addresses"],
            "maps KiB": metrics["maps_bytes"] / 1024,
            "BPF maps": maps,
            "mapped files": mapped,
            "other fds": len(descriptors) - maps - mapped,
            "threads": len(list((proc / "task").iterdir())),
            "children": len(children),
            "files": sum(1 for _ in (self.work / "data").rglob("*")) - metrics["windows_kept"],
            CPU: metrics["cpu_seconds_total"],
            RATE: metrics["frequency_hertz"],
        }

    def end(self):
        self.process.terminate()
        code = self.process.wait(30)
        self.log.close()
        return code


def slope(points):
    """The slope of the least squares line through (hours, value)."""
    n = len(points)
    mean_x, mean_y = (sum(column) / n for column in zip(*points))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def costliest(looks, after):
    """The highest CPU use in any minute that begins after this second."""
    points = [(hours * 3600, look[CPU]) for hours, look in looks if hours * 3600 >= after]
    minutes = [(a, b) for a in points for b in points if 55 <= b[0] - a[0] < 65]
    return max(((used - before) / (end - begin) for (begin, before), (end, used) in minutes), default=math.nan)


def measure(binary, work, figures, jdk, minutes, jvms):
    """Runs the daemon under load for some minutes, and reports how its resources grow."""
    figures.heading(f"soak: {minutes} minutes, {jvms} JVMs, processes, containers")
    source = pathlib.Path(__file__).parent.parent / "programs/Churn.java"
    subprocess.run([*jdks.builds(), "-d", work / "churn", source], check=True)
    storms = [Storm(processes)]
    if not shutil.which("runc"):
        raise RuntimeError("the soak needs runc for its containers: apt-get install runc")
    bundle(work)
    storms.append(Storm(container(work)))
    # Each JVM loads and unloads classes: every round defines some in a new loader.
    programs = [
        subprocess.Popen(
            [*jdk.java, "-Xmx64m", "-XX:+UseSerialGC", "-XX:+PreserveFramePointer", "-cp", work / "churn", "Churn"],
            stdout=subprocess.DEVNULL,
        )
        for _ in range(jvms)
    ]
    daemon = Daemon(binary, work)
    looks, start = [], None
    try:
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) < minutes * 60:
            if start is None and passed >= START_S:
                start = (passed, daemon.metrics()["cpu_seconds_total"])
            time.sleep(10)
            if daemon.process.poll() is not None:
                raise RuntimeError(f"the daemon ended: {(work / 'daemon.log').read_text()}")
            try:
                looks.append(((time.monotonic() - begin) / 3600, daemon.look()))
            except (FileNotFoundError, ConnectionError, KeyError):
                pass  # the daemon has not begun, or a task has just ended
        metrics, end = daemon.metrics(), time.monotonic() - begin
    finally:
        for storm in storms:
            storm.end()
        for program in programs:
            program.kill()
            program.wait()
        code = daemon.end()
    for storm in storms:
        if storm.failed:
            raise RuntimeError("a storm was none") from storm.failed
    half = looks[len(looks) // 2 :]
    for name, last in half[-1][1].items():
        if name not in (CPU, RATE):
            grows = slope([(hours, look[name]) for hours, look in half])
            figures.say(f"{name}: {last:.0f}, grows in an hour by", grows, most=BOUNDS.get(name))
    held = max(look["resident KiB"] + look["maps KiB"] for _, look in looks) / 1024
    figures.say("the most memory that it ever held, BPF maps included", held, "MiB", most=128)
    (work / "looks.json").write_text(json.dumps(looks), encoding="utf-8")
    (passed, spent), cpus = start, len(os.sched_getaffinity(0))
    share = (metrics["cpu_seconds_total"] - spent) / (end - passed) / cpus * 100
    figures.say(f"own CPU, of the host, from second {passed:.0f} on", share, "%", most=0.5)
    figures.say("own CPU, of the host, in the costliest minute after that", costliest(looks, passed) / cpus * 100, "%")
    figures.say("the lowest rate", min(look[RATE] for _, look in looks), "Hz", least=looks[0][1][RATE])
    figures.say("own CPU time until then", spent, "s")
    figures.say("windows", int(metrics["windows_total"]))
    figures.say("processes and containers", ", ".join(str(storm.rounds) for storm in storms))
    figures.say("exit code", code)
