"""The model that a job names, and one line for what is wrong with it."""

import os

import pytest
import torch

from heterps.errors import HeterPSError, InputError, ModelError, UnknownNameError
from heterps.models.load import load_model

GOOD = """
from dataclasses import dataclass

from torch import nn

from heterps.models.chain import Chain
from heterps.models.embedding import SparseEmbedding
from heterps.models.layers import LogLoss


@dataclass
class Sizes:
    dim: int


def build(slots, dim=2, hidden=None):
    sizes = Sizes(dim)
    width = len(slots) * sizes.dim
    embedding = SparseEmbedding(slots, dim)
    return Chain([("embedding", embedding), ("out", nn.Linear(width, 1)), ("loss", LogLoss())])


def other(**anything):
    return build(["C1"], anything["dim"])
"""


@pytest.fixture
def write(tmp_path):
    def written(text, name="my.py"):
        (tmp_path / name).write_text(text)
        return tmp_path

    return written


class TestZoo:
    def test_sizes_are_arguments(self):
        chain = load_model({"zoo": "ctrdnn", "args": {"slots": ["a"], "dense": 2, "hidden": [3]}})
        assert chain.get_parameter("fc1.weight").shape == (3, 18)

    @pytest.mark.parametrize("args", [None, {}])
    def test_without_arguments_it_is_as_it_stands(self, args):
        assert len(load_model({"zoo": "ctrdnn", "args": args}).layers) == 16

    def test_what_the_job_knows_fills_in_what_is_not_said(self):
        defaults = {"slots": ["a", "b"], "dense": 1, "unheard_of": 3}
        chain = load_model({"zoo": "ctrdnn", "args": {"dense": 0}}, defaults=defaults)
        assert chain.get_parameter("fc1.weight").shape == (512, 32)

    def test_what_the_job_says_elsewhere_has_to_be_known(self, write):
        said = {"pooling": ("data.sparse[1].pooling", {"b": "mean"})}
        chain = load_model({"zoo": "ctrdnn"}, defaults={"slots": ["a", "b"]}, said=said)
        assert chain.row_layers["embedding"].means == (False, True)
        with pytest.raises(InputError, match=r"data\.sparse\[1\]\.pooling: .*leave this out"):
            load_model({"file": "my.py"}, write(GOOD), defaults={"slots": ["a"]}, said=said)

    @pytest.mark.parametrize(("name", "pooling"), [("matchnet", "mean"), ("nce", "mean")])
    def test_a_history_is_pooled_as_the_job_says(self, name, pooling):
        for said in (None, {"history": "sum"}):
            chain = load_model({"zoo": name, "args": {"pooling": said}})
            if name == "nce":
                assert chain.row_layers["embedding"].means == (said is None,)
            else:
                assert chain.history_pool.mode == ("sum" if said else pooling)

    def test_the_seed_decides_on_the_first_weights_and_nothing_else_does(self):
        def weight(seed):
            torch.rand(1)
            return load_model({"zoo": "nce"}, seed=seed).get_parameter("project.weight")

        assert torch.equal(weight(1), weight(1))
        assert not torch.equal(weight(1), weight(2))

    def test_an_unknown_name_suggests_the_nearest(self):
        with pytest.raises(UnknownNameError, match=r"model\.zoo: .*did you mean 'ctrdnn'"):
            load_model({"zoo": "ctrdn"})

    def test_an_unknown_argument_suggests_the_nearest(self):
        with pytest.raises(UnknownNameError, match=r"model\.args\.hiden: .*did you mean 'hidden'"):
            load_model({"zoo": "ctrdnn", "args": {"hiden": [3]}})

    def test_a_bad_argument_is_named_by_its_path(self):
        with pytest.raises(InputError, match=r"^model\.args\.dim: expected 1 or more, got 0"):
            load_model({"zoo": "ctrdnn", "args": {"dim": 0}})

    def test_an_argument_of_another_type_is_one_line(self):
        with pytest.raises(ModelError, match=r"^model 'ctrdnn': TypeError: 'int' object"):
            load_model({"zoo": "ctrdnn", "args": {"hidden": 3}})


class TestFile:
    def test_a_function_of_a_file_beside_the_job(self, write):
        document = {"file": "my.py", "args": {"slots": ["C1", "C2"]}}
        chain = load_model(document, write(GOOD))
        assert chain.get_parameter("out.weight").shape == (1, 4)

    def test_another_function_with_any_arguments(self, write):
        document = {"file": "my.py", "function": "other", "args": {"dim": 5}}
        assert load_model(document, write(GOOD)).tables == {"default": 5}

    def test_a_path_without_a_folder_is_relative_to_here(self, write, monkeypatch):
        monkeypatch.chdir(write(GOOD))
        assert load_model({"file": "my.py", "args": {"slots": ["C1"]}}).names[0] == "embedding"
        broken = write("def build():\n    raise OSError('no such thing')\n", "broken.py")
        with pytest.raises(ModelError, match=r"^broken\.py:2: OSError: no such thing"):
            load_model({"file": "broken.py"})
        assert broken.samefile(os.curdir)

    def test_a_missing_argument_is_named(self, write):
        with pytest.raises(InputError, match=r"model\.args\.slots: is missing; .*my.py: build"):
            load_model({"file": "my.py"}, write(GOOD))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("def build():\n    x = 1\n    return x / 0\n", r"my\.py:3: ZeroDivisionError: "),
            ("def build():\n    f()\ndef f():\n    raise KeyError\n", r"my\.py:4: KeyError$"),
            ("import nothing_like_it\n", r"my\.py:1: ModuleNotFoundError: No module"),
            ("x = 1\ndef build(:\n", r"my\.py:2: is not Python"),
            ("def build():\n    return [1, 2]\n", r"my\.py: build: returned \[1, 2\]; expected"),
            ("def buidl():\n    return 1\n", r"model\.function: .*did you mean 'buidl'"),
            ("build = 3\n", r"model\.function: unknown function"),
            (
                "from heterps.models.chain import Chain\n\ndef build():\n    return Chain([])\n",
                r"my\.py:4: layers: the chain is empty",
            ),
        ],
    )
    def test_what_fails_is_one_line_with_its_place(self, write, text, message):
        folder = write(text)
        with pytest.raises(HeterPSError, match=message) as caught:
            load_model({"file": "my.py"}, folder)
        assert "\n" not in str(caught.value)

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(InputError, match=r"model\.file: there is no file .*my\.py"):
            load_model({"file": "my.py"}, tmp_path)

    def test_a_file_that_is_not_python(self, write):
        with pytest.raises(InputError, match=r"model\.file: expected a Python file"):
            load_model({"file": "my.txt"}, write("x", "my.txt"))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("ctrdnn", "model: expected a mapping"),
        ({}, "model: expected either 'zoo'"),
        ({"zoo": "nce", "file": "my.py"}, "model: expected either 'zoo'"),
        ({"zoo": "nce", "function": "f"}, r"model\.function: a model of the zoo has none"),
        ({"zoo": 3}, r"model\.zoo: expected a text, got 3"),
        ({"zoo": "nce", "args": [1]}, r"model\.args: expected a mapping"),
        ({"zoo": "nce", "arg": {}}, r"model\.arg: .*did you mean 'args'"),
    ],
)
def test_documents_that_are_no_model(document, message):
    with pytest.raises(InputError, match=message):
        load_model(document)
