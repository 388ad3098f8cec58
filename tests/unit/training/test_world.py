from __future__ import annotations

import random

import pytest

from training.architecture import SPECIAL_TOKENS, build_tokenizer
from training.captions import canonical_caption, caption, parse_caption, vocabulary
from training.pads import TEXT_LENGTH
from training.world import (
    SHAPES,
    Scene,
    all_combinations,
    held_out_combinations,
    held_out_pairs,
    random_scene,
    seen_combinations,
)


def test_captions_read_back() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        scene = random_scene(rng, all_combinations())
        text = caption(scene, rng)
        assert parse_caption(text) == scene, text
        assert parse_caption(canonical_caption(scene)) == scene


def test_the_issue_s_prompt_is_the_canonical_one() -> None:
    scene = Scene("circle", "red", "right", "black")
    assert canonical_caption(scene) == "a red circle moving right on a black background"


def test_a_text_without_a_shape_is_no_caption() -> None:
    with pytest.raises(ValueError, match="a cat"):
        parse_caption("a cat on the grass")


def test_every_caption_is_in_the_vocabulary_and_leaves_room_for_a_pad() -> None:
    rng = random.Random(1)
    tokenizer = build_tokenizer()
    for _ in range(500):
        ids = tokenizer(caption(random_scene(rng, all_combinations()), rng)).input_ids
        assert tokenizer.unk_token_id not in ids
        assert len(ids) < TEXT_LENGTH
    assert len(tokenizer) == len(SPECIAL_TOKENS) + len(vocabulary())


def test_held_out_combinations_are_apart() -> None:
    held_out, seen = held_out_combinations(), set(seen_combinations())
    assert held_out.isdisjoint(seen)
    assert held_out | seen == set(all_combinations())
    assert len(held_out) == round(0.15 * len(all_combinations()))
    assert len(held_out_pairs()) == 5
    # Every shape, colour and motion is still learned from something.
    for position in range(3):
        assert {c[position] for c in seen} == {c[position] for c in all_combinations()}
    assert {shape for shape, _ in held_out_pairs()} < set(SHAPES)
