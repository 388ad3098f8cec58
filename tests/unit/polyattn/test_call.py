"""Grids fit sequences, and a call without a site is judged by its lengths."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from polyattn.call import Grid, Site
from polyattn.vocabulary import Role
from tests.unit.polyattn.machines import CROSS, SELF, call

SIDE = st.integers(1, 64)


@settings(deadline=None)
@given(SIDE, SIDE, SIDE, st.integers(0, 512), st.booleans())
def test_a_grid_fits_its_own_length_only(
    frames: int, height: int, width: int, text: int, text_first: bool
) -> None:
    grid = Grid(frames, height, width, text, text_first)
    length = frames * height * width + text
    assert grid.fits(length)
    assert not grid.fits(length + 1)
    assert not grid.fits(length - 1)
    assert grid.tokens == length - text


def test_grids_and_sites_print_for_people() -> None:
    assert str(Grid(4, 16, 16)) == "4x16x16"
    assert str(Grid(4, 16, 16, 77)) == "4x16x16 + 77 text tokens"
    assert str(SELF) == "transformer.blocks.0.attn1"
    assert str(Site("vae", "", 0, Role.SELF)) == "vae"


def test_the_role_is_the_sites() -> None:
    assert call(site=CROSS).role is Role.CROSS
    # Cross attention whose lengths happen to be equal is still cross attention.
    assert call(site=CROSS, query_len=64, kv_len=64).role is Role.CROSS


def test_without_a_site_the_lengths_tell() -> None:
    assert call(site=None, query_len=64, kv_len=64).role is Role.SELF
    assert call(site=None, query_len=64, kv_len=77).role is Role.CROSS
