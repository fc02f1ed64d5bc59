"""The page about a result: what stands on it, that it stands alone, and that its controls work in a browser."""

from __future__ import annotations

import re
import warnings

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from support.pages import check_page, in_browser, needs_chromium

import dpvi
from dpvi.reporting import Effect, report_page, write_report
from dpvi.reporting.page.elements import element
from dpvi.reporting.page.forest import axis_bounds, ticks

HOSTILE = '<script>alert("x")</script>'
NAMES = {"w": ["age", HOSTILE, "a & b"]}
CURVE = Effect("By age", "age", "probability", (0, 50, 100), (0.1, 0.2, 0.4), (0.0, 0.1, 0.3), (0.2, 0.3, 0.5))
LEVELS = Effect(
    "By job", HOSTILE, "share", ("farm", HOSTILE), (0.1, 0.4), (0.0, 0.3), (0.2, 0.5), (0.05, 0.35), (0.15, 0.45)
)


def regression(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("records", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (4000, 3)).astype(np.float32)
    y = (rng.random(4000) < 1 / (1 + np.exp(-x @ np.array([2.0, 0.0, -1.0])))).astype(np.int32)
    plan = dpvi.plan(epsilon=1.0, delta=1e-5, covariates=[dpvi.Numeric(-1, 1, bins=8)] * 3)
    return dpvi.fit(regression, (x, y), plan, progress=False)


@pytest.fixture(scope="module")
def text(result):
    return report_page(
        result, names=NAMES, title=HOSTILE, facts={"Formula": f"y ~ age + {HOSTILE}"}, effects=(CURVE, LEVELS),
        command=f"dpvi fit {HOSTILE}.csv",
    )  # fmt: skip


def test_a_page_stands_alone_and_no_name_becomes_a_program(text):
    page = check_page(text)
    assert len(page.all("script")) == 1
    assert page.text.count(HOSTILE) >= 8
    assert f"<th>{HOSTILE}</th>" not in text
    assert element("th", HOSTILE) == '<th>&lt;script&gt;alert("x")&lt;/script&gt;</th>'
    assert element("th", title=HOSTILE) == '<th title="&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;"></th>'


def test_the_page_says_what_was_promised_spent_found_and_doubted(text, result):
    page = check_page(text)
    for words in (
        "at most 73 % sure",  # e / (1 + e)
        "finds at most 14 %",  # e · 5 % + δ
        "adding or removing one record",
        "Questions of the run",
        "second moments of the covariates",
        "Normal(loc = 0, scale = 1)",
        "y ~ Bernoulli",
        "Measurements",
        "from the operating system",
        "dpvi fit",
    ):
        assert words in page.text, words
    summary = result.posterior().summary(names=NAMES)
    rows = [each for each in page.all("tr") if "data-mean" in each]
    assert [each["data-name"] for each in rows] == list(summary.names)
    np.testing.assert_allclose([float(each["data-mean"] or "") for each in rows], summary.mean)
    np.testing.assert_allclose([float(each["data-lower"] or "") for each in rows], summary.lower)
    inner = np.array([[float(part) for part in (each["data-inner"] or "").split()] for each in rows])
    np.testing.assert_allclose(inner[:, 1] - inner[:, 0], 2 * 1.959964 * summary.sampling_sd, rtol=1e-6)


def test_a_result_from_a_file_asks_for_its_model_and_reads_the_same_with_it(result, tmp_path):
    result.save(tmp_path / "result.npz")
    write_report(tmp_path / "result.npz", tmp_path / "without.html")
    without = check_page((tmp_path / "without.html").read_text())
    assert "needs its model to be read" in without.text
    assert "73 % sure" in without.text
    write_report(tmp_path / "result.npz", tmp_path / "with.html", model=regression)
    assert (tmp_path / "with.html").read_text() == report_page(result)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.npz", "with.html", "without.html"]


def test_runs_of_steps_and_runs_that_are_not_private(tmp_path):
    x = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpvi.PrivacyWarning)
        steps = dpvi.plan(epsilon=1.0, delta=1e-5, sampling_rate=0.5, num_steps=20, clip_norm=1.0)
        page = check_page(report_page(dpvi.fit(regression, (x, y), steps, progress=False)))
        assert "with probability 0.5" in page.text
        assert "leave out what clipping bends" in page.text
        bare = dpvi.plan_nonprivate(sampling_rate=1.0, num_steps=20)
        page = check_page(report_page(dpvi.fit(regression, (x, y), bare, progress=False)))
    assert page.text.count("NOT PRIVATE") >= 2
    assert "sure of it" not in page.text


def contrast(first: str, second: str) -> float:
    """The ratio of luminances that WCAG defines."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
        return float(
            np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)
        )

    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_text_can_be_read_in_light_and_in_dark(text):
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#999999", "#ffffff") < 4.5  # this grey could not
    blocks = re.findall(r":root \{(.*?)\}", text, flags=re.DOTALL)[:2]
    colours = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in blocks]
    assert colours[0] != colours[1]
    for each in colours:
        for ink in ("ink", "soft", "sampling", "privacy", "good", "bad", "link"):
            for ground in ("paper", "card", "wash"):
                assert contrast(each[ink], each[ground]) > 4.5, (ink, ground)


def test_axes_show_every_interval_and_round_numbers():
    low, high = axis_bounds([(-1.0, 2.0), (0.5, 3.0)])
    assert low < -1 < 3 < high
    assert axis_bounds([(0.0, 0.0)])[0] < 0
    assert ticks(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


CONTROLS = """
const rows = () => [...document.querySelectorAll("table.forest tbody tr")];
const shown = () => rows().filter((row) => !row.hidden).map((row) => row.dataset.name);
const set = (name, value) => {
  const control = document.querySelector(`[data-control=${name}]`);
  if (control.type === "checkbox") control.checked = value; else control.value = value;
  control.dispatchEvent(new Event("input", { bubbles: true }));
};
found.alerted = document.querySelectorAll("main script").length;
found.all = shown();
set("filter", "AGE"); found.filtered = shown();
found.told = document.querySelector("[data-control=shown]").textContent;
set("filter", ""); set("order", "size"); found.bySize = shown();
found.before = document.querySelector("[data-cell=mean]").textContent;
set("ratio", true); found.after = document.querySelector("[data-cell=mean]").textContent;
found.head = document.querySelector("[data-head=estimate]").textContent;
found.inside = [...document.querySelectorAll("circle.dot")].every((dot) => !dot.getAttribute("cx").includes("-"));
set("ratio", false); found.back = document.querySelector("[data-cell=mean]").textContent;
document.querySelector("button.name").click();
found.detail = document.querySelector(".detail").textContent;
found.pressed = document.querySelector("button.name").getAttribute("aria-pressed");
const curve = document.querySelector("svg.read");
for (const key of ["ArrowRight", "ArrowRight"])
  curve.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
found.read = document.querySelector(".readout").textContent;
found.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
"""


@needs_chromium
def test_the_controls_work_in_a_browser_and_nothing_is_complained_of(text, result, tmp_path):
    found = in_browser(text, tmp_path, CONTROLS)
    assert found["said"] == []
    assert found["alerted"] == 0
    means = dict(zip(found["all"], result.posterior().summary(names=NAMES).mean, strict=True))
    assert found["filtered"] == ["w[age]"]
    assert found["told"] == "1 of 3 shown"
    assert found["bySize"] == sorted(means, key=lambda name: -abs(means[name]))
    assert float(found["after"]) == pytest.approx(np.exp(means[found["bySize"][0]]), rel=0.01)
    assert found["head"] == "odds ratio"
    assert found["back"] == found["before"]
    assert found["inside"]
    assert "Privacy accounts for" in found["detail"]
    assert found["pressed"] == "true"
    assert found["read"].startswith("50: 0.2")
    assert not found["wide"]


@needs_chromium
def test_a_page_that_fails_is_complained_of(tmp_path):
    broken = "<!DOCTYPE html><html><head></head><body><script>missing();</script></body></html>"
    assert "missing is not defined" in in_browser(broken, tmp_path, "")["said"][0]
