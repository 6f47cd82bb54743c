"""Words while somebody speaks, of hypotheses of all that was said since the last part. No torch.

A hypothesis for which committed words are forced cannot say that one of them was misheard, and what
comes behind is heard as its continuation. One of the sound as a whole can. So here a committed word
is held for some time against hypotheses that contradict it, and then opened again, with all behind
it. The final pass will hear the same, so less of what was shown and read is taken back by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from headstart.engine.asr.hypothesis import (
    Agreement,
    AgreementSettings,
    Hypothesis,
    Word,
    plain,
)
from headstart.engine.asr.shown import Shown, ShowSettings


def follow_whole(
    agreement: Agreement,
    shown: Shown,
    newest: Hypothesis,
    rules: AgreementSettings,
    show: ShowSettings,
) -> tuple[Agreement, Shown]:
    """What is committed and shown after `newest`, whose words begin with the first committed one.

    Committed words keep their spelling. They end before the first that hypotheses have contradicted
    for `show.contradicted_ms`.
    """
    held = agreement.committed
    rivals = tuple(replace(rival, words=held + rival.words) for rival in agreement.rivals)
    agreed = Agreement((), rivals).update(newest, rules).committed
    heard = Agreement((), _recent((*rivals, newest), rules))
    followed = replace(shown, words=held + shown.words).follow(heard, show)
    same = _common(held, followed.words)
    # Of the agreed words, those that are shown as well: in the same spelling, if they are new.
    count = same
    if _common(held[:same], agreed) == same:
        pairs = zip(followed.words[same:], agreed[same:], strict=False)
        count += sum(1 for _ in takewhile(lambda pair: pair[0].text == pair[1].text, pairs))
    committed = (*held[:same], *agreed[same:count])
    kept = tuple(
        replace(rival, words=rival.words[count:])
        for rival in heard.rivals
        if _common(committed, rival.words) == count
    )
    return Agreement(committed, kept), replace(followed, words=followed.words[count:])


def _recent(rivals: tuple[Hypothesis, ...], rules: AgreementSettings) -> tuple[Hypothesis, ...]:
    """Those that tell whether a word has stood for as long as is ever asked."""
    horizon_ms = rivals[-1].at_ms - rules.longest_ms
    older = [rival for rival in rivals if rival.at_ms <= horizon_ms]
    return (*older[-1:], *rivals[len(older) :])


def _common(words: Sequence[Word], other: Sequence[Word]) -> int:
    """How many words both begin with, however they are spelt."""
    pairs = zip(words, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: plain(pair[0]) == plain(pair[1]), pairs))
