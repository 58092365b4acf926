"""Flows are checked before they run: columns are followed through every activity."""

from __future__ import annotations

import pytest

from penstock.declare.flow import FlowProblem, Rows, flow
from penstock.declare.flow_check import SparkSql, check_flow
from penstock.flows.description import Flow, typed
from penstock.flows.graph import NodeKind
from penstock.model.schema import Column, parse_ddl

ORDERS = parse_ddl("id bigint, customer string, at timestamp, quantity int, price decimal(10,2), note string")
CUSTOMERS = parse_ddl("customer string, country string, id bigint")


def columns(found: Flow, target: str, **schemas: tuple[Column, ...]) -> dict[str, str]:
    shaped, wrong = typed(found, schemas, SparkSql())
    assert wrong == []
    return {column.name: column.type for column in shaped.columns(target) or ()}


def problems(found: Flow, **schemas: tuple[Column, ...]) -> list[str]:
    _, wrong = typed(found, schemas, SparkSql())
    return [f"{step.name}: {message}" for step, message in wrong]


def test_columns_follow_every_activity() -> None:
    @flow
    def sales(orders: Rows, customers: Rows) -> None:
        good = orders.not_null("customer").in_domain("quantity", low=1).matches("note", "^[a-z]")
        priced = good.derive(total="quantity * price").has_type("note", "int")
        who = customers.select("country", who="customer")
        sold = priced.join(who, condition="customer = who").drop("who").into("sold")
        sold.aggregate("country", revenue="sum(total)", n="count(*)").into("by_country")
        sold.pivot("customer", "country", ["de", "fr"], "sum(quantity)").unpivot("de", "fr", name="c").into("long")
        big, small, rest = sold.route("total > 100", "total > 10")
        big.split(["id", "total"])[0].into("big")
        small.deduplicate("customer", order="at desc").union(rest).into("others")

    found = sales.flow
    schemas = {"orders": ORDERS, "customers": CUSTOMERS}
    assert columns(found, "sold", **schemas) == {
        "id": "bigint",
        "customer": "string",
        "at": "timestamp",
        "quantity": "int",
        "price": "decimal(10,2)",
        "note": "int",
        "total": "decimal(21,2)",
        "country": "string",
    }
    assert columns(found, "by_country", **schemas) == {"country": "string", "revenue": "decimal(31,2)", "n": "bigint"}
    assert columns(found, "long", **schemas) == {"customer": "string", "c": "string", "value": "bigint"}
    assert columns(found, "big", **schemas) == {"id": "bigint", "total": "decimal(21,2)"}
    graph = typed(found, schemas, SparkSql())[0].graph({"orders": 10.0})
    assert [node.name for node in graph.nodes if node.kind is NodeKind.SOURCE] == ["orders", "customers"]
    assert graph["orders"].rows == 10
    # Only what the views, the routes and the duplicates look at must be kept of the joined rows; and what they pass on.
    assert graph.needed_columns["customers"] == {"customer", "country"}


def test_everything_wrong_is_told_at_once() -> None:
    @flow
    def sales(orders: Rows, customers: Rows) -> None:
        orders.not_null("custmer").into("a")
        orders.filter("quantity + 1").into("b")
        orders.derive(total="quantity * prise").into("c")
        orders.join(customers, on="customer").into("d")
        orders.join(customers.select("country", "customer", key="country"), on=["customer"]).into("e")
        orders.look_up(customers.select("id", customer="cast(1 as int)"), on="customer", columns="id").into("f")
        orders.union(customers).into("g")
        orders.reformat("quantity", "a", "b").into("h")
        orders.not_null("note", bad="default").into("i")
        orders.has_type("note", "integre").into("j")
        orders.scd2("k", key="id", at="when")
        orders.difference("nowhere", key="id").into("l")

    found = problems(sales.flow, orders=ORDERS, customers=CUSTOMERS)
    assert [line.split(";")[0] for line in found if not line.startswith("union")] == [
        "not_null: unknown column `custmer`",
        "filter: `quantity + 1` is int",
        "derive: unknown column `prise`",
        "join: column `id` would stand twice",
        "look_up: `customer` is string on the left and int on the right",
        "reformat: `quantity` is int",
        'not_null 2: default= and bad="default" go together',
        "has_type: column `note`: 'integre' is not a type of Spark",
        "k: when is known: unknown column `when`",
        "difference: `nowhere` is no target of this flow",
    ]
    assert "union: column `country` is in one of the inputs only" in found
    assert "did you mean `customer`?" in found[0]


def test_what_is_behind_something_wrong_is_not_blamed() -> None:
    @flow
    def sales(orders: Rows) -> None:
        orders.derive(total="quantity * prise").filter("total > 1").into("a")

    assert len(problems(sales.flow, orders=ORDERS)) == 1
    assert problems(sales.flow) == []  # nothing is known of the source


def test_history_needs_the_whole_table() -> None:
    @flow(partition="day", time="at")
    def people(orders: Rows) -> None:
        orders.scd1("customer_now", key="customer")

    (table,) = people.tables
    _, found = check_flow(people.flow, {"orders": ORDERS}, table)
    assert "it looks at all that came, so the flow cannot have partitions" in found[0].message
    assert found[0].where.line == test_history_needs_the_whole_table.__code__.co_firstlineno + 3


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda orders: orders.filter("true"), "the rows of filter (line"),
        (lambda orders: None, "has no target"),
        (lambda orders: (orders.into("x"), orders.into("x")), "stands in it twice"),
        (lambda orders: orders.into("x", partition="day"), "all targets of a flow have this in common"),
        (lambda orders: orders.join(1).into("x"), "expected rows of the same flow, found int"),
        (lambda orders: orders.route(), "route needs conditions"),
    ],
)
def test_what_cannot_be_written(wrong, says: str) -> None:
    def bad(orders):
        orders.into("kept")
        wrong(orders)

    def only(orders):
        wrong(orders)

    with pytest.raises(FlowProblem, match=says.replace("(", r"\(")):
        flow(only if "no target" in says else bad)


def test_two_flows_of_other_logic_have_another_fingerprint() -> None:
    def made(factor: int, code: int) -> str:
        @flow
        def f(orders: Rows) -> None:
            orders.derive(total=f"quantity * {factor}").apply(
                (lambda rows: rows) if code else (lambda rows: rows.limit(1)), gives="id bigint"
            ).into("t")

        return f.flow.fingerprint

    assert made(1, 1) == made(1, 1)
    assert made(1, 1) != made(2, 1)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda orders: orders.into("t", append=True), "each update would add all rows to `t` again"),
        (lambda orders: orders.filter("id > 1").union(orders).into("t", append=True), "leave out append=True"),
        (lambda orders: orders.derive(n="sum(quantity)").into("t"), "is an aggregate, but there are no groups"),
        (lambda orders: orders.filter("count(*) > 1").into("t"), "is an aggregate"),
        (lambda orders: orders.filter("row_number() over (order by id) = 1").into("t"), "looks at other rows"),
        (lambda orders: orders.aggregate("id", n="quantity").into("t"), "`quantity` has many values in a group"),
        (lambda orders: orders.aggregate("id", n="sum(price) + quantity").into("t"), "`quantity` has many values"),
        (lambda orders: orders.pivot("id", "note", ["a"], "quantity").into("t"), "`quantity` has many values"),
        (lambda orders: orders.derive(n="explode(array(1, 2))").into("t"), "makes several rows of one"),
        (lambda orders: orders.derive(n="(select max(id) from rows)").into("t"), "has a query inside"),
        (lambda orders: orders.derive(n="uuid()").into("t"), "gives another answer each time"),
        (lambda orders: orders.select(x="*").into("t"), "is not one expression"),
        (lambda orders: orders.derive(n=":partition_start").into("t"), "asks for :partition_start"),
        (lambda orders: orders.derive(n=":begin").into("t"), "parameter :begin"),
    ],
)
def test_what_spark_or_an_update_could_not_do(write, says: str) -> None:
    def whole(orders):
        write(orders)

    declared = flow(whole)
    found = check_flow(declared.flow, {"orders": ORDERS}, declared.tables[0])[1]
    assert len(found) == 1 and says in found[0].message, found
    if ":partition_start" in says:
        declared = flow(partition="day", time="n")(whole)
        shaped, found = check_flow(declared.flow, {"orders": ORDERS}, declared.tables[0])
        assert found == [] and (shaped.columns("t") or ())[-1].type == "timestamp"


def test_only_what_is_new_can_be_added_to_a_table() -> None:
    @flow
    def people(orders: Rows) -> None:
        orders.surrogate_key("key", of="customer", keys="keys").into("keyed")
        orders.into("now")
        orders.difference("now", key="id").filter("change <> 'delete'").into("log", append=True)

    assert check_flow(people.flow, {"orders": ORDERS}, people.tables[0])[1] == []
