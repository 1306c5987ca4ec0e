"""What happens to one request that comes in through a trial's listener.

Owns the order: who are you, may you, is it still your time; then hold and send; then pass the answer on as it comes, chunk by chunk.  Never
sends twice once a byte has gone to the client.  Decisions live in ``body``, ``retry``, ``budget``; the story goes to the journal.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from marathond.core.contract import shape
from marathond.core.errors import ArtifactError
from marathond.gateway import body as bodies
from marathond.gateway import retry
from marathond.gateway.budget import QueueFull, Ticket
from marathond.gateway.exchange import Exchange
from marathond.gateway.files import Listener
from marathond.gateway.house import House, Refuse, Way, log
from marathond.gateway.keys import given_key, same_key
from marathond.gateway.upstream import Answer, Failure
from marathond.gateway.usage import Watcher

BYTES_PER_TOKEN = 4
SHAPE_BYTES_AT_MOST = 512 * 1024
"""Of a first request that is taken apart; codex's own part of one is some 60 kB, the rest is the task's instruction."""


class _Passing(web.StreamResponse):
    """Headers and first chunk leave in one packet: we begin only once both are here."""

    _send_headers_immediately = False


class Door:
    """The handler of one listener; ``listener`` is replaced when its file changes."""

    def __init__(self, house: House, listener: Listener) -> None:
        self._house, self.listener = house, listener
        self.streams = self.body_bytes = 0
        self._told_first = False

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        house, seat = self._house, self.listener
        exchange = Exchange(seat, request.method, request.rel_url.raw_path, house.clock.mono_ms())
        try:
            self._admit(request)
        except Refuse as refuse:
            return self._refused(request, refuse)
        self.streams += 1
        house.streams += 1
        held = bodies.HeldBody(bytearray())
        counted = [0]
        try:
            await self._read(request, held, counted)
            self._check(held, exchange)
            self._begin(exchange)
            self._tell_first(request, held, exchange)
        except Refuse as refuse:
            return self._refused(request, refuse)
        else:
            return await self._serve(request, exchange, held, counted)
        finally:
            self._let_go(held, counted)
            self.streams -= 1
            house.streams -= 1
            if house.streams == 0:
                house.quiet.set()

    # ── before anything goes out ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _admit(self, request: web.BaseRequest) -> None:
        house, seat = self._house, self.listener
        if not same_key(given_key({name.lower(): value for name, value in request.headers.items()}), seat.key_sha256):
            raise Refuse(401, "bad_key", "this listener takes only its own trial's key")
        if f"{request.method} {request.rel_url.raw_path}" not in self._way().upstream.route.allow:
            raise Refuse(404, "not_allowed", "this path is not served")
        self._in_time()
        bounds = house.config.bounds
        if house.closing:
            raise Refuse(429, "restarting", "about to restart; come back", 5)
        if self.streams >= bounds.streams_per_listener:
            raise Refuse(429, "too_many_streams", "too many requests at once", 1)
        if house.streams >= bounds.streams:
            raise Refuse(429, "gateway_busy", "too many requests at once, of all trials together", 1)

    def _way(self) -> Way:
        """Looked up before each attempt: settings may have changed while the request was held.

        :raises Refuse: the settings name no such route (any more).
        """
        way = self._house.ways.get(self.listener.route)
        if way is None:
            raise Refuse(503, "no_route", f"no route named {self.listener.route}", 5)
        return way

    def _in_time(self) -> None:
        """:raises Refuse: the stored deadline has passed, or belongs to an earlier boot (fault c19)."""
        seat, clock = self.listener, self._house.clock
        if seat.boot_id != clock.boot_id or (seat.deadline_mono_ms is not None and clock.mono_ms() >= seat.deadline_mono_ms):
            raise Refuse(403, "deadline", "this trial's time is over")

    async def _read(self, request: web.BaseRequest, held: bodies.HeldBody, counted: list[int]) -> None:
        house, bounds = self._house, self._house.config.bounds
        if (request.content_length or 0) > bounds.body_bytes:
            raise Refuse(413, "body_too_large", f"more than {bounds.body_bytes} bytes")
        raw = bytearray()
        try:
            async with asyncio.timeout(bounds.body_s):
                while chunk := await request.content.readany():
                    counted[0] += len(chunk)
                    house.body_bytes += len(chunk)
                    self.body_bytes += len(chunk)
                    if counted[0] > bounds.body_bytes:
                        raise Refuse(413, "body_too_large", f"more than {bounds.body_bytes} bytes")
                    if self.body_bytes > bounds.bodies_bytes_per_listener:
                        raise Refuse(429, "too_many_bytes", "too many large requests at once", 1)
                    if house.body_bytes > bounds.bodies_bytes:
                        raise Refuse(429, "gateway_busy", "too many large requests at once, of all trials together", 1)
                    raw += chunk
        except TimeoutError:
            raise Refuse(408, "body_too_slow", f"the body did not come within {bounds.body_s} s") from None
        except (aiohttp.ClientError, web.HTTPException, ValueError) as err:
            raise Refuse(400, "bad_body", f"the body cannot be read ({type(err).__name__})") from None
        held.raw = raw

    def _check(self, held: bodies.HeldBody, exchange: Exchange) -> None:
        seat = self.listener
        exchange.request_bytes = len(held.raw)
        if exchange.method != "POST":
            return
        words = bodies.words_to_look_for(seat.network == "none", seat.strip)
        if not seat.models and bodies.surely_plain(held.raw, words):
            exchange.model_asked = bodies.model_near_the_front(held.raw)
            return
        try:
            asked = bodies.parse(held.raw)
        except bodies.BadBody as err:
            raise Refuse(400, "bad_body", str(err)) from None
        model = asked.get("model")
        exchange.model_asked = model[:128] if isinstance(model, str) else None
        if seat.models and model not in seat.models:
            raise Refuse(403, "model", "this trial may not ask for that model")
        if seat.network == "none" and (tool := bodies.network_tool(asked)) is not None:
            raise Refuse(403, "web_search", f"a task without network may not use the provider's ({tool[:64]})")
        exchange.stripped = bodies.strip(asked, seat.strip)
        if exchange.stripped:
            held.raw = bodies.dump(asked)

    def _begin(self, exchange: Exchange) -> None:
        try:
            exchange.begins(self._house.journal, self._house.clock)
        except ArtifactError as err:
            raise Refuse(503, f"journal_{err.code}", "requests cannot be recorded now, so none goes out", 30) from None

    def _tell_first(self, request: web.BaseRequest, held: bodies.HeldBody, exchange: Exchange) -> None:
        """Fingerprint the agent's first request, so that arms which differ although nobody decided so are named (fault a14).

        Once per life of a listener, and the ledger keeps the first: some milliseconds at most, and no word of the request is kept.
        """
        if self._told_first or exchange.method != "POST" or self.listener.account != "agent":
            return
        self._told_first = True
        if len(held.raw) <= SHAPE_BYTES_AT_MOST:
            try:
                self._house.first(exchange, shape(bodies.parse(held.raw), list(request.headers)))
            except (bodies.BadBody, RecursionError) as err:
                log.warning("first_request_unreadable", trial=self.listener.trial, error=str(err))

    def _refused(self, request: web.BaseRequest, refuse: Refuse) -> web.Response:
        self._house.refuse(self.listener, refuse)
        response = refuse.response()
        if not request.content.is_eof():
            response.force_close()  # what is left of the body is not worth reading
        return response

    # ── hold and send ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _serve(self, request: web.BaseRequest, exchange: Exchange, held: bodies.HeldBody, counted: list[int]) -> web.StreamResponse:
        house = self._house
        exchange.ready_ms = house.clock.mono_ms()
        try:
            answer, way, ticket = await self._hold_and_send(request, exchange, held)
            house.answered(exchange)
            self._let_go(held, counted)
            return await self._pass_on(request, exchange, way, answer, ticket)
        except Refuse as refuse:
            exchange.status, exchange.error_type, exchange.retry_after_s = refuse.status, refuse.code, refuse.retry_after_s
            exchange.end = exchange.end or "refused"
            return refuse.response()
        except BaseException:
            exchange.end = exchange.end or ("cut_by_gateway" if house.closing else "cut_by_client")
            raise
        finally:
            house.ended(exchange)

    async def _hold_and_send(
        self, request: web.BaseRequest, exchange: Exchange, held: bodies.HeldBody
    ) -> tuple[Answer | Failure, Way, Ticket | None]:
        """Attempts until one is to be passed on, with its reservation.

        :raises Refuse: held as long as may be (429 with Retry-After), or the deadline came first.
        """
        house, policy = self._house, self._house.config.hold.policy()
        give_up_ms = house.clock.mono_ms() + policy.hold_ms
        while True:
            way = self._way()
            ticket = await self._ticket(exchange, way, len(held.raw), give_up_ms)
            way = self._ready_to_send(way, ticket)
            exchange.sent_ms = house.clock.mono_ms()
            try:
                outcome = await way.upstream.attempt(request.method, request.rel_url.raw_path_qs, CIMultiDict(request.headers), held)
            except BaseException:
                exchange.usage, exchange.attempts_unknown = "unknown", exchange.attempts_unknown + 1
                raise
            if isinstance(outcome, Answer):
                return outcome, way, ticket
            if ticket is not None:
                way.turnstile.refund(ticket)
            exchange.attempts_unknown += outcome.sent
            exchange.upstream_status = outcome.status
            if retry.verdict(outcome.status, outcome.code) != "wait":
                return outcome, way, None
            await self._wait(exchange, way, outcome, policy, give_up_ms)

    async def _ticket(self, exchange: Exchange, way: Way, length: int, give_up_ms: int) -> Ticket | None:
        """A reservation; only what costs tokens needs one."""
        if exchange.method != "POST":
            return None
        guess = length // BYTES_PER_TOKEN + way.upstream.route.output_tokens_guess
        until_ms = self._until(give_up_ms)
        started_ms = self._house.clock.mono_ms()
        try:
            ticket = await way.turnstile.enter(self.listener.trial, guess, until_ms, lambda: self._house.waits(exchange))
        except QueueFull:
            ticket = None
        exchange.budget_held_ms += self._house.clock.mono_ms() - started_ms
        if ticket is None:
            self._in_time()
            self._give_up(exchange, 0, "budget")
        return ticket

    def _ready_to_send(self, way: Way, ticket: Ticket | None) -> Way:
        """The way as it is after waiting; a reservation that cannot be used any more goes back."""
        try:
            self._in_time()
            return self._way()
        except Refuse:
            if ticket is not None:
                way.turnstile.refund(ticket)
            raise

    async def _wait(self, exchange: Exchange, way: Way, failure: Failure, policy: retry.Policy, give_up_ms: int) -> None:
        house = self._house
        wait_ms = retry.wait_ms(policy, exchange.retried.total() + 1, failure.asked_ms, house.chance())
        exchange.retried[failure.kind] += 1
        exchange.sent_ms = None
        now_ms = house.clock.mono_ms()
        if failure.status == 429:
            # The limit is everybody's: nobody else runs into it meanwhile, whatever its arm (fault a01).
            way.turnstile.budget.pause(now_ms + min(wait_ms, policy.hold_ms))
        if now_ms + wait_ms > give_up_ms:
            self._give_up(exchange, wait_ms, failure.kind)
        house.waits(exchange)
        await house.sleep(max(0, min(wait_ms, self._until(give_up_ms) - now_ms)) / 1000)

    def _until(self, give_up_ms: int) -> int:
        deadline_ms = self.listener.deadline_mono_ms
        return give_up_ms if deadline_ms is None else min(give_up_ms, deadline_ms)

    def _give_up(self, exchange: Exchange, wait_ms: int, kind: str) -> None:
        exchange.end, exchange.waited = "gave_up", True
        come_back_s = retry.come_back_s(self._house.config.hold.policy(), wait_ms)
        raise Refuse(429, f"held_{kind}", "held as long as may be; come back later", come_back_s)

    # ── pass the answer on ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _pass_on(
        self, request: web.BaseRequest, exchange: Exchange, way: Way, answer: Answer | Failure, ticket: Ticket | None
    ) -> web.StreamResponse:
        exchange.upstream_status = exchange.status = answer.status
        if isinstance(answer, Failure):
            return self._error(exchange, answer)
        watcher = Watcher(answer.sse)
        try:
            return await self._stream(request, exchange, answer, watcher)
        finally:
            if watcher.closed and answer.sse:
                # Some clients hang up once they have read the closing event: nothing was lost.
                exchange.end = "complete"
            answer.finish(exchange.end == "complete")
            exchange.tokens, exchange.model = watcher.tokens, watcher.model
            exchange.error_type = exchange.error_type or watcher.error_type
            metered = exchange.method == "POST"
            exchange.usage = "known" if watcher.tokens else "unknown" if metered else "none"
            if ticket is not None:
                way.turnstile.settle(ticket, watcher.tokens.total if watcher.tokens else None)

    async def _stream(self, request: web.BaseRequest, exchange: Exchange, answer: Answer, watcher: Watcher) -> web.StreamResponse:
        out = _Passing(status=answer.status, headers=answer.headers)
        stall_s = self._house.config.bounds.client_stall_s
        chunk = answer.first
        try:
            await out.prepare(request)
            while chunk:
                try:
                    async with asyncio.timeout(stall_s):
                        await out.write(chunk)
                finally:
                    watcher.feed(chunk)  # also when the client is gone: the provider counted it
                if exchange.first_byte_ms is None:
                    exchange.first_byte_ms = self._house.clock.mono_ms() - exchange.arrived_ms
                exchange.response_bytes += len(chunk)
                chunk = await self._next(answer, exchange)
        except (ConnectionError, TimeoutError):
            exchange.end = exchange.end or "cut_by_client"
        if exchange.end is None or watcher.closed:
            watcher.end()
            exchange.end = "complete" if watcher.closed or not answer.sse else "cut_by_provider"
        if exchange.end != "complete":
            exchange.error_type = exchange.end
            if request.transport is not None:
                request.transport.abort()  # a clean end would look like a whole answer
        return out

    async def _next(self, answer: Answer, exchange: Exchange) -> bytes:
        """The next chunk as soon as there is one; empty at the end, also at one that nobody meant."""
        try:
            return await answer.response.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError):
            exchange.end = "cut_by_provider"
            return b""

    def _error(self, exchange: Exchange, failure: Failure) -> web.Response:
        exchange.end = "complete"
        spent = retry.verdict(failure.status, failure.code) == "usage_limit"
        exchange.error_type = "usage_limit" if spent else failure.code or f"http_{failure.status}"
        raw, status = failure.body, failure.status or 502
        if status in (401, 403) and not spent:
            # Their words may quote the key or name the account; neither is the agent's business (fault c14).
            raw, exchange.error_type = _plain_error("the provider refused the gateway's own key", "upstream_auth"), "upstream_auth"
        headers = failure.headers.copy()
        if raw is not failure.body:
            headers["Content-Type"] = "application/json"
        if failure.asked_ms is not None:
            exchange.retry_after_s = -(-failure.asked_ms // 1000)
        return web.Response(status=status, body=raw, headers=headers)

    # ── bookkeeping ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _let_go(self, held: bodies.HeldBody, counted: list[int]) -> None:
        self._house.body_bytes -= counted[0]
        self.body_bytes -= counted[0]
        counted[0] = 0
        held.raw = b""


def _plain_error(message: str, code: str) -> bytes:
    error: dict[str, Any] = {"message": f"gateway: {message}", "type": "gateway", "code": code, "param": None}
    return json.dumps({"error": error}).encode()
