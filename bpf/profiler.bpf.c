// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/* The BPF programs: one or more for each event, and the iterators over tasks that the loader runs. */
#include "event_alloc.h"
#include "event_native_alloc.h"
#include "event_perf.h"
#include "event_probe.h"
#include "event_rss.h"
#include "event_wait.h"
#include "unfinished.h"
#include "members.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
