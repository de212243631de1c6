"""Of which kinds the wrong answers to each topic are, and why some topics have none of a kind."""

import pytest

from weft.grade.zoo import KINDS, zoo

COPIES = "what a test gives is a copy that nobody looks at again"
CLOSED = "the topic's tests import the library's own, and see that they are told that it is closed"
METERED = "a schedule is not metered, and what a rank sends goes through what it was handed"
HANDED = "tensors are handles, what is sent goes through what a rank was handed"
FOUND = "nothing has to be searched for"
COUNTED = (
    "the answer is a number, or moves bytes that are counted, and it takes as long as it takes"
)
ONLY = "another way to the same numbers is a right answer, or moves other bytes"
LACKS = {
    "mutates input": dict.fromkeys(
        [
            "attention",
            "decode",
            "experts",
            "gpu",
            "griffin",
            "pipeline",
            "ring",
            "roofline",
            "zero",
        ],
        COPIES,
    ),
    "library's own": dict.fromkeys(
        [
            "attention",
            "composing",
            "decode",
            "experts",
            "griffin",
            "linear",
            "offload",
            "precision",
            "retention",
            "ring",
            "sparse",
            "tensor",
            "zero",
        ],
        CLOSED,
    ),
    "out of sight": {
        "composing": HANDED,
        "experts": HANDED,
        "pipeline": METERED,
        "processes": METERED,
        "ring": HANDED,
        "sparse": "tensors are handles, and blocks are read through what an answer was handed",
        "tensor": HANDED,
    },
    "gives up": {"attention": FOUND},
    "too much time": dict.fromkeys(
        [
            "attention",
            "composing",
            "decode",
            "gpu",
            "precision",
            "ring",
            "roofline",
            "sparse",
            "tensor",
            "zero",
        ],
        COUNTED,
    ),
    "other mechanism": dict.fromkeys(
        [
            "attention",
            "composing",
            "decode",
            "gpu",
            "griffin",
            "linear",
            "offload",
            "processes",
            "roofline",
            "sparse",
            "tensor",
        ],
        ONLY,
    ),
    "too much memory": {
        "composing": "what a rank keeps is as large as what it was given; what it sends decides",
        "precision": "casts are counted, and a kernel holds no more than the block that it loads",
        "processes": "what a rank keeps is what it was given, and the one message",
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_topic_has_wrong_answers_of_each_kind_or_a_reason(root, kind):
    topics = [file.parent for file in (root / "solutions").glob("*/answers.py")]
    lack = {topic.name for topic in topics if kind not in {wrong.kind for wrong in zoo(topic)}}
    assert lack == set(LACKS.get(kind, {}))


def test_kinds_with_reasons_are_kinds():
    assert KINDS.keys() >= LACKS.keys()
