import base64
import contextlib
import io
import resource
import struct
import zlib
from fractions import Fraction

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from headstart.engine.api import SMALL_PICTURE, PictureSize
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.images import (
    ImageLimits,
    decode_image,
    decode_image_url,
    fit,
    within,
)
from tests.gateway.protocol.files import black_png, chunk, header, png_file, zeros


def _encode(pixels: np.ndarray, codec: str) -> bytes:
    """[height, width, 3] uint8 to the bytes of a PNG or JPEG ("mjpeg")."""
    context = av.CodecContext.create(codec, "w")
    assert isinstance(context, av.VideoCodecContext)
    context.height, context.width = pixels.shape[:2]
    context.pix_fmt = "rgb24" if codec == "png" else "yuvj444p"
    context.time_base = Fraction(1, 1)
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format=context.pix_fmt)
    return b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])


def _quarters(width: int, height: int) -> np.ndarray:
    """Red, green, blue and white, clockwise from the top left."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2] = (255, 0, 0)
    pixels[: height // 2, width // 2 :] = (0, 255, 0)
    pixels[height // 2 :, width // 2 :] = (0, 0, 255)
    pixels[height // 2 :, : width // 2] = (255, 255, 255)
    return pixels


PNG = _encode(_quarters(64, 48), "png")
JPEG = _encode(_quarters(64, 48), "mjpeg")


def _uri(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _bare_png(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(100))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def _refused(url: str, limits: ImageLimits | None = None, bare: bool = False) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_image_url(
            url, limits or ImageLimits(), param="item.content[0].image_url", bare_base64=bare
        )
    assert (caught.value.code, caught.value.param) == ("invalid_value", "item.content[0].image_url")
    return caught.value.message


def _undecodable(data: bytes, limits: ImageLimits | None = None) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_image(data, limits=limits or ImageLimits(), param="image")
    assert (caught.value.code, caught.value.param) == ("invalid_value", "image")
    return caught.value.message


@pytest.mark.parametrize(
    ("data", "kind"), [(PNG, "png"), (JPEG, "jpeg"), (JPEG, "jpg"), (PNG, "PNG")]
)
def test_data_uris_give_the_files_bytes(data: bytes, kind: str) -> None:
    """PNG and JPEG, whatever the letter case."""
    assert decode_image_url(_uri(data, kind), param="image") == data


def test_bare_base64_is_taken_where_the_event_allows_it() -> None:
    """`input_image_buffer.append` carries either spelling; an item's URL has to be one."""
    bare = base64.b64encode(JPEG).decode()
    assert decode_image_url(bare, param="image", bare_base64=True) == JPEG
    assert decode_image_url(_uri(JPEG, "jpeg"), param="image", bare_base64=True) == JPEG
    assert "data URI" in _refused(bare)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://example.com/a.png", "got a URL"),
        ("", "got something else"),
        ("data:image/png,AAAA", "got something else"),
        ("data:image/gif;base64,AAAA", "got 'image/gif'"),
        ("data:;base64,AAAA", "got ''"),
        ("data:image/png;base64,!!", "got an invalid value"),
        ("data:image/png;base64,", "got empty bytes"),
        ("data:image/png;base64,AAAA", "bytes of a PNG but got something else"),
        (_uri(JPEG, "png"), "bytes of a PNG but got JPEG"),
    ],
)
def test_other_urls_are_refused_with_what_was_expected(url: str, said: str) -> None:
    """Each refusal says what was expected and what came."""
    message = _refused(url)
    assert message.startswith("Invalid 'item.content[0].image_url'. Expected ")
    assert said in message


def test_a_file_over_the_limit_is_refused() -> None:
    """By its size in base64, before anything is decoded."""
    assert "at most 10 bytes" in _refused(_uri(PNG, "png"), ImageLimits(max_bytes=10))


@pytest.mark.parametrize(("data", "tolerance"), [(PNG, 0), (JPEG, 12)])
def test_pixels_come_from_the_top_left_in_rgb(data: bytes, tolerance: int) -> None:
    """A picture smaller than the limit keeps its size and its colours."""
    picture = decode_image(data)
    assert (picture.width, picture.height) == (64, 48)
    pixels = np.frombuffer(picture.rgb, np.uint8).reshape(48, 64, 3).astype(int)
    corners = [pixels[4, 4], pixels[4, -5], pixels[-5, -5], pixels[-5, 4]]
    wanted = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)]
    assert np.abs(np.array(corners) - np.array(wanted)).max() <= tolerance


@pytest.mark.parametrize(
    ("size", "scaled"),
    [
        ((640, 480), (341, 256)),
        ((300, 700), (256, 597)),
        ((256, 900), (256, 900)),
        ((1, 1), (1, 1)),
    ],
)
def test_the_short_side_is_scaled_down_and_the_shape_kept(
    size: tuple[int, int], scaled: tuple[int, int]
) -> None:
    """To 256 pixels, if nobody asks for more; a picture that is small enough stays as it is."""
    picture = decode_image(_encode(_quarters(*size), "png"))
    assert (picture.width, picture.height) == scaled
    assert len(picture.rgb) == scaled[0] * scaled[1] * 3


@given(
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.integers(0, 3000),
    st.one_of(st.just(0), st.integers(1000, 3_000_000)),
)
def test_a_picture_is_as_large_as_it_may_be(
    width: int, height: int, short_side: int, pixels: int
) -> None:
    """Never larger than itself, than its short side may be, or than its pixels; where it was scaled
    down, within a pixel of one of the bounds, and of the same shape."""
    got = fit(width, height, PictureSize(short_side, pixels))
    assert (got[0] <= width, got[1] <= height) == (True, True)
    assert not short_side or min(got) <= max(short_side, 1)
    assert not pixels or got[0] * got[1] <= pixels or 1 in got
    if got != (width, height):
        reaches_side = bool(short_side) and min(got) >= short_side
        reaches_pixels = bool(pixels) and (got[0] + 1) * (got[1] + 1) > pixels
        assert reaches_side or reaches_pixels
        assert abs(got[0] - width * got[1] / height) <= 1 + width / height


def test_of_two_bounds_the_tighter_one_holds() -> None:
    """A model's own and the server's."""
    assert within(PictureSize(pixels=500), 900) == PictureSize(pixels=500)
    assert within(PictureSize(pixels=900), 500) == PictureSize(pixels=500)
    assert within(SMALL_PICTURE, 500) == PictureSize(short_side=256, pixels=500)


@pytest.mark.parametrize(
    ("width", "height"), [(100_000, 100_000), (6400, 6400), (16_385, 1), (1, 16_385)]
)
def test_a_small_file_with_a_huge_picture_is_not_decoded(width: int, height: int) -> None:
    """Its header says how large it would become."""
    assert f"got {width}x{height}" in _undecodable(_bare_png(width, height))


def test_a_second_size_in_the_file_does_not_get_past_the_limit() -> None:
    """A JPEG whose first header says 8x8 and whose picture is larger is not decoded."""
    small_frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, 8, 8, 1) + b"\x01\x11\x00"
    smuggled = JPEG[:2] + small_frame + JPEG[2:]
    assert "damaged" in _undecodable(smuggled, ImageLimits(max_pixels=64 * 48 - 1))


def test_a_jpeg_is_measured_by_its_frame_header() -> None:
    """The size is found behind the tables before it, and padding is skipped."""
    padded = JPEG[:2] + b"\xff" + JPEG[2:]
    assert decode_image(padded).width == 64
    assert "got 64x48" in _undecodable(JPEG, ImageLimits(max_pixels=64 * 48 - 1))


@pytest.mark.parametrize("data", [PNG, JPEG], ids=["png", "jpeg"])
def test_damaged_files_are_refused(data: bytes) -> None:
    """Cut anywhere, or with a byte changed: a named error, or a picture after all."""
    for length in range(0, len(data) - 100, 37):
        assert _undecodable(data[:length]).startswith("Invalid 'image'. ")
    for position in range(0, len(data), 23):
        broken = bytearray(data)
        broken[position] ^= 0x5A
        with contextlib.suppress(ProtocolError):
            picture = decode_image(bytes(broken))
            assert len(picture.rgb) == picture.width * picture.height * 3


@pytest.mark.parametrize(
    "data", [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a" + bytes(50)]
)
def test_files_without_a_picture_are_refused(data: bytes) -> None:
    """Empty, a signature alone, or another format."""
    assert "found no picture" in _undecodable(data)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(64, 48), (48, 64)])
def test_pictures_are_upright(kind: str, orientation: int, size: tuple[int, int]) -> None:
    """All eight orientations that Exif has come out as Pillow turns them, scaled down or not."""
    stored = Image.fromarray(_quarters(*size))
    tags = Image.Exif()
    tags[274] = orientation
    out = io.BytesIO()
    stored.save(out, kind, exif=tags, quality=95, subsampling=0)
    shown = np.asarray(ImageOps.exif_transpose(Image.open(out)).convert("RGB")).astype(int)
    picture = decode_image(out.getvalue())
    assert (picture.height, picture.width) == shown.shape[:2]
    got = np.frombuffer(picture.rgb, np.uint8).reshape(shown.shape)
    assert np.abs(got - shown).mean() < 3
    smaller = decode_image(out.getvalue(), PictureSize(short_side=24))
    assert (smaller.height, smaller.width) == tuple(side // 2 for side in shown.shape[:2])
    scaled = np.frombuffer(smaller.rgb, np.uint8).reshape(smaller.height, smaller.width, 3)
    corners = np.ix_([0, -1], [0, -1])
    assert np.abs(scaled[corners] - shown[corners]).max() < 20


def _see_through(mode: str, width: int, height: int) -> tuple[Image.Image, dict[str, object]]:
    """Black, opaque on the left, see-through on the right; what Pillow needs to save it so."""
    left = np.zeros((height, width, 4), np.uint8)
    left[:, : width // 2, 3] = 255
    image = Image.fromarray(left)
    if mode in ("RGBA", "LA"):
        return image.convert(mode), {}
    mask = np.asarray(image)[..., 3]
    if mode == "P":
        indexed = Image.fromarray((mask == 0).astype(np.uint8), "P")
        indexed.putpalette([0, 0, 0, 0, 0, 0])
        return indexed, {"transparency": b"\xff\0"}
    values = np.where(mask == 0, 1, 0).astype(np.uint8)  # the nearest to black that is another
    if mode == "L":
        return Image.fromarray(values), {"transparency": 1}
    return Image.fromarray(np.repeat(values[..., None], 3, axis=2)), {"transparency": (1, 1, 1)}


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "RGB"])
@pytest.mark.parametrize("size", [(64, 48), (1200, 900)])
def test_what_is_see_through_is_white(mode: str, size: tuple[int, int]) -> None:
    """Black on a see-through ground is black on white, in every kind of PNG that has such."""
    image, options = _see_through(mode, *size)
    out = io.BytesIO()
    image.save(out, "PNG", **options)
    picture = decode_image(out.getvalue())
    pixels = np.frombuffer(picture.rgb, np.uint8).reshape(picture.height, picture.width, 3)
    assert pixels[:, : picture.width // 2 - 2].max() <= 2
    assert pixels[:, picture.width // 2 + 2 :].min() >= 253


@pytest.mark.parametrize("depth", [8, 16])
def test_half_see_through_is_half_white(depth: int) -> None:
    """Each colour mixed with white by its opacity, whatever the bit depth, in a picture of more
    than one band too."""
    for opacity in (0, 1, 64, 128, 254, 255):
        pixel = bytes([200, 100, 0, opacity])
        row = b"\0" + (pixel if depth == 8 else bytes(v for v in pixel for _ in "hl")) * 600
        data = png_file(header(600, 500, depth, 6), zlib.compress(row * 500))
        picture = decode_image(data, PictureSize(0, 0))
        pixels = np.frombuffer(picture.rgb, np.uint8).reshape(-1, 3).astype(int)
        wanted = [255 + (value - 255) * opacity / 255 for value in (200, 100, 0)]
        assert np.abs(pixels - wanted).max() <= 1


def test_inks_are_no_transparency() -> None:
    """A JPEG of four inks has its colours; nothing of it is see-through."""
    out = io.BytesIO()
    Image.new("CMYK", (32, 32), (255, 0, 255, 0)).save(out, "JPEG", quality=95)
    pixels = np.frombuffer(decode_image(out.getvalue()).rgb, np.uint8).reshape(-1, 3).astype(int)
    assert np.abs(pixels.mean(axis=0) - (0, 255, 0)).max() < 30


def test_what_stands_beside_the_pixels_is_not_unfolded() -> None:
    """A compressed text of 100 MiB in every chunk that may hold one takes no memory and is no part
    of the picture."""
    text = zeros(100 << 20)
    hoards = [chunk(b"zTXt", b"k\0\0" + text), chunk(b"iCCP", b"k\0\0" + text)]
    hoards.append(chunk(b"iTXt", b"k\0\1\0\0\0" + text))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert decode_image(black_png(32, 32, *hoards)).width == 32
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 50 << 10


def test_a_picture_that_holds_less_than_it_claims_is_refused() -> None:
    """A PNG of the allowed size whose pixels end early."""
    assert "damaged" in _undecodable(_bare_png(500, 500))


@pytest.mark.parametrize(("nits", "least", "most"), [(0.01, 0, 8), (203, 215, 250)])
def test_a_high_dynamic_range_is_mapped(nits: float, least: int, most: int) -> None:
    """A PNG of 16 bit whose cICP chunk says PQ in BT.2020: the reference white is nearly white, and
    grey. A chunk of another length is none."""
    power = (nits / 10_000) ** (2610 / 16384)
    signal = ((3424 / 4096 + 2413 / 128 * power) / (1 + 2392 / 128 * power)) ** (2523 / 32)
    row = b"\0" + round(65535 * signal).to_bytes(2, "big") * 3 * 32
    head, pixels = header(32, 32, 16), zlib.compress(row * 32)
    pq = bytes((9, 16, 0, 1))
    got = decode_image(png_file(head, pixels, chunk(b"cICP", pq)))
    grey = np.frombuffer(got.rgb, np.uint8).astype(int)
    assert least <= grey.mean() <= most
    assert np.ptp(grey) <= 4
    plain = [png_file(head, pixels), png_file(head, pixels, chunk(b"cICP", pq + b"\0"))]
    for data in plain:
        assert np.abs(np.frombuffer(decode_image(data).rgb, np.uint8) - 255 * signal).max() <= 1


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize(
    ("size", "scaled"),
    [((7680, 4320), (455, 256)), ((1, 10_000), (1, 10_000)), ((10_000, 1), (10_000, 1))],
)
def test_pictures_of_any_size_are_seen(
    kind: str, size: tuple[int, int], scaled: tuple[int, int]
) -> None:
    """8K becomes small; a strip has few pixels as it is."""
    out = io.BytesIO()
    Image.new("RGB", size, (200, 30, 30)).save(out, kind)
    picture = decode_image(out.getvalue())
    assert (picture.width, picture.height) == scaled
    pixels = np.frombuffer(picture.rgb, np.uint8).reshape(-1, 3).astype(int)
    assert np.abs(pixels.mean(axis=0) - (200, 30, 30)).max() < 4
