"""explorer.html: made from the committed files alone, equal to NumPy, safe to touch.

Those marked `browser` open the page in a headless Chromium: $HIGHWAY_CHROMIUM, or the
first of BROWSERS on the path; they are skipped where there is none, or no Playwright.
"""

import base64
import itertools
import math
import os
import re
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import highway_networks as hn
import make_explorer as maker
from experiments.nets import probes as probing
from highway_suite.schema import RecordError
from tests import committed
from tests.contracts import contrast, frozen

SIZE = 3_000_000        # bytes, at most
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
browser_test = pytest.mark.browser


# --------------------------------------------------------------------------------------
# The maker


@pytest.fixture(autouse=True)
def committed_files(monkeypatch):
    """What is read is what was committed."""
    monkeypatch.setattr(hn, "HERE", committed.tree())


def page_path():
    return committed.tree() / "explorer.html"


def test_committed_page_is_what_the_committed_files_make(tmp_path):
    maker.main(["--out", str(tmp_path / "page.html")])
    assert (tmp_path / "page.html").read_bytes() == page_path().read_bytes()
    assert page_path().stat().st_size <= SIZE


def test_a_folder_that_is_not_there_exits_2(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        maker.main(["--out", str(tmp_path / "nodir" / "page.html")])
    assert stop.value.code == 2 and "nodir is not a folder" in capsys.readouterr().err


def test_every_number_of_the_text_comes_from_a_record():
    """Whatever the records say stands in the page; nothing is left to be filled in."""
    records = {name: maker.load_record(name) for name in maker.RECORDS}
    text = maker.source_path("page.html").read_text(encoding="utf-8")
    named = set(re.findall(r"\{\{([^{}]+)\}\}", text))
    parts = {"style.css", "data", "scripts"}
    assert named - parts == set(maker.facts(records))
    records["lesion"]["nets"]["plain"]["one_closed"]["error"] = [0.123] * 49
    assert maker.facts(records)["plain_least"] == "12.3"


def test_a_number_that_no_record_has_is_one_line(tmp_path, monkeypatch):
    facts = maker.facts
    for broken, message in ((lambda records: {}, r"\{\{\w+\}\} in explorer/"),
                            (lambda records: facts({}), "lacks what the page shows")):
        monkeypatch.setattr(maker, "facts", broken)
        with pytest.raises(SystemExit, match=message):
            maker.main(["--out", str(tmp_path / "page.html")])


def test_a_record_and_images_without_what_the_page_shows_are_one_line(tmp_path,
                                                                      monkeypatch):
    words = ["--out", str(tmp_path / "page.html")]
    load, path = maker.load_record, maker.source_path
    monkeypatch.setattr(maker, "load_record", lambda name: {
        key: value for key, value in load(name).items() if key != "nets"})
    with pytest.raises(SystemExit, match=r"lacks what the page shows \(KeyError"):
        maker.main(words)
    monkeypatch.setattr(maker, "load_record", load)
    (tmp_path / "images.npz").write_bytes(b"PK, but no archive")
    monkeypatch.setattr(maker, "source_path", lambda name: (
        tmp_path if name == "images.npz" else path(name).parent) / name)
    with pytest.raises(SystemExit, match="lacks what the page shows"):
        maker.main(words)


def test_packed_weights_are_within_24_bits(rng):
    weights = rng.normal(size=(7, 50)) * 10.0 ** rng.uniform(-3, 3, (7, 1))
    weights[3] = 0
    biases = rng.normal(size=7)
    rows = np.frombuffer(maker.pack_rows(weights, biases), "u1").reshape(7, 158)
    scale, bias = rows[:, :8].copy().view("<f4").T
    low, middle, high = rows[:, 8:].reshape(7, 50, 3).astype(int).transpose(2, 0, 1)
    whole = low + 256 * middle + 65536 * (high - 256 * (high > 127))
    largest = np.abs(weights).max(axis=1, keepdims=True)
    assert np.all(np.abs(whole * scale[:, None] - weights) <= largest * 2.0 ** -23)
    assert np.array_equal(bias, biases.astype("f4"))


def test_images_are_chosen_by_the_stated_rule(mnist):
    images, labels = maker.load_images()
    for digit in range(10):
        first = mnist.x_test[mnist.y_test == digit][:maker.EACH]
        assert np.array_equal(images[labels == digit], first)
    assert len(images) == 10 * maker.EACH


def test_weights_of_another_record_are_refused():
    record = maker.load_record("inside")
    record["nets"][1]["sha256"] = "0" * 64
    with pytest.raises(RecordError, match="not the weights"):
        maker.load_nets(record)


# --------------------------------------------------------------------------------------
# The page in a browser


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("HIGHWAY_CHROMIUM") or next(
        filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium-headless-shell")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path,
                                             args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser):
    """open_page(address, **settings) -> the page, in a context of its own. Afterwards:
    it has asked for nothing but itself and has had nothing to complain of."""
    contexts, requests, complaints = [], [], []

    def open_at(address="", **settings):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}}
                                      | settings)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(page_path().as_uri() + address)
        settled(page)
        return page

    yield open_at
    for context in contexts:
        context.close()
    other = [url for url in requests if url.partition("#")[0] != page_path().as_uri()
             and not url.startswith(("data:", "blob:"))]
    assert other == [] and complaints == []


def until(page, condition):
    """Wait for a condition of the page, at most ten seconds. (Playwright's own way of
    waiting would evaluate text within the page, which its policy forbids.)"""
    assert page.evaluate(f"""async () => {{
        const stop = performance.now() + 10000;
        while (!({condition}) && performance.now() < stop)
            await new Promise(resolve => setTimeout(resolve, 20));
        return Boolean({condition});
    }}"""), condition


def settled(page):
    """Wait until the image and the forty are through."""
    until(page, "explorer.shown === explorer.state && !explorer.counting"
                " && !explorer.waiting")


def address_of(page):
    return page.evaluate("addressOf(explorer.state)")


def readings(page):
    """What stands on the page: {net: (digit, how many of the forty are right)}."""
    return {kind: (int(page.locator(f".answer.{kind} .verdict").inner_text()),
                   int(page.locator(f".answer.{kind} .right b").inner_text()))
            for kind in maker.BLOCKS}


def touched(net, page, means, *, shuffle=(0, 1), held=False, shift=0, closed=()):
    """A net in float64 as a treatment of the page leaves it, by the suite's own means:
    layers in the page's order, gates held at their means, b_T moved."""
    twin = hn.DeepNet(**net.settings, dtype="float64")
    twin.params[...] = net.params
    weights = twin.views(twin.params)
    if "b_T" in weights:
        weights["b_T"] += shift
        if held:
            twin = frozen(twin, dict(enumerate(means)))
    order = page.evaluate("([distance, seed]) => orderOf({distance, seed}, DEPTH)",
                          list(shuffle))
    return probing.reordered(twin, order), closed


TREATMENTS = {
    "": {},
    "#c=1": {"closed": [0]},
    "#c=5,20-29": {"closed": [4, *range(19, 29)]},
    "#k=12": {"closed": list(range(12, 49))},
    "#s=4.7": {"shuffle": (4, 7)},
    "#s=48.7&c=3": {"shuffle": (48, 7), "closed": [2]},
    "#f=1&s=2.1": {"held": True, "shuffle": (2, 1)},
    "#b=-0.5": {"shift": -0.5},
}


@browser_test
def test_logits_are_those_of_numpy(open_page, rng):
    """100 images, under every treatment: the forty, forty moved about, 20 of noise."""
    forty, _ = maker.load_images()
    moved = np.array([np.roll(image.reshape(28, 28), rng.integers(-4, 5, 2), (0, 1))
                      for image in forty], dtype="u1").reshape(-1, 784)
    noise = rng.integers(0, 256, (20, 784)).astype("u1")
    images = np.concatenate([forty, moved, noise])
    x = (images.astype("float64") * 2 / 255 - 1).T
    means = np.array(maker.load_record("gates")["figure_2"]["T_mean"])
    nets = maker.load_nets(maker.load_record("inside"))
    page = open_page()
    page.evaluate("packed => { window.images = bytesOf(packed); }",
                  base64.b64encode(images.tobytes()).decode())
    for address, change in TREATMENTS.items():
        found = page.evaluate("address => logitsOf(images, address)", address)
        for kind, net in nets.items():
            twin, closed = touched(net, page, means, **change)
            logits, _ = twin.forward(x, closed=closed)
            off = np.abs(np.array(found[kind]).reshape(-1, 10) - logits.T).max()
            assert off < 1e-4, (address, kind)


@browser_test
def test_a_click_closes_a_layer_and_everything_follows(open_page):
    """What is shown after a click, a drag and undo is what a fresh page shows at the
    same address: nothing is left over in what the page remembers."""
    page = open_page()
    whole = readings(page)
    box = page.locator("#ruler").bounding_box()
    x = [box["x"] + box["width"] * (layer + 0.5) / 50 for layer in range(50)]
    y = box["y"] + 8
    page.mouse.click(x[25], y)
    settled(page)
    assert address_of(page) == "#i=28&c=25"
    one = readings(page)
    assert one == readings(open_page("#i=28&c=25"))
    assert one["highway"][1] >= 38 and one["plain"][1] <= 10
    page.mouse.move(x[10], y)
    page.mouse.down()
    page.mouse.move(x[14], y, steps=4)
    page.mouse.up()
    settled(page)
    assert address_of(page) == "#i=28&c=10-14,25"
    assert readings(page) == readings(open_page("#c=10-14,25"))
    page.mouse.click(x[25], y)
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    settled(page)
    assert address_of(page) == "#i=28&c=25" and readings(page) == one
    page.keyboard.press("Control+Shift+z")
    page.locator("#undo").click()
    page.locator("#reset").click()
    settled(page)
    assert address_of(page) == "#i=28" and readings(page) == whole


@browser_test
def test_a_cell_tells_its_number(open_page):
    page = open_page()
    box = page.locator("#gates").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 3.5 / 50,
                    box["y"] + box["height"] * 7.5 / 50)
    until(page, "document.getElementById('readout').textContent.includes('unit 8')")
    T = page.evaluate("explorer.found.highway.gates[2][7]")
    mean = maker.load_record("gates")["figure_2"]["T_mean"][2][7]
    text = page.locator("#readout").inner_text()
    assert text.startswith(f"Layer 3, unit 8: T is {T:.2f} for this image, {mean:.2f} ")


@browser_test
def test_controls_are_the_state_and_the_address(open_page):
    page = open_page()
    for name, value in (("keep", "30"), ("shuffle", "3"), ("shift", "-0.5")):
        page.locator(f"#{name}").fill(value)
    page.locator("#again").click()
    page.locator("#frozen").check()
    page.locator(".thumb").nth(3).click()
    settled(page)
    address = address_of(page)
    assert address == "#i=12&k=30&s=3.2&f=1&b=-0.5"
    until(page, f"location.hash === '{address}'")
    other = open_page(address)
    assert readings(page) == readings(other)
    assert address_of(other) == address
    assert other.locator("#keep").input_value() == "30"
    assert other.locator("#frozen").is_checked()


@browser_test
def test_layers_by_keyboard(open_page):
    page = open_page()
    page.locator("#ruler button").first.focus()
    for key in ("ArrowRight", "ArrowRight", "Space", "Shift+ArrowRight",
                "Shift+ArrowRight", "End", "Enter"):
        page.keyboard.press(key)
    settled(page)
    assert address_of(page) == "#i=28&c=3-5,49"
    assert page.locator("#ruler button[aria-pressed=true]").count() == 4
    unnamed = page.evaluate("""
        [...document.querySelectorAll("button, input, canvas[role]")].filter(e =>
            !(e.ariaLabel || e.textContent.trim() || e.labels?.length || e.hidden))
        .map(e => e.outerHTML.slice(0, 80))""")
    assert unnamed == []


@browser_test
def test_layers_that_are_not_kept_stay_as_they_are(open_page):
    page = open_page("#k=20")
    page.locator("#ruler button").nth(29).focus()
    page.keyboard.press("Space")
    assert page.locator("#notice").inner_text()
    page.locator("#ruler button").nth(19).focus()
    page.keyboard.press("Shift+ArrowRight")
    settled(page)
    assert address_of(page) == "#i=28&k=20"
    box = page.locator("#ruler").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 18.5 / 50, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 30.5 / 50, box["y"] + 8, steps=4)
    page.mouse.up()
    settled(page)
    assert address_of(page) == "#i=28&c=18-20&k=20"


@browser_test
def test_images_and_steps_by_keyboard(open_page):
    """The forty images are one stop, and a button at its end keeps the focus."""
    page = open_page("#i=0")
    assert page.locator(".thumb[tabindex='0']").count() == 1
    page.locator(".thumb[tabindex='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    settled(page)
    assert address_of(page) == "#i=5"
    assert page.locator(".thumb[tabindex='0']").get_attribute("aria-pressed") == "true"
    for button in ("undo", "redo", "next", "back"):
        page.locator(f"#{button}").focus()
        for _ in range(7):
            page.keyboard.press("Enter")
        settled(page)
        assert page.locator(f"#{button}").get_attribute("aria-disabled") == "true"
        assert page.evaluate("document.activeElement.id") == button


def arc(x, y, rx, ry, start, stop, steps=9):
    """Points of an ellipse, degrees clockwise from the right."""
    angles = np.radians(np.linspace(start, stop, steps))
    return [(x + rx * math.cos(a), y + ry * math.sin(a)) for a in angles]


DIGITS = {
    0: [arc(.5, .5, .22, .33, -90, 270)],
    1: [[(.55, .15), (.47, .85)]],
    2: [arc(.5, .33, .2, .17, -170, 40) + [(.3, .8), (.72, .8)]],
    3: [arc(.47, .32, .2, .16, -150, 80) + arc(.47, .65, .23, .18, -80, 150)],
    4: [[(.35, .15), (.3, .5), (.7, .5)], [(.65, .2), (.6, .88)]],
    5: [[(.7, .17), (.4, .17), (.37, .45)] + arc(.48, .62, .22, .2, -110, 140)],
    6: [[(.6, .12), (.42, .4)] + arc(.5, .66, .16, .18, 180, -180)],
    7: [[(.28, .2), (.72, .2), (.45, .85)]],
    8: [arc(.5, .33, .15, .17, 90, -270) + arc(.5, .68, .18, .18, -90, 270)],
    9: [arc(.5, .33, .17, .17, 0, -360) + [(.66, .5), (.6, .85)]],
}


def draw(page, strokes, size=1.0, at=(0.0, 0.0)):
    """Move the mouse along strokes on the pad."""
    box = page.locator("#pad").bounding_box()
    for stroke in strokes:
        points = [(box["x"] + box["width"] * (at[0] + size * x),
                   box["y"] + box["height"] * (at[1] + size * y)) for x, y in stroke]
        page.mouse.move(*points[0])
        page.mouse.down()
        for point in points[1:]:
            page.mouse.move(*point)
        page.mouse.up()


@browser_test
@pytest.mark.parametrize("size, at", [(1.0, (0.0, 0.0)), (0.4, (0.05, 0.5))])
def test_drawn_digits_are_read(open_page, size, at):
    """Ten digits, large and small: at least eight are read rightly. The address of a
    drawing shows the same image again."""
    page, right = open_page(), 0
    for digit, strokes in DIGITS.items():
        page.locator("#blank").click()
        draw(page, strokes, size, at)
        settled(page)
        right += readings(page)["highway"][0] == digit
    assert right >= 8
    other = open_page(address_of(page))
    pixels = "Array.from(explorer.state.image.pixels)"
    assert page.evaluate(pixels) == other.evaluate(pixels)
    assert readings(other) == readings(page)


@browser_test
def test_a_stroke_that_leaves_the_pad_stays_at_its_edge(open_page):
    page = open_page("#i=blank")
    draw(page, [[(.5, .1), (.5, .5), (2.5, .5), (2.5, 1.5), (-.05, .6), (.5, -.1)]])
    settled(page)
    points = np.array(page.evaluate("explorer.state.image.strokes[0]"))
    assert points.min() == 0 and points.max() == 1


def seen(page, selector):
    """Whether all that a selector names is in view, from edge to edge, with nothing
    over it."""
    return page.evaluate("""selector => {
        const isSeen = (part, box, x, y) => part.contains(document.elementFromPoint(
            box.x + x * box.width, box.y + y * box.height));
        return [...document.querySelectorAll(selector)].every(part =>
            [.1, .5, .9].every(x => [.1, .5, .9].every(y =>
                isSeen(part, part.getBoundingClientRect(), x, y))));
    }""", selector)


@browser_test
@pytest.mark.parametrize("width, height", [(1280, 800), (1024, 700), (768, 1024),
                                           (390, 844), (360, 740)])
def test_answers_are_seen_beside_what_changes_them(open_page, width, height):
    """While a digit is drawn, and while layers are closed."""
    page = open_page(viewport={"width": width, "height": height})
    page.locator("#pad").scroll_into_view_if_needed()
    box = page.locator("#pad").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.8 * box["height"])
    settled(page)
    assert seen(page, ".verdict") and seen(page, "#pad")
    page.mouse.up()
    page.evaluate("document.getElementById('ruler').scrollIntoView({block: 'center'})")
    box = page.locator("#ruler").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 8)
    settled(page)
    assert address_of(page).endswith("&c=25")
    assert seen(page, ".verdict") and seen(page, "#ruler")


@browser_test
def test_undo_takes_back_a_stroke(open_page):
    page = open_page()
    draw(page, DIGITS[4][:1])
    settled(page)
    before = page.evaluate("Array.from(explorer.state.image.pixels)")
    draw(page, DIGITS[4][1:])
    page.keyboard.press("Control+z")
    settled(page)
    assert page.evaluate("Array.from(explorer.state.image.pixels)") == before
    page.keyboard.press("Control+z")
    assert address_of(page) == "#i=28"


@browser_test
def test_a_finger_draws_and_does_not_scroll(open_page):
    """A phone: the page fits, a stroke on the pad is a stroke, the layers scroll by."""
    page = open_page(viewport={"width": 390, "height": 844}, has_touch=True,
                     is_mobile=True, device_scale_factor=2)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    client = page.context.new_cdp_session(page)

    def swipe(selector, start, stop):
        page.locator(selector).scroll_into_view_if_needed()
        box = page.locator(selector).bounding_box()
        for i in range(9):
            x, y = np.array(start) + np.subtract(stop, start) * min(i, 7) / 7
            point = {"x": box["x"] + x * box["width"],
                     "y": box["y"] + y * box["height"]}
            kind = "touchStart" if i == 0 else "touchEnd" if i == 8 else "touchMove"
            client.send("Input.dispatchTouchEvent", {
                "type": kind, "touchPoints": [] if i == 8 else [point]})
        settled(page)

    before = page.evaluate("scrollY")
    swipe("#pad", (0.5, 0.9), (0.5, 0.1))
    assert page.evaluate("scrollY") == before
    assert page.evaluate("explorer.state.image.strokes.length") == 1
    assert readings(page)["highway"][0] == 1
    page.locator("#pad-undo").tap()
    settled(page)
    assert address_of(page) == "#i=28"
    swipe("#gates", (0.25, 0.5), (0.45, 0.5))
    assert address_of(page).endswith("&c=12-22")
    address, before = address_of(page), page.evaluate("scrollY")
    swipe("#gates", (0.5, 0.9), (0.5, -1.5))
    assert page.evaluate("scrollY") > before and address_of(page) == address


@browser_test
def test_each_step_of_the_walk_shows_what_it_speaks_of(open_page):
    page = open_page()
    states = page.evaluate("explorer.walk.steps.map(step => addressOf(step.state))")
    assert len(states) == 6
    height = page.locator(".walk").bounding_box()["height"]
    for i, state in enumerate(states):
        if i:
            page.locator("#next").click()
        settled(page)
        assert address_of(page) == state
        assert page.locator(".walk-texts .shown").count() == 1
        assert page.locator(".walk").bounding_box()["height"] == height
        for link in page.locator(".walk-texts .shown a[href^='#']").all():
            link.click()
            settled(page)
            assert address_of(page) != state
            page.locator("#undo").click()
            settled(page)
    told = "[...document.querySelectorAll('.live span')].every(e => e.textContent)"
    until(page, told)
    for item, state in zip(page.locator(".live span").all(), states, strict=True):
        counts = [found[1] for found in readings(open_page(state)).values()]
        assert [int(n) for n in re.findall(r"\d+", item.inner_text())][1:] == counts


@browser_test
def test_the_walk_keeps_a_drawn_digit(open_page):
    page = open_page(reduced_motion="reduce")       # nothing glides away from a click
    draw(page, DIGITS[4])
    settled(page)
    drawn = page.evaluate("explorer.state.image.strokes")
    for button, treated in (("#dots button:nth-child(3)", "&c=20-29"),
                            ("#next", "&c=25"), ("li:last-child .live button", "&b=2")):
        page.locator(button).click()
        settled(page)
        assert address_of(page).endswith(treated)
        assert page.evaluate("explorer.state.image.strokes") == drawn
    page.locator("#blank").click()
    page.locator("#back").click()
    settled(page)
    assert address_of(page).startswith("#i=28&")


@browser_test
def test_the_walk_speaks_of_what_is_shown(open_page):
    """Its text is that of the step whose state is shown, or it is pale."""
    def step():
        return page.locator("#dots [aria-current]").inner_text(), page.evaluate(
            "getComputedStyle(document.querySelector('.walk-texts .shown')).color")

    page = open_page()
    _, full = step()
    page.evaluate("location.hash = '#i=3&c=25'")
    until(page, "addressOf(explorer.state) === '#i=3&c=25'")
    assert step() == ("4", full)
    page.locator("#reset").click()
    number, colour = step()
    assert number == "4" and colour != full
    page.keyboard.press("Control+z")
    assert step() == ("4", full)


@browser_test
def test_what_cannot_start_says_so(browser):
    context = browser.new_context()
    context.add_init_script("delete window.ResizeObserver")
    page = context.new_page()
    page.goto(page_path().as_uri())
    assert page.locator("#notice").is_visible() and page.locator("#steps").is_visible()
    assert page.locator("#notice").inner_text()
    context.close()


def png(width, height, rows=None, colour=0):
    """The bytes of a grey PNG; rows None: its header alone is honest. Of colour 4 every
    other number of a row says how little is transparent."""
    def chunk(name, body):
        return (struct.pack(">I", len(body)) + name + body
                + struct.pack(">I", zlib.crc32(name + body)))
    body = b"" if rows is None else zlib.compress(
        b"".join(b"\0" + bytes(row) for row in rows.astype("u1")))
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
            + chunk(b"IDAT", body) + chunk(b"IEND", b""))


@browser_test
@pytest.mark.parametrize("width", [390, 1024, 1280])
def test_nothing_jumps(open_page, width):
    """No part of the page moves another, from its first sight on."""
    page = open_page(viewport={"width": width, "height": 800})
    until(page, "explorer.walk.steps.every(step => step.result.textContent)")
    for _ in range(5):
        page.locator("#next").click()
        settled(page)
    for i in (1, 20, 49):
        page.evaluate("layer => explorer.select(layer)", i)
        page.locator("#toggle").click()
        settled(page)
    moved = page.evaluate("""() => new Promise(resolve => {
        const told = shifts => resolve(shifts.map(shift =>
            [shift.value, ...shift.sources.map(source => source.node?.id)]));
        const observer = new PerformanceObserver(list => told(list.getEntries()));
        observer.observe({type: "layout-shift", buffered: true});
        requestAnimationFrame(() => requestAnimationFrame(() =>
            setTimeout(() => told(observer.takeRecords()), 300)));
    })""")
    assert moved == []


@browser_test
def test_own_pictures(open_page):
    """28x28 is taken as it is, white ink on nothing too; a large one, dark on light, is
    fitted and centred."""
    images, _ = maker.load_images()
    image = images[28].reshape(28, 28)
    page = open_page("#i=0")

    def give(content):
        page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png",
                                       "buffer": content})
        until(page, "explorer.state.image.kind === 'drawn'")
        settled(page)
        pixels = page.evaluate("Array.from(explorer.state.image.pixels)")
        return np.array(pixels).reshape(28, 28), readings(page)["highway"][0]

    pixels, digit = give(png(28, 28, image))
    assert np.array_equal(pixels, image) and digit == 7
    page.locator(".thumb").first.click()
    white = np.stack([np.full_like(image, 255), image], axis=-1).reshape(28, 56)
    pixels, digit = give(png(28, 28, white, colour=4))
    assert np.allclose(pixels, image, atol=1) and digit == 7
    page.locator(".thumb").first.click()
    paper = np.full((400, 600), 250)
    paper[90:90 + 280, 20:20 + 280] -= np.kron(image, np.ones((10, 10), int)) * 9 // 10
    pixels, digit = give(png(600, 400, paper))
    assert digit == 7
    ink = np.argwhere(pixels > 0)
    assert (ink.max(axis=0) - ink.min(axis=0)).max() in (19, 20, 21)
    centre = (pixels[..., None] * np.indices((28, 28)).transpose(1, 2, 0)).sum((0, 1))
    assert np.allclose(centre / pixels.sum(), 13.5, atol=0.6)


@browser_test
def test_bad_pictures_get_one_line(open_page, tmp_path):
    page = open_page("#i=4")
    white = np.full((50, 50), 255)
    for content, says in ((b"GIF89a" + bytes(40), "not a PNG"), (b"", "not a PNG"),
                          (png(28, 28), "broken"), (png(60000, 60000), "60000"),
                          (png(50, 50, white), "nothing"),
                          (bytes(21_000_000), "20 MB")):
        (tmp_path / "a.png").write_bytes(content)
        page.evaluate("explorer.view.notice('')")
        page.set_input_files("#file", tmp_path / "a.png")
        until(page, "document.getElementById('notice').textContent")
        line = page.locator("#notice").inner_text()
        assert says in line and "\n" not in line
        assert address_of(page) == "#i=4"


@browser_test
def test_nonsense_in_the_address_gets_one_line(open_page):
    """What can be understood is shown, on a fresh page and in one that is open."""
    cases = {"#i=99&c=3": "#i=28&c=3", "#c=3,77": "#i=28", "#c=9-2&k=5": "#i=28&k=5",
             "#i=drawn.AAAA&b=1": "#i=28&b=1", "#i=drawn.%%%": "#i=28",
             "#nonsense": "#i=28", "#s=3.1e9": "#i=28", "#b=0.1": "#i=28",
             "#k=NaN": "#i=28", "#__proto__=1": "#i=28",
             "#constructor=1": "#i=28", "#i=noise.5.5": "#i=28",
             "#i=" + "A" * 100_000: "#i=28"}
    page = open_page("#f=7&i=3")
    assert address_of(page) == "#i=3"
    for address, left in cases.items():
        assert "means nothing" in page.locator("#notice").inner_text()
        page.evaluate("explorer.view.notice('')")
        page.evaluate("address => { location.hash = address; }", address)
        until(page, "document.getElementById('notice').textContent")
        settled(page)
        assert address_of(page) == left
        assert len(page.locator("#notice").inner_text()) < 150
    assert readings(page)["highway"][0] == 7


@browser_test
def test_the_picture_that_is_saved(open_page):
    page = open_page("#i=8&c=5")
    with page.expect_download() as download:
        page.locator("#save").click()
    content = Path(download.value.path()).read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", content[16:24]) == (1600, 1000)


@browser_test
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(open_page, scheme):
    """WCAG AA, 4.5 to 1, for the colours of all text on both its grounds."""
    page = open_page(color_scheme=scheme)
    theme = page.evaluate("readTheme()")
    for text, ground in itertools.product(("text", "muted"), ("page", "panel")):
        assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
