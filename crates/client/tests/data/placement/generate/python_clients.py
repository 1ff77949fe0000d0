"""Prints the server that a client for Python chooses for each key of standard input (in hexadecimal).

Arguments: CLIENT SERVERS [OPTION]... Servers are HOST:PORT:WEIGHT or PATH:WEIGHT.
"""

import sys


def pylibmc(servers, options):
    import pylibmc

    given = dict(option.split("=") for option in options)
    behaviors = {name: int(value) if value.isdigit() else value for name, value in given.items()}
    client = pylibmc.Client([address(host, port) for host, port, _ in servers], behaviors=behaviors)
    return lambda key: client.get(key).decode() if is_printable(key) else "-"


def pymemcache(servers, options):
    from pymemcache.client.hash import HashClient

    client = HashClient([(host, int(port)) if port else host for host, port, _ in servers], allow_unicode_keys=True)
    by_server = {(host, int(port)) if port else host: address(host, port) for host, port, _ in servers}

    def server_of(key):
        try:
            return by_server[client._get_client(key.decode()).server]
        except Exception:
            return "-"

    return server_of


def python_memcached(servers, options):
    import memcache

    if "old" in options:
        memcache.useOldServerHashFunction()
    client = memcache.Client([(name(*server), int(server[2])) for server in servers])
    return lambda key: client.get(key).decode() if is_printable(key) else "-"


def uhashring(servers, options):
    from uhashring import HashRing

    ring = HashRing(nodes={address(host, port): int(weight) for host, port, weight in servers}, hash_fn="ketama")

    def server_of(key):
        try:
            return ring.get_node(key.decode())
        except UnicodeDecodeError:
            return "-"

    return server_of


def jump(servers, options):
    import jump

    names = [address(host, port) for host, port, _ in servers]
    return lambda key: names[jump.hash(int.from_bytes(key[:8].ljust(8, b"\0"), "little"), len(names))]


def name(host, port, weight):
    return f"{host}:{port}" if port else f"unix:{host}"


def address(host, port):
    return f"{host}:{port}" if port else host


def is_printable(key):
    return 0 < len(key) <= 250 and all(byte > 32 and byte != 127 for byte in key)


def parts(server):
    server, weight = server.rsplit(":", 1)
    host, port = (server, "") if server.startswith("/") else server.rsplit(":", 1)
    return host, port, weight


server_of = globals()[sys.argv[1]]([parts(server) for server in sys.argv[2].split(",")], sys.argv[3:])
for line in sys.stdin:
    print(server_of(bytes.fromhex(line)))
