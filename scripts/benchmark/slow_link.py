"""A server behind a link with latency: a relay that delays each answer."""

import asyncio
import contextlib
import queue
import threading

PIECE = 1 << 18


@contextlib.contextmanager
def slow_link(port, latency_ms):
    """Yields the port of a relay to the server at a port of this machine."""
    ports = queue.Queue()
    loop = asyncio.new_event_loop()
    serving = loop.create_task(serve(port, latency_ms / 1000, ports))
    thread = threading.Thread(target=run, args=(loop, serving), daemon=True)
    thread.start()
    try:
        yield ports.get()
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join()


def run(loop, serving):
    with contextlib.suppress(asyncio.CancelledError):
        loop.run_until_complete(serving)
    loop.run_until_complete(end_relays())
    loop.close()


async def end_relays():
    relays = asyncio.all_tasks() - {asyncio.current_task()}
    for left in relays:
        left.cancel()
    await asyncio.gather(*relays, return_exceptions=True)


async def serve(port, latency, ports):
    async def connected(reader, writer):
        with contextlib.suppress(asyncio.CancelledError):
            await relay(reader, writer, port, latency)

    server = await asyncio.start_server(connected, "127.0.0.1")
    ports.put(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def relay(reader, writer, port, latency):
    with contextlib.suppress(OSError):
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, to_server, 0), pump(from_server, writer, latency))


async def pump(reader, writer, latency):
    """Passes bytes on, each of them `latency` seconds after it came."""
    loop = asyncio.get_running_loop()
    coming = asyncio.Queue(64)

    async def take():
        piece = None
        while piece != b"":
            piece = await reader.read(PIECE)
            await coming.put((loop.time() + latency, piece))

    taking = loop.create_task(take())
    try:
        while True:
            when, piece = await coming.get()
            await asyncio.sleep(max(0, when - loop.time()))
            if not piece:
                break
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        taking.cancel()
        writer.close()
