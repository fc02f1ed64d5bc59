"""Which categories of a formula get a column for every level, and which one fewer.

A category spans a constant. Where something before it in the formula spans that already, its contrast is enough, and
one column more would add nothing. Written out, a term spans every product of its numbers with some of its contrasts:
``a:b`` spans a⁻b⁻, a⁻, b⁻ and 1. What is spanned before is taken away, and what is left is put together again by

    (rest)(a⁻) + (rest) = (rest)(a with all levels).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple


class Scoped(NamedTuple):
    """A factor by its text, ``reduced`` where its contrast is meant."""

    factor: str
    reduced: bool


Product = tuple[Scoped, ...]


def scoped_terms(terms: Sequence[Sequence[str]], categories: set[str], intercept: bool) -> list[list[Product]]:
    """For each term the products of factors that its columns are made of.

    Examples
    --------
    >>> for term in scoped_terms([["a"], ["a", "b"]], {"a", "b"}, intercept=True):
    ...     print(term)
    [(Scoped(factor='a', reduced=True),)]
    [(Scoped(factor='a', reduced=False), Scoped(factor='b', reduced=True))]
    """
    spanned: set[frozenset[Scoped]] = {frozenset()} if intercept else set()
    found = []
    for term in terms:
        choices = [
            [(Scoped(factor, True),), ()] if factor in categories else [(Scoped(factor, False),)] for factor in term
        ]
        products = [tuple(itertools.chain(*choice)) for choice in itertools.product(*choices)]
        new = [product for product in products if frozenset(product) not in spanned]
        spanned |= {frozenset(product) for product in new}
        found.append(_put_together(new))
    return found


def _put_together(products: Sequence[Product]) -> list[Product]:
    """The fewest products with the same span."""
    kept: list[Product] = []
    for product in sorted(products, key=len):
        partner = next((each for each in kept if _wider(product, each) is not None), None)
        if partner is None:
            kept.append(product)
            continue
        wider = _wider(product, partner)
        assert wider is not None
        kept = _put_together([*(each for each in kept if each is not partner), wider])
    return kept


def _wider(product: Product, smaller: Product) -> Product | None:
    """``product`` with all levels of the one reduced factor by which it differs from ``smaller``, if it does so."""
    further = [each for each in product if each not in smaller]
    if len(further) != 1 or len(product) != len(smaller) + 1 or not further[0].reduced:
        return None
    return tuple(Scoped(each.factor, False) if each is further[0] else each for each in product)
