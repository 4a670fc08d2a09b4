"""A program that opens connections, says one byte on each and then only waits: what does it hear of its peer's end?

waiter.py server|client ADDRESS PORT COUNT HOW; "up" on stdout once all connections stand, at the end one line of JSON.
  recv, epoll   waits in recv or epoll_wait until all have ended: {"eof": n, "reset": n}
  half          reads to the end, then holds on for a while: {"state": TCP_INFO's, "error": SO_ERROR} of the first
  exit          half a second later exits without closing anything
  exec          ... becomes sleep(1)
  fork          the child lives on, the parent waits
  daemon        forks before it connects and leaves its folder, as daemons do: the parent exits, the child goes on as
                epoll and prints its pid
  child         has a child made by fork and exec that lives on, then waits
  children      waits, having asked wait(2) for children: {"children": errno's name}
"""
import errno
import json
import os
import select
import socket
import subprocess
import sys
import time

CLOSE_WAIT_LOOK = 2.5  # seconds after the peer's FIN, longer than a mourner lives


def open_all(role: str, address: str, port: int, count: int) -> list[socket.socket]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = []
    if role == "server":
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(512)
        opened = [listener.accept()[0] for _ in range(count)]
        listener.close()
    else:
        for _ in range(count):
            s = socket.socket(family)
            s.connect((address, port))
            opened.append(s)
    for s in opened:
        s.sendall(b"x")
    for s in opened:
        assert s.recv(1) == b"x"
    return opened


def end_of(s: socket.socket) -> str:
    try:
        return "data" if s.recv(1) else "eof"
    except ConnectionResetError:
        return "reset"
    except OSError as error:
        return errno.errorcode[error.errno]


def wait_recv(connections: list[socket.socket]) -> dict:
    ends = [end_of(s) for s in connections]
    return {e: ends.count(e) for e in ends}


def wait_epoll(connections: list[socket.socket]) -> dict:
    by_fd = {s.fileno(): s for s in connections}
    ends = []
    with select.epoll() as poller:
        for fd in by_fd:
            poller.register(fd, select.EPOLLIN)
        while by_fd:
            for fd, _ in poller.poll():
                poller.unregister(fd)
                ends.append(end_of(by_fd.pop(fd)))
    return {e: ends.count(e) for e in ends}


def half(connections: list[socket.socket]) -> dict:
    ends = wait_recv(connections)
    time.sleep(CLOSE_WAIT_LOOK)
    s = connections[0]
    return ends | {"state": s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0],
                   "error": s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)}


def main() -> None:
    role, address, port, count, how = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    if how == "daemon":
        if os.fork() != 0:
            os._exit(0)
        os.setsid()
        os.chdir("/")
        print(os.getpid(), flush=True)
    connections = open_all(role, address, port, count)
    if how == "fork" and os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    if how == "child":
        subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
    result = {}
    if how == "children":
        try:
            os.wait()
        except ChildProcessError:
            result["children"] = "ECHILD"
    print("up", flush=True)
    if how in ("exit", "exec"):
        time.sleep(0.5)
        if how == "exec":
            os.execvp("sleep", ["sleep", "60"])
        os._exit(0)
    waits = {"recv": wait_recv, "half": half}.get(how, wait_epoll)
    print(json.dumps(result | waits(connections)), flush=True)


main()
