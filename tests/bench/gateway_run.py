"""What the gateway adds: 64 staggered streams, straight to a provider and through the gateway, request sizes 2 KB and 1 MB.

``python -m tests.bench.gateway_run``.  Provider, gateway and client are processes of their own.  Sockets are the host's loopback: a network
namespace changes where a socket lies, not what a byte costs.  Rounds alternate between straight and through, so that a busy machine slows
both.  Measured: time to the first byte of the body, from the start of the request; VmRSS of the gateway after a warm-up, at its most, and
at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import structlog
from aiohttp import web

from marathond.gateway import netns
from marathond.gateway.files import Listener, key_hash, write_listener
from marathond.gateway.serve import opened
from marathond.ports.clock import SystemClock
from tests.bench.rows import Row
from tests.support.gateway_rig import HELLO, completed, event, free_port, host_socket, write_config

STREAMS = 64
STAGGER_S = 0.03
DELTA = event("response.output_text.delta", delta="word " * 40)
SIZES = {"2 KB": 2_000, "1 MB": 1_000_000}


async def stream(request: web.BaseRequest) -> web.StreamResponse:
    """Models at once.  Else first byte at once, then fifteen deltas over three seconds: enough for all streams to be open together."""
    while await request.content.readany():
        pass
    if request.method == "GET":
        return web.json_response({"models": []})
    out = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await out.prepare(request)
    await out.write(HELLO)
    for _ in range(15):
        await asyncio.sleep(0.2)
        await out.write(DELTA)
    await out.write(completed())
    return out


async def provide(port: int) -> None:
    server = web.Server(stream, access_log=None, read_bufsize=1024 * 1024)
    await asyncio.get_running_loop().create_server(server, "127.0.0.1", port)
    print("up", flush=True)
    await asyncio.Event().wait()


async def gate(folder: Path) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    async with opened(folder, open_socket=host_socket):
        print("up", flush=True)
        await asyncio.Event().wait()


def body(size: int) -> bytes:
    """Like a long context: many items of a few KB of text."""
    text = 'a line of output with "quotes", slashes / and \\ and é\n' * 30
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}] * max(0, size // (len(text) + 350))
    whole = {"model": "m", "stream": True, "input": items, "tools": [{"type": "function", "name": "exec_command"}], "instructions": ""}
    whole["instructions"] = "x" * max(0, size - len(json.dumps(whole)))
    return json.dumps(whole).encode()


async def first_byte_ms(port: int, path: str, raw: bytes) -> float:
    """One client with a connection of its own, already open, as a client has after its first turn."""
    base = f"http://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer dummy"}) as http:
        async with http.get(f"{base}/models") as got:
            await got.read()
        return await timed(http, f"{base}/responses", raw)


async def timed(http: aiohttp.ClientSession, url: str, raw: bytes) -> float:
    started = time.perf_counter()
    async with http.post(url, data=io.BytesIO(raw)) as got:
        assert got.status == 200, await got.text()
        assert (await got.content.readany()).startswith(b"event: response.created")
        took_ms = (time.perf_counter() - started) * 1000
        while await got.content.readany():
            pass
    return took_ms


async def a_round(port: int, path: str, raw: bytes) -> list[float]:
    async with asyncio.TaskGroup() as group:
        tasks = []
        for _ in range(STREAMS):
            tasks.append(group.create_task(first_byte_ms(port, path, raw)))
            await asyncio.sleep(STAGGER_S)
    return [task.result() for task in tasks]


def rss_mb(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


async def most_rss(pid: int, stop: asyncio.Event) -> float:
    most = 0.0
    while not stop.is_set():
        most = max(most, rss_mb(pid))
        await asyncio.sleep(0.05)
    return most


async def measure(upstream: int, through: int, gateway_pid: int, rounds: int) -> dict[str, Any]:
    await a_round(through, "/v1", body(2_000))
    await a_round(upstream, "", body(2_000))
    told: dict[str, Any] = {"streams": STREAMS, "rounds": rounds}
    base = rss_mb(gateway_pid)
    for name, size in SIZES.items():
        stop = asyncio.Event()
        watching = asyncio.create_task(most_rss(gateway_pid, stop))
        straight: list[float] = []
        via: list[float] = []
        for _ in range(rounds):
            straight += await a_round(upstream, "", body(size))
            via += await a_round(through, "/v1", body(size))
        stop.set()
        told[name] = {
            "straight_median_ms": round(statistics.median(straight), 2),
            "through_median_ms": round(statistics.median(via), 2),
            "added_median_ms": round(statistics.median(via) - statistics.median(straight), 2),
            "added_p95_ms": round(statistics.quantiles(via, n=20)[18] - statistics.quantiles(straight, n=20)[18], 2),
            "rss_growth_at_most_mb": round(await watching - base, 1),
        }
    told["rss_mb"] = {"warm": round(base, 1), "end": round(rss_mb(gateway_pid), 1)}
    return told


def child(*argv: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.gateway_run", *argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    if process.stdout.readline() != "up\n":
        process.kill()
        process.communicate()
        raise SystemExit(f"{argv[0]} did not start")
    return process


def run(rounds: int) -> dict[str, Any]:
    """All figures, by request size; milliseconds and MB."""
    upstream, through = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="gwbench") as name:
        folder = Path(name)
        write_config(folder, f"http://127.0.0.1:{upstream}", bounds={"streams_per_listener": 128, "connections_per_listener": 256})
        seat = Listener(
            name="t0001",
            version=1,
            trial="t0001",
            account="agent",
            container_id="c",
            started_at="s",
            pid=os.getpid(),
            start_ticks=netns.start_ticks(os.getpid()) or 0,
            boot_id=SystemClock().boot_id,
            port=through,
            key_sha256=key_hash("dummy"),
            route="model",
            network="none",
        )
        write_listener(folder, seat)
        children = [child("--provider", str(upstream))]
        try:
            children.append(child("--gateway", str(folder)))
            return asyncio.run(measure(upstream, through, children[1].pid, rounds))
        finally:
            for process in children:
                process.kill()
                process.communicate()


def rows(told: dict[str, Any]) -> list[Row]:
    """Of what :func:`run` found."""
    made = []
    for name in SIZES:
        found = told[name]
        text = f"{STREAMS} streams, first byte, requests of {name}"
        through, straight = found["through_median_ms"], found["straight_median_ms"]
        made += [
            Row(f"straight-{name}", f"{text}: straight to the provider", straight, "ms"),
            Row(f"through-{name}", f"{text}: through the gateway", through, "ms", through / straight, "straight"),
            Row(f"added-{name}", f"{text}: added, median", found["added_median_ms"], "ms", note=f"p95 {found['added_p95_ms']} ms"),
        ]
    return [*made, Row("memory", "gateway, memory after all", told["rss_mb"]["end"], "MB")]


def main() -> None:
    parser = argparse.ArgumentParser(description="added latency and memory of the gateway")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--provider", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--gateway", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.provider:
        asyncio.run(provide(args.provider))
    elif args.gateway:
        asyncio.run(gate(args.gateway))
    else:
        print(json.dumps(run(args.rounds), indent=1))


if __name__ == "__main__":
    main()
