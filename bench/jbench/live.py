"""The daemon while eight live pages are open, against the same daemon without one."""

import os
import pathlib
import socket
import subprocess
import threading
import time

from . import jdks
from .soak import CPU, Daemon, START_S, Storm, processes

# The daemon refuses more.
CLIENTS = 8


class Client:
    """A live page without a browser: reads what the daemon sends, and counts the events."""

    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(path)
        self.stream.sendall(b"GET /live?seconds=300 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.bytes = self.events = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        tail = b""
        while got := self.stream.recv(1 << 16):
            self.bytes += len(got)
            # An event's first word may be in two reads.
            self.events += (tail + got).count(b"event: ")
            tail = got[-6:]

    def end(self):
        self.stream.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.stream.close()


def phase(daemon, seconds):
    """CPU time a second, and the most memory with BPF maps in MiB, of the next seconds."""
    begin, used, held = time.monotonic(), daemon.look()[CPU], 0
    while time.monotonic() - begin < seconds:
        time.sleep(5)
        look = daemon.look()
        held = max(held, look["resident KiB"] + look["maps KiB"])
    return (daemon.look()[CPU] - used) / (time.monotonic() - begin), held / 1024


def measure(binary, work, figures, jdk, minutes, jvms):
    """Runs the daemon for some minutes without a page, and for as long with eight."""
    figures.heading(f"live: {minutes} minutes without pages, {minutes} minutes with {CLIENTS}; {jvms} JVMs, processes")
    source = pathlib.Path(__file__).parent.parent / "programs/Churn.java"
    subprocess.run([*jdks.builds(), "-d", work / "churn", source], check=True)
    storm = Storm(processes)
    java = [*jdk.java, "-Xmx64m", "-XX:+UseSerialGC", "-cp", work / "churn", "Churn"]
    programs = [subprocess.Popen(java, stdout=subprocess.DEVNULL) for _ in range(jvms)]
    api = f"{work}/api.sock"
    daemon, clients = Daemon(binary, work, api=f"unix:{api}"), []
    try:
        time.sleep(START_S)
        before, held_before = phase(daemon, minutes * 60)
        clients = [Client(api) for _ in range(CLIENTS)]
        windows = daemon.metrics()["windows_total"]
        after, held_after = phase(daemon, minutes * 60)
        metrics = daemon.metrics()
        windows = int(metrics["windows_total"] - windows)
    finally:
        for client in clients:
            client.end()
        storm.end()
        for program in programs:
            program.kill()
            program.wait()
        code = daemon.end()
    cpus = len(os.sched_getaffinity(0))
    figures.say("own CPU without pages, of the host", before / cpus * 100, "%", most=0.5)
    figures.say(f"own CPU with {CLIENTS} pages, of the host", after / cpus * 100, "%", most=0.5)
    figures.say("most memory without pages, BPF maps included", held_before, "MiB", most=128)
    figures.say(f"most memory with {CLIENTS} pages, BPF maps included", held_after, "MiB", most=128)
    figures.say("sent to a page", max(client.bytes for client in clients) / 1024 / minutes, "KiB a minute")
    figures.need("stored windows while the pages were open", windows, 6 * minutes - 2)
    # The first event of a page has all windows before it.
    figures.say("fewest events of a page", min(client.events for client in clients), least=windows)
    figures.say("pages that were dropped or refused", int(metrics["live_dropped_total"] + metrics["live_refused_total"]), most=0)
    figures.say("exit code", code)
