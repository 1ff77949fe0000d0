"""Exercises a server with pylibmc, and so libmemcached: smoke.py text|binary HOST PORT [sasl USER PASSWORD]."""

import sys
import time

import pylibmc

checks = 0


def same(what, got, want):
    global checks
    checks += 1
    if got != want:
        sys.exit(f"pylibmc: {what}: got {got!r:.200}, want {want!r:.200}")


def raises(what, error, call):
    try:
        got = call()
    except error:
        same(what, True, True)
    else:
        same(what, got, error.__name__)


protocol, host, port, *rest = sys.argv[1:]
door, *login = rest or ["plain"]
options = {"binary": protocol == "binary"}
if door == "sasl":
    options |= {"username": login[0], "password": login[1]}
servers = [f"{host}:{port}"]
c = pylibmc.Client(servers, behaviors={"cas": True, "tcp_nodelay": True}, **options)
P = f"pylibmc:{protocol}:"

same("set", c.set(P + "a", "text"), True)
same("get", c.get(P + "a"), "text")
same("get of a missing key", c.get(P + "missing"), None)
c.delete(P + "new")
same("add", c.add(P + "new", "x"), True)
same("add of a key that is there", c.add(P + "new", "y"), False)
same("replace", c.replace(P + "new", "z"), True)
if protocol == "text":
    same("replace of a missing key", c.replace(P + "missing", "z"), False)
else:
    raises("replace of a missing key", pylibmc.NotFound, lambda: c.replace(P + "missing", "z"))
c.set(P + "bytes", b"text")
same("append", c.append(P + "bytes", b">"), True)
same("prepend", c.prepend(P + "bytes", b"<"), True)
same("what they made", c.get(P + "bytes"), b"<text>")

many = {f"k{i}": f"value {i}" for i in range(100)}
same("set_multi", c.set_multi(many, key_prefix=P), [])
same("get_multi", c.get_multi([*many, "missing"], key_prefix=P), many)
same("delete_multi", c.delete_multi(list(many), key_prefix=P), True)
same("all deleted", c.get_multi(list(many), key_prefix=P), {})

for thing in [42, 2**40, 1.5, True, b"bytes\r\n\0", "käse", ["list", None]]:
    c.set(P + "thing", thing)
    same("a value told by its flags", c.get(P + "thing"), thing)

value, cas = c.gets(P + "a")
same("gets", value, "text")
same("cas", c.cas(P + "a", "new", cas), True)
same("cas of what has changed", c.cas(P + "a", "newer", cas), False)
raises("cas of a missing key", pylibmc.NotFound, lambda: c.cas(P + "missing", "x", cas))

c.set(P + "n", 10)
same("incr", c.incr(P + "n"), 11)
same("incr by more", c.incr(P + "n", 100), 111)
same("decr", c.decr(P + "n", 200), 0)
raises("incr of a missing key", pylibmc.NotFound, lambda: c.incr(P + "missing"))
c.set_multi({"m1": 1, "m2": 2}, key_prefix=P)
c.incr_multi(["m1", "m2"], key_prefix=P, delta=5)
same("incr_multi", c.get_multi(["m1", "m2"], key_prefix=P), {"m1": 6, "m2": 7})

if protocol == "text":
    # libmemcached writes it as 4294967295. In the binary protocol that is a year to come, for memcached as well.
    same("set of what is past", c.set(P + "past", "x", time=-1), True)
    same("get of what is past", c.get(P + "past"), None)
c.set(P + "ttl", "x", time=1)
c.set(P + "touched", "x", time=1)
same("touch", c.touch(P + "touched", 100), True)
time.sleep(2.1)
same("after its time", c.get(P + "ttl"), None)
same("touched in time", c.get(P + "touched"), "x")

large = bytes(range(256)) * 3000
same("a large value", c.set(P + "large", large), True)
same("comes back", c.get(P + "large"), large)
compressed = "compress me " * 100_000
same("a compressed one", c.set(P + "zip", compressed, min_compress_len=1000), True)
same("comes back whole", c.get(P + "zip"), compressed)
raises("one that is too large", pylibmc.TooBig, lambda: c.set(P + "huge", b"x" * 2**21))
same("the connection is still good", c.get(P + "a"), "new")

same("delete", c.delete(P + "a"), True)
same("delete of a missing key", c.delete(P + "a"), False)
[(_, stats)] = c.get_stats()
same("stats", int(stats["curr_items"]) > 0, True)

quiet = pylibmc.Client(servers, behaviors={"no_block": True}, **options)
for i in range(200):
    quiet.set(f"{P}quiet{i}", i)
same("without blocking", quiet.get(P + "quiet199"), 199)
c.disconnect_all()

if door == "sasl":
    options["password"] = "not " + login[1]
    raises("a wrong password", pylibmc.Error, lambda: pylibmc.Client(servers, **options).get(P + "large"))
print(f"pylibmc {pylibmc.__version__} ({protocol}), {door}: {checks} checks")
