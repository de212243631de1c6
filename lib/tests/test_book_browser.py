"""The pages as a reader's browser sees them: one Chromium, every page, and all that moves."""

import importlib.util
import itertools
import json
import os
import random
import re
import threading

import browser
import pytest
from book_site import ROOT, pages, site, small_book  # noqa: F401
from test_book_ext import GOOD, record, with_records

MODES = {
    "desktop": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
}
PYTHON_START = 60_000  # milliseconds, on a machine that does other things too
SAMPLE = 24

# Set the controls of a box to positions, and return the picture that it then shows. `turns` counts
# the moves of the box, so that a picture which was asked for earlier is not taken for this one.
MOVE = """async ([box, chosen, limit]) => {
  const fields = [...box.querySelectorAll("[data-control]")];
  return await new Promise((settle, refuse) => {
    const late = setTimeout(() => refuse(new Error(
      "no picture: " + box.querySelector(".explore-status").textContent)), limit);
    box.turns = (box.turns ?? 0) + 1;
    box.addEventListener("weft-shown", function shown({ detail }) {
      if (detail.turn !== box.turns) return;
      box.removeEventListener("weft-shown", shown);
      clearTimeout(late);
      settle(detail.picture);
    });
    fields.forEach((field, i) => {
      if (field.type === "checkbox") field.checked = Boolean(chosen[i]);
      else if (field.tagName === "SELECT") field.selectedIndex = chosen[i];
      else field.value = chosen[i];
    });
    fields[0].dispatchEvent(new Event("input", { bubbles: true }));
  });
}"""


@pytest.fixture(scope="module")
def chromium():
    if browser.find() is None:
        if os.environ.get("CI"):
            pytest.fail(browser.missing())
        pytest.skip(browser.missing())
    with browser.launched() as running:
        yield running


@pytest.fixture(scope="module")
def serve():
    spec = importlib.util.spec_from_file_location("serve", ROOT / "book/serve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    running = []

    def start(folder):
        httpd = module.server(folder, 0)
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        running.append((httpd, thread))
        return f"http://127.0.0.1:{httpd.server_address[1]}/"

    yield start
    for httpd, thread in running:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@pytest.fixture(scope="module")
def home(site, serve):  # noqa: F811
    return serve(site)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory, serve):
    """A small book with one box of each kind and made-up records."""
    folder = with_records(tmp_path_factory.mktemp("boxes"), record(), record("h100"))
    built = small_book(folder, GOOD, scripts=True)
    assert not built.failed, built.said
    return serve(built.folder)


@pytest.fixture
def open_page(chromium):
    """Open pages that write down whatever goes wrong on them."""
    contexts = []

    def opened(address="", mode="desktop", **options):
        context = chromium.new_context(**(MODES[mode] | options))
        contexts.append(context)
        page = context.new_page()
        page.wrong = []
        page.on("console", lambda said: note(said.type in ("error", "warning"), said.text))
        page.on("pageerror", lambda error: note(True, f"error: {error}"))
        page.on("requestfailed", lambda request: note(True, f"failed: {request.url}"))
        page.on("request", lambda request: note(not at_home(request.url), f"loads {request.url}"))
        page.on("response", lambda got: note(got.status >= 400, f"{got.status} {got.url}"))

        def note(wrong, text):
            if wrong:
                page.wrong.append(text)

        def at_home(url):
            return re.match(r"(http://127\.0\.0\.1:\d+/|file:|data:|blob:)", url)

        if address:
            page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def draw():
    """What CPython draws: the function that the build uses and that the page copies."""
    path = ROOT / "book" / "_ext" / "weft_book" / "states.py"
    spec = importlib.util.spec_from_file_location("states", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.draw


# --- every page -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_every_page_is_quiet_fits_and_shows_its_formulas(site, home, open_page, mode):  # noqa: F811
    page = open_page(mode=mode)
    problems = []
    for name in [*pages(site), "search.html", "genindex.html"]:
        page.goto(home + name)
        page.evaluate("() => window.MathJax?.startup?.promise")
        width, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        if width > window:
            problems.append(f"{name} is {width} wide on {window}")
        written = page.locator(".math").count()
        shown = page.locator(".math mjx-container").count()
        if shown < written:
            problems.append(f"{name} shows {shown} of {written} formulas")
        if mode == "dark" and page.locator("html[data-theme=dark]").count() != 1:
            problems.append(f"{name} is not dark")
        problems += [f"{name}: {text}" for text in page.wrong]
        page.wrong.clear()
    assert problems == []


def test_the_front_page_has_a_formula_free_start_and_the_chapter_has_formulas(home, open_page):
    page = open_page(home)
    assert page.url.endswith("book/intro.html")
    page.goto(home + "book/pipeline.html")
    page.evaluate("() => MathJax.startup.promise")
    assert page.locator("mjx-container").count() > 20
    assert page.locator("mjx-container mjx-assistive-mml").count() > 20


def test_search_finds_without_a_network(home, open_page):
    page = open_page(home + "search.html?q=bubble")
    page.wait_for_selector("#search-results li a")
    found = page.locator("#search-results li a").evaluate_all("all => all.map((a) => a.href)")
    assert any("book/pipeline.html" in address for address in found)
    assert page.wrong == []


# --- sliders ----------------------------------------------------------------------------------


def described(box):
    """A box's function, its controls as the page has them, and how many values each takes."""
    target, controls = box.evaluate("(box) => [box.dataset.target, box.dataset.controls]")
    return target, controls, [len(values) for _, values in json.loads(controls)]


def explore_boxes(page, framed):
    chosen = [
        box
        for box in page.query_selector_all("figure.explore")
        if bool(box.query_selector('script[type="application/x-frames"]')) == framed
    ]
    return [(box, *described(box)) for box in chosen]


def test_every_state_of_every_framed_box_is_what_python_draws(
    site, home, open_page, draw  # noqa: F811
):  # fmt: skip
    page, states = open_page(), 0
    for name in pages(site):
        page.goto(home + name)
        for box, target, controls, sizes in explore_boxes(page, framed=True):
            for chosen in itertools.product(*map(range, sizes)):
                shown = page.evaluate(MOVE, [box, list(chosen), 5000])
                assert shown == draw(target, controls, list(chosen)), (name, target, chosen)
                states += 1
    assert states > 100
    assert page.wrong == []


def test_python_in_the_page_draws_what_python_draws(site, home, open_page, draw):  # noqa: F811
    page, drawn = open_page(), 0
    pick = random.Random(20)
    for name in pages(site):
        page.goto(home + name)
        for box, target, controls, sizes in explore_boxes(page, framed=False):
            corners = [[0] * len(sizes), [size - 1 for size in sizes]]
            some = [[pick.randrange(size) for size in sizes] for _ in range(SAMPLE)]
            for chosen in corners + some:
                shown = page.evaluate(MOVE, [box, chosen, PYTHON_START])
                assert shown == draw(target, controls, chosen), (name, target, chosen)
                drawn += 1
    assert drawn >= SAMPLE
    assert page.wrong == []


def test_every_control_changes_its_picture(site, home, open_page):  # noqa: F811
    page, unmoved, moved = open_page(), [], 0
    for name in pages(site):
        page.goto(home + name)
        for box, target, _, sizes in explore_boxes(page, True) + explore_boxes(page, False):
            fields = box.query_selector_all("[data-control]")
            start = [int(field.get_attribute("data-default")) for field in fields]
            before = page.evaluate(MOVE, [box, start, PYTHON_START])
            for i, size in enumerate(sizes):
                others = ([*start[:i], at, *start[i + 1 :]] for at in range(size) if at != start[i])
                shown = (page.evaluate(MOVE, [box, chosen, PYTHON_START]) for chosen in others)
                if all(picture == before for picture in shown):
                    unmoved.append(f"{name}: control {i} of {target}")
                moved += 1
    assert unmoved == []
    assert moved > 5


def test_a_slider_is_moved_by_keys_and_says_its_value(home, open_page):
    page = open_page(home + "book/intro.html")
    slider = page.locator("#fig-front input[type=range]").first
    before, value = page.inner_html("#fig-front .explore-view"), slider.input_value()
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "before => document.querySelector('#fig-front .explore-view').innerHTML !== before",
        arg=before,
    )
    assert int(slider.input_value()) == int(value) - 1
    said = page.locator("#fig-front output").first.inner_text()
    assert slider.get_attribute("aria-valuetext") == said
    summary = page.inner_text("#fig-front .weft-summary")
    assert page.locator("#fig-front .explore-spoken").text_content() == summary


def test_the_last_move_wins(home, open_page):
    """Many moves at once: Python in the page draws a few, and the newest stays."""
    page = open_page(home + "book/how-to-read.html")
    box = page.query_selector("figure.explore")
    *_, sizes = described(box)
    last = [size - 1 for size in sizes]
    wanted = page.evaluate(MOVE, [box, last, PYTHON_START])
    page.evaluate(MOVE, [box, [0] * len(sizes), PYTHON_START])
    page.evaluate(
        """(box) => {
          box.pictures = 0;
          box.addEventListener("weft-shown", () => { box.pictures += 1; });
          const slider = box.querySelector("input[type=range]");
          for (let i = 0; i <= Number(slider.max); i += 1) {
            slider.value = i;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
          }
        }""",
        box,
    )
    page.evaluate("(box) => { box.turns += Number(box.querySelector('input').max) + 1; }", box)
    shown = page.evaluate(MOVE, [box, last, PYTHON_START])
    assert shown == wanted
    assert box.evaluate("(box) => box.pictures") <= 3


# --- the guess --------------------------------------------------------------------------------


def test_a_guess_is_kept_and_compared(boxes, open_page):
    page = open_page(boxes + "boxes.html")
    answer = page.locator(".weft-guess-answer")
    assert answer.locator("details").get_attribute("open") is None
    page.get_by_label("Your guess", exact=True).last.fill("a lot")
    page.get_by_role("button", name="Keep it").click()
    assert "Please write a number" in page.inner_text(".weft-guess [role=status]")
    page.locator(".weft-guess input").fill(" 10,5 %")
    page.locator(".weft-guess input").press("Enter")
    line = answer.locator(".guess-compare")
    assert line.inner_text() == "You guessed 10.5 %; it is 17.9%: 7.45 points too low."
    assert answer.locator("details").get_attribute("open") is not None
    page.reload()
    assert line.inner_text().startswith("You guessed 10.5 %")
    assert page.locator(".weft-guess input").input_value() == "10.5"
    assert page.wrong == []


def test_a_guess_works_where_nothing_may_be_kept(boxes, open_page):
    page = open_page()
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no') } })"
    )
    page.goto(boxes + "boxes.html")
    page.locator(".weft-guess input").fill("50")
    page.locator(".weft-guess input").press("Enter")
    assert "32.1 points too high" in page.inner_text(".guess-compare")
    assert page.wrong == []


# --- measurements -----------------------------------------------------------------------------


def offer(page, text, name="mine.json", box=0):
    """Pick a file in a box of measurements; return what the box then says."""
    picker = page.locator(".measured-own input").nth(box)
    picker.set_input_files({"name": name, "mimeType": "", "buffer": text.encode()})
    status = page.locator(".measured-own [role=status]").nth(box)
    page.wait_for_function("(status) => status.textContent", arg=status.element_handle())
    return status.inner_text()


def as_text(made, **changes):
    import dataclasses

    whole = {"format": "weft-record/1"} | json.loads(json.dumps(dataclasses.asdict(made)))
    return json.dumps(whole | changes)


def test_a_readers_record_stands_beside_ours(boxes, open_page):
    page = open_page(boxes + "measured.html")
    said = offer(page, as_text(record("rtx-4090")))
    assert "mine.json stands in the table" in said
    heads = page.locator(".measured-table").first.locator("thead th").all_inner_texts()
    assert heads[-2:] == ["weft yours, rtx-4090", "torch yours, rtx-4090"]
    cells = page.locator("tr[data-result=gpipe]").first.locator("td .value").all_inner_texts()
    assert cells == ["0.2 s", "0.5 s"] * 3
    assert "yours, rtx-4090" in page.locator(".measured-machine.measured-mine").inner_text()
    page.get_by_role("button", name="Take it away").click()
    assert page.locator(".measured-mine").count() == 0
    assert page.wrong == []


def test_a_dropped_record_rescales_the_dots(boxes, open_page):
    page = open_page(boxes + "measured.html")
    plot = page.locator("figure.measured").nth(1)
    slow = record("cpu").results[0].of("gpipe", "weft", "s", [3.0, 3.0, 3.0])
    page.evaluate(
        """([box, text]) => {
          const files = new DataTransfer();
          files.items.add(new File([text], "dropped.json"));
          for (const kind of ["dragover", "drop"])
            box.dispatchEvent(new DragEvent(kind, { dataTransfer: files, bubbles: true }));
        }""",
        [plot.element_handle(), as_text(record(results=(slow,)))],
    )
    mine = plot.locator("td.measured-mine .track i")
    mine.first.wait_for()
    assert mine.count() == 3
    assert mine.first.get_attribute("style") == "left: 100%;"
    ours = plot.locator("tr[data-result=gpipe] td:not(.measured-mine) .track b")
    assert float(re.search(r"[\d.]+", ours.get_attribute("style"))[0]) == pytest.approx(100 / 15)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is not a record"),
        (as_text(record(name="other")), "it is a record of “other”; here it takes “made-up”"),
        (as_text(record(), results=[]), "it has no results"),
        (as_text(record(), machine={}), "machine must name its chip"),
        (as_text(record(), commit=""), "commit must be text"),
        (
            as_text(record()).replace("0.5, 0.4, 0.6", "0.5, 0.4, 9.6, 8.0"),
            "results[1].value is not the median",
        ),
    ],
)
def test_a_file_that_cannot_be_shown_says_why(boxes, open_page, text, said):
    page = open_page(boxes + "measured.html")
    assert f"mine.json cannot be shown: {said}" in offer(page, text)
    assert page.locator(".measured-mine").count() == 0


def test_a_record_without_our_rows_says_so(boxes, open_page):
    page = open_page(boxes + "measured.html")
    other = record().results[0].of("zb_v", "weft", "s", [1.0])
    assert "has none of the results" in offer(page, as_text(record(results=(other,))))


# --- without JavaScript, without a server ------------------------------------------------------


def test_without_javascript_the_pictures_stay(site, home, open_page):  # noqa: F811
    page, pictures = open_page(java_script_enabled=False), 0
    for name in pages(site):
        page.goto(home + name)
        for box in page.locator("figure.explore, figure.picture").all():
            assert box.locator("svg").first.is_visible()
            pictures += 1
        for idle in page.locator(".explore-form, .guess-form, .measured-own").all():
            assert not idle.is_visible()
        for answer in page.locator(".weft-guess-answer summary").all():
            assert answer.is_visible()
    assert pictures > 5
    assert page.wrong == []


def test_from_files_the_pages_are_quiet(site, open_page):  # noqa: F811
    page = open_page()
    for name in pages(site):
        page.goto((site / name).as_uri())
        page.evaluate("() => window.MathJax?.startup?.promise")
    assert page.wrong == []


def test_from_files_frames_move_and_python_asks_kindly_once(site, open_page, draw):  # noqa: F811
    page = open_page((site / "book/intro.html").as_uri())
    box, target, controls, sizes = explore_boxes(page, framed=True)[0]
    last = [size - 1 for size in sizes]
    assert page.evaluate(MOVE, [box, last, 5000]) == draw(target, controls, last)
    page.goto((site / "book/how-to-read.html").as_uri())
    before = page.inner_html(".explore-view")
    slider = page.locator("figure.explore input[type=range]").first
    for key in ("ArrowRight", "ArrowRight"):
        slider.press(key)
    page.wait_for_function(
        "document.querySelector('.explore-status').textContent.includes('web server')"
    )
    assert page.inner_html(".explore-view") == before
    assert page.inner_text("body").count("has to come from a web server") == 1
