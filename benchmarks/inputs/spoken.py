"""Lists of spoken numbers, repetitions and questions for `headstart bench wer`, by packaged voices.

    headstart bench spoken build/spoken choose > choose.tsv
    headstart bench spoken build/spoken report > report.tsv

Settings are tuned on one part and reported on the other, whose sentences and voices are new.
Flite's voices are left out if the system has no `flite` (Debian's package).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np

from headstart.benchmarks.inputs.voices import Line, Samples, cast
from headstart.gateway.tts.synthesiser import RATE_HZ

CHOOSE, REPORT, QUESTIONS = "choose", "report", "questions"
PARTS = (CHOOSE, REPORT, QUESTIONS)

VOICES = {
    CHOOSE: ("joe", "flite slt", "kokoro jf_alpha"),
    REPORT: ("kokoro jm_kumo", "flite rms", "flite awb", "kokoro jf_tebukuro"),
    QUESTIONS: ("joe", "kokoro jf_gongitsune", "kokoro jm_kumo"),
}

# Room noise before and behind, like a voice detector's pre-roll and pause.
LEAD_S, TAIL_S = 0.3, 0.3
ROOM_LEVEL = 3  # s16 units either way

_CHOOSE = """
I was born in 1999 and she was born in 2004.
The war ended in 1945.
In 1900, in 1999 and in 2024.
My birthday is on March the 3rd.
The meeting is on the 21st of October at half past nine.
The train leaves at 7:45 in the morning.
It costs $19.99.
That will be three hundred and fifty dollars.
My number is 555 0142.
Call me at 020 7946 0958.
My number is 555 0142, I repeat, 555 0142.
The population is 1,234,567.
The code is 4 8 1 5 1 6 2.
She came in 2nd and he came in 5th.
Turn to page 318.
It is 25 degrees outside.
No, no, no.
Stop, stop, stop!
Yes, yes, yes.
It is very, very, very good.
No, no, no, that is not what I meant.
Wait, wait, wait a moment.
Go, go, go, go!
I really, really, really like it.
Come on, come on, come on.
Thank you, thank you, thank you.
Never, never, never give up.
One, two, three, one, two, three.
Left, right, left, right, left, right.
Yes.
No.
Stop.
"""

_REPORT = """
In 1999 and 2024.
The first one was built in 1887 and the second one in 1963.
We moved here in 2011.
The appointment is on April the 12th.
It happened on the 2nd of May, 1998.
Wake me up at 6:30.
The shop closes at a quarter to eight.
That comes to $42.50.
The ticket is twelve pounds eighty.
You can reach me at 555 0199.
The number is 0131 496 0721.
My number is 555 0178, once more, 555 0178.
The city has 3,482,916 inhabitants.
The order number is 7 2 9 0 4 4 1.
He finished 3rd and I finished 11th.
Open the book on page 476.
The temperature is minus 14 degrees.
No, no, no, no.
Stop, stop, stop, please stop.
Yes, yes, yes, I know.
The food was very, very good.
Hello, hello, hello?
Hurry, hurry, hurry!
Again, again, again.
I told you a thousand times, a thousand times.
Please, please, please help me.
Bye, bye, bye.
It is far, far, far away.
Ten, nine, eight, seven, six, five, four, three, two, one.
Okay.
Yes please.
Hello.
"""

_QUESTIONS = """
What is the capital of France?
And which river runs through it?
What do you see in this picture?
How many people live in London?
What time is it in New York?
Can you tell me a joke?
Who wrote Romeo and Juliet?
How far away is the moon?
What is the tallest mountain in the world?
How do I bake a chocolate cake?
What is the weather like today?
Can you set a timer for ten minutes?
What does this word mean?
How do you say good morning in Spanish?
Who was the first man on the moon?
What is the square root of 81?
Why is the sky blue?
How long does it take to boil an egg?
Which planet is the largest?
When did the second world war end?
What should I cook for dinner tonight?
Can you help me with my homework?
Where is the nearest train station?
How old is the universe?
What is the fastest animal on land?
Could you repeat that, please?
What is the difference between a frog and a toad?
How many legs does a spider have?
Who painted the Mona Lisa?
What is the boiling point of water?
Can you spell necessary?
What languages are spoken in Switzerland?
How do plants make their food?
What is the name of this song?
Is it going to rain tomorrow?
How much is two hundred euros in dollars?
What are the colors of the rainbow?
Can you remind me to call my mother?
Which countries border Germany?
What happened on this day in history?
How do I tie a tie?
Who is the president of Brazil?
What is the longest river in Africa?
Do cats really have nine lives?
How many hours are there in a week?
What is the best way to learn a language?
Can I plug this into a computer?
Why do leaves change color in autumn?
How heavy is a blue whale?
What is on the table next to the window?
"""

SENTENCES = {
    part: tuple(text.strip().splitlines())
    for part, text in ((CHOOSE, _CHOOSE), (REPORT, _REPORT), (QUESTIONS, _QUESTIONS))
}


def spoken(folder: Path, part: str) -> Iterator[tuple[Path, str]]:
    """Path and text of each clip of `part`; missing clips are made in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for voice, say in cast(VOICES[part]):
        for number, text in enumerate(SENTENCES[part]):
            path = folder / f"{part}-{voice.replace(' ', '-')}-{number:02}.wav"
            if not path.exists():
                write(path, in_a_room(say(Line(text))))
            yield path, text


def in_a_room(sound: Samples) -> Samples:
    """The sound with some room noise before and behind."""
    random = np.random.default_rng(1)
    lead, tail = (
        random.integers(-ROOM_LEVEL, ROOM_LEVEL + 1, int(seconds * RATE_HZ)).astype(np.int16)
        for seconds in (LEAD_S, TAIL_S)
    )
    return np.concatenate([lead, sound, tail])


def write(path: Path, sound: Samples, rate_hz: int = RATE_HZ) -> None:
    """Mono s16 as a WAV file."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=rate_hz, layout="mono")
        frame = av.AudioFrame.from_ndarray(sound[None], format="s16", layout="mono")
        frame.sample_rate = rate_hz
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
