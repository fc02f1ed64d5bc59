"""From patterns to coordinates: what a plan's layers mean for guides, families and networks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.guide_models import vae, vae_guide
from support.small_models import location_model

from dpvi.declared.clipping import PerLayer, QuantileClipping
from dpvi.families import MeanField
from dpvi.families.guide import GuideFamily
from dpvi.gradients import Aligned, Natural, Preconditioned, Vanilla
from dpvi.gradients.guided import Guided
from dpvi.gradients.named_layers import release_layers
from dpvi.models.functions import from_functions
from dpvi.models.numpyro.guides import GuidedModel
from dpvi.models.numpyro.guides.parameters import Parameters

TWO = from_functions(lambda z: jnp.zeros(()), lambda z, x: jnp.zeros(()), {"slope": (3,), "scale": ()})


def test_only_layers_cut_a_release():
    for clipping in (None, QuantileClipping()):
        assert release_layers(clipping, TWO, MeanField(), Vanilla()) is None


def test_sites_of_a_model_once_for_every_draw():
    layers = release_layers(PerLayer({"scale": 1.0, "*": 2.0}), TWO, MeanField(), Aligned(num_draws=2))
    assert layers.clip_norms == (1.0, 2.0)
    np.testing.assert_array_equal(layers.labels(8), [1, 1, 1, 0, 1, 1, 1, 0])


def test_parameters_of_guide_and_model():
    ready = GuidedModel(vae, vae_guide, jax.ShapeDtypeStruct((5,), jnp.dtype("float32")))
    family = GuideFamily(tuple(ready.parameters.describe()), ready)
    layers = release_layers(PerLayer({"encoder": 1.0, "decoder": 2.0, "*": 3.0}), ready, family, Guided())
    names = [name for name, size in ready.parameters.arrays() for _ in range(size)]
    assert len(names) == ready.num_parameters
    expected = [{"encoder": 0, "decoder": 1}.get(name, 2) for name in names]
    np.testing.assert_array_equal(layers.labels(len(names)), expected)
    # the coordinates of a layer are those that its parameters have in ξ
    xi = jnp.arange(float(ready.num_parameters))
    encoder = np.flatnonzero(layers.labels(len(names)) == 0)
    np.testing.assert_array_equal(ready.parameters.constrain(xi)["encoder"].reshape(-1), encoder)


def test_leaves_of_a_network_have_paths_for_names():
    values = {"net$params": {"Dense_0": {"kernel": jnp.zeros((2, 3)), "bias": jnp.zeros(3)}}, "gain": jnp.zeros(())}
    real = jax.tree.map(lambda _: None, values)
    from numpyro.distributions import constraints

    arrays = Parameters(values, dict.fromkeys(real, constraints.real)).arrays()
    assert arrays == [("net$params/Dense_0/bias", 3), ("net$params/Dense_0/kernel", 6), ("gain", 1)]


@pytest.mark.parametrize("estimator", [Vanilla(), Preconditioned(), Natural()], ids=lambda e: type(e).__name__)
def test_estimators_without_names_are_refused(estimator):
    with pytest.raises(ValueError, match=rf"{type(estimator).__name__}\(\) .* Use Aligned\(\)"):
        release_layers(PerLayer({"*": 1.0}), TWO, MeanField(), estimator)


def test_models_without_names_are_refused():
    class Nameless:
        dimension = 2

    with pytest.raises(ValueError, match="names its parameters"):
        release_layers(PerLayer({"*": 1.0}), Nameless(), MeanField(), Aligned())


def test_a_pattern_that_fits_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing left for"):
        release_layers(PerLayer({"*": 1.0, "slope": 2.0}), location_model(), MeanField(), Aligned())
