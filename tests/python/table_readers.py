"""Reads tables with programs that are not zarrfs: each returns the values of each column, and what kind of values it
takes them for."""

import datetime
import json
import shutil
import subprocess

import numpy as np
import pandas

import needs

KINDS = {
    "int": ["int64", "uint64", "Int64", "Int128", "BIGINT", "HUGEINT", "UBIGINT", "int", "integer"],
    "float": ["float64", "Float64", "DOUBLE", "double", "numeric", "real"],
    "bool": ["bool", "Boolean", "BOOLEAN"],
    "text": ["str", "object", "String", "VARCHAR", "string", "character", "text"],
    "time": ["datetime64", "Datetime", "TIMESTAMP", "timestamp"],
    "date": ["Date", "DATE", "date32"],
}


def kind_of(name):
    name = str(name)
    if name.startswith("datetime64"):
        return "time"
    found = [kind for kind, names in KINDS.items() if any(name == known or name.startswith((known + "[", known + "(")) for known in names)]
    return found[0] if found else name


def plain(value):
    """Returns a value as Python has it, and none for each way to say that there is none."""
    if value is None or value != value:
        return None
    if isinstance(value, (datetime.datetime, datetime.date, np.datetime64)):
        return np.datetime64(value, "us")
    return value.item() if isinstance(value, np.generic) else value


def with_kinds(names, columns, kinds):
    return {name: ([plain(value) for value in values], kind_of(kind)) for name, values, kind in zip(names, columns, kinds, strict=True)}


# Versions before 3 read decimals to the last bit only with this, and later ones warn of it.
ROUND_TRIP = {} if int(pandas.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}


def of_frame(frame):
    return with_kinds(list(frame), [list(frame[name]) for name in frame], frame.dtypes)


def pandas_csv(path, times=(), texts=()):
    # Without this it takes texts such as NA, and empty ones, for none.
    blanks = {name: ["", "NaN"] for name in pandas.read_csv(path, nrows=0) if name not in texts}
    frame = pandas.read_csv(path, parse_dates=list(times), dtype=dict.fromkeys(texts, "str"), keep_default_na=False,
                            na_values=blanks, **ROUND_TRIP)
    return of_frame(frame)


def polars_csv(path, times=(), texts=()):
    import polars

    frame = polars.read_csv(path, try_parse_dates=True, infer_schema_length=None, schema_overrides=dict.fromkeys(texts, polars.String))
    return with_kinds(frame.columns, [column.to_list() for column in frame], frame.dtypes)


def duckdb_csv(path, times=(), texts=()):
    import duckdb

    # Without this it takes an empty text for none.
    types = {name: "VARCHAR" for name in texts}
    table = duckdb.sql(f"from read_csv('{path}', allow_quoted_nulls={not texts}, types={types})" if texts else f"from read_csv('{path}')")
    return with_kinds(table.columns, list(zip(*table.fetchall(), strict=True)), table.types)


def pyarrow_csv(path, times=(), texts=()):
    import pyarrow
    from pyarrow import csv

    options = csv.ConvertOptions(column_types={"u8": pyarrow.uint64(), **dict.fromkeys(texts, pyarrow.string())},
                                 quoted_strings_can_be_null=False, strings_can_be_null=True, null_values=[""])
    table = csv.read_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=options)
    columns = [column.cast(pyarrow.timestamp("us"), safe=False) if pyarrow.types.is_timestamp(column.type) else column for column in table.columns]
    return with_kinds(table.column_names, [column.to_pylist() for column in columns], table.schema.types)


IN_R = """
arguments <- commandArgs(TRUE)
classes <- if (length(arguments) > 1) setNames(rep("character", length(arguments) - 1), arguments[-1]) else NA
table <- read.csv(arguments[1], check.names = FALSE, colClasses = classes, na.strings = "", encoding = "UTF-8")
hex <- function(text) paste(sprintf("%02x", as.integer(charToRaw(enc2utf8(text)))), collapse = "")
for (name in names(table)) {
    column <- table[[name]]
    values <- if (is.numeric(column)) sprintf("%a", column) else vapply(column, hex, "")
    values[is.na(column)] <- "NA"
    cat(hex(name), class(column), values, sep = " ", fill = FALSE)
    cat("\\n")
}
"""


def r_csv(path, times=(), texts=()):
    """R has floats of eight bytes alone, no kind of true and false that is written small, and no empty text beside none."""
    needs.require("Rscript", shutil.which("Rscript"), source=" (scripts/setup tools installs it)")
    done = subprocess.run(["Rscript", "--vanilla", "-e", IN_R, path, *texts], capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        name, kind, *values = line.split(" ")
        is_number = kind in ("integer", "numeric")
        read = (lambda value: float.fromhex(value)) if is_number else (lambda value: bytes.fromhex(value).decode())
        found[bytes.fromhex(name).decode()] = ([None if value == "NA" else read(value) for value in values], kind_of(kind))
    return found


def sqlite_csv(path, times=(), texts=()):
    """SQLite imports texts; what it makes of them where they are compared with numbers is seen here."""
    needs.require("sqlite3", shutil.which("sqlite3"), source=" (scripts/setup tools installs it)")
    done = subprocess.run(["sqlite3"], input=f".mode csv\n.import '{path}' t\n.mode json\nselect * from t;", capture_output=True,
                          text=True, check=True)
    rows = json.loads(done.stdout)
    return {name: ([row[name] for row in rows], "text") for name in rows[0]}


CSV = {"pandas": pandas_csv, "polars": polars_csv, "DuckDB": duckdb_csv, "pyarrow": pyarrow_csv, "R": r_csv, "SQLite": sqlite_csv}


def pandas_ndjson(path):
    return of_frame(pandas.read_json(path, lines=True, dtype=False, precise_float=True))


def polars_ndjson(path):
    import polars

    frame = polars.read_ndjson(path, infer_schema_length=None)
    return with_kinds(frame.columns, [column.to_list() for column in frame], frame.dtypes)


def duckdb_ndjson(path):
    import duckdb

    table = duckdb.sql(f"from read_json('{path}', format='newline_delimited')")
    return with_kinds(table.columns, list(zip(*table.fetchall(), strict=True)), table.types)


def pyarrow_ndjson(path):
    from pyarrow import json as arrow

    table = arrow.read_json(path)
    return with_kinds(table.column_names, [[value.as_py() if str(value.type) != "timestamp[ns]" else str(value) for value in column] for column in table.columns],
                      table.schema.types)


def jq_ndjson(path):
    needs.require("jq", shutil.which("jq"), source=" (scripts/setup tools installs it)")
    done = subprocess.run(["jq", "-c", "."], stdin=open(path, encoding="utf-8"), capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: ([row[name] for row in rows], None) for name in rows[0]}


NDJSON = {"pandas": pandas_ndjson, "polars": polars_ndjson, "DuckDB": duckdb_ndjson, "pyarrow": pyarrow_ndjson, "jq": jq_ndjson}
