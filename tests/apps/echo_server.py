"""An asyncio echo server: ADDRESS PORT; ends on SIGINT and prints how much it served."""
import asyncio
import signal
import sys

served = {"connections": 0, "bytes": 0}


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    served["connections"] += 1
    while data := await reader.read(65536):
        served["bytes"] += len(data)
        writer.write(data)
        await writer.drain()
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(echo, sys.argv[1], int(sys.argv[2]), backlog=1024)
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, end.set)
    await end.wait()
    server.close()
    print(f"{served['connections']} connections, {served['bytes']} bytes")


asyncio.run(main())
