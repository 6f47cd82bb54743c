"""Lists of recordings of people for `headstart bench wer`, from packages that ship them.

    apt-get download asterisk-core-sounds-en asterisk-core-sounds-en-wav    # or -g722: 16 kHz
    for deb in *.deb; do dpkg-deb -x $deb sounds; done
    headstart bench prompts sounds wav > prompts.tsv                        # or g722

Only prompts whose name has an even CRC-32 are listed: the odd half is held out.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

TRANSCRIPTS = "core-sounds-en.txt.gz"


def asterisk_prompts(folder: Path, suffix: str) -> Iterator[tuple[Path, str]]:
    """Path and text of each prompt of the even half with words in it.

    `folder`: the unpacked packages. Raises FileNotFoundError when the transcripts are not there.
    """
    found = sorted(folder.rglob(TRANSCRIPTS))
    if not found:
        raise FileNotFoundError(f"no {TRANSCRIPTS} under {folder}: unpack asterisk-core-sounds-en")
    clips = {clip.stem: clip for clip in sorted(folder.rglob(f"*.{suffix}"))}
    for line in gzip.decompress(found[0].read_bytes()).decode().splitlines():
        name, colon, text = line.partition(":")
        clip = clips.get(name.rpartition("/")[2])
        if line.startswith(";") or not colon or clip is None or zlib.crc32(name.encode()) % 2:
            continue
        words = re.sub(r"\[.*?\]|\(.*?\)|<.*?>", " ", text).strip()
        if re.search(r"[A-Za-z]{2}", words):
            yield clip, words
