#!/usr/bin/env python3
"""Relay of TCP connections over a slow link, for trials of training over one: it needs no root and
no support of the kernel. All connections share the bandwidth of the link, which is per direction;
SIGINT or SIGTERM ends the relay, which then prints the bytes of each direction.

    scripts/slow_link.py --listen 127.0.0.1:29401 --to 127.0.0.1:29400 --mbit 10 --delay-ms 100
"""
import argparse
import asyncio
import math
import signal
import sys

CHUNK = 4096  # bytes that the link sends at once
QUEUE = 4096  # chunks under way per connection and direction; then the sender waits


class Direction:
    """One direction of the link. Times are in seconds of any clock."""
    def __init__(self, mbit, delay_ms):
        self.bytes_per_second = mbit * 1e6 / 8
        self.delay = delay_ms / 1e3
        self.free = -math.inf  # time at which all chunks have been sent
        self.relayed = 0       # bytes that have arrived

    def send(self, size, now):
        """Time at which a chunk has left, after all earlier ones."""
        self.free = max(self.free, now) + size / self.bytes_per_second
        return self.free


async def deliver(queue, writer, direction):
    loop = asyncio.get_running_loop()
    while True:
        due, chunk = await queue.get()
        await asyncio.sleep(due - loop.time())
        if not chunk:
            return writer.write_eof()
        writer.write(chunk)
        await writer.drain()
        direction.relayed += len(chunk)


async def pump(reader, writer, direction):
    """Relays one direction of a connection up to its end."""
    loop = asyncio.get_running_loop()
    queue = asyncio.Queue(QUEUE)
    delivery = asyncio.ensure_future(deliver(queue, writer, direction))
    try:
        while not delivery.done():
            chunk = await reader.read(CHUNK)
            sent = direction.send(len(chunk), loop.time())
            await queue.put((sent + direction.delay, chunk))
            if not chunk:
                break
            await asyncio.sleep(sent - loop.time())
        await delivery
    finally:
        delivery.cancel()


async def relay(reader, writer, target, there, back):
    """Relays a connection until both directions have ended or one has failed."""
    writers = [writer]
    try:
        far_reader, far_writer = await asyncio.open_connection(*target)
        writers.append(far_writer)
        await asyncio.gather(pump(reader, far_writer, there), pump(far_reader, writer, back))
    except OSError as e:
        print(f"slow_link: a connection has ended: {e}", file=sys.stderr)
    finally:
        for each in writers:
            each.close()


async def serve(options):
    there, back = (Direction(options.mbit, options.delay_ms / 2) for _ in range(2))
    stop, relays = asyncio.Event(), []  # relays are cancelled by asyncio.run() at the end
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def connect(*ends):
        relays.append(asyncio.ensure_future(relay(*ends, options.to, there, back)))

    server = await asyncio.start_server(connect, *options.listen)
    print("slow_link: listening on {}:{}".format(*server.sockets[0].getsockname()), file=sys.stderr, flush=True)
    await stop.wait()
    print(f"relayed {there.relayed} bytes there, {back.relayed} bytes back", flush=True)


def address(text):
    host, _, port = text.rpartition(":")
    if host and port.isdigit() and int(port) < 65536:
        return host, int(port)
    raise argparse.ArgumentTypeError(f'"{text}" is not HOST:PORT')


def number(text):
    if 0 <= float(text) < math.inf:
        return float(text)
    raise argparse.ArgumentTypeError(f"{text} is not a number from 0")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", type=address, required=True, metavar="HOST:PORT", help="address of this end; port 0: any free one")
    parser.add_argument("--to", type=address, required=True, metavar="HOST:PORT", help="address of the other end")
    parser.add_argument("--mbit", type=number, default=10, help="bandwidth per direction in Mbit/s (default: 10)")
    parser.add_argument("--delay-ms", type=number, default=100, help="round trip in ms, half of it each way (default: 100)")
    options = parser.parse_args()
    if options.mbit == 0:
        parser.error("argument --mbit: 0 is not above 0")
    try:
        asyncio.run(serve(options))
    except OSError as e:
        parser.error("cannot listen on {}:{}: {}".format(*options.listen, e.strerror or e))


if __name__ == "__main__":
    main()
