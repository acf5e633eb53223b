"""The daemon's memory while it pushes to two sinks: the old binary and the new one, beside 128 services."""

import http.server
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time

from . import paired
from .soak import Daemon

SERVICES = 128
# The first windows fill the caches.
SECONDS = 45


class Receiver(http.server.BaseHTTPRequestHandler):
    """Accepts every request, and counts pushes and bytes by path."""

    pushes = {}
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        count, size = Receiver.pushes.get(path, (0, 0))
        Receiver.pushes[path] = (count + 1, size + len(body))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def measure(bench, before):
    """Alternates the binaries, as `paired` does. Each program is a shell with its own name, so a service."""
    bench.figures.heading(f"the daemon, now to before, {SERVICES} services and two sinks")
    work = bench.work / "sinks"
    work.mkdir()
    before, now = (one.binary for one in paired.both(bench, before))
    programs = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for number in range(SERVICES):
            shell = work / f"service{number:03}"
            shell.symlink_to(os.path.realpath("/bin/sh"))
            programs.append(subprocess.Popen([shell, "-c", "while :; do :; done"]))
        seen = {before: [], now: []}
        for turn in range(2):
            for binary in seen if turn == 0 else reversed(seen):
                seen[binary].append(hold(binary, work, f"http://127.0.0.1:{server.server_port}", bench.figures))
    finally:
        for program in programs:
            program.kill()
            program.wait()
        server.shutdown()
    paired.compare(bench.figures, ["broker's peak (MiB)", "its own, without files (MiB)"], seen[before], seen[now])


def hold(binary, work, url, figures):
    """The peak of the broker's memory, and its anonymous memory at the end."""
    shutil.rmtree(work / "data", ignore_errors=True)
    Receiver.pushes.clear()
    daemon = Daemon(binary, work, "--window", "5s", "--frequency", "99", "--max-cpu", "20", "--pyroscope-url", url, "--otlp-url", url)
    time.sleep(SECONDS)
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text(encoding="utf-8")
    daemon.end()
    if len(Receiver.pushes) < 2 or any(size < SERVICES * 100 for _, size in Receiver.pushes.values()):
        raise RuntimeError(f"the sinks had {Receiver.pushes}: {(work / 'daemon.log').read_text()}")
    figures.note(f"{binary}: {', '.join(f'{path}: {count} pushes, {size} bytes' for path, (count, size) in Receiver.pushes.items())}")
    return [int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024 for name in ("VmHWM", "RssAnon")]
