"""What waiting time says of real programs, beside what the programs and the kernel know."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.request

from . import programs
from .jvm import Jvm
from .native import Postgres
from .quota import limited
from .sampled import Threads, agree, sampling
from .tools import children

RATE = 99
SERVICE_THREADS, SERVICE_MS = 8, 50
CPUS = 0.2
CLIENTS, LOCK_S = 4, 3
NGINX = """
daemon off;
worker_processes 2;
error_log stderr;
pid {work}/nginx.pid;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    upstream service {{ server 127.0.0.1:{service}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""


def measure(bench, jdk):
    """Runs each program, and compares its profile with what is known."""
    bench.cache.fill()
    for rate in bench.args.rate or [RATE]:
        for program in (slow_upstream, compiler, quota, table_lock):
            program(bench, jdk, rate)


def slow_upstream(bench, jdk, rate):
    """nginx under wrk, with a service behind it whose requests sleep."""
    figures, seconds = bench.figures, bench.args.seconds
    figures.heading(f"nginx with a slow Java service behind it, {jdk.name}, {rate} Hz")
    if missing := nginx_missing():
        figures.lack("nginx with a slow service", missing)
        return
    arguments = ["Slow", str(SERVICE_THREADS), str(SERVICE_MS)]
    with Jvm(jdk, bench.cache.class_path(), bench.work / "slow.log", *arguments) as service, contextlib.ExitStack() as stack:
        port = service.wait_for(r"port (\d+)", 1, 60)[0][1]
        server, address = nginx(bench.work, port, stack)
        load = lambda length: subprocess.run(programs.wrk(address, length), check=True, stdout=subprocess.DEVNULL)
        load(2)
        slept = lambda: [int(number) for number in get(f"http://127.0.0.1:{port}/slept").split()]
        pids = [service.pid, server, *children(server)]
        with sampling(bench.ours, "nginx", rate, "-p", f"{service.pid},{server}", "--children", "--idle") as found:
            first, before = slept(), Threads(pids)
            load(seconds)
            after, last = Threads(pids), slept()
        workers, requests = set(children(server)), last[0] - first[0]
    profile = found[0]
    figures.note(f"{requests} requests in {seconds} s; {len(before.by_tid)} threads")
    sleeps = profile.until_cpu(lambda frames: "Slow.sleep" in frames, "[wait: timer]")
    agree(figures, "[wait: timer] in Slow.sleep, beside the service's own clock", sleeps, (last[1] - first[1]) / 1e9, 2)
    loops = profile.seconds(lambda frames: frames[0] == "nginx" and frames[-1] == "[idle: event loop]")
    agree(figures, "[idle: event loop] of nginx's workers, beside schedstat", loops, after.slept(before, lambda tid, _: tid in workers), 2)
    everything = profile.seconds(lambda frames: frames[-1] not in ("[runnable]", "[throttled]"))
    known = profile.share_of(after, before) * after.slept(before)
    agree(figures, "all threads without use for a CPU, beside schedstat", everything, known, 1)
    figures.say("waiting time of Java threads that reaches the root (%)", profile.java_to_root(), least=99)
    reasons(figures, profile)


def compiler(bench, jdk, rate):
    """A Scala compilation: the JVM's own threads are idle, and are apart from the compilation's."""
    figures, seconds = bench.figures, bench.args.seconds
    figures.heading(f"Scala compiler, {jdk.name}, {rate} Hz")
    with programs.running(programs.SCALA, bench.cache, jdk, bench.work / "real-scala.log", [], 1) as jvm:
        with sampling(bench.ours, "scala", rate, "-p", str(jvm.pid)) as found:
            before = Threads([jvm.pid])
            time.sleep(seconds)
            after = Threads([jvm.pid])
    profile = found[0]
    own = profile.share_of(after, before) * after.slept(before, lambda tid, thread: not is_main(jvm, tid, thread))
    gone = before.by_tid.keys() - after.by_tid.keys()
    figures.note(f"{len(after.by_tid)} threads; {len(gone)} ended meanwhile")
    agree(figures, "idle by all rules, beside schedstat", sum(profile.table("idle").values()), own, 2)
    states = ("sleeping", "blocked")
    rest = sum(profile.period * row["samples"] for row in profile.waits["reasons"] if row["state"] in states)
    figures.say("waiting time in the picture, without queues for a CPU", rest, "s")
    figures.say("  known: of the thread that compiles", after.slept(before, lambda tid, thread: is_main(jvm, tid, thread)), "s")
    reasons(figures, profile)


def quota(bench, jdk, rate):
    """A JVM with one busy thread in a cgroup with a quota."""
    figures, seconds = bench.figures, bench.args.seconds
    figures.heading(f"JVM with a quota of {CPUS} CPUs, {jdk.name}, {rate} Hz")
    flags = ["-XX:+UseSerialGC"]
    with limited(CPUS) as group:
        if not group:
            figures.lack("JVM with a quota", "no hierarchy of cgroups limits CPU time")
            return
        with Jvm(jdk, bench.cache.class_path(), bench.work / "quota.log", "Bystander", flags=flags) as jvm:
            group.enter(jvm.pid)
            jvm.wait_for(r"\d+", 30, 60)
            with sampling(bench.ours, "quota", rate, "-p", str(jvm.pid)) as found:
                throttled, before = group.throttled(), Threads([jvm.pid])
                time.sleep(seconds)
                throttled, after = group.throttled() - throttled, Threads([jvm.pid])
    profile = found[0]
    busy = {leaf: profile.seconds(lambda frames: frames[-1] == leaf and "Bystander.main" in frames) for leaf in ("[throttled]", "[runnable]")}
    off_cpu = profile.share_of(after, before) * after.off_cpu(before, lambda tid, thread: is_main(jvm, tid, thread))
    agree(figures, "[throttled] and [runnable] of the busy thread, beside schedstat", sum(busy.values()), off_cpu, 3)
    agree(figures, "[throttled] of the busy thread, beside cpu.stat", busy["[throttled]"], throttled, 5)
    # The JVM's own threads that want the CPU meanwhile are throttled, too. The kernel counts the time of a CPU once.
    sampled = profile.seconds(lambda frames: frames[-1] == "[throttled]")
    agree(figures, "[throttled] of all threads, beside the measured time", sampled, profile.measured("throttled"), 5)
    reasons(figures, profile)


def table_lock(bench, _, rate):
    """PostgreSQL under pgbench, while another session has locked a table."""
    figures = bench.figures
    figures.heading(f"PostgreSQL with a locked table, {rate} Hz")
    with contextlib.ExitStack() as stack:
        server = Postgres.start(bench.work, stack)
        if not server:
            figures.lack("PostgreSQL with a locked table", "PostgreSQL or pgbench is not installed")
            return
        server.load("600", stack)
        time.sleep(1)
        with sampling(bench.ours, "postgres", rate, "-p", str(server.pid), "--children") as found:
            time.sleep(1)
            clock = "select extract(epoch from clock_timestamp())"
            commands = ["begin", "lock table pgbench_accounts", clock, f"select pg_sleep({LOCK_S})", clock, "commit"]
            said = server.sql(*commands).communicate()[0].split()
            time.sleep(1)
    profile = found[0]
    begin, end = map(float, said)
    lock = "[wait: PostgreSQL lock]"
    waited = profile.seconds(lambda frames: frames[-1] == lock and "LockRelationOid" in frames)
    agree(figures, f"{lock} in LockRelationOid, {CLIENTS} sessions", waited, CLIENTS * (end - begin), 3)
    sleeps = profile.seconds(lambda frames: frames[-1] == "[wait: timer]" and "pg_sleep" in frames)
    agree(figures, "[wait: timer] in pg_sleep, of the session with the lock", sleeps, end - begin, 3)
    reasons(figures, profile)


def is_main(jvm, tid, thread):
    """Whether a thread runs `main`. The launcher's first thread has the same name, and waits for that thread."""
    return thread.name == "java" and tid != jvm.pid


def reasons(figures, profile):
    for name in ("reasons", "idle"):
        rows = sorted(profile.table(name).items(), key=lambda row: -row[1])
        figures.note(f"{name}: " + "; ".join(f"{row} {seconds:.2f} s" for row, seconds in rows[:6]))


def nginx_missing():
    """Why nginx or its load cannot run here, or None."""
    if not shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"):
        return "no nginx: apt-get install nginx"
    return programs.missing(programs.WEB)


def nginx(work, service, stack):
    """Starts nginx before a service, and returns its process id and its address."""
    place = pathlib.Path(work) / "nginx"
    place.mkdir(exist_ok=True)
    work.chmod(0o711)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = place / "nginx.conf"
    config.write_text(NGINX.format(work=place, service=service, port=port), encoding="ascii")
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    server = subprocess.Popen([program, "-e", "stderr", "-p", place, "-c", config])
    stack.callback(server.wait)
    stack.callback(server.terminate)
    address, end = f"http://127.0.0.1:{port}/", time.monotonic() + 10
    while True:
        try:
            get(address)
            return server.pid, address
        except OSError:
            if server.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.1)


def get(address):
    with urllib.request.urlopen(address, timeout=10) as response:
        return response.read().decode()
