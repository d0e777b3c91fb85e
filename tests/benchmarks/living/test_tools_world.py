"""The tasks of pandas 3 and numpy 2: each can be solved, and what models learned fails at its cause."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.living.tools.world import CodeTask, ToolsWorld
from benchmarks.living.world import Call, Ran, split

pd = pytest.importorskip("pandas", minversion="3")
np = pytest.importorskip("numpy", minversion="2.4")

# By group: as it was learned, and a right line for each task.
LINES: dict[str, tuple[str, ...]] = {
    "append-row": (
        "df.append(row, ignore_index=True)",
        "pd.concat([df, pd.DataFrame([row])], ignore_index=True)",
        "pd.concat([df, other], ignore_index=True)",
        "pd.concat([df, pd.DataFrame([row, row])])['age'].mean()",
        "pd.concat([other, df], ignore_index=True)",
    ),
    "append-series": (
        "s.append(t)",
        "pd.concat([s, t], ignore_index=True)",
        "pd.concat([t, s]).sort_values()",
        "pd.concat([s, t]).max()",
        "pd.concat([s, pd.Series([7])])",
    ),
    "elementwise": (
        "df.applymap(str)",
        "df.map(lambda x: f'{x:.1f}')",
        "words.map(len)",
        "words.map(str.upper)",
        "df.map(lambda x: 'big' if x > 3 else 'small')",
    ),
    "fill-method": (
        "s.fillna(method='ffill')",
        "s.ffill()",
        "df.bfill()",
        "df.ffill()['b'].sum()",
        "s.bfill().isna().sum()",
    ),
    "month-end": (
        "ts.resample('M').sum()",
        "ts.resample('ME').sum()",
        "list(ts.resample('ME').mean())",
        "df.groupby(pd.Grouper(key='day', freq='ME')).sum()",
        "pd.date_range('2024-01-01', periods=6, freq='ME')",
    ),
    "hours": (
        "ts.resample('H').sum()",
        "ts.resample('h').sum()",
        "pd.date_range('2024-01-01', periods=5, freq='h')",
        "ts.index.floor('h').nunique()",
        "ts.resample('6h').sum()",
    ),
    "quarters": (
        "ts.resample('Q').sum()",
        "ts.resample('QE').sum()",
        "ts.resample('YE').sum()",
        "pd.date_range('2024-01-01', '2024-12-31', freq='QE')",
        "len(ts.resample('YE').mean())",
    ),
    "json-text": (
        "pd.read_json(text)",
        "pd.read_json(__import__('io').StringIO(text))",
        "pd.read_json(__import__('io').StringIO(text))['n'].sum()",
        "pd.read_json(__import__('io').StringIO(lines), lines=True)",
        "pd.read_json(__import__('io').StringIO(text)).set_index('city')['n'].idxmax()",
    ),
    "week": (
        "days.dt.week",
        "days.dt.isocalendar().week.tolist()",
        "df.groupby(df['day'].dt.isocalendar().week)['n'].sum()",
        "df.assign(week=df['day'].dt.isocalendar().week)",
        "days.dt.isocalendar().week.max()",
    ),
    "trapezoid": (
        "np.trapz(y, x)",
        "np.trapezoid(y, x)",
        "np.trapezoid(y, dx=0.5)",
        "np.trapezoid(y ** 2, x)",
        "np.trapezoid(y[:3], x[:3])",
    ),
    "mean-deviation": (
        "s.mad()",
        "(s - s.mean()).abs().mean()",
        "(df - df.mean()).abs().mean()",
        "(df['b'] - df['b'].mean()).abs().mean()",
        "s / (s - s.mean()).abs().mean()",
    ),
    "numeric-only": (
        "df.groupby('team').mean()",
        "df.groupby('team').mean(numeric_only=True)",
        "df.corr(numeric_only=True)",
        "df.mean(numeric_only=True)",
        "df.groupby('team').std(numeric_only=True)",
    ),
    "level-sum": (
        "s.sum(level='k')",
        "s.groupby(level='k').sum()",
        "df.groupby(level='l').mean()",
        "s.groupby(level='l').max()",
        "df.groupby(level='k').sum()",
    ),
}


@pytest.fixture(scope="module")
def world() -> ToolsWorld:
    return ToolsWorld(Path(sys.executable))


def test_each_task_has_an_answer_and_each_cause_a_failure(world: ToolsWorld) -> None:
    assert len(world.tasks) >= 30
    for task in world.tasks:
        assert isinstance(task, CodeTask)
        learned, *right = LINES[task.group]
        names: dict[str, Any] = {"pd": pd, "np": np}
        exec(task.before, names)
        with pytest.raises((AttributeError, TypeError, ValueError, OSError)):
            eval(learned, names)
        names["answer"] = eval(right[int(task.id[-1])], names)
        assert eval(task.check, names), f"{task.id}: {names['answer']!r}"
        names["answer"] = -1
        wrong = False
        with suppress(AttributeError, TypeError):
            wrong = eval(task.check, names)
        assert not wrong, task.id


def test_a_cause_is_met_in_the_past_and_again(world: ToolsWorld) -> None:
    past, held_out = split(world.tasks, 0, 8)
    assert {each.group for each in past} == {each.group for each in held_out} == set(LINES)
    assert len(past) == len(held_out) == 26


def test_a_line_runs_in_a_process_of_its_own(world: ToolsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    task = next(each for each in world.tasks if each.id == "append-series-3")
    failed = world.run(task, Call("python", "answer = s.append(7)"))
    assert failed == Ran("AttributeError: 'Series' object has no attribute 'append'", "AttributeError")
    line = "answer = pd.concat([s, pd.Series([7])])"
    assert world.run(task, Call("python", line)).said.startswith("answer = 0    3")
    assert world.run(task, Call("submit", line)) == Ran("Accepted.", solved=True)
    assert world.run(task, Call("submit", "answer = s")) == Ran("Accepted.")
    assert world.run(task, Call("python", "s")).said.startswith("NameError: name 'answer' is not defined")
    assert world.run(task, Call("python", "raise SystemExit(3)")).error == "SystemExit"
    monkeypatch.setattr("benchmarks.living.tools.world.SECONDS", 0.05)
    assert world.run(task, Call("python", "answer = 1 #")).error == "TimeoutError"
