"""Servers that answer every get with their own address, for the clients that have to be asked over a socket."""

import os
import socket
import socketserver
import threading


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            self.answer()
        except ConnectionError:
            pass  # A client that is done.

    def answer(self):
        for line in self.rfile:
            words = line.split()
            if not words:
                continue
            if words[0] == b"version":
                self.wfile.write(b"VERSION 1.6.0\r\n")
                continue
            name = self.server.name
            values = (b"VALUE %s 0 %d\r\n%s\r\n" % (key, len(name), name) for key in words[1:])
            self.wfile.write(b"".join(values) + b"END\r\n")


class Tcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


class Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


def start(name):
    """Starts a server at HOST:PORT or a path."""
    if name.startswith("/"):
        if os.path.exists(name):
            os.remove(name)
        server = Unix(name, Handler)
    else:
        host, port = name.rsplit(":", 1)
        server = Tcp((host, int(port)), Handler)
    server.name = name.encode()
    threading.Thread(target=server.serve_forever, daemon=True).start()


def ask(address, key):
    """What the server at the address (a proxy) gets for the key."""
    with socket.create_connection(address) as connection:
        connection.sendall(b"get %s\r\n" % key)
        reply = b""
        while not (reply.endswith(b"END\r\n") or b"ERROR" in reply):
            received = connection.recv(4096)
            if not received:
                break
            reply += received
    lines = reply.split(b"\r\n")
    return lines[1].decode() if lines[0].startswith(b"VALUE") else None
