"""Exercises larderd's HTTP for items with requests and http.client: smoke.py HOST PORT [nginx].

With nginx, every request goes through one, set up as docs/http.md says.
"""

import contextlib
import http.client
import io
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
from urllib.parse import quote

import requests

checks = 0
PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/http.md"


def same(what, got, want):
    global checks
    checks += 1
    if got != want:
        sys.exit(f"http: {what}: got {got!r:.200}, want {want!r:.200}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_nginx(larderd, folder):
    """Starts nginx with the configuration of the page; returns it and its address."""
    port = free_port()
    (config,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(), re.S)
    config = config.replace("127.0.0.1:8080", "%s:%d" % larderd).replace("listen 80", f"listen 127.0.0.1:{port}")
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    http = f"access_log off; {temporary} {config}"
    main = f"daemon off; pid {folder}/pid; error_log stderr; events {{}} http {{ {http} }}"
    # Started by root, it serves as another user.
    pathlib.Path(folder).chmod(0o755)
    pathlib.Path(folder, "nginx.conf").write_text(main)
    nginx = subprocess.Popen(["/usr/sbin/nginx", "-p", folder, "-c", f"{folder}/nginx.conf"], stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return nginx, ("127.0.0.1", port)
        except OSError:
            time.sleep(0.1)
    nginx.kill()
    sys.exit("nginx does not start")


class Session(requests.Session):
    """Waits for no reply for ever."""

    def request(self, *args, **options):
        return super().request(*args, **{"timeout": 10, **options})


def run_example(address):
    """Runs the program of the page."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program.replace("127.0.0.1:8080", "%s:%d" % address), {})
    same("the page's program", printed.getvalue(), "hello\n")


def exercise(address):
    run_example(address)
    base = "http://%s:%d/v1/items" % address
    s = Session()

    def url(key):
        return f"{base}/{quote(key, safe='')}"

    same("get of a missing key", s.get(url("missing")).status_code, 404)
    same("put", s.put(url("a"), data=b"1", headers={"Larder-Flags": "7", "Larder-TTL": "100"}).status_code, 201)
    r = s.get(url("a"))
    same("get", (r.status_code, r.content, r.headers["Larder-Flags"]), (200, b"1", "7"))
    same("its type", r.headers["Content-Type"], "application/octet-stream")
    same("its ttl", 0 < int(r.headers["Larder-TTL"]) <= 100, True)
    same("put again", s.put(url("a"), data=b"2").status_code, 204)
    head = s.head(url("a"))
    same("head", (head.status_code, head.headers["Content-Length"], head.content), (200, "1", b""))

    tag = head.headers["ETag"]
    same("get with the tag", s.get(url("a"), headers={"If-None-Match": tag}).status_code, 304)
    same("add", s.put(url("new"), data=b"x", headers={"If-None-Match": "*"}).status_code, 201)
    same("add of a key that is there", s.put(url("new"), data=b"y", headers={"If-None-Match": "*"}).status_code, 412)
    same("replace of a missing key", s.put(url("missing"), data=b"y", headers={"If-Match": "*"}).status_code, 412)
    same("cas", s.put(url("a"), data=b"3", headers={"If-Match": tag}).status_code, 204)
    same("cas with a stale tag", s.put(url("a"), data=b"4", headers={"If-Match": tag}).status_code, 412)
    same("delete with a stale tag", s.delete(url("a"), headers={"If-Match": tag}).status_code, 412)

    same("append", s.post(url("a"), params={"op": "append"}, data=b">").status_code, 204)
    same("prepend", s.post(url("a"), params={"op": "prepend"}, data=b"<").status_code, 204)
    same("what they made", s.get(url("a")).content, b"<3>")
    same("append to a missing key", s.post(url("missing"), params={"op": "append"}, data=b"x").status_code, 404)
    same("incr of a missing key", s.post(url("n"), params={"op": "incr"}).status_code, 404)
    same("incr with an initial", s.post(url("n"), params={"op": "incr", "initial": 10}).text, "10")
    same("incr", s.post(url("n"), params={"op": "incr", "delta": 5}).text, "15")
    same("decr", s.post(url("n"), params={"op": "decr", "delta": 20}).text.strip(), "0")
    same("incr of a word", s.post(url("a"), params={"op": "incr"}).status_code, 409)

    for key in ("käse", "a b", "a/b", "a+b", "a%2Fb", "ü" * 125, "?&#=", '"<>{}|^`'):
        same(f"put of {key!r}", s.put(url(key), data=key.encode()).status_code, 201)
        same(f"get of {key!r}", s.get(url(key)).content, key.encode())
    same("a key that is too long", s.put(url("k" * 251), data=b"x").status_code, 400)
    r = s.get(base + "?" + "&".join("key=" + quote(key, safe="") for key in ("a", "missing", "a b")))
    records = re.sub(rb" \d+\r\n", b"\r\n", r.content)
    same("many keys", records, b"VALUE a 0 3\r\n<3>\r\nVALUE a%20b 0 3\r\na b\r\nEND\r\n")

    large = bytes(range(256)) * 2000
    same("a large value", s.put(url("large"), data=large).status_code, 201)
    same("comes back", s.get(url("large")).content, large)
    same("one that is too large", s.put(url("huge"), data=b"x" * (2**20 - 1)).status_code, 413)
    same("the connection is still good", s.get(url("large")).content, large)

    s.put(url("ttl"), data=b"x", headers={"Larder-TTL": "1"})
    s.put(url("touched"), data=b"x", headers={"Larder-TTL": "1"})
    same("touch", s.post(url("touched"), params={"op": "touch"}, headers={"Larder-TTL": "100"}).status_code, 204)
    time.sleep(2.1)
    same("after its time", s.get(url("ttl")).status_code, 404)
    same("touched in time", s.get(url("touched")).content, b"x")
    same("delete", s.delete(url("a")).status_code, 204)
    same("delete of a missing key", s.delete(url("a")).status_code, 404)

    # One connection by the standard library.
    c = http.client.HTTPConnection(*address, timeout=10)
    for n in range(100):
        c.request("PUT", f"/v1/items/{n}", body=b"%d" % n)
        response = c.getresponse()
        response.read()
        same("put by http.client", response.status, 201)
        c.request("GET", f"/v1/items/{n}")
        same("get by http.client", c.getresponse().read(), b"%d" % n)


larderd = (sys.argv[1], int(sys.argv[2]))
if sys.argv[3:] == ["nginx"]:
    with tempfile.TemporaryDirectory() as folder:
        nginx, address = start_nginx(larderd, folder)
        try:
            exercise(address)
            # nginx passes chunks on with their length.
            chunks = requests.put("http://%s:%d/v1/items/chunks" % address, data=iter([b"one", b"two"]), timeout=10)
            same("chunks through nginx", chunks.status_code, 201)
        finally:
            nginx.terminate()
            nginx.wait()
else:
    exercise(larderd)
    chunks = requests.put("http://%s:%d/v1/items/chunks" % larderd, data=iter([b"one", b"two"]), timeout=10)
    same("chunks", chunks.status_code, 411)
print(f"requests {requests.__version__}, {' '.join(sys.argv[3:]) or 'http'}: {checks} checks")
