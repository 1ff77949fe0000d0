"""Writes the vectors beside it from what clients store in a memcached. See README.md.

    python3 generate.py [--python PYTHON=CLIENT,...] [--jars FOLDER] [NAME...]
"""

import argparse
import base64
import pathlib
import socket
import subprocess
import time

HERE = pathlib.Path(__file__).parent
CLIENTS = HERE / "clients"


def commands(pythons, jars):
    """The file of each client's vectors, and the command that stores the values."""
    java = ["java", "-cp", f"{jars}/*", str(CLIENTS / "Values.java")]
    found = {
        "php-memcached": ["php", str(CLIENTS / "php_memcached.php")],
        "php-memcache": ["php", str(CLIENTS / "php_memcache.php")],
        "dalli": ["ruby", str(CLIENTS / "dalli.rb")],
    }
    for client in ["pymemcache", "python-memcached", "pylibmc"]:
        found[client] = [pythons.get(client, "python3"), str(CLIENTS / "python.py"), client]
    for client in ["spymemcached", "whalin", "whalin-transcoder", "whalin-v1-transcoder"]:
        found[client] = java + [client]
    return found


def start_memcached():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(port)])
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server, port
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise SystemExit("memcached does not listen")


def read(replies, name):
    """The flags and the bytes of an item."""
    replies.write(b"get " + name.encode() + b"\r\n")
    replies.flush()
    _, _, flags, size = replies.readline().split()
    value = replies.read(int(size))
    assert replies.readline() == b"\r\n" and replies.readline() == b"END\r\n"
    return int(flags), value


def vectors(command, port):
    told = subprocess.run(command + ["write", str(port)], check=True, capture_output=True, text=True).stdout
    replies = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
    for line in told.splitlines():
        if line.startswith("#"):
            yield line
            continue
        name, described = line.split("\t")
        flags, value = read(replies, name)
        yield f"{name} {flags}"
        yield from wrapped("= ", described)
        yield from wrapped("< ", base64.b64encode(value).decode())


def wrapped(mark, text):
    for start in range(0, max(len(text), 1), 100):
        yield (mark + text[start : start + 100]).rstrip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", action="append", default=[], help="INTERPRETER=CLIENT")
    parser.add_argument("--jars", default="jars")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    pythons = {client: python for python, client in (pair.split("=") for pair in args.python)}
    for name, command in commands(pythons, args.jars).items():
        if args.names and name not in args.names:
            continue
        server, port = start_memcached()
        try:
            text = "\n".join(vectors(command, port)) + "\n"
        finally:
            server.terminate()
            server.wait()
        (HERE / f"{name}.txt").write_text(text)
        print(name, sum(line[0] not in "#=<" for line in text.splitlines()), "values")


main()
