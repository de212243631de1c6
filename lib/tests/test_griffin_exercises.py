"""The Griffin exercises both ways: solutions get everything, stubs nothing, and each wrong answer
of the zoo loses exactly what it must."""

from graded import Exercises

from weft.plan.griffin import decode_seconds, recurrentgemma
from weft.plan.hardware import CHIPS


class TestGriffin(Exercises):
    stem = "griffin"
    functions = ("widest", "packed", "extend", "convolve", "scan_back")
    tiers = ("page", "processes", "chip")
    secrets = ("_seen(starts", "h[step:] +=")

    def test_the_targets_in_the_docstrings_are_computed_ones(self):
        answers, visible = self.load("answers"), self.load("test_griffin")
        name, model, lengths, seconds = visible.REAL[0]
        chip = visible.real(name)
        window, kept, step = answers.widest(chip, model, lengths, seconds)
        told = self.told("widest")
        assert f"that is ({window}, {kept}, {int(step * 1e7) / 1e7}…)" in told
        shown = ('"memory": 141e9', '"bandwidth": 4.8e12', '"rate": 989.4e12')
        assert all(one in told for one in shown)
        assert list(chip.values()) == [float(one.split(": ")[1]) for one in shown]
        assert f"with {len(lengths)} chats of {lengths[0]} tokens in {seconds * 1e3:.0f} ms" in told
        T, D, *_ = visible.GRADED_PACKED
        assert f"T = {T} and D = {D}, there are 350 operations and 128 KiB" in self.told("packed")
        (T,), W, K, *_ = visible.GRADED_EXTEND
        graded = f"T = {T}, W = {W} and K = V = {K}, there are 1,200 operations"
        assert graded in self.told("extend") and "384 KiB" in self.told("extend")

    def test_a_window_of_2048_keeps_and_takes_what_the_page_says(self):
        visible, probe = self.load("test_griffin"), self.load("probe")
        kept, step = probe.told_window(
            visible.real("h200"), visible.RECURRENTGEMMA, [8192] * 206, 2048
        )
        chat = recurrentgemma(8192)
        assert kept == 206 * chat.total
        right = decode_seconds(CHIPS["h200"], 206, chat.total + chat.recurrent, 2.68e9)
        assert abs(step - right) < 1e-12

    def test_the_readme_has_the_points_and_the_sizes_that_are_graded(self, solved):
        readme = (self.solutions() / "README.md").read_text()
        for function in self.functions:
            own = [row.max for row in solved.tests if row.name.startswith(f"test_{function}")]
            line = next(line for line in readme.splitlines() if line.startswith(f"| `{function}("))
            assert float(line.split("|")[3]) == sum(own), function
        visible = self.load("test_griffin")
        T, D, *_ = visible.GRADED_PACKED
        assert 16 * 4 * T * D == 128 * 1024 and T > 350
        assert f"{4 * T * D:,} bytes" in readme and f"{4 * T * T:,}" in readme
        (T,), W, *_ = visible.GRADED_EXTEND
        assert f"{4 * T * 2 * W:,} bytes" in readme
        assert 4 * T * (T + W) > 384 * 1024 > 8 * 4 * T * 2 * W and T > 1200 / 5
        assert f"{4 * T * (T + W):,}" in readme and f"{384 * 1024:,}" in readme

    def test_the_librarys_own_are_closed(self, tmp_path):
        cheat = (
            "def widest(chip, model, lengths, seconds):\n"
            "    from weft.plan.griffin import sequence_bytes\n"
            "    return sequence_bytes(1, 1, 1, 1, 1, 1, 1)\n"
            "def packed(x, log_a, begins, initial=None):\n"
            "    from weft.ref.griffin import scan\n"
            "    return scan(log_a.exp()[None], x[None], initial)[0]\n"
            "def extend(q, k, v, keys, values, first, slope):\n"
            "    from weft.ref.attention import attention\n"
            "    return attention(q, k, v)\n"
        )
        closed = ("test_widest_memory", "test_packed", "test_extend")
        self.closed(tmp_path, cheat, closed, only="widest,packed,extend")
