"""500 asyncio clients of an echo server, all connected at once: ADDRESS PORT CLIENTS ROUNDS.

Each sends messages of 1 to 8192 bytes made from its number and compares what comes back.
"""
import asyncio
import random
import resource
import sys

address, port, clients, rounds = sys.argv[1], *map(int, sys.argv[2:5])
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


async def client(number: int, all_here: asyncio.Barrier) -> int:
    dice = random.Random(number)
    reader, writer = await asyncio.open_connection(address, port)
    await all_here.wait()
    total = 0
    for _ in range(rounds):
        message = dice.randbytes(dice.randint(1, 8192))
        writer.write(message)
        await writer.drain()
        if await reader.readexactly(len(message)) != message:
            sys.exit(f"client {number}: another message came back")
        total += len(message)
    writer.write_eof()
    if await reader.read():
        sys.exit(f"client {number}: surplus bytes")
    writer.close()
    await writer.wait_closed()
    return total


async def main() -> None:
    all_here = asyncio.Barrier(clients)
    totals = await asyncio.gather(*(client(n, all_here) for n in range(clients)))
    print(f"{len(totals)} connections, {sum(totals)} bytes")


asyncio.run(main())
