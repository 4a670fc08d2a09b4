"""A process with sockets that send and receive several datagrams by one call, and say by ancillary data how; batch.py tells it what
to do.

  {"open": [name, family, options, bound, peer]}   a UDP socket; an address is [host, port] or null
  {"set": [name, level, option, value]}            an int, or bytes as hex: "ok" or an errno's name
  {"get": [name, level, option]}                   an int, or an errno's name
  {"send": [name, messages, how]}                  by sendmsg each, or by one sendmmsg ("how": flags, "many"): lengths, or an errno
  {"receive": [name, how]}                         by recvmsg, or by one recvmmsg ("how": most, room, flags, timeout, later, bad)
  {"heard": [name, count, patience]}               what a receiver has got, until so many or the time is over
  {"connect"|"listen"|"accept"|"tls"|"talk": ...}  TCP
A message: {"to": address, "bytes": its length, "control": [[level, type, hex], ...], "pieces": of it, "raw": hex of msg_control}.
Structures and numbers: recvmmsg(2), cmsg(3), linux/udp.h, linux/tls.h.
"""
import ctypes
import errno
import json
import os
import select
import socket
import struct
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
UDP_GRO, TCP_ULP, SOL_TLS, TLS_TX, TLS_RX = 104, 31, 282, 1, 2
BAD = ctypes.c_void_p(8)  # a pointer to nowhere


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Header(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint), ("iov", ctypes.POINTER(Iovec)), ("iovlen", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t), ("flags", ctypes.c_int)]


class Many(ctypes.Structure):
    _fields_ = [("header", Header), ("len", ctypes.c_uint)]


class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


def name_of(number: int) -> str:
    return errno.errorcode[number]


def tried(call):
    try:
        done = call()
        return "ok" if done is None else done
    except OSError as error:
        return name_of(error.errno)


def control_of(message: dict) -> bytes:
    if "raw" in message:
        return bytes.fromhex(message["raw"])
    out = b""
    for level, kind, data in message.get("control", []):
        data = bytes.fromhex(data)
        out += struct.pack("=Qii", 16 + len(data), level, kind) + data + bytes(-len(data) % 8)
    return out


def address_of(family: int, to: list) -> bytes:
    if family == socket.AF_INET:
        return struct.pack("=H", family) + struct.pack("!H", to[1]) + socket.inet_aton(to[0]) + bytes(8)
    return struct.pack("=H", family) + struct.pack("!HI", to[1], 0) + socket.inet_pton(family, to[0]) + struct.pack("=I", to[2] if len(to) > 2 else 0)


def payload(message: dict) -> bytes:
    """Numbered, so that the receiver sees where each byte was."""
    return bytes(i % 251 for i in range(message["bytes"]))


class Batch:
    """The arguments of sendmmsg() and recvmmsg(), which must live as long as the call."""

    def __init__(self, count: int):
        self.many, self.keep = (Many * count)(), []

    def buffer(self, data) -> ctypes.c_void_p:
        held = ctypes.create_string_buffer(data, len(data)) if isinstance(data, bytes) else ctypes.create_string_buffer(data)
        self.keep.append(held)
        return ctypes.cast(held, ctypes.c_void_p)

    def fill(self, i: int, pieces: list, control=b"", name=b"") -> None:
        header = self.many[i].header
        vector = (Iovec * max(1, len(pieces)))(*[Iovec(self.buffer(p), len(p) if isinstance(p, bytes) else p) for p in pieces])
        self.keep.append(vector)
        header.iov, header.iovlen = vector, len(pieces)
        if control:
            header.control, header.controllen = self.buffer(control), len(control) if isinstance(control, bytes) else control
        if name:
            header.name, header.namelen = self.buffer(name), len(name)


def cut(data: bytes, pieces: int) -> list[bytes]:
    step = max(1, -(-len(data) // pieces))
    return [data[at:at + step] for at in range(0, len(data), step)] or [b""]


class Member:
    def __init__(self) -> None:
        self.sockets: dict[str, socket.socket] = {}

    def close(self) -> None:
        for s in self.sockets.values():
            s.close()
        self.sockets = {}

    def open(self, name, family, options, bound, peer):
        s = socket.socket(socket.AF_INET6 if family == 6 else socket.AF_INET, socket.SOCK_DGRAM)
        if name in self.sockets:
            self.sockets[name].close()
        self.sockets[name] = s
        for level, option, value in options:
            s.setsockopt(level, option, bytes.fromhex(value) if isinstance(value, str) else value)
        if bound:
            s.bind(tuple(bound))
        if peer:
            s.connect(tuple(peer))
        return [s.fileno(), s.getsockname()[1]]

    def set(self, name, level, option, value):
        return tried(lambda: self.sockets[name].setsockopt(level, option, bytes.fromhex(value) if isinstance(value, str) else value))

    def get(self, name, level, option):
        return tried(lambda: self.sockets[name].getsockopt(level, option))

    def send(self, name, messages, how):
        s = self.sockets[name]
        batch = Batch(len(messages))
        for i, m in enumerate(messages):
            batch.fill(i, cut(payload(m), m.get("pieces", 1)), control_of(m), address_of(s.family, m["to"]) if m.get("to") else b"")
            if m.get("bad"):
                batch.many[i].header.iov = ctypes.cast(BAD, ctypes.POINTER(Iovec))
        if how.get("many"):
            n = libc.sendmmsg(s.fileno(), batch.many, how.get("count", len(messages)), how.get("flags", 0))
            return name_of(ctypes.get_errno()) if n < 0 else [batch.many[i].len for i in range(n)]
        got = []
        for i in range(len(messages)):
            n = libc.sendmsg(s.fileno(), ctypes.byref(batch.many[i].header), how.get("flags", 0))
            got.append(name_of(ctypes.get_errno()) if n < 0 else n)
        return got

    def receive(self, name, how):
        """What came of each: length, flags, the size that UDP_GRO tells, and whether the bytes are those of payload()."""
        s, most, room = self.sockets[name], how.get("most", 1), how.get("room", 2048)
        batch = Batch(most)
        for i in range(most):
            batch.fill(i, [room], how.get("control", 256))
        if "bad" in how:
            batch.many[how["bad"]].header.iov[0].base = BAD
        limit = None
        if "timeout" in how:
            limit = Timespec(int(how["timeout"] // 1), round(how["timeout"] % 1 * 1e9))
        begun = time.monotonic()
        if how.get("many"):
            n = libc.recvmmsg(s.fileno(), batch.many, most, how.get("flags", 0), ctypes.byref(limit) if limit else None)
        else:
            n = libc.recvmsg(s.fileno(), ctypes.byref(batch.many[0].header), how.get("flags", 0))
            batch.many[0].len, n = max(n, 0), min(n, 1) if n else 1
        took = time.monotonic() - begun
        if n < 0:
            return {"error": name_of(ctypes.get_errno()), "took": took}
        return {"got": [self.told(batch.many[i]) for i in range(n)], "took": took, "left": limit.sec + limit.nsec / 1e9 if limit else None}

    @staticmethod
    def told(one: Many) -> list:
        data = ctypes.string_at(one.header.iov[0].base, min(one.len, one.header.iov[0].len)) if one.header.iov[0].base != BAD.value else b""
        control = ctypes.string_at(one.header.control, one.header.controllen) if one.header.controllen else b""
        size, at = 0, 0
        while at + 16 <= len(control):
            length, level, kind = struct.unpack_from("=Qii", control, at)
            if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
                size = struct.unpack_from("=i", control, at + 16)[0]
            at += length + -length % 8
        return [one.len, one.header.flags, size, data.hex() if len(data) < 65 else f"{hash(data)}"]

    def heard(self, name, count, patience):
        """Of each: length, source, port, TOS, TTL, interface, and whether its bytes follow those before."""
        s, got, until = self.sockets[name], [], time.monotonic() + patience
        poll = select.poll()
        poll.register(s, select.POLLIN)
        at = 0
        while len(got) < count or count == 0:
            if not poll.poll(max(0, until - time.monotonic()) * 1000):
                break
            data, control, _, who = s.recvmsg(65536, 512)
            tos = ttl = index = -1
            for level, kind, value in control:
                if (level, kind) in ((0, 1), (41, 67)):
                    tos = value[0]
                elif (level, kind) in ((0, 2), (41, 52)):
                    ttl = struct.unpack("=i", value)[0]
                elif (level, kind) == (0, 8):
                    index = struct.unpack("=i", value[:4])[0]
                elif (level, kind) == (41, 50):
                    index = struct.unpack("=I", value[16:20])[0]
            is_start = data == bytes(i % 251 for i in range(len(data)))
            follows = data == bytes((at + i) % 251 for i in range(len(data)))
            at = at + len(data) if follows and not (is_start and at == 0) else len(data)
            by = socket.if_indextoname(index) if index > 0 else ""
            got.append([len(data), who[0], who[1], tos, ttl, by, "good" if is_start or follows else "spoilt"])
        return got

    # ---- TCP
    def listen(self, name, address):
        if name in self.sockets:
            self.sockets[name].close()
        self.sockets[name] = socket.create_server(tuple(address))

    def connect(self, name, address):
        self.sockets[name] = socket.create_connection(tuple(address), 5)
        self.sockets[name].settimeout(None)
        return self.sockets[name].fileno()

    def accept(self, name, listener):
        self.sockets[name] = self.sockets[listener].accept()[0]
        return self.sockets[name].fileno()

    def tls(self, name, ulp, keys):
        """TCP_ULP, and if `keys`, AES-128-GCM both ways with the numbers there."""
        s = self.sockets[name]
        done = [tried(lambda: s.setsockopt(socket.IPPROTO_TCP, TCP_ULP, ulp.encode()))]
        for option, seed in zip((TLS_TX, TLS_RX), keys):
            info = struct.pack("=HH", 0x0303, 51) + bytes([seed] * 8) + bytes([seed + 1] * 16) + bytes([seed + 2] * 4) + bytes(8)
            done.append(tried(lambda: s.setsockopt(SOL_TLS, option, info)))
        return done

    def talk(self, name, text):
        self.sockets[name].sendall(text.encode())

    def listen_to(self, name, count):
        self.sockets[name].settimeout(5)
        data = b""
        while len(data) < count:
            piece = tried(lambda: self.sockets[name].recv(count - len(data)))
            if isinstance(piece, str):
                return piece
            if not piece:
                break
            data += piece
        return data.decode(errors="replace")

    def spoil(self, name, control):
        """sendmsg on a stream."""
        return tried(lambda: self.sockets[name].sendmsg([b"x"], [(level, kind, bytes.fromhex(data)) for level, kind, data in control]))


def later(member: Member, seconds: float, name: str, count: int, to: list) -> None:
    time.sleep(seconds)
    for _ in range(count):
        member.sockets[name].sendto(b"later", tuple(to))


def main() -> None:
    member = Member()
    print("null", flush=True)
    for line in sys.stdin:
        (verb, arguments), = json.loads(line).items()
        if verb == "later":
            threading.Thread(target=later, args=(member, *arguments), daemon=True).start()
            answer = None
        else:
            answer = getattr(member, verb)(*arguments)
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
