#!/usr/bin/python3
"""The program of wires.py: over TCP and UDP a client sends, an echo server answers, and every byte is compared.

  talk.py server ADDRESS...      prints `ready`, serves until SIGINT
  talk.py client ADDRESS...      each protocol to each address in turn; prints what came back as JSON
"""
import json
import os
import select
import signal
import socket
import sys

PORT = 5010
TURNS = 30  # of each protocol, with messages of 1 to 1400 bytes
BULK = 256 << 10  # bytes of a stream each way


def family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def serve(addresses: list[str]) -> None:
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    poller, known = select.epoll(), {}
    for address in addresses:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            s = socket.socket(family(address), kind)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((address, PORT))
            if kind == socket.SOCK_STREAM:
                s.listen()
            known[s.fileno()] = s
            poller.register(s, select.EPOLLIN)
    print("ready", flush=True)
    while True:
        for number, _ in poller.poll():
            s = known[number]
            if s.type == socket.SOCK_DGRAM:
                data, peer = s.recvfrom(65536)
                s.sendto(data, peer)
            elif s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                c, _ = s.accept()
                known[c.fileno()] = c
                poller.register(c, select.EPOLLIN)
            elif data := s.recv(65536):
                s.sendall(data)
            else:
                poller.unregister(s)
                del known[number]
                s.close()


def exactly(s: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        data = s.recv(size - len(got))
        if not data:
            sys.exit(f"the end after {len(got)} bytes of {size}")
        got += data
    return got


def stream(address: str) -> int:
    with socket.create_connection((address, PORT), timeout=30) as s:
        for turn in range(TURNS):
            text = os.urandom(1 + turn * 1399 // (TURNS - 1))
            s.sendall(text)
            if exactly(s, len(text)) != text:
                sys.exit(f"TCP to {address}: other bytes in turn {turn}")
        text, got, step = os.urandom(BULK), b"", 32 << 10
        for at in range(0, BULK, step):  # never more under way than two buffers take
            s.sendall(text[at:at + step])
            got += exactly(s, min(step, BULK - at))
        if got != text:
            sys.exit(f"TCP to {address}: other bytes in bulk")
    return TURNS


def datagrams(address: str) -> int:
    with socket.socket(family(address), socket.SOCK_DGRAM) as s:
        s.connect((address, PORT))
        s.settimeout(2)
        for turn in range(TURNS):
            text = turn.to_bytes(2) + os.urandom(turn * 1398 // (TURNS - 1))
            for attempt in range(4):
                s.send(text)
                try:
                    while (got := s.recv(65536))[:2] != text[:2]:
                        pass  # the answer to an earlier attempt
                    break
                except TimeoutError:
                    if attempt == 3:
                        sys.exit(f"UDP to {address}: no answer in turn {turn}")
            if got != text:
                sys.exit(f"UDP to {address}: other bytes in turn {turn}")
    return TURNS


if sys.argv[1] == "server":
    serve(sys.argv[2:])
print(json.dumps({f"{name} IPv{6 if ':' in address else 4}": talk(address)
                  for address in sys.argv[2:] for name, talk in (("TCP", stream), ("UDP", datagrams))}))
