"""Lists of recordings of people for `headstart bench wer`, from packages that ship them.

    apt-get download asterisk-core-sounds-en asterisk-core-sounds-en-wav    # or -g722: 16 kHz
    for deb in *.deb; do dpkg-deb -x $deb sounds; done
    headstart bench prompts sounds wav > prompts.tsv                        # or g722

Other languages have packages of the same kind: -es, -fr, -it, -ru.

Only prompts whose name has an even CRC-32 are listed: the odd half is held out.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

TRANSCRIPTS = "core-sounds-*.txt.gz"  # of one language
VOICE_ABOVE = "sounds"  # …/sounds/VOICE/digits/5.wav


def asterisk_prompts(folder: Path, suffix: str) -> Iterator[tuple[Path, str]]:
    """Path and text of each prompt of the even half with words in it.

    `folder`: the unpacked packages. Raises FileNotFoundError when the transcripts are not there.
    """
    found = sorted(folder.rglob(TRANSCRIPTS))
    if not found:
        raise FileNotFoundError(f"no {TRANSCRIPTS} under {folder}: unpack asterisk-core-sounds-XX")
    by_name = {}
    for clip_path in sorted(folder.rglob(f"*.{suffix}")):
        parts = clip_path.with_suffix("").parts
        below = parts[len(parts) - parts[::-1].index(VOICE_ABOVE) + 1 :]
        by_name["/".join(below)] = clip_path
    for line in gzip.decompress(found[0].read_bytes()).decode().splitlines():
        name, colon, text = line.partition(":")
        # With its folder: digits/5 is a word, silence/5 is five seconds of silence.
        clip = by_name.get(name)
        if line.startswith(";") or not colon or clip is None or zlib.crc32(name.encode()) % 2:
            continue
        words = re.sub(r"\[.*?\]|\(.*?\)|<.*?>", " ", text).strip()
        if re.search(r"[^\W\d_]{2}", words):
            yield clip, words
