// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 OR MIT
/* The programs: one for each event, and what the loader reads. */
#include "event_perf.h"
#include "members.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
