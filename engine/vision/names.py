"""Everyday names of ImageNet's 1000 classes, and the broader kinds they belong to.

Ids and words are WordNet's, in two files: `imagenet_synsets.txt` (one id per line, in class order)
and `imagenet_synset_to_lemma.txt` (id, tab, words separated by commas).

A name is the synset's first word, or a longer word that begins with it ("tabby, tabby cat" ->
"tabby cat"), or a more common word ("ashcan" -> "trash can"). Classes with the same name are merged
into one: ImageNet has two missiles and two sunglasses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headstart.engine.errors import BadWeights

SYNSETS_FILE = "imagenet_synsets.txt"
LEMMAS_FILE = "imagenet_synset_to_lemma.txt"
CLASSES = 1000

# WordNet's first word -> the common word. Also keeps a first word that a longer one would replace.
_EVERYDAY = {
    "African hunting dog": "wild dog",
    "Band Aid": "plaster",
    "Eskimo dog": "husky",
    "Granny Smith": "apple",
    "Mexican hairless": "hairless dog",
    "Windsor tie": "necktie",
    "ashcan": "trash can",
    "balance beam": "balance beam",
    "barrow": "wheelbarrow",
    "beach wagon": "station wagon",
    "beacon": "lighthouse",
    "bell cote": "bell tower",
    "bicycle-built-for-two": "tandem bicycle",
    "brass": "plaque",
    "brassiere": "bra",
    "cab": "taxi",
    "caldron": "cauldron",
    "cellular telephone": "mobile phone",
    "chambered nautilus": "nautilus",
    "church": "church",
    "cock": "rooster",
    "common iguana": "iguana",
    "confectionery": "candy store",
    "consomme": "soup",
    "crash helmet": "helmet",
    "dial telephone": "telephone",
    "drake": "duck",
    "ear": "corn",
    "four-poster": "four-poster bed",
    "gasmask": "gas mask",
    "golfcart": "golf cart",
    "grocery store": "grocery store",
    "groom": "bridegroom",
    "hair slide": "hair clip",
    "hand blower": "hair dryer",
    "hand-held computer": "hand-held computer",
    "hip": "rose hip",
    "hog": "pig",
    "horizontal bar": "high bar",
    "hotdog": "hot dog",
    "ice bear": "polar bear",
    "ice lolly": "popsicle",
    "jean": "jeans",
    "jersey": "T-shirt",
    "jinrikisha": "rickshaw",
    "koala": "koala",
    "lesser panda": "red panda",
    "liner": "ocean liner",
    "loudspeaker": "loudspeaker",
    "maillot": "swimsuit",
    "mitten": "mittens",
    "mouse": "computer mouse",
    "nipple": "baby bottle",
    "organ": "pipe organ",
    "pajama": "pajamas",
    "patas": "patas monkey",
    "pick": "guitar pick",
    "pizza": "pizza",
    "plane": "carpenter's plane",
    "pop bottle": "soda bottle",
    "prison": "prison",
    "projectile": "missile",
    "pug": "pug",
    "racer": "race car",
    "rubber eraser": "eraser",
    "rule": "ruler",
    "sax": "saxophone",
    "screen": "computer screen",
    "slot": "slot machine",
    "sorrel": "horse",
    "spotlight": "spotlight",
    "streetcar": "tram",
    "suit": "suit",
    "sunglass": "sunglasses",
    "swab": "mop",
    "television": "television",
    "tench": "tench fish",
    "toilet tissue": "toilet paper",
    "torch": "torch",
    "tub": "tub",
    "tusker": "elephant",
    "washer": "washing machine",
    "wood rabbit": "rabbit",
    "wool": "wool",
}
# Synsets whose first word has another meaning elsewhere in the list.
_BY_SYNSET = {"n03126707": "construction crane", "n02012849": "crane bird"}


@dataclass(frozen=True)
class Kind:
    """Classes that share a plain word; `spans` are inclusive ranges of class numbers."""

    name: str
    spans: tuple[tuple[int, int], ...]


# Ranges where ImageNet's order keeps related classes together, and lists elsewhere. They allow to
# say "dog" when forty breeds share the probability.
KINDS = (
    Kind("fish", ((0, 6), (389, 397))),
    Kind("bird", ((7, 24), (80, 100), (127, 146))),
    Kind("frog", ((30, 32),)),
    Kind("turtle", ((33, 37),)),
    Kind("lizard", ((38, 48),)),
    Kind("snake", ((52, 68),)),
    Kind("spider", ((72, 77),)),
    Kind("crab", ((118, 121), (125, 125))),
    Kind("dog", ((151, 268),)),
    Kind("fox", ((277, 280),)),
    Kind("cat", ((281, 285),)),
    Kind("big cat", ((286, 293),)),
    Kind("bear", ((294, 297),)),
    Kind("beetle", ((300, 307),)),
    Kind("butterfly", ((321, 326),)),
    Kind("rabbit", ((330, 332),)),
    Kind("monkey", ((369, 382),)),
    Kind("ape", ((365, 368),)),
    Kind("whale", ((147, 148),)),
    Kind("elephant", ((101, 101), (385, 386))),
    Kind("car", ((436, 436), (468, 468), (511, 511), (609, 609), (627, 627), (656, 656),
                 (661, 661), (751, 751), (817, 817))),
    Kind("truck", ((555, 555), (569, 569), (717, 717), (864, 864), (867, 867))),
    Kind("train", ((466, 466), (547, 547), (820, 820))),
    Kind("boat", ((472, 472), (484, 484), (554, 554), (576, 576), (625, 625), (628, 628),
                  (780, 780), (814, 814), (871, 871), (914, 914))),
    Kind("guitar", ((402, 402), (546, 546))),
    Kind("piano", ((579, 579), (881, 881))),
    Kind("telephone", ((487, 487), (528, 528), (707, 707))),
    Kind("computer", ((508, 508), (527, 527), (620, 620), (664, 664), (681, 681), (782, 782))),
    Kind("building", ((425, 425), (442, 442), (483, 483), (497, 497), (538, 538), (663, 663),
                      (668, 668), (698, 698), (832, 832), (873, 873))),
    Kind("hat", ((439, 439), (452, 452), (515, 515), (808, 808))),
    Kind("bottle", ((440, 440), (720, 720), (737, 737), (898, 898), (907, 907))),
    Kind("cup", ((504, 504), (968, 968))),
    Kind("ball", ((429, 430), (522, 522), (574, 574), (722, 722), (768, 768), (805, 805),
                  (852, 852), (890, 890))),
    Kind("chair", ((423, 423), (559, 559), (765, 765))),
    Kind("clock", ((409, 409), (530, 530), (892, 892))),
    Kind("mushroom", ((947, 947), (991, 997))),
    Kind("flower", ((985, 986),)),
)  # fmt: skip


@dataclass(frozen=True)
class Names:
    """Each class's name, by class number; `kinds`: its broader kind, or None."""

    names: tuple[str, ...]
    kinds: tuple[str | None, ...]


def load_names(folder: Path) -> Names:
    """Read both files in `folder`. Raises `BadWeights` naming the file, line and fault."""
    synset_path, lemma_path = folder / SYNSETS_FILE, folder / LEMMAS_FILE
    synsets = _read(synset_path).split()
    if len(synsets) != CLASSES:
        raise BadWeights(synset_path, "lines", str(CLASSES), str(len(synsets)))
    words = {}
    for number, line in enumerate(_read(lemma_path).splitlines(), start=1):
        synset, tab, lemmas = line.partition("\t")
        if not tab or not lemmas:
            raise BadWeights(lemma_path, f"line {number}", "id, tab, words", repr(line))
        words[synset] = lemmas
    names = tuple(_name(synset, words, lemma_path) for synset in synsets)
    kinds: list[str | None] = [None] * CLASSES
    for kind in KINDS:
        for first, last in kind.spans:
            kinds[first : last + 1] = [kind.name] * (last + 1 - first)
    return Names(names, tuple(kinds))


def everyday_name(lemmas: Sequence[str]) -> str:
    """The most common of a synset's words."""
    first = lemmas[0]
    if first in _EVERYDAY:
        return _EVERYDAY[first]
    longer = [lemma for lemma in lemmas[1:] if lemma.startswith(f"{first} ")]
    return longer[0] if longer else first


def _name(synset: str, words: Mapping[str, str], path: Path) -> str:
    if synset not in words:
        raise BadWeights(path, "ids", f"one line for {synset}", "none")
    return _BY_SYNSET.get(synset) or everyday_name(words[synset].split(", "))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadWeights(path, "file", "a file", "none") from error
    except UnicodeDecodeError as error:
        raise BadWeights(path, "content", "UTF-8 text", error.reason) from error
