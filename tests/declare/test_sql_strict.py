"""Whatever `check` lets pass, Spark analyses, with the columns and types that were said. Of what only other dialects know, of groups
and windows in the wrong place and of types that do not go together, nothing passes."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from penstock.declare.sql.view import SqlProblem, analyse
from penstock.model.schema import parse_ddl
from penstock.tables.types import parse

EV = (
    "k string, ts timestamp, d date, i int, b bigint, x double, m decimal(10,2), s string, f boolean, a array<int>, "
    "o struct<c:string,n:int>, p map<string,int>"
)
DIM = "k string, name string"
SCHEMAS = {"ev": parse_ddl(EV), "dim": parse_ddl(DIM)}

ACCEPTED = r"""
SELECT collation(k) AS c FROM ev
SELECT k FROM ev UNION ALL SELECT name FROM dim
SELECT k FROM ev UNION SELECT i FROM ev
SELECT k FROM ev INTERSECT SELECT k FROM dim
SELECT k FROM ev MINUS SELECT k FROM dim
SELECT k FROM ev EXCEPT ALL SELECT k FROM dim
FROM ev SELECT k, i
FROM ev |> WHERE i > 1 |> SELECT k
FROM ev |> AGGREGATE sum(i) AS n GROUP BY k
SELECT * FROM VALUES (1, 'a') AS v(n, t)
SELECT n FROM VALUES (1), (2) AS v(n) JOIN ev ON n = i
SELECT * FROM range(5)
SELECT r.id AS id FROM range(1, 10, 2) r JOIN ev ON ev.i = r.id
SELECT /*+ BROADCAST(dim) */ ev.k FROM ev JOIN dim ON ev.k = dim.k
SELECT /*+ COALESCE(1) */ k FROM ev
SELECT k  /* and */ FROM ev /* another */
SELECT transform(a, e -> e + 1) AS t FROM ev
SELECT transform(a, (e, n) -> e + n) AS t FROM ev
SELECT aggregate(a, 0, (acc, e) -> acc + e) AS t FROM ev
SELECT reduce(a, 0, (acc, e) -> acc + e, acc -> acc * 2) AS t FROM ev
SELECT filter(a, e -> e > k) AS t FROM ev
SELECT exists(a, e -> e > 1) AS t FROM ev
SELECT zip_with(a, a, (u, v) -> u + v) AS t FROM ev
SELECT map_filter(p, (key, value) -> value > 1) AS t FROM ev
SELECT array_sort(a, (l, r) -> CASE WHEN l < r THEN 1 ELSE -1 END) AS t FROM ev
SELECT mask(k, lowerChar => 'q') AS t FROM ev
SELECT mask(str => k) AS t FROM ev
SELECT k, e FROM ev LATERAL VIEW explode(a) t AS e
SELECT k, e FROM ev LATERAL VIEW OUTER posexplode(a) t AS q, e
SELECT k, e FROM ev, LATERAL (SELECT i + 1 AS e)
SELECT k, e FROM ev, LATERAL explode(a) AS t(e)
SELECT ev.k, t.e FROM ev LEFT JOIN LATERAL (SELECT max(name) AS e FROM dim WHERE dim.k = ev.k) t
SELECT k, a FROM (SELECT k, s, i FROM ev) PIVOT (sum(i) FOR s IN ('a', 'b'))
SELECT k, c, v FROM (SELECT k, i, b FROM ev) UNPIVOT (v FOR c IN (i, b))
SELECT k FROM ev TABLESAMPLE (5 ROWS)
SELECT k FROM ev TABLESAMPLE (BUCKET 1 OUT OF 4)
SELECT k, count(*) AS n FROM ev GROUP BY ALL
SELECT k, s, count(*) AS n FROM ev GROUP BY ROLLUP (k, s)
SELECT k, s, count(*) AS n FROM ev GROUP BY CUBE (k, s)
SELECT k, s, count(*) AS n FROM ev GROUP BY GROUPING SETS ((k), (s), ())
SELECT k, s, grouping(k) AS g, grouping_id(k, s) AS q FROM ev GROUP BY k, s WITH ROLLUP
SELECT upper(k) AS kk, s, count(*) AS n FROM ev GROUP BY ROLLUP (upper(k), s) HAVING kk IS NOT NULL AND s <> 'x' AND max(i) > 0 AND grouping(s) = 0
SELECT upper(k) AS kk, s, count(*) AS n FROM ev GROUP BY upper(k), s WITH CUBE ORDER BY kk, s, n
SELECT k, count(*) AS n FROM ev GROUP BY k HAVING n > 1
SELECT k FROM ev QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts) = 1
SELECT k, row_number() OVER w AS n FROM ev WINDOW w AS (PARTITION BY k ORDER BY ts)
SELECT k, sum(i) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS n FROM ev
SELECT k, lag(i, 1, 0) IGNORE NULLS OVER (PARTITION BY k ORDER BY ts) AS n FROM ev
SELECT k, max(ts) FILTER (WHERE i > 1) AS n FROM ev GROUP BY k
SELECT k, count(DISTINCT i, s) AS n FROM ev GROUP BY k
SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY i) AS n FROM ev GROUP BY k
SELECT k, listagg(s, ',') WITHIN GROUP (ORDER BY s) AS n FROM ev GROUP BY k
SELECT k, string_agg(s, ',') AS n FROM ev GROUP BY k
SELECT k, mode(i) AS n FROM ev GROUP BY k
SELECT k, approx_percentile(i, 0.5) AS n FROM ev GROUP BY k
SELECT k, max_by(s, i) AS n FROM ev GROUP BY k
SELECT k, collect_set(struct(s, i)) AS n FROM ev GROUP BY k
SELECT k, first(i, true) AS n FROM ev GROUP BY k
SELECT ev.* FROM ev
SELECT o.* FROM ev
SELECT * EXCEPT (k) FROM ev
SELECT ev.o.c AS c, o.n AS n, p['q'] AS q, a[0] AS a0, p.q AS pq FROM ev
SELECT `k` AS `weird name` FROM ev
SELECT "k" AS q FROM ev
SELECT K AS q, Ts FROM EV
SELECT k q, i FROM ev e WHERE e.i > 1
SELECT i + 1 AS j, j * 2 AS j2 FROM ev
SELECT k FROM ev WHERE k IN (SELECT k FROM dim)
SELECT k FROM ev WHERE EXISTS (SELECT 1 FROM dim WHERE dim.k = ev.k)
SELECT k, (SELECT max(name) FROM dim) AS n FROM ev
SELECT k, (SELECT name FROM dim WHERE dim.k = ev.k) AS n FROM ev
SELECT k FROM ev WHERE (k, s) IN (SELECT k, name FROM dim)
SELECT ev.k, name FROM ev JOIN dim USING (k)
SELECT k, name FROM ev JOIN dim USING (k)
SELECT k, name FROM ev NATURAL JOIN dim
SELECT ev.k FROM ev LEFT SEMI JOIN dim ON ev.k = dim.k
SELECT e.k FROM ev e FULL OUTER JOIN dim d ON e.k = d.k
SELECT e.k FROM ev e CROSS JOIN dim d
WITH q AS (SELECT k FROM ev) SELECT * FROM q
WITH q(z) AS (SELECT k FROM ev) SELECT z FROM q
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n, k FROM r JOIN ev ON n = i
SELECT k FROM (SELECT k FROM ev)
SELECT z.k FROM (SELECT k FROM ev) AS z
SELECT CASE i WHEN 1 THEN 'a' ELSE 'b' END AS c FROM ev
SELECT CASE WHEN f THEN 1 ELSE 'b' END AS c FROM ev
SELECT coalesce(i, s) AS c FROM ev
SELECT i::string AS c, cast(s AS int) AS d, try_cast(s AS int) AS e, s::decimal(10, 2) AS g FROM ev
SELECT cast(ts AS int) AS c FROM ev
SELECT cast(a AS array<string>) AS c FROM ev
SELECT i + s AS c FROM ev
SELECT ts + INTERVAL 1 DAY AS c, ts - INTERVAL '1:30' HOUR TO MINUTE AS e FROM ev
SELECT i || s AS c FROM ev
SELECT -s AS c FROM ev
SELECT i % 2 AS c, i DIV 2 AS e, i / 2 AS g, i & 1 AS h, i | 1 AS j, i ^ 1 AS l, ~i AS n, i << 1 AS q, i >> 1 AS r FROM ev
SELECT i <=> 1 AS c, i == 1 AS e, i != 1 AS g, i <> 1 AS h FROM ev
SELECT s LIKE 'a%' AS c, s ILIKE 'a' AS e, s RLIKE 'a' AS g, s REGEXP 'a' AS h, s LIKE ALL ('a', 'b') AS j FROM ev
SELECT s LIKE 'a' ESCAPE '!' AS c FROM ev
SELECT i BETWEEN 1 AND 2 AS c FROM ev
SELECT i IN (1, 2) AS c FROM ev
SELECT s IS DISTINCT FROM 'a' AS c FROM ev
SELECT f IS TRUE AS c, f IS NOT UNKNOWN AS e FROM ev
SELECT X'1F' AS a, DATE'2024-01-01' AS c, TIMESTAMP'2024-01-01 00:00:00' AS e, TIMESTAMP_NTZ'2024-01-01' AS g, r'a\b' AS h FROM ev
SELECT 'a' 'b' AS c FROM ev
SELECT array(1, 2) AS a, map('a', 1) AS c, struct(1 AS q) AS e, named_struct('q', 1) AS g FROM ev
SELECT slice(a, 1, 2) AS c, element_at(a, 1) AS e, a[i] AS g FROM ev
SELECT substr(k, 1) AS c, substring(k FROM 1 FOR 2) AS e, position('a' IN k) AS g, trim(BOTH 'a' FROM k) AS h, overlay(k PLACING 'a' FROM 1) AS j FROM ev
SELECT extract(YEAR FROM ts) AS c, date_part('hour', ts) AS e, year(ts) AS g FROM ev
SELECT date_format(ts, 'yyyy') AS c, date_trunc('hour', ts) AS e, trunc(d, 'MM') AS g, to_timestamp(s, 'yyyy') AS h FROM ev
SELECT date_trunc('nosuch', ts) AS c FROM ev
SELECT session_window(ts, '5 minutes').start AS c, count(*) AS n FROM ev GROUP BY session_window(ts, '5 minutes')
SELECT datediff(DAY, ts, ts) AS c, timestampdiff(HOUR, ts, ts) AS e, dateadd(DAY, 1, ts) AS g, datediff(d, d) AS h FROM ev
SELECT months_between(ts, ts) AS c, add_months(d, 1) AS e, last_day(d) AS g, next_day(d, 'MON') AS h FROM ev
SELECT make_date(2024, 1, 1) AS c, make_timestamp(2024, 1, 1, 0, 0, 0) AS e, ts + make_interval(1) AS g FROM ev
SELECT schema_of_json('{"a":1}') AS c FROM ev
SELECT explode(a) AS e FROM ev
SELECT explode(p) AS (u, v) FROM ev
SELECT posexplode(a) AS (u, v) FROM ev
SELECT inline(array(o)) AS (u, v) FROM ev
SELECT stack(2, 1, 2) AS (u) FROM ev
SELECT json_tuple(s, 'a', 'b') AS (u, v) FROM ev
SELECT explode(a) AS e, explode(a) AS g FROM ev
SELECT sum(s) AS n FROM ev
SELECT sum(ts) AS n FROM ev
SELECT sum(DISTINCT i) AS n, avg(DISTINCT x) AS m FROM ev
SELECT any(f) AS n, every(f) AS m, some(f) AS q, bool_and(f) AS r FROM ev
SELECT corr(i, b) AS n, stddev(x) AS m, var_pop(x) AS q, skewness(x) AS r, regr_slope(x, i) AS t FROM ev
SELECT bit_and(i) AS n, bit_xor(i) AS m, count_if(f) AS q, any_value(k) AS r FROM ev
SELECT k FROM ev ORDER BY i LIMIT 3 OFFSET 1
SELECT k FROM ev SORT BY i
SELECT k FROM ev DISTRIBUTE BY k SORT BY i
SELECT k FROM ev CLUSTER BY k
SELECT k FROM ev LIMIT ALL
SELECT ALL k FROM ev
SELECT current_timestamp() AS c, current_date AS e, now() AS g, current_user() AS h FROM ev
SELECT rand() AS c, uuid() AS e FROM ev
SELECT sha2(k, 256) AS c, md5(k) AS e, crc32(k) AS g, xxhash64(k) AS h, hash(k) AS j FROM ev
SELECT round(x, 1) AS c, round(m, 1) AS e, ceil(x) AS g, floor(m) AS h, bround(x, 1) AS j, ceil(m, 1) AS l FROM ev
SELECT nullif(i, 1) AS c, nvl(i, 2) AS e, nvl2(i, 1, 2) AS g, ifnull(i, 1) AS h, greatest(i, b) AS j, least(i, x) AS l FROM ev
SELECT i + b AS c, i * m AS e, m / 3 AS g, m + 1 AS h, x + m AS j, i + 1L AS l, m * 2.5 AS n FROM ev
SELECT concat(k, s) AS c, concat(a, a) AS e, concat_ws(',', a) AS g, k || i AS h FROM ev
SELECT split(k, ',') AS c, split(k, ',')[0] AS e, regexp_extract(k, 'a', 0) AS g, regexp_replace(k, 'a', 'b') AS h, split_part(k, ',', 1) AS j FROM ev
SELECT size(a) AS c, array_contains(a, 1) AS e, sort_array(a) AS g, flatten(array(a)) AS h, sequence(1, 3) AS j, map_keys(p) AS l FROM ev
SELECT typeof(i) AS c, version() AS e FROM ev
SELECT unix_timestamp(ts) AS c, from_unixtime(i) AS e, timestamp_seconds(i) AS g, unix_micros(ts) AS h, to_unix_timestamp(ts) AS j FROM ev
SELECT from_utc_timestamp(ts, 'Asia/Tokyo') AS c, to_utc_timestamp(ts, 'Asia/Tokyo') AS e, convert_timezone('UTC', 'Asia/Tokyo', ts::timestamp_ntz) AS g FROM ev
SELECT time_bucket(INTERVAL '5' MINUTE, ts) AS c FROM ev
SELECT k FROM ev WHERE ts > '2024-01-01'
SELECT k FROM ev WHERE d = ts
SELECT k FROM ev WHERE i = 'abc'
SELECT p FROM ev GROUP BY p
SELECT k FROM ev FINAL
SELECT k FROM ev;
SELECT k AS order FROM ev
SELECT k AS from FROM ev
SELECT k order FROM ev
SELECT (k, i) AS c FROM ev
SELECT (SELECT 1) AS c, k FROM ev
SELECT try_add(i, 1) AS c, try_divide(i, 0) AS e, try_element_at(a, 1) AS g FROM ev
SELECT i::int::string AS c FROM ev
SELECT CAST(k AS CHAR(5)) AS c, CAST(k AS VARCHAR(5)) AS e FROM ev
SELECT k, count(*) AS n FROM ev GROUP BY k ORDER BY sum(i)
SELECT '' AS c FROM ev
SELECT array(1, 'a') AS c FROM ev
SELECT array(array_max(a), null) AS c, array(i, null) AS e, map('a', null, 'b', i) AS g FROM ev
SELECT cast(array() AS array<string>) AS c, cast(map() AS map<string, int>) AS e FROM ev
SELECT if(f, array(), a) AS c, coalesce(p, map()) AS e, array(map('a', k)) AS g FROM ev
SELECT struct(o.c, a[0], k, i + 1, cast(k AS binary)) AS c, array(struct(i, k))[0].k AS e FROM ev
SELECT collect_list(struct(k, b)) AS c, collect_set(m) AS e, array_agg(d) AS g, first(ts) AS h, any_value(o) AS j FROM ev
SELECT struct(k, i).k AS c FROM ev
SELECT struct(*) AS c FROM ev
SELECT k FROM ev AS t(k, ts, d, i, b, x, m, s, f, a, o, p)
SELECT sum(i) OVER () AS n, sum(sum(i)) OVER () AS m FROM ev GROUP BY k, i
SELECT k, sum(n) AS n FROM (SELECT k, i AS n FROM ev) GROUP BY k
SELECT k FROM ev WHERE rlike(k, 'a') AND startswith(k, 'b') AND contains(k, 'c') AND endswith(k, 'd')
SELECT to_number(k, '999') AS c, to_char(i, '999') AS e, to_binary(k) AS g, hex(i) AS h, bin(i) AS j, conv(k, 10, 2) AS l FROM ev
SELECT width_bucket(x, 1, 2, 3) AS c, pmod(i, 2) AS e, mod(i, 2) AS g, power(i, 2) AS h, sign(i) AS j, abs(m) AS l, negative(i) AS n FROM ev
SELECT sum(i) AS n FROM ev GROUP BY k, o.c
SELECT array_agg(k) AS c FROM ev
SELECT struct(i AS n, k AS c) AS q, q.n AS z FROM ev
SELECT k AS `a.b` FROM ev
SELECT `a.b` FROM (SELECT k AS `a.b` FROM ev)
"""
REFUSED = r"""
SELECT k COLLATE UTF8_LCASE AS c FROM ev
SELECT collate(k, 'UNICODE_CI') AS c FROM ev
SELECT k, i FROM ev UNION ALL BY NAME SELECT i, k FROM ev
SELECT k, i FROM ev UNION BY NAME SELECT i, k FROM ev
SELECT f FROM ev UNION ALL SELECT ts FROM ev
TABLE ev
TABLE ev |> SELECT k
VALUES (1, 2)
SELECT k FROM ev WHERE i = ?
SELECT k FROM ev WHERE i = :other
SELECT k FROM IDENTIFIER('ev')
SELECT IDENTIFIER('k') AS k FROM ev
SELECT session.v FROM ev
SELECT k FROM ev VERSION AS OF 1
SELECT k FROM ev TIMESTAMP AS OF '2024-01-01'
SELECT * FROM (SELECT k, s, i FROM ev) PIVOT (sum(i) FOR s IN ('a', 'b'))
SELECT * FROM (SELECT k, s, i FROM ev) PIVOT (sum(i) AS n FOR s IN ('a' AS aa, 'b' AS bb))
SELECT * FROM (SELECT k, i, b FROM ev) UNPIVOT (v FOR c IN (i, b))
SELECT k, count(*) AS n FROM ev HAVING n > 1
SELECT k, i FROM ev GROUP BY k
SELECT k, sum(i) AS n FROM ev
SELECT k, sum(sum(i)) AS n FROM ev GROUP BY k
SELECT k FROM ev WHERE sum(i) > 1
SELECT k FROM ev WHERE row_number() OVER (ORDER BY ts) = 1
SELECT k, row_number() OVER v AS n FROM ev WINDOW w AS (PARTITION BY k ORDER BY ts)
SELECT k, row_number() AS n FROM ev
SELECT k, rank() OVER (PARTITION BY k) AS n FROM ev
SELECT * EXCLUDE (k) FROM ev
SELECT * REPLACE (1 AS i) FROM ev
SELECT * RENAME (i AS j) FROM ev
SELECT * EXCEPT (zz) FROM ev
SELECT k AS "quoted" FROM ev
SELECT k FROM ev e WHERE ev.i > 1
SELECT i j, j FROM ev
SELECT k, k FROM ev
SELECT k AS a, a FROM ev
SELECT k, (SELECT k, name FROM dim) AS n FROM ev
SELECT k FROM ev WHERE k = ANY (SELECT k FROM dim)
SELECT k FROM ev WHERE i > ALL (SELECT i FROM ev)
SELECT k, name FROM ev JOIN dim ON ev.k = dim.k
SELECT dim.k FROM ev LEFT ANTI JOIN dim ON ev.k = dim.k
SELECT e.k FROM ev e ASOF JOIN dim d ON e.k = d.k
SELECT e.k FROM ev e GLOBAL JOIN dim d ON e.k = d.k
SELECT e.k FROM ev e STRAIGHT_JOIN dim d ON e.k = d.k
WITH q(z, y) AS (SELECT k FROM ev) SELECT z FROM q
WITH q AS (SELECT k FROM ev), q AS (SELECT k FROM dim) SELECT * FROM q
SELECT if(f, 1, ts) AS c FROM ev
SELECT cast(i AS date) AS c FROM ev
SELECT cast(i AS struct<a: int>) AS c FROM ev
SELECT cast(s AS nosuchtype) AS c FROM ev
SELECT ts + 1 AS c FROM ev
SELECT d + 1 AS c, d - 1 AS e, d - d AS g, ts - ts AS h FROM ev
SELECT i && f AS c FROM ev
SELECT NOT i AS c FROM ev
SELECT k FROM ev WHERE i
SELECT k FROM ev WHERE s
SELECT k FROM ev WHERE k
SELECT i ** 2 AS c FROM ev
SELECT s SIMILAR TO 'a' AS c FROM ev
SELECT 1L AS a, 1S AS c, 1Y AS e, 1.5D AS g, 1.5BD AS h, 1e3 AS j, 1.5 AS l, 0x1F AS n FROM ev
SELECT N'abc' AS a FROM ev
SELECT U&'abc' AS c FROM ev
SELECT $$abc$$ AS c FROM ev
SELECT TIME'10:00:00' AS c FROM ev
SELECT [1, 2] AS a FROM ev
SELECT {'a': 1} AS a FROM ev
SELECT a[1:2] AS c FROM ev
SELECT k[0] AS c FROM ev
SELECT nosuch(k) AS c FROM ev
SELECT upper(k, k) AS c FROM ev
SELECT upper() AS c FROM ev
SELECT extract(FORTNIGHT FROM ts) AS c FROM ev
SELECT date_trunc(hour, ts) AS c FROM ev
SELECT window(ts, '5 minutes').start AS c, count(*) AS n FROM ev GROUP BY window(ts, '5 minutes')
SELECT window.start AS c, count(*) AS n FROM ev GROUP BY window(ts, '5 minutes')
SELECT from_json(s, 'a INT') AS c, to_json(o) AS e, get_json_object(s, '$.a') AS g, s:a AS h FROM ev
SELECT parse_json(s) AS c, parse_json(s):a AS e, variant_get(parse_json(s), '$.a', 'int') AS g FROM ev
SELECT explode(p) FROM ev
SELECT k, explode(a) FROM ev
SELECT inline(array(o)) FROM ev
SELECT explode(a) + 1 AS e FROM ev
SELECT i.x FROM ev
SELECT o.zz FROM ev
SELECT count(*) AS n, count(1) AS m, count() AS o2 FROM ev
SELECT avg(f) AS n FROM ev
SELECT max(p) AS n FROM ev
SELECT k FROM ev ORDER BY 2
SELECT k, i FROM ev GROUP BY 1, 3
SELECT DISTINCT k FROM ev ORDER BY i
SELECT DISTINCT ON (k) k FROM ev
SELECT TOP 3 k FROM ev
SELECT k FROM ev FETCH FIRST 3 ROWS ONLY
SELECT k FROM ev LIMIT i
SELECT k INTO x FROM ev
SELECT TRANSFORM(k) USING 'cat' AS (z) FROM ev
SELECT k FROM ev, dim
SELECT k FROM ev WHERE ts > 5
SELECT k FROM ev WHERE a = 1
SELECT k FROM ev WHERE o = 1
SELECT k FROM ev WHERE p = p
SELECT DISTINCT p FROM ev
SELECT ts AS t FROM ev MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS true)
SELECT k FROM ev CONNECT BY PRIOR k = s
SELECT k FROM ev FOR UPDATE
SELECT k FROM ev SETTINGS x = 1
SELECT k FROM ev PREWHERE i > 1
SELECT #1 FROM ev
SELECT k FROM ev WHERE i > 1 AND
SELECT k AS select FROM ev
SELECT st_point(1, 2) AS c FROM ev
SELECT date'2024-13-01' AS c FROM ev
SELECT timestamp'nonsense' AS c FROM ev
SELECT interval 5 nonsense AS c FROM ev
SELECT interval '1' day AS c FROM ev
SELECT null AS c FROM ev
SELECT map(1, 2, 3) AS c FROM ev
SELECT array() AS c FROM ev
SELECT map() AS c FROM ev
SELECT array(null, null) AS c FROM ev
SELECT array(array()) AS c FROM ev
SELECT struct(array_max(a), null) AS g FROM ev
SELECT map('a', null) AS c FROM ev
SELECT struct(null AS q) AS c FROM ev
SELECT named_struct('q', array()) AS c FROM ev
SELECT named_struct('q', k, 'Q', i) AS c FROM ev
SELECT struct(k, k) AS c FROM ev
SELECT array(struct(i, i)) AS c FROM ev
SELECT collect_list(null) AS c FROM ev
SELECT collect_list(ts - ts) AS c FROM ev
SELECT first(null) AS c FROM ev
SELECT array_distinct(array()) AS c FROM ev
SELECT sum(ts - ts) AS c FROM ev
SELECT (ts - ts) * 2 AS c FROM ev
SELECT make_interval(1) AS c FROM ev
SELECT make_dt_interval(1) AS c FROM ev
SELECT current_time() AS c FROM ev
SELECT try_parse_json(s) AS c FROM ev
SELECT coalesce(array(), array()) AS c FROM ev
SELECT struct(interval '1' day AS q) AS c FROM ev
WITH q AS (SELECT array() AS c FROM ev) SELECT c FROM q
SELECT array() AS c FROM ev UNION ALL SELECT array() FROM ev
SELECT ev FROM ev
SELECT count(ev.*) AS n FROM ev
SELECT k FROM ev WHERE NOT EXISTS (SELECT * FROM dim WHERE nosuch = 1)
SELECT k FROM ev t(a1)
SELECT a.k FROM ev a JOIN ev a ON true
SELECT k FROM ev JOIN dim ON ev.k = dim.nosuch
SELECT k FROM ev GROUP BY nosuch
SELECT k, i FROM ev ORDER BY nosuch
SELECT k FROM ev HAVING i > 1
SELECT k, count(*) AS n FROM ev GROUP BY k HAVING i > 1
SELECT upper(k) AS kk, s, count(*) AS n FROM ev GROUP BY ROLLUP (upper(k), s) HAVING upper(k) IS NOT NULL
SELECT upper(k) AS kk, s, count(*) AS n FROM ev GROUP BY upper(k), s WITH CUBE ORDER BY upper(k)
SELECT upper(k) AS kk, s, count(*) AS n FROM ev GROUP BY GROUPING SETS ((upper(k)), (s)) HAVING grouping(upper(k)) = 0
SELECT k, count(*) FILTER (WHERE sum(i) > 1) AS n FROM ev GROUP BY k
SELECT ai_query(k) AS c FROM ev
SELECT i AS `I`, b AS `i` FROM ev
"""


def lines(text: str) -> list[str]:
    return text.strip("\n").splitlines()


@pytest.mark.parametrize("sql", lines(REFUSED))
def test_refused(sql: str) -> None:
    with pytest.raises(SqlProblem):
        analyse(sql, SCHEMAS, time=None, file="v.sql", strict=True)


@pytest.mark.spark
def test_accepted(spark: SparkSession) -> None:
    for name, columns in (("ev", EV), ("dim", DIM)):
        spark.createDataFrame([], columns).createOrReplaceTempView(name)
    for sql in lines(ACCEPTED):
        view = analyse(sql, SCHEMAS, time=None, file="v.sql", strict=True)
        found = [(field.name, field.dataType.simpleString()) for field in spark.sql(view.sql).schema]
        for _, type_ in found:
            parse(type_)  # the catalogue can hold it
        if view.columns is not None:
            said = [(column.name, column.type) for column in view.columns]
            assert [name for name, _ in said] == [name for name, _ in found], sql
            assert all(type_ in (None, spark_type) for (_, type_), (_, spark_type) in zip(said, found, strict=True)), (
                sql
            )
