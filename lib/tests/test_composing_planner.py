"""The planner's answers, its form, and the form in a browser: nothing leaves the page."""

import json
import re

import pytest
from book_site import small_book
from test_book_browser import PYTHON_START, chromium, open_page, serve  # noqa: F401

from weft.explore.planner import FIELDS, ROWS, plan
from weft.plan.composing import cluster_of, from_megatron, search_for, text_for, words
from weft.plan.hardware import Link
from weft.plan.shape import SHAPES, of_config

SMALL = {"model": "llama3-8b", "devices": 8, "batch": 16, "seq": 4096}
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": True,
}  # fmt: skip


def config_of(answer: str) -> str:
    """The text that the answer has to be copied."""
    return re.search(r"<pre[^>]*>(.*)</pre>", answer, re.S)[1].replace("&#x27;", "'")


def found(**asked):
    """What the library's own search says."""
    link = Link("between nodes", 50e9, 14e-6)
    shape = SHAPES["llama3-8b"].__class__(**vars(SHAPES["llama3-8b"]) | {"seq": 4096})
    pod = cluster_of("h100", 8, between=link)
    return shape, pod, search_for(asked.get("system", "megatron"), shape, 16, pod, keep=ROWS)


def test_the_answer_is_the_search():
    shape, pod, ranked = found()
    for row in (1, 2, 99):
        answer = plan(**SMALL, row=row)
        layout, _ = ranked[min(row, len(ranked)) - 1]
        assert config_of(answer) == text_for("megatron", shape, layout, 16, pod)
        assert from_megatron(words(config_of(answer)))[1] == layout
        assert answer.count("data-row") == len(ranked)
        assert answer.count("aria-pressed='true'") == 1
        assert answer.count("<svg") == 2


def test_progress_is_told_once_for_a_question():
    told = []
    asked = SMALL | {"batch": 24}
    first = plan(**asked, progress=lambda *how: told.append(how))
    assert told and all(0 <= done <= total for done, total in told)
    told.clear()
    assert plan(**asked, progress=lambda *how: told.append(how)) == first and not told


@pytest.mark.parametrize("system", [value for value, _ in FIELDS[-2].choices])
def test_each_system_has_an_answer(system):
    answer = plan(**SMALL, system=system)
    assert ("<pre" in answer) == (system != "any")


def test_a_config_comes_before_the_model_and_its_unknown_keys_are_told():
    config = json.dumps(CONFIG | {"surprise<b>": 1, "vision_config": {"depth": 2}})
    answer = plan(config=config, devices=8, batch=16)
    assert f"{of_config(CONFIG).params / 1e9:.2f} billion parameters" in answer
    assert "sequences of 8,192 tokens" in answer
    assert "surprise&lt;b&gt;" in answer and "<b>" not in answer
    assert "Not counted: vision_config" in answer


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"config": "{"}, "the text is no config.json"),
        ({"config": "[1]"}, "config is a list, must be a mapping"),
        ({"config": '{"model_type": "<i>"}'}, "model_type is '<i>', must be one of"),
        ({"model": "gpt-1t", "devices": 8, "batch": 8}, "no layout fits: 1.01 trillion parameters"),
        ({"devices": 0}, "devices is 0"),
        ({"devices": 2.5}, "devices is 2.5, must be a whole number"),
        ({"batch": None}, "batch is None"),
        ({"between": 0}, "between is 0"),
        ({"chip": "tpu"}, "chip is 'tpu', must be one of"),
        ({"model": "gpt"}, "model is 'gpt', must be one of"),
        ({"system": "jax"}, "system is 'jax', must be one of"),
        ({"seq": 0}, "seq is 0"),
    ],
)
def test_what_cannot_be_planned_is_named(asked, complaint):
    with pytest.raises(ValueError) as caught:
        plan(**SMALL | asked)
    assert complaint in str(caught.value)


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page_of_its_own(tmp_path_factory):
    """A small book with a planner on a page."""
    text = "# A planner\n\n```{planner}\n```\n"
    built = small_book(tmp_path_factory.mktemp("planner"), {"planner": text}, scripts=True)
    assert not built.failed, built.said
    return built


def test_the_page_has_the_form_and_the_first_answer(page_of_its_own):
    page = page_of_its_own.read("planner.html")
    for field in FIELDS:
        assert f'id="planner-{field.name}"' in page
    first = plan(**{field.name: field.default for field in FIELDS})
    assert first in page


def test_the_browser_answers_as_the_library_and_sends_nothing(page_of_its_own, serve, open_page):  # noqa: F811
    home = serve(page_of_its_own.folder)
    page = open_page(home + "planner.html", mode="phone")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    sent = []
    page.on("request", lambda request: sent.append((request.method, request.url)))
    page.on("websocket", lambda socket: sent.append(("websocket", socket.url)))
    config = json.dumps(CONFIG | {"a_secret": 7})
    page.locator(".planner-wide summary").click()
    page.fill("#planner-config", config)
    for name, value in (("devices", "8"), ("batch", "16"), ("seq", "4096")):
        page.fill(f"#planner-{name}", value)

    def planned(start):
        start()
        page.wait_for_function(
            "!document.querySelector('.planner[aria-busy]')", timeout=PYTHON_START
        )
        return page.locator(".planner-answer").evaluate("(box) => box.innerHTML")

    def same(shown, row):
        here = plan(config=config, devices=8, batch=16, seq=4096, row=row)
        return shown == page.evaluate(
            "(html) => { const box = document.createElement('div'); box.innerHTML = html; "
            "return box.innerHTML; }", here,
        )  # fmt: skip

    assert same(planned(page.locator(".planner-go button").click), 1)
    started = len(sent)
    assert same(planned(page.locator("[data-row='2']").click), 2)
    assert len(sent) == started  # Python and the library have come; nothing goes out
    assert {method for method, _ in sent} == {"GET"}
    assert all(url.startswith(home + "_static/") for _, url in sent)
    assert not any("secret" in url for _, url in sent)
    page.fill("#planner-devices", "0")
    planned(page.locator(".planner-go button").click)
    assert "devices is 0" in page.locator(".planner-answer .explore-note").inner_text()
    assert page.wrong == []
