"""Test the progress of a fit: its lines, its bar and the forecast of its end."""

import io
import re
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from coblock.model.trace import SweepRecord, log_sweeps, sweep_line
from coblock.ui.cli.console import Forecast, fit_counter, phase_of, progress_bar


def sweep(number: int, change: float, each: float = 0.5) -> SweepRecord:
    return SweepRecord(number, change, -1.0, -1234.5, 4, 3, each * number)


@pytest.mark.parametrize(("power", "end"), [(1.0, 1000), (2.0, 100), (0.5, 40_000)])
def test_a_power_law_is_extrapolated_to_the_tolerance(power, end):
    forecast = Forecast(tol=end**-power, max_iter=10**6)
    for s in range(1, 31):
        left = forecast.seconds_left(sweep(s, s**-power))
    assert left == pytest.approx(0.5 * (end - 30), rel=1e-6)


def test_the_end_is_not_later_than_max_iter():
    forecast = Forecast(tol=1e-12, max_iter=40)
    lefts = [forecast.seconds_left(sweep(s, 1.0 / s)) for s in range(1, 41)]
    assert lefts[0] is None
    assert lefts[29] == pytest.approx(5.0)
    assert lefts[-1] == 0.0


def test_few_sweeps_give_no_forecast_of_a_distant_end():
    forecast = Forecast(tol=1e-5, max_iter=1000)
    lefts = [forecast.seconds_left(sweep(s, s**-0.3)) for s in range(1, 14)]
    assert lefts[:11] == [None] * 11
    assert lefts[-1] == pytest.approx(0.5 * (1000 - 13))


def test_a_constant_change_gives_no_forecast():
    forecast = Forecast(tol=1e-5, max_iter=100)
    assert [forecast.seconds_left(sweep(s, 0.1)) for s in range(1, 20)] == [None] * 19


def test_a_fixed_number_of_sweeps_is_forecast():
    forecast = Forecast(tol=0.0, max_iter=100)
    forecast.seconds_left(sweep(1, 0.3))
    assert forecast.seconds_left(sweep(2, 0.3)) == pytest.approx(49.0)


@pytest.mark.parametrize("change", [0.0, 1e-6, 1e-5])
def test_no_time_is_left_below_the_tolerance(change):
    forecast = Forecast(tol=1e-5, max_iter=100)
    forecast.seconds_left(sweep(1, change))
    assert forecast.seconds_left(sweep(2, change)) == 0.0


def test_a_new_fit_resets_the_forecast():
    forecast = Forecast(tol=1e-4, max_iter=100)
    for s in range(1, 9):
        forecast.seconds_left(sweep(s, 1.0 / s))
    assert forecast.seconds_left(sweep(1, 0.7)) is None


def test_each_sweep_is_a_line_on_standard_error(capsys):
    seen = []
    assert log_sweeps(seen.append)(sweep(3, 0.25)) is None
    assert log_sweeps(lambda _: True)(sweep(4, 0.25)) is True
    assert log_sweeps(None)(sweep(5, 0.25)) is None
    assert seen == [sweep(3, 0.25)]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == sweep_line(sweep(3, 0.25))
    assert "sweep 3: change 2.50e-01, bound -1,234.5, 4 x 3 clusters, 1.5 s" in err


def test_fits_are_counted_by_their_first_sweeps():
    count = fit_counter(5)
    texts = [count(sweep(number, 0.5)) for number in (1, 2, 1)]
    assert texts == ["fit 1 of 5, ", "fit 1 of 5, ", "fit 2 of 5, "]
    assert fit_counter(1)(sweep(1, 0.5)) == ""


def test_the_bar_fits_on_one_line():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60)
    model = SimpleNamespace(tol=0.0, max_iter=2000, inference="acvb0")
    with progress_bar(console, model, 1) as update:
        update(SweepRecord(999, 1.2e-5, 0.0, -12_345_678.0, 120, 340, 5000.0))
        update(SweepRecord(1000, 1.2e-5, 0.0, -12_345_678.0, 120, 340, 5004.5))
    assert "1:15:00 left, updating memberships (change 1e-05):" in screen.getvalue()
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).splitlines()
    assert max(map(len, lines)) <= 60
    assert len([line for line in lines if "updating" in line]) == 1


def test_the_search_has_no_forecast():
    forecast = Forecast(tol=1e-5, max_iter=1000)
    records = [replace(sweep(s, 1.0 / s), moved=0.5 / s) for s in range(1, 30)]
    assert [forecast.seconds_left(record) for record in records] == [None] * 29
    after = [forecast.seconds_left(sweep(s, 1.0 / s)) for s in range(30, 60)]
    assert after[0] is None
    assert after[-1] == pytest.approx(0.5 * (1000 - 59))


def test_the_bound_of_vb_has_no_forecast():
    forecast = Forecast(tol=None, max_iter=1000)
    assert [forecast.seconds_left(sweep(s, 1.0 / s)) for s in range(1, 30)] == [None] * 29


def test_sweeps_are_described_by_their_phase():
    soft, search = sweep(3, 0.25), replace(sweep(3, 0.25), moved=0.125)
    averaged = replace(sweep(3, 0.1), moved=0.125)
    assert phase_of(soft, "acvb0") == "updating memberships (change 2e-01)"
    assert phase_of(search, "acvb0") == "searching"
    assert phase_of(averaged, "acvb0") == "averaging over samples"
    assert phase_of(search, "gibbs") == "sampling"


def test_the_bar_counts_the_fits_of_all_threads():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=110)
    model = SimpleNamespace(tol=1e-5, max_iter=50, inference="acvb0")
    with progress_bar(console, model, 3) as update:
        threads = [
            threading.Thread(target=lambda: [update(sweep(s, 1.0 / s)) for s in range(1, 30)])
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "fit 3 of 3" in screen.getvalue()
    assert "fit 4" not in screen.getvalue()
