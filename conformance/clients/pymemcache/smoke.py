"""Exercises a server with pymemcache: smoke.py HOST PORT [token USER PASSWORD | tls CA_FILE]."""

import ssl
import sys
import time

import pymemcache
from pymemcache import serde
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

checks = 0


def same(what, got, want):
    global checks
    checks += 1
    if got != want:
        sys.exit(f"pymemcache: {what}: got {got!r:.200}, want {want!r:.200}")


def raises(what, error, call):
    try:
        got = call()
    except error:
        same(what, True, True)
    else:
        same(what, got, error.__name__)


address = (sys.argv[1], int(sys.argv[2]))
door, *rest = sys.argv[3:] or ["plain"]
options = {"key_prefix": b"pymemcache:", "default_noreply": False, "timeout": 10}
if door == "tls":
    options["tls_context"] = ssl.create_default_context(cafile=rest[0])


class LoggedIn(Client):
    """Begins each connection with the set that is a login where the server wants one."""

    def _connect(self):
        super()._connect()
        token = " ".join(rest).encode()
        self.sock.sendall(b"set login 0 0 %d\r\n%s\r\n" % (len(token), token))
        same("login", self.sock.recv(100), b"STORED\r\n")


connect = LoggedIn if door == "token" else Client
c = connect(address, **options)

same("set", c.set("a", b"1"), True)
same("get", c.get("a"), b"1")
same("get of a missing key", c.get("missing", "default"), "default")
same("add of a key that is there", c.add("a", b"2"), False)
c.delete("new")
same("add", c.add("new", b"2"), True)
same("replace", c.replace("a", b"3"), True)
same("replace of a missing key", c.replace("missing", b"3"), False)
same("append", c.append("a", b">"), True)
same("prepend", c.prepend("a", b"<"), True)
same("what they made", c.get("a"), b"<3>")
same("append to a missing key", c.append("missing", b"x"), False)

many = {f"many{i}": b"%d" % i * (i + 1) for i in range(100)}
same("set_many", c.set_many(many), [])
same("get_many", c.get_many([*many, "missing"]), many)

value, cas = c.gets("a")
same("cas", c.cas("a", b"4", cas), True)
same("cas with a stale unique", c.cas("a", b"5", cas), False)
same("cas of a missing key", c.cas("missing", b"5", cas), None)
same("gets_many", {k: v[0] for k, v in c.gets_many(["a", "missing"]).items()}, {"a": b"4"})

c.set("n", b"10")
same("incr", c.incr("n", 5), 15)
same("decr", c.decr("n", 20), 0)
same("incr of a missing key", c.incr("missing", 1), None)
c.set("n", b"18446744073709551615")
same("incr beyond 64 bits", c.incr("n", 1), 0)
c.set("word", b"x")
raises("incr of a word", MemcacheClientError, lambda: c.incr("word", 1))

c.set("ttl", b"x", expire=1)
c.set("touched", b"x", expire=1)
same("touch", c.touch("touched", 100), True)
same("touch of a missing key", c.touch("missing", 100), False)
time.sleep(2.1)
same("after its time", c.get("ttl"), None)
same("touched in time", c.get("touched"), b"x")
c.set("gone", b"x", expire=-1)
same("a negative time", c.get("gone"), None)

large = bytes(range(256)) * 2000
same("a large value", c.set("large", large), True)
same("comes back", c.get("large"), large)
raises("one that is too large", MemcacheServerError, lambda: c.set("huge", b"x" * 2**21))
same("the connection is still good", c.get("large"), large)

same("noreply", c.set("quiet", b"x", noreply=True), True)
same("is stored", c.get("quiet"), b"x")
same("delete", c.delete("quiet"), True)
same("delete of a missing key", c.delete("quiet"), False)
same("delete_many", c.delete_many(list(many)), True)
same("all deleted", c.get_many(list(many)), {})

flags = connect(address, serde=serde.pickle_serde, **options)
for name, thing in {"int": 42, "text": "käse", "list": [1, "two", None]}.items():
    flags.set(name, thing)
    same(f"a {name}, told by its flags", flags.get(name), thing)

same("version", c.version()[:1].isdigit(), True)
same("stats", "curr_items" in {k.decode() for k in c.stats()}, True)
same("verbosity", c.raw_command(b"verbosity 0"), b"OK")
c.quit()

if door == "token":
    outside = Client(address, **options)
    raises("a get without a login", MemcacheClientError, lambda: outside.get("large"))
    raises("a wrong password", MemcacheClientError, lambda: outside.set("login", b"larder wrong"))
    raises("a set without a login", MemcacheClientError, lambda: outside.set("large", b"x"))
if door == "tls":
    options["tls_context"] = ssl.create_default_context()
    raises("a server that nobody vouches for", ssl.SSLError, lambda: connect(address, **options).get("large"))
print(f"pymemcache {pymemcache.__version__}, {door}: {checks} checks")
