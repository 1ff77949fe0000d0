"""Gets many keys over UDP and collects all datagrams of the reply: multiget.py HOST PORT.

Each reply is a sequence of datagrams, numbered from 0, with the request's id and their total. A server may answer a get
of several keys with one sequence or with one for every hit; both are put together here.
"""

import socket
import struct
import sys

FRAME = struct.Struct("!HHHH")  # request id, sequence number, total of datagrams, reserved
HEADER = struct.Struct("!BBHBBHIIQ")  # of the binary protocol
GETKQ, NOOP = 0x0D, 0x0A
DATAGRAM_BYTES_MAX = 1400

host, port = sys.argv[1], int(sys.argv[2])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.connect((host, port))
udp.settimeout(5)
next_id = 0
checks = 0


def same(what, got, want):
    global checks
    checks += 1
    if got != want:
        sys.exit(f"UDP: {what}: got {got!r:.200}, want {want!r:.200}")


def ask(request, complete):
    """Sends a request in one datagram; returns the reply, which `complete` knows the end of."""
    global next_id
    next_id += 1
    udp.send(FRAME.pack(next_id, 0, 1, 0) + request)
    reply = b""
    parts = {}
    while not complete(reply):
        datagram = udp.recv(65536)
        request_id, number, total, reserved = FRAME.unpack_from(datagram)
        same("size of a datagram", len(datagram) <= DATAGRAM_BYTES_MAX, True)
        same("id of a reply", (request_id, reserved), (next_id, 0))
        same("number of a datagram that is new and below the total", number < total and number not in parts, True)
        parts[number] = datagram[FRAME.size :]
        if len(parts) == total:
            reply += b"".join(parts[n] for n in range(total))
            parts = {}
    same("datagrams left over", parts, {})
    return reply


values = {f"udp:k{i}".encode(): b"%d " % i * i for i in range(100)}
for key, value in values.items():
    stored = ask(b"set %s 7 0 %d\r\n%s\r\n" % (key, len(value), value), lambda reply: reply.endswith(b"\r\n"))
    same("set", stored, b"STORED\r\n")

# Text. The missing key stands last: for one that stands first memcached 1.6.18 sends a datagram with the total 0.
reply = ask(b"get " + b" ".join(values) + b" udp:missing\r\n", lambda reply: reply.endswith(b"END\r\n"))
expected = b"".join(b"VALUE %s 7 %d\r\n%s\r\n" % (key, len(value), value) for key, value in values.items())
same("get of 100 keys", reply, expected + b"END\r\n")

# One value that needs several datagrams.
large = bytes(range(256)) * 40
with socket.create_connection((host, port)) as tcp:
    tcp.sendall(b"set udp:large 0 0 %d\r\n%s\r\n" % (len(large), large))
    same("set over TCP", tcp.recv(100), b"STORED\r\n")
reply = ask(b"get udp:large\r\n", lambda reply: reply.endswith(b"END\r\n"))
same("a large value", reply, b"VALUE udp:large 0 %d\r\n%s\r\nEND\r\n" % (len(large), large))

# Binary: quiet gets, ended by a command that is answered.
request = b"".join(
    HEADER.pack(0x80, GETKQ, len(key), 0, 0, 0, len(key), number, 0) + key
    for number, key in enumerate([*values, b"udp:missing"])
)
end = HEADER.pack(0x81, NOOP, 0, 0, 0, 0, 0, 0xFFFF, 0)
reply = ask(request + HEADER.pack(0x80, NOOP, 0, 0, 0, 0, 0, 0xFFFF, 0), lambda reply: reply.endswith(end))
got = {}
while reply != end:
    magic, opcode, key_bytes, extras_bytes, _, status, body_bytes, opaque, _ = HEADER.unpack_from(reply)
    same("header of a hit", (magic, opcode, extras_bytes, status), (0x81, GETKQ, 4, 0))
    body, reply = reply[HEADER.size : HEADER.size + body_bytes], reply[HEADER.size + body_bytes :]
    got[body[4 : 4 + key_bytes]] = body[4 + key_bytes :]
same("quiet gets of 100 keys", got, values)
print(f"UDP gets of 100 keys, text and binary: {checks} checks")
