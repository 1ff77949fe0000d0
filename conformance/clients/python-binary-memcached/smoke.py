"""Exercises a server with python-binary-memcached: smoke.py HOST PORT [sasl USER PASSWORD | tls CA_FILE]."""

import importlib.metadata
import ssl
import sys
import time

import bmemcached
from bmemcached.exceptions import MemcachedException

checks = 0


def same(what, got, want):
    global checks
    checks += 1
    if got != want:
        sys.exit(f"python-binary-memcached: {what}: got {got!r:.200}, want {want!r:.200}")


def raises(what, error, call):
    try:
        got = call()
    except error:
        same(what, True, True)
    else:
        same(what, got, error.__name__)


servers = [f"{sys.argv[1]}:{sys.argv[2]}"]
door, *rest = sys.argv[3:] or ["plain"]
options = {"socket_timeout": 10}
if door == "sasl":
    options |= {"username": rest[0], "password": rest[1]}
elif door == "tls":
    options["tls_context"] = ssl.create_default_context(cafile=rest[0])
c = bmemcached.Client(servers, **options)
P = "bmemcached:"

same("set", c.set(P + "a", "text"), True)
same("get", c.get(P + "a"), "text")
same("get of a missing key", c.get(P + "missing"), None)
c.delete(P + "new")
same("add", c.add(P + "new", "x"), True)
same("add of a key that is there", c.add(P + "new", "y"), False)
same("replace", c.replace(P + "new", "z"), True)
same("replace of a missing key", c.replace(P + "missing", "z"), False)

# Quiet sets and quiet gets, ended by a command that is answered.
many = {f"{P}k{i}": f"value {i}" for i in range(100)}
same("set_multi", c.set_multi(many), [])
same("get_multi", c.get_multi([*many, P + "missing"]), many)
same("delete_multi", c.delete_multi(list(many)), True)
same("all deleted", c.get_multi(list(many)), {})

for thing in [42, 2**40, 1.5, True, b"bytes\r\n\0", "käse", ["list", None]]:
    c.set(P + "thing", thing)
    same("a value told by its flags", c.get(P + "thing"), thing)
same("a key with spaces", c.set(P + "a b\tc", "x"), True)
same("comes back", c.get(P + "a b\tc"), "x")

value, cas = c.gets(P + "a")
same("gets", value, "text")
same("cas", c.cas(P + "a", "new", cas), True)
same("cas of what has changed", c.cas(P + "a", "newer", cas), False)
same("delete with an old cas", c.delete(P + "a", cas), False)
same("what is left", c.get(P + "a"), "new")

c.delete(P + "n")
same("incr of a missing key sets it", c.incr(P + "n", 5, default=10), 10)
same("incr", c.incr(P + "n", 5), 15)
same("decr", c.decr(P + "n", 20), 0)
c.set(P + "n", b"18446744073709551615")
same("incr beyond 64 bits", c.incr(P + "n", 1), 0)
raises("incr of a word", MemcachedException, lambda: c.incr(P + "a", 1))

c.set(P + "ttl", "x", time=1)
time.sleep(2.1)
same("after its time", c.get(P + "ttl"), None)

large = bytes(range(256)) * 3000
same("a large value", c.set(P + "large", large, compress_level=0), True)
same("comes back", c.get(P + "large"), large)
compressed = "compress me " * 100_000
same("a compressed one", c.set(P + "zip", compressed, compress_level=9), True)
same("comes back whole", c.get(P + "zip"), compressed)
raises("one that is too large", MemcachedException, lambda: c.set(P + "huge", b"x" * 2**21, compress_level=0))
same("the connection is still good", c.get(P + "a"), "new")

same("delete", c.delete(P + "a"), True)
same("is gone", c.get(P + "a"), None)
same("stats", int(c.stats()[servers[0]]["curr_items"]) > 0, True)
c.disconnect_all()

if door == "sasl":
    options["password"] = "not " + rest[1]
    raises("a wrong password", MemcachedException, lambda: bmemcached.Client(servers, **options).get(P + "large"))
    del options["username"], options["password"]
    raises("no password", MemcachedException, lambda: bmemcached.Client(servers, **options).get(P + "large"))
if door == "tls":
    options["tls_context"] = ssl.create_default_context()
    same("nothing from a server that nobody vouches for", bmemcached.Client(servers, **options).get(P + "large"), None)
print(f"python-binary-memcached {importlib.metadata.version('python-binary-memcached')}, {door}: {checks} checks")
