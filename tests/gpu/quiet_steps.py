"""Whether steps 10 to 20 of a run of recorded steps neither allocate nor wait: reads what nsys saw of the CUDA runtime between
the launches of their graphs, in all threads.

usage: quiet_steps.py REPORT.sqlite
"""
import collections
import sqlite3
import sys

FIRST, LAST, PLAIN = 10, 20, 3  # three steps run before the recording
LOUD = ("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cudaStreamSynchronize", "cudaDeviceSynchronize",
        "cudaEventSynchronize", "cudaMemPool")

calls = sqlite3.connect(sys.argv[1]).execute(
    "select r.start, s.value from CUPTI_ACTIVITY_KIND_RUNTIME r join StringIds s on r.nameId = s.id order by r.start").fetchall()
launches = [start for start, name in calls if name.startswith("cudaGraphLaunch")]
if len(launches) <= LAST - PLAIN:
    sys.exit(f"expected more than {LAST - PLAIN} launches of a graph, got {len(launches)}")
begin, end = launches[FIRST - PLAIN], launches[LAST - PLAIN]
seen = collections.Counter(name for start, name in calls if begin <= start < end)
# Stream-ordered allocation from a pool that never gives back costs a lookup.
loud = {name: count for name, count in seen.items() if name.startswith(LOUD) and "Async" not in name}
print(f"steps {FIRST} to {LAST}: {sum(seen.values())} calls, " + (f"loud: {loud}" if loud else "none allocates or waits"))
sys.exit(1 if loud else 0)
