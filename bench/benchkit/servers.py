"""The servers that bench/servers measures: how each is started on host B, and what loads it from host A.

A set-up is two functions: `serve` starts the server, `load` drives it and returns what the load tool said. Both get the
exchange of bench/servers, which knows addresses, folder, time and stacks. Needs the packages of `tools/setup --servers`.
"""
from __future__ import annotations

import csv
import dataclasses
import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Callable

from labkit.build import ROOT
from labkit.process import Failed

FILES = ROOT / "bench" / "deployed"
BODY = "x" * 600 + "\n"
PORT, BEHIND = 8080, 8081
POSTGRES = Path("/usr/lib/postgresql/15/bin")
DATABASE_PORT, REDIS_PORT, SENTINEL_PORT, MEMCACHED_PORT, FASTCGI_PORT = 5432, 6379, 26379, 11211, 9000
# A server that is no root's: the capabilities that Vireo needs, as a service's unit would grant them.
CAPABILITIES = "-all,+net_raw,+net_admin,+bpf,+ipc_lock"
AS_POSTGRES = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", f"--inh-caps={CAPABILITIES}",
               f"--ambient-caps={CAPABILITIES}")


@dataclasses.dataclass
class Load:
    """What a load tool saw. `result` must be the same on the kernel and on Vireo."""

    rate: float  # requests/s
    p99_ms: float | None
    result: dict


@dataclasses.dataclass(frozen=True)
class Setup:
    name: str
    title: str
    programs: tuple[str, ...]  # that must be installed
    serve: Callable
    load: Callable


# ---- HTTP
def nginx(r, host: str, server: str, workers: int = 4, **kwargs) -> None:
    """nginx with `server` as its http block, in the foreground, logs in the round's folder."""
    folder = r.folder / f"nginx-{host}"
    (folder / "html").mkdir(parents=True)
    (folder / "html" / "small").write_text(BODY)
    conf = folder / "nginx.conf"
    paths = " ".join(f"{what}_temp_path {folder}/{what};" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    conf.write_text(f"user root; worker_processes {workers}; daemon off; pid {folder}/pid; error_log {folder}/error.log info;\n"
                    f"events {{ worker_connections 1024; }}\n"
                    f"http {{ access_log off; keepalive_requests 1000000; default_type text/plain; {paths}\n{server}\n}}\n")
    r.start(host, "/usr/sbin/nginx", "-p", str(folder), "-c", str(conf), "-e", f"{folder}/error.log", **kwargs)


def static(r, port: int = PORT, options: str = "") -> None:
    nginx(r, "B", f"server {{ listen {port}{options}; root {r.folder}/nginx-B/html; }}")
    r.await_port("B", port)


def behind_haproxy(r) -> None:
    static(r, BEHIND)
    conf = r.folder / "haproxy.cfg"
    conf.write_text("global\n  maxconn 2000\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n"
                    f"frontend f\n  bind :{PORT}\n  default_backend b\nbackend b\n  server s 127.0.0.1:{BEHIND}\n")
    r.start("B", "/usr/sbin/haproxy", "-db", "-f", str(conf), number=signal.SIGUSR1)
    r.await_port("B", PORT)


def gunicorn(r) -> None:
    r.start("B", "/usr/bin/python3", "-m", "gunicorn", "-w", "4", "-b", f"0.0.0.0:{PORT}", "--chdir", str(FILES), "app:application")
    r.await_port("B", PORT)


def uwsgi(r) -> None:
    r.start("B", "/usr/bin/uwsgi", "--plugin", "python3", "--http-socket", f":{PORT}", "--processes", "4", "--master", "--need-app",
            "--disable-logging", "--die-on-term", "--wsgi-file", str(FILES / "app.py"))
    r.await_port("B", PORT)


def php(r) -> None:
    conf = r.folder / "fpm.conf"
    conf.write_text(f"[global]\nerror_log = {r.folder}/fpm.log\ndaemonize = no\n[www]\nuser = root\ngroup = root\nlisten = {FASTCGI_PORT}\n"
                    "pm = static\npm.max_children = 4\n")
    r.start("B", "/usr/sbin/php-fpm8.2", "-R", "-F", "-n", "-y", str(conf))
    r.await_port("B", FASTCGI_PORT)


def fetch_once(r, address: str, port: int, path: str) -> None:
    """One page by the kernel, byte for byte: the server answers before it is measured."""
    url = f"http://{address}:{port}{path}"
    done = r.test.lab.run("A", "curl", "-s", "-S", "-m", "5", "--retry", "3", "--retry-connrefused", "--noproxy", "*", url)
    if done.returncode or done.stdout != BODY:
        raise Failed(f"{url}: curl's status {done.returncode}, {len(done.stdout)} bytes: {done.stderr.strip() or done.stdout[:200]!r}")


def wrk(r, path: str = "/small", address: str = "", port: int = PORT, stack: str | None = None) -> Load:
    """Kept connections."""
    address = address or r.address
    fetch_once(r, address, port, path)
    r.begin()
    client = r.client("wrk", "-t", "2", "-c", "16", "-d", f"{r.seconds:g}s", "--latency", "-s", str(FILES / "wrk.lua"), f"http://{address}:{port}{path}",
                      stack=stack)
    r.end()
    seen = json.loads(next(line for line in client.stdout.splitlines() if line.startswith("{")))
    if not seen["requests"]:
        raise Failed(f"wrk: no request was answered\n{client.tail()}")
    # What was under way at the end is in the bytes and not in the count: at most one answer a connection.
    return Load(seen["requests"] * 1e6 / seen["us"], seen["p99_us"] / 1000,
                {**{n: seen[n] for n in ("connect", "read", "write", "status", "timeout")},
                 "bytes each": round(seen["bytes"] / seen["requests"])})


def ab(r, path: str = "/small") -> Load:
    """A connection for each request."""
    fetch_once(r, r.address, PORT, path)
    r.begin()
    client = r.client("ab", "-q", "-r", "-c", "16", "-t", str(max(1, round(r.seconds))), "-n", "1000000", f"http://{r.address}:{PORT}{path}")
    r.end()

    def figure(name: str) -> float:
        found = re.search(rf"^{name}:?\s+([\d.]+)", client.stdout, re.M)
        return float(found[1]) if found else 0.0

    complete = figure("Complete requests")
    if not complete:
        raise Failed(f"ab: no request was answered\n{client.tail()}")
    # Of what was under way at the end, the bytes are counted and not the request.
    return Load(figure("Requests per second"), figure(r"\s*99%"),
                {"failed": figure("Failed requests"), "not 200": figure("Non-2xx responses"), "length": figure("Document Length"),
                 "bytes each": int(figure("HTML transferred") / complete)})


def through_nginx(r) -> Load:
    """nginx on A speaks FastCGI, a connection for each request; what drives it is A's own and the kernel's."""
    nginx(r, "A", f"server {{ listen 127.0.0.1:{PORT}; location / {{ fastcgi_pass {r.address}:{FASTCGI_PORT}; "
          f"fastcgi_param SCRIPT_FILENAME {FILES}/page.php; fastcgi_param REQUEST_METHOD $request_method; }} }}", workers=1)
    r.await_port("A", PORT)
    return wrk(r, "/", "127.0.0.1", PORT, stack="kernel")


# ---- PostgreSQL
def prepare_database(folder: Path) -> Path:
    """A small database, made once for all rounds, by a server that only its own socket reaches."""
    data = folder / "database"
    if data.exists():
        return data
    data.mkdir()
    shutil.chown(data, "postgres", "postgres")
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    control = [*as_user, str(POSTGRES / "pg_ctl"), "-D", str(data), "-w", "-s", "-t", "20"]
    for command in ([*as_user, str(POSTGRES / "initdb"), "-D", str(data), "-A", "trust", "-N", "--no-locale"],
                    [*control, "-o", f"-c listen_addresses= -c unix_socket_directories={data} -c fsync=off", "-l", str(data / "init.log"), "start"],
                    [*as_user, str(POSTGRES / "pgbench"), "-h", str(data), "-i", "-q", "postgres"],
                    [*control, "-m", "fast", "stop"]):
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd="/", timeout=60)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {done.stdout[-500:]}{done.stderr[-500:]}")
    (data / "pg_hba.conf").write_text("local all all trust\nhost all all 10.77.0.0/24 trust\n")
    return data


def postgres(r) -> None:
    data = prepare_database(r.shared)
    r.start("B", str(POSTGRES / "postgres"), "-D", str(data), "-c", "listen_addresses=*", "-c", f"unix_socket_directories={data}", "-c", "fsync=off",
            "-c", f"port={DATABASE_PORT}", prefix=AS_POSTGRES, number=signal.SIGINT)
    r.await_port("B", DATABASE_PORT)


def pgbench(r, *more: str) -> Load:
    common = ("-h", r.address, "-p", str(DATABASE_PORT), "-U", "postgres")
    done = r.test.lab.run("A", "psql", *common, "-Atc", "select count(*) from pgbench_accounts", timeout=20)
    if done.stdout.strip() != "100000":
        raise Failed(f"psql: {done.stdout.strip()!r} {done.stderr.strip()}")
    r.begin()
    log = r.folder / "transactions"
    client = r.client(str(POSTGRES / "pgbench"), *common, "-n", "-S", "-c", "16", "-j", "2", "-T", str(max(1, round(r.seconds))), "-l",
                      "--log-prefix", str(log), *more, "postgres")
    r.end()
    times = sorted(int(line.split()[2]) for f in r.folder.glob("transactions.*") for line in f.read_text().splitlines())
    rate = re.search(r"^tps = ([\d.]+)", client.stdout, re.M)
    failed = re.search(r"number of failed transactions: (\d+)", client.stdout)
    if not times or not rate:
        raise Failed(f"pgbench: no transaction\n{client.tail()}")
    return Load(float(rate[1]), times[len(times) * 99 // 100] / 1000, {"failed": int(failed[1]) if failed else 0, "errors": client.stderr.count("error:")})


# ---- redis, memcached
def redis(r) -> None:
    folder = r.folder
    r.start("B", "/usr/bin/redis-server", "--port", str(REDIS_PORT), "--save", "", "--protected-mode", "no", "--dir", str(folder))
    r.await_port("B", REDIS_PORT)
    conf = folder / "sentinel.conf"
    conf.write_text(f"port {SENTINEL_PORT}\nprotected-mode no\ndir {folder}\nsentinel monitor m {r.address} {REDIS_PORT} 1\n"
                    "sentinel down-after-milliseconds m 5000\n")
    r.start("B", "/usr/bin/redis-sentinel", str(conf))
    r.await_port("B", SENTINEL_PORT)


def redis_benchmark(r) -> Load:
    def cli(port: int, *words: str) -> str:
        return r.test.lab.run("A", "redis-cli", "-h", r.address, "-p", str(port), *words, timeout=10).stdout

    count = max(2000, int(20000 * r.seconds))
    if cli(REDIS_PORT, "set", "key:__rand_int__", "xyz").strip() != "OK":
        raise Failed("redis-cli: set was not answered")
    r.begin()
    clients = [r.begin_client("redis-benchmark", "-h", r.address, "-p", str(REDIS_PORT), "-c", "16", "-n", str(count), "-t", "get", "--csv")
               for _ in range(2)]
    rows = []
    for client in clients:
        r.finish_client(client)
        lines = [line for line in client.stdout.splitlines() if line.startswith('"')]
        rows += list(csv.DictReader(lines))
    r.end()
    calls = re.search(r"cmdstat_get:calls=(\d+).*failed_calls=(\d+)", cli(REDIS_PORT, "info", "commandstats"))
    if len(rows) != 2 or not calls:
        raise Failed(f"redis-benchmark: no figures\n{clients[0].tail()}\n{clients[1].tail()}")
    up = cli(SENTINEL_PORT, "sentinel", "master", "m").split("\n")
    return Load(sum(float(row["rps"]) for row in rows), max(float(row["p99_latency_ms"]) for row in rows),
                {"all counted": int(calls[1]) >= 2 * count, "failed": int(calls[2]), "value": cli(REDIS_PORT, "get", "key:__rand_int__").strip(),
                 "sentinel": up[up.index("flags") + 1] if "flags" in up else "does not answer"})


def memcached(r) -> None:
    r.start("B", "/usr/bin/memcached", "-t", "4", "-u", "root", "-l", "0.0.0.0", "-p", str(MEMCACHED_PORT), "-U", "0")
    r.await_port("B", MEMCACHED_PORT)


def memcaslap(r) -> Load:
    r.begin()
    client = r.client("memcaslap", "-s", f"{r.address}:{MEMCACHED_PORT}", "-T", "2", "-c", "16", "-t", f"{max(1, round(r.seconds))}s", "-v", "0.01")
    r.end()
    seen = {name: int(n) for name, n in re.findall(r"^(\w+): (\d+)$", client.stdout, re.M)}
    rate = re.search(r"TPS: (\d+)", client.stdout)
    if not rate or not int(rate[1]):
        raise Failed(f"memcaslap: no figures\n{client.tail()}")
    return Load(float(rate[1]), None, {n: seen.get(n, 0) for n in ("verify_misses", "verify_failed")})


def all_setups() -> list[Setup]:
    web = ("/usr/sbin/nginx", "wrk", "ab", "curl")
    database = (str(POSTGRES / "postgres"), str(POSTGRES / "pgbench"), "psql")
    return [
        Setup("nginx", "nginx, 4 workers, kept connections", web, static, wrk),
        Setup("nginx-reuseport", "the same with reuseport", web, lambda r: static(r, PORT, " reuseport"), wrk),
        Setup("nginx-connect", "nginx, a connection per request", web, static, ab),
        Setup("nginx-connect-reuseport", "the same with reuseport", web, lambda r: static(r, PORT, " reuseport"), ab),
        Setup("haproxy", "haproxy before nginx on one host", (*web, "/usr/sbin/haproxy"), behind_haproxy, wrk),
        Setup("postgres", "PostgreSQL, pgbench -S", database, postgres, pgbench),
        Setup("postgres-connect", "PostgreSQL, pgbench -S -C", database, postgres, lambda r: pgbench(r, "-C")),
        Setup("gunicorn", "gunicorn, 4 sync workers", ("gunicorn", "ab", "curl"), gunicorn, lambda r: ab(r, "/")),
        Setup("uwsgi", "uwsgi, 4 processes", ("/usr/bin/uwsgi", "ab", "curl"), uwsgi, lambda r: ab(r, "/")),
        Setup("redis", "redis and sentinel, two clients", ("redis-server", "redis-sentinel", "redis-benchmark", "redis-cli"), redis, redis_benchmark),
        Setup("php-fpm", "php-fpm, 4 children, nginx on A", (*web, "/usr/sbin/php-fpm8.2"), php, through_nginx),
        Setup("memcached", "memcached -t 4", ("memcached", "memcaslap"), memcached, memcaslap),
    ]
