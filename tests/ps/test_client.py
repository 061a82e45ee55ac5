import threading
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from heterps.errors import InputError, NotCommittedError, ServerError, UnknownNameError
from heterps.ps.client import Client
from heterps.ps.initial import Uniform
from heterps.ps.precision import decode_rows, encode_rows
from heterps.ps.processes import registrations, start_servers
from heterps.ps.protocol import DenseSpec, TableSpec
from heterps.ps.rules import RULES
from heterps.ps.table import SparseTable
from heterps.testing.servers import serving
from heterps.wire.keys import create_key, read_key

DIM = 5


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three servers on ipc and tcp."""
    folder = tmp_path_factory.mktemp("run")
    create_key(folder)
    with start_servers(folder, 3, listen="127.0.0.1") as found:
        yield folder, found


@pytest.fixture(params=["ipc", "tcp"])
def client(run, request):
    folder, found = run
    index = 0 if request.param == "ipc" else 1
    with Client([r.addresses[index] for r in found], read_key(folder), timeout_s=20) as client:
        yield client


@pytest.fixture
def table(client, request):
    return client.create_table(_name(request), TableSpec(dim=DIM, seed=3))


def _name(request) -> str:
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[-100:].strip("-.")


def grads_of(rng: np.random.Generator, rows: int, dim: int = DIM) -> np.ndarray:
    return rng.normal(size=(rows, dim)).astype(np.float32)


def in_process(spec: TableSpec) -> SparseTable:
    rule = RULES[spec.rule]() if spec.lr is None else RULES[spec.rule](lr=spec.lr)
    return SparseTable(spec.dim, rule, seed=spec.seed, initial=Uniform(spec.scale))


# -- verbs


def test_unseen_ids_have_their_initial_rows(table):
    ids = np.array([7, -1, 7, 2**63 - 1])
    np.testing.assert_array_equal(table.pull(ids), in_process(table.spec).pull(ids))
    assert len(table) == 0


def check_promise_of_distinct_ids(remote):
    ids, local = np.random.default_rng(6).permutation(300), in_process(remote.spec)
    for table, promise in ((remote, {"distinct": True}), (local, {})):
        rng = np.random.default_rng(5)
        table.push(ids, grads_of(rng, 300), **promise)
        table.accumulate(0, (0, 0), ids[:200], grads_of(rng, 200), **promise)
        table.announce(0, 1)
    np.testing.assert_array_equal(remote.pull(ids, 1, distinct=True), local.pull(ids))


def test_ids_promised_to_be_distinct_give_the_same(table):
    check_promise_of_distinct_ids(table)


@pytest.mark.parametrize("tcp", [False, True])
def test_ids_promised_to_be_distinct_give_the_same_of_one_server(tmp_path, tcp):
    with serving(tmp_path, tcp=tcp) as client:
        check_promise_of_distinct_ids(client.create_table("t", TableSpec(dim=DIM, seed=9)))


def test_pulled_rows_are_the_callers_while_it_has_them_or_a_view_of_them(tmp_path):
    with serving(tmp_path) as client:
        table, pool = client.create_table("t", TableSpec(dim=DIM, seed=9)), client.link(0).pool
        held = [table.pull(np.arange(n, n + 900), distinct=True) for n in range(0, 9000, 900)]
        expected = in_process(table.spec).pull(np.arange(9000))
        np.testing.assert_array_equal(np.concatenate(held), expected)
        view = held[3][5:7]
        held.clear()
        for _ in range(30):
            pool.take("f4", (900, DIM)).array[...] = 7
        np.testing.assert_array_equal(view, expected[2705:2707])


def test_memory_shared_with_a_server_does_not_grow_from_pull_to_pull(tmp_path):
    with serving(tmp_path) as client:
        table = client.create_table("t", TableSpec(dim=DIM, seed=9))
        for _ in range(40):
            rows = table.pull(np.arange(20_000), distinct=True)
        assert len(rows) == 20_000
        assert client.link(0).pool.take("u1", (1,)).segment == 1


@pytest.mark.parametrize("rule", sorted(RULES))
def test_training_through_servers_equals_a_table_in_process(client, request, rule):
    rng = np.random.default_rng(0)
    spec = TableSpec(dim=DIM, rule=rule, lr=0.1, seed=9)
    remote, local = client.create_table(_name(request), spec), in_process(spec)
    for size in (50, 0, 1, 200):
        ids, grads = rng.integers(-30, 30, size), grads_of(rng, size)
        remote.push(ids, grads, 0.2 if size == 50 else None)
        local.push(ids, grads, 0.2 if size == 50 else None)
    everything = np.arange(-40, 40)
    assert remote.pull(everything).tobytes() == local.pull(everything).tobytes()
    assert (len(remote), remote.step) == (len(local), 4)


def test_a_large_batch_finds_room(table):
    rng = np.random.default_rng(1)
    ids, local = rng.integers(0, 10**6, 3000), in_process(table.spec)
    for _ in range(2):
        grads = grads_of(rng, len(ids))
        table.push(ids, grads)
        local.push(ids, grads)
        np.testing.assert_array_equal(table.pull(ids), local.pull(ids))


def test_rows_go_into_the_callers_memory(table):
    out = np.zeros((2, DIM), np.float32)
    assert table.pull([1, 2], out=out) is out
    np.testing.assert_array_equal(out, in_process(table.spec).pull([1, 2]))


def test_no_ids_give_no_rows(table):
    assert table.pull([]).shape == (0, DIM)
    table.prefetch([])


@pytest.mark.slow
def test_torch_tensors_are_taken(table):
    torch = pytest.importorskip("torch")
    ids = torch.tensor([4, 5])
    table.push(ids, torch.ones(2, DIM))
    assert table.pull(ids).shape == (2, DIM)


def test_prefetch_changes_nothing(table):
    table.prefetch(np.arange(100))
    assert (len(table), table.step) == (0, 0)


def test_the_learning_rate_can_be_set(table):
    table.lr = 0.0
    assert table.lr == 0.0
    before = table.pull([1])
    table.push([1], np.ones((1, DIM), np.float32))
    np.testing.assert_array_equal(table.pull([1]), before)


def test_a_table_is_created_once_and_found_again(client, table):
    assert client.create_table(table.name, table.spec).name == table.name
    assert client.table(table.name).spec == table.spec
    with pytest.raises(InputError, match="exists as"):
        client.create_table(table.name, TableSpec(dim=DIM + 1))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (TableSpec(dim=0), "dim"),
        (TableSpec(dim=4, rule="sdg"), "did you mean 'sgd'"),
        (TableSpec(dim=4, initial="zeroes"), "did you mean 'zeros'"),
        (TableSpec(dim=4, lr=float("nan")), "lr"),
        (TableSpec(dim=4, options={"speed": 1.0}), "speed"),
        (TableSpec(dim=4, admission=-1), "admission"),
    ],
)
def test_a_spec_that_makes_no_sense_is_named(client, spec, problem):
    with pytest.raises(InputError, match=problem):
        client.create_table("never", spec)


@pytest.mark.parametrize("name", ["", "../up", ".hidden", "a/b", "x" * 101])
def test_names_of_tables_are_plain(client, name):
    with pytest.raises(InputError, match="name"):
        client.create_table(name, TableSpec(dim=2))


def test_an_unknown_table_is_named(client):
    with pytest.raises(InputError, match="unknown table 'nothing'"):
        client.table("nothing")


def test_wrong_arguments_are_named_before_anything_is_sent(table):
    with pytest.raises(InputError, match="grads: expected shape"):
        table.push([1], np.ones((1, DIM + 1), np.float32))
    with pytest.raises(InputError, match="ids: expected int64"):
        table.pull(np.array([1.5]))
    with pytest.raises(InputError, match="lr"):
        table.push([1], np.ones((1, DIM), np.float32), lr=float("nan"))
    assert table.step == 0


def test_several_pulls_are_under_way_at_once(table):
    local = in_process(table.spec)
    asked = [np.arange(n, n + 50) for n in range(100)]
    futures = [table.pull_async(ids) for ids in asked]
    assert all(isinstance(future, Future) for future in futures)
    for ids, future in zip(asked, futures, strict=True):
        np.testing.assert_array_equal(future.result(20), local.pull(ids))


def test_several_threads_share_a_client(table):
    def work(seed: int) -> None:
        for _ in range(20):
            table.push([seed], np.ones((1, DIM), np.float32))
            table.pull(np.arange(seed, seed + 30))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (table.step, len(table)) == (100, 5)


def test_stats_add_up_over_the_shards(client, table):
    table.push(np.arange(100), np.ones((100, DIM), np.float32))
    assert table.stats()["rows"] == 100
    assert [server["shard"] for server in client.stats()] == [0, 1, 2]


# -- synchronous mode


def test_parts_in_any_order_from_several_clients_commit_to_the_same_bits(run, client, request):
    folder, found = run
    rng = np.random.default_rng(5)
    spec = TableSpec(dim=DIM, rule="adam", lr=0.1, seed=2)
    remote, local = client.create_table(_name(request), spec), in_process(spec)
    with Client([r.addresses[0] for r in found], read_key(folder)) as second:
        senders = [remote, second.table(remote.name)]
        for batch in range(4):
            parts = [
                ((m, layer), rng.integers(0, 20, 30), grads_of(rng, 30))
                for m in range(4)
                for layer in range(2)
            ]
            local.announce(batch, len(parts))
            for part, ids, grads in parts:
                local.accumulate(batch, part, ids, grads)
            shuffled = [*parts, *parts[:3]]
            rng.shuffle(shuffled)
            for index, (part, ids, grads) in enumerate(shuffled):
                senders[index % 2].accumulate(batch, part, ids, grads)
                if index == 3:
                    senders[0].announce(batch, len(parts))
    everything = np.arange(25)
    assert remote.pull(everything, batch=4).tobytes() == local.pull(everything).tobytes()
    assert (remote.committed, remote.step) == (3, 4)


def test_a_repeated_part_is_not_taken(table):
    ones = np.ones((1, DIM), np.float32)
    assert table.accumulate(0, (0, 0), [1], ones) is True
    assert table.accumulate(0, (0, 0), [1], ones) is False


def test_a_pull_waits_for_the_batches_before_it(table):
    waiting = table.pull_async([1], batch=1)
    table.accumulate(0, (0, 0), [1], np.ones((1, DIM), np.float32))
    assert not waiting.done()
    table.announce(0, 1)
    np.testing.assert_array_equal(waiting.result(20), table.pull([1]))


def test_any_number_of_pulls_that_wait_leaves_room_for_the_batch_they_wait_for(table):
    ids = np.arange(40)  # of every shard
    waiting = [table.pull_async(ids, batch=1) for _ in range(300)]
    table.accumulate(0, (0, 0), [1], np.ones((1, DIM), np.float32), parts=1)
    after = table.pull(ids)
    assert all(np.array_equal(pull.result(20), after) for pull in waiting)


def test_a_pull_of_no_ids_waits_as_well(table):
    waiting = table.pull_async([], batch=1)
    table.announce(0, 1)
    assert not waiting.done()
    table.accumulate(0, (0, 0), [1], np.ones((1, DIM), np.float32))
    assert waiting.result(20).shape == (0, DIM)


@pytest.mark.slow
def test_a_pull_that_waits_in_vain_ends_at_its_deadline(table):
    with pytest.raises(NotCommittedError, match="pull for batch 5: only batch -1 has committed"):
        table.pull([1], batch=5, timeout_s=3)
    table.push([1], np.ones((1, DIM), np.float32))
    assert len(table) == 1


def test_rows_beyond_a_memory_budget_are_the_same_through_servers(client, request, tmp_path):
    rng = np.random.default_rng(3)
    name, ids = _name(request), np.arange(20_000)
    roomy = TableSpec(dim=16, seed=4)
    tight = replace(roomy, memory_bytes=400_000, path=str(tmp_path))
    pair = [client.create_table(f"{name}-{i}", spec) for i, spec in enumerate((roomy, tight))]
    for _ in range(3):
        chosen = rng.integers(0, len(ids), 10_000)
        grads = grads_of(rng, len(chosen), 16)
        for table in pair:
            table.prefetch(chosen)
            table.push(chosen, grads)
    assert pair[0].pull(ids).tobytes() == pair[1].pull(ids).tobytes()
    assert pair[1].stats()["cold_rows"] > 0


# -- dense tensors


def test_a_dense_tensor_is_trained_on_its_shard(client, request):
    start = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = client.create_tensor(_name(request), start, DenseSpec(rule="sgd", lr=0.5))
    np.testing.assert_array_equal(tensor.pull(), start)
    tensor.push(np.ones((2, 3), np.float32))
    tensor.push(np.ones((2, 3), np.float32), lr=1.0)
    np.testing.assert_array_equal(tensor.pull(), start - 1.5)
    same = client.create_tensor(tensor.name, start, DenseSpec(rule="sgd", lr=0.5))
    np.testing.assert_array_equal(same.pull(), start - 1.5)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("index", [0, 1])
def test_a_dense_tensor_is_not_rounded(run, request, dtype, index):
    folder, found = run
    start = grads_of(np.random.default_rng(0), 3)
    with Client([r.addresses[index] for r in found], read_key(folder), dtype=dtype) as client:
        tensor = client.create_tensor(_name(request), start, DenseSpec(rule="sgd", lr=1.0))
        np.testing.assert_array_equal(tensor.pull(), start)
        tensor.push(start)
        np.testing.assert_array_equal(tensor.pull(), np.zeros_like(start))


# -- precision


@pytest.mark.parametrize(("dtype", "wire"), [("bf16", "bf16"), ("fp16", "f2")])
@pytest.mark.parametrize("index", [0, 1])
def test_rows_and_gradients_travel_rounded(run, request, dtype, wire, index):
    folder, found = run
    addresses = [r.addresses[index] for r in found]
    rng = np.random.default_rng(0)
    ids, grads = np.arange(40), grads_of(rng, 40)
    with Client(addresses, read_key(folder), dtype=dtype) as client:
        table = client.create_table(_name(request), TableSpec(dim=DIM))
        table.push(ids, grads)
        pulled = table.pull(ids)
    local = in_process(table.spec)
    local.push(ids, rounded(grads, "bf16"))
    np.testing.assert_array_equal(pulled, rounded(local.pull(ids), wire))


@pytest.mark.parametrize("size", [1e-9, 1e6])
def test_gradients_that_fp16_cannot_hold_arrive(run, request, size):
    folder, found = run
    addresses = [r.addresses[0] for r in found]
    with Client(addresses, read_key(folder), dtype="fp16") as client:
        spec = TableSpec(dim=DIM, rule="sgd", lr=1 / size, initial="zeros")
        table = client.create_table(_name(request), spec)
        table.push([1, 2], np.full((2, DIM), size, np.float32))
        np.testing.assert_allclose(table.pull([1, 2]), -1, rtol=2**-8)


def rounded(rows: np.ndarray, wire: str) -> np.ndarray:
    out = np.empty(rows.shape, np.float16 if wire == "f2" else np.uint16)
    encode_rows(rows, wire, out)
    return decode_rows(out, wire)


@pytest.mark.slow
def test_bfloat16_is_rounded_as_torch_does_it():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32)
    rows = bits.view(np.float32).reshape(-1, 10)
    ours = rounded(rows, "bf16")
    theirs = torch.from_numpy(rows).to(torch.bfloat16).to(torch.float32).numpy()
    np.testing.assert_array_equal(ours, theirs)


# -- options


def test_unknown_options_are_named(tmp_path):
    with pytest.raises(UnknownNameError, match="unknown precision 'fp8'"):
        Client(["ipc:///x"], bytes(32), dtype="fp8")
    with pytest.raises(InputError, match="addresses: expected 1 to 1024"):
        Client([], bytes(32))
    with pytest.raises(InputError, match="no such run folder"):
        Client.of_run(tmp_path / "none")


def test_encrypted_servers_serve_the_same(tmp_path):
    with serving(tmp_path, 2, tcp=True, encrypt=True) as client:
        table = client.create_table("t", TableSpec(dim=DIM))
        table.push([1, 2], np.ones((2, DIM), np.float32))
        local = in_process(table.spec)
        local.push([1, 2], np.ones((2, DIM), np.float32))
        np.testing.assert_array_equal(table.pull([1, 2]), local.pull([1, 2]))


@pytest.mark.slow
@pytest.mark.parametrize(("known", "encrypt"), [(False, True), (False, False), (True, False)])
def test_encrypted_servers_refuse_other_keys_and_plain_messages(tmp_path, known, encrypt):
    with serving(tmp_path, 1, encrypt=True):
        address = registrations(tmp_path)[0].address
        given = read_key(tmp_path) if known else bytes(32)
        refused = pytest.raises(ServerError, match=r"shard 0 at ipc.*(handshake|refused|no answer)")
        with Client([address], given, encrypt=encrypt, timeout_s=3) as stranger, refused:
            stranger.ping()


def test_a_closed_client_says_so(run):
    folder, _ = run
    client = Client.of_run(folder)
    client.ping()
    client.close()
    with pytest.raises(ServerError, match="closed"):
        client.ping()
