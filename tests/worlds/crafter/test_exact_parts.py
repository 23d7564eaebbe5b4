"""The parts against what they copy: rules against data.yaml, random words against numpy, noise against opensimplex."""

import crafter
import numpy as np
import opensimplex
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from curricle.worlds.crafter.game import rng
from curricle.worlds.crafter.game import rules as r
from curricle.worlds.crafter.game.seeding import episode_seed
from curricle.worlds.crafter.game.state import STATE
from curricle.worlds.crafter.observe import night
from curricle.worlds.crafter.observe.textures import pictures
from curricle.worlds.crafter.worldgen import noise
from curricle.worlds.crafter.worldgen import noise_tables as f


def test_rules_are_the_reference_s() -> None:
    data = crafter.constants
    assert list(r.MATERIALS[1:]) == data.materials
    assert list(r.ACTIONS) == data.actions
    assert list(r.ACHIEVEMENTS) == data.achievements
    assert {name: {"max": 9, "initial": 9 if i < 4 else 0} for i, name in enumerate(r.ITEMS)} == data.items
    assert [m for m, yes in zip(r.MATERIALS, r.WALKABLE, strict=True) if yes] == ["grass", "path", "sand"]
    assert sorted(data.walkable) == ["grass", "path", "sand"]


def test_collecting_is_the_reference_s() -> None:
    for index, name in enumerate(r.MATERIALS):
        tool, item, leaves, achievement = r.COLLECT[index]
        info = crafter.constants.collect.get(name)
        if info is None:
            assert item == -1
            continue
        assert info["require"] == ({r.ITEMS[tool]: 1} if tool >= 0 else {})
        assert info["receive"] == {r.ITEMS[item]: 1}
        assert info["leaves"] == r.MATERIALS[leaves]
        assert info.get("probability", 1) == r.COLLECT_CHANCE[index]
        assert r.ACHIEVEMENTS[achievement] == f"collect_{r.ITEMS[item]}"


def test_placing_and_making_are_the_reference_s() -> None:
    for row, (name, info) in enumerate(crafter.constants.place.items()):
        item, count, achievement = r.PLACE[row]
        assert r.ACTIONS[r.PLACE_STONE + row] == r.ACHIEVEMENTS[achievement] == f"place_{name}"
        assert info["uses"] == {r.ITEMS[item]: count}
        assert set(info["where"]) == {m for m, yes in zip(r.MATERIALS, r.PLACE_WHERE[row], strict=True) if yes}
    for row, (name, info) in enumerate(crafter.constants.make.items()):
        *uses, furnace, item, achievement = r.MAKE[row].tolist()
        assert r.ACTIONS[r.MAKE_FIRST + row] == r.ACHIEVEMENTS[achievement] == f"make_{name}"
        assert r.ITEMS[item] == name
        assert info["uses"] == {n: u for n, u in zip(("wood", "stone", "coal", "iron"), uses, strict=True) if u}
        assert info["nearby"] == (["table", "furnace"] if furnace else ["table"])


@given(seed=st.integers(-(2**62), 2**62), episode=st.integers(1, 2**40))
def test_episode_seed_is_python_s_hash(seed: int, episode: int) -> None:
    assert episode_seed(seed, episode) == hash((seed, episode)) % (2**31 - 1)


@pytest.mark.parametrize("seed", [0, 1, 77, 2**31 - 2])
def test_random_words_are_numpy_s(seed: int) -> None:
    s, theirs, pick = np.zeros(1, STATE)[0], np.random.RandomState(seed), np.random.default_rng(seed)
    s["exact"] = True
    rng.seed_stream(s, seed)
    tempered = np.zeros(624, np.uint32)
    for i in range(4000):
        if i % 4 == 0:
            assert rng.uniform(s) == theirs.uniform()
        elif i % 4 == 1:
            n = int(pick.integers(1, 300))
            assert rng.below(s, n) == theirs.randint(0, n)
        elif i % 4 == 2:
            bar = float(pick.random())
            rng.temper_all(s, tempered)
            assert rng.exceeds(s, tempered, bar) == (theirs.uniform() > bar)
        elif i % 80 == 3:
            rng.skip(s, 6174)
            theirs.uniform(32, 127, (63, 49))
        elif i % 80 == 7:
            words = np.zeros(1000, np.uint32)
            rng.draw_words(s, words, len(words))
            drawn = [rng.uniform_of(*pair) for pair in words.reshape(-1, 2)]
            assert np.array_equal(drawn, theirs.uniform(size=500))
    _, state, at, *_ = theirs.get_state()
    assert at == s["mt_at"] and np.array_equal(state, s["mt"])


def test_exceeds_decides_ties_exactly() -> None:
    s, theirs = np.zeros(1, STATE)[0], np.random.RandomState(5)
    s["exact"] = True
    rng.seed_stream(s, 5)
    tempered = np.zeros(624, np.uint32)
    for i in range(600):  # words are tempered anew by the draws themselves, whenever they run out
        value = theirs.uniform()
        bar = value if i % 3 == 0 else np.nextafter(value, i % 3 - 1.5)
        assert rng.exceeds(s, tempered, bar) == (value > bar)


def test_cheap_draws_are_uniform() -> None:
    s = np.zeros(1, STATE)[0]
    rng.seed_stream(s, 9)
    drawn = np.array([rng.uniform(s) for _ in range(20000)])
    assert abs(drawn.mean() - 0.5) < 0.01 and abs(drawn.var() - 1 / 12) < 0.003
    counts = np.bincount([rng.below(s, 7) for _ in range(14000)], minlength=7)
    assert counts.min() > 1800 and counts.max() < 2200


def _permuted(seed: int) -> np.ndarray:
    perm = np.zeros(256, np.uint8)
    noise.permute(seed, perm, np.zeros(256, np.uint8))
    return perm


def test_noise_is_opensimplex_s_in_every_region() -> None:
    regions: set[int] = set()
    for seed in (0, 3, 2**31 - 2):
        theirs, perm, pick = opensimplex.OpenSimplex(seed), _permuted(seed), np.random.default_rng(seed)
        assert np.array_equal(perm, theirs._perm)
        for i in range(6000):
            if i % 2:
                x, y, z = pick.uniform(-30, 30, 3)
            else:
                x, y, z = f.place(int(pick.integers(f.LAYERS)), int(pick.integers(64)), int(pick.integers(64)))
            assert noise.noise3(perm, x, y, z) == theirs.noise3(x, y, z)
            stretch = (x + y + z) * noise.STRETCH
            regions.add(noise.region_of(*(c + stretch - np.floor(c + stretch) for c in (x, y, z))))
    assert len(regions) >= 24  # three of the 27 have no volume: opposite points are never both closest


def test_estimated_noise_is_within_its_bound() -> None:
    tables, work = f.fields()[0], np.zeros(1, f.SCRATCH)[0]
    for seed in (1, 2):
        noise.permute(seed, work["perm"], work["source"])
        f.set_gradients(tables, work)
        for layer in range(f.LAYERS):
            for x in range(0, 64, 7):
                f.sum_row(tables, work, layer, x)
                row = work["sums"].reshape(f.LAYERS, 64)[layer]
                exact = [f.exact(work["perm"], layer, x, y) for y in range(64)]
                assert np.abs(row - exact).max() < f.MAX_ERROR
                assert np.abs(exact).max() <= 1


def test_pil_dulls_colours_as_the_kernel_does() -> None:
    grey, colour = np.meshgrid(np.arange(256), np.arange(256))
    ours = (grey.astype(np.float32) + np.float32(0.4) * (colour - grey).astype(np.float32)).astype(np.uint8)
    first, second = (Image.fromarray(a.astype(np.uint8)) for a in (grey, colour))
    assert np.array_equal(np.asarray(Image.blend(first, second, 0.4)), ours)
    assert np.array_equal((6 * grey + 4 * colour) // 10, ours)
    pixels = np.random.default_rng(0).integers(256, size=(300, 300, 3)).astype(np.uint8)
    luma = (pixels @ np.array([19595, 38470, 7471]) + 32768) >> 16
    grey_only = np.asarray(ImageEnhance.Color(Image.fromarray(pixels)).enhance(0.0))
    assert np.array_equal(grey_only, np.stack([luma] * 3, 2))


@pytest.mark.parametrize("daylight", [0.0, 1e-5, 0.0217, 0.2, 0.25, 0.33333, 0.499])
@pytest.mark.parametrize("unit", [(2, 2), (3, 4), (7, 7)])
def test_dark_pixels_are_exact_whatever_the_light(daylight: float, unit: tuple[int, int]) -> None:
    pick, (width, height) = np.random.default_rng(3), (9 * unit[0], 7 * unit[1])
    size = width * height
    colours = pick.integers(256, size=(width, height, 3)).astype(np.uint8)
    colours[::2] = pick.integers(32, 127, size=(len(colours[::2]), height, 1))  # greys that grain can hit
    shown = pictures(*unit)
    view, pixels, words = (np.zeros(n * (size + 16), np.uint32) for n in (1, 1, 2))
    view[:size] = (colours.astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], np.uint32)).ravel()
    s, theirs = np.zeros(1, STATE)[0], np.random.RandomState(11)
    s["exact"], s["daylight"] = True, daylight
    rng.seed_stream(s, 11)
    for _ in range(30):
        night._shade(s, view, shown.night, shown.vignette, size, pixels, words)
        noise_drawn = theirs.uniform(32, 127, (width, height))[..., None]
        mask = (2 * (0.5 - daylight) * shown.vignette).reshape(width, height, 1)
        dark = ((1 - mask) * colours + mask * noise_drawn).astype(np.uint8)
        dull = np.asarray(ImageEnhance.Color(Image.fromarray(dark)).enhance(0.4))
        tinted = (1 - 0.5) * dull + 0.5 * np.array((0, 16, 64))
        expected = (daylight * colours + (1 - daylight) * tinted).astype(np.uint8)
        ours = pixels[:size].view(np.uint8).reshape(width, height, 4)[..., :3]
        assert np.array_equal(ours, expected)
    canvas = np.zeros(3 * size + 8, np.uint8)
    night._to_rows(canvas, pixels, width, height)
    assert np.array_equal(canvas[: 3 * size].reshape(height, width, 3), ours.transpose(1, 0, 2))
