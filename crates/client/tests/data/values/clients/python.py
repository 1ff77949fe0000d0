"""The clients of Python: `python3 python.py CLIENT write|read PORT`. See ../README.md."""

import pickle
import platform
import sys
import zlib

client_name, action, port = sys.argv[1:]
address = "127.0.0.1:" + port


def describe(value):
    if isinstance(value, bytes):
        return ("bytes " + value.hex()).strip()
    if isinstance(value, str):
        return ("text " + value.encode().hex()).strip()
    if isinstance(value, bool):
        return "bool " + str(value).lower()
    if isinstance(value, int):
        return f"integer {value}"
    return serialized(value)


def serialized(value):
    data = pickle.dumps(value, pickle_protocol)
    told = data.hex() if len(data) <= 100 else f"@crc {len(data)} {zlib.crc32(data):08x}"
    return "serialized pickle " + told


def lines(count):
    return "".join(f"line {i}\n" for i in range(count))


VALUES = {
    "empty": b"", "bytes": b"abc", "binary": b"\x00\xff\x80\r\n", "text-empty": "", "text": "grüße",
    "zero": 0, "minus": -1, "small": 42, "large": 2**63 - 1, "least": -2**63,
    "true": True, "false": False, "float": 1.5, "none": None, "list": [1, "a", {"b": None}],
}
ROWS = ["a row"] * 300

if client_name == "pymemcache":
    import pymemcache
    from pymemcache import serde
    from pymemcache.client.base import Client

    version = "pymemcache " + pymemcache.__version__
    plain = Client(address, serde=serde.pickle_serde)
    compressing = Client(address, serde=serde.compressed_serde)
    get, put = compressing.get, lambda name, value: plain.set(name, value, noreply=False)
    put_compressed = lambda name, value: compressing.set(name, value, noreply=False)
    pickle_protocol = serde.DEFAULT_PICKLE_VERSION
elif client_name == "python-memcached":
    import memcache

    version = "python-memcached " + memcache.__version__
    plain = memcache.Client([address])
    get, put = plain.get, plain.set
    put_compressed = lambda name, value: plain.set(name, value, min_compress_len=100)
    pickle_protocol = plain.pickleProtocol
elif client_name == "pylibmc":
    import pylibmc

    version = f"pylibmc {pylibmc.__version__}, libmemcached {pylibmc.libmemcached_version}"
    plain = pylibmc.Client([address])
    get, put = plain.get, plain.set
    put_compressed = lambda name, value: plain.set(name, value, min_compress_len=100)
    pickle_protocol = -1
else:
    sys.exit("no such client: " + client_name)


def store(put, name, value, described=None):
    if not put(name, value):
        sys.exit(name + " is not stored")
    print(name, described or describe(value), sep="\t")


if action == "read":
    for line in sys.stdin:
        name = line.strip()
        print(name, describe(get(name)), sep="\t")
else:
    print(f"# {version}, Python {platform.python_version()}")
    for name, value in VALUES.items():
        described = None
        if isinstance(value, bool):
            # pylibmc itself gives back an integer, and the others have no flag for one.
            described = f"integer {int(value)}" if client_name == "pylibmc" else serialized(value)
        store(put, name, value, described)
    store(put_compressed, "lines-text-zlib", lines(400), "text @lines 400")
    store(put_compressed, "lines-bytes-zlib", lines(400).encode(), "bytes @lines 400")
    store(put_compressed, "rows-zlib", ROWS)
    store(put_compressed, "short-zlib", b"too short to compress")
    store(put_compressed, "number-zlib", 42)
