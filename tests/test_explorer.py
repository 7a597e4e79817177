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
from experiments.nets.probes import in_stages, reordered
from explorer import maker
from highway_suite.nets import mnist_images
from tests import committed
from tests.contracts import contrast

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True,
         "is_mobile": True, "device_scale_factor": 2}
browser_test = pytest.mark.browser


# The maker


@pytest.fixture(autouse=True)
def committed_files(monkeypatch):
    monkeypatch.setattr(hn, "HERE", committed.tree())
    with hn.blas_threads(1):
        yield


def page_path():
    return committed.tree() / "docs" / "explorer.html"


def test_committed_page_is_what_the_committed_files_make(tmp_path):
    maker.main(["--out", str(tmp_path / "page.html")])
    assert (tmp_path / "page.html").read_bytes() == page_path().read_bytes()
    assert page_path().stat().st_size <= 3_500_000
    for picture in (tmp_path / "page.png", page_path().with_suffix(".png")):
        size = np.frombuffer(picture.read_bytes(), ">u4", 2, 16)
        assert size.tolist() == [1200, 630]


def test_every_number_of_the_text_comes_from_a_record(tmp_path, monkeypatch):
    """Whatever the records say stands in the page; what they lack is one line."""
    record = maker.load_record()
    nets = maker.load_nets(record)
    record["nets"]["highway"][0]["training"]["test_acc"][-1] = 0.1234
    assert "12.3 % of the test images" in maker.make_page(record, nets)
    monkeypatch.setattr(maker, "load_record", dict)
    with pytest.raises(SystemExit, match="explorer: .*record"):
        maker.main(["--out", str(tmp_path / "page.html")])


def test_images_are_chosen_by_the_stated_rule(mnist):
    """And what the page says of all test images is what a count finds."""
    images, labels = mnist_images()
    assert len(images) == 10 * maker.EACH
    for digit in range(10):
        first = mnist.x_test[mnist.y_test == digit][:maker.EACH]
        assert np.array_equal(images[labels == digit], first)
    counts = json.loads((committed.tree() / maker.COUNTS).read_text())
    found = maker.count(maker.load_nets(maker.load_record()), mnist)
    assert found == pytest.approx(counts, abs=2e-4)


def test_links_lead_to_what_exists_wherever_the_page_lies():
    """To a place of the page, or to a whole address: no other file need be there."""
    links = re.findall(r'<a\b[^>]* href="([^"]*)"', page_path().read_text("utf-8"))
    assert {link for link in links if not link.startswith("https://arxiv.org/abs/")
            } == {"#nets", "#train"}


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
    """open_page(address, script, within, **settings) -> the page, in a context of its
    own, in which script ran first, or another page that has it within. Afterwards: it
    has asked for nothing but itself and has had nothing to complain of."""
    contexts, requests, complaints = [], [], []

    def open_at(address="", script=None, within=None, **settings):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900},
                                         "reduced_motion": "reduce"} | settings)
        contexts.append(context)
        if script:
            context.add_init_script(script)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if within:
            page.set_content(within)
        else:
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


def same(open_page, page, address):
    """The page is at this address, and a fresh page there shows the same: nothing is
    left over in what a page remembers."""
    assert address_of(page) == address
    until(page, f"location.hash === '{address}'")
    other = open_page(address)
    shown = "explorer?.readings || playground.shown.arms.map(arm => [...arm.answers])"
    assert address_of(other) == address
    assert other.evaluate(shown) == page.evaluate(shown)


# The first room: trained nets


def touched(net, order, means=None):
    """A net in float64 whose blocks stand in this order and whose T is held at these
    means."""
    twin = hn.DeepNet(**net.settings, dtype="float64")
    twin.params[...] = net.params
    weights = twin.views(twin.params)
    if means is not None and "b_T" in weights:
        weights["W_T"][...] = 0
        weights["b_T"][...] = np.log(means / (1 - means))
    return reordered(twin, order)


# Address: are gates held, which blocks are closed, how many stages there are.
TREATMENTS = {
    "#i=8": (False, [], None),
    "#c=1,20-29": (False, [0, *range(19, 29)], None),
    "#s=48.7&k=12": (False, range(12, 49), None),
    "#f=1&s=2.1": (True, [], None),
    "#n=1": (False, [], 1),
    "#n=10&f=1": (True, [], 10),
    "#n=32&s=4.2": (False, [], 32),
}
LOGITS = """([address, packed]) => {
    const images = bytesOf(packed), {state} = parseAddress(address);
    const order = orderOf(state.shuffle, DEPTH);
    return [order, Object.fromEntries(explorer.nets.map(net => {
        const run = new Run(net, images.length / 784);
        run.read(images);
        run.follow(planOf(net, state, MEANS));
        run.advance();
        return [net.name, Array.from(run.logits())];
    }))];
}"""


@browser_test
def test_logits_are_those_of_numpy(open_page, rng):
    """Twenty of the images, and five of noise, under every treatment."""
    noise = rng.integers(0, 256, (5, 784)).astype("u1")
    images = np.concatenate([mnist_images()[0][::2], noise])
    x = (images.astype("float64") * 2 / 255 - 1).T
    record = maker.load_record()
    means = np.clip(record["nets"]["highway"][0]["picture"]["T_mean"], 1e-9, 1 - 1e-9)
    page, nets = open_page(), maker.load_nets(record)
    for address, (is_held, closed, stages) in TREATMENTS.items():
        order, found = page.evaluate(LOGITS, [address, maker.base64_of(images)])
        for kind, net in nets.items():
            twin = touched(net, order, means if is_held else None)
            logits, cache = twin.forward(x, closed=closed)
            if stages:
                logits = in_stages(twin, cache, stages)
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
    page.locator("#reset").click()
    box = page.locator("#ruler").bounding_box()
    for first, last in ((25, 25), (10, 14), (25, 25)):
        for block, act in ((first, page.mouse.down), (last, page.mouse.up)):
            page.mouse.move(box["x"] + box["width"] * (block + 0.5) / 50, box["y"] + 8,
                            steps=4)
            act()
    page.keyboard.press("Control+z")
    page.locator("#thumbs .thumb").nth(3).click()
    for name, value in (("keep", "30"), ("shuffle", "3"), ("stages", "10")):
        page.locator(f"#{name}").fill(value)
    page.locator("#again").click()
    page.locator("#frozen").check()
    same(open_page, page, "#i=12&c=10-14,25&k=30&n=10&s=3.2&f=1")


DIGITS = {
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
    back a stroke."""
    page = open_page("#i=8")
    for digit, place in ((4, ()), (7, (0.4, (0.05, 0.5)))):
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


IN_VIEW = """selector => [...document.querySelectorAll(selector)]
    .map(part => part.getBoundingClientRect())
    .every(box => box.top >= 0 && box.bottom <= innerHeight
                  && box.left >= 0 && box.right <= innerWidth)"""


@browser_test
@pytest.mark.parametrize("settings", [
    {"viewport": {"width": 1280, "height": 800}}, PHONE])
def test_it_opens_on_a_typical_contrast(open_page, settings):
    """The nets read the image as they read most: two are right and the plain one is
    wrong. The digit and the answers are in view; one button opens all blocks."""
    page, label = open_page(**settings), mnist_images()[1][maker.SHOWN]
    assert address_of(page) == maker.contrast()
    assert int(maker.shares()["alike"]) > 50
    assert {kind: digit == label for kind, (digit, _) in readings(page).items()} == {
        "highway": True, "residual": True, "plain": False}
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    assert page.evaluate(IN_VIEW, "#seen, .answers .verdict, #steps .shown .large")
    page.locator("#steps .shown .large").click()
    settled(page)
    assert {digit for digit, _ in readings(page).values()} == {label}


@browser_test
def test_a_finger_draws_and_closes_but_does_not_scroll_by_mistake(open_page):
    """On a phone: a stroke on the pad is a stroke; a drag over a panel closes blocks,
    and upwards it scrolls."""
    page = open_page("#i=28", **PHONE)
    client = page.context.new_cdp_session(page)

    def swipe(selector, start, stop):
        """-> How far the page went."""
        page.locator(selector).scroll_into_view_if_needed()
        box, before = page.locator(selector).bounding_box(), page.evaluate("scrollY")
        for i in range(9):
            x, y = np.array(start) + np.subtract(stop, start) * min(i, 7) / 7
            point = {"x": box["x"] + x * box["width"],
                     "y": box["y"] + y * box["height"]}
            kind = "touchStart" if i == 0 else "touchEnd" if i == 8 else "touchMove"
            client.send("Input.dispatchTouchEvent", {
                "type": kind, "touchPoints": [] if i == 8 else [point]})
        settled(page)
        return page.evaluate("scrollY") - before

    assert swipe("#pad", (0.5, 0.9), (0.5, 0.1)) == 0
    assert readings(page)["highway"][0] == 1
    page.locator("#pad-undo").tap()
    swipe("#gates", (0.25, 0.5), (0.45, 0.5))
    assert swipe("#gates", (0.5, 0.9), (0.5, -1.5)) > 0
    assert address_of(page) == "#i=28&c=12-22"


# The second room: nets in training


TRAIN = """text => {
    const {params, images, labels, ...settings} = JSON.parse(text);
    const net = new Machine(settings, 64, 32, Float64Array);
    const adam = new Adam(net.params);
    net.params.set(params);
    const losses = images.map((x, step) => {
        const job = net.gradient(Float64Array.from(x), labels[step]);
        let state;
        do state = job.next(); while (!state.done);
        adam.step(net.params, net.grad, 0.005, 5);
        return state.value;
    });
    return JSON.stringify([losses, Array.from(net.grad), Array.from(net.params)]);
}"""
KINDS = {kind.removesuffix("_residual"): kind for kind in hn.BLOCKS}


@browser_test
def test_training_is_that_of_numpy(open_page, rng):
    """Five steps of every kind, in float64: losses, last gradient and weights."""
    page = open_page("#train")
    x, labels = rng.uniform(-1, 1, (5, 32, 64)), rng.integers(10, size=(5, 32))
    for kind, (depth, activation, init) in itertools.product(KINDS, (
            (2, "relu", "he"), (10, "tanh", "uniform"))):
        net = hn.DeepNet(KINDS[kind], depth, 12, inputs=64, activation=activation,
                         init=init, gate_bias=-1.0, seed=3, dtype="float64")

        def flat(vector, net=net):              # as the page has them
            parts = net.tensors(vector)
            return np.concatenate([np.hstack([parts["W_in"], parts["b_in"]]).ravel(),
                                   parts["blocks"].ravel(), parts["out"].ravel()])
        found = json.loads(page.evaluate(TRAIN, json.dumps({
            "kind": kind, "depth": depth, "units": 12, "activation": activation,
            "labels": labels.tolist(), "images": x.reshape(5, -1).tolist(),
            "params": flat(net.params).tolist()})))
        cache, adam, losses = net.cache(32), hn.Adam(net.params), []
        for x_batch, y in zip(x, labels, strict=True):
            measures, grad = net.gradient((np.ascontiguousarray(x_batch.T), y), cache)
            losses.append(measures["train_loss"])
            hn.clip_norm(grad, 5.0)
            adam.step(net.params, grad, 0.005)
        for ours, numpys in zip(found, (losses, flat(grad), flat(net.params)),
                                strict=True):
            assert np.abs(np.subtract(ours, numpys)).max() < 1e-9, (kind, depth)


@browser_test
def test_first_weights_follow_their_rule_and_are_shared(open_page):
    """W_H is the same whatever the kind, and its spread is that of NumPy's."""
    page = open_page("#train")
    for rule in hn.INITS:
        highway, plain = (np.reshape(page.evaluate("""([kind, rule]) => {
            const net = new Machine({kind, depth: 3, units: 32}, 64, 32, Float64Array);
            net.initialize(rule, -2, 7);
            return net.W.slice(1, 4).map(W => Array.from(W));
        }""", [kind, rule]), (3, -1, 33)) for kind in ("highway", "plain"))
        assert np.array_equal(highway[:, :32], plain)
        assert not plain[..., 32].any() and (highway[:, 32:, 32] == -2).all()
        W = hn.initial_weights(np.random.default_rng(0), rule, (3, 32, 32))
        assert plain[..., :32].std() == pytest.approx(W.std(), rel=0.05)


@browser_test
def test_thirty_plain_blocks_guess_and_highway_learns(open_page):
    """The first click of the second room; and no plain block gets a gradient."""
    page = open_page("#train")
    highway, plain = page.evaluate("playground.shown.arms.map(arm => [...arm.norms])")
    assert max(plain) < 1e-6 < 1e-4 < min(highway)
    page.locator("#start").click()
    until(page, "playground.shown.arms[0].accuracy >= 0.8", 30)
    assert page.evaluate("playground.shown.arms[1].accuracy") < 0.3


@browser_test
def test_settings_are_the_state_and_the_address(open_page):
    page = open_page("#train")
    page.locator("#auto-0").uncheck()
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
    same(open_page, page, "#train&d=12&u=16&n=he&f=relu&r=0.001&s=2"
         f"&x=t_only.-3.5&y=highway.auto&q={digit}")


@browser_test
def test_presets_are_one_click(open_page):
    """Each starts a training of its own and says in what it differs."""
    page, told = open_page("#train"), {}
    buttons = page.locator("#presets button").all()
    for button in buttons:
        button.click()
        assert page.evaluate("playground.isRunning")
        told[page.evaluate("location.hash")] = page.locator("#changed").inner_text()
    assert len(told) == len(set(told.values())) == len(buttons)
    until(page, "playground.shown?.steps > 0", 20)


@browser_test
@pytest.mark.parametrize("script", [None, "delete window.Worker"])
def test_divergence_and_another_room_stop_it(open_page, script):
    """In a worker and without one. A room that was left goes on where it stopped."""
    page = open_page("#train&d=3&u=8", script)
    page.locator("#start").click()
    until(page, "playground.shown.steps > 5")
    page.locator("#to-nets").click()
    page.wait_for_timeout(100)
    steps = page.evaluate("playground.shown.steps")
    page.wait_for_timeout(100)
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
    cases = {"#i=99&c=3": "#i=3&c=3", "#c=9-2&n=0&k=5": "#i=3&k=5",
             "#i=drawn.AAAA&n=1": "#i=3&n=1", "#__proto__=1": "#i=3",
             "#train&x=plane&u=16": "#train&u=16", "#train&d=1e1&y=plain.9": "#train"}
    page = open_page("#f=7&i=3")
    assert address_of(page) == "#i=3"
    for address, left in cases.items():
        assert 0 < len(page.locator("#notice").inner_text()) < 150
        page.evaluate("notice('')")
        page.evaluate("address => { location.hash = address; }", address)
        until(page, "$('notice').textContent")
        assert address_of(page) == left, address


@browser_test
def test_within_another_page_both_rooms_open(open_page):
    """Even where the browser lets it write no address."""
    refusing = "history.replaceState = history.pushState = () => { throw Error(); }"
    text = html.escape(page_path().read_text("utf-8"))
    page = open_page(script=refusing, within="<iframe sandbox=allow-scripts width=1200 "
                     f'height=900 srcdoc="{text}">')
    for room, other in (("train", "nets"), ("nets", "train")):
        page.frames[-1].click(f"#to-{room}")
        assert page.frames[-1].is_visible(f"#{room}-room")
        assert page.frames[-1].is_hidden(f"#{other}-room")


@browser_test
def test_who_hears_or_hardly_sees_the_page_can_use_it(open_page):
    """All that can be used has a name, and all text the WCAG's contrast, AA."""
    for address, scheme in (("#i=0", "light"), ("#train", "dark")):
        page = open_page(address, color_scheme=scheme)
        assert not page.evaluate("""
            [...document.querySelectorAll("button, input, select, canvas[role]")]
            .filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length))
            .map(e => e.outerHTML.slice(0, 80))""")
        theme = page.evaluate("readTheme()")
        for text, ground in itertools.product(("text", "muted"), ("page", "panel")):
            assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
