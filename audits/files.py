"""Hostile input: damaged sketch files, sets of groups, messages and requests, and hostile data and command lines.

draft
"""
from __future__ import annotations
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parent))
import _hostile_files, _hostile_server
from _children import attack, serve
TARGETS = {"sketch files": _hostile_files.sketches, "sets of groups": _hostile_files.group_sets, "messages": _hostile_server.shares, "requests": _hostile_server.requests}
serve(TARGETS)
if __name__ == "__main__":
    name, n = sys.argv[1], int(sys.argv[2])
    import time
    t=time.time()
    r = attack(__file__, name, range(n), 1, sys.argv[3] if len(sys.argv)>3 else "")
    print({k:v for k,v in r.items() if k!="faults"}, time.time()-t)
    from collections import Counter
    print(Counter((k, w[:160]) for _,k,w in r["faults"]).most_common(15))
    seen=set()
    for x in r["faults"]:
        if (x[1],x[2][:60]) not in seen: seen.add((x[1],x[2][:60])); print(x)
