"""The kinds of values that settings have, and what is said of those that are none."""

from __future__ import annotations

import difflib
import os
import re
from datetime import timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from penstock.declare.problems import did_you_mean
from penstock.flows.ordering import ORDERS
from penstock.model.grain import parse_grain, zone_of
from penstock.model.tables import AUTO
from penstock.model.time import parse_duration
from penstock.model.timetable import parse_timetable
from penstock.queries.policies import find_query_policy
from penstock.scheduling.policies import find_policy

NAME = re.compile(r"[a-z_][a-z0-9_]*")
NAME_RULE = "expected small letters, digits and _, beginning with a letter"


def _duration(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, str):
        return parse_duration(value)
    if type(value) is int and value == 0:
        return 0
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{value} has no unit; write for example "{value}s" or "{value}m"')
    raise ValueError(f'{value!r} is not a duration; write for example "30s", "5m", "1h30m" or "2d"')


def _queue(value: Any) -> Any:
    return AUTO if value == "auto" else _duration(value)


def _partition(value: Any) -> Any:
    if isinstance(value, str):
        try:
            parse_grain(value)
        except ValueError as error:
            near = difflib.get_close_matches(
                value.strip().lower(), ("hour", "day", "week", "month", "quarter", "year", "none"), 1, 0.5
            )
            raise ValueError(f"{error}{f'; did you mean `{near[0]}`?' if near else ''}") from None
    return value


def _zone(value: Any) -> Any:
    if isinstance(value, str):
        zone_of(value)
    return value


def _order(value: Any) -> Any:
    """What orders the files of a feed: `arrival`, `modified`, `name PATTERN` or `column NAME`."""
    if isinstance(value, str):
        word, _, rest = value.strip().partition(" ")
        if word in ("arrival", "modified") and not rest:
            return word
        if word == "name" and rest:
            try:
                re.compile(rest.strip())
            except re.error as error:
                raise ValueError(f"{rest.strip()!r} is not a regular expression: {error}") from None
            return f"name {rest.strip()}"
        if word == "column" and rest.strip():
            return f"column {rest.strip()}"
        raise ValueError(
            f"{value!r} is no order of files; write arrival, modified, a part of the name such as 'name v([0-9]+)', "
            "or 'column NAME'"
        )
    return value


def _policy(value: Any) -> Any:
    if isinstance(value, str):
        find_policy(value)
    return value


def _query_policy(value: Any) -> Any:
    if isinstance(value, str):
        find_query_policy(value)
    return value


def _name(value: Any) -> Any:
    if isinstance(value, str) and not NAME.fullmatch(value):
        raise ValueError(f"{value!r} cannot be a name; {NAME_RULE}")
    return value


def _store(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        raise ValueError(
            f"{value!r} is not a store; expected sqlite:///path/to/file.db or postgresql://user@host/database"
        )
    if missing := re.search(r"\$(\w+|\{[^}]*\})", os.path.expandvars(value)):
        raise ValueError(f"the environment variable {missing[1].strip('{}')} is not set")
    return value


def _local(value: Any) -> Any:
    if isinstance(value, str) and (scheme := re.match(r"(\w+)://", value)):
        raise ValueError(f"{value!r}: {scheme[1]}:// cannot be used; expected a folder of this machine")
    if isinstance(value, str) and not value.strip():
        raise ValueError('an empty text is not a folder; leave it out, or write for example "warehouse"')
    return value


def _propagate(value: Any) -> Any:
    if value in ("all", "closed"):
        return (value,)
    if value == "none":
        return ()
    expected = 'expected "all", "none", "closed", or a list of reasons such as ["new", "compliance"]'
    if not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is not a choice of changes; {expected}")
    for reason in value:
        if not isinstance(reason, str) or not reason.strip() or reason in ("all", "none", "closed"):
            raise ValueError(f"{reason!r} cannot be a reason; {expected}")
    return tuple(value)


def _reason(value: Any) -> Any:
    if not isinstance(value, str) or not value.strip() or value in ("all", "none", "closed", "new"):
        raise ValueError(f'{value!r} cannot be a reason; expected a word of your own, for example "compliance"')
    return value


ABSENT = ("wait", "empty", "fail")


def _waits(value: Any) -> Any:
    """For all sources, or for each."""
    return {"*": value} if isinstance(value, bool) else value


def _absent(value: Any) -> Any:
    """One choice for all sources stands under `*`."""
    found = value if isinstance(value, dict) else {"*": value}
    for name, choice in found.items():
        if choice not in ABSENT:
            where = "" if name == "*" else f" for source `{name}`"
            near = did_you_mean(str(choice), ABSENT)
            raise ValueError(f"{choice!r}{where} is not a choice; expected one of {', '.join(ABSENT)}{near}")
    return dict(found)


# Where the rows of a table are that others make; the second kind names a place.
DATA = ("files", "lake", "elsewhere")
PLACED = ("folder", "replica")


def _data(value: Any) -> Any:
    if isinstance(value, str):
        word, _, place = value.strip().partition(" ")
        if (word in DATA and not place) or (word in PLACED and place.strip()):
            return f"{word} {place.strip()}".strip()
        if word in PLACED:
            raise ValueError(f'{value!r} names no place; write for example "{word} exports/scores"')
        near = did_you_mean(word, (*DATA, *PLACED))
        known = ", ".join((*DATA, *(f"{each} PATH" for each in PLACED)))
        raise ValueError(f"{value!r} is no place where rows are; expected one of {known}{near}")
    return value


def _webhook(value: Any) -> Any:
    if isinstance(value, str) and not re.match(r"https?://[^/\s]+", value):
        raise ValueError(f'{value!r} is not an address; write for example "http://127.0.0.1:9000/orders"')
    return value


def _timetable(value: Any) -> Any:
    if isinstance(value, str):
        parse_timetable(value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int):
        return value
    raise ValueError(f"{value!r} cannot be an option; expected a text, a whole number, true or false")


def _bytes(value: Any) -> Any:
    """`500MB`, `2GB`: powers of ten."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([kMGT]?B)", value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'{value!r} is no size; expected "500MB" or "2GB"')
    return int(float(found[1]) * 1000 ** ("B", "kB", "MB", "GB", "TB").index(found[2]))


def _flow_order(value: Any) -> Any:
    if value not in ORDERS:
        raise ValueError(f"{value!r} is no order of the steps of a flow; known are {', '.join(ORDERS)}")
    return value


def _format(value: Any) -> Any:
    if value == "avro":
        missing = "Spark's package comes without its reader (spark-avro)"
        raise ValueError(f"'avro' cannot be read, as {missing}; deliver Parquet, ORC or JSON")
    return value


def _key_columns(value: Any) -> Any:
    """Names of columns: a list, or with commas between."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Bytes = Annotated[int, BeforeValidator(_bytes)]
FlowOrder = Annotated[str, BeforeValidator(_flow_order)]
Duration = Annotated[int, BeforeValidator(_duration)]
Queue = Annotated[int, BeforeValidator(_queue)]
Period = Annotated[int, BeforeValidator(_duration), Field(gt=0)]
Partition = Annotated[str, BeforeValidator(_partition)]
Name = Annotated[str, BeforeValidator(_name)]
Positive = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, strict=True)]
PlainOption = Annotated[str | bool | int, BeforeValidator(_plain)]
Propagate = Annotated[tuple[str, ...], BeforeValidator(_propagate)]
ReasonText = Annotated[str, BeforeValidator(_reason)]
Absent = Annotated[dict[str, str], BeforeValidator(_absent)]
Waits = Annotated[dict[str, Annotated[bool, Field(strict=True)]], BeforeValidator(_waits)]
LocalFolder = Annotated[str, BeforeValidator(_local)]
RestatedTimes = Annotated[str, BeforeValidator(_timetable)]
Zone = Annotated[str, BeforeValidator(_zone)]
FileOrder = Annotated[str, BeforeValidator(_order)]
FeedFormat = Annotated[Literal["csv", "json", "parquet", "orc", "xml", "fixed"], BeforeValidator(_format)]
KeyColumns = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_key_columns)]
Policy = Annotated[str, BeforeValidator(_policy)]
QueryPolicyText = Annotated[str, BeforeValidator(_query_policy)]
Data = Annotated[str, BeforeValidator(_data)]
Webhook = Annotated[str, BeforeValidator(_webhook)]
StoreUrl = Annotated[str, BeforeValidator(_store)]


def is_duration(field: FieldInfo) -> bool:
    inner = (found for each in get_args(field.annotation) for found in getattr(each, "__metadata__", ()))
    return any(isinstance(each, BeforeValidator) and each.func is _duration for each in (*field.metadata, *inner))
