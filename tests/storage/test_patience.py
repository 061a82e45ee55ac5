import threading

import pytest

from heterps.errors import InputError
from heterps.storage.patience import Ahead, Patience, waits_for_servers

QUICK = Patience(total_s=0.2, attempt_s=0.05, first_s=0.01, most_s=0.02)


class PanicException(BaseException):
    """Of native code, as its bindings raise it."""


def failing(times: int, error: BaseException):
    left = [error] * times

    def action() -> str:
        if left:
            raise left.pop()
        return "there"

    return action


@pytest.mark.parametrize("error", [RuntimeError("DataNode"), OSError(5, "503"), TimeoutError()])
def test_what_fails_for_a_while_is_tried_again(error: Exception):
    assert Patience(first_s=0.01).persist(failing(3, error), "hdfs://h/a") == "there"


@pytest.mark.parametrize("kind", [FileNotFoundError, PermissionError])
def test_what_will_not_change_is_raised_at_once(kind: type[OSError]):
    action = failing(1, kind("no"))
    with pytest.raises(kind):
        Patience().persist(action, "hdfs://h/a")
    assert action() == "there"  # it was tried once


def repr_of(kind: str, text: str) -> str:
    """As Rust shows it for debugging."""
    escaped = text.replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'RPCError("{kind}", "{escaped}")'


DENIED = 'Permission denied: user=me, access=READ, inode="/a":you:you:----------'
SECURITY = "org.apache.hadoop.security"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"RPC error: {SECURITY}.AccessControlException: {DENIED}\n\tat a.B.c(B.java:3)", DENIED),
        (f"RPC error: {SECURITY}.AccessControlException\n{DENIED}", DENIED),
        (repr_of(f"{SECURITY}.AccessControlException", f"{DENIED}\n\tat a.B.c(B.java:3)"), DENIED),
        (f"{SECURITY}.authorize.AuthorizationException: not to be me", "not to be me"),
        (f"{SECURITY}.token.SecretManager$InvalidToken: has expired", "has expired"),
    ],
)
def test_a_refusal_of_hdfs_is_raised_at_once(text: str, said: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    with pytest.raises(PermissionError) as raised:
        Patience().persist(failing(1, RuntimeError(text)), "hdfs://h/a")
    assert raised.value.strerror == said
    monkeypatch.setenv("HADOOP_USER_NAME", "me")
    with pytest.raises(PermissionError, match="HADOOP_USER_NAME is 'me': "):
        Patience().persist(failing(1, RuntimeError(text)), "hdfs://h/a")


def test_what_comes_from_below_a_refusal_is_none():
    text = "org.apache.hadoop.ipc.RetriableException: busy\n\tat x.AccessControlException.y(X.java)"
    assert Patience(first_s=0.01).persist(failing(1, RuntimeError(text)), "hdfs://h/a") == "there"


def test_the_end_of_patience_names_the_file_and_the_cause():
    with pytest.raises(InputError, match=r"^hdfs://h/a: cannot be reached, tried .*\(no node\)"):
        QUICK.persist(failing(1000, RuntimeError("no\nnode")), "hdfs://h/a")


def test_an_answer_that_does_not_come_is_given_up():
    never, answers = threading.Event(), []

    def action() -> str:
        answers.append(1)
        if len(answers) == 1:
            never.wait()
        return "there"

    assert Patience(attempt_s=0.2, first_s=0.01).persist(action, "hdfs://h/a") == "there"
    never.set()


def test_what_stands_none_beside_it_is_waited_for_and_not_begun_again():
    answered, attempts = threading.Event(), []

    def action() -> None:
        attempts.append(1)
        answered.wait()

    with pytest.raises(InputError, match=r"^hdfs://h/a: cannot be reached, tried .*no answer in"):
        QUICK.persist(action, "hdfs://h/a", alone=True)
    answered.set()
    assert attempts == [1]


def test_what_stands_none_beside_it_is_tried_again_after_an_error():
    action = failing(3, TimeoutError())
    assert Patience(first_s=0.01).persist(action, "hdfs://h/a", alone=True) == "there"


def test_work_ahead_gives_its_result_or_its_error():
    assert Ahead(lambda: 7).result() == 7
    with pytest.raises(ValueError, match="no"):
        Ahead(failing(1, ValueError("no"))).result()


def test_a_panic_of_native_code_is_an_error_with_its_text():
    panic = PanicException("index 3 is out of range")
    with pytest.raises(OSError, match=r"^PanicException: index 3 is out of range$"):
        Ahead(failing(1, panic)).result()
    assert Patience(first_s=0.01).persist(failing(1, panic), "hdfs://h/a") == "there"
    with pytest.raises(InputError, match=r"tried .*\(PanicException: index 3 is out of range\)"):
        QUICK.persist(failing(1000, panic), "hdfs://h/a")


def test_a_large_file_takes_its_time():
    patience = Patience(total_s=60, attempt_s=30).for_bytes(10 << 20)
    assert (patience.attempt_s, patience.total_s) == (40, 70)
    assert Patience(attempt_s=None).for_bytes(10 << 20) == Patience(attempt_s=None)


def test_a_process_knows_that_it_waits_for_servers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("heterps.storage.patience._QUICK_S", 0.0)
    monkeypatch.setattr("heterps.storage.patience._calls", set())  # threads of other tests may wait
    assert not waits_for_servers()
    assert QUICK.persist(waits_for_servers, "url")
    assert not waits_for_servers()
