"""Profilers in turns beside the same program: the order, commands of perf, and how figures of turns are written."""

import json
import shutil
import statistics
import subprocess

OFF = "off"


def rotations(turns, kinds):
    """For each turn all kinds, in an order that rotates: what changes over time then changes all kinds alike."""
    for turn in range(turns):
        first = turn % len(kinds)
        yield kinds[first:] + kinds[:first]


def append(log, row):
    """Appends a row to a file of JSON lines, so that a run that breaks off keeps its rows."""
    with open(log, "a", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")


def perf_record(event, data, *options):
    """The command with which perf records stacks of an event."""
    return ["perf", "record", "-q", "-e", event, "-g", *options, "-o", data]


def failure(probe):
    """Why this command cannot run on this host, or None."""
    if not shutil.which(probe[0]):
        return f"{probe[0]} is not installed"
    done = subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    return " ".join(done.stderr.split())[:200] or f"{probe[0]} fails" if done.returncode else None


def ratios(key, pairs):
    """The ratios of the turns, and their mean with its standard error."""
    values = [one[key] / bare[key] for one, bare in pairs]
    if len(values) < 2:
        return spread(values, 3)
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{spread(values, 3)}, mean {statistics.mean(values):.3f} ± {error:.3f}"


def spread(values, digits=1):
    """The median, and the extremes of the turns."""
    median, low, high = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low} to {high})"
