import pytest

from heterps.errors import InputError
from heterps.job.catalog import catalog
from heterps.job.resources import Cluster, ResourceType


def unit(**fields):
    return ResourceType.parse({"limit": 4} | fields)


def test_every_entry_names_its_sources_and_whose_price_it_has():
    assert {"xeon-6271c", "v100", "a100", "t4", "l4", "h100", "kunlun-k200"} <= catalog().keys()
    for entry in catalog().values():
        assert entry.sources
        assert entry.price_from


def test_the_prices_of_the_paper_are_the_papers():
    assert (unit(catalog="xeon-6271c").price_per_hour, unit(catalog="v100").price_per_hour) == (
        0.04,
        2.42,
    )


def test_a_type_of_the_catalogue_has_its_name_device_memory_and_hardware():
    found = unit(catalog="v100")
    assert (found.name, found.device, found.memory_gib) == ("v100", "cuda", 32)
    assert found.hardware.memory_bytes_per_s == 9e11


def test_what_the_job_says_counts_before_the_catalogue():
    given = {"name": "gpu", "price_per_hour": 1.0, "hardware": {"efficiency": 0.6}}
    found = unit(catalog="v100", **given)
    assert (found.name, found.price_per_hour, found.hardware.efficiency) == ("gpu", 1.0, 0.6)
    assert found.hardware.peak_flops == catalog()["v100"].hardware.peak_flops


def test_a_filled_type_reads_back_as_it_was():
    found = unit(catalog="l4", hardware={"beta": 0.5})
    assert ResourceType.parse(found.as_document()) == found


def test_an_unknown_entry_suggests_the_nearest():
    document = {"types": [{"catalog": "v10", "limit": 1}]}
    with pytest.raises(InputError, match=r"types\[0\].catalog: unknown .* did you mean 'v100'"):
        Cluster.parse(document)


def test_a_type_without_a_known_price_has_to_be_given_one():
    with pytest.raises(InputError, match=r"price_per_hour: is missing, and the catalogue has none"):
        unit(catalog="kunlun-k200")
    assert unit(catalog="kunlun-k200", price_per_hour=1.3).price_per_hour == 1.3
