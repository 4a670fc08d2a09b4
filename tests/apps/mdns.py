"""python3-zeroconf as one of the programs of tests/apps/multicast.py.

  mdns.py publish ADDRESS NAME PORT     publishes a service, until it is told to end
  mdns.py find ADDRESS NAME...          browses until it has found the services, asks for each, and prints what it has heard
"""
import signal
import socket
import sys
import time

from zeroconf import IPVersion, ServiceBrowser, ServiceInfo, Zeroconf

TYPE = "_vireo._udp.local."
PATIENCE = 10  # s

what, address = sys.argv[1:3]
zeroconf = Zeroconf(interfaces=[address], ip_version=IPVersion.V4Only)
if what == "publish":
    name, port = sys.argv[3], int(sys.argv[4])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    zeroconf.register_service(ServiceInfo(TYPE, f"{name}.{TYPE}", port=port, addresses=[socket.inet_aton(address)],
                                          properties={"by": name}, server=f"{name}.local."))
    print("ready", flush=True)
    try:
        signal.pause()
    finally:
        zeroconf.close()
else:
    wanted, found = set(sys.argv[3:]), set()
    browser = ServiceBrowser(zeroconf, TYPE, handlers=[lambda name, **_: found.add(name.removesuffix("." + TYPE))])
    until = time.monotonic() + PATIENCE
    while not wanted <= found and time.monotonic() < until:
        time.sleep(0.02)
    for name in sorted(wanted):
        info = zeroconf.get_service_info(TYPE, f"{name}.{TYPE}", timeout=3000) if name in found else None
        text = f"{info.server} {info.parsed_addresses(IPVersion.V4Only)} {info.port} {info.properties}" if info else "nothing"
        print(f"{name}: {text}", flush=True)
    zeroconf.close()
