"""The cost of keeping each sample's second: json.gz against folded with threads, alternating."""

import os
import statistics
import subprocess
import sys

from .filter import BUSY


def measure(ours, figures, rate, seconds, turns=4):
    """Own CPU time and memory of whole runs."""
    busy = len(os.sched_getaffinity(0))
    figures.heading(f"timeline: json.gz to folded, {busy} interpreters, {rate} Hz, {turns} turns of {seconds} s")
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    kinds = {"folded": ["--per-thread"], "json.gz": []}
    seen = {kind: [] for kind in kinds}
    try:
        for turn in range(turns):
            for kind in kinds if turn % 2 == 0 else reversed(kinds):
                run = ours.start(f"timeline-{turn}", rate, "--all", *kinds[kind], seconds=seconds, formats=[kind]).wait()
                seen[kind].append((run.cpu, run.peak_kib / 1024))
    finally:
        for program in programs:
            program.kill()
            program.wait()
    for name, folded, timeline in zip(["own CPU (s)", "memory (MiB)"], zip(*seen["folded"]), zip(*seen["json.gz"])):
        folded, timeline = statistics.median(folded), statistics.median(timeline)
        figures.note(f"{name}: {folded:.3f} folded, {timeline:.3f} json.gz")
        figures.say(f"{name}, json.gz to folded", timeline / folded)
