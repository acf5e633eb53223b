"""Waiting time that jbpf-prof samples while something happens, and what the kernel knows of the same threads."""

import contextlib
import pathlib
import time

from .stacks import SUFFIX, begins

TICKS_A_SECOND = 100  # USER_HZ, the unit of /proc/PID/stat
START_TIME = 19  # the index in /proc/PID/stat, from the state on


class Sampled:
    """A profile of CPU time and waiting time: stacks, root first, with the process in front. Waits end with a reason."""

    def __init__(self, directory, name, report):
        self.duration = report["duration_s"]
        self.waits = report["events"][0]["waits"]
        self.period = report["events"][0]["accounts"]["period_ns"] / 1e9
        self.stacks = stacks_of(directory / f"{name}-wait.folded")
        self.running, self.hz = stacks_of(directory / f"{name}.folded"), report["effective_hz"]

    def seconds(self, is_wanted):
        """The waiting time of the stacks for which `is_wanted` is true."""
        return self.period * sum(count for frames, count in self.stacks if is_wanted(frames))

    def ran(self, is_wanted):
        """The CPU time of the stacks for which `is_wanted` is true."""
        return sum(count for frames, count in self.running if is_wanted(frames)) / self.hz

    def until_cpu(self, is_wanted, leaf):
        """The waiting time of such stacks with this leaf, and of the same waits after the wakeup, in the queue for a CPU."""

        def ends(frames):
            # A queue for a CPU after a wait has the stack of the wait; after a preemption no call of the kernel.
            queued = frames[-1] == "[runnable]" and any("futex" in frame for frame in frames)
            return frames[-1] == leaf or queued

        return self.seconds(lambda frames: is_wanted(frames) and ends(frames))

    def java_to_root(self):
        """Of the waiting time below Java methods, the share whose outermost frame is a thread's beginning, in percent."""
        java = [(frames, count) for frames, count in self.stacks if any(frame.startswith("java.lang.Thread.run") for frame in frames)]
        whole = sum(count for frames, count in java if begins(frames[1:]))
        return 100 * whole / sum(count for _, count in java) if java else float("nan")

    def share_of(self, threads, before):
        """The length of the profile as a multiple of the time between two looks at the threads."""
        return self.duration / (threads.at - before.at)

    def table(self, name):
        """Seconds by name of a table of the report: `states`, `reasons`, `idle`."""
        key = {"states": "state", "reasons": "reason", "idle": "rule"}[name]
        found = {}
        for row in self.waits[name]:
            found[row[key]] = found.get(row[key], 0) + self.period * row["samples"]
        return found

    def measured(self, state):
        """The waiting time in a state that the BPF programs measured, without sampling."""
        return sum(row["ns"] for row in self.waits["states"] if row["state"] == state) / 1e9


def stacks_of(folded):
    """The stacks of a file as lists of functions, without the suffixes of kinds, and their counts."""
    with open(folded, encoding="utf-8", errors="replace") as lines:
        parts = [line.rstrip("\n").rpartition(" ") for line in lines]
    return [([SUFFIX.sub("", frame) for frame in stack.split(";")], int(count)) for stack, _, count in parts]


@contextlib.contextmanager
def sampling(ours, name, rate, *options):
    """Samples CPU time and waiting time while the body runs. Yields a list, which has the profile after the body."""
    found = []
    with ours.sampling(name, rate, "-e", "wall", *options) as run:
        yield found
    found.append(Sampled(ours.directory, name, run.report))


class Threads:
    """Threads of processes, as the kernel's scheduler knows them (/proc/PID/task/TID/schedstat)."""

    def __init__(self, pids):
        self.at = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.by_tid = {}
        for pid in pids:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    ran, queued, _ = (task / "schedstat").read_text(encoding="ascii").split()
                    name, _, fields = (task / "stat").read_text(encoding="utf-8").rpartition(")")
                    start = int(fields.split()[START_TIME]) / TICKS_A_SECOND
                    self.by_tid[int(task.name)] = Thread(name.partition("(")[2], start, int(ran) / 1e9, int(queued) / 1e9)

    def slept(self, before, is_wanted=lambda tid, thread: True):
        """The time since `before` in which threads had no use for a CPU: their lives without CPU time and run queue."""
        return self.off_cpu(before, is_wanted) - self.queued(before, is_wanted)

    def off_cpu(self, before, is_wanted):
        """The time since `before` in which threads had no CPU."""
        total = 0
        for tid, now in self.by_tid.items():
            if is_wanted(tid, now):
                then = before.by_tid.get(tid, Thread(now.name, now.start, 0, 0))
                total += self.at - max(before.at, then.start) - (now.ran - then.ran)
        return total

    def queued(self, before, is_wanted):
        """The time since `before` in which threads waited for a CPU."""
        queued = lambda threads, tid: threads.by_tid[tid].queued if tid in threads.by_tid else 0
        return sum(queued(self, tid) - queued(before, tid) for tid, thread in self.by_tid.items() if is_wanted(tid, thread))


class Thread:
    """Name, start, CPU time and time in the run queue of a thread, in seconds."""

    def __init__(self, name, start, ran, queued):
        self.name, self.start, self.ran, self.queued = name, start, ran, queued


def agree(figures, what, sampled, known, bound):
    """Prints what the profile says and what is known, and checks that they differ by at most `bound` percent."""
    figures.say(what, sampled, "s")
    difference = 100 * (sampled - known) / known if known else float("nan")
    figures.say(f"  known {known:.3f} s; difference {difference:+.2f} %", abs(difference), "%", most=bound)
