"""Exercises a server with python-memcached: smoke.py HOST PORT."""

import sys
import time

import memcache

checks = 0


def same(what, got, want):
    global checks
    checks += 1
    if got != want:
        sys.exit(f"python-memcached: {what}: got {got!r:.200}, want {want!r:.200}")


c = memcache.Client([f"{sys.argv[1]}:{sys.argv[2]}"], cache_cas=True, socket_timeout=10)
P = "python-memcached:"

same("set", c.set(P + "a", "text"), True)
same("get", c.get(P + "a"), "text")
same("get of a missing key", c.get(P + "missing"), None)
c.delete(P + "new")
same("add", c.add(P + "new", "x"), True)
same("add of a key that is there", c.add(P + "new", "y"), False)
same("replace", c.replace(P + "new", "z"), True)
same("replace of a missing key", c.replace(P + "missing", "z"), False)
same("append", c.append(P + "a", ">"), True)
same("prepend", c.prepend(P + "a", "<"), True)
same("what they made", c.get(P + "a"), "<text>")

many = {f"k{i}": f"value {i}" for i in range(100)}
same("set_multi", c.set_multi(many, key_prefix=P), [])
same("get_multi", c.get_multi([*many, "missing"], key_prefix=P), many)
same("delete_multi", c.delete_multi(list(many), key_prefix=P), 1)
same("all deleted", c.get_multi(list(many), key_prefix=P), {})

for thing in [42, 2**70, 1.5, True, b"bytes\r\n\0", "käse", ["list", None]]:
    c.set(P + "thing", thing)
    same("a value told by its flags", c.get(P + "thing"), thing)

same("gets", c.gets(P + "a"), "<text>")
same("cas", bool(c.cas(P + "a", "new")), True)
c.gets(P + "a")
c.set(P + "a", "meanwhile")
same("cas of what has changed", bool(c.cas(P + "a", "newer")), False)
same("what is left", c.get(P + "a"), "meanwhile")

c.set(P + "n", 10)
same("incr", c.incr(P + "n"), 11)
same("incr by more", c.incr(P + "n", 100), 111)
same("decr", c.decr(P + "n", 200), 0)
same("incr of a missing key", c.incr(P + "missing"), None)

c.set(P + "ttl", "x", time=1)
c.set(P + "touched", "x", time=1)
same("touch", bool(c.touch(P + "touched", 100)), True)
time.sleep(2.1)
same("after its time", c.get(P + "ttl"), None)
same("touched in time", c.get(P + "touched"), "x")

large = b"\xff" * 700_000
same("a large value", c.set(P + "large", large), True)
same("comes back", c.get(P + "large"), large)
compressed = "compress me " * 100_000
same("a compressed one", c.set(P + "zip", compressed, min_compress_len=1000), True)
same("comes back whole", c.get(P + "zip"), compressed)

same("noreply", bool(c.set(P + "quiet", "x", noreply=True)), True)
same("is stored", c.get(P + "quiet"), "x")
same("delete", bool(c.delete(P + "quiet")), True)
same("is gone", c.get(P + "quiet"), None)
[(_, stats)] = c.get_stats()
same("stats", int(stats["curr_items"]) > 0, True)
same("stats of a kind", len(c.get_stats("settings")), 1)
c.disconnect_all()
print(f"python-memcached {memcache.__version__}: {checks} checks")
