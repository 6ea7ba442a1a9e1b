"""Functions that ask: one answer for all, in the same passes whatever the timing."""

import random
import threading
import time

import pytest

from bagwise.compute.optim import Lockstep


def climbs(steps, seed):
    chance = random.Random(seed)

    def climb(label):
        time.sleep(0.002 * chance.random())
        first = steps.ask((label, 0))
        inner = steps.each(
            [lambda k=k: sum(steps.ask((label, k, i)) for i in range(k + 1)) for k in range(3)]
        )
        return first, inner, steps.ask((label, "end"))

    return [lambda l=l: climb(l) for l in range(4)]


@pytest.mark.parametrize("seed", range(5))
def test_passes_do_not_depend_on_timing(seed):
    passes = []

    def answer(questions):
        passes.append(questions)
        return [len(question) for question in questions]

    steps = Lockstep(answer)
    found = steps.each(climbs(steps, seed))
    assert found == [(2, [3, 6, 9], 2)] * 4
    assert [len(questions) for questions in passes] == [4, 12, 8, 4, 4]
    assert passes[1] == [(l, k, 0) for l in range(4) for k in range(3)]


def test_errors_end_all_threads():
    before = threading.active_count()
    steps = Lockstep(lambda questions: questions)

    def wrong():
        steps.ask(1)
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        steps.each([*climbs(steps, 0), wrong])

    def no_answer(questions):
        raise OSError("a part cannot be read")

    unanswered = Lockstep(no_answer)
    with pytest.raises(OSError, match="cannot be read"):
        unanswered.each(climbs(unanswered, 0))
    assert threading.active_count() == before
    assert steps.each([]) == []
