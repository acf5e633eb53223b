"""The profilers: how each is started, awaited, and measured."""

import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from .stacks import Stacks

# jbpf-prof attaches to all JVMs before sampling begins.
PATIENCE_S = 60
# Neither `perf record` nor `offcputime` prints a message when it begins.
OTHERS_START_S = 1


class Finished:
    """A child process, its output, and the cost of it and its children."""

    def __init__(self, command, cwd, stop_after=None, steady_after=None):
        begin = time.monotonic()
        # Files, not pipes: a pipe that is not read while the process runs would fill and block it.
        self.streams = [tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") for _ in range(2)]
        self.child = subprocess.Popen(command, cwd=cwd, stdout=self.streams[0], stderr=self.streams[1])
        self.peak_kib = 0
        self.fine = (0,)
        self.report = None
        self.stop_after, self.begin = stop_after, begin
        self.steady = Steady(self.child.pid, begin + steady_after) if steady_after else None

    def wait(self):
        stopped = None
        status = usage = None
        while True:
            pid, status, usage = os.wait4(self.child.pid, os.WNOHANG)
            if pid:
                break
            self.peak_kib = max(self.peak_kib, resident_kib(self.child.pid))
            if self.steady and stopped is None:
                self.steady.look()
            if stopped is None and self.stop_after and time.monotonic() - self.begin > self.stop_after:
                self.child.send_signal(signal.SIGINT)
                stopped = time.monotonic()
            # Reading takes CPU time, and evicts caches of the measured processes, so it is rare while the cost matters.
            time.sleep(0.1 if self.steady and stopped is None else 0.01)
        end = time.monotonic()
        self.child.returncode = os.waitstatus_to_exitcode(status)
        self.out, self.err = (self._text(stream) for stream in self.streams)
        self.wall = end - self.begin
        self.after_stop = end - stopped if stopped else None
        self.cpu = usage.ru_utime + usage.ru_stime
        if self.child.returncode not in self.fine:
            raise RuntimeError(f"{self.child.args}: exit code {self.child.returncode}\n{self.err}")
        return self

    def interrupt(self):
        """Ends the process like Ctrl-C; perf then exits by the signal."""
        self.child.send_signal(signal.SIGINT)
        self.fine = (0, -signal.SIGINT)
        return self.wait()

    @staticmethod
    def _text(stream):
        with stream:
            stream.seek(0)
            return stream.read()


@contextlib.contextmanager
def recording(command, cwd):
    """Runs another profiler while the body runs."""
    run = Finished(command, cwd)
    time.sleep(OTHERS_START_S)
    try:
        yield run
    finally:
        run.interrupt()


class Steady:
    """Cost of a profiler and its children in steady state: CPU time, and the time of its BPF programs."""

    def __init__(self, pid, after):
        self.pid, self.after, self.first, self.last = pid, after, None, None

    def look(self):
        now = time.monotonic()
        if now < self.after or (self.last and now < self.last[0] + 1):
            return
        self.last = (now, cpu_seconds(self.pid) + bpf_seconds(self.pid))
        self.first = self.first or self.last

    def percent(self):
        """The share of one core, in percent."""
        if not self.first or self.last[0] <= self.first[0]:
            return float("nan")
        return 100 * (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])


def cpu_seconds(pid):
    """CPU time of a process and its living children, by the scheduler's clock."""
    total = 0
    for one in [pid, *children(pid)]:
        for task in pathlib.Path(f"/proc/{one}/task").glob("*/schedstat"):
            try:
                total += int(task.read_text(encoding="ascii").split()[0])
            except (FileNotFoundError, ProcessLookupError):
                pass
    return total / 1e9


def bpf_seconds(pid):
    """Run time of the BPF programs of a process, which must have asked the kernel to measure it."""
    programs = {}
    for info in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = info.read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if (ran := re.search(r"^run_time_ns:\s*(\d+)", text, re.M)) and (name := re.search(r"^prog_id:\s*(\d+)", text, re.M)):
            programs[name[1]] = int(ran[1])
    return sum(programs.values()) / 1e9


def resident_kib(pid):
    """Resident memory of a process and its children. Memory of mapped files counts once for each process."""
    total = 0
    for one in [pid, *children(pid)]:
        try:
            status = pathlib.Path(f"/proc/{one}/status").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return total


def children(pid):
    found = []
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                found += [int(child), *children(child)]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


class JbpfProf:
    """jbpf-prof, by its command line and its JSON report."""

    def __init__(self, binary, directory, options=()):
        self.binary, self.directory = pathlib.Path(binary).resolve(), pathlib.Path(directory)
        self.options = options

    def start(self, name, rate, *target, seconds=None, stop_after=None, steady_after=None, formats=("folded", "svg", "pb.gz")):
        outputs = [f"--output={self.directory / f'{name}.{f}'}" for f in formats]
        duration = [f"--duration={seconds}"] if seconds else []
        clock = ["-F", str(rate)] if rate else []
        command = [self.binary, *clock, *self.options, *target, *duration, "--report=json", *outputs]
        self.folded = self.directory / f"{name}.folded"
        return Finished(command, self.directory, stop_after, steady_after)

    def result(self, finished, by_thread=False):
        finished.wait()
        begin = finished.out.find("{")
        report = json.loads(finished.out[begin:]) if begin >= 0 else {}
        return Stacks.read(self.folded, process_frame=True, thread_frame=by_thread), report

    @contextlib.contextmanager
    def sampling(self, name, rate, *options):
        """Samples while the body runs, which begins when sampling has begun. The run has its report after the body."""
        run = self.start(name, rate, "-v", *options, formats=["folded"])
        wait_until_sampling(run)
        try:
            yield run
        finally:
            run.child.send_signal(signal.SIGINT)
        run.report = self.result(run)[1]


def wait_until_sampling(run):
    """Waits for the message of `-v` that sampling has begun."""
    end = time.monotonic() + PATIENCE_S
    while b"sampling: begun" not in (messages := os.pread(run.streams[1].fileno(), 1 << 20, 0)):
        if run.child.poll() is not None or time.monotonic() > end:
            run.child.kill()
            raise RuntimeError(f"{run.child.args}: sampling does not begin\n{messages.decode()[-2000:]}")
        time.sleep(0.05)


class AsyncProfiler:
    """async-profiler, loaded into the JVM."""

    def __init__(self, jvm, library, directory):
        self.jvm, self.library, self.directory = jvm, library, pathlib.Path(directory)

    def start(self, rate):
        period = round(1e9 / rate)
        self.jvm.load(self.library, f"start,event=cpu,cstack=vmx,interval={period}ns")

    def start_wall(self, us):
        """Samples all threads, running or not, each of them every `us` microseconds."""
        self.jvm.load(self.library, f"start,event=wall,cstack=vmx,interval={us}us")

    def start_alloc(self, interval):
        """Samples allocations, one in so many bytes."""
        self.jvm.load(self.library, f"start,event=alloc,cstack=no,alloc={interval}")

    def start_native(self, interval):
        """Samples native allocations, one in so many bytes."""
        self.jvm.load(self.library, f"start,event=nativemem,cstack=vmx,nativemem={interval}")

    def stop(self, name, *options):
        file = self.directory / f"{name}.ap.folded"
        self.jvm.load(self.library, ",".join(["stop", "collapsed", "ann", *options, f"file={file}"]))
        return Stacks.read(file, process_frame=False)


class Perf:
    """perf record, with the JVM's own perf map."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)

    def start(self, name, rate, seconds=None, target=("-a",), call_graph="fp"):
        """Samples for some seconds, or until it is interrupted."""
        self.data = self.directory / f"{name}.perf.data"
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(rate), "--call-graph", call_graph, *target]
        return Finished([*command, "-o", self.data, *(["--", "sleep", str(seconds)] if seconds else [])], self.directory)

    def stacks(self, *options):
        """Folded stacks with the JVM's names; sets `self.seconds` to the time that perf needs to symbolize them."""
        begin = time.monotonic()
        script = self._script(*options, "-F", "comm,pid,tid,ip,sym,dso")
        stacks = Stacks()
        # Each block has a line with name and ids, lines of frames from the leaf, and an empty line.
        for block in script.split("\n\n"):
            lines = [line for line in block.splitlines() if line.strip()]
            if lines:
                frames = [self._frame(line.strip().partition(" ")[2]) for line in reversed(lines[1:])]
                stacks.add("", frames, 1)
        self.seconds = time.monotonic() - begin
        return stacks

    def shares(self):
        """Each process's share of all samples, by the name of its main thread, without idle CPUs."""
        names, counts = {}, collections.Counter()
        named = re.compile(r"PERF_RECORD_COMM(?: exec)?: (.*):(\d+)/(\d+)$")
        sample = re.compile(r"^\s*(\d+)/(\d+)")
        for line in self._script("-F", "pid,tid", "-G", "--show-task-events").splitlines():
            if record := named.search(line):
                if record[2] == record[3]:
                    names[record[2]] = record[1]
            elif (record := sample.match(line)) and "PERF_RECORD" not in line and record[1] != "0":
                counts[names.get(record[1], record[1]).replace(" ", "_")] += 1
        total = sum(counts.values())
        return {name: n / total for name, n in counts.items()}

    def _script(self, *arguments):
        command = ["perf", "script", "-i", self.data, *arguments]
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout

    @staticmethod
    def _frame(text):
        name, _, module = text.rpartition(" ")
        if "/perf-" in module and name != "[unknown]":
            return f"{name}_[j]"
        return f"{name}_[k]" if "kernel" in module or module.endswith(".ko)") else name
