"""docs/explorer.html: made from the committed files, equal to NumPy, safe to touch.

Those marked `browser` open the page in a headless Chromium: $HIGHWAY_CHROMIUM, or the
first of BROWSERS on the path; they are skipped where there is none, or no Playwright.
"""

import html
import itertools
import json
import os
import re
import shutil

import numpy as np
import pytest

import highway_networks as hn
from explorer import maker
from highway_suite.nets import mnist_images
from tests import committed
from tests.contracts import contrast

SIZE = 3_500_000        # bytes, at most
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True,
         "is_mobile": True, "device_scale_factor": 2}
browser_test = pytest.mark.browser


# The maker


@pytest.fixture(autouse=True)
def committed_files(monkeypatch):
    monkeypatch.setattr(hn, "HERE", committed.tree())


def page_path():
    return committed.tree() / "docs" / "explorer.html"


def test_committed_page_is_what_the_committed_files_make(tmp_path):
    maker.main(["--out", str(tmp_path / "page.html")])
    assert (tmp_path / "page.html").read_bytes() == page_path().read_bytes()
    assert page_path().stat().st_size <= SIZE
    for picture in (tmp_path / "page.png", page_path().with_suffix(".png")):
        head = picture.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert np.frombuffer(head, ">u4", 2, 16).tolist() == [1200, 630]


def test_every_number_of_the_text_comes_from_a_record(tmp_path, monkeypatch):
    """Whatever the records say stands in the page; what they lack is one line."""
    record = maker.load_record()
    nets = maker.load_nets(record)
    record["nets"]["highway"][0]["training"]["test_acc"][-1] = 0.1234
    assert "12.3 % of the test images" in maker.make_page(record, nets)
    for name, broken in (("facts", lambda record: {}), ("load_record", dict)):
        monkeypatch.setattr(maker, name, broken)
        with pytest.raises(SystemExit, match="explorer: .*record"):
            maker.main(["--out", str(tmp_path / "page.html")])


def test_images_are_chosen_by_the_stated_rule(mnist):
    images, labels = mnist_images()
    assert len(images) == 10 * maker.EACH
    for digit in range(10):
        first = mnist.x_test[mnist.y_test == digit][:maker.EACH]
        assert np.array_equal(images[labels == digit], first)


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
    """open_page(address, script, **settings) -> the page, in a context of its own, in
    which script ran first. Afterwards: it has asked for nothing but itself and has had
    nothing to complain of."""
    contexts, requests, complaints = [], [], []

    def open_at(address="", script=None, **settings):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900},
                                         "reduced_motion": "reduce"} | settings)
        contexts.append(context)
        if script:
            context.add_init_script(script)
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


def until(page, condition, seconds=10):
    """Wait for a condition of the page. (Playwright's own way of waiting would evaluate
    text within the page, which its policy forbids.)"""
    assert page.evaluate(f"""async () => {{
        const stop = performance.now() + {1000 * seconds};
        while (!({condition}) && performance.now() < stop)
            await new Promise(resolve => setTimeout(resolve, 20));
        return Boolean({condition});
    }}"""), condition


def settled(page):
    """Wait until the room that is open shows all that there is to show."""
    until(page, """explorer && !$("nets-room").hidden
        ? explorer.shown === explorer.state && !explorer.isCounting && !explorer.waiting
        : playground && playground.shown""")


def address_of(page):
    """The address of the state of the room that is open, once it is shown."""
    settled(page)
    return page.evaluate("""$("nets-room").hidden ? trainingAddress(playground.state)
        : addressOf(explorer.state)""")


def readings(page):
    """What the first room shows: {net: (digit, how many of the forty are right)}."""
    return {kind: (int(page.locator(f".answer.{kind} .verdict").inner_text()),
                   int(page.locator(f".answer.{kind} .right b").inner_text()))
            for kind in maker.BLOCKS}


def arms(page):
    """What the newest snapshot of the second room says of its two nets."""
    return page.evaluate("playground.shown.arms.map(({accuracy, loss, lost}) => "
                         "({accuracy, loss, lost}))")


def same(open_page, page, address):
    """The page is at this address, and a fresh page there shows the same: nothing is
    left over in what a page remembers -> the fresh page."""
    assert address_of(page) == address
    until(page, f"location.hash === '{address}'")
    other = open_page(address)
    shown = arms if address.startswith("#train") else readings
    assert address_of(other) == address and shown(other) == shown(page)
    return other


# The first room: trained nets


def touched(net, page, means, *, shuffle=(0, 1), held=False, shift=0, closed=()):
    """A net in float64 as a treatment of the page leaves it: blocks in the page's
    order, gates held at their means, b_T moved."""
    twin = hn.DeepNet(**net.settings, dtype="float64")
    twin.params[...] = net.params
    weights = twin.views(twin.params)
    if "b_T" in weights:
        weights["b_T"] += shift
        if held:
            weights["W_T"][...] = 0
            weights["b_T"][...] = np.log(means / (1 - means))
    order = page.evaluate("([distance, seed]) => orderOf({distance, seed}, DEPTH)",
                          list(shuffle))
    blocks = twin.tensors(twin.params)["blocks"]
    blocks[...] = blocks[order]
    return twin, closed


TREATMENTS = {
    "#i=8": {},
    "#c=1,20-29&b=-0.5": {"closed": [0, *range(19, 29)], "shift": -0.5},
    "#s=48.7&k=12": {"shuffle": (48, 7), "closed": list(range(12, 49))},
    "#f=1&s=2.1": {"held": True, "shuffle": (2, 1)},
}
LOGITS = """([address, packed]) => {
    const images = bytesOf(packed), {state} = parseAddress(address);
    return Object.fromEntries(explorer.nets.map(net => {
        const run = new Run(net, images.length / 784);
        run.read(images);
        run.follow(planOf(net, state, MEANS));
        run.advance();
        return [net.name, Array.from(run.logits())];
    }));
}"""


@browser_test
def test_logits_are_those_of_numpy(open_page, rng):
    """100 images, under every treatment: the forty, forty moved about, 20 of noise."""
    forty, _ = mnist_images()
    moved = np.array([np.roll(image.reshape(28, 28), rng.integers(-4, 5, 2), (0, 1))
                      for image in forty], dtype="u1").reshape(-1, 784)
    noise = rng.integers(0, 256, (20, 784)).astype("u1")
    images = np.concatenate([forty, moved, noise])
    x = (images.astype("float64") * 2 / 255 - 1).T
    record = maker.load_record()
    means = np.clip(record["nets"]["highway"][0]["picture"]["T_mean"], 1e-9, 1 - 1e-9)
    page = open_page()
    for address, change in TREATMENTS.items():
        found = page.evaluate(LOGITS, [address, maker.base64_of(images)])
        for kind, net in maker.load_nets(record).items():
            twin, closed = touched(net, page, means, **change)
            logits, _ = twin.forward(x, closed=closed)
            off = np.abs(np.array(found[kind]).reshape(-1, 10) - logits.T).max()
            assert off < 1e-4, (address, kind)


@browser_test
def test_controls_are_the_state_and_the_address(open_page):
    """Keys, clicks, drags, sliders and undo. A toolbar is one stop of the keyboard;
    arrows move in it."""
    page = open_page("#i=0&k=40")
    for stop, keys in (
            ("#ruler button", "ArrowRight ArrowRight Space Shift+ArrowRight "
             "Shift+ArrowRight End Enter"),                 # block 49 is not kept
            ("#thumbs .thumb", "ArrowRight ArrowDown Enter")):
        page.locator(f"{stop}[tabindex='0']").focus()
        for key in keys.split():
            page.keyboard.press(key)
    assert address_of(page) == "#i=5&c=3-5&k=40"
    page = open_page("#i=28")
    box = page.locator("#ruler").bounding_box()

    def press(first, last):
        """On the ruler, from one block to another."""
        for block, act in ((first, page.mouse.down), (last, page.mouse.up)):
            page.mouse.move(box["x"] + box["width"] * (block + 0.5) / 50, box["y"] + 8,
                            steps=4)
            act()
    press(25, 25)
    assert address_of(page) == "#i=28&c=25"
    press(10, 14)
    press(25, 25)
    page.keyboard.press("Control+z")
    page.locator("#thumbs .thumb").nth(3).click()
    for name, value in (("keep", "30"), ("shuffle", "3"), ("shift", "-0.5")):
        page.locator(f"#{name}").fill(value)
    page.locator("#again").click()
    page.locator("#frozen").check()
    other = same(open_page, page, "#i=12&c=10-14,25&k=30&s=3.2&f=1&b=-0.5")
    assert other.locator("#keep").input_value() == "30"
    page.locator("#reset").click()
    assert address_of(page) == "#i=12"


@browser_test
def test_a_unit_that_is_pointed_at_shows_its_numbers(open_page):
    """x, H, T and y of block 3, unit 8, as NumPy has them."""
    page, image = open_page(f"#i={maker.SHOWN}"), mnist_images()[0][maker.SHOWN]
    for kind, net in maker.load_nets(maker.load_record()).items():
        panel = page.locator("#gates" if kind == "highway" else f"#outputs-{kind}")
        panel.scroll_into_view_if_needed()
        box = panel.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 3.5 / 50,
                        box["y"] + box["height"] * 7.5 / 50)
        until(page, f"$('readout').textContent.startsWith('{kind}, block 3, unit 8')")
        text = page.locator("#readout").inner_text().replace("−", "-")
        _, cache = net.forward((image.astype("f4") * 2 / 255 - 1)[:, None])
        for name, values in ((r"\bx", cache.x[2]), (r"\bH", cache.z[2]),
                             (r"\bT", cache.T[2] if kind == "highway" else None),
                             (r"(?s).*", cache.x[3])):
            if values is not None:
                told = float(re.search(rf"{name} = ([-\d.]+)", text)[1])
                assert told == pytest.approx(values[7, 0], abs=0.006), text


DIGITS = {
    1: [[(.55, .15), (.47, .85)]],
    4: [[(.35, .15), (.3, .5), (.7, .5)], [(.65, .2), (.6, .88)]],
    7: [[(.28, .2), (.72, .2), (.45, .85)]],
}


def draw(page, strokes, size=1.0, at=(0.0, 0.0)):
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
def test_drawn_digits_are_read(open_page):
    """Large and small. The address of a drawing shows the same image again; undo takes
    back a stroke; the walk keeps it."""
    page = open_page("#i=8")
    for digit, place in ((1, (0.4, (0.05, 0.5))), (4, ()), (7, (0.4, (0.05, 0.5)))):
        page.locator("#blank").click()
        draw(page, DIGITS[digit], *place)
        settled(page)
        assert readings(page)["highway"][0] == digit
    drawn = address_of(page)
    same(open_page, page, drawn)
    draw(page, [[(.1, .1), (2.5, .5), (.5, -.1)]])          # it stays at the pad's edge
    assert address_of(page) != drawn
    page.keyboard.press("Control+z")
    assert address_of(page) == drawn
    page.locator("#dots button").nth(3).click()
    assert address_of(page) == f"{drawn}&c=25"


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
@pytest.mark.parametrize("settings", [
    {"viewport": {"width": 1280, "height": 800}}, PHONE])
def test_it_opens_on_the_contrast_and_answers_stay_in_view(open_page, settings):
    """One net is right and two are wrong, the words say so, all of it is in view, and
    one button opens all blocks. Answers are seen while one draws or closes a block."""
    page, label = open_page(**settings), mnist_images()[1][maker.SHOWN]
    assert address_of(page) == maker.contrast()
    assert readings(page)["highway"][0] == label
    for kind in ("residual", "plain"):
        digit, right = readings(page)[kind]
        assert digit != label and right <= 30
        assert f"{kind} net says {digit}" in page.locator("#contrast").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    assert seen(page, "#forming canvas, .answers .verdict, #steps .shown .large")
    page.locator("#steps .shown .large").click()
    settled(page)
    assert {digit for digit, _ in readings(page).values()} == {label}
    page.locator("#pad").scroll_into_view_if_needed()
    draw(page, DIGITS[1])
    settled(page)
    assert seen(page, ".answers .verdict, #pad")
    page.evaluate("document.getElementById('ruler').scrollIntoView({block: 'center'})")
    page.locator("#ruler .selected").press("Space")
    settled(page)
    assert seen(page, ".answers .verdict, #ruler .selected")


@browser_test
def test_a_finger_draws_points_and_closes_but_does_not_scroll_by_mistake(open_page):
    """On a phone: a stroke on the pad is a stroke; blocks are as wide as a finger; a
    tap on a panel points, a drag over it closes, and upwards it scrolls."""
    page = open_page("#i=28", **PHONE)
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

    block = page.locator("#ruler button").nth(2)
    assert min(block.bounding_box()[side] for side in ("width", "height")) >= 44
    page.locator("#pad").scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    swipe("#pad", (0.5, 0.9), (0.5, 0.1))
    assert page.evaluate("scrollY") == before and readings(page)["highway"][0] == 1
    page.locator("#pad-undo").tap()
    until(page, "addressOf(explorer.state) === '#i=28'")
    page.locator("#gates").tap()
    assert address_of(page) == "#i=28"
    assert "unit" in page.locator("#readout").inner_text()
    swipe("#gates", (0.25, 0.5), (0.45, 0.5))
    assert address_of(page) == "#i=28&c=12-22"
    before = page.evaluate("scrollY")
    swipe("#gates", (0.5, 0.9), (0.5, -1.5))
    assert page.evaluate("scrollY") > before and address_of(page) == "#i=28&c=12-22"


# The second room: nets in training


UNITS = 12
TRAIN = """text => {
    const {bits, steps, params, images, labels, rate, ...settings} = JSON.parse(text);
    const Floats = bits === 32 ? Float32Array : Float64Array;
    const net = new Machine(settings, 64, 32, Floats), adam = new Adam(net.params);
    net.params.set(params);
    const losses = [];
    for (let step = 0; step < steps; step++) {
        const job = net.gradient(Floats.from(images[step]), labels[step]);
        let state;
        do state = job.next(); while (!state.done);
        losses.push(state.value);
        if (rate) adam.step(net.params, net.grad, rate, 5);
    }
    return JSON.stringify([losses, Array.from(net.grad), Array.from(net.params)]);
}"""
KINDS = {kind.removesuffix("_residual"): kind for kind in hn.BLOCKS}


def train_both(page, rng, kind, depth, *, bits=64, steps=1, rate=0.0,
               activation="tanh", init="glorot"):
    """One net with the same weights and batches in the page and in NumPy, float64
    -> (losses, grad, params) of each."""
    net = hn.DeepNet(KINDS[kind], depth, UNITS, inputs=64, activation=activation,
                     init=init, gate_bias=-1.0, seed=int(rng.integers(1000)),
                     dtype="float64")

    def flat(vector):                   # as the page has them
        parts = net.tensors(vector)
        return np.concatenate([np.hstack([parts["W_in"], parts["b_in"]]).ravel(),
                               parts["blocks"].ravel(), parts["out"].ravel()])
    x, labels = rng.uniform(-1, 1, (steps, 32, 64)), rng.integers(10, size=(steps, 32))
    found = page.evaluate(TRAIN, json.dumps({
        "kind": kind, "depth": depth, "units": UNITS, "activation": activation,
        "bits": bits, "rate": rate, "steps": steps, "labels": labels.tolist(),
        "images": x.reshape(steps, -1).tolist(), "params": flat(net.params).tolist()}))
    cache, adam, losses = net.cache(32), hn.Adam(net.params), []
    for x_batch, y in zip(x, labels, strict=True):
        measures, grad = net.gradient((np.ascontiguousarray(x_batch.T), y), cache)
        losses.append(measures["train_loss"])
        if rate:
            hn.clip_norm(grad, 5.0)
            adam.step(net.params, grad, rate)
    return ([np.array(values) for values in json.loads(found)],
            [np.array(losses), flat(grad), flat(net.params)])


STEPS, ONE = {"steps": 20, "rate": 0.005}, {"bits": 32}


@browser_test
def test_training_is_that_of_numpy(open_page, rng):
    """Every kind: twenty steps, and a gradient of deep nets in float32. Over steps a
    last digit grows in deep nets, for they are chaotic; one gradient is not."""
    page = open_page("#train")
    for kind, (depth, activation, init, settings, bound) in itertools.product(KINDS, (
            (1, "relu", "he", STEPS, 1e-9), (10, "tanh", "uniform", STEPS, 1e-9),
            (30, "tanh", "glorot", ONE, 1e-3), (100, "tanh", "uniform", ONE, 1e-3))):
        ours, numpys = train_both(page, rng, kind, depth, init=init,
                                  activation=activation, **settings)
        for found, expected in zip(ours, numpys, strict=True):
            largest = 1 if settings is STEPS else np.abs(expected).max()
            assert np.abs(found - expected).max() < bound * largest, (kind, depth)


@browser_test
def test_first_weights_follow_their_rule_and_are_shared(open_page):
    """W_H is the same whatever the kind, and b_T what is said; the spread is that of
    highway_networks.initial_weights."""
    page = open_page("#train")
    made = """([kind, rule, bias]) => {
        const net = new Machine({kind, depth: 3, units: 64, activation: "tanh"}, 64, 32,
                                Float64Array);
        net.initialize(rule, biasOf(bias, 3), 7);
        [...net.forward(new Float64Array(32 * 64))];
        return [net.W.slice(1, 4).map(W => Array.from(W)), Array.from(net.meanT())];
    }"""
    for rule in hn.INITS:
        (highway, T), (plain, _) = (page.evaluate(made, [kind, rule, "auto"])
                                    for kind in ("highway", "plain"))
        highway, plain = (np.reshape(W, (3, -1, 65)) for W in (highway, plain))
        assert np.allclose(T, 1 / 3)                    # of images of zeros
        assert np.array_equal(highway[:, :64], plain)
        assert not plain[..., 64].any()
        W = plain[..., :64]
        expected = hn.initial_weights(np.random.default_rng(0), rule, W.shape).std()
        assert W.std() == pytest.approx(expected, rel=0.03)
        assert abs(W.mean()) < 0.05 * expected
        if rule == "orthogonal":
            assert np.allclose(W @ W.swapaxes(1, 2), np.eye(64))


@browser_test
def test_thirty_plain_blocks_guess_and_highway_learns(open_page):
    """The first click of the second room; and no plain block gets a gradient."""
    page = open_page("#train")
    highway, plain = page.evaluate("playground.shown.arms.map(arm => [...arm.norms])")
    assert max(plain) < 1e-6 < 1e-4 < min(highway)
    page.locator("#start").click()
    until(page, "playground.shown.arms[0].accuracy >= 0.9", 30)
    page.locator("#start").click()
    highway, plain = (int(text[:-2]) for text in
                      page.locator(".arm-score b").all_inner_texts())
    assert highway >= 90 and plain < 30


@browser_test
def test_steps_are_the_same_however_they_are_made(open_page):
    """Beside the page, in slices of its time, and again from the same seed; a new seed
    gives others."""
    losses = []
    for script, then in ((None, "#restart"), ("delete window.Worker", "#reseed")):
        page = open_page("#train&d=5&x=full", script)
        for _ in range(2):
            for n in range(1, 4):
                page.locator("#one").click()
                until(page, f"playground.shown?.steps === {n}")
            losses.append([arm["loss"] for arm in arms(page)])
            page.locator(then).click()
            until(page, "playground.shown?.steps === 0")
    assert losses[0] == losses[1] == losses[2] != losses[3]


@browser_test
def test_settings_are_the_state_and_the_address(open_page):
    page = open_page("#train")
    for name, value in (("depth", "12"), ("units", "16"), ("rate", "3"),
                        ("bias-0", "-3.5")):
        page.locator(f"#{name}").fill(value)
    for name, value in (("init", "he"), ("activation", "relu"), ("kind-0", "t_only"),
                        ("kind-1", "highway")):
        page.locator(f"#{name}").select_option(value)
    page.locator("#auto-1").check()
    page.locator("#test-digits button").nth(4).click()
    page.locator("#reseed").click()
    digit = page.evaluate("DIGITS.test.labels.indexOf(4)")
    other = same(open_page, page, "#train&d=12&u=16&n=he&f=relu&r=0.001&s=2"
                 f"&x=t_only.-3.5&y=highway.auto&q={digit}")
    assert other.locator("#depth").input_value() == "12"
    assert "S = 1.00" in other.locator("#arm-1").inner_text()


@browser_test
def test_presets_are_one_click(open_page):
    page = open_page("#train")
    addresses = set()
    buttons = page.locator("#presets button").all()
    for button in buttons:
        button.click()
        until(page, "playground.shown?.steps > 0", 20)
        assert button.get_attribute("aria-pressed") == "true"
        addresses.add(page.evaluate("location.hash"))
    assert len(addresses) == len(buttons)
    page.locator("#start").click()


@browser_test
def test_divergence_and_another_room_stop_it(open_page):
    """Nets whose numbers end are named. A room that was left rests, and goes on where
    it stopped."""
    page = open_page("#train&d=3&u=8")
    page.locator("#start").click()
    until(page, "playground.shown.steps > 5")
    page.locator("#to-nets").click()
    page.wait_for_timeout(200)
    steps = page.evaluate("playground.shown.steps")
    page.wait_for_timeout(200)
    assert page.evaluate("playground.shown.steps") == steps
    page.locator("#to-train").click()
    until(page, f"playground.shown.steps > {steps}")
    page.evaluate("playground.set({rate: 1e38})")
    until(page, "!playground.isRunning")
    assert page.locator(".arm", has_text="diverged at step").count() == 2


# Both rooms


@browser_test
def test_nonsense_in_the_address_gets_one_line(open_page):
    """What can be understood is shown, on a fresh page and in one that is open."""
    cases = {"#i=99&c=3": "#i=3&c=3", "#c=3,77": "#i=3", "#c=9-2&k=5": "#i=3&k=5",
             "#i=drawn.AAAA&b=1": "#i=3&b=1", "#i=drawn.%%%": "#i=3",
             "#nonsense": "#i=3", "#k=NaN": "#i=3", "#__proto__=1": "#i=3",
             "#train&d=101": "#train", "#train&x=plane&u=16": "#train&u=16",
             "#train&y=plain.9": "#train", "#train&d=1e1&u=9&n=&f": "#train"}
    page = open_page("#f=7&i=3")
    assert address_of(page) == "#i=3"
    for address, left in cases.items():
        told = page.locator("#notice").inner_text()
        assert "means nothing" in told and len(told) < 150
        page.evaluate("notice('')")
        page.evaluate("address => { location.hash = address; }", address)
        until(page, "document.getElementById('notice').textContent")
        assert address_of(page) == left, address


@browser_test
@pytest.mark.parametrize("sandbox", ["", "sandbox=allow-scripts"])
def test_within_another_page_both_rooms_open(open_page, sandbox):
    """Even where the browser lets it write no address."""
    refusing = "history.replaceState = history.pushState = () => { throw Error(); }"
    for script in (None, refusing):
        page = open_page(script=script)
        page.goto("about:blank")
        text = html.escape(page_path().read_text("utf-8"))
        page.set_content(f'<iframe {sandbox} width=1200 height=900 srcdoc="{text}">')
        for room, other in (("train", "nets"), ("nets", "train")):
            page.frames[-1].click(f"#to-{room}")
            assert page.frames[-1].is_visible(f"#{room}-room")
            assert page.frames[-1].is_hidden(f"#{other}-room")


@browser_test
def test_who_hears_or_hardly_sees_the_page_can_use_it(open_page):
    """All that can be used has a name, and all text the WCAG's contrast, AA."""
    for address, scheme in (("#i=0", "light"), ("#train", "dark")):
        page = open_page(address, color_scheme=scheme)
        unnamed = page.evaluate("""
            [...document.querySelectorAll("button, input, select, canvas[role]")]
            .filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length))
            .map(e => e.outerHTML.slice(0, 80))""")
        assert unnamed == []
        theme = page.evaluate("readTheme()")
        for text, ground in itertools.product(("text", "muted"), ("page", "panel")):
            assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
