"""Debian's Chromium without a window, driven by its DevTools protocol over pipes."""

import json
import subprocess
import time


class Browser:
    """An empty page; a context manager that ends the browser."""

    def __init__(self, home, width=1600, height=1000):
        script = (
            'exec 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null; exec timeout 300 chromium --headless --no-sandbox '
            '--disable-gpu --remote-debugging-pipe --no-first-run --disable-background-networking '
            '--allow-file-access-from-files --user-data-dir="$0"'
        )
        self.process = subprocess.Popen(["sh", "-c", script, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number, self.session = 0, None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Performance.enable", timeDomain="threadTicks")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _message(self):
        parts = bytearray()
        while (byte := self.process.stdout.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("the browser has ended")
            parts += byte
        return parts

    def value(self, expression):
        """The value of an expression on the page."""
        got = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{expression}: {got['exceptionDetails']}")
        return got["result"].get("value")

    def cpu_ms(self):
        """CPU time of the page's thread so far."""
        (task,) = (one for one in self.ask("Performance.getMetrics")["metrics"] if one["name"] == "TaskDuration")
        return task["value"] * 1000

    def open(self, url, ready, seconds=120):
        """Opens a page, waits until an expression is true there, and returns the milliseconds until then."""
        begin = time.monotonic()
        self.ask("Page.navigate", url=url)
        while not self.value(ready):
            if time.monotonic() - begin > seconds:
                raise RuntimeError(f"{url}: not ready after {seconds} s")
            time.sleep(0.02)
        return (time.monotonic() - begin) * 1000
