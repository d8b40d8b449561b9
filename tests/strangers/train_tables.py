"""Trains on tables of other packages as a person would at the first try, and at the second after the message.

A row is a table of a package, or what somebody who has it there saves of it, the data set's name that is guessed after
docs/training.md, and what must come of it: training ends well, or the error has these words, and the second guess,
which takes what the error says, ends well. Behind it stands what was found on rows held out, and, in brackets, what one
answer for all rows would give: the most frequent class, or the mean. --markdown prints the table of docs/guide/data.md.

usage: train_tables.py DTRAIN [--only WORD] [--markdown] [--plain]
"""
import argparse
import functools
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass

import pandas
import sklearn.datasets
import statsmodels
import vega_datasets

FOLDERS = {
    "statsmodels": pathlib.Path(statsmodels.__file__).parent / "datasets",
    "sklearn": pathlib.Path(sklearn.datasets.__file__).parent / "data",
    "vega": pathlib.Path(vega_datasets.__file__).parent / "_data",
}


@dataclass
class Table:
    source: str  # PACKAGE/FILE, or the name of a function below that saves a file
    guess: str  # behind csv:FILE, with the comma
    error: str = ""  # what the first guess's error must match; empty: it trains
    second: str = ""  # the second guess; empty: the file has to be changed


def as_frame(loader):
    """What DataFrame.to_csv makes of scikit-learn's table: with a column of row numbers that has no name."""
    return getattr(sklearn.datasets, loader)(as_frame=True).frame.to_csv()


def iris_by_name():
    data = sklearn.datasets.load_iris(as_frame=True)
    frame = data.frame.drop(columns="target")
    frame["species"] = data.target_names[data.target]
    return frame.to_csv(index=False)


def as_table(name):
    """A list of records in JSON, as pandas saves it."""
    frame = pandas.read_json(FOLDERS["vega"] / f"{name}.json", convert_dates=False, dtype=False)
    return frame.to_csv(index=False)


MADE = {
    "sklearn load_wine().frame": functools.partial(as_frame, "load_wine"),
    "sklearn load_breast_cancer().frame": functools.partial(as_frame, "load_breast_cancer"),
    "sklearn load_diabetes().frame": functools.partial(as_frame, "load_diabetes"),
    "sklearn load_iris(), species": iris_by_name,
    "vega cars": functools.partial(as_table, "cars"),
    "vega barley": functools.partial(as_table, "barley"),
    "vega burtin": functools.partial(as_table, "burtin"),
    "vega ohlc": functools.partial(as_table, "ohlc"),
}

# The words of errors, and the settings that they propose.
SKIP = "missing=skip"
TABLES = [
    Table("statsmodels/ccard/ccard.csv", "target=AVGEXP"),
    Table("statsmodels/longley/longley.csv", "target=TOTEMP"),
    Table("statsmodels/star98/star98.csv", "target=MATHTOT"),
    Table("statsmodels/strikes/strikes.csv", "target=duration"),
    Table("statsmodels/fair/fair.csv", "label=rate_marriage"),
    Table("statsmodels/anes96/anes96.csv", "label=vote"),
    Table("statsmodels/spector/spector.csv", "label=GRADE"),
    Table("statsmodels/modechoice/modechoice.csv", "label=choice"),
    Table("statsmodels/grunfeld/grunfeld.csv", "target=invest"),
    Table("statsmodels/scotland/scotvote.csv", "target=YES", "without=COUNCILDIST", "target=YES,without=COUNCILDIST"),
    Table("statsmodels/statecrime/statecrime.csv", "target=murder", "without=state", "target=murder,without=state"),
    Table("statsmodels/danish_data/data.csv", "target=lrm", "without=period", "target=lrm,without=period"),
    Table("statsmodels/co2/co2.csv", "target=co2", SKIP, "target=co2,missing=skip"),
    Table("statsmodels/fertility/fertility.csv", "target=2000", "without=Country Name\\+Country Code.*missing=skip",
          "target=2000,without=Country Name+Country Code+2012+2013,missing=skip"),
    Table("sklearn/iris.csv", "label=species", "found 150, 4, setosa, versicolor, virginica", "label=virginica"),
    Table("sklearn/wine_data.csv", "label=class_0", "expected 5 fields in row 1 .line 2., as in the header, found 14"),
    Table("sklearn/digits.csv.gz", "label=64", "header=none", "label=64,header=none"),
    Table("sklearn/linnerud_exercise.csv", "target=Jumps"),
    Table("sklearn load_wine().frame", "label=target"),
    Table("sklearn load_breast_cancer().frame", "label=target"),
    Table("sklearn load_diabetes().frame", "target=target"),
    Table("sklearn load_iris(), species", "label=species"),
    Table("vega/seattle-weather.csv", "label=weather", "without=date", "label=weather,without=date"),
    Table("vega/la-riots.csv", "label=gender", "without=first_name.*missing=skip",
          "label=gender,without=first_name+last_name+address+neighborhood,missing=skip"),
    Table("vega/iowa-electricity.csv", "target=net_generation"),
    Table("vega/stocks.csv", "target=price", "without=date", "target=price,without=date"),
    Table("vega cars", "target=Miles_per_Gallon", "without=Name.*missing=skip",
          "target=Miles_per_Gallon,without=Name,missing=skip"),
    Table("vega barley", "target=yield"),
    Table("vega burtin", "label=Gram_Staining", "without=Bacteria", "label=Gram_Staining,without=Bacteria"),
    Table("vega ohlc", "label=signal", "without=date", "label=signal,without=date"),
]


def save(table, folder):
    """The table as a file in `folder`, under a short name."""
    if table.source in MADE:
        name = re.sub(r"\W+", "_", table.source.split(maxsplit=1)[1]).strip("_") + ".csv"
        (folder / name).write_text(MADE[table.source]())
        return name
    package, path = table.source.split("/", 1)
    name = path.rsplit("/", 1)[-1]
    shutil.copy(FOLDERS[package] / path, folder / name)
    return name


def train(dtrain, folder, name, settings):
    """The exit code, the error's last line, and the last evaluation: {"loss": …, "accuracy": …} or with "rmse"."""
    command = [dtrain, "train", "--model", "mlp", "--dataset", f"csv:{name},{settings},split=0.8",
               "--run-dir", "run", "--resume", "never", "--device", "cpu"]
    if "target=" in settings:
        command += ["--task", "regression"]
    shutil.rmtree(folder / "run", ignore_errors=True)
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    if result.returncode != 0:
        return result.returncode, result.stderr.strip().splitlines()[-1], {}
    summary = json.loads((folder / "run" / "summary.json").read_text())
    return 0, "", summary


def quality(settings, summary):
    """The held-out accuracy, or the root mean squared error."""
    test = summary.get("test", {})
    name = "accuracy" if "label=" in settings else "rmse"
    return test.get(name, math.nan)


def constant(path, settings):
    """How many rows there are, and what quality() is of one answer for all: the most frequent class, or the mean."""
    frame = pandas.read_csv(path, sep=None, engine="python", header=None if "header=none" in settings else "infer",
                            encoding_errors="replace")
    frame.columns = [str(name).strip("'") for name in frame.columns]
    column = frame[re.match(r"(?:label|target)=([^,]*)", settings)[1]]
    value = column.value_counts(normalize=True).max() if "label=" in settings else column.std(ddof=0)
    return len(frame), value


def learned(path, settings, summary):
    """(what was found on rows held out, and of one answer for all in brackets; what is wrong with that or "")."""
    found = quality(settings, summary)
    rows, same = constant(path, settings)
    text = f"trains: {found:.3g} ({same:.3g})"
    if not math.isfinite(found):
        return text, "nothing finite was learned"
    # A small table has few steps in the epochs of the defaults, and few rows to be measured on.
    worse = found < same - 0.05 if "label=" in settings else found > 1.05 * same
    return text, f"one answer for all rows is better, {same:.3g}" if rows >= 100 and worse else ""


def judge(dtrain, table, folder, scaled):
    """(outcome of the first guess, of the second or "", what is wrong or "")."""
    name = save(table, folder)
    more = ",scale=standard" if scaled else ""
    code, error, summary = train(dtrain, folder, name, table.guess + more)
    if code == 0:
        text, wrong = learned(folder / name, table.guess, summary)
        return text, "", f"trained, expected an error with {table.error!r}" if table.error else wrong
    if not table.error or not re.search(table.error, error):
        return error, "", f"expected {table.error or 'that it trains'}, got {error}"
    if not table.second:
        return error, "", ""
    code, again, summary = train(dtrain, folder, name, table.second + more)
    if code != 0:
        return error, again, f"the second guess fails: {again}"
    return error, *learned(folder / name, table.second, summary)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dtrain")
    parser.add_argument("--only", default="", help="tables whose source has this word")
    parser.add_argument("--markdown", action="store_true", help="print the table of the documentation")
    parser.add_argument("--plain", action="store_true", help="guess without scale=standard, to compare")
    options = parser.parse_args()
    program = str(pathlib.Path(options.dtrain).resolve())
    warnings.simplefilter("ignore")
    failed = first = second = 0
    for table in TABLES:
        if options.only not in table.source:
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcome, again, wrong = judge(program, table, pathlib.Path(folder), not options.plain)
        first += outcome.startswith("trains")
        second += again.startswith("trains")
        failed += bool(wrong)
        if options.markdown:
            said = f"an error; `{table.second}`: {again}" if again else re.sub("^dtrain: ", "", outcome)
            print(f"| {table.source} | `{table.guess}` | {said} |")
        else:
            print(f"{table.source}: {table.guess}: {outcome}" + (f"\n    {table.second}: {again}" if again else ""))
        if wrong:
            print(f"{table.source}: WRONG: {wrong}")
    print(f"{first} train at the first guess, {second} at the second; {failed} are not as expected")
    return 1 if failed or first + second == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
