"""The keys: short, long, of each length, with other characters than ASCII, and bytes that are no text."""

HASH_TAGGED = [f"{{user{n}}}:{part}" for n in range(6) for part in ("name", "mail")] + ["{}x", "{x", "x}{y}", "{{a}}"]


def keys():
    yield from (letter.encode() for letter in "abcdefghijkl0123456789:-_/")
    yield from (b"key:%d" % n for n in range(100))
    yield from (b"session-0123456789abcdefghijklmnopqrstuvwxyz"[:length] for length in range(2, 44))
    yield from (b"page:%d:" % length + b"x" * (length - 9) for length in (100, 127, 128, 200, 245, 246, 249, 250))
    yield from (key.encode() for key in HASH_TAGGED)
    yield from (key.encode() for key in ("ä", "größe", "naïve café", "ключ", "ключ:2", "键", "键:值", "キー", "🔑", "a🔑b"))
    yield from (f"{word}:{n}".encode() for n in range(8) for word in ("straße", "мир", "世界", "🗝"))
    # Bytes that are no UTF-8; each number of them modulo 4.
    yield from (bytes((0x80 + 37 * n + 11 * at) % 128 + 128 for at in range(1 + n % 9)) for n in range(27))
    yield from (b"id:" + bytes([200 + n, 129 + n]) for n in range(9))
    # Fifteen bits of their CRC-32 and their FNV-1a are 0.
    yield from (b"id:21181", b"id:19669")
    # Their MD5 sums begin with a point of a server.
    yield from (b"127.0.1.1-0", b"127.0.1.1:11211-0", b"127.0.1.1:11211-7", b"127.0.1.3:11212-3", b"127.0.1.5-39")
    # Not for the text protocol.
    yield from (b"two words", b"\x01\x02\x03", b"tab\there", b"line\n", b"zero\0byte", b"\x7f")


def written(key):
    """A key as a line: what is not visible ASCII, and %, as %XX."""
    return "".join(chr(byte) if 32 < byte < 127 and byte != 37 else f"%{byte:02X}" for byte in key)
