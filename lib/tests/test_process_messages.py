"""Messages on a stream come out whole, whatever pieces they arrive in."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.process.messages import Frames, frame, receive, send


@given(st.lists(st.binary(max_size=40)), st.integers(1, 30))
def test_messages_are_put_together_from_any_pieces(messages, size):
    stream = b"".join(map(frame, messages))
    pieces = (stream[at : at + size] for at in range(0, len(stream), size))
    frames = Frames()
    assert [message for piece in pieces for message in frames.feed(piece)] == messages


def test_what_is_too_long_is_refused_before_it_has_come():
    frames = Frames(most=4)
    assert frames.feed(frame(b"four")) == [b"four"]
    with pytest.raises(ValueError, match="a message of 5 bytes, must be at most 4"):
        frames.feed(frame(b"fives")[:8])


def test_a_stream_that_ends_within_a_message_has_none():
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            send(theirs, b"whole")
            theirs.sendall(frame(b"half")[:-1])
        assert receive(ours) == b"whole"
        assert receive(ours) is None
