"""The small decoder with each mixer: it learns, and decodes step by step what it says at once."""

from collections import Counter
from functools import partial
from itertools import islice
from math import log

import pytest
import torch

from weft.nn.linear import LinearMixer, MixerDecoder, SoftmaxMixer
from weft.nn.transformer import Config, loss
from weft.plan.linear import DECODER_RULES
from weft.run.train.text import read_text, windows

SMALL = Config(layers=2, width=12, heads=3, vocab=7, seq=9)
MIXERS = {rule: partial(LinearMixer, rule=rule) for rule in DECODER_RULES} | {
    "softmax": SoftmaxMixer
}


@pytest.mark.parametrize("name", MIXERS)
def test_token_by_token_with_its_state_it_says_what_it_says_at_once(name):
    torch.manual_seed(0)
    model = MixerDecoder(SMALL, partial(MIXERS[name], key_width=5)).double()
    tokens = torch.randint(7, (2, 9))
    with torch.no_grad():
        state, said = None, []
        for token in tokens.unbind(1):
            scores, state = model.step(token, state)
            said.append(scores)
        torch.testing.assert_close(torch.stack(said, 1), model(tokens), rtol=0, atol=1e-10)
        with pytest.raises(ValueError, match="tokens end at 10, must end within seq = 9"):
            model.step(tokens[:, 0], state)
    kept = [x for each in state[1] for x in (each if isinstance(each, tuple) else (each,))]
    width = {"softmax": 9 * (5 + 4), "linear": 5 * (4 + 1)}.get(name, 5 * 4)
    assert sum(x.numel() for x in kept) == 2 * 2 * 3 * width  # layers, batch, heads


@pytest.mark.parametrize("name", MIXERS)
def test_it_learns_from_the_books_own_text(name):
    torch.manual_seed(0)
    model = MixerDecoder(Config(layers=1, width=32, heads=2, seq=32), MIXERS[name])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    text, losses = read_text(None), []
    for window in islice(windows(text, 32, (8,), seed=0), 60):
        value = loss(model(window[:, :-1]), window[:, 1:])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    shares = [count / len(text) for count in Counter(text).values()]
    entropy = -sum(share * log(share) for share in shares)  # of bytes without those before them
    assert losses[0] > log(256) > 5 and sum(losses[-5:]) / 5 < entropy - 0.1


def test_a_gate_begins_as_the_fixed_decay():
    torch.manual_seed(0)
    decay, gate = (MixerDecoder(SMALL, MIXERS[name]) for name in ("decay", "gate"))
    kept = {name: x for name, x in decay.state_dict().items() if not name.endswith("log_decay")}
    gate.load_state_dict(gate.state_dict() | kept)
    tokens = torch.randint(7, (2, 9))
    torch.testing.assert_close(gate(tokens), decay(tokens))


def test_a_rule_that_is_none_is_refused():
    with pytest.raises(ValueError, match="rule is 'fade', must be one of linear, decay"):
        LinearMixer(SMALL, "fade")
