"""The benchmark: perf, async-profiler and jbpf-prof in turn on the same programs. See README.md."""
