"""One simulated node: what the engine's scheduler plans takes as long as `costs` says.

On a node with ears of its own (`NodeKind.ears_here`) a step is what `Engine.step` does: commands by
deadline up to the first heavy one, then one step of the decoder. The sessions' waiting commands are
in the engine's own `CommandQueue`. On a server a step is the decoder's alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, cast

from headstart.benchmarks.simulation.costs import EarsCosts, NodeKind, step_ms
from headstart.benchmarks.simulation.streams import LocalStream, ServerStream, SimStream
from headstart.engine import api
from headstart.engine.errors import CacheFull, NoRoom
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.offload import HostMemory
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.admission import AdmissionController, AdmissionRules
from headstart.engine.scheduling.scheduler import Plan, Request, Scheduler
from headstart.engine.session.command_queue import CommandQueue

NS_PER_MS = 1_000_000
BYTES_PER_TOKEN = 24_576  # of `small`
BLOCK_TOKENS = 16
PRESSURE = 0.75  # of the pool: below it, nobody is refused or offloaded

Later = Callable[..., None]


class Owner(Protocol):
    """A session as a node needs it (`world.Person`)."""

    @property
    def name(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def at_rest(self) -> bool: ...
    @property
    def speech_s(self) -> float: ...


class Watcher(Protocol):
    """What the world wants to know of a node."""

    def heard(self, owner: Owner, chunks: int, now_ns: int) -> None: ...
    def commanded(self, owner: Owner, command: api.Command, now_ns: int) -> None: ...
    def worked(self, owner: Owner, count: int, done: bool, now_ns: int) -> None:
        """`count` tokens of its stream were computed; `done`: all that it asked for."""
        ...

    def failed(self, owner: Owner, now_ns: int) -> None:
        """There is no room for its pending tokens."""
        ...


class User:
    """A session on an engine of ours, as its admission sees it."""

    def __init__(self, owner: Owner, stream: LocalStream) -> None:
        self.owner = owner
        self.stream: Stream = stream
        self.commands = CommandQueue(owner.name)

    @property
    def name(self) -> str:
        return self.owner.name

    @property
    def at_rest(self) -> bool:
        return self.owner.at_rest and not self.commands and self.stream.pending == 0

    def give_up_kv(self) -> None:
        """Its tokens are computed again when its owner has work."""
        self.stream.recompute(0)


class NoMemory:
    """Blocks are empty: moving them takes no time worth counting."""

    bytes_per_token = narrow_bytes_per_token = BYTES_PER_TOKEN

    def save_block(self, block: int, num_tokens: int) -> None:
        return None

    def load_block(self, block: int, saved: object) -> None:
        pass


class Node:
    """`at(delay_ns, function, *arguments)` calls a function later, in virtual time."""

    def __init__(
        self,
        name: str,
        kind: NodeKind,
        ears: EarsCosts,
        watcher: Watcher,
        at: Later,
        until_ns: int,
    ) -> None:
        self.name, self.kind, self.ears = name, kind, ears
        self.until_ns = until_ns
        self.alive = True
        self.slow = 1.0  # a straggler's steps take this many times as long
        self.busy_ns = 0  # until `until_ns`
        self.prefilled = self.decoded = 0  # tokens
        self.waiting_first = 0  # answers without a token yet
        self._watcher, self._at = watcher, at
        self._scheduler = Scheduler(kind.token_budget)
        self._busy = False
        self._epoch = 0
        self._active: dict[SimStream, tuple[Owner, Request]] = {}
        self._streams: OrderedDict[str, ServerStream] = OrderedDict()
        self._cached = 0
        self.users: dict[str, User] = {}
        blocks = kind.kv_tokens // BLOCK_TOKENS
        self._pool = BlockPool(blocks, BLOCK_TOKENS, blocks // 4) if kind.ears_here else None
        if self._pool is not None:
            host = HostMemory(NoMemory(), self._pool, 256 << 20)
            self.admission = AdmissionController(self._pool, host, AdmissionRules())

    # --- sessions --------------------------------------------------------------------------------

    def open(
        self, owner: Owner, length: int, shared: int, now_ns: int, *, warm: bool = False
    ) -> SimStream:
        """A session's stream here: of its `length` tokens the first `shared` are everybody's and
        known; `warm`: all are. Raises `NoRoom`."""
        cached = length if warm else shared
        if self._pool is None:
            stream = self._streams.get(owner.name)
            if stream is None:
                stream = self._streams[owner.name] = ServerStream(cached)
                self._cached += cached
            return stream
        local = LocalStream(owner.name, owner.number, self._pool)
        local.ask(length, 0, shared)
        user = User(owner, local)
        try:
            self.admission.admit(user, list(self.users.values()), now_ns)
        except NoRoom:
            local.close()
            raise
        self.users[owner.name] = user
        if warm and local.pending:
            local.take(local.pending)
        return local

    def close(self, owner: Owner) -> None:
        """The session has ended, or went elsewhere."""
        user = self.users.pop(owner.name, None)
        if user is not None:
            self._active.pop(cast(LocalStream, user.stream), None)
            user.stream.close()
            self.admission.remove(owner.name)
            return
        stream = self._streams.pop(owner.name, None)
        if stream is not None:
            self._active.pop(stream, None)
            self._cached -= stream.kv_len

    def tell(self, owner: Owner, command: api.Command, now_ns: int) -> None:
        """A command for a session on an engine of ours. A dead node hears nothing."""
        if not self.alive:
            return
        self.users[owner.name].commands.push(command, now_ns)
        self.admission.touch(owner.name, now_ns)
        self.wake(now_ns)

    # --- requests --------------------------------------------------------------------------------

    def ask(self, stream: SimStream, length: int, version: int, shared: int) -> None:
        """The stream shall have `length` tokens (`ServerStream.ask`)."""
        cached = stream.kv_len
        stream.ask(length, version, shared)
        self._cached += stream.kv_len - cached

    def cut(self, stream: SimStream, length: int) -> None:
        """The stream shall have no more than `length` tokens, and none pending."""
        cached = stream.kv_len
        stream.cut(length)
        self._cached += stream.kv_len - cached

    def want(
        self, owner: Owner, stream: SimStream, due_ns: int, answers: bool, now_ns: int
    ) -> None:
        """The session's stream has pending tokens; with `answers` an answer follows them."""
        if not self.alive:
            return
        request = Request(cast(Stream, stream), due_ns, generating=answers)
        self._active[stream] = (owner, request)
        if isinstance(stream, ServerStream):
            self._streams.move_to_end(owner.name)
        self.wake(now_ns)

    def drop(self, stream: SimStream) -> None:
        """Nothing more is wanted for it now."""
        self._active.pop(stream, None)

    def wake(self, now_ns: int) -> None:
        if self.alive and not self._busy:
            self._step(now_ns)

    # --- steps -----------------------------------------------------------------------------------

    def _step(self, now_ns: int) -> None:
        began_ns = now_ns
        self._busy = True  # what happens meanwhile does not begin another step
        if self.users:
            now_ns += round(self._carry_out_commands(now_ns) * self.slow)
            if self.admission.share >= PRESSURE:
                self._relieve(now_ns)
        plan = self._scheduler.plan([request for _, request in self._active.values()], now_ns)
        if plan:
            context = sum(work.stream.kv_len for work in plan.works[: plan.decode_tokens])
            took_ms = step_ms(self.kind, plan.prefill_tokens, plan.decode_tokens, context)
            now_ns += round(took_ms * self.slow * NS_PER_MS)
        self._busy = now_ns > began_ns
        if self._busy:
            self.busy_ns += max(min(now_ns, self.until_ns) - began_ns, 0)
            self._at(now_ns - began_ns, self._end, self._epoch, plan)

    def _end(self, now_ns: int, epoch: int, plan: Plan) -> None:
        if epoch != self._epoch:
            return  # the node died meanwhile
        self.prefilled += plan.prefill_tokens
        self.decoded += plan.decode_tokens
        for work in plan.works:
            stream = cast(SimStream, work.stream)
            held = self._active.get(stream)
            count = min(work.num_scheduled_tokens, stream.pending)
            if held is None or count == 0:
                continue  # cancelled during the step
            try:
                stream.take(count)
            except CacheFull:
                self._active.pop(stream)
                self._watcher.failed(held[0], now_ns)
                continue
            self._cached += count
            self._watcher.worked(held[0], count, stream.pending == 0, now_ns)
        if self._pool is None and self._cached > self.kind.kv_tokens:
            self._evict()
        self._step(now_ns)

    def _carry_out_commands(self, now_ns: int) -> int:
        """As `Engine.step`: by deadline, up to and including the first heavy one. Returns ns."""
        while waiting := [user for user in self.users.values() if user.commands]:
            first = min(waiting, key=lambda user: user.commands.due_ns)
            self.admission.restore(first, self.users.values(), now_ns)
            self.admission.touch(first.name, now_ns)
            if first.commands.next_is_audio:
                chunks = len(first.commands.pop_audio(now_ns))
                self._watcher.heard(first.owner, chunks, now_ns)
                return round(self.ears.chunk_ms * NS_PER_MS)
            command = first.commands.pop()
            self._watcher.commanded(first.owner, command, now_ns)
            if isinstance(command, api.Hush):  # the final pass: the one heavy command here
                return round(self.ears.final_pass_ms(first.owner.speech_s) * NS_PER_MS)
        return 0

    def _relieve(self, now_ns: int) -> None:
        """The engine's admission, as `LocalBackend` and `Engine` ask it in each step."""
        users = list(self.users.values())
        self.admission.offload_idle(users, now_ns)
        asked = [(user, user.stream) for user in users if user.stream in self._active]
        for stream in self.admission.refuse(asked, users, now_ns):
            owner, _ = self._active.pop(cast(LocalStream, stream))
            self._watcher.failed(owner, now_ns)

    def _evict(self) -> None:
        """A server forgets what was used longest ago."""
        for name, stream in list(self._streams.items()):
            if self._cached <= self.kind.kv_tokens:
                return
            if stream not in self._active:
                self._cached -= stream.kv_len
                stream.kv_len = 0
                self._streams.move_to_end(name)

    # --- failures --------------------------------------------------------------------------------

    def die(self) -> list[Owner]:
        """The node is lost with all it holds. Returns whose work was under way."""
        working = [owner for owner, _ in self._active.values()]
        self.alive, self._busy = False, False
        self._epoch += 1
        self._active.clear()
        self._streams.clear()
        self._cached = self.waiting_first = 0
        for user in list(self.users.values()):
            self.close(user.owner)
        return working

    def rise(self) -> None:
        """The node is there again, empty."""
        self.alive, self.waiting_first = True, 0
