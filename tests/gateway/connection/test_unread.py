import pytest

from headstart.gateway.connection.unread import NS_PER_S, ReaderWatch, Wait

START_NS = 5 * NS_PER_S


def problem(wait: Wait, waited_s: float, unread_s: float | None) -> str | None:
    """Of a reader that has waited so long, with a message there for so long."""
    watch, now_ns = ReaderWatch(), START_NS + round(waited_s * NS_PER_S)
    watch.waits(wait, START_NS)
    unread_ns = None if unread_s is None else now_ns - round(unread_s * NS_PER_S)
    return watch.problem(unread_ns, now_ns)


def test_who_waits_for_a_client_may_wait_for_ever() -> None:
    """With nothing to read; and with something for a moment: its task has yet to be run."""
    assert problem(Wait.MESSAGE, 1e6, None) is None
    assert problem(Wait.MESSAGE, 1e6, 19.0) is None


def test_a_message_that_is_there_has_to_be_read() -> None:
    """It counts from when both were there, the message and the reader that waits for one."""
    assert problem(Wait.MESSAGE, 1e6, 21.0) == "a message was not read for 21 s"
    assert problem(Wait.MESSAGE, 19.0, 100.0) is None


@pytest.mark.parametrize("wait", [Wait.PARSER, Wait.PICTURES])
def test_work_on_other_threads_has_an_end(wait: Wait) -> None:
    """Whether further messages wait or not."""
    assert problem(wait, wait.most_s - 1, 1e6) is None
    said = problem(wait, wait.most_s + 1, None)
    assert said == f"the reader waited {wait.most_s + 1:.0f} s for {wait.what}"


def test_who_goes_on_is_left_alone() -> None:
    """What else may hold a reader back is no concern here: a busy engine, its share of the loop."""
    watch = ReaderWatch()
    assert watch.problem(0, 10**18) is None
    watch.waits(Wait.PARSER, START_NS)
    watch.goes_on()
    assert watch.problem(0, 10**18) is None
