"""JFR, the JVM's own sampler: it samples only Java threads, each 10 ms, and only while they run Java."""

import collections
import json
import pathlib
import subprocess

from . import jdks
from .stacks import normal


class Jfr:
    """A recording in a JVM, which jcmd starts and stops."""

    def __init__(self, jvm, directory):
        self.jvm, self.directory = jvm, pathlib.Path(directory)

    def start(self, name):
        self.file = self.directory / f"{name}.jfr"
        said = self.jvm.jcmd("JFR.start", "name=bench", "settings=profile")
        if "Started recording" not in said:
            raise RuntimeError(f"JFR: {said}")

    def stop(self):
        self.jvm.jcmd("JFR.stop", "name=bench", f"filename={self.file}")

    def self_counts(self):
        """The samples of each method by self time."""
        command = [jdks.tool("jfr"), "print", "--json", "--events", "jdk.ExecutionSample", "--stack-depth", "1", self.file]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        counts = collections.Counter()
        for event in json.loads(said)["recording"]["events"]:
            frames = (event["values"].get("stackTrace") or {}).get("frames")
            if frames:
                method = frames[0]["method"]
                counts[normal(f"{method['type']['name']}.{method['name']}_[j]")] += 1
        return counts
