"""Media files as PyAV opens them, whatever is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.gateway.errors import FileMissing, FileUndecodable
from headstart.talk.media.container import (
    Tally,
    decoded,
    ogg_has_end,
    ogg_links,
    opened,
    parts,
    wav_data_bytes,
    xing_s,
)
from tests.headstart.talk.media_files import cut, write_audio
from tests.headstart.talk.odd_files import joined


def test_an_ogg_has_as_many_links_as_were_joined(tmp_path: Path) -> None:
    """They follow each other, and each is a file of its own."""
    names = ["a.ogg", "b.ogg", "c.ogg"]
    files = [write_audio(tmp_path / name, "libopus", 48000, duration_s=0.3) for name in names]
    chained = joined(tmp_path / "chained.ogg", *files)
    links = ogg_links(chained)
    data = chained.read_bytes()
    assert [data[begin:end] for begin, end in links] == [file.read_bytes() for file in files]
    assert len(ogg_links(files[0])) == 1
    assert ogg_links(write_audio(tmp_path / "a.wav", "pcm_s16le", 8000)) == []
    lengths = []
    for container in parts(chained):
        stream = container.streams.audio[0]
        lengths.append(sum(frame.samples for frame in decoded(container, stream, Tally())))
    assert lengths == [14_400] * 3


def test_a_name_with_a_colon_is_no_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As FFmpeg would take it in a path without a folder."""
    monkeypatch.chdir(tmp_path)
    write_audio(tmp_path / "12:30.wav", "pcm_s16le", 8000)
    with opened(Path("12:30.wav")) as container:
        assert len(container.streams.audio) == 1


def test_an_oggs_end_is_seen(tmp_path: Path) -> None:
    """On its last page, or not there."""
    whole = write_audio(tmp_path / "a.ogg", "libopus", 48000)
    assert ogg_has_end(whole)
    assert not ogg_has_end(cut(whole, 0.5))


def test_a_wav_declares_its_length(tmp_path: Path) -> None:
    """Other chunks before it are passed over; other files have none."""
    path = write_audio(tmp_path / "a.wav", "pcm_s16le", 8000)
    assert wav_data_bytes(path) == 16_000
    assert wav_data_bytes(write_audio(tmp_path / "a.mp3", "mp3", 44100)) is None


def test_an_mp3s_table_says_how_long_it_lasts(tmp_path: Path) -> None:
    """In its first frame, behind a cover too; without one nobody knows."""
    for rate_hz in (16_000, 44_100):
        path = write_audio(tmp_path / "a.mp3", "mp3", rate_hz, duration_s=2.0)
        assert xing_s(path, rate_hz) == pytest.approx(2.0, abs=0.15)
        at = next(at for at in range(10_000) if path.read_bytes()[at] == 0xFF)
        tags = b"ID3\4\0\0\0\1\x1c\x20" + bytes(20_000)
        path.write_bytes(tags + path.read_bytes()[at:])
        assert xing_s(path, rate_hz) == pytest.approx(2.0, abs=0.15)
    assert xing_s(write_audio(tmp_path / "a.wav", "pcm_s16le", 8000), 8000) is None


def test_what_does_not_decode_is_counted(tmp_path: Path) -> None:
    """Noise in the middle of a file costs the packets that it hits."""
    path = write_audio(tmp_path / "a.mp3", "mp3", 44100, duration_s=2.0)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    path.write_bytes(data)
    tally = Tally()
    with opened(path) as container:
        frames = list(decoded(container, container.streams.audio[0], tally))
    assert tally.packets > 50
    assert len(frames) > 40


def test_what_cannot_be_opened_has_a_sentence(tmp_path: Path) -> None:
    """No media file, or one that may not be read."""
    text = tmp_path / "text.wav"
    text.write_text("words\n" * 100)
    with pytest.raises(FileUndecodable, match="a media player plays"), opened(text):
        pass
    with pytest.raises(FileMissing, match="cannot be read"), opened(tmp_path):
        pass
