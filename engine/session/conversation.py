"""The conversation of one session as tokens: items, speech, camera, and what is evicted of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from headstart.engine import api
from headstart.engine.chat.context_window import (
    ANSWER_RESERVE_TOKENS,
    ContextWindow,
    Prompt,
    Range,
    answer_reserve,
    clip_ranges,
    overflow,
    prompt_within,
    remaining_entries,
)
from headstart.engine.chat.render import Entry, Modality, RenderedPrompt, Separator, render
from headstart.engine.errors import ContextFull
from headstart.engine.interfaces import Clock, LiveFrameEncoder, ModelServices, Pcm, Thinning, View
from headstart.engine.kvcache.eviction import KvMove
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.session.clips import Clips
from headstart.engine.session.errors import NotContinuable
from headstart.engine.session.item_tokens import ItemTokens, view_segment
from headstart.engine.session.items import Items
from headstart.engine.session.stills import Stills, require_budget
from headstart.engine.session.thinning import made_whole, thin
from headstart.engine.session.utterance import Utterance
from headstart.engine.session.writing import Note, Place, Writing


class Conversation:
    """The items of one session, in order.

    Holds no K/V: it computes which tokens the stream shall have, and which ranges to evict.
    """

    def __init__(self, services: ModelServices, stream: Stream, clock: Clock) -> None:
        self._services = services
        self._stream = stream
        self.remember(api.Window())
        self._separator = Separator(tuple(services.tokenizer.encode("\n")))
        self._system: tuple[int, ...] = ()
        self._blind_system: tuple[int, ...] = ()
        self._items = Items()
        self._instructions = ""
        self.tools: tuple[api.Tool, ...] = ()
        self._picture_evicted = False  # whether a picture was evicted
        self._view: View | None = None  # a live view that is not yet part of an item
        self._last_view_key = ""
        self.utterance: Utterance | None = None
        self.ended: Utterance | None = None  # the last one, if it may be continued
        self.clips = Clips(services, stream)
        self.writing = Writing(services.reader, stream)
        self.stills = Stills(services.stills, services.image_encoder, stream, clock)
        self._tokens_of = ItemTokens(services, self.clips, self.stills)
        self.only_hears = False
        """Transcription only: no items are kept, and the stream stays empty."""

    def __len__(self) -> int:
        return len(self._items)

    def instruct(self, text: str, blind: str = "", tools: Sequence[api.Tool] = ()) -> None:
        """Replace the system prompt and the `tools` the model may call. `blind` is appended to the
        prompt while the context has no picture."""
        system = self._services.chat.system
        self._instructions, self.tools = text, tuple(tools)
        if self.only_hears:
            return
        self._system = tuple(system(text, tools))
        self._blind_system = tuple(system(f"{text}\n{blind}", tools)) if blind else self._system

    # --- items -----------------------------------------------------------------------------------

    def add(self, item: api.Item, after: str | None) -> None:
        """Insert an item; `after` as in `api.AddItem`.

        Raises `UnknownItem` if there is no item `after`, and `ContextFull` for an item longer than
        the window, unless it is an answer, of which the end is kept.
        """
        place = self._items.place_behind(after)
        with self.stills.adding(item):
            entry = self._tokens_of.entry(item, self._stream)
            if self.only_hears:
                return
            frame = len(self._services.chat.user_open)
            self.window.require_room(entry, len(self._system), frame)
        if entry.role is api.Role.USER:
            self._look_at_stills(item, entry)
            texts = [part.text for part in item.parts if isinstance(part, api.Text)]
            self.ask(" ".join(texts))
            if not any(isinstance(part, api.Image) for part in item.parts):
                self.look_closer(" ".join(texts))
        if entry.role is api.Role.USER and self._view is not None:
            entry = Entry(entry.item_id, entry.role, (view_segment(self._view), *entry.segments))
            self._view = None
        self._items.insert(place, entry)

    def _look_at_stills(self, item: api.Item, entry: Entry) -> None:
        seen = [segment for segment in entry.segments if segment.modality is Modality.IMAGE]
        pictures = [part for part in item.parts if isinstance(part, api.Image)]
        for picture, segment in zip(pictures, seen, strict=False):
            self.writing.look_at(picture, segment.ids, live=False)

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries that do not come from a client."""
        self._items.append(*entries)

    def open_answer(self, item_id: str) -> None:
        """Reserve the place of a starting answer's items, behind what the answer has read. Clients
        can refer to `item_id` from now on; without content the item adds no tokens."""
        self._items.open_answer(item_id)

    def add_call(self, item_id: str, number: int, call: api.ToolCall) -> None:
        """Insert function call number `number` of the running answer as an item of its own."""
        item = api.Item(api.call_item_id(item_id, number), api.Role.ASSISTANT, (call,))
        self._items.add_to_answer(self._tokens_of.entry(item, self._stream))

    def close_answer(self, item_id: str, said: Sequence[int]) -> None:
        """Fill the item of a finished answer with the tokens `said`, unless it was removed."""
        self._items.close_answer(item_id, said)

    def remove(self, item_id: str) -> None:
        """Remove an item, or the remembered name of an evicted one. Summaries behind it may mention
        it and are removed too. Raises `UnknownItem`."""
        self._items.remove(item_id)
        if self.ended is not None and self.ended.item_id == item_id:
            self.ended = None
        self.stills.forget(item_id)

    # --- speech and camera -----------------------------------------------------------------------

    def begin(self, utterance: Utterance, *, may_continue: bool = False) -> None:
        """Set the open utterance. The last unused camera view comes first in it."""
        self.utterance = utterance
        if may_continue and self.ended is not None:
            utterance.heard = []
        else:
            self.ended = None
        if self._view is not None:
            utterance.add_view(self._view)
            self._view = None

    def end(self, *, may_continue: bool = False) -> Entry:
        """Turn the open utterance into an item."""
        assert self.utterance is not None
        entry = self.utterance.entry(self._services.tokenizer)
        if not self.only_hears:
            self._items.append(entry)
        self._put_back(self.utterance, None)
        self.ended = self.utterance if may_continue else None
        self.utterance.heard, self.utterance = None, None
        return entry

    def release(self) -> None:
        """The open utterance continues no other, nor will a later one."""
        self.ended = None
        if self.utterance is not None:
            self.utterance.heard = None

    def drop(self) -> None:
        """Discard the open utterance. An item that it continued is restored."""
        utterance, self.utterance = self.utterance, None
        if utterance is not None and utterance.removed is not None:
            self._put_back(utterance, utterance.removed[0])

    def _put_back(self, utterance: Utterance, entry: Entry | None) -> None:
        """Replace what holds the place of the item that the utterance continued by `entry`."""
        if utterance.removed is not None:
            _, holder = utterance.removed
            self._items.put(entry, holder)
            utterance.removed = None

    def rejoin(self, item_id: str, answer_id: str) -> list[Pcm | api.Image]:
        """Make the open utterance one with the ended one, which became the item `item_id`.

        Removes that item, those of the answer `answer_id` and all summaries behind it. Returns the
        sound and frames that the joint utterance has yet to be given. Raises `NotContinuable`.
        """
        ended, following = self.ended, self.utterance
        kept = None if ended is None else ended.item_id
        if ended is None or kept != item_id or following is None or following.heard is None:
            raise NotContinuable(item_id, kept)
        ended.removed = self._items.take_out(item_id, answer_id)
        ended.continue_as(following)
        self.utterance, self.ended = ended, None
        return following.heard

    def add_frame(self, image: api.Image) -> None:
        """Take a live camera frame; one like the last is dropped. Raises `BadTokenBudget`."""
        require_budget(image)
        if self.only_hears:
            return
        if self.utterance is not None and isinstance(self.utterance.state, LiveFrameEncoder):
            self.utterance.state.add_frame(image, self.utterance.samples / api.SAMPLE_RATE_HZ)
            if self.utterance.heard is not None:
                self.utterance.heard.append(image)
            return
        view = self.stills.frame(image)
        self.writing.look_at(image, view.ids, live=True)
        if view.key == self._last_view_key:
            return
        self._last_view_key = view.key
        if self.utterance is not None:
            self.utterance.add_view(view)
        else:
            self._view = view

    def ask(self, question: str) -> None:
        """Take the words of a question: one about what is written gets more of that."""
        shown = [] if self.utterance is None else [view.key for _, view in self.utterance.views]
        for note in self.writing.ask(question):
            if note.text not in shown:  # speech that pauses asks again
                self._show(self._view_of(note))

    def look_closer(self, question: str) -> None:
        """Show the newest still once more if a question needs more of it."""
        held = {segment.ids for entry in self.now() for segment in entry.segments}
        if (view := self.stills.closer(question, held)) is not None:
            self._show(view)

    def take_readings(self) -> bool:
        """Add what has been read in pictures meanwhile. Whether there was any."""
        notes = self.writing.take()
        for note in notes:
            self._add_note(note)
        return bool(notes)

    def _add_note(self, note: Note) -> None:
        """Add a note on a picture: behind it in a message that nobody has answered, or in front of
        that message; else to what is being said or shown now, so that nothing is computed again."""
        view = self._view_of(note)
        segment = view_segment(view)
        is_speaking = note.live and self.utterance is not None
        if note.place is not None and not is_speaking:
            noted = self._items.add_behind(note.place, segment)
            if noted is not None:
                self._keep_for_continuation(noted, view, note.place)
                return
        unanswered = self._items.unanswered()
        if unanswered and self._view is None and self.utterance is None:
            last = unanswered[-1]
            self._items.put(replace(last, segments=(segment, *last.segments)), last)
            self._keep_for_continuation(last, view, None)
        else:
            self._show(view)

    def _keep_for_continuation(self, entry: Entry, view: View, place: Place | None) -> None:
        """Speech that goes on renders its item anew: add the note to the ended utterance too."""
        if self.ended is not None and self.ended.item_id == entry.item_id:
            self.ended.insert_view(view, place)

    def _view_of(self, note: Note) -> View:
        return View(tuple(self._services.tokenizer.encode(note.text)), note.text, key=note.text)

    def _show(self, view: View) -> None:
        """Add a view to the open utterance, or to what the next item begins with."""
        if self.utterance is not None:
            self.utterance.add_view(view)
        elif self._view is not None:
            both = self._view.text + view.text
            self._view = View(self._view.ids + view.ids, both, self._view.key)
        else:
            self._view = view

    def keep_view(self) -> None:
        """Keep a view that no utterance took as an item of its own, since an answer has read it."""
        if self._view is not None and self.utterance is None:
            self._items.append(Entry("", api.Role.USER, (view_segment(self._view),)))
            self._view = None

    def now(self, *, with_utterance: bool = True, tentative: bool = True) -> list[Entry]:
        """All items with content, followed by the open utterance or the pending view."""
        if self.only_hears:
            return []
        # An utterance without words and an item without content make no message.
        entries = [entry for entry in self._items if entry.segments]
        if self.utterance is None:
            if self._view is not None:
                entries.append(Entry("", api.Role.USER, (view_segment(self._view),)))
        elif with_utterance:
            entries.append(self.utterance.entry(self._services.tokenizer, tentative=tentative))
        return entries

    def forget_unused(self) -> None:
        """Release soft tokens that no item uses any more, once they fill half of the table. An open
        utterance may replace its embeddings with every chunk."""
        soft = self._stream.soft
        if len(soft) <= soft.limit // 2:
            return
        used = set(self._stream.tokens)
        for entry in [*self._items, *self.now()]:
            used.update(token for segment in entry.segments for token in segment.ids)
        for utterance in filter(None, (self.utterance, self.ended)):
            if isinstance(utterance.state, LiveFrameEncoder):
                used.update(utterance.remaining_tokens(utterance.state.token_ids()))
        if self.ended is not None:  # its item may have been evicted
            used.update(token for _, ids in self.ended.parts or () for token in ids)
        soft.keep_only(used | self.clips.tokens())

    # --- eviction --------------------------------------------------------------------------------

    @property
    def prompt_limit(self) -> int:
        """Maximum prompt length in tokens that leaves room for an answer."""
        return self._stream.limit - ANSWER_RESERVE_TOKENS

    def remember(self, wanted: api.Window) -> None:
        """Set the bounds of the window."""
        held = self._stream.held - ANSWER_RESERVE_TOKENS
        self.window = ContextWindow.of(self.prompt_limit, self._stream.reach, wanted, held)

    def window_before(
        self, instructions: str | None, tools: Sequence[api.Tool], max_tokens: int
    ) -> ContextWindow:
        """The window to fit before an answer of up to `max_tokens` with its own instructions and
        tools. Raises `ContextFull` if the answer does not fit even behind the sink alone."""
        chat, limit = self._services.chat, self._stream.limit
        following = len(self._answer_system(instructions, tools))
        following += len(chat.user_close) + len(chat.assistant_open)
        sink = max(len(self._system), len(self._blind_system))
        if sink + following >= limit:
            raise ContextFull(limit, sink + following, by_instructions=True)
        taken = following + answer_reserve(max_tokens)
        return self.window.within(limit - taken, self._stream.held - taken)

    def fit(self, window: ContextWindow | None = None) -> tuple[RenderedPrompt, list[KvMove]]:
        """Evict what lies outside of the window, here and in the stream.

        Returns the remaining prompt and the moves to carry out in memory, in order, before any
        other access.
        """
        window = self.window if window is None else window
        self.restore_thinned()
        entries = self.now()
        rendered = self._render(entries)
        if not rendered.items:
            return rendered, []
        sink = rendered.items[0].lead
        common_len = self._stream.common_prefix_len(rendered.ids)
        positions = self._positions(common_len, len(rendered.ids))
        moves = []
        if positions[-1] - positions[sink] > window.reach - sink:
            moves.append(self._stream.close_gaps(sink))
        cuts = self._overflow(entries, rendered, common_len, window)
        if cuts:
            self._forget(entries, rendered, cuts)
            self.forget_unused()
            # Tokens beyond the common prefix were never in the stream.
            moves.append(self._stream.evict(clip_ranges(cuts, 0, common_len), sink))
            rendered = self.rendered()
        return rendered, [move for move in moves if move is not None]

    def thin(self, thinning: Thinning) -> list[KvMove]:
        """Evict words of past turns by attention, here and in the stream. Moves as of `fit`."""
        self.restore_thinned()
        entries, stream = self.now(), self._stream
        rendered = self._render(entries)
        cuts, left = thin(thinning, stream, entries, rendered)
        if not cuts:
            return []
        self._items.put_all(left)
        move = stream.evict(cuts, rendered.items[0].lead)
        stream.least_kv_len = stream.kv_len
        return [] if move is None else [move]

    def restore_thinned(self) -> bool:
        """Make thinned messages whole whose K/V are lost. Whether there were any."""
        if all(entry.whole is None for entry in self._items):
            return False
        whole = made_whole(self._stream, entries := self.now(), self._render(entries))
        self._items.put_all(whole)
        return bool(whole)

    def is_full(self, window: ContextWindow | None = None) -> bool:
        """Whether `fit` would evict something."""
        entries = self.now()
        rendered = self._render(entries)
        common_len = self._stream.common_prefix_len(rendered.ids)
        return bool(self._overflow(entries, rendered, common_len, window or self.window))

    def _overflow(
        self,
        entries: Sequence[Entry],
        rendered: RenderedPrompt,
        common_len: int,
        window: ContextWindow,
    ) -> list[Range]:
        return overflow(rendered, entries, window, self._positions(common_len, len(rendered.ids)))

    def _positions(self, common_len: int, length: int) -> npt.NDArray[np.int64]:
        """Positions of `length` tokens and the next one; beyond the stream they count by one."""
        known = self._stream.axes(0, common_len).max(axis=0)
        following = 1 + (int(known[-1]) if common_len else -1)
        return np.concatenate((known, following + np.arange(length + 1 - common_len)))

    def _forget(
        self, entries: Sequence[Entry], rendered: RenderedPrompt, cuts: Sequence[Range]
    ) -> None:
        """Remove the ranges `cuts` from the items and the open utterance."""
        for (entry, left), item in zip(
            remaining_entries(entries, rendered, cuts), rendered.items, strict=True
        ):
            if left == entry:
                continue
            seen = any(segment.modality is Modality.IMAGE for segment in entry.segments)
            self._picture_evicted = self._picture_evicted or seen
            if self.utterance is not None and entry.item_id == self.utterance.item_id:
                self.utterance.forget(clip_ranges(cuts, item.content, item.end), entry)
                continue
            self._items.evict(entry, left)

    # --- tokens ----------------------------------------------------------------------------------

    def rendered(self, *, tentative: bool = True) -> RenderedPrompt:
        """The tokens the stream shall have while no answer runs. Without `tentative`, words that
        may still change are left out."""
        return self._render(self.now(tentative=tentative))

    def tokens(self, *, tentative: bool = True) -> list[int]:
        """The token ids of `rendered`."""
        return self.rendered(tentative=tentative).ids

    def prompt(
        self,
        instructions: str | None = None,
        *,
        tools: Sequence[api.Tool] = (),
        with_utterance: bool = False,
    ) -> Prompt:
        """The prompt of an answer. The open utterance is included for speculation only.
        `instructions` and `tools` hold for this answer alone and come last, so that the cached
        prefix stays valid."""
        entries = self.now(with_utterance=with_utterance)
        extra = self._answer_system(instructions, tools)
        rendered = self._render(entries, answer_next=True, extra_system=extra)
        return Prompt.of(rendered, entries)

    def _answer_system(self, instructions: str | None, tools: Sequence[api.Tool]) -> Sequence[int]:
        """The system message for one answer alone."""
        if not instructions and not tools:
            return ()
        return self._services.chat.later_system(instructions or "", tools)

    def out_of_band_prompt(
        self,
        items: Sequence[api.Item],
        stream: Stream,
        instructions: str | None,
        tools: Sequence[api.Tool] | None,
        max_tokens: int,
    ) -> Prompt:
        """The prompt of an out-of-band answer: `items` alone, in a stream of their own.

        The oldest items are dropped if they do not fit. `instructions` or `tools` None: the
        session's. Raises `ContextFull` for an item that is too long by itself.
        """
        chat = self._services.chat
        system: Sequence[int] = self._system
        if instructions or tools is not None:
            text = self._instructions if instructions is None else instructions
            system = chat.system(text, self.tools if tools is None else tools)
        entries = [self._tokens_of.entry(item, stream) for item in items]

        def render_entries(entries: Sequence[Entry]) -> RenderedPrompt:
            return render(chat, self._separator, system, entries, answer_next=True)

        room = stream.limit - answer_reserve(max_tokens)
        return prompt_within(room, stream.reach, entries, render_entries)

    def _render(
        self,
        entries: Sequence[Entry],
        *,
        answer_next: bool = False,
        extra_system: Sequence[int] = (),
    ) -> RenderedPrompt:
        # An evicted picture counts as seen: changing the system prompt would prefill all again.
        sees = self._picture_evicted or any(
            s.modality is Modality.IMAGE for entry in entries for s in entry.segments
        )
        return render(
            self._services.chat,
            self._separator,
            self._system if sees else self._blind_system,
            entries,
            answer_next=answer_next,
            extra_system=extra_system,
        )
