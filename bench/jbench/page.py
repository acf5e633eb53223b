"""The page of 100,000 distinct stacks beside async-profiler's HTML and speedscope with the same data, in Chromium."""

import base64
import random
import subprocess

from . import jdks
from .browser import Browser

STACKS = 100_000
SPEEDSCOPE = "speedscope@1.25.0"
CONVERTER = "tools.profiler:jfr-converter:4.2"


def stacks(count):
    """Folded stacks of 20 to 60 frames, each of which leaves the one before at some frame."""
    chance, seen, stack = random.Random(1), set(), []
    while len(seen) < count:
        del stack[chance.randint(0, len(stack)) :]
        while len(stack) < 20 + chance.randrange(40):
            method = f"method{chance.randrange(10)}_[j]"
            stack.append(f"com.example.p{chance.randrange(40)}.Class{chance.randrange(50)}.{method}")
        seen.add(";".join(stack))
    return "".join(f"java;{one} {1 + len(one) % 5}\n" for one in sorted(seen))


def fetch(cache):
    """The files of the two others: by npm and by Maven, outside of the repository."""
    speedscope, converters = cache.directory / "speedscope", cache.directory / "converter"
    if not (speedscope / "node_modules").exists():
        npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", speedscope, SPEEDSCOPE]
        subprocess.run(npm, check=True, stdout=subprocess.DEVNULL)
    if not list(converters.glob("jfr-converter-*.jar")):
        copy = ["dependency:copy", f"-Dartifact={CONVERTER}", f"-DoutputDirectory={converters}"]
        subprocess.run(["mvn", "-q", "-B", *copy], check=True)
    (jar,) = converters.glob("jfr-converter-*.jar")
    return speedscope / "node_modules/speedscope/dist/release/index.html", jar


def pages(bench, index, jar):
    """Name, address and files of each page, and what is true once the page is open."""
    work, binary = bench.work, bench.ours.binary
    folded, packed, script = work / "stacks.folded", work / "stacks.pb.gz", work / "stacks.js"
    folded.write_text(stacks(STACKS), encoding="ascii")
    ours, other = work / "jbpf-prof.html", work / "async-profiler.html"
    for file in (ours, packed):
        subprocess.run([binary, "convert", folded, file], check=True)
    subprocess.run([jdks.tool("java"), "-jar", jar, folded, other], check=True, stdout=subprocess.DEVNULL)
    # As speedscope's own command does it.
    text = base64.b64encode(packed.read_bytes()).decode()
    script.write_text(f'speedscope.loadFileFromBase64("stacks.pb.gz", "{text}")', encoding="ascii")
    drawn = "document.readyState === 'complete' && document.querySelector('canvas') !== null"
    return [
        ("jbpf-prof", f"file://{ours}", [ours], "window.jbpfProf !== undefined"),
        ("async-profiler", f"file://{other}", [other], drawn),
        ("speedscope", f"file://{index}#localProfilePath={script}", [packed], "document.title.includes('stacks')"),
    ]


def measure(bench):
    """Size, time and CPU time of each page."""
    figures = bench.figures
    figures.heading(f"page: {STACKS:,} distinct stacks in Chromium; CPU time is that of the page's thread")
    for name, address, files, ready in pages(bench, *fetch(bench.cache)):
        with Browser(bench.work / f"chromium-{name}") as browser:
            opened = browser.open(address, ready)
            cpu = browser.cpu_ms()
            figures.say(f"{name}: file", sum(file.stat().st_size for file in files) / 1e6, "MB")
            figures.say(f"{name}: opens, CPU time", cpu / 1000, "s")
            figures.say(f"{name}: opens", opened / 1000, "s")
            figures.say(f"{name}: memory of the script", browser.value("performance.memory.usedJSHeapSize") / 1e6, "MB")
