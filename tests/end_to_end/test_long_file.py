"""Questions about a recording, through the real `tiny` model."""

from __future__ import annotations

from headstart.talk.long_file.analysis import analyse
from headstart.talk.long_file.report import AnalysisObserver, AnalysisOptions
from tests.end_to_end.conftest import Server
from tests.headstart.talk.conftest import CLIPS


async def test_what_is_said_and_shown(server: Server) -> None:
    """The clip's question is heard word for word; the cat is seen, by a model that is shown one
    picture at a time; the answer comes from both."""
    options = AnalysisOptions(("What is shown?",))
    report = await analyse(CLIPS / "demo.mp4", server.url, options, AnalysisObserver())
    (note,) = report.notes
    assert [line.text for line in note.heard] == ["What do you see in this picture?"]
    assert "cat" in note.summary.lower()
    assert note.captions
    (answer,) = report.answers
    assert answer.status == "completed"
    assert answer.text
    assert report.losses == []
