"""Asks each client where it sends the keys, and writes the answers: generate.sh runs it.

A file has the client's version, lists of servers, and for each list what the client was set to and one character a key:
the position of its server in the list (0-9, a-z), or "-" if the client refuses the key. Files of hashes have the hash
of each key in hexadecimal.
"""

import os
import pathlib
import subprocess
import sys
import time

import servers
from keys import keys, written

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent
WORK = pathlib.Path(sys.argv[1])
KEYS = list(keys())
LISTS = {
    "even": "127.0.1.1:11211:1,127.0.1.2:11211:1,127.0.1.3:11212:1,localhost:11213:1,127.0.1.5:11211:1",
    "weighted": "127.0.1.1:11211:3,127.0.1.2:11211:1,127.0.1.3:11212:2,localhost:11213:7,127.0.1.5:11211:4",
    # The share of each server is rounded otherwise in single precision than in whole numbers.
    "rounded": "127.0.1.1:11211:4,127.0.1.2:11211:8,127.0.1.3:11212:2,localhost:11213:3,127.0.1.5:11211:8",
    "addresses": "127.0.1.1:11211:2,127.0.1.2:11211:3,127.0.1.3:11212:1",
    "sockets": "/tmp/larder-a:2,127.0.1.2:11211:1,/tmp/larder-b:1",
    "paths": "/tmp/larder-a:2,/tmp/larder-c:1,/tmp/larder-b:1",
    "two": "127.0.1.2:11211:1,127.0.1.1:11211:1",
    "one": "127.0.1.9:11219:1",
    "many": ",".join(f"127.0.2.{n}:{11200 + n}:1" for n in range(5, 25)),
    "unsorted": "localhost:11213:1,127.0.1.10:9999:2,127.0.1.9:11219:1,127.0.1.1:11211:1",
    "dead": "127.0.1.1:11211:3,127.0.1.66:11211:2,127.0.1.2:11211:1,127.0.1.3:11212:2",
}
DEAD = "127.0.1.66:11211"
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def asked(command):
    """The lines that a client's program prints for the keys."""
    given = "".join(key.hex() + "\n" for key in KEYS)
    done = subprocess.run([str(word) for word in command], input=given, capture_output=True, text=True)
    lines = done.stdout.split("\n")[:-1]
    if done.returncode or len(lines) != len(KEYS):
        sys.exit(f"{command}: {len(lines)} of {len(KEYS)} lines: {done.stderr}")
    return lines


class Record:
    """The file of a client."""

    def __init__(self, name, version):
        self.path = DATA / f"{name}.txt"
        self.lines = [f"client {name} {version}"]
        self.list = None

    def servers(self, name):
        if name != self.list:
            self.list = name
            self.lines += ["", f"servers {LISTS[name]}"]

    def placement(self, name, options, found):
        """Records the addresses that were found for the keys."""
        self.servers(name)
        names = [server.rsplit(":", 1)[0] for server in LISTS[name].split(",")]
        row = "".join("-" if server in ("-", "") else DIGITS[names.index(server)] for server in found)
        self.lines.append(f"options {options}".rstrip())
        self.wrapped(row, 100)

    def hashes(self, algorithm, found):
        self.lines.append(f"hash {algorithm}")
        self.wrapped(" ".join(found), 107)

    def wrapped(self, row, columns):
        self.lines += [row[at:at + columns].strip() for at in range(0, len(row), columns + (columns == 107))]

    def write(self):
        self.path.write_text("\n".join(self.lines) + "\n")
        print(self.path.name, sum(line.startswith(("options", "hash")) for line in self.lines))


def debian(package):
    return subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True).stdout


def libmemcached():
    record = Record("libmemcached", f"{debian('libmemcached-dev')} (Debian, x86-64)")
    program = WORK / "libmemcached"

    def place(name, options):
        options = options if "servers" in options else f"{options} servers"
        record.placement(name, options, asked([program, LISTS[name], *options.split()]))

    for name in LISTS:
        for options in ("", "ketama", "ketama_weighted", "distribution=consistent_ketama_spy",
                        "ketama_weighted distribution=consistent_ketama_spy"):
            place(name, options)
    hashes = ("md5", "crc", "fnv1_64", "fnv1a_64", "fnv1_32", "fnv1a_32", "murmur", "murmur3", "jenkins")
    for hash in hashes:
        place("even", f"hash={hash}")
        place("even", f"hash={hash} distribution=consistent")
        place("weighted", f"ketama_weighted hash={hash}")
        place("two", f"hash={hash} distribution=virtual_bucket")
    place("weighted", "servers ketama")
    place("unsorted", "sort_hosts")
    place("unsorted", "sort_hosts ketama")
    for options in ("buckets=0123401234012340", "buckets=010203040302010 hash=crc"):
        place("even", options)
    for distribution in ("", "ketama ", "ketama_weighted "):
        place("even", f"{distribution}namespace=shop:")
        place("even", f"{distribution}namespace=shop: hash_with_namespace")
    for distribution in ("", "ketama ", "ketama_weighted ", "distribution=consistent_ketama_spy "):
        place("dead", f"{distribution}servers dead={DEAD}")
    record.write()

    record = Record("libmemcached-hashes", f"{debian('libmemcached-dev')} (Debian, x86-64)")
    for hash in ("default", *hashes):
        record.hashes(hash, asked([program, "hash", hash]))
    record.write()


def twemproxy():
    """A pool for each case, and a get of each key from it."""
    record = Record("twemproxy", f"{debian('nutcracker')} (Debian, x86-64)")
    hashes = ("one_at_a_time", "md5", "crc16", "crc32", "crc32a", "fnv1_64", "fnv1a_64", "fnv1_32", "fnv1a_32",
              "hsieh", "murmur", "jenkins")
    cases = [("weighted", f"hash={hash} distribution={distribution}") for hash in hashes
             for distribution in ("ketama", "modula")]
    cases += [(name, f"hash=fnv1a_64 distribution={distribution}")
              for name in ("even", "rounded", "sockets", "two", "one", "many", "unsorted")
              for distribution in ("ketama", "modula")]
    cases += [("even", f"hash=md5 distribution={distribution} hash_tag={{}}") for distribution in ("ketama", "modula")]
    cases += [("even", f"hash=murmur distribution={distribution} names=delta,charlie,b,alpha,echo")
              for distribution in ("ketama", "modula")]
    cases += [("dead", f"hash=fnv1a_64 distribution={distribution} dead={DEAD}")
              for distribution in ("ketama", "modula")]
    config = []
    for number, (name, words) in enumerate(cases):
        options = dict(word.split("=") for word in words.split())
        names = options.get("names", "").split(",")
        lines = [f" {server}" for server in names if server] or [""] * 99
        config += [f"pool{number}:", f"  listen: 127.0.3.1:{20000 + number}", f"  hash: {options['hash']}",
                   f"  distribution: {options['distribution']}", "  timeout: 5000"]
        if "hash_tag" in options:
            config.append(f'  hash_tag: "{options["hash_tag"]}"')
        if "dead" in options:
            config += ["  auto_eject_hosts: true", "  server_failure_limit: 1", "  server_retry_timeout: 3600000"]
        config.append("  servers:")
        config += [f"    - {server}{suffix}" for server, suffix in zip(LISTS[name].split(","), lines)]
    path = WORK / "nutcracker.yml"
    path.write_text("\n".join(config) + "\n")
    with (WORK / "nutcracker.log").open("w") as log:
        proxy = subprocess.Popen(["nutcracker", "-c", path, "-s", "22222", "-m", "65536"], stdout=log, stderr=log)
    try:
        time.sleep(1)
        for number, (name, options) in enumerate(cases):
            address = ("127.0.3.1", 20000 + number)
            if "dead" in options:
                # The first requests to the server that is down are answered with an error, and eject it.
                for n in range(100):
                    servers.ask(address, b"eject:%d" % n)
            printable = [0 < len(key) <= 250 and all(byte > 32 and byte != 127 for byte in key) for key in KEYS]
            found = [servers.ask(address, key) if ok else "-" for key, ok in zip(KEYS, printable)]
            record.placement(name, options, found)
    finally:
        proxy.terminate()
    record.write()


def spymemcached():
    java = ["java", "-cp", f"{WORK}/classes:{WORK}/jars/*", "Spymemcached"]
    record = Record("spymemcached", "2.12.3 (Maven; OpenJDK 17)")
    hashes = ("NATIVE_HASH", "CRC_HASH", "FNV1_64_HASH", "FNV1A_64_HASH", "FNV1_32_HASH", "FNV1A_32_HASH",
              "KETAMA_HASH")
    formats = ("SPYMEMCACHED", "LIBMEMCACHED")

    def place(name, options):
        record.placement(name, options, asked([*java, LISTS[name], *options.split()]))

    for hash in hashes:
        place("even", f"modula {hash}")
        place("even", f"ketama {hash} LIBMEMCACHED")
        place("addresses", f"ketama {hash} SPYMEMCACHED")
    for format in formats:
        place("addresses", f"ketama KETAMA_HASH {format} weighted")
        place("addresses", f"ketama FNV1A_32_HASH {format} weighted")
        place("many", f"ketama KETAMA_HASH {format}")
        place("one", f"ketama KETAMA_HASH {format}")
        place("weighted", f"ketama KETAMA_HASH {format} weighted")
        place("rounded", f"ketama KETAMA_HASH {format} weighted")
    record.write()

    record = Record("spymemcached-hashes", "2.12.3 (Maven; OpenJDK 17)")
    for hash in hashes:
        record.hashes(hash, [found.rjust(8, "-") for found in asked([*java, "hash", hash])])
    record.write()


def whalin():
    record = Record("whalin", "Memcached-Java-Client 3.0.2 (Maven; OpenJDK 17)")
    java = ["java", "-Dfile.encoding=UTF-8", "-cp", f"{WORK}/classes:{WORK}/jars/*", "Whalin"]
    for name in ("even", "addresses", "two", "one", "many"):
        for options in ("native", "old", "new", "consistent"):
            record.placement(name, options, asked([*java, LISTS[name], options]))
    for options in ("native", "old", "new", "consistent"):
        record.placement("weighted", f"{options} weighted", asked([*java, LISTS["weighted"], options, "weighted"]))
    record.placement("rounded", "consistent weighted", asked([*java, LISTS["rounded"], "consistent", "weighted"]))
    record.write()


def php():
    record = Record("php-memcached", f"{debian('php-memcached')} with libmemcached {debian('libmemcached11')} (Debian)")
    for name in ("even", "weighted", "sockets", "two", "one"):
        for options in ("", "DISTRIBUTION=DISTRIBUTION_CONSISTENT", "LIBKETAMA_COMPATIBLE=1"):
            command = ["php", HERE / "php_memcached.php", LISTS[name], *options.split()]
            record.placement(name, options, asked(command))
    for options in ("HASH=HASH_MD5", "HASH=HASH_CRC DISTRIBUTION=DISTRIBUTION_CONSISTENT",
                    "LIBKETAMA_COMPATIBLE=1 HASH=HASH_MURMUR", "PREFIX_KEY=shop:",
                    "PREFIX_KEY=shop: HASH_WITH_PREFIX_KEY=1", "LIBKETAMA_COMPATIBLE=1 SORT_HOSTS=1"):
        command = ["php", HERE / "php_memcached.php", LISTS["unsorted"], *options.split()]
        record.placement("unsorted", options, asked(command))
    record.write()

    record = Record("php-memcache", f"{debian('php-memcache')} (Debian)")
    for name in ("even", "weighted", "two", "one", "many", "sockets"):
        for strategy in ("standard", "consistent"):
            for hash in ("crc32", "fnv"):
                command = ["php", HERE / "php_memcache.php", LISTS[name], strategy, hash]
                record.placement(name, f"{strategy} {hash}", asked(command))
    record.write()


def python():
    program = [sys.executable, HERE / "python_clients.py"]

    def version(package):
        from importlib.metadata import version
        return f"{version(package)} (PyPI)"

    def recorded(client, package, cases):
        record = Record(client, version(package))
        for name, options in cases:
            record.placement(name, options, asked([*program, client.replace("-", "_"), LISTS[name], *options.split()]))
        record.write()

    every = ("even", "weighted", "sockets", "two", "one", "many")
    behaviors = ("", "ketama=1", "ketama_weighted=1", "hash=md5", "distribution=consistent hash=fnv1a_32")
    recorded("pylibmc", "pylibmc",
             [(name, options) for name in ("even", "paths", "two", "one") for options in behaviors])
    recorded("pymemcache", "pymemcache", [(name, "") for name in every])
    recorded("python-memcached", "python-memcached",
             [(name, options) for name in every for options in ("", "old")])
    record = Record("python-memcached-1.59", f"{debian('python3-memcache')} (Debian)")
    for name in ("even", "weighted", "two", "one"):
        command = ["/usr/bin/python3", HERE / "python_clients.py", "python_memcached", LISTS[name]]
        record.placement(name, "", asked(command))
    record.write()
    recorded("uhashring", "uhashring", [(name, "") for name in ("even", "weighted", "rounded", "two", "one", "many")])
    recorded("jump", "jump-consistent-hash", [(name, "") for name in ("even", "two", "one", "many")])


def ruby():
    record = Record("dalli", f"{debian('ruby-dalli')} (Debian)")
    for name in ("even", "weighted", "rounded", "sockets", "two", "one", "many"):
        record.placement(name, "", asked(["ruby", HERE / "dalli.rb", LISTS[name]]))
    record.placement("even", "namespace=shop", asked(["ruby", HERE / "dalli.rb", LISTS["even"], "shop"]))
    record.write()


def perl():
    for module in ("Cache::Memcached", "Cache::Memcached::Fast"):
        name = module.lower().replace("::", "-")
        record = Record(name, f"{debian(f'lib{name}-perl')} (Debian)")
        program = ["perl", HERE / "cache_memcached.pl", module]
        for servers in ("even", "weighted", "two", "one", "many", "sockets"):
            record.placement(servers, "", asked([*program, LISTS[servers]]))
        record.placement("even", "namespace=shop:", asked([*program, LISTS["even"], "shop:"]))
        if module.endswith("Fast"):
            command = [*program, LISTS["even"], "shop:", "hash_namespace"]
            record.placement("even", "namespace=shop: hash_namespace", asked(command))
        record.write()


def failover():
    """A server is down, and the client tries others. Options: the client, and what it is set to."""
    record = Record("failover", "the clients of the other files")
    java = ["java", "-Dfile.encoding=UTF-8", "-cp", f"{WORK}/classes:{WORK}/jars/*"]
    for options in ("modula NATIVE_HASH", "ketama KETAMA_HASH LIBMEMCACHED", "ketama FNV1A_32_HASH LIBMEMCACHED"):
        command = [*java, f"-Ddead={DEAD}", "Spymemcached", LISTS["dead"], *options.split()]
        record.placement("dead", f"spymemcached {options}", asked(command))
    for options in ("new weighted", "consistent weighted"):
        record.placement("dead", f"whalin {options}", asked([*java, "Whalin", LISTS["dead"], *options.split()]))
    for options in ("standard crc32", "consistent crc32", "consistent fnv"):
        command = ["php", HERE / "php_memcache.php", LISTS["dead"], *options.split()]
        record.placement("dead", f"php-memcache {options}", asked(command))
    record.placement("dead", "dalli", asked(["ruby", HERE / "dalli.rb", LISTS["dead"], "", DEAD]))
    command = ["perl", HERE / "cache_memcached.pl", "Cache::Memcached", LISTS["dead"]]
    record.placement("dead", "cache-memcached", asked(command))
    command = ["/usr/bin/python3", HERE / "python_clients.py", "python_memcached", LISTS["dead"]]
    record.placement("dead", "python-memcached", asked(command))
    record.write()


def main():
    (DATA / "keys.txt").write_text("".join(written(key) + "\n" for key in KEYS))
    names = {server.rsplit(":", 1)[0] for servers in LISTS.values() for server in servers.split(",")}
    for name in sorted(names - {DEAD}):
        servers.start(name)
    steps = [libmemcached, twemproxy, spymemcached, whalin, php, python, ruby, perl, failover]
    for step in [step for step in steps if step.__name__ in sys.argv[2:]] or steps:
        step()


main()
