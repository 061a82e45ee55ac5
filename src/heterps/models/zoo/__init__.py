"""Ready models by name. Their structure follows what the literature tells of such models; the
paper's own are not public."""

from collections.abc import Callable

from heterps.models.chain import Chain
from heterps.models.zoo import ctrdnn, matchnet, nce, two_emb

ZOO: dict[str, Callable[..., Chain]] = {
    "ctrdnn": ctrdnn.build,
    "matchnet": matchnet.build,
    "nce": nce.build,
    "two_emb": two_emb.build,
}
