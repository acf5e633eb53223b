"""The daemon's cost to a JVM that it samples: CPU time of the same work, with and without the daemon, alternating."""

import pathlib
import statistics
import subprocess
import threading
import time

from . import jdks
from .soak import Daemon

# The daemon first reads all processes, and a piece of work may be in progress at a change.
PAUSE_S = 5


class Pieces:
    """CPU time of each piece of a program's work, in milliseconds, as the program prints it."""

    def __init__(self, stream):
        self.found = []
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream):
        for line in stream:
            self.found.append(int(line.split()[0]) / 1e6)

    def during(self, seconds):
        """The pieces of the next seconds."""
        first = len(self.found)
        time.sleep(seconds)
        return self.found[first:]


def measure(binary, work, figures, jdk, seconds, rounds=6):
    """Compares the medians of consecutive turns."""
    figures.heading(f"bystander: a JVM with and without the daemon, {rounds} turns of {seconds} s each")
    source = pathlib.Path(__file__).parent.parent / "programs/Bystander.java"
    subprocess.run([*jdks.builds(), "-d", work / "bystander", source], check=True)
    command = [*jdk.java, "-Xmx256m", "-XX:+UseSerialGC", "-cp", work / "bystander", "Bystander"]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    differences, medians = [], []
    try:
        pieces = Pieces(program.stdout)
        time.sleep(PAUSE_S)
        for turn in range(rounds):
            alone = statistics.median(pieces.during(seconds))
            home = work / f"bystander-{turn}"
            home.mkdir()
            daemon = Daemon(binary, home)
            time.sleep(PAUSE_S)
            watched = statistics.median(pieces.during(seconds))
            daemon.end()
            differences.append(100 * (watched - alone) / alone)
            medians.append(alone)
    finally:
        program.kill()
        program.wait()
    spread = statistics.stdev(medians) / statistics.mean(medians) * 100
    figures.say("CPU time of a piece, alone, median", statistics.median(medians), "ms")
    figures.say("  from turn to turn, standard deviation", spread, "%")
    error = statistics.stdev(differences) / len(differences) ** 0.5
    figures.say("more CPU time for the same work beside the daemon, mean", statistics.mean(differences), "%", most=0.5 + 2 * error)
    figures.say("  standard error of it", error, "%")
