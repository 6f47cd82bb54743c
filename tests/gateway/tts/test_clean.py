"""What is said of what is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.tts.clean import SpokenText, clean

SAID = [
    ("The capital is Paris.", "The capital is Paris."),
    ("**Paris** is *the* __capital__ of _France_.", "Paris is the capital of France."),
    ("***Paris***, ~~Rome~~", "Paris, Rome"),
    ("2 * 3 is 6, and 2*3 too; ~5", "2 times 3 is 6, and 2 times 3 too; ~5"),
    ("call snake_case_name now", "call snake case name now"),
    ("# Cities\n## Of *France*\n", "Cities\nOf France\n"),
    ("- one\n* two\n+ three\n1. four\n", "one\ntwo\nthree\n1. four\n"),
    ("- [ ] milk\n- [x] bread", "milk\nbread"),
    ("> so he said\n> > and she", "so he said\nand she"),
    ("one\n---\ntwo\n***\n", "one\n\ntwo\n\n"),
    ("See [the *docs*](https://example.com/a_b?c=1) now.", "See the docs now."),
    ("See [the docs][1] and ![a cat](cat.png).", "See the docs and a cat."),
    ("He [laughs] and arr[0] is.", "He [laughs] and arr[0] is."),
    ("It is so[^1].\n\n[^1]: a note", "It is so.\n\na note"),
    ("Go to https://www.example.com/x_y/(z)?q=1#f, please.", "Go to example.com, please."),
    ("www.example.org/a is it", "example.org is it"),
    ("<https://example.com/a> and a<br>b <b>c</b> 1 < 2", "example.com and a b c 1 < 2"),
    ("Use `print(x)` here, and ``a`b``.", "Use print(x) here, and ab."),
    ("Do:\n```python\nx = 1\n# no\n```\nDone.", "Do:\n\nDone."),
    ("Do:\n~~~\n```\n~~~~\nDone.", "Do:\n\nDone."),
    ("```x = 1``` is code", "x = 1 is code"),
    ("| City | Big |\n|---|:-:|\n| **Paris** | yes |\n", "City , Big \n\nParis , yes \n"),
    ("AT&amp;T &lt;3 &#39;x&#x27; R&D & so", "AT&T <3 'x' R&D & so"),
    ("Great \U0001f389\U0001f44d\U0001f3fd job ❤️!", "Great job !"),
    ("a \U0001f468‍\U0001f469‍\U0001f467 b \U0001f1eb\U0001f1f7 1️⃣", "a b 1"),
    ("20 °C © 5 € → $5 100%", "20 °C © 5 € $5 100%"),
    (r"\*not\* 3\. and C:\dir", "*not* 3. and C:dir"),
    ("how? when? http", "how? when? http"),
    ("wait - no", "wait - no"),
    ("Hi!", "Hi!"),
    ("", ""),
]


@pytest.mark.parametrize(("written", "said"), SAID)
def test_marks_are_not_said(written: str, said: str) -> None:
    """Each construct, alone and in company."""
    assert clean(written) == said


WRITTEN = "".join(written + "\n" for written, _ in SAID)
MARKS = r"** _ * ` ``` ~~~ a Pa 3 [ ]( ] ( ) | # > <b> < &amp; & http s://x.y ! www. \ --- [^1] :"
pieces = st.lists(
    st.sampled_from([*MARKS.split(), "\n", " ", "- ", "\U0001f389", "\ufe0f", "é", ".", ","]),
    max_size=40,
).map("".join)


@given(st.one_of(pieces, st.text(max_size=60), st.just(WRITTEN)), st.data())
def test_what_is_said_does_not_depend_on_the_cuts(written: str, data: st.DataObject) -> None:
    """Nor does where it stands in what is written, which only goes forward and not beyond."""
    whole = SpokenText()
    wanted = [*whole.push(written), *whole.flush()]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=12)))
    spoken, said = SpokenText(), []
    for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
        said += spoken.push(written[start:end])
    assert [*said, *spoken.flush()] == wanted
    ends = [end for _, end in wanted]
    assert ends == sorted(ends)
    assert all(0 <= end <= len(written) for end in ends)


@given(st.text(alphabet="abc ,.!?'0123456789éß\n", max_size=80))
def test_plain_words_are_said_as_they_are(written: str) -> None:
    """But for spaces that are doubled."""
    assert clean(written).split() == written.split()


def test_little_is_held_back() -> None:
    """Words inside emphasis are said before it ends; an open bracket, tag or rule does not hold
    back everything behind it."""
    spoken = SpokenText()
    said = "".join(letter for letter, _ in spoken.push("**Paris is the capital of"))
    assert said == "Paris is the capital of"
    for opened in ("[", "<a ", "&", "https://", "| ", "```"):
        spoken = SpokenText()
        spoken.push("x " + opened)
        said = "".join(letter for letter, _ in spoken.push("word" * 1000))
        assert len(said) > 1000 or opened in ("https://", "```")
