"""The resampler that stands in where the browser's audio graph does not run at 24 kHz."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from playwright.sync_api import Page

TO_HZ = 24_000
EDGE = 500  # samples at both ends that the filter does not see all of

PUSH = """async ({ samples, fromHz, toHz, sizes }) => {
  const { Resampler } = await import("./resampler.js");
  const resampler = new Resampler(fromHz, toHz);
  const output = [];
  for (let at = 0, block = 0; at < samples.length; block += 1) {
    const size = sizes[block % sizes.length];
    output.push(...resampler.push(Float32Array.from(samples.slice(at, at + size))));
    at += size;
  }
  return output;
}"""


def tone(hz: float, rate_hz: int, samples: int) -> npt.NDArray[np.float64]:
    return np.sin(2 * np.pi * hz * np.arange(samples) / rate_hz)


def resample(
    workbench: Page, samples: npt.NDArray[np.float64], from_hz: int, sizes: tuple[int, ...]
) -> npt.NDArray[np.float64]:
    """`samples` in blocks of the given `sizes`, over and over, through the page's resampler."""
    argument = {"samples": samples.tolist(), "fromHz": from_hz, "toHz": TO_HZ, "sizes": sizes}
    return np.array(workbench.evaluate(PUSH, argument))


@pytest.mark.parametrize("from_hz", [8_000, 16_000, 44_100, 48_000])
def test_a_tone_stays_the_same_tone(workbench: Page, from_hz: int) -> None:
    """A tone that both rates can carry comes out in place and in phase, 80 dB clean."""
    got = resample(workbench, tone(1_000, from_hz, from_hz // 4), from_hz, (128,))
    wanted = tone(1_000, TO_HZ, got.size)
    assert abs(got.size - TO_HZ // 4) < EDGE
    assert np.abs(got - wanted)[EDGE:-EDGE].max() < 1e-4


def test_what_24_khz_cannot_carry_is_gone(workbench: Page) -> None:
    """A 14 kHz tone is filtered out, not folded down to 10 kHz."""
    got = resample(workbench, tone(14_000, 48_000, 12_000), 48_000, (128,))
    assert np.abs(got[EDGE:-EDGE]).max() < 1e-3


def test_block_sizes_do_not_matter(workbench: Page) -> None:
    """Ragged blocks give exactly the samples that even ones give."""
    noise = np.random.default_rng(5).normal(0, 0.2, 6_000)
    even = resample(workbench, noise, 44_100, (128,))
    ragged = resample(workbench, noise, 44_100, (1, 7, 513, 128, 2_000))
    shared = min(even.size, ragged.size)
    assert shared > 3_000
    np.testing.assert_allclose(ragged[:shared], even[:shared], atol=1e-9)
