"""Pictures with printed words for `headstart bench eyes`: photographs from packages, drawn signs.

A sign is a panel with one or two lines in a camera's picture of 640 x 480: tilted or seen from the
side, in several sizes and colours, with a background, blur and noise. Fonts, texts and photographs
fall into two halves by the CRC-32 of their names: "choose" was used to choose thresholds and sizes,
"report" was not looked at before.
"""

from __future__ import annotations

import importlib
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import cv2
import numpy as np
import numpy.typing as npt

from headstart.benchmarks.inputs import photos
from headstart.engine import api

LIST = Path(__file__).with_name("signs.toml")
HALVES = ("choose", "report")
SIGNS_A_FONT = 4
HEIGHTS_PX = (16, 24, 36, 56)  # of the letters' em
TILTS_DEGREES = (0, 8, -15, 30, -4, 20)
SIDEWAYS = (0.0, 0.0, 0.12, -0.12)  # by how much of its height one end of a panel is smaller
PANELS = (  # paper, ink
    ((255, 255, 255), (20, 20, 20)),
    ((20, 80, 160), (250, 250, 250)),
    ((250, 210, 30), (10, 10, 10)),
    ((170, 25, 30), (255, 245, 240)),
    ((15, 95, 45), (240, 250, 240)),
)
TEXTS = (  # Latin letters
    *("Platform 4\nTrains to Oxford", "Mind the step", "Fire exit\nKeep clear", "Open 9 to 5"),
    *("No smoking", "Ticket office", "Caution: wet floor", "Push to open", "Room 217\nDr. Miller"),
    *("Fresh bread daily", "Baggage claim", "Beware of the dog", "Coffee 2.50\nTea 1.80"),
    *("Please ring the bell", "Out of order", "Lost and found", "Speed limit 30", "Staff only"),
    *("Bitte nicht stören", "Notausgang", "Frisches Gemüse\nvom Markt", "Rauchen verboten"),
    *("Sortie de secours", "Défense d'entrer", "Pâtisserie\nfermée lundi", "Eau potable"),
    *("Salida de emergencia", "Prohibido aparcar", "Mañana abierto", "Horario de atención"),
    *("Vietato fumare", "Uscita a destra", "Proibido estacionar", "Saída de emergência"),
)
HAN_TEXTS = ("出口", "入口はこちら", "立入禁止", "非常口", "東京駅", "営業中", "本日休業", "駐車場")
LANGUAGE_TEXTS = {  # nothing was chosen on these
    "English": (
        *("Mind your head", "Bike lane ahead", "Cash only", "Wet paint\nDo not touch"),
        *("Waiting room", "Tickets sold here", "Road closed", "Pay at the desk"),
    ),
    "German": (
        *("Vorsicht Stufe", "Bitte Tür schließen", "Gleis 7\nZüge nach Köln", "Heute geöffnet"),
        *("Durchfahrt verboten", "Frische Brötchen", "Straße gesperrt", "Wäscherei\nim Hof"),
    ),
    "French": (
        *(
            "Entrée libre",
            "Attention à la marche",
            "Boulangerie\nfermée le mardi",
            "Voie sans issue",
        ),
        *(
            "Priorité à droite",
            "Forêt protégée",
            "Crêpes au sucre",
            "Caisse n° 3\nPar ici, s'il vous plaît",
        ),
    ),
    "Spanish": (
        *("Cuidado con el perro", "Cerrado los lunes", "Niños jugando", "Baños al fondo"),
        *("Estación de autobuses", "Prohibido el paso", "Agua fría\ny café", "Panadería García"),
    ),
    "Italian": (
        *("Attenti al cane", "Chiuso per ferie", "Caffè e cornetti", "Binario 5\nTreni per Forlì"),
        *("Città vecchia", "Spingere la porta", "Più avanti a sinistra", "Divieto di sosta"),
    ),
    "Portuguese": (
        *("Cuidado com o cão", "Fechado à noite", "Estação central", "Pão quente\ntodos os dias"),
        *("Não pisar na relva", "Água potável", "Atenção ao degrau", "Café da manhã"),
    ),
}
FONTS_A_TEXT = 2

Rgb = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Print:
    """A picture and what is printed in it."""

    name: str
    image: api.Image
    words: tuple[str, ...]
    is_photo: bool


def load(half: str) -> list[Print]:
    """The pictures of one half, fetched if necessary. Raises `photos.PhotosMissing`."""
    prints = []
    for path, entry in photos.fetched(LIST, "photo"):
        if half_of(path.name) == half:
            words = words_of(entry["words"])
            prints.append(Print(path.name, photos.decode(path), words, is_photo=True))
    return [*prints, *_signs(half)]


def people() -> list[tuple[str, api.Image, int]]:
    """Photographs by name, with the number of people in each. Raises `photos.PhotosMissing`."""
    listed = photos.fetched(LIST, "people")
    return [(path.name, photos.decode(path), int(entry["count"])) for path, entry in listed]


def half_of(name: str) -> str:
    return HALVES[crc32(name.encode()) % 2]


def words_of(text: str) -> tuple[str, ...]:
    """Words in small letters without signs; a Chinese or Japanese character is a word."""
    words: list[str] = [""]
    for letter in unicodedata.normalize("NFC", text).lower():
        if ord(letter) >= 0x3040:
            words += [letter, ""]
        elif letter.isalnum():
            words[-1] += letter
        elif letter not in "'.,":
            words.append("")
    return tuple(word for word in words if word)


def words_found(words: tuple[str, ...], text: str) -> int:
    """How many of `words` are in `text`, each as often as it is there."""
    return (Counter(words) & Counter(words_of(text))).total()


def _signs(half: str) -> Iterator[Print]:
    for path, entry in photos.fetched(LIST, "font"):
        is_han = bool(entry.get("han"))
        if not is_han and half_of(path.name) != half:
            continue
        texts = [text for text in (HAN_TEXTS if is_han else TEXTS) if half_of(text) == half]
        for number in range(SIGNS_A_FONT):
            seed = crc32(f"{path.name} {number} {half}".encode())
            text = texts[seed % len(texts)]
            image = draw(path, text, HEIGHTS_PX[number % len(HEIGHTS_PX)], seed)
            name = f"{path.stem} {text!r}"
            yield Print(name, image, words_of(text), is_photo=False)


def in_languages(half: str) -> list[tuple[str, Print]]:
    """Drawn signs by language, in the fonts of one half: `FONTS_A_TEXT` of each text, in all
    heights. Raises `photos.PhotosMissing`."""
    listed = photos.fetched(LIST, "font")
    fonts = [p for p, entry in listed if not entry.get("han") and half_of(p.name) == half]
    signs = []
    for language, texts in LANGUAGE_TEXTS.items():
        for number in range(len(texts) * FONTS_A_TEXT):
            text, font = texts[number % len(texts)], fonts[number % len(fonts)]
            seed = crc32(f"{text} {number} {half}".encode())
            height_px = HEIGHTS_PX[(number + number // len(texts)) % len(HEIGHTS_PX)]
            name = f"{font.stem} {text!r}"
            sign = Print(name, draw(font, text, height_px, seed), words_of(text), is_photo=False)
            signs.append((language, sign))
    return signs


def draw(font: Path, text: str, height_px: int, seed: int) -> api.Image:
    """A sign with `text`, letters `height_px` high; all else by `seed`."""
    random = np.random.default_rng(seed)
    panel = panel_of(font, text, 2 * height_px, PANELS[random.integers(len(PANELS))])
    rows, columns = panel.shape[:2]
    scale = min(0.5, 560 / columns)
    tilt = np.radians(TILTS_DEGREES[random.integers(len(TILTS_DEGREES))])
    turn = np.array([[np.cos(tilt), np.sin(tilt)], [-np.sin(tilt), np.cos(tilt)]]) * scale
    around = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], np.float32) * (columns / 2, rows / 2)
    around[1:3, 1] *= 1 - SIDEWAYS[random.integers(len(SIDEWAYS))]
    middle = np.array([320, 240]) + random.uniform(-20, 20, 2)
    corners = np.array([[0, 0], [columns, 0], [columns, rows], [0, rows]], np.float32)
    warp = cv2.getPerspectiveTransform(corners, (around @ turn + middle).astype(np.float32))
    scene = _wall(random)
    cv2.warpPerspective(
        panel, warp, (640, 480), scene, cv2.INTER_AREA, borderMode=cv2.BORDER_TRANSPARENT
    )
    blurred = np.asarray(cv2.GaussianBlur(scene, (0, 0), 0.6), np.float32)
    noisy = blurred * random.uniform(0.75, 1.0) + random.normal(0, 3, scene.shape)
    return api.Image(640, 480, noisy.clip(0, 255).round().astype(np.uint8).tobytes())


def _wall(random: np.random.Generator) -> Rgb:
    """A background without words: blotches of one colour."""
    base = random.uniform(60, 190, 3)
    blotches = random.normal(0, 22, (12, 16, 1)) + base
    smooth = cv2.resize(blotches.astype(np.float32), (640, 480), interpolation=cv2.INTER_CUBIC)
    return np.asarray(smooth.clip(0, 255), np.uint8)


def panel_of(font: Path, text: str, height_px: int, colours: Any) -> Rgb:
    """A sign alone, `colours` its paper and its ink: uint8 [H, W, 3]."""
    drawing: Any = importlib.import_module("PIL.ImageDraw")
    pictures: Any = importlib.import_module("PIL.Image")
    fonts: Any = importlib.import_module("PIL.ImageFont")
    paper, ink = colours
    letters = fonts.truetype(str(font), height_px)
    left, top, right, bottom = drawing.Draw(pictures.new("RGB", (1, 1))).multiline_textbbox(
        (0, 0), text, font=letters
    )
    edge = round(0.7 * height_px)
    size = round(right - left) + 2 * edge, round(bottom - top) + 2 * edge
    panel = pictures.new("RGB", size, paper)
    at = edge - left, edge - top
    drawing.Draw(panel).multiline_text(at, text, font=letters, fill=ink, align="center")
    return np.array(panel)
