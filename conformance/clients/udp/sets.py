"""Sets values over UDP with pylibmc, and so libmemcached, and looks for them over TCP: sets.py HOST PORT.

PORT is that of both. libmemcached sends with noreply and expects nothing back.
"""

import sys
import time

import pylibmc

host, port = sys.argv[1:]
c = pylibmc.Client([f"udp:{host}:{port}"])
tcp = pylibmc.Client([f"{host}:{port}"])
P = "udp-sets:"

# libmemcached's datagrams carry up to 1400 bytes; a larger value it refuses to send.
values = {f"k{i}": f"value {i} " * i for i in range(100)}
for key, value in values.items():
    if not c.set(P + key, value):
        sys.exit(f"pylibmc over UDP: set of {key} failed")
c.delete(P + "k0")
c.set(P + "number", 41)
c.incr(P + "number")
del values["k0"]

deadline = time.monotonic() + 5
while (got := tcp.get_multi([*values, "k0", "number"], key_prefix=P)) != values | {"number": 42}:
    if time.monotonic() > deadline:
        missing = [key for key in values if got.get(key) != values[key]]
        sys.exit(f"pylibmc over UDP: {len(missing)} values did not arrive: {missing[:5]}; {got.keys() - values.keys()}")
    time.sleep(0.05)
print(f"pylibmc {pylibmc.__version__}, udp: {len(values) + 2} sets arrived")
