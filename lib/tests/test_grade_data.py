"""Plain data there and back, and nothing but plain data."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.grade.data import dumps, loads
from weft.plan.pipeline.schedules import Action, zb_v

ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
ATOMS |= st.binary() | st.fractions() | st.complex_numbers(allow_nan=False)
KEYS = st.integers() | st.text() | st.tuples(st.integers(), st.text())
DATA = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.frozensets(KEYS)
        | st.sets(KEYS)
    ),
    max_leaves=20,
)


@given(DATA)
def test_data_comes_back_equal_and_of_the_same_type(value):
    back = loads(dumps(value))
    assert back == value and type(back) is type(value)


def test_plans_and_actions_come_back_as_themselves():
    plan = zb_v(2, 4)
    assert loads(dumps(plan)) == plan
    assert isinstance(loads(dumps(plan)).rows[0][0], Action)


def test_tensors_come_back_bit_for_bit():
    import torch

    for dtype in (torch.float64, torch.bfloat16, torch.int32, torch.bool):
        tensor = torch.arange(6).reshape(2, 3).to(dtype).T
        back = loads(dumps(tensor))
        assert back.dtype == dtype and torch.equal(back, tensor)
    assert loads(dumps(torch.tensor(2.5))).shape == ()
    assert loads(dumps(torch.empty(0, 3))).shape == (0, 3)
    assert loads(dumps(torch.ones(2, requires_grad=True) * 3)).tolist() == [3, 3]


def test_numpy_scalars_become_numbers_and_subclasses_what_they_are_underneath():
    import numpy

    class Yes(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    assert loads(dumps([numpy.float64(0.5), numpy.int32(3)])) == [0.5, 3]
    assert type(loads(dumps(Yes(3)))) is int


@pytest.mark.parametrize("value", [object(), len, int, (n for n in ()), pytest])
def test_what_is_not_data_is_refused_by_its_type(value):
    with pytest.raises(TypeError, match=f"a {type(value).__name__}"):
        dumps([1, {"x": value}])


@pytest.mark.parametrize(
    "frame",
    [
        b"not json",
        b'{"is": "os.system", "of": ["true"]}',
        b'{"is": "Fraction", "of": [1, 0]}',
        b'{"is": "Action", "of": [1]}',
        b'{"is": "set", "of": [[]]}',
        b'{"is": "tensor", "of": ["Tensor", [1], ""]}',
        b'{"is": "tensor", "of": ["float64", [7], "AAAAAAAAAAA="]}',
        b'{"of": []}',
        b"[" * 100_000,
        json.dumps({"is": "bytes", "of": 3}).encode(),
    ],
)
def test_a_forged_frame_is_an_error(frame):
    with pytest.raises(ValueError, match="not plain data"):
        loads(frame)


def test_fractions_stay_exact():
    assert loads(dumps(Fraction(1, 3))) == Fraction(1, 3)
