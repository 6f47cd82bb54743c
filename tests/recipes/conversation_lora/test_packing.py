"""Dialogues packed into one row do not see each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.recipes.conversation_lora.packing import mask, packs, positions
from headstart.recipes.conversation_lora.tokens import Example, Prompt

sizes = st.lists(st.tuples(st.sampled_from(Prompt), st.integers(1, 50)), max_size=30)


@given(sizes, st.integers(1, 100), st.integers(0, 5))
def test_every_example_is_in_one_pack(
    given_sizes: list[tuple[Prompt, int]], most: int, seed: int
) -> None:
    """Once each, beside others of its own system prompt, and within the limit unless alone."""
    examples = [Example(prompt, (0,) * n, (1.0,) * n) for prompt, n in given_sizes]
    made = packs(examples, most, seed)
    assert sorted(i for pack in made for i in pack.members) == list(range(len(examples)))
    for pack in made:
        assert {examples[i].prompt for i in pack.members} == {pack.prompt}
        assert len(pack.members) == 1 or sum(len(examples[i].ids) for i in pack.members) <= most


def test_the_order_is_the_seeds() -> None:
    """The same seed gives the same steps, which a fit that was cut off goes on with."""
    examples = [Example(Prompt(i % 3), (0,) * 5, (1.0,) * 5) for i in range(40)]
    assert packs(examples, 20, 1) == packs(examples, 20, 1) != packs(examples, 20, 2)


def test_positions_go_on_where_the_prompt_ended() -> None:
    """Each example stands where it stands alone."""
    assert positions(3, [2, 4]).tolist() == [[0, 1, 2, 3, 4, 3, 4, 5, 6]]


def test_a_row_sees_the_prompt_and_its_own_example() -> None:
    """Back from itself, and nothing of the others."""
    seen = mask(1, [2, 2])[0, 0].int().tolist()
    assert seen == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 0, 1, 0],
        [1, 0, 0, 1, 1],
    ]
